/* The inference engine's interface for `profile` and the commands: open a model, generate, query
 * facts. An engine owns a thread team, the model and its weights; it serves one call of
 * pj_engine_generate at a time. It does not deal with energy: it records spans through perjoule.h
 * on the run it is given, like any other client, or nothing without a run. */
#ifndef PJ_GENERATION_ENGINE_H
#define PJ_GENERATION_ENGINE_H

#include "base/progress.h"
#include "engine/files/dtype.h"
#include "engine/forward/statistics_rows.h"
#include "engine/generation/sampling.h"
#include "engine/model/ablation.h"
#include "engine/model/config.h"

#include <perjoule.h>
#include <stdatomic.h>

typedef struct pj_engine pj_engine;

/* Element type of the KV cache. AUTO: F32 for F32 weights, whose output must match the reference
 * exactly; F16 otherwise. */
typedef enum pj_kv_type { PJ_KV_AUTO = 0, PJ_KV_F32, PJ_KV_F16 } pj_kv_type;

typedef struct pj_engine_options {
    const char *model; /* a folder, a .safetensors file in one, a GGUF file, or
                          "synthetic:SHAPE[,dtype][,layers=N]" */
    const char *dtype; /* convert weights at load: "q8_0", "q4_0", "f16", "bf16", "f32"; NULL:
                          as stored */
    uint32_t threads;  /* 0: one per core that this process may use */
    pj_kv_type kv;
    bool no_mmap;       /* weights are copied from their files, onto huge pages */
    uint32_t chunk;     /* prompt tokens in one pass, 0: 512 */
    const char *isa;    /* kernel sets that may be used, as PERJOULE_ISA; NULL: that variable */
    const char *device; /* computes the forward pass: "cpu"; NULL: that; read while opening */
    /* Computes the forward pass in the device's stead, for tests (engine/forward/ops.h); or NULL.
     */
    const struct pj_backend *backend;
    const char *draft; /* a smaller model that proposes tokens (engine/generation/speculation.h), or
                          PJ_DRAFT_HEAD: the model's own head for further tokens; NULL: none */
    bool no_tokenizer; /* prompts are ids only: the tokenizer is not loaded */
    bool any_tokenizer; /* prompts are ids: an unreadable tokenizer is ignored */
    /* Set by another thread or a signal handler, it ends the conversion of weights
     * (PJ_E_CANCELLED); read while opening only; or NULL. */
    const _Atomic bool *cancel;
    pj_progress *progress; /* counts the layers loaded while opening; or NULL */
} pj_engine_options;

#define PJ_DRAFT_HEAD "mtp"

/* Opens and checks a model. 16- and 32-bit weights stay in the file's mapping. If loading is part
 * of a run, the caller opens the section model_load around the call. */
pj_status pj_engine_open(const pj_engine_options *options, pj_engine **engine, pj_error *err);
void pj_engine_close(pj_engine *engine); /* NULL is allowed */

/* Facts about the engine for a run's record; strings belong to the engine. */
typedef struct pj_engine_facts {
    char model_name[256]; /* last part of the path, or the synthetic name */
    const char *model_path;
    const char *architecture;  /* as in config.json */
    const char *dtype;         /* of the layers' matrices: "bf16" */
    const char *isa;           /* kernel set in use: "avx512" */
    const char *kv;            /* "f32", "f16" */
    const uint8_t *device_key; /* 16 bytes; NULL: the host */
    const char *declined;      /* why "auto" took no GPU; NULL: it did, or was not asked */
    bool synthetic;
    bool extrapolated; /* layers=N: truncated public shape */
    bool has_tokenizer;
    uint32_t threads;
    uint32_t context; /* tokens of a sequence; more than config's if rope is scaled dynamically */
    const pj_model_config *config;
    uint64_t parameters;                /* all weights */
    uint64_t active_parameters;         /* used by one token: only the chosen experts */
    uint64_t weight_bytes;              /* in memory */
    uint64_t decode_weight_bytes;       /* weights read for one decode step of one sequence */
    double flops_per_token;             /* weights only: 2 x active matrix weights */
    uint64_t kv_bytes_per_token;        /* of the cache, in all layers */
    uint64_t kv_window_bytes_per_token; /* of those, in layers with a sliding window */
    /* Duration of opening: the model without its tokenizer, and the tokenizer. */
    uint64_t upload_bytes; /* of weights to the device, within model_ns; 0: none */
    int64_t upload_begin_ns, upload_end_ns;
    int64_t model_ns, tokenizer_ns;
} pj_engine_facts;

/* Whether there is such a kernel set, as pj_engine_options.isa. */
pj_status pj_engine_check_isa(const char *isa, pj_error *err);
const pj_engine_facts *pj_engine_get_facts(const pj_engine *engine);
const pj_engine_facts *pj_engine_draft_facts(const pj_engine *engine); /* NULL: no draft model */
/* The model's files, and its draft's, are still those that were opened, unchanged. */
bool pj_engine_is_current(const pj_engine *engine);
/* What tells the model's weight files, as they were opened, from others; 0: synthetic. */
uint64_t pj_engine_stamp(const pj_engine *engine);

enum { PJ_DRAFT_USUAL = 4 }; /* tokens that a draft model proposes in each step */

/* A prompt is text (through the tokenizer) or, when `ids` is set, token ids. */
typedef struct pj_prompt {
    const char *text;
    size_t bytes;
    bool messages; /* `text` is a conversation as JSON, for the model's chat template */
    const int32_t *ids;
    uint32_t id_count;
} pj_prompt;

typedef enum pj_stop_reason {
    PJ_STOP_NONE = 0, /* not ended */
    PJ_STOP_LENGTH,   /* max_tokens was reached */
    PJ_STOP_EOS,
    PJ_STOP_STRING,
    PJ_STOP_CANCELLED
} pj_stop_reason;

