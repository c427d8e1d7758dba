/*
 * perjoule.h: the public interface of libperjoule. (It includes perjoule/base.h: status and error.)
 *
 * perjoule shows where every joule of transformer inference goes. A program that runs inference
 * records *spans* (phases, sections, tokens, layers, components, operations); the library samples
 * the machine's power sensors meanwhile, attributes energy to the spans when the run ends, and
 * stores the result in a database. perjoule's own inference engine is a client of this header
 * like any other.
 *
 *     pj_session *s = NULL;  pj_run *run = NULL;  pj_error err = {0};
 *     pj_session_options how = {.size = sizeof how};
 *     pj_run_options what = {.size = sizeof what, .prompt = "hello", .model_name = "mine"};
 *     pj_result result = {.size = sizeof result};
 *     if (pj_session_open(&how, &s, &err) != PJ_OK || pj_run_begin(s, &what, &run, &err) != PJ_OK)
 *         goto failed;
 *     pj_lane *lane = pj_run_lane(run);
 *     pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_PREFILL);
 *     ...
 *     pj_span_end(lane, NULL);
 *     if (pj_run_end(run, PJ_RUN_COMPLETED, &result, &err) != PJ_OK) goto failed;
 *     printf("%g J\n", result.total.mj / 1000);
 * failed:
 *     if (err.text[0]) fprintf(stderr, "%s\n", err.text);
 *     pj_result_fini(&result);
 *     pj_session_close(s);
 *
 * Conventions
 *   - A fallible call returns a pj_status (0 is success) and, where it takes a pj_error, fills it
 *     with one sentence that names the cause and the remedy. Out-parameters are NULL on failure.
 *   - Times are CLOCK_MONOTONIC nanoseconds (pj_clock_ns). Energies are millijoules, powers
 *     milliwatts; NAN means "unavailable" and is never written as 0.
 *   - Structs with a `size` grow in later versions: set it to sizeof the struct. The library reads
 *     and writes only that many bytes; members unknown to an older program count as zero. A size of
 *     0 means the struct of version 0.1.
 *   - Arguments are checked: an invalid NULL, an enumeration out of range or an impossible struct
 *     size returns PJ_E_INVALID.
 *   - The library never prints, exits or installs signal handlers.
 *   - Every call is thread-safe unless documented otherwise. Only the thread that owns a lane may
 *     use it.
 */
#ifndef PERJOULE_H
#define PERJOULE_H

#include "perjoule/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- vocabulary ------------------------------------------------------------------------- */

typedef enum pj_phase {
    PJ_PHASE_IDLE = 0,
    PJ_PHASE_PRE_INFERENCE,
    PJ_PHASE_PREFILL,
    PJ_PHASE_DECODE,
    PJ_PHASE_POST_INFERENCE,
    PJ_PHASE_COUNT
} pj_phase;

PJ_API const char *pj_phase_name(pj_phase phase);

typedef enum pj_span_kind {
    PJ_SPAN_PHASE = 0, /* id: a pj_phase */
    PJ_SPAN_SECTION,   /* id: a name, e.g. "tokenization" */
    PJ_SPAN_TOKEN,     /* id: position of the generated token, from 0; the whole prompt's prefill
                          is one token span, that of the first output position */
    PJ_SPAN_LAYER,     /* id: index of the transformer block, from 0 */
    PJ_SPAN_COMPONENT, /* id: a name, e.g. "q_proj" */
    PJ_SPAN_OPERATION, /* id: a name, e.g. "qk_matmul" */
    PJ_SPAN_KIND_COUNT
} pj_span_kind;

typedef enum pj_depth {
    PJ_DEPTH_OFF = 0, /* phases, sections and tokens only */
    PJ_DEPTH_MODULE,  /* to components */
    PJ_DEPTH_DEEP     /* to operations */
} pj_depth;

typedef enum pj_run_status {
    PJ_RUN_RUNNING = 0,
    PJ_RUN_COMPLETED,
    PJ_RUN_FAILED,
    PJ_RUN_CANCELLED,
    PJ_RUN_INTERRUPTED
} pj_run_status;

