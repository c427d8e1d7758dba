/* A model and generations on a Vulkan device: what the files of operations share. */
#ifndef PJ_VULKAN_GPU_H
#define PJ_VULKAN_GPU_H

#include "engine/forward/ops.h"
#include "engine/model/latent.h"
#include "engine/vulkan/shaders.h"
#include "engine/vulkan/vk.h"
#include "engine/vulkan/weights.h"

/* ---- weights (upload.c) ---- */

/* Copies of the model's matrices and vectors, found by their address in host memory. */
typedef struct pj_gpu_copy {
    const void *host;
    uint64_t bytes, address; /* on the device */
    pj_matrix matrix;        /* data NULL: a vector */
} pj_gpu_copy;

/* Tables of addresses by expert, of a layer: bias 0: there is none. */
typedef struct pj_gpu_expert_tables {
    uint64_t gate, gate_bias, up, up_bias, down, down_bias;
} pj_gpu_expert_tables;

/* Of a layer with latent attention: tables of addresses by head, and the numbers of all heads. */
typedef struct pj_gpu_head_tables {
    uint64_t keys, values, all;
} pj_gpu_head_tables;

typedef struct pj_gpu_weights {
    pj_gpu_copy *copies; /* ascending by host address */
    size_t count, capacity;
    pj_vk_buffer *chunks;
    size_t chunk_count, chunk_capacity;
    pj_gpu_expert_tables *experts; /* [layers] */
    pj_gpu_head_tables *heads;     /* [layers]; NULL: none has latent attention */
    uint64_t bytes;
    int64_t begin_ns, end_ns; /* of their upload */
} pj_gpu_weights;

pj_status pj_gpu_weights_load(pj_gpu_weights *weights, pj_vk *vk, const pj_load_request *request,
                              pj_error *err);
void pj_gpu_weights_free(pj_gpu_weights *weights, pj_vk *vk); /* may run twice */
/* 0 for NULL. */
uint64_t pj_gpu_weight(const pj_gpu_weights *weights, const void *host);

/* ---- a loaded model, and a generation (backend.c, state.c) ---- */

typedef struct pj_gpu_trace pj_gpu_trace; /* trace.h */
struct pj_gpu;

/* A dispatch, for a trace of the pass. */
typedef struct pj_gpu_call {
    pj_vk_kernel kernel;
    const void *constants, *args;
    uint32_t y; /* workgroups */
    uint64_t work;
} pj_gpu_call;

typedef struct pj_gpu_model {
    const pj_model *model;
    pj_vk *vk;
    pj_gpu_weights weights;
    bool packs;        /* few rows are multiplied as 8-bit integers with quantised weights */
    pj_vk_kernel many; /* of many rows, with weights of up to 16 bits */
    /* Told of every dispatch, for a trace of the pass; NULL: none is wanted. */
    void (*note)(struct pj_gpu *s, const pj_gpu_call *call);
    pj_gpu_trace *trace;
    const pj_backend *backend; /* this device's */
    bool dry; /* what is opened now has no memory, and its passes make pipelines alone */
} pj_gpu_model;

enum { PJ_GPU_HEAD_THREADS = 64 }; /* of a workgroup that works on a head */
enum { PJ_GPU_FEW = 8 }; /* rows that are multiplied by kernels which read every weight once */

/* What an operation touches besides the named buffers. */
enum {
    PJ_GPU_CACHE = PJ_BUFFERS,
    PJ_GPU_ROUTES,
    PJ_GPU_IDS,
    PJ_GPU_PACKED,
    PJ_GPU_SCRATCH,
    PJ_GPU_CHOICES
};
#define PJ_GPU_BIT(buffer) (1u << (buffer))

/* Inputs of a pass, written by the host and copied to the device at once. Offsets in bytes. */
typedef struct pj_gpu_inputs {
    pj_vk_buffer host, device;
    uint64_t ids, segments, rows; /* segments: pj_vk_segment; rows: pj_vk_cache_row */
    uint64_t angles[PJ_ROPES];    /* cosines, then sines, of all rows */
    uint64_t lists, lists_used;   /* row lists, read where the host wrote them */
    uint64_t bytes;               /* copied */
} pj_gpu_inputs;

