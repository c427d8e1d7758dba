/*
 * Disturbances: time in which a run was held up by something that its own work does not explain
 * (other load on the machine, throttling, waiting). A decode step, a prompt, loading the model or a
 * gap is disturbed when it took more than PJ_DISTURBED_RATIO times what is expected of it:
 *
 *   step    the running median of the steps around it, times its work over theirs
 *   prompt  the median of comparable runs; without them the sum of what its components usually took
 *           in its own layers, and at most a decode step for each of its tokens
 *   load    the median of comparable runs
 *   gap     between steps or phases: the run's usual gap, or a whole step if that is longer
 *
 * What lies beyond is the disturbance. It is shared among the rows below by how much each took
 * beyond its own usual time, so that the parts of a row add up with disturbances and without them.
 * This is the only place that decides what is disturbed: the database stores its result, and every
 * view reads that. Definitions: docs/measurement.md.
 */
#ifndef PJ_TRACE_DISTURBANCE_H
#define PJ_TRACE_DISTURBANCE_H

#include "base/error.h"
#include "base/json.h"
#include "trace/run_data.h"

#define PJ_DISTURBED_RATIO 3.0
#define PJ_LEAST_STEP_MS   1e-3 /* shorter ones were reported at once with the step before */
/* Steps of the running median, and the least number of steps that show what is usual. */
enum { PJ_DISTURBED_WINDOW = 31, PJ_DISTURBED_LEAST_STEPS = 5, PJ_DISTURBED_LEAST_RUNS = 3 };

typedef enum pj_disturbance_kind {
    PJ_DISTURBED_STEP = 0,
    PJ_DISTURBED_PROMPT,
    PJ_DISTURBED_LOAD,
    PJ_DISTURBED_GAP,
    PJ_DISTURBED_KINDS
} pj_disturbance_kind;

typedef enum pj_disturbance_cause {
    PJ_DISTURBED_UNKNOWN_CAUSE = 0, /* no reading of power lies in it */
    PJ_DISTURBED_BUSY,      /* the machine drew as much power or more: other work ran on it */
    PJ_DISTURBED_WAITED,    /* it drew much less: the run waited (for a disk, a lock, a network) */
    PJ_DISTURBED_THROTTLED, /* a device lowered its clock */
    PJ_DISTURBED_CAUSES
} pj_disturbance_cause;

/* One event; neighbouring steps are one. Energies are NAN if unavailable. */
typedef struct pj_disturbance {
    pj_disturbance_kind kind;
    pj_disturbance_cause cause;
    pj_phase phase;
    uint32_t token, tokens;            /* first token row, rows; PJ_NO_PARENT and 0: in no token */
    double start_ms, ms, expected_ms;  /* all of its steps */
    double mj, extra_mj, extra_net_mj; /* its gross energy; that of the time beyond expected_ms */
    double extra_sd_mj;                /* of extra_mj, 1 sigma */
} pj_disturbance;

typedef struct pj_disturbances {
    pj_disturbance *items; /* in order of time */
    uint32_t count;
} pj_disturbances;

/* What comparable runs took; NAN: too few are known. */
typedef struct pj_usual_times {
    double prefill_ms, model_load_ms;
} pj_usual_times;

#define PJ_USUAL_TIMES_UNKNOWN ((pj_usual_times){__builtin_nan(""), __builtin_nan("")})

/* Judges the run and sets everything that is stored of it: tokens' marks, the parts of rows, the
 * run's sums, and its list of events. Rows, totals and energies must be complete. */
pj_status pj_disturbances_find(pj_run_data *data, const pj_usual_times *usual, pj_error *err);
/* Finds the causes, once samples and conditions are known. */
pj_status pj_disturbances_explain(pj_run_data *data, pj_error *err);
/* Nothing was judged. */
void pj_disturbances_clear(pj_run_info *info);

const char *pj_disturbance_kind_name(pj_disturbance_kind kind); /* "step", "prompt", ... */
/* "other work ran on the machine", ... */
const char *pj_disturbance_cause_text(pj_disturbance_cause cause);

/* The list as stored and shown: {"events": [...]}; an empty list for NULL or damaged text. */
pj_status pj_disturbances_read(const char *json, pj_arena *arena, pj_disturbances *list,
                               pj_error *err);

/* ---- figures without disturbances -------------------------------------------------------- */

/* The share of a component's time and energies, and of its operations', that is disturbance. */
static inline double pj_component_disturbed_share(const pj_component_row *c)
{
    return c->disturbed_ms > 0 && c->duration_ms > 0 ? fmin(c->disturbed_ms / c->duration_ms, 1)
                                                     : 0;
}

/* The disturbed part of every component: the sum of those of its operations and of itself, so that
 * they add up to the nanojoule. In `parts`, component_count of them. */
void pj_component_disturbed_parts(const pj_run_data *data, pj_disturbed *parts);
/* The energy of a row without its disturbed part, or without a share of everything. Deviations are
 * scaled with the gross energy. */
pj_energy pj_energy_without(const pj_energy *energy, const pj_disturbed *part);
pj_energy pj_energy_without_share(const pj_energy *energy, double share);
/* Every figure of a run as a whole becomes what it was without disturbances; marks and the list
 * remain. Of its rows: store/ranges.c. */
void pj_run_info_leave_out_disturbances(pj_run_info *info);

#endif
