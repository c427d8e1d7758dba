/*
 * The content of a llama.cpp batch, for both kinds of batch. llama_batch is a struct that
 * llama_decode takes by value; versions differ in its size, so it is declared with its first
 * members and room to spare, which the calling conventions of x86-64 and AArch64 allow.
 * llama_batch_ext, of the middle of 2026 and later, is opaque, so the functions that fill it are
 * intercepted.
 */
#ifndef PJ_INJECT_LLAMA_BATCH_H
#define PJ_INJECT_LLAMA_BATCH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pj_llama_batch { /* 56 bytes in 2024 to 2026, 72 before */
    int32_t count;
    int32_t *token;
    float *embedding;
    int32_t *position;
    int32_t *sequence_count;
    int32_t **sequence;
    int8_t *wanted; /* whose logits are wanted; NULL: the last token's */
    char room[72];
} pj_llama_batch;

/* Tokens of sequences with several tokens in the batch, number of sequences with one, and number of
 * sequences whose logits are wanted. */
typedef struct pj_batch_contents {
    uint32_t prompt_tokens, generated, outputs;
} pj_batch_contents;

/* Enables the tracking of batches; until then nothing is kept. */
extern bool pj_batch_follow;

pj_batch_contents pj_batch_count(const pj_llama_batch *batch);
pj_batch_contents pj_batch_ext_count(const void *batch);

#endif