/* Where a layer's cache begins. */
typedef struct pj_gpu_place {
    uint32_t chunk;
    uint64_t offset, recurrent, index; /* of keys and values, of a recurrent state, of an indexer's
                                          keys */
} pj_gpu_place;

/* What a mixture of experts needs in a pass; addresses. An entry is a row and one of its experts.
 */
typedef struct pj_gpu_routing {
    pj_vk_buffer memory; /* none: the model has no experts */
    uint64_t bytes;
    uint64_t probability, chosen, weights, order; /* of route */
    uint64_t list, places, begins, tiles;         /* of sort */
    uint64_t ones;                                /* of weigh */
    uint64_t gate, up, act, out;                  /* [entries] */
    uint32_t slots, rows; /* of choices whose figures are due; 0 rows: none are */
} pj_gpu_routing;

enum { PJ_GPU_MOST_PARTS = 64 }; /* of a row of logits, for argmax */

/* Most spans of a pass, and extras of all of them. */
enum { PJ_GPU_SPANS = PJ_VK_MAX_STAMPS / 2, PJ_GPU_EXTRAS = 1 << 16 };
#define PJ_GPU_NO_RESULTS UINT64_MAX

/* A span of the pass, between two timestamps. */
typedef struct pj_gpu_span {
    pj_span_kind kind;
    uint32_t id;         /* interned name, or the layer */
    uint32_t parent;     /* 1 + index, 0: none */
    uint32_t begin, end; /* stamps */
    double flops, bytes; /* NAN: not known */
    uint64_t sums;       /* of `out`: parts in the results */
    uint32_t parts;      /* 0: it has no statistics */
    uint32_t figures;    /* 1 + index, 0: none */
    pj_slice out;
} pj_gpu_span;

typedef enum pj_gpu_figures_kind {
    PJ_GPU_OF_GATES,
    PJ_GPU_OF_A_NORM,
    PJ_GPU_OF_ATTENTION,
    PJ_GPU_OF_ROUTING,
    PJ_GPU_OF_EXPERTS /* those of routing again, for the experts' component */
} pj_gpu_figures_kind;

/* What the device found about a span besides statistics (figures.c). */
typedef struct pj_gpu_figures {
    pj_gpu_figures_kind kind;
    uint64_t at, list;      /* in the results; list: of choices, 0: none */
    uint32_t rows, sampled; /* of the pass; of those described */
    uint32_t parts;         /* records: rows of a gate, ratios of a norm, parts of the others */
    uint32_t count;         /* values of a row of a gate, heads, experts */
    uint32_t slots;         /* experts of a row */
    bool more;              /* gated values; ratios of mean squares; choices of experts */
    double weights, each;   /* bytes of an expert, and of an entry */
} pj_gpu_figures;

/* Recording of a generation. */
typedef struct pj_gpu_record {
    uint32_t device; /* number in the run; 0: nothing is recorded */
    pj_launch launch;
    pj_gpu_span *spans;
    uint32_t span_count;
    uint32_t open, ended; /* 1 + index of the innermost open span, of the one that ended last */
    uint32_t summed;      /* 1 + index of the last one with statistics in the component */
    uint32_t left_out;    /* open spans that there was no room for */
    bool overflows;       /* there was no room for some of the pass */
    double more_flops, more_bytes; /* of steps that the open component was widened by */
    uint32_t last_stamp;
    pj_vk_buffer results; /* of a pass, read by the host: sums and figures */
    uint64_t results_used;
    pj_gpu_figures *figures;
    uint32_t figure_count;
    uint32_t routing;      /* 1 + index of the last ones of routing, 0: none */
    uint64_t sampled_list; /* rows whose attention is described, as the device reads them */
    uint32_t sampled_rows; /* their number, 0: not listed yet */
    /* for reading a pass */
    int64_t *stamp_ns;
    pj_device_span *done;
    pj_work *works;
    pj_stats *stats;
    pj_extra *extras;
    uint32_t extra_count;
} pj_gpu_record;

