/*
 * The CPU as a device: the operations of engine/forward/ops.h on host memory, over the kernel sets
 * of engine/kernels and the thread team. Only the thread that drives the pass records; the team
 * computes statistics for it, of an output while it is in the threads' caches.
 *
 * The keys (or values) of one layer, sequence and KV head are contiguous rows of head_dim values,
 * oldest first. Layers with a sliding window keep only what a query can still see: their rows start
 * at position `base` of the sequence, and when the rows are full the visible ones are moved to the
 * front. So attention always reads one contiguous range in order.
 */
#ifndef PJ_CPU_CPU_H
#define PJ_CPU_CPU_H

#include "engine/forward/work.h"
#include "engine/kernels/linear.h"

/* A model on the CPU: its weights are where the model has them. */
typedef struct pj_cpu_device {
    const pj_model *model;
    const pj_kernels *kernels;
    pj_team *team;
} pj_cpu_device;

/* Buffers of this device beside those of the forward pass. */
enum { PJ_CPU_GATHERED = PJ_BUFFERS, PJ_CPU_BUFFERS };

/* Sums over the sampled attention rows of one head. */
typedef struct pj_head_figures {
    uint32_t number; /* of the attention that they are about */
    uint32_t rows;
    double entropy, entropy_normalised, largest, largest_of_all;
    double visible, below, below_relative; /* keys; with p < tau; with p < 0.1 / n */
} pj_head_figures;

enum { PJ_ATTENTION_STAGES = 7, PJ_ATTENTION_SUMS = 5 };

/* What one thread did for the attention of a layer at depth deep, on cache lines of its own. */
typedef struct pj_attention_part {
    _Alignas(64) uint32_t number; /* of the attention that this is about */
    int64_t ns[PJ_ATTENTION_STAGES];
    pj_value_sums sums[PJ_ATTENTION_SUMS];
} pj_attention_part;

/* Statistics of one output, computed at the end of an operation. */
typedef struct pj_kept_stats {
    const float *x; /* NULL: none */
    size_t rows, cols;
    size_t sampled_rows; /* number of sampled rows; 0: all */
    bool fresh;          /* computed in the open span */
    pj_stats stats;
} pj_kept_stats;

enum { PJ_CPU_KEPT = 4 };

/* The state of a generation. T = options.max_tokens. */
typedef struct pj_cpu {
    const pj_model *model;
    const pj_kernels *kernels;
    pj_team *team;
    pj_state_options options;
    pj_instrument *instrument;
    pj_rows_of_pass rows; /* of the pass */

    /* KV cache: layer i starts at kv + kv_offset[i], holds [sequences][K, V][kv_heads][slots]
     * rows of head_dim values; the recurrent state of each sequence at kv + delta_offset[i]. */
    unsigned char *kv;
    size_t kv_bytes;
    size_t *kv_offset;    /* [layers] */
    size_t *delta_offset; /* [layers] */
    size_t *kv_row_bytes; /* [layers] of one position's keys, or values, of one head */
    size_t *index_offset; /* [layers] of an indexer's keys: [sequences][slots] rows */
    uint32_t full_slots, window_slots;

    unsigned char *block; /* all of the following, up to `scores` */
    size_t block_bytes;
    float *buffers[PJ_CPU_BUFFERS];
    float *probability;      /* [T][experts] softmax of the router logits */
    float *choice;           /* [T][experts] what routers choose by, where that differs */
    uint32_t *chosen;        /* [T][experts_per_token] */
    float *chosen_weight;    /* [T][experts_per_token] */
    uint32_t *expert_begin;  /* [experts + 1] first entry of each expert in the next two */
    uint32_t *expert_row;    /* [T experts_per_token] rows by expert */
    float *expert_weight;    /* [T experts_per_token] their weights */
    float *cosine[PJ_ROPES]; /* [T][pairs] of each rope */
    float *sine[PJ_ROPES];
    float *ratios;                      /* [2][T heads] variance and mean square ratios of a norm */
    pj_head_figures *figures;           /* [threads][heads] of attention at depth deep */
    pj_attention_part *attention_parts; /* [threads], likewise */
    uint32_t attention_number;          /* of the last attention at depth deep */
    int32_t *ids;                       /* [max_logits] of argmax */
    void *packed;                       /* activations packed for products */
    float *scores; /* [threads][score_floats] attention weights of the current units */
    size_t score_floats;

    /* Sparse attention; NULL where no sequence becomes so long that keys are left out. */
    float *index_scores;     /* [index_rows][context] of an indexer */
    uint32_t index_rows;     /* of the pass, that are scored at once */
    uint32_t *seen_keys;     /* [T][kept] positions in ascending order, of the last choice */
    unsigned char *gathered; /* [threads][kept] rows of the cache, of the current units */
    size_t gathered_bytes;   /* of each thread */

    pj_thread_sums *sums; /* [PJ_MAX_PRODUCTS][threads], zero between dispatches */
    /* Statistics from operations of the current component: the last one's output is often the
     * component's own, so they can be reused. */
    pj_kept_stats kept[PJ_CPU_KEPT];
    uint32_t kept_next;
} pj_cpu;