/* Where a figure comes from. A mix has the quality of its worst part. */
typedef enum pj_source_quality { PJ_UNAVAILABLE = 0, PJ_MODELLED, PJ_MEASURED } pj_source_quality;

/* ---- sessions and runs ------------------------------------------------------------------ */

typedef struct pj_session pj_session; /* sensors, sampler threads and a database */
typedef struct pj_run pj_run;         /* one profiled inference */
typedef struct pj_lane pj_lane;       /* one thread's recorder of spans in one run */

typedef struct pj_session_options {
    size_t size;         /* sizeof(pj_session_options) */
    const char *power;   /* source list; NULL: $PERJOULE_POWER, else "auto"; "none": no sensors */
    int64_t interval_ns; /* sampling interval, 0: each source's own update period */
    const char
        *database; /* NULL: $PERJOULE_DB, else the user's default; "none": nothing is stored */
    const char *spool_dir;   /* NULL: next to the database */
    double baseline_seconds; /* length of the idle window before the first run; 0: default 1 s,
                                or none if idle power is known from the last minute on this
                                machine; negative: none */
    const char *share_rule;  /* how runs that are open at the same time divide the machine's energy:
                                "equal" (default): each the same; "weight": in proportion to their
                                weights */
} pj_session_options;

PJ_API pj_status pj_session_open(const pj_session_options *options, pj_session **session,
                                 pj_error *err);
/* Ends open runs as interrupted and open windows without a result; their pointers become invalid.
 * Waits for runs that other threads are ending. NULL is allowed. */
PJ_API void pj_session_close(pj_session *session);

typedef struct pj_run_options {
    size_t size; /* sizeof(pj_run_options) */
    const char *prompt;
    const char *model_name;
    const char *model_path;
    const char *engine; /* the inference engine; NULL: "custom" */
    const char *experiment_name;
    const char *const *tags; /* NULL-terminated list, or NULL */
    pj_depth depth;
    uint32_t batch_size;       /* 0 means 1 */
    const char *settings_json; /* any JSON object, stored with the run; or NULL */
    double weight;             /* see pj_run_set_weight; 0 means 1 */
} pj_run_options;

/* Starts recording. The strings are copied. A session may have several open runs, each with its own
 * lanes, for example one per request of a server. Sensors cannot distinguish concurrent runs, so
 * the machine's energy is divided among them by the session's rule. Such energies have the method
 * "allocated", the rule is stored with the run, and the shares add up to the machine's energy. */
PJ_API pj_status pj_run_begin(pj_session *session, const pj_run_options *options, pj_run **run,
                              pj_error *err);
/* Sets the run's weight from now on, for sessions whose rule is "weight": for example its number of
 * sequences in the batch, or 0 while it is queued. Its share is its weight divided by the sum of
 * the weights of all open runs (equal shares while all are 0). */
PJ_API pj_status pj_run_set_weight(pj_run *run, double weight, pj_error *err);
/* Sets facts about the model once they are known (for example after loading it inside the run).
 * Strings are copied; NULL and 0 keep the earlier value. */
typedef struct pj_run_facts {
    size_t size; /* sizeof(pj_run_facts) */
    const char *model_name, *model_path;
    const char *dtype;         /* of the weights: "bf16", "q4_0" */
    const char *isa;           /* kernels or device: "avx512", "cuda" */
    const char *model_json;    /* a JSON object: parameters, layers, heads, ... */
    const char *settings_json; /* replace those of pj_run_options */
    uint32_t threads, layer_count;
    const char *repeat_group; /* id of the first run of a series of equal runs */
    uint32_t repeat_index;
    const char
        *batch_rule;     /* how a batch's steps are split: "bytes" (default), "tokens", "equal" */
    const char *scope;   /* the scope of the energy: "machine" (default), "process", "request" */
    const char *level;   /* resolution of an attached engine: "coarse" (as users run it), "fine"
                            (eager, synchronised) */
    uint32_t batch_size; /* sequences computed together */
} pj_run_facts;

