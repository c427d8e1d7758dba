/*
 * perjoule.h: the public interface of libperjoule, and the only installed header.
 *
 * perjoule shows where every joule of transformer inference goes. A program that does inference
 * records *spans* (phases, sections, tokens, layers, components, operations); the library samples
 * the machine's power sensors meanwhile, attributes energy to the spans when the run ends, and
 * stores the result in a database. perjoule's own inference engine is a client of this header
 * like any other.
 *
 *     pj_session *s = NULL;  pj_run *run = NULL;  pj_error err = {0};
 *     pj_session_open(&(pj_session_options){0}, &s, &err);
 *     pj_run_begin(s, &(pj_run_options){.prompt = "hello", .model_name = "mine"}, &run, &err);
 *     pj_lane *lane = pj_run_lane(run);
 *     pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_PREFILL);
 *     ...
 *     pj_span_end(lane, NULL);
 *     pj_run_end(run, PJ_RUN_COMPLETED, &err);
 *     pj_session_close(s);
 *
 * Conventions
 *   - A fallible call returns a pj_status (0 is success) and, where it takes a pj_error, fills it
 *     with one sentence that names the thing and the remedy. Out-parameters are NULL on failure.
 *   - Times are CLOCK_MONOTONIC nanoseconds (pj_clock_ns). Energies are millijoules, powers
 *     milliwatts; NAN means "unavailable" and is never written as 0.
 *   - The library never prints, exits or installs signal handlers.
 *   - Every call is safe from any thread unless it says otherwise. Calls on one lane belong to the
 *     thread that owns the lane.
 */
#ifndef PERJOULE_H
#define PERJOULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PJ_VERSION_MAJOR 0
#define PJ_VERSION_MINOR 1
#define PJ_VERSION_PATCH 0

#if defined(__GNUC__)
#define PJ_API __attribute__((visibility("default")))
#else
#define PJ_API
#endif

/* ---- status and errors ------------------------------------------------------------------ */

typedef enum pj_status {
    PJ_OK = 0,
    PJ_E_INVALID = -1,     /* bad input: arguments, files, requests */
    PJ_E_UNAVAILABLE = -2, /* the machine lacks it, or it is not there now */
    PJ_E_DENIED = -3,      /* permission; the sentence says which command grants it */
    PJ_E_NOT_FOUND = -4,
    PJ_E_IO = -5,
    PJ_E_NO_MEMORY = -6,
    PJ_E_FULL = -7,        /* a bound was reached: queue, buffer, disk */
    PJ_E_STATE = -8,       /* called at the wrong time */
    PJ_E_UNSUPPORTED = -9, /* valid, but not something perjoule does */
    PJ_E_CANCELLED = -10,
    PJ_E_LOST = -11,  /* it worked and then went away: a GPU, a subprocess */
    PJ_E_AGAIN = -12, /* nothing this time; ask again */
    PJ_E_INTERNAL = -13
} pj_status;

#define PJ_ERROR_TEXT_BYTES 512

typedef struct pj_error {
    pj_status status;
    char text[PJ_ERROR_TEXT_BYTES]; /* one sentence, UTF-8, no newline */
} pj_error;

PJ_API const char *pj_status_name(pj_status status);
PJ_API const char *pj_version(void);
/* The clock that every time in this interface is on: CLOCK_MONOTONIC in nanoseconds. */
PJ_API int64_t pj_clock_ns(void);

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

/* Where a figure comes from. Mixed sources take the worst. */
typedef enum pj_source_quality { PJ_UNAVAILABLE = 0, PJ_MODELLED, PJ_MEASURED } pj_source_quality;

/* ---- sessions and runs ------------------------------------------------------------------ */

typedef struct pj_session pj_session; /* sensors, sampler thread and database of one process */
typedef struct pj_run pj_run;         /* one profiled inference */
typedef struct pj_lane pj_lane;       /* one thread's place to record spans of one run */

typedef struct pj_session_options {
    const char *power;       /* source list, NULL: "auto"; "none" measures nothing */
    int64_t interval_ns;     /* sampling interval, 0: each source's own update period */
    const char *database;    /* NULL: the user's default; "none": nothing is stored */
    const char *spool_dir;   /* NULL: beside the database */
    double baseline_seconds; /* length of the idle window before the first run; 0: default 1 s;
                                negative: none */
} pj_session_options;

PJ_API pj_status pj_session_open(const pj_session_options *options, pj_session **session,
                                 pj_error *err);
PJ_API void pj_session_close(pj_session *session); /* NULL is allowed; open runs are interrupted */

typedef struct pj_run_options {
    const char *prompt;
    const char *model_name;
    const char *model_path;
    const char *engine; /* who does the inference; NULL: "custom" */
    const char *experiment_name;
    const char *const *tags; /* NULL-terminated list, or NULL */
    pj_depth depth;
    uint32_t batch_size;       /* 0 means 1 */
    const char *settings_json; /* a JSON object of your own, kept with the run; or NULL */
} pj_run_options;