static inline float *pj_cpu_floats(const pj_cpu *s, pj_slice slice)
{
    return s->buffers[slice.buffer] + slice.first;
}
static inline float *pj_cpu_row(const pj_cpu *s, pj_slice slice, size_t row)
{
    return pj_cpu_floats(s, slice) + row * slice.stride;
}

/* ---- state.c ------------------------------------------------------------------------------ */

pj_status pj_cpu_open(void *loaded, const pj_generation_shape *shape, void **state, pj_error *err);
void pj_cpu_close(void *state);
/* Rows of keys (which 0) or values (which 1) of one head, from position `first` of the sequence. */
pj_kv_rows pj_cpu_kv(const pj_cpu *s, uint32_t layer, uint32_t sequence, uint32_t which,
                     uint32_t head, uint32_t first);
/* Keys of an indexer's cache, from position 0. */
pj_kv_rows pj_cpu_index_keys(const pj_cpu *s, uint32_t layer, uint32_t sequence);
/* A sequence's state of a layer with the delta rule: pj_delta_state_floats. */
float *pj_cpu_delta(const pj_cpu *s, uint32_t layer, uint32_t sequence);
/* Copies of it, after each row of a pass that may be rolled back; NULL: this pass has none. */
float *pj_cpu_delta_after(const pj_cpu *s, uint32_t layer, const pj_pass_segment *segment,
                          uint32_t row);
void pj_cpu_rewind(void *state, uint32_t sequence, uint32_t row);
void pj_cpu_reset(void *state, uint32_t sequence);
void pj_cpu_slide(void *state, uint32_t sequence, uint32_t from, uint32_t count);

/* ---- record.c ----------------------------------------------------------------------------- */

/* Work of a span, until it ends. */
typedef struct pj_cpu_done {
    double flops, bytes;
    const float *x; /* output for statistics, or NULL; [rows][stride], cols used */
    size_t rows, cols, stride;
} pj_cpu_done;

pj_cpu_done pj_cpu_done_of(const pj_cpu *s, const pj_done *done);
static inline pj_cpu_done pj_cpu_work(const pj_cpu *s, pj_slice out, double flops, double bytes)
{
    return (pj_cpu_done){flops, bytes, pj_cpu_floats(s, out), out.rows, out.cols, out.stride};
}

/* Of the device's table. */
void pj_cpu_section(void *state, pj_instrument_name name);
void pj_cpu_end_section(void *state);
void pj_cpu_layer(void *state, uint32_t layer);
void pj_cpu_component(void *state, pj_instrument_name name);
void pj_cpu_end(void *state, const pj_done *done);
/* `now_ns` 0: where the previous span ended. */
void pj_cpu_begin_component(pj_cpu *s, pj_instrument_name name, int64_t now_ns);
/* Ends a layer, component or operation, with its statistics. FLOPs and bytes are passed in
 * registers: the processor cannot yet load as a vector what was just stored as two values.
 * `now_ns`: the end, 0: the present time. */
void pj_cpu_end_done(pj_cpu *s, double flops, double bytes, const pj_cpu_done *done,
                     int64_t now_ns);
static inline void pj_cpu_operation_end(pj_cpu *s, const pj_cpu_done *done)
{
    if (s->instrument->deep) pj_cpu_end_done(s, done->flops, done->bytes, done, 0);
}

/* Adds rows [begin, end) of an output of `rows` rows to `sums`. */
void pj_cpu_sample(const pj_cpu *s, const pj_cpu_done *of, size_t begin, size_t end,
                   pj_value_sums *sums);
/* Statistics computed by the threads that produce an output, while it is in their caches: during a
 * dispatch each thread adds to its own sums; afterwards the caller merges them as the statistics of
 * the open span's output buffer. */
static inline pj_thread_sums *pj_cpu_job_sums(pj_cpu *s, size_t job)
{
    return s->sums + job * pj_team_threads(s->team);
}
static inline pj_value_sums *pj_cpu_sums(pj_cpu *s, unsigned thread)
{
    return &s->sums[thread].sums;
}
void pj_cpu_take_sums(pj_cpu *s, size_t job, pj_value_sums *sums); /* and resets them */
/* An output so short that the caller sums it faster alone after the dispatch than it fetches the
 * other threads' sums: it reads the output next anyway. */
