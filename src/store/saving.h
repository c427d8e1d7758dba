/* A run being saved: what the files that save it share. Private to them. */
#ifndef PJ_STORE_SAVING_H
#define PJ_STORE_SAVING_H

#include "store/rows.h"
#include "store/sqlite.h"

typedef struct pj_saving {
    pj_store *store;
    const pj_run_data *data;
    int64_t first[PJ_TABLE_COUNT]; /* the id that the run's first row of each table gets */
    /* Operations of component c are begins[c] to begins[c + 1] in the order in which they are
     * stored; order[i] is the index in memory of the i-th, NULL where it is i. */
    uint32_t *begins, *order;
    bool by_statements; /* never as pages */
    bool has_bulk;      /* pages were tried: pj_saving_bulk_end is due */
} pj_saving;

/* The rows of a large table as pages. Not done: insert them by statement. PJ_E_UNSUPPORTED: roll
 * back and save the whole run by statements. */
struct pj_row_encoder;
pj_status pj_saving_bulk(pj_saving *saving, struct pj_row_encoder *encoder, bool *done,
                         pj_error *err);
void pj_saving_bulk_end(const pj_saving *saving); /* after the transaction */

#endif
