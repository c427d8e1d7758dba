/* What the stand-ins for llama.cpp's libraries and their client share: the functions that
 * libperjoule-llama.so interposes or calls. The batch has the layout of llama.cpp's versions of
 * 2025 and 2026; with OLD that of 2024, when there was no llama_batch_ext. */
#ifndef FAKE_LLAMA_H
#define FAKE_LLAMA_H

#include <stdbool.h>
#include <stdint.h>

typedef struct llama_batch {
    int32_t n_tokens;
    int32_t *token;
    float *embd;
    int32_t *pos;
    int32_t *n_seq_id;
    int32_t **seq_id;
    int8_t *logits;
#ifdef OLD
    int32_t all_pos_0, all_pos_1, all_seq_id;
#endif
} llama_batch;
struct llama_batch_ext;
struct llama_embd {
    const float *data;
    uint64_t rows, size;
};

struct ggml_tensor {
    char name[64];
    const char *operation;
    int64_t rows;
};
struct ggml_cgraph {
    struct ggml_tensor *nodes;
    int count;
    double value;
};
typedef bool (*fake_callback)(struct ggml_tensor *, bool request, void *context);
struct ggml_scheduler {
    fake_callback callback;
    void *context;
};
struct llama_context;

const char *ggml_get_name(const struct ggml_tensor *t);
const char *ggml_op_desc(const struct ggml_tensor *t);
void ggml_backend_sched_set_eval_callback(struct ggml_scheduler *s, fake_callback callback,
                                          void *context);
int ggml_backend_sched_graph_compute_async(struct ggml_scheduler *s, struct ggml_cgraph *graph);
void ggml_backend_sched_synchronize(struct ggml_scheduler *s);
void ggml_backend_sched_free(struct ggml_scheduler *s);
struct ggml_tensor *ggml_graph_get_tensor(const struct ggml_cgraph *graph, const char *name);
int64_t ggml_nrows(const struct ggml_tensor *t);

struct llama_context *llama_init(void);
void llama_free(struct llama_context *c);
const void *llama_get_model(const struct llama_context *c);
int32_t llama_model_n_layer(const void *model);
uint64_t llama_model_n_params(const void *model);
int32_t llama_model_meta_val_str(const void *model, const char *key, char *text, uint64_t bytes);
llama_batch llama_batch_init(int32_t n_tokens, int32_t embd, int32_t n_seq_max);
void llama_batch_free(llama_batch b);
int32_t llama_decode(struct llama_context *c, llama_batch b);
int32_t llama_encode(struct llama_context *c, llama_batch b);
void llama_synchronize(struct llama_context *c);
void llama_perf_context_reset(struct llama_context *c);
float *llama_get_logits(struct llama_context *c);
float *llama_get_logits_ith(struct llama_context *c, int32_t i);
void llama_set_warmup(struct llama_context *c, bool warmup);
#ifndef OLD
struct llama_batch_ext *llama_batch_ext_init(struct llama_context *c);
void llama_batch_ext_free(struct llama_batch_ext *b);
void llama_batch_ext_clear(struct llama_batch_ext *b);
int32_t llama_batch_ext_add(struct llama_batch_ext *b, int32_t sequence);
int32_t llama_batch_ext_add_token(struct llama_batch_ext *b, int32_t sequence, int32_t token);
int32_t llama_batch_ext_add_embd(struct llama_batch_ext *b, int32_t sequence, struct llama_embd e);
bool llama_batch_ext_set_output_logits(struct llama_batch_ext *b, int32_t index, bool value);
int32_t llama_process(struct llama_context *c, int type, struct llama_batch_ext *b);
#endif

#endif
