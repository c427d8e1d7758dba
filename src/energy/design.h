/* The design matrix of the regression, in sparse row form because a short window contains few
 * classes. Columns: seconds of each class inside the window, then hat functions for a drift that is
 * common to all work (heat), centred on a few knots evenly spaced over the run. A hat's entry is
 * the window's work, power x seconds, times the hat's height. */
#ifndef PJ_ENERGY_DESIGN_H
#define PJ_ENERGY_DESIGN_H

#include "base/memory.h"
#include "energy/attribute.h"

typedef struct pj_design {
    pj_arena arena;       /* of the arrays that are not per entry */
    size_t rows, columns; /* columns: classes, then knots */
    size_t *row_begin;    /* [rows + 1] into the entries */
    uint32_t *column;     /* per entry */
    double *seconds;      /* per entry: time of the class or area of the hat in the window */
    /* Per entry, for leaves whose power differs from their class's: the window's variance due to
     * that is spread^2 power^2 times the sum of squares of its leaves' times, s^2. A leaf in
     * several windows gives them one common deviation. Its covariance u u', u the leaf's time in
     * each, is bounded by the diagonal u x sum(u): the difference is diagonally dominant, so
     * intervals based on the bound are never too narrow, and a class seen through one long leaf
     * counts as one observation, however many windows the leaf fills. */
    double *squares, *bound;
    double *work;          /* [rows]: the work that the hats' entries represent */
    double *total_s;       /* [columns]: the same in the whole run */
    double *total_squares; /* [columns]: sum of squares of the leaves' times in the run, s^2 */
} pj_design;

/* `knots`: 0, or at least 2. */
pj_status pj_design_init(pj_design *design, const pj_fit_input *input, size_t knots, pj_error *err);
/* Sets the powers that the hats' entries are based on, at first 1. */
void pj_design_set_powers(pj_design *design, const pj_fit_input *input, const double *powers);
void pj_design_fini(pj_design *design); /* may run twice */

#endif
