/* A run being saved: what the files that save it share. Private to them. */
#ifndef PJ_STORE_SAVING_H
#define PJ_STORE_SAVING_H

#include "store/rows.h"
#include "store/sql.h"

typedef struct pj_saving {
    pj_store *store;
    const pj_run_data *data;
    int64_t first[PJ_TABLE_COUNT]; /* the id that the run's first row of each table gets */
    /* Operations of component c are begins[c] to begins[c + 1] in the order in which they are
     * stored; order[i] is the index in memory of the i-th, NULL where it is i. */
    uint32_t *begins, *order;
    bool by_statements; /* never in bulk */
} pj_saving;

#endif