static inline bool pj_cpu_short(size_t rows, size_t cols)
{
    enum { ALONE = 4096 };
    return rows * cols <= ALONE;
}
void pj_cpu_keep(pj_cpu *s, const pj_cpu_done *done, const pj_value_sums *sums);
/* Statistics of an output whose dispatch has ended. */
void pj_cpu_keep_summed(pj_cpu *s, size_t job, const pj_cpu_done *done);

/* ---- rows.c ------------------------------------------------------------------------------- */

/* Runs fn(context, row) for all rows: on the team if there is enough `work` (values touched, over
 * all rows) to justify a dispatch. */
typedef void pj_row_fn(void *context, size_t row);
void pj_cpu_rows(pj_cpu *s, size_t rows, size_t work, pj_row_fn *run, void *context);
/* The same, with statistics of the output `done`, if recorded, per row as soon as it is written.
 * Row i is part of done's row i / (rows / done->rows). */
void pj_cpu_rows_summed(pj_cpu *s, size_t rows, size_t work, pj_row_fn *run, void *context,
                        const pj_cpu_done *done);
/* Records an extra with the number of sampled rows, unless all were sampled. */
void pj_cpu_record_rows(const pj_cpu *s, size_t rows);

/* ---- operations, in the files of their names ---------------------------------------------- */

/* elements.c */
void pj_cpu_gather(void *state, const pj_matrix *table, float scale, pj_slice y);
void pj_cpu_scale(void *state, pj_slice x, float factor);
void pj_cpu_join_vectors(void *state, const pj_norm *norm, pj_slice context, pj_slice vectors);
void pj_cpu_add(void *state, pj_slice y, pj_slice x);
void pj_cpu_add_scaled(pj_cpu *s, pj_slice y, pj_slice x, float scale); /* y += scale x */
void pj_cpu_add_gated(void *state, pj_slice y, pj_slice x, pj_slice gate);
void pj_cpu_give(void *state, const float *values, pj_slice y);
void pj_cpu_take_rows(void *state, pj_slice x, const uint32_t *rows, pj_slice y);
void pj_cpu_bound(void *state, pj_slice x, float factor, float cap);
void pj_cpu_argmax(void *state, pj_slice x);
/* streams.c */
void pj_cpu_predict_streams(void *state, pj_slice coefficients, pj_slice streams, pj_slice x);
void pj_cpu_correct_streams(void *state, pj_slice coefficients, const float *scale,
                            pj_slice streams, pj_slice x);
void pj_cpu_match_magnitude(void *state, pj_slice x, pj_slice like);
/* norm.c */
void pj_cpu_norm(void *state, const pj_norm_step *step);
/* products.c */
void pj_cpu_products(void *state, pj_slice x, const pj_product *products, uint32_t count);
/* queries.c */
void pj_cpu_angles(void *state);
void pj_cpu_take_queries(void *state, const pj_layer *layer, pj_slice from, pj_slice to);
void pj_cpu_copy_heads(void *state, uint32_t heads, pj_slice from, uint32_t from_step, pj_slice to,
                       uint32_t to_step);
void pj_cpu_gate_heads(void *state, const pj_layer *layer, pj_slice gates, pj_slice y);
void pj_cpu_rotate(void *state, const pj_layer *layer, pj_slice qkv);
void pj_cpu_rotate_and_store(void *state, const pj_layer *layer, pj_slice qkv);
/* indexer.c */
void pj_cpu_choose_keys(void *state, const pj_layer *layer, pj_slice index, bool chooses);
/* Positions that a row of the pass sees, in ascending order, where they were chosen. */
static inline const uint32_t *pj_cpu_seen_keys(const pj_cpu *s, size_t row)
{
    return s->seen_keys + row * s->model->config.indexer.kept;
}
/* attention.c */
void pj_cpu_attend(void *state, const pj_layer *layer, pj_slice qkv, pj_slice y,
                   const pj_attention_extent *extent);
/* activation.c */
void pj_cpu_activate(void *state, const pj_activation *activation);
/* experts.c */
void pj_cpu_route(void *state, const pj_layer *layer, pj_slice logits, bool renormalise);
void pj_cpu_experts(void *state, const pj_layer *layer, const pj_activation *like, pj_slice x,
                    pj_slice y, pj_slice residual);
/* delta.c */
void pj_cpu_convolve(void *state, const pj_layer *layer, pj_slice x, pj_slice y);
void pj_cpu_delta_rule(void *state, const pj_layer *layer, pj_slice qkv, pj_slice strength,
                       pj_slice y);
void pj_cpu_gated_norm(void *state, const pj_layer *layer, pj_slice y, pj_slice gate);

#endif
