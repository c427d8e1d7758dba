/* A finished run in memory: built by attribution, saved and loaded by the store, read by exports
 * and analysis. Plain arrays; a child refers to its parent by index. Times are milliseconds from
 * the start of the run. Energies are integer nanojoules so that parts add up exactly; PJ_NJ_UNKNOWN
 * means unavailable, as NAN does in doubles. Everything is allocated from one arena. */
#ifndef PJ_TRACE_RUN_DATA_H
#define PJ_TRACE_RUN_DATA_H

#include "base/error.h"
#include "base/ids.h"
#include "base/memory.h"
#include "trace/conditions.h"
#include "trace/device.h"
#include "trace/rail.h"
#include "trace/uncertainty.h"

#include <math.h>

#define PJ_NJ_UNKNOWN INT64_MIN
#define PJ_NO_PARENT  UINT32_MAX

static inline double pj_add_known(double sum, double value) /* NAN: unknown, or nothing so far */
{
    return isnan(value) ? sum : isnan(sum) ? value : sum + value;
}

static inline double pj_mj_of_nj(int64_t nj)
{
    return nj == PJ_NJ_UNKNOWN ? __builtin_nan("") : (double)nj / 1e6;
}

typedef enum pj_method {
    PJ_METHOD_NONE = 0, /* energy unavailable */
    PJ_METHOD_INTEGRATE,
    PJ_METHOD_FIT,
    PJ_METHOD_REPLAY,
    PJ_METHOD_ALLOCATED,
    PJ_METHOD_TIME /* shared by time: the fit failed, or the classes are indistinguishable */
} pj_method;

/* Why a figure is unavailable, or 0. */
typedef enum pj_absence {
    PJ_ABSENT_NOT = 0,
    PJ_ABSENT_NO_SENSOR,       /* no rail counts towards the total */
    PJ_ABSENT_SENSOR_GAP,      /* a sensor was lost or silent for part of it */
    PJ_ABSENT_BELOW_RESOLUTION /* no sensor window observed it; `upper_mj` bounds it */
} pj_absence;

typedef struct pj_energy {
    int64_t gross_nj;       /* = sum of the children's gross + self */
    int64_t net_nj;         /* gross - idle power x time; may be negative within its interval */
    int64_t self_nj;        /* gross energy of time that no child covers ("unattributed") */
    int64_t planted_nj;     /* ground truth of a simulation (gross), else PJ_NJ_UNKNOWN */
    float sd_mj, net_sd_mj; /* 1 sigma of gross and net; the 95 % interval is +- 1.96 of it */
    pj_sd sd, net_sd;       /* their components */
    float upper_mj;         /* unavailable below resolution: at most this much gross; else NAN */
    uint8_t method;         /* pj_method */
    uint8_t absence;        /* pj_absence */
} pj_energy;

#define PJ_ENERGY_UNKNOWN                                                                        \
    ((pj_energy){PJ_NJ_UNKNOWN, PJ_NJ_UNKNOWN, PJ_NJ_UNKNOWN, PJ_NJ_UNKNOWN, __builtin_nanf(""), \
                 __builtin_nanf(""), PJ_SD_UNKNOWN, PJ_SD_UNKNOWN, __builtin_nanf(""),           \
                 PJ_METHOD_NONE, PJ_ABSENT_NOT})

static inline void pj_energy_scale_sd(pj_energy *e, double factor)
{
    e->sd_mj *= (float)fabs(factor);
    e->net_sd_mj *= (float)fabs(factor);
    e->sd = pj_sd_scaled(&e->sd, factor);
    e->net_sd = pj_sd_scaled(&e->net_sd, factor);
    e->upper_mj *= (float)fabs(factor);
}

/* The part of a row that is disturbance (trace/disturbance.h), of its time, gross, net and self
 * energy; 0: nothing of it, or unknown. */
typedef struct pj_disturbed {
    double ms;
    int64_t gross_nj, net_nj, self_nj;
} pj_disturbed;