/* Rows that products read: x, or its norm, which is formed on the way. */
typedef struct pj_gpu_input {
    pj_slice x;
    const pj_norm *norm; /* NULL: none */
    pj_norm_kind norm_kind;
    double flops, bytes; /* of a norm that has no component of its own */
} pj_gpu_input;

/* Steps that are held back to share a dispatch with the next one (fuse.c). */
typedef struct pj_gpu_held {
    bool normed; /* a norm of whole rows */
    bool joins;  /* a held norm's component is open and will be part of the next one */
    pj_norm_step norm;
    uint32_t head_norm_count; /* norms of queries and keys by head, in this order */
    pj_norm_step head_norms[2];
    double flops, bytes;    /* of the components of norms */
    uint32_t product_count; /* gate and up: two products, or one with the rows of both; 0: none */
    pj_product products[2];
    pj_gpu_input input;
} pj_gpu_held;

/* A component of several steps; PJ_N_NONE: it has no such step. */
typedef struct pj_gpu_group {
    pj_instrument_name norm, products, act;
    uint32_t id; /* interned name */
} pj_gpu_group;

enum { PJ_GPU_GROUPS = 32 };

typedef struct pj_gpu {
    pj_gpu_model *on;
    const pj_model *model;
    pj_vk *vk;
    pj_state_options options;
    uint32_t full_slots, window_slots;
    pj_instrument *instrument;
    bool dry; /* as the model was when this was opened */

    pj_vk_buffer activations, parts; /* parts: of attention over split contexts */
    pj_vk_buffer *cache;             /* in chunks, as weights are */
    uint32_t cache_chunks;
    uint64_t buffers[PJ_BUFFERS]; /* addresses */
    pj_gpu_place *cache_places;   /* [layers] */
    pj_gpu_inputs inputs;
    pj_vk_buffer logits, ids; /* in host memory */
    pj_vk_buffer found;       /* by argmax, in parts of rows */
    pj_vk_buffer given, read; /* hidden rows to and from the host, of heads for further tokens */
    pj_vk_buffer packed;      /* few rows as 8-bit integers, then their scales */
    uint64_t packed_scales;   /* address */
    pj_gpu_routing routing;
    pj_vk_buffer choices;             /* of sparse attention; none: sequences see all their keys */
    uint64_t index_scores, seen_keys; /* in them: [index_rows][context], [max_tokens][kept] */
    uint32_t index_rows;              /* of a pass, that are scored at once */

    pj_rows_of_pass rows;
    uint32_t most_splits;   /* of a context, by attention */
    uint32_t reads, writes; /* buffers since the last barrier */
    uint32_t logit_rows;    /* of this pass, to be copied */
    pj_gpu_held held;
    void (*settle)(struct pj_gpu *s); /* runs what is held */

    pj_gpu_record record;
    pj_gpu_group groups[PJ_GPU_GROUPS];
    uint32_t group_count;
} pj_gpu;

extern const pj_backend pj_backend_vulkan;

/* Of `parts`, and how many a row's context may be split into. */
uint64_t pj_gpu_split_bytes(const pj_state_options *options, const pj_model *model,
                            uint32_t *most_splits);
static inline uint64_t pj_gpu_kv_row_bytes(const pj_gpu *s, const pj_layer *layer)
{
    return pj_dtype_row_bytes(s->options.kv_type, layer->head_dim);
}
/* Heads of keys and of values in a layer's cache. */
static inline uint32_t pj_gpu_stored_heads(const pj_layer *layer)
{
    return layer->values_in_keys ? layer->kv_heads : 2 * layer->kv_heads;
}
/* Of a sequence's cache. */
static inline uint32_t pj_gpu_slots(const pj_gpu *s, const pj_layer *layer)
{
    return layer->window == UINT32_MAX ? s->full_slots : s->window_slots;
}

