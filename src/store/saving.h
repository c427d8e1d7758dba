/*
 * A run on its way into the database: what the parts of saving share. Private to them.
 */
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
    bool one_by_one; /* rows go in by statements alone */
    bool has_bulk;   /* some went in otherwise */
} pj_saving;

/* The rows of a large table, faster than by a statement. Not done: they are to be inserted so.
 * PJ_E_UNSUPPORTED: the whole run is to be saved again, one by one. */
pj_status pj_saving_bulk(pj_saving *saving, pj_table_id table, bool *done, pj_error *err);
/* Behind the transaction. */
void pj_saving_bulk_end(const pj_saving *saving);

#endif
