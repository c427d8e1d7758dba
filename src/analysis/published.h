/*
 * Published figures of energy per output token, with which a run's figure can be set side by side:
 * an order of magnitude, never a verdict. Each names its source, scope, hardware, batch and
 * weights. A ratio is given only within one scope; everything else that differs is a caveat. Pure.
 */
#ifndef PJ_ANALYSIS_PUBLISHED_H
#define PJ_ANALYSIS_PUBLISHED_H

#include <stddef.h>
#include <stdint.h>

typedef struct pj_published {
    const char *model, *dtype, *hardware;
    double parameters, active_parameters; /* of the model */
    uint32_t batch;                       /* 0: several */
    double joules_per_token, joules_hi;   /* per output token; a range, or twice the same */
    const char *source, *address;
} pj_published;

/* All of them cover the boards of the GPUs, nothing else of the machine. */
#define PJ_PUBLISHED_SCOPE "gpu"

extern const pj_published pj_published_figures[];
extern const size_t pj_published_count;

enum { PJ_PUBLISHED_NEAREST = 3, PJ_PUBLISHED_CAVEATS = 6, PJ_PUBLISHED_CAVEAT_BYTES = 160 };

/* The run to compare. */
typedef struct pj_published_query {
    double active_parameters;
    uint32_t batch;
    const char *dtype, *scope; /* scope "gpu", or what its rails are: "rapl" */
    double joules_per_token;   /* NAN: unknown */
    int is_modelled;
} pj_published_query;

typedef struct pj_published_beside {
    const pj_published *figure;
    double ratio; /* of the run to the figure; NAN: not comparable */
    char caveats[PJ_PUBLISHED_CAVEATS][PJ_PUBLISHED_CAVEAT_BYTES];
    uint32_t caveat_count;
} pj_published_beside;

/* The nearest in active parameters, then batch, within a factor of 20 in size; returns how many, 0
 * also when the run's parameters are unknown. */
uint32_t pj_published_near(const pj_published_query *request,
                           pj_published_beside beside[PJ_PUBLISHED_NEAREST]);

#endif