pj_status pj_gpu_open(void *loaded, const pj_generation_shape *shape, void **state, pj_error *err);
void pj_gpu_close(void *state);
void pj_gpu_begin_pass(void *state, const pj_rows_of_pass *rows);
pj_status pj_gpu_end_pass(void *state, bool cancelled, pj_error *err);
float *pj_gpu_logits(void *state, uint32_t rows);
const int32_t *pj_gpu_ids(void *state);
void pj_gpu_reset(void *state, uint32_t sequence);
void pj_gpu_rewind(void *state, uint32_t sequence, uint32_t row);
void pj_gpu_give(void *state, const float *values, pj_slice y);
const float *pj_gpu_rows(void *state, pj_slice x);
/* Of a sequence's recurrent state in a layer, with the copies after rows that may be rolled back.
 */
uint64_t pj_gpu_recurrent_bytes(const pj_gpu *s, const pj_layer *layer);
void pj_gpu_slide(void *state, uint32_t sequence, uint32_t from, uint32_t count);

static inline uint64_t pj_gpu_cache_at(const pj_gpu *s, uint32_t layer)
{
    const pj_gpu_place *place = &s->cache_places[layer];
    return s->cache[place->chunk].address + place->offset;
}
static inline uint64_t pj_gpu_recurrent_at(const pj_gpu *s, uint32_t layer)
{
    const pj_gpu_place *place = &s->cache_places[layer];
    return s->cache[place->chunk].address + place->recurrent;
}
/* An indexer's keys: [sequences][slots] rows. */
static inline uint64_t pj_gpu_index_at(const pj_gpu *s, uint32_t layer)
{
    const pj_gpu_place *place = &s->cache_places[layer];
    return s->cache[place->chunk].address + place->index;
}
static inline uint64_t pj_gpu_index_bytes(const pj_gpu *s, const pj_layer *layer)
{
    return pj_layer_has_indexer(layer)
               ? s->full_slots *
                     (uint64_t)pj_dtype_row_bytes(s->options.kv_type, layer->indexer->dim)
               : 0;
}
static inline pj_vk_window pj_gpu_window(const pj_layer *layer)
{
    return layer->window == UINT32_MAX ? PJ_VK_WINDOW_NONE
           : layer->window_is_chunk    ? PJ_VK_WINDOW_CHUNK
                                       : PJ_VK_WINDOW_SLIDES;
}
/* Factor on a product when it is added to the residual stream. */
static inline float pj_gpu_residual_scale(const pj_gpu *s, const pj_projection *p)
{
    float scale = (float)s->model->config.residual_scale;
    return p->out_factor != 0 ? scale * p->out_factor : scale;
}

/* ---- pipelines before the first pass (prepare.c) ---- */

/* Of passes of these options, recorded as `like` says; NULL: at depth off. */
pj_status pj_gpu_prepare(pj_gpu_model *m, const pj_state_options *options,
                         const pj_instrument *like, pj_error *err);
pj_status pj_gpu_prepare_model(pj_gpu_model *m, const pj_load_request *request, pj_error *err);

/* ---- dispatching (dispatch.c) ---- */

/* Address of a slice's first value; 0: no slice. */
static inline uint64_t pj_gpu_at(const pj_gpu *s, pj_slice slice)
{
    return slice.buffer ? s->buffers[slice.buffer] + 4ull * slice.first : 0;
}
static inline uint32_t pj_gpu_bit(pj_slice slice)
{
    return slice.buffer ? PJ_GPU_BIT(slice.buffer) : 0;
}
/* Before an operation that reads and writes these buffers: a barrier if it must wait. */
void pj_gpu_touch(pj_gpu *s, uint32_t reads, uint32_t writes);
/* The function of an activation, as kernels call it. */
static inline pj_vk_gate pj_gpu_gate(const pj_activation *a)
{
    switch (a->kind) {
    case PJ_ACT_GELU: return PJ_VK_GATE_GELU;
    case PJ_ACT_CLAMPED: return PJ_VK_GATE_CLAMPED;
    case PJ_ACT_RELU2: return PJ_VK_GATE_RELU2;
    case PJ_ACT_XIELU: return PJ_VK_GATE_XIELU;
    default: return PJ_VK_GATE_SILU;
    }
}
/* Dispatches a kernel; constants and arguments are its structs of shaders.h. */
void pj_gpu_run(pj_gpu *s, pj_vk_kernel kernel, const void *constants, size_t constant_bytes,
                const void *args, uint32_t x, uint32_t y, uint64_t work);
