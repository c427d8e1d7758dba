/*
 * From windows to blocks. A sensor's windows may overlap or leave time unseen; blocks are the
 * stretches between the ends of its windows, one after the other, whose energies the parts of a run
 * share. Class powers say what to expect of a window and of a block; what a window read beyond that
 * (its residual) is put back into the blocks:
 *
 *   tiled        a window is a block: its energy is the reading
 *   partly seen  the unseen rest is what class powers expect, and moves with the residual as far as
 *                neighbouring residuals resemble each other
 *   overlapping  residuals of windows are sums over many blocks: the blocks' residuals are found
 *                by least squares, drawn to zero as far as the readings leave them open
 *
 * All are linear in the readings, so that the uncertainty of any sum of shares of blocks follows
 * exactly from the influence that each reading has on it.
 */
#ifndef PJ_ENERGY_BLOCKS_H
#define PJ_ENERGY_BLOCKS_H

#include "energy/attribute.h"

typedef struct pj_blocks_input {
    const pj_window *windows; /* in order of their ends */
    size_t count;
    int64_t period_ns;        /* between ends, usually; longer holes than three of it are unknown */
    bool overlapping;         /* windows are longer than the period */
    int64_t begin_ns, end_ns; /* of the run */
    int64_t edge_ns;          /* what windows leave open at its edges is filled in up to this */
    const pj_leaf *leaves;
    size_t leaf_count;
    const double *power_mw; /* [classes] net */
    double idle_mw;         /* NAN: 0 */
    double noise;           /* relative, of a window */
    double reading_noise;   /* what of that is the sensor's own, as far as is known */
} pj_blocks_input;

typedef struct pj_blocks {
    size_t count;
    pj_segment *segments; /* [count] energy_mj is NAN in a hole */
    size_t *window_of;    /* [count] that ends with it; SIZE_MAX: none */
    double *expected_mj;  /* [count] net, by class powers */
    double *squares;      /* [count] sum over leaves of (net energy)^2, mJ^2 */
    double *noise_var;    /* [count] of the window that ends with it, mJ^2 */
    double *reading_var;  /* [count + 1] of the reading between two blocks (counters), mJ^2 */
    double *weight;       /* [count] influence of that window on the block */
    double *unseen_var;   /* [count] of what no window saw */
    double *observed_s;   /* [count] seconds of it that windows saw */
    /* overlapping windows only */
    size_t bands;
    double *factor; /* banded Cholesky of the normal matrix */
    double *share;  /* [windows][bands + 1] seconds of window in block, from first_block on */
    size_t *first_block;
    double *window_var;
    size_t window_count;
} pj_blocks;

pj_status pj_blocks_init(const pj_blocks_input *input, pj_blocks *blocks, pj_error *err);
void pj_blocks_fini(pj_blocks *blocks); /* may run twice */

/* Of the sum of shares f[i] of blocks first..first + count - 1: the influence of every window on it
 * (c[windows], zeroed before), the range of windows that have any, and the variance that noise,
 * rounding and unseen time give it. `scratch` has room for the blocks. */
double pj_blocks_influence(const pj_blocks *blocks, size_t first, size_t count, const double *f,
                           double *scratch, double *c, size_t *window_first, size_t *window_last);

#endif
