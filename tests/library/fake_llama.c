/* A stand-in for libllama: three layers of a graph named as llama.cpp names it, with flash
 * attention or (FAKE_SOFTMAX=1) without, reused from step to step as llama.cpp does. FAKE_LAG=1:
 * results arrive 20 ms late, as from a GPU. FAKE_CALLBACK=1: the program sets its own eval
 * callback. */
#include "fake_llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, MOST_NODES = 200 };

struct llama_context {
    struct ggml_scheduler scheduler;
    struct ggml_tensor nodes[MOST_NODES];
    int count, seen;
    float logits;
};

static void add(struct llama_context *c, const char *operation, const char *name, int layer)
{
    struct ggml_tensor *t = &c->nodes[c->count];
    t->operation = operation;
    if (layer >= 0)
        snprintf(t->name, sizeof t->name, "%s-%d", name, layer);
    else
        snprintf(t->name, sizeof t->name, "%s", *name ? name : "node_7");
    c->count++;
}

static void add_cache(struct llama_context *c, char which, int layer)
{
    c->nodes[c->count].operation = "SET_ROWS";
    snprintf(c->nodes[c->count++].name, 64, "cache_%c_l%d (view)", which, layer);
}

static void add_attention(struct llama_context *c, int layer)
{
    static const char *const projections[] = {"Qcur", "Kcur", "Vcur"};
    add(c, "RMS_NORM", "norm", layer);
    add(c, "MUL", "attn_norm", layer);
    for (int i = 0; i < 3; i++) {
        add(c, "MUL_MAT", projections[i], layer);
        add(c, "RESHAPE", projections[i], layer);
        if (i < 2) add(c, "ROPE", projections[i], layer);
    }
    add_cache(c, 'k', layer);
    add_cache(c, 'v', layer);
    if (getenv("FAKE_SOFTMAX")) {
        add(c, "MUL_MAT", "kq", layer);
        add(c, "SOFT_MAX", "kq_soft_max", layer);
        add(c, "MUL_MAT", "kqv", layer);
        add(c, "CONT", "kqv_out", layer);
    } else {
        add(c, "FLASH_ATTN_EXT", "", -1);
        add(c, "RESHAPE", "kqv_out", layer);
    }
    add(c, "MUL_MAT", "attn_out", layer);
    add(c, "ADD", "ffn_inp", layer);
}

static void add_feed_forward(struct llama_context *c, int layer)
{
    add(c, "RMS_NORM", "norm", layer);
    add(c, "MUL", "ffn_norm", layer);
    add(c, "MUL_MAT", "ffn_gate", layer);
    add(c, "MUL_MAT", "ffn_up", layer);
    add(c, "SWIGLU", "ffn_swiglu", layer);
    add(c, "MUL_MAT", "ffn_out", layer);
    add(c, "ADD", "l_out", layer);
}

static bool count_nodes(struct ggml_tensor *t, bool request, void *context)
{
    (void)t;
    *(int *)context += !request;
    return true;
}

struct llama_context *llama_init(void)
{
    struct llama_context *c = calloc(1, sizeof *c);
    if (!c) abort();
    add(c, "GET_ROWS", "inp_embd", -1);
    for (int i = 0; i < LAYERS; i++) {
        add_attention(c, i);
        add_feed_forward(c, i);
    }
    add(c, "RMS_NORM", "norm", -1);
    add(c, "MUL", "result_norm", -1);
    add(c, "MUL_MAT", "result_output", -1);
    fake_callback callback = getenv("FAKE_CALLBACK") ? count_nodes : NULL;
    ggml_backend_sched_set_eval_callback(&c->scheduler, callback, &c->seen);
    return c;
}

void llama_free(struct llama_context *c)
{
    if (c->seen) printf("%d nodes seen\n", c->seen);
    ggml_backend_sched_free(&c->scheduler);
    free(c);
}

const void *llama_get_model(const struct llama_context *c)
{
    return c;
}

int32_t llama_model_n_layer(const void *model)
{
    return model ? LAYERS : 0;
}

uint64_t llama_model_n_params(const void *model)
{
    return model ? 12345 : 0;
}

int32_t llama_model_meta_val_str(const void *model, const char *key, char *text, uint64_t bytes)
{
    const char *value = !strcmp(key, "general.name") ? "Fake\nModel" : "llama";
    return model ? snprintf(text, bytes, "%s", value) : -1;
}