void pj_gpu_run_3d(pj_gpu *s, pj_vk_kernel kernel, const void *constants, size_t constant_bytes,
                   const void *args, uint32_t x, uint32_t y, uint32_t z, uint64_t work);
#define PJ_GPU_RUN(s, kernel, constants, args, x, y, work) \
    pj_gpu_run(s, kernel, constants, sizeof *(constants), args, x, y, work)
/* Address of a list of rows that the device reads from host memory. */
uint64_t pj_gpu_list(pj_gpu *s, const uint32_t *rows, uint32_t count);
static inline uint32_t pj_gpu_groups(uint64_t values, uint32_t each)
{
    return (uint32_t)((values + each - 1) / each);
}

/* ---- products of few rows (products.c) ---- */

/* Rows of a workgroup: a power of two, so that there are few pipelines. */
uint32_t pj_gpu_few_tokens(uint32_t rows);
/* Whether the product is one of 8-bit integers: of quantised weights, where the device has an
 * instruction for it. */
static inline bool pj_gpu_packs(const pj_gpu *s, const pj_projection *p)
{
    return s->on->packs && pj_dtype_get(p->w.type)->block_values > 1;
}
/* Rows as 8-bit integers, into `packed`; the caller orders it. */
void pj_gpu_pack(pj_gpu *s, pj_vk_norm norm, pj_vk_quantise_args args);

/* ---- products of many rows (many.c) ---- */

/* How they are dispatched. */
typedef struct pj_gpu_many_plan {
    pj_vk_kernel kernel;
    uint32_t tile_tokens, tile_rows; /* outputs of a workgroup */
    uint32_t constant_count, constants[PJ_VK_MAX_CONSTANTS];
} pj_gpu_many_plan;

/* By `kernel`, unless weights of this type need single precision. `adds`: to the residual stream.
 */
pj_gpu_many_plan pj_gpu_plan_many(const pj_gpu_model *m, pj_vk_kernel kernel, pj_dtype type,
                                  uint32_t tokens, bool adds, float residual_scale);
/* `tiles`: of sort, at most; 0: dense. */
void pj_gpu_run_many(pj_gpu *s, const pj_gpu_many_plan *plan, const pj_vk_product_tiled_args *args,
                     uint32_t tiles, uint64_t work);

/* ---- measurements (limits.c) ---- */

double pj_gpu_peak(void *loaded, int64_t duration_ns);
double pj_gpu_read_pass(void *loaded, unsigned streams, uint64_t max_bytes);
/* Bytes per second that a copy within the device's memory reads and writes, together. NAN: there is
 * too little memory that no cache holds, or the device has no clock. */
double pj_gpu_copy_speed(const pj_gpu_model *m);
/* Whether matrices are faster than tiles. */
bool pj_gpu_matrices_are_real(const pj_gpu_model *m);

/* ---- fusing (fuse.c) ---- */

