/*
 * Why does B cost more than A? The parts of two sides, each one run or several, are matched by
 * their names, by the values they computed, or by their role. The difference of each is split into
 * calls, bytes, FLOPs, the rest of the time, and power, and named where it is at least a hundredth
 * of A's request and certain. All figures are per output token; of runs that count none, as traces
 * of PyTorch, per run. Pure: rows of runs in, findings out. Method: docs/measurement.md, "Why".
 */
#ifndef PJ_ANALYSIS_WHY_H
#define PJ_ANALYSIS_WHY_H

#include "base/estimate.h"
#include "trace/run_data.h"

/* What explains a difference. */
typedef enum pj_why_kind {
    PJ_WHY_NOTHING = 0, /* not certain, or below a hundredth of the request */
    PJ_WHY_REPEATED,    /* values computed again that are already there */
    PJ_WHY_COPY,        /* values moved unchanged */
    PJ_WHY_CONVERSION,  /* values moved and rounded */
    PJ_WHY_EXTRA,       /* a part that only one side has */
    PJ_WHY_CALLS,       /* more or fewer calls */
    PJ_WHY_BATCH,       /* other numbers of sequences that share steps */
    PJ_WHY_TYPE,        /* other bytes for the same FLOPs */
    PJ_WHY_WORK,        /* other FLOPs */
    PJ_WHY_LENGTH,      /* other numbers of tokens */
    PJ_WHY_KERNEL,      /* the same work in other time */
    PJ_WHY_TIME,        /* what is compared as a whole, in other time */
    PJ_WHY_POWER,       /* the same time at other power */
    PJ_WHY_GAP,         /* time in which no part computed */
    PJ_WHY_CLOCK,       /* a device's clock: all parts alike */
    PJ_WHY_PACE,        /* all parts alike, for no known reason */
    PJ_WHY_KIND_COUNT
} pj_why_kind;

const char *pj_why_kind_name(pj_why_kind kind); /* "repeated", ... */

typedef enum pj_why_match {
    PJ_WHY_BY_NAME = 0,
    PJ_WHY_BY_VALUES, /* of other names, but the same values */
    PJ_WHY_BY_ROLE,   /* of other names; both are attention, MLP, norms or none of them */
    PJ_WHY_ALONE      /* only one side has it */
} pj_why_match;

const char *pj_why_match_name(pj_why_match match); /* "name", ... */

/* One side's share in a part, per output token. 0: it has no such part. NAN: unknown. */
typedef struct pj_why_amount {
    double calls, ms, mj, flops, bytes;
    double ms_variance, mj_variance; /* of the means */
    /* The time that disturbances leave as it is, and its variance: by the quickest quarter of a
     * run's tokens or calls; of several runs, and of what happens only once, the mean. */
    double calm_ms, calm_variance;
    bool once; /* of a single run, in part of what happens too rarely to tell how it varies */
} pj_why_amount;

/* What of a difference is due to what, mJ: adds up to b - from. */
typedef struct pj_why_split {
    double calls, bytes, flops, time, power;
} pj_why_split;

typedef struct pj_why_row {
    uint8_t phase;
    bool is_gap;
    bool per_run;      /* its amounts; else per output token */
    bool whole;        /* all of the phase, or its layers, since the sides do not divide it alike */
    const char *name;  /* "q_proj", "attention/softmax", "q_proj+k_proj" */
    const char *other; /* its name on side B, where that differs; else NULL */
    pj_why_match match;
    pj_why_amount a, b;
    pj_why_amount from;            /* A's, after causes of all parts together */
    double repeated_a, repeated_b; /* calls that repeat the values of the call before them */
    int same_values;               /* 1, 0; -1: unknown */
    const char *equals;            /* the part of its side whose values it repeats; NULL: none */
    bool equals_exactly;
    double difference_mj; /* b - a */
    /* Its 95 % interval, without errors that both sides share, and with the scatter of times where
     * a side is a single run. */
    pj_bounds bounds;
    /* Of that, what common causes leave, and the interval that judges it: that of all parts of the
     * comparison together. */
    double left_mj;
    pj_bounds left;
    pj_why_split split;
    pj_why_kind kind;
    double explained_mj; /* of the difference, by `kind` */
    pj_bounds explained; /* its interval */
} pj_why_row;

