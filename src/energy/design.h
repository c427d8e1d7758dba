/* The design matrix of the regression: time of each class inside each window, sparse by rows, since
 * a short window holds few classes. */
#ifndef PJ_ENERGY_DESIGN_H
#define PJ_ENERGY_DESIGN_H

#include "energy/attribute.h"

typedef struct pj_design {
    size_t rows;
    size_t *row_begin; /* [rows + 1] into the entries */
    uint32_t *column;  /* per entry: class */
    double *time_ms;   /* per entry */
    double *total_ms;  /* [classes]: time of the class in the whole run */
} pj_design;

pj_status pj_design_init(pj_design *design, const pj_fit_input *input, pj_error *err);
void pj_design_fini(pj_design *design); /* may run twice */

#endif