PJ_API pj_status pj_run_describe(pj_run *run, const pj_run_facts *facts, pj_error *err);

/* ---- the result of a run ---------------------------------------------------------------- */

/* An energy with its 95 % interval. NAN: unavailable, or no interval is known. */
typedef struct pj_joules_mj {
    double mj, lo_mj, hi_mj;
} pj_joules_mj;

typedef struct pj_phase_result {
    pj_phase phase;
    double duration_ms;
    pj_joules_mj gross, net;
} pj_phase_result;

#define PJ_RESULT_PHASES 8

typedef struct pj_result {
    size_t size; /* sizeof(pj_result); set it before the call */
    char run_id[40];
    pj_run_status status;
    double duration_ms;
    pj_source_quality energy_source; /* measured, modelled or unavailable */
    bool is_partial;                 /* a rail that belongs in the total was missing */
    bool is_stored;                  /* stored in the database */
    pj_joules_mj total;              /* gross: what the machine drew, idle power included */
    pj_joules_mj net;                /* above the idle machine */
    double total_upper_mj;           /* an upper bound of an unavailable total, if known */
    double joules_per_token;         /* mean: gross, per output token; NAN: unavailable */
    uint64_t input_tokens, output_tokens;
    uint32_t phase_count;
    pj_phase_result phases[PJ_RESULT_PHASES]; /* those that occurred, in order of pj_phase */
    /* The run's summary, its phases and its rails as a JSON object (docs/api.md). Owned by the
     * result. */
    char *json;
    /* Gross energy of the median of the undisturbed decode tokens: by it runs are compared.
     * Unavailable without decode tokens. */
    pj_joules_mj typical_token;
} pj_result;

/* Ends recording, attributes energy and stores the run; frees it whatever the outcome, except for
 * PJ_E_INVALID. `result` may be NULL; otherwise call pj_result_fini afterwards, also on failure: a
 * run that could not be stored still has its energies. PJ_E_INVALID: the status is not one of
 * completed, failed, cancelled and interrupted, or the result has an impossible size; the run then
 * stays open. No other thread may use the run or its lanes during or after this call. */
PJ_API pj_status pj_run_end(pj_run *run, pj_run_status status, pj_result *result, pj_error *err);
/* The same for a failed run, with the reason in one sentence, which is stored with the run. */
PJ_API pj_status pj_run_fail(pj_run *run, const char *reason, pj_result *result, pj_error *err);
PJ_API void pj_result_fini(pj_result *result); /* NULL is allowed; may run twice */

/* ---- windows: energy between two moments ------------------------------------------------- */

typedef struct pj_open_window pj_open_window;

typedef struct pj_window_rail {
    char name[32]; /* "cpu", "gpu0", "dram" */
    pj_joules_mj gross;
} pj_window_rail;

#define PJ_WINDOW_RAILS 64

typedef struct pj_window_result {
    size_t size; /* sizeof(pj_window_result); set it before the call */
    double duration_ms;
    pj_source_quality energy_source; /* measured, modelled or unavailable */
    bool is_partial;                 /* a rail that belongs in the total was missing */
    pj_joules_mj total;              /* gross: what the machine drew, idle power included */
    pj_joules_mj net;                /* above the idle machine; NAN without a baseline */
    double total_upper_mj;           /* an upper bound of an unavailable total, if known */
    uint32_t rail_count;
    pj_window_rail rails[PJ_WINDOW_RAILS]; /* every sensor's; some may contain others */
    /* Parts of the total's interval, each half of a 95 % one: what readings cannot tell of this
     * window, and the calibration of the sensors, which is the same factor in every window. */
    double total_random_mj, total_gain_mj; /* NAN: unavailable */
    /* What the sensors contradict each other in, as a sentence; its interval contains both. */
    const char *warning_code; /* "sensors_disagree", ...; NULL: nothing, as in windows under 1 s */
    char warning[256];
} pj_window_result;

