/*
 * What a batch of llama.cpp holds, of both its kinds. llama_batch is a struct that llama_decode
 * takes by value; versions differ in its size, so it is declared with its first members and room to
 * spare, which the calling conventions of x86-64 and AArch64 allow. llama_batch_ext, of the middle
 * of 2026 and later, is opaque: the functions that fill it are followed.
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
    int8_t *wanted; /* which tokens' logits are; NULL: the last one's */
    char room[72];
} pj_llama_batch;

/* Tokens of sequences that have several in the batch, sequences that have one, and sequences of
 * which logits are wanted. */
typedef struct pj_batch_contents {
    uint32_t prompt_tokens, generated, outputs;
} pj_batch_contents;

/* Whether batches are followed at all; until it is set nothing is kept. */
extern bool pj_batch_follow;

pj_batch_contents pj_batch_count(const pj_llama_batch *batch);
pj_batch_contents pj_batch_ext_count(const void *batch);

#endif
