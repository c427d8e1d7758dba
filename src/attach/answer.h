/*
 * Parses the events of an answer: text deltas, token counts, usage, the server's own timings,
 * errors. Reads the chat, completion and response events of OpenAI-compatible servers (vLLM,
 * SGLang, transformers), llama-server with its timings, and Ollama's own API.
 *
 * A chunk is not a token: speculative decoding and buffering put several into one, and a partial
 * character gives none. The number of tokens in a chunk is known where the server gives token ids,
 * log probabilities or a running count; else it is -1 and only the final usage has the sum
 * (exchange.h).
 *
 * All input is untrusted: numbers are bounded, texts truncated, malformed events counted.
 */
#ifndef PJ_ATTACH_ANSWER_H
#define PJ_ATTACH_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PJ_TOKENS_MOST = 1 << 28, PJ_ANSWER_TEXT_BYTES = 256 };

/* A part of the answer: text of one choice, or tokens without any. */
typedef struct pj_answer_piece {
    uint32_t choice;
    const char *text; /* UTF-8, not terminated */
    size_t bytes;
    int64_t tokens;   /* -1: unknown */
    int32_t token_id; /* of a single token; -1: unknown */
    bool reasoning;   /* given apart from the answer's content */
} pj_answer_piece;

/* Times in ms, NAN where the server does not say them. */
typedef struct pj_answer_timings {
    double prompt_ms, decode_ms, load_ms;
    double prompt_tokens; /* that prompt_ms is of */
} pj_answer_timings;

/* Counts are -1 where unknown. */
typedef struct pj_answer {
    int64_t prompt_tokens, cached_tokens, completion_tokens, total_tokens, reasoning_tokens;
    int64_t draft_tokens, draft_accepted; /* of speculative decoding */
    int64_t tool_calls; /* that it asks for, as far as the server gives them apart */
    int64_t call_index; /* of the last one, with its choice; -1: it has none */
    uint32_t call_choice;
    int64_t counted; /* tokens so far, from ids and running counts */
    int64_t progress_total, progress_processed, progress_cached;
    pj_answer_timings timings;
    bool has_usage;  /* some event had a usage object or an equivalent */
    bool runs_count; /* events carry a running count */
    bool is_done;    /* the server marked this event as the last */
    bool has_error;
    uint64_t events, malformed;
    char error[PJ_ANSWER_TEXT_BYTES];
    char finish_reason[32];
    char model[128];
} pj_answer;

typedef void pj_answer_piece_fn(void *context, const pj_answer_piece *piece);

void pj_answer_init(pj_answer *answer);
/* Takes one event; `name` as in events.h. Hands over its pieces in order. */
void pj_answer_take(pj_answer *answer, const char *name, const char *data, size_t bytes,
                    pj_answer_piece_fn *piece, void *context);
/* The error of a failed request from a body that is not JSON: its first line. */
void pj_answer_take_error_text(pj_answer *answer, const char *text, size_t bytes);

#endif