/* Measures the machine's energy between two calls, without a run; nothing is stored. Windows may
 * nest, overlap, and begin and end in different threads; overlapping windows each contain all of
 * the machine's energy. The first begin waits until every sensor has delivered a value
 * (milliseconds), an end until every sensor has covered the window. A window too short for its
 * sensors has an unavailable total with an upper bound. */
PJ_API pj_status pj_window_begin(pj_session *session, pj_open_window **window, pj_error *err);
/* Frees the window whatever the outcome; `result` NULL: discards it without waiting. PJ_E_INVALID:
 * the result has an impossible size; the window then stays open. */
PJ_API pj_status pj_window_end(pj_open_window *window, pj_window_result *result, pj_error *err);

/* ---- during a run ----------------------------------------------------------------------- */

PJ_API const char *pj_run_id(const pj_run *run); /* UUIDv7 as text, borrowed */
PJ_API pj_depth pj_run_depth(const pj_run *run);
/* Interns a section, component or operation name; equal names give equal ids. Not for hot paths.
 * Returns 0, never a valid id, for an empty name, one of more than 1000 bytes, when out of memory
 * or when the table is full (65535). */
PJ_API uint32_t pj_run_name(pj_run *run, const char *name);
/* The calling thread's lane, created on first use; NULL when out of memory. Keep the pointer: not
 * for hot paths. Every call on a NULL lane does nothing. */
PJ_API pj_lane *pj_run_lane(pj_run *run);
/* Prompt lengths in tokens, in order of the sequences: needed to split the energy of the shared
 * steps of a batch. Sets the run's input tokens to their sum. */
PJ_API void pj_run_set_prompts(pj_run *run, const uint32_t *tokens, uint32_t count);
/* Output tokens of a run that generates none: its token spans are passes, such as a classifier's or
 * an image model's. It has no joules per token. */
#define PJ_NO_TOKENS UINT64_MAX
/* Sets token counts, for runs whose spans do not contain them. */
PJ_API void pj_run_set_tokens(pj_run *run, uint64_t input_tokens, uint64_t output_tokens);

/* ---- spans ------------------------------------------------------------------------------ */

/* Statistics of a component's or an operation's output; see docs/measurement.md. */
typedef struct pj_stats {
    float mean_abs; /* activation_mean: mean of |x| */
    float mean;     /* signed mean */
    float std;      /* population form */
    float max_abs;
    float sparsity; /* fraction with |x| < 0.01 */
    uint32_t nan_count;
    uint32_t inf_count;
} pj_stats;

#define PJ_EXTRA_SCALAR UINT32_MAX

/* One extra figure: a scalar (index PJ_EXTRA_SCALAR) or element `index` of an array. */
typedef struct pj_extra {
    uint32_t name; /* interned */
    uint32_t index;
    double value;
} pj_extra;

/* The work of a span. All members are optional. */
typedef struct pj_work {
    double flops; /* NAN: unknown */
    double bytes; /* memory traffic; NAN: unknown */
    const pj_stats *stats;
    const pj_extra *extras;
    uint32_t extra_count; /* at most 1024 are kept */
} pj_work;

/* Opens a span inside the lane's innermost open one, now. Its kind may not be coarser than the
 * enclosing span's, except that a section may lie inside a token (the stages of one decode step).
 * Of two nested spans of one kind the outer one is charged only for its own time. Spans finer than
 * the run's depth are dropped. A lane without open spans inherits the phase, token and layer that
 * another thread has open in this run. At most 16 spans may be open on a lane; violations are
 * dropped and counted. Never blocks or allocates. */
PJ_API void pj_span_begin(pj_lane *lane, pj_span_kind kind, uint32_t id);
/* Closes the innermost span; `work` may be NULL. Never blocks or allocates: if the buffer is full
 * the span is lost, and the number of losses is stored with the run. */
PJ_API void pj_span_end(pj_lane *lane, const pj_work *work);
/* As pj_span_begin and pj_span_end, at a time taken from pj_clock_ns by the caller. Spans are
 * clipped to the run's time. */
