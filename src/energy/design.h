/* The design matrix of the regression, in sparse row form because a short window contains few
 * classes. Columns: seconds of each class inside the window, then hat functions for the drift of
 * the baseline, centred on a few knots evenly spaced over the run. */
#ifndef PJ_ENERGY_DESIGN_H
#define PJ_ENERGY_DESIGN_H

#include "energy/attribute.h"

typedef struct pj_design {
    size_t rows, columns; /* columns: classes, then knots */
    size_t *row_begin;    /* [rows + 1] into the entries */
    uint32_t *column;     /* per entry */
    double *seconds;      /* per entry: time of the class or area of the hat in the window */
    double *total_s;      /* [columns]: the same in the whole run */
} pj_design;

/* `knots`: 0, or at least 2. */
pj_status pj_design_init(pj_design *design, const pj_fit_input *input, size_t knots, pj_error *err);
void pj_design_fini(pj_design *design); /* may run twice */

#endif