/* The same of a run, or of a part of it: NAN where it was not judged. */
typedef struct pj_disturbed_sum {
    double mj, net_mj, ms;
} pj_disturbed_sum;

#define PJ_DISTURBED_UNKNOWN \
    ((pj_disturbed_sum){__builtin_nan(""), __builtin_nan(""), __builtin_nan("")})

/* Power samples, stored by column, one row per time; mw[r] belongs to rails[r] and is NAN where the
 * rail has no reading. columns[c] is the sum over class c (total: own rail or sum), NAN if
 * unknown. */
typedef struct pj_sample_table {
    uint32_t count;
    double *t_ms;
    uint8_t *phase;
    float *phase_confidence; /* share of the sample's window inside `phase`; of detected phases:
                              * their probability */
    double *mw[PJ_MAX_RAILS];
    double *columns[PJ_RAIL_TOTAL + 1];
} pj_sample_table;

typedef struct pj_phase_row {
    uint8_t phase;
    double start_ms, duration_ms;
    pj_energy energy;
    pj_disturbed disturbed_part;
} pj_phase_row;

/* Energy of one phase on one rail; phase PJ_PHASE_COUNT is the whole run. */
typedef struct pj_rail_energy {
    uint8_t phase;
    uint16_t rail;
    double gross_mj, idle_mj, net_mj; /* NAN: unavailable */
    double sd_mj, net_sd_mj;
    pj_sd sd, net_sd;
    double disturbed_mj, disturbed_net_mj; /* of gross and net; 0: nothing, or unknown */
} pj_rail_energy;

/* A step is one pass over the model: one token, or in a batch one token of every live sequence;
 * these share the step's energy (method ALLOCATED, attribution/batch.h). Rows of a step are
 * consecutive. A section, layer or component inside a step refers to its token (`token`, an index)
 * when there is one, and to the step (`step`, the index of its first token row) when several tokens
 * share it; the other is PJ_NO_PARENT. */
typedef struct pj_section_row {
    uint32_t phase;       /* index of the phase row */
    uint32_t token, step; /* both PJ_NO_PARENT: in no token */
    const char *name;
    double start_ms, duration_ms;
    pj_energy energy;
    uint32_t device; /* number of the device that computed it, 0: the host */
    pj_disturbed disturbed_part;
} pj_section_row;

typedef struct pj_token_row {
    uint32_t phase;          /* index of the phase row */
    uint32_t position;       /* output position from 0; row 0 covers the prefill of the prompt */
    uint32_t sequence;       /* of the batch */
    uint32_t step;           /* first row of the step that it shares, PJ_NO_PARENT: not shared */
    uint32_t context_tokens; /* prompt and text that the step attends to; 0: unknown */
    int32_t token_id;        /* -1: unknown */
    const char *text;        /* bytes as generated, NUL-terminated; may be invalid UTF-8. NULL:
                                the run is private */
    double start_ms, duration_ms;
    double power_mw; /* of the step, mean over it; NAN: unavailable */
    pj_energy energy;
    /* This token's fraction of a shared step: of the net energy of PJ_CONTEXT_COMPONENT, and of the
     * rest. */
    double context_share, share;
    int32_t disturbed; /* see trace/disturbance.h: 1, 0; -1: not judged */
    pj_disturbed disturbed_part;
} pj_token_row;

/* The component that reads the cached keys and values: a sequence's fraction of its energy grows
 * with the sequence's context. */
#define PJ_CONTEXT_COMPONENT "attention"

typedef struct pj_layer_row {
    uint32_t token, step; /* see above */
    uint32_t layer_index;
    double start_ms, duration_ms, attention_ms, mlp_ms;
    pj_energy energy;
    pj_disturbed disturbed_part;
    bool has_stats;
    pj_stats stats; /* of the layer's output */
    uint32_t device;
} pj_layer_row;