PJ_API void pj_span_begin_at(pj_lane *lane, pj_span_kind kind, uint32_t id, int64_t now_ns);
PJ_API void pj_span_end_at(pj_lane *lane, const pj_work *work, int64_t now_ns);
/* Ends one span and begins a sibling with one clock reading between them. */
PJ_API void pj_span_next(pj_lane *lane, const pj_work *work, pj_span_kind kind, uint32_t id);
/* Text of the token whose span is open on this lane (UTF-8, at most 255 bytes are kept), its id in
 * the vocabulary, and its sequence in the batch. Call it once per sequence and step. */
PJ_API void pj_token_text(pj_lane *lane, uint32_t sequence, int32_t token_id, const char *text,
                          size_t bytes);

/* Adds to the time that the calling program spent on statistics and extras. The run reports it as
 * part of its overhead, separately and in the sum. */
PJ_API void pj_statistics_time(pj_lane *lane, int64_t ns);

/* ---- many spans in one call ---------------------------------------------------------------- */

/* For programs that collect times themselves, such as hooks in Python: one call per token instead
 * of two per span. A record is 32 bytes without padding; on a little-endian machine it is also four
 * 64-bit integers (begin, end, id | kind << 32 | device << 48, layer & 0xffffffff | detail << 32),
 * and in Python
 *
 *     struct.Struct("=qqIHHiI")   begin_ns, end_ns, id, kind, device, layer, detail
 *     numpy.dtype([("begin_ns", "i8"), ("end_ns", "i8"), ("id", "u4"), ("kind", "u2"),
 *                  ("device", "u2"), ("layer", "i4"), ("detail", "u4")])
 *
 * so that a hook can append to an array("q") with the last two words computed once per module.
 * Times come from time.monotonic_ns() (the same clock as pj_clock_ns). */
typedef struct pj_packed_span {
    int64_t begin_ns, end_ns;
    uint32_t id;     /* as in pj_span_begin: interned name, phase, position or layer index */
    uint16_t kind;   /* pj_span_kind */
    uint16_t device; /* index into `devices` + 1; 0: the host */
    int32_t layer; /* of a component or operation in a layer that has no span: its index; else -1 */
    uint32_t detail; /* index into `details` + 1; 0: none */
} pj_packed_span;

/* The work of a packed span; several spans may refer to one. 48 bytes: "=ddfffffIII". */
typedef struct pj_span_detail {
    double flops, bytes; /* NAN: unknown */
    pj_stats stats;
    uint32_t has_stats; /* 0: `stats` is ignored */
} pj_span_detail;

/* Text of a packed token span, as in pj_token_text. */
typedef struct pj_packed_text {
    uint32_t span; /* index into `spans` */
    uint32_t sequence;
    int32_t token_id;
    uint32_t bytes;
    const char *text;
} pj_packed_text;

/* A device that computed packed spans. */
typedef struct pj_packed_device {
    uint32_t device;        /* its number, from pj_device_declare */
    uint32_t reserved;      /* 0 */
    int64_t clock_error_ns; /* as in pj_device_batch */
} pj_packed_device;

typedef struct pj_span_batch {
    size_t size;                 /* sizeof(pj_span_batch) */
    const pj_packed_span *spans; /* in any order */
    size_t span_count;
    const pj_span_detail *details; /* or NULL */
    size_t detail_count;
    const pj_packed_text *texts; /* in the order of their spans; or NULL */
    size_t text_count;
    const pj_packed_device *devices; /* or NULL */
    size_t device_count;
} pj_span_batch;

/* Adds finished spans, nested by their times. Outermost spans of the call become children of the
 * lane's innermost open span or, without one, belong to the run's current context. Spans of one
 * call that overlap without nesting are kept as siblings. Spans of a device nest among themselves;
 * its outermost ones count as launched in the host's innermost span in which they began. Spans are
 * clipped to the run's time; those outside are dropped and counted. Allocates, and waits up to two
 * seconds for room; on failure nothing is added. */
