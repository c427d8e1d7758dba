/* The cell, block and round of a run in an experiment (experiment/experiment.h), kept in its
 * settings. */
#ifndef PJ_RECORD_EXPERIMENT_CELL_H
#define PJ_RECORD_EXPERIMENT_CELL_H

#include "base/json.h"
#include "trace/run_data.h"

typedef struct pj_experiment_cell {
    uint32_t cell, block, round;
} pj_experiment_cell;

/* Writes members of the settings' object; none for NULL. */
void pj_experiment_cell_write(const pj_experiment_cell *cell_id, pj_json *json);
/* False: the run belongs to no cell of any plan. */
bool pj_experiment_cell_of(const pj_run_info *info, pj_experiment_cell *cell_id);

#endif
