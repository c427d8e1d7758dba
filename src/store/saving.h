/* The state of saving a run, private to the files that implement it. */
#ifndef PJ_STORE_SAVING_H
#define PJ_STORE_SAVING_H

#include "store/rows.h"
#include "store/sql.h"

typedef struct pj_saving {
    pj_store *store;
    const pj_run_data *data;
    int64_t first[PJ_TABLE_COUNT]; /* id of the run's first row in each table */
    /* Operations of component c are begins[c] to begins[c + 1] in storage order; order[i] is the
     * index in memory of the i-th, NULL: the identity. */
    uint32_t *begins, *order;
    int64_t run_number; /* of the run's own row, where the engine does not count by itself */
} pj_saving;

/* The machine's id on a server: a hash of its name, so that every program computes the same one. */
int64_t pj_machine_id(const char *machine);

#endif