typedef struct pj_component_row {
    uint32_t layer;   /* index of the layer row, or PJ_NO_PARENT: outside the layers (lm_head) */
    uint32_t section; /* index of the section row it lies in, or PJ_NO_PARENT */
    uint32_t token, step; /* see above; both PJ_NO_PARENT: in no token */
    uint32_t class_;      /* index of the class row, or PJ_NO_PARENT */
    const char *name;
    double start_ms, duration_ms;
    double flops, bytes; /* NAN: not given */
    pj_energy energy;
    /* Of its time; 0: nothing. The same share of its energies and of its operations. */
    double disturbed_ms;
    bool has_stats;
    pj_stats stats;
    uint32_t extra_begin, extra_count; /* into extras */
    uint32_t device;
} pj_component_row;

typedef struct pj_operation_row {
    uint32_t component; /* index of the component row */
    uint32_t class_;
    const char *name;
    double start_ms, duration_ms;
    double flops, bytes;
    pj_energy energy;
    bool has_stats;
    pj_stats stats;
    uint32_t extra_begin, extra_count;
    uint32_t device;
} pj_operation_row;

typedef struct pj_extra_row {
    const char *name;
    uint32_t index; /* PJ_EXTRA_SCALAR or element of an array */
    double value;
} pj_extra_row;

/* What attribution estimated for one class of work: a component or operation in one phase. */
typedef struct pj_class_row {
    const char *name; /* "q_proj" or "attention/softmax" */
    uint8_t phase;
    double time_ms, flops, bytes;
    double power_mw, power_sd_mw;   /* net */
    double energy_mj, energy_sd_mj; /* gross, net share included */
    double net_energy_mj, net_energy_sd_mj;
    pj_sd energy_sd, net_energy_sd;
    double
        data_share;  /* 1 - posterior / prior variance: how much of the estimate comes from data */
    bool truncated;  /* its power came out negative and was set to 0 */
    uint32_t device; /* number of the device that computed it, 0: the host */
    double disturbed_ms, disturbed_mj, disturbed_net_mj; /* 0: nothing, or unknown */
} pj_class_row;

typedef struct pj_warning_row {
    double t_ms;
    const char *code; /* "power_unavailable", "source_lost", "spans_lost", ... */
    const char *text; /* one sentence with the remedy */
} pj_warning_row;

/* What a device reported about itself at one time; NAN, NULL: not reported. */
typedef struct pj_condition_row {
    double t_ms;
    const char *device;
    double temperature_c, clock_mhz, memory_clock_mhz, utilisation, power_limit_mw;
    const char *throttle; /* "power,thermal"; "": not throttled */
} pj_condition_row;

/* Begins the tag of the runs that belong to one session, such as the requests of an agent's task.
 */
#define PJ_TAG_SESSION "session="
/* ... and of the requests of one client. */
#define PJ_TAG_CLIENT "client="
enum { PJ_SESSION_ID_MAX = 64 };
#define PJ_SESSION_ID_RULE "at most 64 printable ASCII characters without blanks"

/* 1 to 64 printable ASCII characters without blanks: what a header can hold. */
static inline bool pj_session_id_is_valid(const char *id)
{
    size_t bytes = 0;
    while (bytes <= PJ_SESSION_ID_MAX && id[bytes] > ' ' && id[bytes] <= '~') bytes++;
    return bytes > 0 && bytes <= PJ_SESSION_ID_MAX && !id[bytes];
}

/* Output tokens of an open run whose token spans are passes that yield none; 0 when it is built. */
#define PJ_GENERATES_NO_TOKENS ((uint64_t)INT64_MAX)