llama_batch llama_batch_init(int32_t n_tokens, int32_t embd, int32_t n_seq_max)
{
    size_t n = (size_t)n_tokens;
    llama_batch b = {.token = calloc(n, sizeof *b.token), .pos = calloc(n, sizeof *b.pos)};
    b.n_seq_id = calloc(n, sizeof *b.n_seq_id);
    b.seq_id = calloc(n + 1, sizeof *b.seq_id);
    b.logits = calloc(n, 1);
    for (size_t i = 0; i < n; i++) b.seq_id[i] = calloc((size_t)n_seq_max, sizeof **b.seq_id);
    (void)embd;
    return b;
}

void llama_batch_free(llama_batch b)
{
    for (int i = 0; b.seq_id[i]; i++) free(b.seq_id[i]);
    free(b.token);
    free(b.pos);
    free(b.n_seq_id);
    free(b.seq_id);
    free(b.logits);
}

static int32_t run_graph(struct llama_context *c, int32_t tokens, int32_t outputs, double value)
{
    struct ggml_cgraph graph = {.nodes = c->nodes, .count = c->count, .value = value};
    ggml_graph_get_tensor(&graph, "inp_embd")->rows = tokens;
    ggml_graph_get_tensor(&graph, "result_output")->rows = outputs;
    int failed = ggml_backend_sched_graph_compute_async(&c->scheduler, &graph);
    c->logits = (float)graph.value;
    return failed;
}

static int32_t outputs_of(llama_batch b)
{
    int32_t wanted = b.logits ? 0 : 1;
    for (int i = 0; b.logits && i < b.n_tokens; i++) wanted += b.logits[i];
    return wanted;
}

static int32_t compute(struct llama_context *c, llama_batch b, double value)
{
    for (int i = 0; i < b.n_tokens; i++) value += b.token[i] * (b.pos ? b.pos[i] + 1 : 1);
#ifdef OLD
    value += 3 * b.all_pos_0 + 5 * b.all_pos_1 + 7 * b.all_seq_id;
#endif
    return run_graph(c, b.n_tokens, outputs_of(b), value);
}

int32_t llama_decode(struct llama_context *c, llama_batch b)
{
    return compute(c, b, 1);
}

int32_t llama_encode(struct llama_context *c, llama_batch b)
{
    return compute(c, b, 2);
}

void llama_synchronize(struct llama_context *c)
{
    ggml_backend_sched_synchronize(&c->scheduler);
}

void llama_perf_context_reset(struct llama_context *c)
{
    (void)c;
}

float *llama_get_logits(struct llama_context *c)
{
    llama_synchronize(c);
    return &c->logits;
}

float *llama_get_logits_ith(struct llama_context *c, int32_t i)
{
    (void)i;
    llama_synchronize(c);
    return &c->logits;
}

void llama_set_warmup(struct llama_context *c, bool warmup)
{
    (void)c;
    (void)warmup;
}

/* ---- llama_batch_ext ----------------------------------------------------------------------- */

#ifndef OLD
enum { MOST_ENTRIES = 32 };

struct llama_batch_ext {
    int32_t count;
    double values[MOST_ENTRIES];
};

struct llama_batch_ext *llama_batch_ext_init(struct llama_context *c)
{
    (void)c;
    return calloc(1, sizeof(struct llama_batch_ext));
}

void llama_batch_ext_free(struct llama_batch_ext *b)
{
    free(b);
}

void llama_batch_ext_clear(struct llama_batch_ext *b)
{
    memset(b, 0, sizeof *b);
}

static int32_t append(struct llama_batch_ext *b, int32_t sequence, double value)
{
    if (b->count == MOST_ENTRIES) return -1;
    b->values[b->count] = value + sequence * 0.5;
    return b->count++;
}

int32_t llama_batch_ext_add(struct llama_batch_ext *b, int32_t sequence)
{
    return append(b, sequence, 0.25);
}

int32_t llama_batch_ext_add_token(struct llama_batch_ext *b, int32_t sequence, int32_t token)
{
    return append(b, sequence, token);
}

int32_t llama_batch_ext_add_embd(struct llama_batch_ext *b, int32_t sequence, struct llama_embd e)
{
    double value = 0;
    for (uint64_t i = 0; i < e.rows * e.size; i++) value += (double)e.data[i];
    return append(b, sequence, value);
}

bool llama_batch_ext_set_output_logits(struct llama_batch_ext *b, int32_t index, bool value)
{
    bool is_known = index >= 0 && index < b->count;
    if (is_known) b->values[index] += value ? 11 : -3;
    return is_known;
}

int32_t llama_process(struct llama_context *c, int type, struct llama_batch_ext *b)
{
    double value = 1 + 100 * type;
    for (int i = 0; i < b->count; i++) value += b->values[i] * (i + 1);
    return run_graph(c, b->count, 1, value) ? -1 : type;
}
#endif
