/*
 * Generated GGUF files: a writer of keys and tensors, and conversion of checkpoints with the names,
 * row order and keys used by converters of published models. Written from the format's description,
 * independently of the reader's tables.
 */
#ifndef PJ_TESTS_UNIT_MADE_GGUF_H
#define PJ_TESTS_UNIT_MADE_GGUF_H

#include "base/buffer.h"
#include "engine/model/checkpoint.h"

enum { MADE_MAX_TENSORS = 512 };

typedef struct made_gguf {
    pj_buffer keys, infos, data;
    uint64_t key_count, tensor_count;
    uint32_t version;
} made_gguf;

void made_gguf_init(made_gguf *g);
void made_gguf_fini(made_gguf *g);
void made_gguf_key(made_gguf *g, const char *key, uint32_t type); /* a value must follow */
void made_gguf_bytes(pj_buffer *out, uint64_t value, int bytes);
void made_gguf_text(pj_buffer *out, const char *text, size_t bytes);
void made_gguf_u32(made_gguf *g, const char *key, uint32_t value);
void made_gguf_f32(made_gguf *g, const char *key, float value);
void made_gguf_bool(made_gguf *g, const char *key, bool value);
void made_gguf_string(made_gguf *g, const char *key, const char *value);
void made_gguf_strings(made_gguf *g, const char *key, const char *const *values, uint64_t count);
void made_gguf_u32s(made_gguf *g, const char *key, const uint32_t *values, uint64_t count);
void made_gguf_f32s(made_gguf *g, const char *key, const float *values, uint64_t count);
/* Sizes with the fastest-varying dimension first; `type` is the format's number. */
void made_gguf_tensor(made_gguf *g, const char *name, const uint64_t *sizes, uint32_t rank,
                      uint32_t type, const void *data, size_t bytes);
/* The file; the caller frees the buffer. */
void made_gguf_file(const made_gguf *g, pj_buffer *file);
void made_gguf_write(const made_gguf *g, const char *path);

typedef struct made_gguf_options {
    int type;       /* a pj_dtype for matrices, -1: as they are */
    bool rounded;   /* F32 with the values rounded through `type` */
    bool pairs;     /* matrices in Q2_0, with `rounded` in F32 with its values */
    bool old_names; /* one tensor per expert; Phi's q, k and v fused */
} made_gguf_options;

/* A copy of the weights and the configuration. */
/* Whether the format can express the whole configuration. */
bool made_gguf_carries(const pj_model_config *config);
void made_gguf_copy(made_gguf *g, const pj_checkpoint *from, const made_gguf_options *options);

/* `n` values, whole blocks, to any type of weights; plain quantisers, nearest codes under
 * one scale. */
void made_gguf_quantise(pj_dtype type, const float *x, void *row, size_t n);

#endif
