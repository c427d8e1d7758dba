/*
 * One sentence for a comparison of energy per token: the ratio, or that they are not
 * distinguishable, with the detectable difference and how many more runs would detect a smaller
 * one.
 */
#ifndef PJ_ANALYSIS_VERDICT_H
#define PJ_ANALYSIS_VERDICT_H

#include "analysis/contrasts.h"

typedef enum pj_outcome {
    PJ_OUTCOME_NONE = 0, /* nothing to compare: energy unavailable on a side */
    PJ_OUTCOME_REFUSED,  /* not comparable: see `refusal` */
    PJ_OUTCOME_SINGLE,   /* one run per side: nothing about repeats */
    PJ_OUTCOME_INDISTINGUISHABLE,
    PJ_OUTCOME_DIFFERENT
} pj_outcome;

typedef struct pj_verdict_facts {
    const char *name_a, *name_b;
    pj_contrast pair;            /* judged in joules per token */
    double single_lo, single_hi; /* one run per side: interval of the measurements, or NAN */
    double mann_whitney_p;       /* NAN: not computed */
    double speed_ratio;          /* b / a of output tokens per second; NAN: unknown */
    bool speed_differs;
    const char *refusal; /* NULL: none */
    const char *per;     /* what the joules are per: "typical token"; NULL: "token" */
} pj_verdict_facts;

typedef struct pj_judgement {
    pj_outcome outcome;
    double detectable; /* smallest detectable relative difference; NAN: unknown */
    double target;     /* relative difference detectable with `more_runs` per side */
    double more_runs;  /* 0: none needed; NAN: unknown */
    const char *per;   /* as in the facts */
} pj_judgement;

const char *pj_outcome_name(pj_outcome outcome); /* "different", "not_distinguishable", ... */
/* Decides the outcome and writes the sentence. */
void pj_verdict_write(const pj_verdict_facts *facts, pj_judgement *judgement, char *text,
                      size_t bytes);

/* One sentence for pairs that are not distinguishable; of the sides there are `names`. */
typedef struct pj_tied_pair {
    uint32_t a, b;
    pj_judgement judgement;
} pj_tied_pair;

void pj_verdict_write_ties(const pj_tied_pair *ties, size_t count, const char *const *names,
                           size_t sides, char *text, size_t bytes);

/* Whether `n` runs a side are called different in energy per token. */
bool pj_verdict_is_different(const double *a, const double *b, size_t n);

#endif
