/* Deconvolution of long averages: readings that are means over a window much longer than the update
 * period contain more detail than any single one shows. */
#ifndef PJ_POWER_DECONVOLVE_H
#define PJ_POWER_DECONVOLVE_H

#include "power/curve.h"

typedef struct pj_block {
    int64_t begin_ns, end_ns;
    double mw;
} pj_block;

enum { PJ_MOST_BLOCKS_PER_WINDOW = 62 };

/* Finds the power in blocks of about one period such that every window's mean agrees with its
 * reading, up to the sensor's noise, with the least change between neighbours. Windows are in order
 * of their ends. Gaps longer than three periods stay gaps. Allocates *blocks (pj_free). Zero blocks
 * when the windows are too long for their period. */
pj_status pj_deconvolve(const pj_curve_point *windows, size_t count, int64_t period_ns,
                        pj_block **blocks, size_t *block_count, pj_error *err);

#endif