/* Starts recording. The strings are copied. */
PJ_API pj_status pj_run_begin(pj_session *session, const pj_run_options *options, pj_run **run,
                              pj_error *err);
/* Ends recording, attributes energy and stores the run; frees it whatever the outcome.
 * No other thread may touch the run or its lanes any more. */
PJ_API pj_status pj_run_end(pj_run *run, pj_run_status status, pj_error *err);
PJ_API const char *pj_run_id(const pj_run *run); /* UUIDv7 as text, borrowed */
PJ_API pj_depth pj_run_depth(const pj_run *run);
/* Interns a section, component or operation name; equal names give equal ids. Not for hot paths.
 * 0 is never a valid name: it is returned for an empty text, one of more than 1000 bytes, when
 * memory is out or the table is full (65535). */
PJ_API uint32_t pj_run_name(pj_run *run, const char *name);
/* The calling thread's lane, made on first use; NULL when memory is out. The owner keeps the
 * pointer; pj_run_lane is not for hot paths. Every call on a NULL lane does nothing. */
PJ_API pj_lane *pj_run_lane(pj_run *run);
/* Tokens of each sequence's prompt, in order of the sequences: how the energy of steps that a batch
 * shares is split depends on them. Sets the run's input tokens to their sum. */
PJ_API void pj_run_set_prompts(pj_run *run, const uint32_t *tokens, uint32_t count);
/* Counts that spans cannot tell. */
PJ_API void pj_run_set_tokens(pj_run *run, uint64_t input_tokens, uint64_t output_tokens);

/* ---- spans ------------------------------------------------------------------------------ */

/* Statistics of a component's or an operation's output; see docs/measurement.md. */
typedef struct pj_stats {
    float mean_abs; /* activation_mean: mean of |x| */
    float mean;     /* signed mean */
    float std;      /* population form */
    float max_abs;
    float sparsity; /* share with |x| < 0.01 */
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

/* What a span did. Everything may be absent. */
typedef struct pj_work {
    double flops; /* NAN: not known */
    double bytes; /* that crossed the memory interface; NAN: not known */
    const pj_stats *stats;
    const pj_extra *extras;
    uint32_t extra_count; /* at most 1024 are kept */
} pj_work;

/* Opens a span inside the lane's innermost open one, at the present time. A kind may not be
 * coarser than the enclosing one's, except that a section may lie inside a token (the stages of
 * one decode step). Of two nested spans of one kind the outer one keeps what is its own. Spans
 * finer than the run's depth are dropped. A lane with nothing open is in the phase, token and
 * layer that another thread has open in this run. At most 16 spans may be open on a lane; what
 * breaks these rules is dropped and counted. Never blocks or allocates. */
PJ_API void pj_span_begin(pj_lane *lane, pj_span_kind kind, uint32_t id);
/* Closes the innermost span; `work` may be NULL. Never blocks or allocates: a full buffer counts a
 * loss, which is stored with the run. */
PJ_API void pj_span_end(pj_lane *lane, const pj_work *work);
/* Ends one span and begins a sibling with one clock reading between them. */
PJ_API void pj_span_next(pj_lane *lane, const pj_work *work, pj_span_kind kind, uint32_t id);
/* Text of the token whose span is open on this lane (UTF-8, at most 255 bytes are kept), its id in
 * the vocabulary, and the sequence of the batch it belongs to: called once a sequence and step. */
PJ_API void pj_token_text(pj_lane *lane, uint32_t sequence, int32_t token_id, const char *text,
                          size_t bytes);

/* Time that the calling program spent on what it hands over beside spans (statistics, extras): the
 * run adds it to what it says of its own cost, by itself and in the sum. Adds up over calls. */
PJ_API void pj_statistics_time(pj_lane *lane, int64_t ns);

/* ---- spans of devices that report late --------------------------------------------------- */

/* Two readings of one instant: the device's clock and pj_clock_ns(). */
typedef struct pj_clock_pair {
    double device_ns;
    int64_t host_ns;
} pj_clock_pair;

/* A finished span with device times, in the context (phase, token, layer, component) given.
 * -1 stands for "none" in token and layer, 0 in section and component. */
typedef struct pj_device_span {
    pj_span_kind kind;
    uint32_t id;
    pj_phase phase;
    uint32_t section;
    int32_t token;
    int32_t layer;
    uint32_t component;
    double begin_device_ns;
    double end_device_ns;
} pj_device_span;

/* Places a device span on the host's clock by two pairs, one from before and one from after it
 * (they also give the drift). May be called any time before pj_run_end. What lies outside the run's
 * time is cut off; a span wholly outside is dropped and counted. */
PJ_API void pj_device_span_add(pj_lane *lane, const pj_device_span *span,
                               const pj_clock_pair *before, const pj_clock_pair *after,
                               const pj_work *work);

#ifdef __cplusplus
}
#endif
#endif /* PERJOULE_H */