PJ_API pj_status pj_spans_add(pj_lane *lane, const pj_span_batch *batch, pj_error *err);

/* ---- devices ---------------------------------------------------------------------------- */

/* What computes besides the host's processor: a GPU, say. Strings are copied; NULL and 0 mean
 * unknown, except that a device needs a name. */
typedef struct pj_device_info {
    size_t size;           /* sizeof(pj_device_info) */
    const char *name;      /* as its driver calls it: "NVIDIA H200" */
    const char *kind;      /* NULL: "gpu"; or "npu", "tpu", ... */
    const char *uuid;      /* 16 bytes as hexadecimal digits; a prefix such as "GPU-", dashes and
                              case do not matter */
    const char *pci;       /* PCI address: "0000:65:00.0" */
    const char *driver;    /* name and version */
    uint64_t memory_bytes; /* of its own */
    double clock_mhz;      /* highest clock of its cores */
    const char *rail;      /* name of the rail that measures it, such as "gpu0", if the program
                              knows; NULL: found by UUID, by PCI address, or because there is one
                              device of this kind and one rail */
} pj_device_info;

/* Adds a device to the run and returns its number, at least 1 (0 is the host). Two calls give the
 * same number if UUID and PCI address are the same as far as both calls have them (a UUID of zeros
 * is none), and the name where they have neither. At most 31 devices. Work that the run records on
 * the device is charged to the rail that measures it. If none does, that work and what contains it
 * have no energy, and the run is partial. */
PJ_API pj_status pj_device_declare(pj_run *run, const pj_device_info *info, uint32_t *device,
                                   pj_error *err);

/* Where on the host work was given to a device. All bytes zero: nowhere in particular. */
typedef struct pj_launch {
    uint64_t opaque[4];
} pj_launch;

/* Notes the lane's innermost open span (without one, the run's current context) as the place of a
 * launch. Costs nanoseconds, never blocks or allocates. The device's spans may be added long after
 * that span has ended. */
PJ_API void pj_device_launch(const pj_lane *lane, pj_launch *launch);

/* A finished span of a device: a section, layer, component or operation. 40 bytes without padding:
 * "=qqIIiIQ". */
typedef struct pj_device_span {
    int64_t begin_ns, end_ns; /* on the clock of pj_clock_ns: the caller calibrates the device's */
    uint32_t kind;            /* pj_span_kind */
    uint32_t id;              /* as in pj_span_begin */
    int32_t layer; /* of a component or operation in a layer that has no span: its index; else -1 */
    uint32_t parent;     /* 1 + index of the enclosing span, which comes before this one; 0: none */
    const pj_work *work; /* or NULL */
} pj_device_span;

typedef struct pj_device_batch {
    size_t size;                 /* sizeof(pj_device_batch) */
    const pj_launch *launch;     /* of all its outermost spans; NULL: nowhere in particular */
    const pj_device_span *spans; /* enclosing spans before enclosed ones */
    size_t span_count;
    int64_t clock_error_ns; /* standard deviation of these times on the host's clock, an error that
                               they have in common; it widens the intervals of energies */
} pj_device_batch;

/* Adds finished spans of a device. They nest in each other as `parent` says, and outermost ones in
 * the host's span that launched them, whose own time they do not take: the host computes or waits
 * meanwhile, and that is charged to the host's rails. A span that extends beyond its parent is
 * clipped to it, one that extends beyond the run to the run; those outside the run are dropped and
 * counted. Spans of one device may overlap, as on several queues: they share its power in
 * proportion to what the fit gives their classes. Spans finer than the run's depth are dropped.
 * From any thread, any time before pj_run_end. Allocates, and waits up to two seconds for room; on
 * failure nothing is added. */
PJ_API pj_status pj_device_spans_add(pj_run *run, uint32_t device, const pj_device_batch *batch,
                                     pj_error *err);

#ifdef __cplusplus
}
#endif
#endif /* PERJOULE_H */
