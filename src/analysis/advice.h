/*
 * Recommendations and their estimated savings: rules over the figures of one run and its neighbours
 * in the store. Each rule states its condition, its evidence, the saving with an interval, the
 * drawback, and the command that tests it. A rule without evidence gives no recommendation and the
 * reason. Pure: the caller gathers the facts (insight/advice.c).
 */
#ifndef PJ_ANALYSIS_ADVICE_H
#define PJ_ANALYSIS_ADVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A rule applies if the lower end of its saving is above this share of the request's energy. */
#define PJ_ADVICE_LEAST 0.02

enum { PJ_ADVICE_EVIDENCE = 5, PJ_ADVICE_TEXT_BYTES = 480, PJ_ADVICE_NEIGHBOURS = 64 };

/* Completed runs of the same model, machine and lengths that differ in one setting from this one:
 * the mean of joules per token and the 95 % interval of its ratio to this setting's. */
typedef struct pj_advice_neighbour {
    uint32_t threads, batch;
    char dtype[16];
    uint32_t n;
    double ratio, lo, hi; /* ratio of joules per token to runs with this run's setting */
    double speed;         /* ratio of output tokens per second */
    double power;         /* ratio of mean power */
} pj_advice_neighbour;

/* NAN, NULL, 0 and false: unknown or absent. Energies in mJ, shares 0..1. */
typedef struct pj_advice_facts {
    const char *run_id, *model, *dtype;
    const char *device;  /* that computed, quoted for a shell; NULL: the CPU */
    const char *prompt;  /* quoted for a shell; NULL: too long, or private */
    bool prompt_is_ids;  /* token ids, as in "1,2,3" */
    bool is_elsewhere;   /* another engine computed: only its own program can repeat the run */
    const char *refusal; /* why there is no advice on this run at all; NULL: there may be */
    bool has_energy;
    uint64_t input_tokens, output_tokens;
    uint32_t batch, threads;
    /* Phases are without their disturbances. */
    double request_mj, total_mj, load_mj, load_sd, prefill_mj, decode_mj, prefill_ms, decode_ms;
    double relative_sd; /* of the request's energy, without the uncertainty of the gain */
    double idle_mw;     /* idle power of the total */
    /* decode, all steps together */
    double decode_flops, decode_bytes, weight_bytes, cache_bytes;
    double matrix_mj; /* of components that read weights */
    double head_mj;   /* of head and embedding */
    double prefill_matrix_mj, prefill_head_mj, prefill_attention_mj; /* the same of prefill */
    double attention_mj; /* of the attention core, which reads the cache */
    /* relative 1 sigma of these, without the gain, which cancels in shares of the request */
    double matrix_sd, head_sd, attention_sd;
    double prefill_flops;
    double model_bytes, memory_bytes; /* stored weights; of the machine or the device */
    double processor_cache_bytes;     /* of the last level of cache; NAN: unknown */
    double read_bytes_per_s;          /* measured bandwidth of that memory; NAN: not measured */
    double kv_bytes_per_token, context;
    const char *kv_type;
    double parameters;
    /* machine and sensors */
    /* Median decode token of the last third by that of the first, its 1 sigma, and how far the
     * longer context explains it; NAN: too few tokens, or a batch */
    double rise, rise_sd, rise_explained;
    /* The host's part of what it and the devices drew above idle; NAN: no device, or one of them is
     * not measured */
    double host_share;
    double disturbed_share, throttled_share, power_mw, power_limit_mw;
    double interval, interval_calibrated; /* median relative half width of parts */
    /* runs in the store that differ in one setting */
    uint32_t same_model_last_hour; /* runs of this model in the hour before */
    double prefix_share;           /* prompt characters shared with other prompts */
    uint32_t prefix_runs;
    double window_ms,
        window_busy_ms; /* from the first to the last of the hour's runs on this machine */
    double window_mj;   /* energy of these runs */
    uint32_t window_runs,
        window_prompts;        /* number of changes of prompt among them, a sign of real traffic */
    const char *smaller_model; /* smaller models with the same vocabulary */
    double smaller_parameters;
    uint32_t neighbour_count;
    pj_advice_neighbour neighbours[PJ_ADVICE_NEIGHBOURS];
    /* CO2: NAN unless the caller gave an intensity */
    double g_per_kwh, lowest_g_per_kwh;
    const char *lowest_region;
} pj_advice_facts;

typedef struct pj_evidence {
    const char *name, *unit, *says; /* unit "share": 0..1 */
    double value;
} pj_evidence;

typedef struct pj_advice {
    const char *rule, *title;
    bool speaks;
    bool limits; /* a warning about the reliability of figures, listed before savings */
    char text[PJ_ADVICE_TEXT_BYTES]; /* the finding; without a recommendation: the reason */
    pj_evidence evidence[PJ_ADVICE_EVIDENCE];
    uint32_t evidence_count;
    const char *of;       /* the reference of the saving: "request", "total", "window", "co2" */
    double share, lo, hi; /* NAN: no saving is claimed */
    double mj;            /* the reference energy in mJ */
    const char *basis;    /* "observed" in runs, "predicted" by a formula, "none" */
    const char *quality, *latency, *memory; /* the drawback */
    char test[PJ_ADVICE_TEXT_BYTES];        /* the command that tests it */
} pj_advice;

/* Evaluates every rule. Recommendations come first (reliability warnings, then by saving, largest
 * first), then the rules without one. Returns their number; *speaking: the number of
 * recommendations. `out` has room for pj_advice_rules(). */
size_t pj_advise(const pj_advice_facts *facts, pj_advice *out, size_t *speaking);
size_t pj_advice_rules(void);

#endif
