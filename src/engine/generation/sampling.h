/* Selects the next token from logits, in this order: logit bias, repetition penalty, frequency and
 * presence penalty, temperature, top-k, top-p, min-p, typical-p, draw. Temperature 0 is greedy: the
 * first of the largest. A draw depends only on the seed and the number of previous draws, not on
 * threads. */
#ifndef PJ_GENERATION_SAMPLING_H
#define PJ_GENERATION_SAMPLING_H

#include "base/error.h"
#include "base/random.h"

enum { PJ_LOGIT_BIASES = 64 };

/* A bias added to a token's logit. */
typedef struct pj_logit_bias {
    int32_t id;
    float bias;
} pj_logit_bias;

typedef struct pj_sampling {
    double temperature;        /* 0: greedy */
    uint32_t top_k;            /* 0: off */
    double top_p;              /* 1: off */
    double min_p;              /* 0: off; relative to the best token's probability */
    double repetition_penalty; /* 1: off; applies to every token of prompt and text so far */
    uint64_t seed;
    double typical_p; /* 0 or 1: off; share of probability kept, nearest to the expected surprise */
    /* Subtracted from the logits of generated tokens: for each occurrence; once. 0: off. */
    double frequency_penalty, presence_penalty;
    uint32_t bias_count;
    pj_logit_bias biases[PJ_LOGIT_BIASES];
} pj_sampling;

#define PJ_SAMPLING_GREEDY ((pj_sampling){.top_p = 1, .repetition_penalty = 1})

/* An error that names the setting and its range, or PJ_OK. */
pj_status pj_sampling_check(const pj_sampling *sampling, pj_error *err);

/* Whether a token is simply the first of the largest logits. */
bool pj_sampling_is_argmax(const pj_sampling *sampling);

typedef struct pj_sampler {
    pj_sampling settings;
    pj_random random;
    uint32_t vocab;                /* ids from here on are never chosen */
    struct pj_ranked_token *order; /* [vocab] scratch */
    uint8_t *seen;                 /* [vocab] 1: occurs in the text; NULL without a penalty */
    uint32_t *generated;           /* [vocab] times generated; NULL without such a penalty */
} pj_sampler;

pj_status pj_sampler_init(pj_sampler *sampler, const pj_sampling *settings, uint32_t vocab,
                          pj_error *err);
void pj_sampler_fini(pj_sampler *sampler); /* may run twice */
/* Registers a token of the prompt, or a generated one, for the penalties. */
void pj_sampler_accept(pj_sampler *sampler, int32_t id, bool generated);
/* Applies bias and penalties to `logits` [at least vocab] in place. Allocates nothing. */
int32_t pj_sampler_draw(pj_sampler *sampler, float *logits);

#endif
