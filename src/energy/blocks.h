/*
 * From windows to blocks. A sensor's windows may overlap or leave gaps; blocks are the consecutive
 * intervals between the ends of its windows, whose energies are shared among the parts of a run.
 * Class powers predict the energy of each window and block; the difference between a window's
 * reading and its prediction (the residual) is distributed over the blocks:
 *
 *   tiled        a window is a block: its energy is the reading
 *   partly seen  unobserved time gets the predicted energy, plus the residual times the residuals'
 *                lag-1 autocorrelation
 *   overlapping  a window's residual is a sum over many blocks: the blocks' residuals are found by
 *                regularised least squares, shrunk to zero where the readings do not determine
 * them, as far as power varies within classes
 *
 * All three are linear in the readings, so the uncertainty of any sum of shares of blocks follows
 * exactly from the influence of each reading on it.
 */
#ifndef PJ_ENERGY_BLOCKS_H
#define PJ_ENERGY_BLOCKS_H

#include "base/memory.h"
#include "energy/attribute.h"

typedef struct pj_blocks_input {
    const pj_window *windows; /* in order of their ends */
    size_t count;
    /* usual interval between ends; gaps longer than three of it are unknown */
    int64_t period_ns;
    bool overlapping; /* windows are longer than the period */
    bool counted;     /* windows lie between the ticks of a counter: no time before one is unseen */
    bool logged;      /* a log beside the counter shows that it is the load that varies */
    int64_t begin_ns, end_ns; /* of the run */
    int64_t edge_ns;          /* time uncovered at the run's edges is filled in up to this length */
    const pj_leaf *leaves;
    size_t leaf_count;
    const double *power_mw; /* [classes] net */
    double idle_mw;         /* NAN: 0 */
    double noise;           /* relative noise of a window */
    double spread;      /* of power within a class, relative: what overlapping windows may show */
    double usual_noise; /* up to here it is taken for the sensor's own, beyond if seen to be */
} pj_blocks_input;

typedef struct pj_blocks {
    pj_arena arena; /* of all arrays */
    size_t count;
    pj_segment *segments; /* [count] energy_mj is NAN in a hole */
    size_t *window_of;    /* [count] window that ends with the block; SIZE_MAX: none */
    double *expected_mj;  /* [count] net, predicted from class powers */
    double *squares;      /* [count] sum over leaves of (net energy)^2, mJ^2 */
    double *moment;    /* [count] sum over leaves of net energy x time since the run began, mJ s */
    double *noise_var; /* [count] of the window that ends with the block, mJ^2 */
    /* [count] of what a counter with a log counted: it deviates from the classes' powers because
     * the load does, which moves energy between the parts of a block, mJ^2 */
    double *varied_var;
    double *reading_var; /* [count + 1] of the reading between two blocks, mJ^2 */
    /* [count] a lagging sensor's: weight of its error in the block that it closes, 1 more than in
     * the block that it opens; 0: a counter's, with a weight of 1 in both */
    double *closing;
    double *weight;     /* [count] influence of that window on the block */
    double *unseen_var; /* [count] of the part that no window saw */
    double *observed_s; /* [count] seconds that windows saw */
    /* overlapping windows only */
    size_t bands;
    double *factor; /* banded Cholesky of the normal matrix */
    double *share;  /* [windows][bands + 1] seconds of window in block, from first_block on */
    size_t *first_block;
    double *window_var;
    size_t window_count;
} pj_blocks;

/* Middle of what a leaf and a block have in common, in seconds since `from_ns`. */
static inline double pj_middle_s(const pj_leaf *leaf, const pj_segment *s, int64_t from_ns)
{
    int64_t begin = leaf->begin_ns > s->begin_ns ? leaf->begin_ns : s->begin_ns;
    int64_t end = leaf->end_ns < s->end_ns ? leaf->end_ns : s->end_ns;
    return ((double)(begin - from_ns) + (double)(end - begin) / 2) * 1e-9;
}

pj_status pj_blocks_init(const pj_blocks_input *input, pj_blocks *blocks, pj_error *err);
void pj_blocks_fini(pj_blocks *blocks); /* may run twice */

/* For the sum of shares f[i] of blocks first..first + count - 1: the influence of every window on
 * it (c[windows], zeroed before), the range of windows with any influence, and the variance due to
 * noise, rounding and unobserved time. `scratch` has room for the blocks. */
double pj_blocks_influence(const pj_blocks *blocks, size_t first, size_t count, const double *f,
                           double *scratch, double *c, size_t *window_first, size_t *window_last);

#endif
