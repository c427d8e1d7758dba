/*
 * Text to token ids and back, by the rules in a tokenizer.json or equivalent fields of a GGUF file:
 * added tokens, normalizer, pre-tokenizer, byte-pair model, post-processor, decoder. Every part is
 * executed as specified; unsupported parts are rejected by name when the file is opened. Text may
 * hold any bytes: invalid UTF-8 is read as U+FFFD.
 *
 * A tokenizer may be used from several threads at once; a pj_token_stream belongs to one.
 */
#ifndef PJ_TEXT_TOKENIZER_H
#define PJ_TEXT_TOKENIZER_H

#include "base/buffer.h"

/* A limit far beyond any published vocabulary; a file that exceeds it is wrong. */
enum { PJ_MAX_VOCAB = 1 << 24 };

typedef struct pj_tokenizer pj_tokenizer;

/* A growable list of ids. Zero-initialise; pj_ids_fini frees. */
typedef struct pj_ids {
    int32_t *ids;
    size_t count, capacity;
} pj_ids;

void pj_ids_fini(pj_ids *ids);               /* may run twice */
bool pj_ids_append(pj_ids *ids, int32_t id); /* false: out of memory */
bool pj_ids_extend(pj_ids *ids, const int32_t *more, size_t count);

/* From a model folder, a tokenizer.json, or a GGUF file. */
pj_status pj_tokenizer_open(const char *path, pj_tokenizer **tokenizer, pj_error *err);
/* From the text of a tokenizer.json; `name` appears in errors. */
pj_status pj_tokenizer_parse(const char *text, size_t bytes, const char *name,
                             pj_tokenizer **tokenizer, pj_error *err);
struct pj_gguf;
bool pj_tokenizer_in_gguf(const struct pj_gguf *gguf); /* whether there is one, supported or not */
/* From the metadata of a GGUF file, which need not outlive the call. */
pj_status pj_tokenizer_from_gguf(const struct pj_gguf *gguf, const char *name,
                                 pj_tokenizer **tokenizer, pj_error *err);
void pj_tokenizer_close(pj_tokenizer *tokenizer); /* NULL is allowed */

/* One more than the highest id. Lower ids may be unused: pj_tokenizer_token returns NULL for
 * them. */
uint32_t pj_tokenizer_size(const pj_tokenizer *tokenizer);
/* The token's spelling in the vocabulary ("Ġworld", "<0x0A>"), terminated; NULL: no such id. */
const char *pj_tokenizer_token(const pj_tokenizer *tokenizer, int32_t id);
bool pj_tokenizer_is_special(const pj_tokenizer *tokenizer, int32_t id);
int32_t pj_tokenizer_find(const pj_tokenizer *tokenizer, const char *token); /* -1: none */

/* Bytes [begin, end) of the text that come from a user: control tokens spelled there stay text. */
typedef struct pj_text_span {
    size_t begin, end;
} pj_text_span;

typedef struct pj_encode_options {
    bool no_special;              /* without the post-processor's tokens */
    const pj_text_span *literals; /* ascending */
    size_t literal_count;
} pj_encode_options;

/* Appends the ids of the text. `options` may be NULL. */
pj_status pj_tokenizer_encode(const pj_tokenizer *tokenizer, const char *text, size_t bytes,
                              const pj_encode_options *options, pj_ids *ids, pj_error *err);
/* Appends the text of the ids; unknown ids are skipped. */
pj_status pj_tokenizer_decode(const pj_tokenizer *tokenizer, const int32_t *ids, size_t count,
                              bool skip_special, pj_buffer *text, pj_error *err);

/* Incremental decoding: `push` appends text that is final, whole characters only; `finish` the
 * rest. Together they equal the decoded text of all ids, except that each invalid byte of a byte
 * token becomes one U+FFFD, and that an unusual list of decoders sees at most the last 64 tokens.
 */
typedef struct pj_token_stream pj_token_stream;
pj_status pj_token_stream_new(const pj_tokenizer *tokenizer, bool skip_special,
                              pj_token_stream **stream, pj_error *err);
pj_status pj_token_stream_push(pj_token_stream *stream, int32_t id, pj_buffer *text, pj_error *err);
pj_status pj_token_stream_finish(pj_token_stream *stream, pj_buffer *text, pj_error *err);
void pj_token_stream_free(pj_token_stream *stream); /* NULL is allowed */
/* Tests: how many ids were decoded so far, each as often as it was; 0 on the direct path. */
uint64_t pj_token_stream_work(const pj_token_stream *stream);

#endif