/* Facts and figures of the run as a whole; NAN, NULL or 0 as commented. */
typedef struct pj_run_info {
    char id[PJ_UUID_BYTES];
    pj_run_status status;
    pj_depth depth;
    int64_t created_wall_ns; /* wall time at time 0 of the run */
    double monotonic_ms;     /* CLOCK_MONOTONIC at that time; NAN: recorded on another clock */
    const char *prompt, *output_text, *model_name, *model_path, *engine, *experiment_name;
    const char *scope, *level; /* see pj_run_facts; NULL: the machine; not attached */
    /* Of a private run (prompt, output_text and token texts are NULL): the JSON objects stored
     * instead (trace/private_text.h). NULL: not private, or unknown. */
    const char *prompt_private, *output_private;
    const char *const *tags; /* tag_count of them */
    uint32_t tag_count;
    uint32_t batch_size;
    const char *dtype, *isa;   /* NULL: unknown */
    uint32_t threads;          /* 0: unknown */
    const char *machine;       /* short name: CPU model and host */
    const char *machine_json;  /* fingerprint: CPU, memory, OS, GPUs, driver */
    const char *failure;       /* reason of a failed run; NULL: unknown, or not failed */
    const char *settings_json; /* generation settings as requested */
    const char *model_json;    /* parameters, layers, heads, ... */
    const char *repeat_group;  /* id of the first run of a --repeat series, or NULL */
    uint32_t repeat_index;
    uint64_t input_tokens; /* 0: unknown, as no prompt is empty */
    uint64_t output_tokens;
    const uint32_t *prompt_tokens; /* [prompt_count] of each sequence; not stored as such */
    uint32_t prompt_count;         /* 0: unknown */
    const char *batch_rule;        /* how shared steps were split; NULL: there are none */
    double cached_tokens;   /* of the input tokens, those that a server had cached; NAN: unknown */
    const char *allocation; /* rule by which energy was divided between concurrent requests or runs;
                               NULL: this run was alone */
    double total_ms, prefill_ms, decode_ms; /* NAN: did not happen */
    pj_source_quality quality;
    const char *power_sources; /* "rapl,nvml"; NULL: none */
    const char *simulation; /* settings of the source `sim`; in spools only; NULL: it is unused */
    pj_method method;       /* of figures below the token */
    double total_mj, idle_mj, net_mj, total_sd_mj, net_sd_mj;
    pj_sd total_sd, net_sd;       /* their components */
    double upper_mj;              /* unavailable below resolution: at most this much; else NAN */
    pj_absence absence;           /* why total_mj is unavailable */
    double prefill_mj, decode_mj; /* gross */
    double prefill_net_mj, decode_net_mj;
    bool total_is_partial;       /* partial_rails is not NULL */
    const char *total_rails;     /* rails summed in the total: "cpu,gpu0"; NULL: none */
    const char *conditions_json; /* by device: means and extremes; NULL: none reported */
    const char *devices_json;    /* what computed, by number; NULL: the host alone */
    const char
        *partial_rails; /* rails that the total should include but lacks: "gpu1"; NULL: none */
    /* The request: the run without model loading and idle gaps (trace/request.h). */
    double request_mj, request_net_mj, request_sd_mj, request_net_sd_mj, request_ms;
    pj_sd request_sd, request_net_sd; /* their components */
    double model_load_mj;             /* NAN: unavailable, or the run loaded no model */
    double model_load_sd_mj;
    pj_sd model_load_sd;
    double typical_token_mj, typical_sd_mj; /* trace/typical.h */
    pj_sd typical_sd;
    /* Of tokens between reasoning marks (trace/thinking.h); NAN: no mark was seen. */
    double thinking_tokens, thinking_mj, thinking_sd_mj, thinking_ms;
    double tool_calls; /* that the answers ask for (trace/thinking.h); NAN: unknown */
    /* Disturbances (trace/disturbance.h) of the run, of the request, of phases, of loading. */
    const char *disturbances_json; /* the list; NULL: not judged */
    pj_disturbed_sum disturbed, request_disturbed, prefill_disturbed, decode_disturbed;
    double model_load_disturbed_mj;
    double disturbed_share;               /* request_disturbed.mj / request_mj */
    int32_t disturbed_tokens;             /* rows of tokens that are disturbed; -1: not judged */
    double parameters, active_parameters; /* of the model; NAN: unknown */
    /* attribution as a whole */
    double condition_number, pj_per_flop, pj_per_flop_sd, pj_per_byte, pj_per_byte_sd;
    double attribution_interval;            /* median relative 95 % half width of tokens' classes */
    double attribution_interval_calibrated; /* the same, as expected with a calibration */
    double calibration_gap;                 /* replay: measured / predicted - 1, NAN else */
    /* the profiler itself */
    double overhead_ms, overhead_share; /* measured cost of recording in this run */
    double statistics_ms;               /* of that: computing statistics of outputs */
    double sampler_cpu_share, sampler_jitter_us;
    uint64_t samples_missed, spans_lost;
    double baseline_cold_mw, baseline_resident_mw; /* total; NAN: none */
    /* what the machine counted meanwhile; NAN: not counted on it */
    double memory_read_bytes, memory_written_bytes; /* of the whole machine */
    double process_mj; /* of the process that ran the model, its CPU alone, as the system says */
    const char *name, *note; /* given to it afterwards (pj_store_describe); NULL: none */
} pj_run_info;