/* True: the norm is held back for the products that read it. */
bool pj_gpu_hold_norm(pj_gpu *s, const pj_norm_step *step);
/* Norms of queries and keys by head; NULL: there is none. */
typedef struct pj_gpu_head_norms {
    const float *q, *k;
    uint32_t name;       /* interned, of the component that attention becomes with them */
    double flops, bytes; /* that they add to it */
} pj_gpu_head_norms;
/* Likewise, such norms for the rotation. */
bool pj_gpu_hold_head_norm(pj_gpu *s, const pj_norm_step *step);
pj_gpu_head_norms pj_gpu_take_head_norms(pj_gpu *s);
/* What products of x read: the rows under a norm that was held back, which is thereby taken. */
pj_gpu_input pj_gpu_take_input(pj_gpu *s, pj_slice x);
/* True: they are gate and up, and are held back for their activation. */
bool pj_gpu_hold_products(pj_gpu *s, const pj_gpu_input *in, const pj_product *products,
                          uint32_t count);
/* True: the activation's inputs were held back and are to be computed with it. */
bool pj_gpu_take_products(pj_gpu *s, const pj_activation *a, pj_gpu_held *taken);
/* Runs what is held back; pj_gpu's `settle`. Every operation does this before it touches a buffer.
 */
void pj_gpu_settle(pj_gpu *s);
void pj_gpu_declare_groups(pj_gpu *s);
/* Interned name of a component of these steps. */
uint32_t pj_gpu_group_name(const pj_gpu *s, pj_instrument_name norm, pj_instrument_name products,
                           pj_instrument_name act);

/* ---- operations ---- */

void pj_gpu_gather(void *state, const pj_matrix *table, float scale, pj_slice y);
void pj_gpu_scale(void *state, pj_slice x, float factor);
void pj_gpu_join_vectors(void *state, const pj_norm *norm, pj_slice context, pj_slice vectors);
void pj_gpu_angles(void *state);
void pj_gpu_norm(void *state, const pj_norm_step *step);
void pj_gpu_run_norm(pj_gpu *s, const pj_norm_step *step);
void pj_gpu_products(void *state, pj_slice x, const pj_product *products, uint32_t count);
void pj_gpu_run_products(pj_gpu *s, const pj_gpu_input *in, const pj_product *products,
                         uint32_t count);
/* A kernel by value over the rows of y. */
void pj_gpu_run_rows(pj_gpu *s, pj_vk_rows_operation operation, pj_vk_gate gate, pj_slice x,
                     pj_slice y, pj_slice other, float scale, float cap, uint32_t dim);
/* act = f(gate) up, with gate and up as held back. */
void pj_gpu_run_gate(pj_gpu *s, const pj_gpu_held *inputs, const pj_activation *a);
void pj_gpu_add(void *state, pj_slice y, pj_slice x);
void pj_gpu_take_queries(void *state, const pj_layer *layer, pj_slice from, pj_slice to);
void pj_gpu_project_heads(void *state, const pj_layer *layer, bool values, pj_slice from,
                          uint32_t from_step, pj_slice to, uint32_t to_step);
void pj_gpu_copy_heads(void *state, uint32_t heads, pj_slice from, uint32_t from_step, pj_slice to,
                       uint32_t to_step);
void pj_gpu_gate_heads(void *state, const pj_layer *layer, pj_slice gates, pj_slice y);
void pj_gpu_rotate(void *state, const pj_layer *layer, pj_slice qkv);
void pj_gpu_rotate_and_store(void *state, const pj_layer *layer, pj_slice qkv);
void pj_gpu_choose_keys(void *state, const pj_layer *layer, pj_slice index, bool chooses);
void pj_gpu_attend(void *state, const pj_layer *layer, pj_slice qkv, pj_slice y,
                   const pj_attention_extent *extent);
void pj_gpu_activate(void *state, const pj_activation *activation);
void pj_gpu_route(void *state, const pj_layer *layer, pj_slice logits, bool renormalise);
void pj_gpu_experts(void *state, const pj_layer *layer, const pj_activation *like, pj_slice x,
                    pj_slice y, pj_slice residual);
void pj_gpu_add_gated(void *state, pj_slice y, pj_slice x, pj_slice gate);
void pj_gpu_convolve(void *state, const pj_layer *layer, pj_slice x, pj_slice y);
void pj_gpu_delta_rule(void *state, const pj_layer *layer, pj_slice qkv, pj_slice strength,
                       pj_slice y);
