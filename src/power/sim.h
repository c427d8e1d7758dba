/*
 * Simulated sensors with a known truth. A specification (parsed from "sim:key=value,...") says what
 * power each class of work draws and what kind of sensor observes it; given the run's real spans,
 * it produces the readings that such a sensor would have given. Same specification and truth, same
 * readings, byte for byte. Everything simulated is PJ_MODELLED.
 *
 * At the end of a run the profiler builds the truth (segments of net power, that is above idle, in
 * order, from the leaf spans and pj_sim_class_mw), calls pj_sim_read for each rail of source "sim",
 * and feeds curves with these readings instead of the run's provisional ones. The true energy of a
 * span is pj_sim_truth_mj.
 *
 * Keys (all optional)
 *   preset=NAME     starting values: counter (default), rapl, nvml-fermi, nvml-kepler,
 *                   nvml-kepler2, nvml-maxwell, nvml-pascal, nvml-volta, nvml-turing, nvml-ampere,
 *                   nvml-ampere-average, nvml-a100, nvml-ada, nvml-ada-average, nvml-hopper,
 *                   nvml-hopper-average, nvml-counter, nvml-h200, nvml-h200-instant,
 *                   nvml-h200-average, apple, xe
 *   seed=N          for powers, phase and noise (default 1)
 *   kind=counter|power
 *   period_ms, phase_ms (drawn from the seed by default, for each rail), jitter (relative to the
 *                   period)
 *   grid=1          the ticks of a counter are known to be on a grid of exact periods
 *   window_ms       0: the period; smaller: only that part is observed; larger: trailing average
 *   coverage        instead of window_ms: window / period
 *   delay_ms, lag_ms
 *   gain            reading / true value (1), offset_mw
 *   noise           relative 1 sigma of a power reading, or of a counter's step
 *   resolution_mj   step of a counter, or that energy in one period as the step of a power
 *                   reading; resolution_mw sets its step directly
 *   sees=all|window what a counter integrates: the truth (default), or only the observed window
 *   modulus_mj, start_mj      of a counter
 *   log_ms          a counter's device also keeps a log of its power, a value every log_ms: adds a
 *                   rail "NAME-log" for each rail. Faults, noise and lag are the counter's only
 *   log_window_ms (0: log_ms), log_delay_ms, log_jitter (relative to log_ms), log_noise, and
 *   log_gain (1)    value of the log / what the counter would say
 *   reset_ms, freeze_ms=A-B, jump_ms + jump_mw, dropout (probability), duplicate (probability)
 *   drift           relative rise of all net powers from begin to end of a run, as by heat (0)
 *   class_jitter    leaves of one class vary by up to this relative amount (0)
 *   declare_delay_ms, declare_window_ms, declare_lag_ms    what the estimator assumes; by default
 *                   the truth. `unknown` withholds it
 *   declare_gain    the gain it assumes, as 1.02+-0.01; without +- the usual uncertainty applies,
 *                   and `unknown` is 1
 *   idle_mw (10000) true idle power, summed over all rails
 *   low_mw, high_mw range of class powers drawn from the seed (20000 to 60000)
 *   rails=cpu+gpu+dram        names; `share=0.6+0.3+0.1` splits the truth (default equally)
 *   total=1         adds a rail "total" that contains them
 *   core=0.6        adds a rail "core" inside the first, with that share of it
 *   NAME=mW         net power of the class NAME, a component or operation of the engine, e.g.
 *                   q_proj=45000, lm_head=52000; PHASE/NAME for one phase only, as in
 *                   decode/q_proj=41000; class/NAME for a name from another program. Any other key
 *                   is rejected
 */
#ifndef PJ_POWER_SIM_H
#define PJ_POWER_SIM_H

#include "base/error.h"
#include "trace/rail.h"

/* Eight rails that are named, the total and the core; a log of each. */
enum { PJ_SIM_MAX_CLASSES = 128, PJ_SIM_MAX_NAMED = 8, PJ_SIM_MAX_RAILS = 20 };

typedef struct pj_sim_class {
    char name[64]; /* "q_proj", "attention/softmax", with the prefix "decode/" for one phase */
    double mw;
} pj_sim_class;

typedef struct pj_sim_rail {
    char name[PJ_RAIL_NAME_BYTES];
    double share;     /* of the truth */
    int parent;       /* index, or -1 */
    int64_t phase_ns; /* of its ticks in the period */
    bool is_log;      /* of the power of its parent, a counter */
} pj_sim_rail;

typedef struct pj_sim_spec {
    pj_rail_kind kind;
    uint64_t seed;
    int64_t period_ns, window_ns, delay_ns, lag_ns;
    int64_t phase_ns; /* of all rails' ticks; -1: each has its own */
    double jitter, gain, offset_mw, noise;
    double resolution; /* mJ of a counter, mW of a power reading; 0: none */
    bool counter_sees_window, on_grid;
    bool reports_window; /* every reading comes with its averaging time */
    double modulus_mj, start_mj;
    int64_t log_ns, log_window_ns, log_delay_ns; /* log_ns 0: there is no log */
    double log_jitter, log_noise, log_gain;
    int64_t reset_ns, freeze_begin_ns, freeze_end_ns, jump_ns; /* from the begin; -1: never */
    double jump_mw, dropout, duplicate;
    double idle_mw, low_mw, high_mw;
    double drift, class_jitter;
    /* declared to the estimator; -1: the truth */
    int64_t declared_delay_ns, declared_window_ns, declared_lag_ns;
    double declared_gain, declared_gain_sd; /* NAN: the truth */
    pj_sim_rail rails[PJ_SIM_MAX_RAILS];
    uint32_t rail_count;
    pj_sim_class classes[PJ_SIM_MAX_CLASSES];
    uint32_t class_count;
} pj_sim_spec;

pj_status pj_sim_parse(const char *text, pj_sim_spec *spec, pj_error *err); /* "": the defaults */
uint32_t pj_sim_rails(const pj_sim_spec *spec, pj_rail *rails, uint32_t max);
/* Net power of a class: as given for "PHASE/NAME" or "NAME", else drawn from the seed and the name,
 * so that a name has the same power in every run with that seed. */
double pj_sim_class_mw(const pj_sim_spec *spec, const char *class_name, pj_phase phase);

/* Power of a leaf: its class's power with class_jitter and drift applied. `index` identifies the
 * leaf; `part` is the fraction of the run before its middle. */
double pj_sim_leaf_mw(const pj_sim_spec *spec, double class_mw, uint32_t index, double part);

/* Net truth: power over [begin, end); in order, not overlapping. Between segments: idle only. */
typedef struct pj_sim_segment {
    int64_t begin_ns, end_ns;
    double net_mw;
} pj_sim_segment;

/* True gross energy of an interval on one rail. */
double pj_sim_truth_mj(const pj_sim_spec *spec, uint32_t rail, const pj_sim_segment *segments,
                       size_t count, int64_t begin_ns, int64_t end_ns);
/* Readings of one rail as a sampler would have passed them on, from slightly before begin to
 * slightly after end, so that a curve of them covers [begin, end); their `rail` is `rail`.
 * Allocates *readings (pj_free). */
pj_status pj_sim_read(const pj_sim_spec *spec, uint32_t rail, const pj_sim_segment *segments,
                      size_t count, int64_t begin_ns, int64_t end_ns, pj_reading **readings,
                      size_t *reading_count, pj_error *err);

#endif