typedef struct pj_run_data {
    pj_arena arena;
    pj_run_info info;
    pj_rail rails[PJ_MAX_RAILS];
    double baseline_mw[PJ_MAX_RAILS], baseline_sd_mw[PJ_MAX_RAILS]; /* NAN: none */
    uint32_t rail_count;
    pj_sample_table samples;
    pj_rail_energy *rail_energy;
    pj_phase_row *phases;
    pj_section_row *sections;
    pj_token_row *tokens;
    pj_layer_row *layers;
    pj_component_row *components;
    pj_operation_row *operations;
    pj_extra_row *extras;
    pj_class_row *classes;
    pj_warning_row *warnings;
    pj_condition_row *conditions;
    /* By number, the host first; none if only the host computed. Stored as info.devices_json. */
    pj_device_row *devices;
    uint32_t device_count;
    uint32_t rail_energy_count, phase_count, section_count, token_count, layer_count,
        component_count, operation_count, extra_count, class_count, warning_count, condition_count;
} pj_run_data;

/* Records the names of the rails summed in the total, and of those missing from it besides the ones
 * known to be unreadable before the run; bit masks of rails. `unmeasured`: what no rail measures,
 * "cpu" or "gpu", separated by commas. */
pj_status pj_run_name_total(pj_run_data *data, uint64_t used, uint64_t missing,
                            const char *unmeasured, pj_error *err);

void pj_run_data_fini(pj_run_data *data); /* frees the arena; may run twice */
void pj_run_info_init(pj_run_info *info); /* no figure is known */

/* The first token row of the step that a row lies in, PJ_NO_PARENT: in none. */
static inline uint32_t pj_step_of(uint32_t token, uint32_t step)
{
    return step != PJ_NO_PARENT ? step : token;
}
uint32_t pj_step_of_component(const pj_run_data *data, const pj_component_row *component);
/* The end of the shared step that begins with token row `first`. */
uint32_t pj_shared_step_end(const pj_run_data *data, uint32_t first);
/* A row's part of a component's gross energy in millijoules: all of it unless the step is shared.
 */
double pj_token_part_mj(const pj_token_row *token, const pj_component_row *component);

/* How shared steps are split, see attribution/batch.h. */
typedef enum pj_batch_rule { PJ_BATCH_BYTES = 0, PJ_BATCH_TOKENS, PJ_BATCH_EQUAL } pj_batch_rule;
const char *pj_batch_rule_name(pj_batch_rule rule);
int pj_batch_rule_parse(const char *name); /* -1: none of them */

/* Which part of a transformer block a component belongs to, by its name; of steps that were
 * computed together ("input_layernorm+qkv_proj"), by the last. */
typedef enum pj_part { PJ_PART_OTHER = 0, PJ_PART_ATTENTION, PJ_PART_MLP, PJ_PART_NORM } pj_part;
pj_part pj_component_part(const char *name);

#endif
