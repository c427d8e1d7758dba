/* Private to why*.c: the parts of one side, and how those of two are matched. */
#ifndef PJ_ANALYSIS_WHY_IMPL_H
#define PJ_ANALYSIS_WHY_IMPL_H

#include "analysis/compare.h"
#include "analysis/why.h"
#include "trace/device_conditions.h"

/* Of A's request: smaller causes are not named. */
#define PJ_WHY_LEAST 0.01

/* Enough to tell values apart; a part's first ones. */
enum { PJ_WHY_LOOKS = 32 };

/* Statistics of the output of one call, and where it was. */
typedef struct pj_why_look {
    uint32_t token, layer; /* position of the token; PJ_NO_PARENT: in none */
    float mean_abs, std, max_abs, sparsity, mean;
} pj_why_look;

/* A class of work of one side: a component, or an operation of it. */
typedef struct pj_why_part {
    const char *component, *operation; /* "": time between parts; NULL: the component itself */
    uint8_t phase;
    bool on_device;
    pj_moments ms; /* per output token, of the runs */
    pj_moments mj;
    double random, bias; /* of mj: sums of variances and of deviations over the runs */
    double flops, bytes; /* the same; NAN: unknown */
    double ms_now, mj_now, random_now, bias_now; /* of the run being added */
    /* of the run with rows: */
    uint64_t calls, repeated; /* repeated: with the values of the call before it in one place */
    double *times;            /* by token, in prefill by call */
    uint32_t time_count;
    uint32_t place;                /* of the last of them; UINT32_MAX: none */
    double calm_ms, calm_variance; /* their lower quartile, times how many; NAN: fewer than four */
    double token_variance;         /* of their sum, ms^2 */
    pj_why_look last, looks[PJ_WHY_LOOKS];
    uint32_t look_count;
    bool has_last;
} pj_why_part;

struct pj_why_side {
    pj_arena arena;
    pj_why_part *parts;
    uint32_t count, runs;
    bool per_run;            /* no output tokens: `output_tokens` is 1 */
    double request_variance; /* of the sum of request_mj */
    /* How far decode steps were held up: the longest, and squares by time; INFINITY: unknown. */
    double longest_stall_ms, stalls_ms;
    double pace_sd; /* relative, of their median */
    double disturbed_share;
    double phase_ms[PJ_PHASE_COUNT], ms; /* of the run with rows; of all phases */
    bool has_operations, has_devices;
    pj_moments request;                        /* mJ per output token, of the runs */
    double disturbed_mj;                       /* sum over runs, likewise */
    double input_tokens, output_tokens, batch; /* of the first run */
    uint32_t at_a_time;                        /* requests; 0: several */
    char engine[64], machine[128], dtype[32], isa[32];
    uint32_t threads; /* 0: unknown */
    pj_device_conditions devices[4];
    uint32_t device_count;
};

/* ---- values (why_values.c) ---- */

/* Whether two calls gave the same values, up to relative differences of `tolerance`. */
bool pj_why_looks_equal(const pj_why_look *a, const pj_why_look *b, double tolerance);

typedef struct pj_why_likeness {
    uint32_t compared, equal, exact; /* places that both have */
} pj_why_likeness;

pj_why_likeness pj_why_parts_compare(const pj_why_part *a, const pj_why_part *b);
/* Enough places, and the same values in nearly all of them. */
bool pj_why_likeness_same(const pj_why_likeness *likeness);

/* ---- sides (why_side.c) ---- */

/* How far other programs may have slowed a single run without stalling it, relative, in `ms` of it:
 * unseen if that is shorter than they run at a time, and likely if they stalled it often. */
double pj_why_slowed_sd(const pj_why_side *side, double ms);

/* ---- matching (why_match.c) ---- */

/* The parts of both sides that are one thing. */
typedef struct pj_why_pair {
    const pj_why_part **parts[2];
    uint32_t count[2];
    pj_why_match match;
    const char *whole; /* "all parts" of a phase, or "layers", divided alike by no two; or NULL */
} pj_why_pair;

/* In the arena. Parts of other models do other work, whatever they are called. */
pj_status pj_why_pairs(const pj_why_side *a, const pj_why_side *b, bool same_model, pj_arena *arena,
                       pj_why_pair **pairs, uint32_t *count, pj_error *err);

/* ---- judging ---- */

typedef struct pj_why_context {
    const pj_why_side *a, *b;
    double spread_a, spread_b; /* relative, of times from run to run */
    double freedom;            /* degrees of freedom of times */
} pj_why_context;

/* Causes of all rows alike, which change what B is compared with (why_common.c). */
void pj_why_find_common(pj_why *why, const pj_why_context *context);
/* Splits the differences of rows and names what is certain (why_judge.c). */
void pj_why_judge(pj_why *why, const pj_why_context *context);
/* What parts gain and lose in power over a phase. The phase's energy is measured; a wrong share of
 * it in one part is missing in others, so that without a real difference these add up to little. */
double pj_why_power_of_phase(const pj_why *why, uint8_t phase);
/* Names the one part that explains the change of a phase's power, where no row is named, in a phase
 * whose parts the sensor hardly tells apart (why_power.c). */
void pj_why_find_hotter(pj_why *why, const pj_why_context *context);

#endif