/* A cause of all parts together; of a length, of all parts of prefill or of what is around steps.
 */
typedef struct pj_why_common {
    pj_why_kind kind; /* LENGTH, BATCH, CLOCK, PACE; NOTHING: none */
    double explained_mj, time_factor, power_factor;
    pj_bounds explained; /* its interval */
    char device[32];     /* of a clock */
    char settings[48];   /* in which the sides differ, where they may make a pace; "": in none */
    double clock_a_mhz, clock_b_mhz, throttled_a, throttled_b; /* NAN: unknown */
    /* sequences that share steps, or requests at a time (0: several) */
    double batch_a, batch_b;
    bool of_requests;
    bool around_steps; /* a length: of what happens once, before and after them */
} pj_why_common;

enum { PJ_WHY_COMMONS = 3 };

typedef struct pj_why {
    pj_arena arena;
    bool per_run;                      /* all figures; else per output token */
    double request_a_mj, request_b_mj; /* means */
    /* 95 % intervals of these and of the ratio B / A, without errors that both sides share */
    pj_bounds request_a, request_b, ratio;
    double disturbed_a_mj, disturbed_b_mj; /* of that */
    uint32_t runs_a, runs_b;
    pj_why_row *rows;                /* those that explain most first */
    uint32_t row_count, named_count; /* the first `named_count` have a kind */
    pj_why_common commons[PJ_WHY_COMMONS];
    uint32_t common_count;
    double explained_mj; /* by rows and common causes */
    /* A phase's change of power that is certain, but of no part in particular; 0: there is none. */
    double unplaced_mj, unplaced_sd_mj;
    uint8_t unplaced_phase;
    pj_why_common unsure; /* a batch whose effect is not certain; NOTHING: there is none */
} pj_why;

/* Collects the runs of one side. */
typedef struct pj_why_side pj_why_side;
pj_status pj_why_side_new(pj_why_side **side, pj_error *err);
/* Needs the classes of each run; of the first also phases, sections, tokens, layers, components and
 * operations. Runs without an energy are not counted, nor those without output tokens beside a
 * first one that has some, and the reverse. */
pj_status pj_why_side_add(pj_why_side *side, const pj_run_data *run, pj_error *err);
/* Requests that a server answers at a time, whose energies are shares of its machine's; 0: several.
 * Not said: one. */
void pj_why_side_at_a_time(pj_why_side *side, uint32_t requests);
uint32_t pj_why_side_runs(const pj_why_side *side);
void pj_why_side_free(pj_why_side *side); /* NULL is allowed */

/* Whether both are per output token, or both per run: others are not comparable. */
bool pj_why_sides_alike(const pj_why_side *a, const pj_why_side *b);
/* The result is independent of the sides; free it with pj_why_fini. Of two models each phase is
 * compared as a whole. */
pj_status pj_why_find(const pj_why_side *a, const pj_why_side *b, bool same_model, pj_why *why,
                      pj_error *err);
void pj_why_fini(pj_why *why); /* may run twice */

/* One clause that says why, such as "2 calls instead of 1, with equal values". */
void pj_why_row_text(const pj_why_row *row, char *text, size_t bytes);
/* Of which parts: "prefill" or NULL, "all parts", "around the steps". */
const char *pj_why_common_phase(const pj_why_common *common);
const char *pj_why_common_part(const pj_why_common *common);
void pj_why_common_text(const pj_why_common *common, char *text, size_t bytes);
/* A sentence on `unplaced_mj` or `unsure`; false: there is none. */
bool pj_why_unplaced_text(const pj_why *why, char *text, size_t bytes);

#endif
