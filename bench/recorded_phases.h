/*
 * Phase detection in recorded power traces without tags: three graphics cards whose load was
 * switched at known times, seen by an external meter with a resolution of 1 ms and, where its
 * readings resolve the load, by the card's own sensor. Work is tagged decode, the rest idle. Each
 * recording is classified by a model that was trained on all others, and by the prior.
 */
#ifndef PJ_BENCH_RECORDED_PHASES_H
#define PJ_BENCH_RECORDED_PHASES_H

#include "base/error.h"

enum { PJ_RECORDED_TRACES = 5 };

/* Counts of readings. */
typedef struct pj_recorded_score {
    const char *name;
    double all, right;
    double prior_right;            /* work and idle separated by the prior */
    double near_90, near_90_right; /* with a confidence of 85 to 95 % */
} pj_recorded_score;

/* `folder` holds k40m-step, 4090-step and 3090-50pct-duty, each with timestamps.csv, which has each
 * switching time twice, external-meter-1ms.csv and gpudata.csv. */
pj_status pj_recorded_phases_judge(const char *folder, pj_recorded_score scores[PJ_RECORDED_TRACES],
                                   pj_error *err);

#endif
