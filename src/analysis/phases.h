/*
 * Phases of a power trace that carries no tags: change points (PELT with a Gaussian cost for mean
 * and variance of the log of power), then a hidden Markov model over the segments. The model is
 * trained on tagged traces, best of the same machine, else a prior is used. The posterior
 * probability of a segment is the confidence of its samples, calibrated by isotonic regression on
 * traces left out of the training, and lowered near a change by how often such samples are wrong
 * there; it never exceeds what the number of traces supports. Pure.
 */
#ifndef PJ_ANALYSIS_PHASES_H
#define PJ_ANALYSIS_PHASES_H

#include <perjoule.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PJ_PHASE_UNKNOWN = PJ_PHASE_COUNT, PJ_PHASE_STEPS = 40, PJ_PHASE_EDGE = 4 };

/* Readings of the total (or the widest rail), without repeated values. */
typedef struct pj_phase_trace {
    const double *t_ms, *mw;
    size_t count;
    double idle_mw;       /* NAN: the lowest level of the trace */
    const uint8_t *phase; /* tags, for training; NULL: none */
} pj_phase_trace;

typedef struct pj_phase_model {
    /* of a segment, by phase: level between idle (0) and the trace's top (1), log of its share of
     * the trace's time */
    double level[PJ_PHASE_COUNT], level_sd[PJ_PHASE_COUNT];
    double share[PJ_PHASE_COUNT], share_sd[PJ_PHASE_COUNT];
    /* log of its power in mW; NAN: unknown. It separates phases where a trace has no idle time, and
     * little where the training has machines of many sizes, since it then spreads widely. */
    double log_mw[PJ_PHASE_COUNT], log_mw_sd[PJ_PHASE_COUNT];
    double start[PJ_PHASE_COUNT], next[PJ_PHASE_COUNT][PJ_PHASE_COUNT];
    double calibrated[PJ_PHASE_STEPS]; /* confidence for a posterior of (i + 0.5) / STEPS */
    /* factor on the confidence of samples near a change of phase: of the first and of the last ones
     * of a phase, by their distance */
    double edge[2][PJ_PHASE_EDGE];
    uint32_t traces; /* that it was trained on; 0: the prior */
} pj_phase_model;

void pj_phase_model_prior(pj_phase_model *model);
/* From tagged traces; those too short or too flat are skipped. False: memory is out. */
bool pj_phase_model_train(const pj_phase_trace *traces, size_t count, pj_phase_model *model);

/* Writes a phase and a confidence for every reading; PJ_PHASE_UNKNOWN with confidence 0 for all
 * when the trace has fewer than 15 readings, is flatter than its noise, or has levels that differ
 * by less than a tenth and no traces of such machines tell which phase has which power. Returns the
 * number of segments; 0: unknown, or memory is out. */
size_t pj_phases_detect(const pj_phase_trace *trace, const pj_phase_model *model, uint8_t *phase,
                        double *confidence);

/* The change points alone: writes the first index of each segment (at most count / 3 of them),
 * returns how many. */
size_t pj_change_points(const double *values, size_t count, size_t *begin);

#endif