void pj_gpu_gated_norm(void *state, const pj_layer *layer, pj_slice y, pj_slice gate);
void pj_gpu_predict_streams(void *state, pj_slice coefficients, pj_slice streams, pj_slice x);
void pj_gpu_correct_streams(void *state, pj_slice coefficients, const float *scale,
                            pj_slice streams, pj_slice x);
void pj_gpu_match_magnitude(void *state, pj_slice x, pj_slice like);
void pj_gpu_take_rows(void *state, pj_slice x, const uint32_t *rows, pj_slice y);
void pj_gpu_bound(void *state, pj_slice x, float factor, float cap);
void pj_gpu_argmax(void *state, pj_slice x);

pj_status pj_gpu_routing_open(pj_gpu *s, pj_error *err);

/* ---- recording (record.c) ---- */

pj_status pj_gpu_record_open(pj_gpu *s, pj_error *err);
void pj_gpu_record_close(pj_gpu *s);
void pj_gpu_record_prepare(pj_gpu *s);                  /* makes its pipelines */
void pj_gpu_record_begin(pj_gpu *s);                    /* a pass */
pj_status pj_gpu_record_pass(pj_gpu *s, pj_error *err); /* its spans, when the device is done */

/* An operation of the open component, at depth deep; begins before `pj_gpu_touch` of what it does.
 * NAN: not known. */
void pj_gpu_operation(pj_gpu *s, pj_instrument_name name);
void pj_gpu_operation_end(pj_gpu *s, double flops, double bytes, pj_slice out);

/* A component with an interned name. */
void pj_gpu_begin_component(pj_gpu *s, uint32_t id);
/* Makes the open component one of more steps, with what those that were held back add to it. */
void pj_gpu_widen_component(pj_gpu *s, uint32_t id, double flops, double bytes);

/* Statistics of the operation that ended last, at an address; `out` says rows and columns,
 * `touched` what they are part of. */
void pj_gpu_operation_output(pj_gpu *s, uint64_t address, uint32_t touched, pj_slice out);

/* ---- figures (figures.c): of the span that ended last, unless they say otherwise ---- */

/* Room in the results, in bytes; PJ_GPU_NO_RESULTS: there is none left. */
uint64_t pj_gpu_results(pj_gpu *s, uint64_t bytes);
/* Of a gate, at depth deep; the arguments lack what is counted and where to. */
void pj_gpu_gate_figures(pj_gpu *s, pj_vk_gate_figures_args args);
/* Before the norm, which may work in place: how it will change variances, at depth deep.
 * 1 + index, 0: none. */
uint32_t pj_gpu_norm_figures(pj_gpu *s, const pj_norm_step *step);
/* Of attention weights, at depth deep. */
void pj_gpu_attention_figures(pj_gpu *s, const pj_layer *layer, const pj_vk_attention_args *of);
/* Of the choices of experts, for the router once it has ended, and again for the experts, which
 * other components may separate from it. */
void pj_gpu_route_figures(pj_gpu *s);
void pj_gpu_experts_figures(pj_gpu *s, double weights, double each, bool choices);
/* Gives the span that ended last what was found about it. */
void pj_gpu_attach(pj_gpu *s, uint32_t figures);
void pj_gpu_figures_prepare(pj_gpu *s); /* makes its pipelines */
/* When the device is done: figures as extras of a span's work, and its bytes if they say. */
void pj_gpu_figures_read(const pj_gpu *s, const pj_gpu_figures *f, pj_work *work);
void pj_gpu_extra(const pj_gpu *s, pj_work *work, pj_instrument_name name, uint32_t index,
                  double value);

void pj_gpu_section(void *state, pj_instrument_name name);
void pj_gpu_end_section(void *state);
void pj_gpu_layer(void *state, uint32_t layer);
void pj_gpu_component(void *state, pj_instrument_name name);
void pj_gpu_end(void *state, const pj_done *done);

#endif