const char *pj_stop_reason_name(pj_stop_reason reason); /* "length", "eos", "stop", ... */

/* One generated token, as soon as it is known. `text` has whole characters only: it may be empty
 * while a character is incomplete or the text may be the beginning of a stop string, and may then
 * hold the text of several tokens. Called on the thread that runs pj_engine_generate. */
typedef struct pj_generated {
    uint32_t sequence, position; /* position counts generated tokens from 0 */
    const char *text;
    size_t bytes;
    uint32_t context, context_limit; /* tokens of prompt and text so far; their maximum */
} pj_generated;

typedef struct pj_generate_request {
    const pj_prompt *prompts;
    uint32_t prompt_count;
    uint32_t sequences; /* batch: sequence i takes prompt i % prompt_count; 0: prompt_count */
    /* Sequence i samples with stream first_stream + i of the seed; stream 0 is the seed itself. */
    uint32_t first_stream;
    uint32_t max_tokens;                 /* new tokens for each sequence */
    bool chat;                           /* wrap each prompt in the model's chat template */
    const char *system, *chat_variables; /* with `chat`: as in pj_chat_request; or NULL */
    bool ignore_eos;                     /* continue to max_tokens */
    pj_sampling sampling;
    pj_statistics_rows statistics;
    uint32_t draft_tokens;   /* proposed by the draft model in each step; 0: the usual */
    pj_ablation without;     /* parts of the model that are left out */
    const char *const *stop; /* NULL-terminated list, or NULL */
    void (*on_token)(void *context, const pj_generated *token); /* or NULL */
    void *context;
    const _Atomic bool *cancel; /* polled several times per token; or NULL */
    pj_run *run;                /* records here; NULL: nothing is recorded */
    bool is_private;            /* neither ids nor texts of tokens are recorded */
    /* The caller has already opened phase pre_inference on its lane (to load the model inside it);
     * pj_engine_generate closes it. */
    bool in_pre_inference;
} pj_generate_request;

typedef struct pj_sequence_result {
    int32_t *prompt_ids; /* [prompt_count] */
    uint32_t prompt_count;
    int32_t *ids; /* [count] generated, including the final eos */
    uint32_t count;
    char *text; /* valid UTF-8, without a stop string and anything after it */
    size_t text_bytes;
    pj_stop_reason stop;
} pj_sequence_result;

typedef struct pj_generate_result {
    pj_sequence_result *sequences; /* [count] */
    uint32_t count;
    uint64_t input_tokens, output_tokens;  /* over all sequences */
    int64_t prefill_ns, decode_ns;         /* forward passes and sampling */
    int64_t prefill_cpu_ns, decode_cpu_ns; /* CPU time of the whole process */
    uint32_t decode_steps;
    uint64_t proposed, accepted; /* tokens of the draft model */
    /* Over the logits of every step, in order; 0: they did not come to the host, since the device
     * chose the tokens. */
    uint64_t logits_hash;
} pj_generate_result;

/* Checks the prompts against the context before anything runs. On failure and cancellation
 * (PJ_E_CANCELLED) the result holds what was generated so far. The caller passes a zeroed result
 * and always calls fini on it. */
pj_status pj_engine_generate(pj_engine *engine, const pj_generate_request *request,
                             pj_generate_result *result, pj_error *err);
void pj_generate_result_fini(pj_generate_result *result);

/* Bandwidth in bytes per second at which the engine's device reads the weights in place, without
 * other work: an upper bound for decode. One pass over at most `max_bytes`, the matrices in order,
 * each thread in `streams` (1 .. 8) interleaved streams. NAN when there is less than
 * 64 MiB to read, which caches would serve, or when the device cannot say. */
enum { PJ_ENGINE_READ_STREAMS = 8 };
double pj_engine_read_pass(pj_engine *engine, unsigned streams, uint64_t max_bytes);
/* The fastest pass over several numbers of streams. */
double pj_engine_read_speed(pj_engine *engine, uint64_t max_bytes);
/* Operations per second (two per multiply-add) of the engine's threads from registers, with the
 * instruction used by the layers' products: an upper bound for prefill. */
double pj_engine_peak(pj_engine *engine, int64_t duration_ns);

/* Computes the logits of every position of `ids` and passes them on in order: for eval. `row`
 * returns false to stop. whole = false feeds one token per pass. */
typedef bool pj_logits_row_fn(void *context, uint32_t position, const float *logits,
                              uint32_t vocab);
pj_status pj_engine_logits(pj_engine *engine, const int32_t *ids, uint32_t count, bool whole,
                           pj_logits_row_fn *row, void *context, pj_error *err);

/* Token ids of a prompt text. Without a tokenizer (synthetic models) each byte is an id. The caller
 * frees *ids (pj_free). */
pj_status pj_engine_encode(const pj_engine *engine, const char *text, size_t bytes, int32_t **ids,
                           uint32_t *count, pj_error *err);

/* A conversation for the model's chat template. */
typedef struct pj_chat_request {
    const char *
        text; /* a user's message, or with `messages` a conversation as JSON (engine/text/chat.h) */
    size_t bytes;
    bool messages;
    const char *system;    /* prepended as a system message; or NULL */
    const char *variables; /* JSON object of variables for the template; or NULL */
} pj_chat_request;

/* The ids of a conversation, up to where the answer begins. */
pj_status pj_engine_encode_chat(const pj_engine *engine, const pj_chat_request *request,
                                int32_t **ids, uint32_t *count, pj_error *err);

/* The model's sampling defaults (generation_config.json), completed by ours. */
void pj_engine_sampling_defaults(const pj_engine *engine, pj_sampling *sampling);

#endif
