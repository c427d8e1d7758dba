/*
 * The energy of a part of a model by two independent measurements: runs without the part against
 * runs of the whole model, and what attribution assigns to the part in the latter. Each checks the
 * other. All energies are in one unit, such as joules per token. Pure.
 */
#ifndef PJ_ANALYSIS_PART_COST_H
#define PJ_ANALYSIS_PART_COST_H

#include <stdint.h>

/* One run: the energy of all of it and the block of the experiment it ran in. */
typedef struct pj_part_run {
    double joules;
    uint32_t block;
    double sensor_sd; /* 1 sigma of `joules` from noise and resolution of the sensor alone */
} pj_part_run;

/* Attribution in one run of the whole model. */
typedef struct pj_part_share {
    double joules, sd;
} pj_part_share;

typedef struct pj_part_query {
    const pj_part_run *whole, *without;
    const pj_part_share *shares;
    uint32_t whole_count, without_count, share_count;
} pj_part_query;

typedef struct pj_estimate {
    double value, lo, hi; /* 95 %; NAN: unavailable */
} pj_estimate;

typedef enum pj_part_outcome {
    PJ_PART_AGREE = 0,
    PJ_PART_DISAGREE,
    PJ_PART_TOO_SHORT, /* the difference is below what the sensor resolves: it is withheld */
    PJ_PART_UNCLEAR, /* its interval contains zero: it is compatible with attribution and with none
                      */
    PJ_PART_OPEN     /* fewer than two blocks have both, or an energy is unavailable */
} pj_part_outcome;

typedef struct pj_part_cost {
    pj_estimate difference; /* paired by block: what disturbs both runs of one cancels */
    pj_estimate attributed;
    double resolution; /* least difference of two runs that the sensor resolves */
    uint32_t pairs;
    pj_part_outcome outcome;
} pj_part_cost;

void pj_part_cost_get(const pj_part_query *request, pj_part_cost *cost);
const char *pj_part_outcome_name(pj_part_outcome outcome); /* "agree", "disagree", ... */

#endif
