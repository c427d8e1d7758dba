/*
 * The setting with the least joules per token among those of a sweep that do not cost too much
 * speed. Every block of the sweep has each setting once, so that settings are compared within
 * blocks and drift cancels. The largest setting is the reference. A saving is stated when it is
 * told from none at PJ_LEVEL, corrected for the number of settings tried; how sure the choice is, a
 * bootstrap over blocks tells. Pure.
 */
#ifndef PJ_ANALYSIS_SWEEP_H
#define PJ_ANALYSIS_SWEEP_H

#include "analysis/ratio.h"

enum { PJ_SWEEP_SETTINGS = 16, PJ_SWEEP_BLOCKS = 64, PJ_SWEEP_LEAST_BLOCKS = 3 };

typedef struct pj_sweep {
    uint32_t settings, blocks;
    double setting[PJ_SWEEP_SETTINGS]; /* ascending */
    /* NAN: unavailable */
    double joules[PJ_SWEEP_SETTINGS][PJ_SWEEP_BLOCKS]; /* per token */
    double speed[PJ_SWEEP_SETTINGS][PJ_SWEEP_BLOCKS];
} pj_sweep;

typedef struct pj_sweep_point {
    double joules, speed; /* geometric means */
    pj_ratio cost, pace;  /* of joules and of speed to the reference's */
    bool fast_enough;
} pj_sweep_point;

typedef struct pj_sweep_result {
    pj_sweep_point points[PJ_SWEEP_SETTINGS];
    bool known;          /* false: a figure is missing, or there are too few blocks */
    uint32_t best;       /* the reference, if none is cheaper */
    bool saves;          /* the best one, certainly */
    double chosen_share; /* of resamples in which it is the best */
    double lo, hi;       /* settings that are the best in 95 % of resamples */
} pj_sweep_result;

/* `most_loss`: of speed that is allowed, 0.02 for 2 %. */
void pj_sweep_judge(const pj_sweep *sweep, double most_loss, pj_sweep_result *result);
/* The order of the settings in a block: high and low ones in turn, every other block backwards. */
void pj_sweep_order(uint32_t settings, uint32_t block, uint32_t *order);

#endif
