/*
 * Operations of a device: all that the forward pass (forward.c, mlp.c, attention.c, delta.c) needs
 * of whatever computes it. The order of a pass over every architecture is written once, over this
 * table; a device is these functions and knows no architecture. The CPU is engine/cpu; a reference
 * in plain C is tests/unit/engine/reference_device.c.
 *
 * Activations are named buffers in the device's memory, weights are the model's (pj_matrix,
 * pj_projection, pj_norm), of which a device may have copies, made in `load`. The host's memory is
 * read only where this header says so: weights at load, and pj_rows_of_pass.
 *
 * Order. Operations are called in the order of the pass, and each sees the results of those before
 * it; a device may delay and fuse them as long as that holds. They return nothing: a device
 * remembers its first failure, ignores what follows, and `end_pass` returns it.
 *
 * Recording. `section`, `layer` and `component` begin a span, `end_section` and `end` end the one
 * begun last; they are called only if a run records them, and `end` brings FLOPs, bytes and the
 * output whose statistics are the span's. A device with a clock of its own notes a pair of
 * timestamps and adds the spans later, at the latest in `close`. `products` and `experts` record
 * their components themselves, since they may overlap. Operations within a component (pj_span_kind
 * PJ_SPAN_OPERATION, at depth deep), their names and their extras are the device's own business.
 */
#ifndef PJ_FORWARD_OPS_H
#define PJ_FORWARD_OPS_H

#include "engine/forward/instrument.h"
#include "engine/forward/pass.h"
#include "engine/model/model.h"

/* Incremented with every change of a table's layout or of a function's contract. */
enum { PJ_BACKEND_VERSION = 11 };

/* ---- what the operations read and write --------------------------------------------------- */

/* Row i of each is about row i of the pass; in LOGITS, and in Y and NORMED for the head, about the
 * i-th row whose logits are wanted. LOGITS is zero when opened, others are written before they are
 * read. */
typedef enum pj_buffer_name {
    PJ_NO_BUFFER = 0,
    PJ_BUFFER_X,             /* residual stream; of several, the active one */
    PJ_BUFFER_STREAMS,       /* all residual streams of a token, adjacent */
    PJ_BUFFER_COEFFICIENTS,  /* of their prediction or correction */
    PJ_BUFFER_NORMED,        /* output of the norm before half a layer */
    PJ_BUFFER_QKV,           /* queries, keys, values of a token, adjacent */
    PJ_BUFFER_GATE,          /* output gates; queries and gates alternating by head; with latent
                                attention, queries and values by head */
    PJ_BUFFER_INDEX,         /* an indexer's queries, key and weights of a token, adjacent */
    PJ_BUFFER_ATTENDED,      /* attention's output, before its projection */
    PJ_BUFFER_MIXED,         /* input of the delta rule's convolution; compressed queries; inside
                                a residual of low rank; what a further token's head projects */
    PJ_BUFFER_STRENGTH,      /* the delta rule's b, then a */
    PJ_BUFFER_Y,             /* output of half a layer */
    PJ_BUFFER_Y2,            /* output of a shared expert */
    PJ_BUFFER_GATE_UP,       /* gate and up of a token, adjacent */
    PJ_BUFFER_ACT,           /* their activation */
    PJ_BUFFER_BRANCH,        /* a dense block's output beside experts; a stream's projection;
                                experts' output in their own space */
    PJ_BUFFER_ROUTED,        /* the router's input beside a dense block; experts' input in their own
                                space */
    PJ_BUFFER_ROUTING,       /* router logits; a shared expert's gate; a streams' router's output */
    PJ_BUFFER_TOKEN_VECTORS, /* per-layer token vectors */
    PJ_BUFFER_TOKEN_CONTEXT, /* the same, from the embedding's projection */
    PJ_BUFFER_LOGITS,        /* [max_logits] rows */
    PJ_BUFFERS
} pj_buffer_name;

/* Columns [first, first + cols) of the first `rows` rows of a buffer, whose rows are `stride`
 * floats apart: element (r, c) is float r stride + first + c of the buffer. */
typedef struct pj_slice {
    pj_buffer_name buffer; /* PJ_NO_BUFFER: none */
    uint32_t first, rows, cols, stride;
} pj_slice;
static const pj_slice pj_no_slice = {0};

/* Work of a layer or component, when it ends. NAN: not known. */
typedef struct pj_done {
    double flops, bytes;
    pj_slice out;   /* what statistics are of; none: no statistics */
    bool with_last; /* ends with its last operation, if that was recorded; else now */
} pj_done;

/* The rows of a pass, in host memory, valid until `end_pass`. */
typedef struct pj_rows_of_pass {
    const pj_pass *pass;
    const uint32_t *sequence, *position; /* [pass->tokens] of each row */
    const pj_sequence *sequences;        /* read during a call only: they advance with the pass */
} pj_rows_of_pass;

/* ---- arguments ---------------------------------------------------------------------------- */

/* y = norm(x), by heads: each row's cols / heads columns are normalised apart with the same
 * weights. y may be x. Then, with a residual, residual += residual_scale * y. */
typedef struct pj_norm_step {
    const pj_norm *norm; /* b is used by PJ_NORM_LAYER alone */
    pj_norm_kind kind;
    uint32_t heads; /* 1: rows as a whole */
    pj_slice x, y, residual;
} pj_norm_step;

/* y = x W^T + bias; then, with a residual, residual += residual_scale * projection->out_factor * y
 * (0: 1). */
typedef struct pj_product {
    const pj_projection *projection;
    pj_slice y, residual; /* cols: the matrix's rows */
} pj_product;

enum { PJ_MAX_PRODUCTS = 4 };

typedef enum pj_activation_kind {
    PJ_ACT_SILU = 0, /* g / (1 + e^-g) */
    PJ_ACT_NONE,     /* g; act may be gate */
    PJ_ACT_GELU,     /* 0.5 g (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))) */
    PJ_ACT_RELU2,    /* max(g, 0)^2 */
    PJ_ACT_XIELU,    /* parameters p, n, b, e: p g^2 + b g where g > 0, else
                        n (exp(min(g, e)) - 1 - g) + b g */
    PJ_ACT_CLAMPED   /* g = min(g, limit): g / (1 + e^(-alpha g)); u: min(max(u, -limit), limit) + 1
                      */
} pj_activation_kind;

/* act = f(gate) * up, or f(gate) without `up`. With `cuts`, f reads max(0, gate - c) instead of the
 * gate, c = mean + cutoff * standard deviation (population) of the row's gates. */
typedef struct pj_activation {
    pj_activation_kind kind;
    float alpha, limit; /* of PJ_ACT_CLAMPED */
    const float *xielu; /* of PJ_ACT_XIELU: four */
    bool cuts;
    float cutoff;
    pj_slice gate, up, act;
    bool inner; /* part of another component: at depth module it has no statistics of its own */
} pj_activation;

/* Work of attention, over all rows, heads and sequences of the pass. */
typedef struct pj_attention_extent {
    double pairs;     /* visible (query, key) pairs, over all heads */
    double kv_floats; /* of the keys read, each counted once */
    double q_floats;  /* of the queries */
} pj_attention_extent;

/* ---- the table ---------------------------------------------------------------------------- */

/* `s`: the state that `open` returned. eps is that of the norm (pj_norm_eps), residual_scale
 * config's. */
typedef struct pj_ops {
    /* Work on new rows begins; with no tokens, further work on the rows of the last pass. */
    void (*begin_pass)(void *s, const pj_rows_of_pass *rows);
    /* Waits until `logits` or `ids` of the pass can be read. `cancelled`: its results are not
     * wanted. Fails with the first failure of an operation. */
    pj_status (*end_pass)(void *s, bool cancelled, pj_error *err);

    void (*section)(void *s, pj_instrument_name name);
    void (*end_section)(void *s);
    void (*layer)(void *s, uint32_t layer);
    void (*component)(void *s, pj_instrument_name name);
    void (*end)(void *s, const pj_done *done); /* of a layer or component */

    /* y[r] = scale * row pass->ids[r] of the table, or row 0 if it has fewer. */
    void (*gather)(void *s, const pj_matrix *table, float scale, pj_slice y);
    /* x *= factor */
    void (*scale)(void *s, pj_slice x, float factor);
    /* vectors = sqrt(1/2) (vectors + rmsnorm(context / sqrt(config.hidden))), where every
     * config.token_vector columns (a layer's vector) are normalised apart. Overwrites context. */
    void (*join_vectors)(void *s, const pj_norm *norm, pj_slice context, pj_slice vectors);
    /* Cosines and sines of all rows for every rope of the model, as pj_rope_angles, from the
     * rows' positions and their sequences' generation of frequencies. They stay with the device. */
    void (*angles)(void *s);
    void (*norm)(void *s, const pj_norm_step *step);
    /* Up to PJ_MAX_PRODUCTS products of the same x, none of whose outputs overlap. Projections with
     * a name are components, with the work of pj_product_work and statistics of y; those without
     * are part of the open component. All have a name, or none. */
    void (*products)(void *s, pj_slice x, const pj_product *products, uint32_t count);
    /* y += residual_scale * x */
    void (*add)(void *s, pj_slice y, pj_slice x);
    /* to(r, h d + i) = from(r, 2 h d + i), d = layer's head_dim, i < d, for all query heads h. */
    void (*take_queries)(void *s, const pj_layer *layer, pj_slice from, pj_slice to);
    /* Latent attention (engine/model/latent.h): the columns of each head in `from`, times the
     * layer's matrix of that head, become its columns in `to`: matrices `keys`, or `values`. Heads
     * are from_step and to_step floats apart, the slices are all columns. Part of the open
     * component. NULL: `products` is called for each head. */
    void (*project_heads)(void *s, const pj_layer *layer, bool values, pj_slice from,
                          uint32_t from_step, pj_slice to, uint32_t to_step);
    /* Column i of head h in `from`, whose heads are from_step floats apart, becomes that of head h
     * in `to`; the slices are those of the first head. */
    void (*copy_heads)(void *s, uint32_t heads, pj_slice from, uint32_t from_step, pj_slice to,
                       uint32_t to_step);
    /* y(r, h d + i) *= sigmoid(gates(r, (2 h + 1) d + i)), likewise. */
    void (*gate_heads)(void *s, const pj_layer *layer, pj_slice gates, pj_slice y);
    /* Step 1 of rotate_and_store alone, for layers with norms between it and the others
     * (layer->norm_rotated). */
    void (*rotate)(void *s, const pj_layer *layer, pj_slice qkv);
    /* In qkv, rows of [heads d] queries, [kv_heads d] keys, [kv_heads d] values:
     * 1. unless layer->norm_rotated, rotates queries and, if the layer is its own kv_source, keys
     * by `angles` (layer->rope; PJ_NO_ROPE: not): pair j of a head, from its column rope_first, is
     * (j, j + pairs), or (2 j, 2 j + 1) with rope->neighbours; (a, b) becomes (a cos - b sin, b cos
     * + a sin); other columns stay;
     * 2. if layer->scales_queries, multiplies queries by
     *    1 + query_beta ln(1 + floor((position + query_first) / query_period));
     * 3. if the layer is its own kv_source, stores keys and (unless layer->values_in_keys, when qkv
     *    has none) values as kv_type in the cache, at
     *    slot position (with a window: position - sequence's base) of the row's sequence. */
    void (*rotate_and_store)(void *s, const pj_layer *layer, pj_slice qkv);
    /* Sparse attention (engine/model/latent.h), for a layer with an indexer of its own. `index` has
     * rows of [heads dim] queries, a key, [heads] weights.
     * 1. rotates the first columns of the key, and if `chooses` of the queries, by `angles`
     *    (layer->rope), from the first column of each on, with the indexer's own `neighbours`;
     * 2. stores the key as kv_type in the layer's cache of such keys, at slot position;
     * 3. if `chooses`, chooses for each row with position p those of the positions [0, p] that it
     *    sees, all if they are at most `kept`. The choices stay with the device for `attend` of
     * this layer and of those that use its indexer. */
    void (*choose_keys)(void *s, const pj_layer *layer, pj_slice index, bool chooses);
    /* y = attention of the queries in qkv over the cache of layer->kv_source, positions
     * [pj_layer_first_key, p] of a row's sequence for position p, or where a pass of an indexer's
     * layer chooses (pj_pass_chooses) those that were chosen, in groups of heads / kv_heads
     * query heads: scores q k * score_scale, then config.attention_softcap (c tanh(s /
     * c)), softmax with the head's sink (layer->sinks) as one more score that has no value. Values,
     * and heads of y, have layer->value_dim columns. The extent is given where components are
     * recorded. */
    void (*attend)(void *s, const pj_layer *layer, pj_slice qkv, pj_slice y,
                   const pj_attention_extent *extent);
    void (*activate)(void *s, const pj_activation *activation);
    /* Chooses layer->chosen experts for each row of router logits: those with the
     * largest score, softmax or (config.router_sigmoid) sigmoid, the lower index on a tie. When
     * choosing, layer->expert_correction is added to the scores, and with config.expert_groups only
     * the best expert_groups_kept groups of neighbouring experts take part, a group's score being
     * its largest or (group_by_pair) the sum of its two largest. The scores are weights, divided by
     * their sum if `renormalise`, times config.routed_scale, times layer->expert_scale of the
     * expert if there is one. They stay with the device. Records the extras of routing in the open
     * component. With PJ_ROUTER_MIXER, each is the largest of the remaining logits, and its weight
     * is the softmax over those of the remaining that lie within config.router_reach of it:
     * (largest - logit) / max(|logit|, largest) <= router_reach. */
    void (*route)(void *s, const pj_layer *layer, pj_slice logits, bool renormalise);
    /* y = sum over a row's chosen experts, in ascending order of expert, of weight * block(x),
     * where a block is that of pj_mlp_block_of with this kind of activation (with weighted_input of
     * the blueprint, of block(weight * x)); then, with a residual, residual += residual_scale * y.
     * May overwrite GATE_UP, ACT and Y2. A component PJ_N_EXPERTS with the work of pj_mlp_flops and
     * pj_mlp_bytes of each expert that has rows. */
    void (*experts)(void *s, const pj_layer *layer, const pj_activation *like, pj_slice x,
                    pj_slice y, pj_slice residual);
    /* y += sigmoid(gate) * x; gate has one column. */
    void (*add_gated)(void *s, pj_slice y, pj_slice x, pj_slice gate);
    /* Causal convolution by channel over a row and the kernel - 1 rows before it in its sequence
     * (those before the pass are in the state, which is advanced), then silu: y = silu(sum_j
     * conv[j] * x[row + j + 1 - kernel] + conv_bias); PJ_SHORT_CONVOLUTION: without silu. */
    void (*convolve)(void *s, const pj_layer *layer, pj_slice x, pj_slice y);
    /* The gated delta rule (engine/model/delta.h) over rows of a sequence in order: queries and
     * keys of qkv are divided by sqrt(their square + 1e-6), queries also by sqrt(key_dim);
     * beta = sigmoid(strength(r, h)), decay = e^(-rate[h] softplus(strength(r, value_heads + h) +
     * bias[h])). With PJ_SCAN (delta.h), qkv has x, B and C, and strength steps before softplus,
     * which are at least delta->least_step and at most delta->most_step. */
    void (*delta_rule)(void *s, const pj_layer *layer, pj_slice qkv, pj_slice strength, pj_slice y);
    /* y = rmsnorm(y, delta->norm) by value head, times silu(gate); with PJ_SCAN rmsnorm(y
     * silu(gate)) in norm_groups parts, or with norm_first those parts' norm times silu(gate), or
     * without a norm y silu(gate). Overwrites gate. */
    void (*gated_norm)(void *s, const pj_layer *layer, pj_slice y, pj_slice gate);
    /* Alternating updates (engine/model/streams.h): `streams` has config.streams.count slices of
     * the columns of x, adjacent. Stream j becomes stream j + sum over i of coefficients(r, count j
     * + i) * stream i, all at once; x = the active one. */
    void (*predict_streams)(void *s, pj_slice coefficients, pj_slice streams, pj_slice x);
    /* Stream j += (1 + coefficients(r, j)) (x - the active stream before); then x = the active one,
     * times `scale` by column if there is one. */
    void (*correct_streams)(void *s, pj_slice coefficients, const float *scale, pj_slice streams,
                            pj_slice x);
    /* x *= sqrt(mean like^2) / sqrt(max(mean x^2, 1e-5)), by rows. */
    void (*match_magnitude)(void *s, pj_slice x, pj_slice like);
    /* y[i] = x[rows[i]] for the rows of y; `rows` is read before the function returns. */
    void (*take_rows)(void *s, pj_slice x, const uint32_t *rows, pj_slice y);
    /* x = cap tanh(factor x / cap); cap 0: only the factor. */
    void (*bound)(void *s, pj_slice x, float factor, float cap);
    /* The column of each row's largest value, the lowest on a tie (column i replaces an earlier one
     * only if x(r, i) > x(r, earlier)): kept for `ids`. */
    void (*argmax)(void *s, pj_slice x);

    /* y = rows of values in host memory, which stay valid until end_pass. NULL: the device cannot,
     * and heads that predict further tokens are refused. */
    void (*give)(void *s, const float *values, pj_slice y);
    /* After end_pass: the rows of a buffer in host memory, until the next pass. NULL as `give`. */
    const float *(*rows)(void *s, pj_slice x);
    /* After end_pass: the rows of LOGITS in host memory, writable, until the next pass. NULL: lost,
     * end_pass will say why. */
    float *(*logits)(void *s, uint32_t rows);
    const int32_t *(*ids)(void *s); /* of argmax, likewise */

    /* Between passes: empties the recurrent state (convolution and delta rule) of a sequence. */
    void (*reset)(void *s, uint32_t sequence);
    /* Between passes: a sequence's recurrent state becomes what it was after row `row` of the last
     * pass, which was of this sequence alone and of at most options.rewind + 1 rows. NULL: the
     * device cannot, and models with such a state are not verified against drafts. */
    void (*rewind)(void *s, uint32_t sequence, uint32_t row);
    /* Within a pass: in windowed layers that own their keys, moves slots [from, from + count) of a
     * sequence to slots [0, count); its base advances by `from`. */
    void (*slide)(void *s, uint32_t sequence, uint32_t from, uint32_t count);
} pj_ops;

/* ---- devices ------------------------------------------------------------------------------ */

/* A model that is put on a device. All pointers outlive it. */
typedef struct pj_load_request {
    const char *device; /* as the user named it; NULL: the backend's first */
    const pj_model *model;
    const pj_kernels *kernels; /* of the host's processor */
    pj_team *team;             /* the host's threads */
    pj_dtype kv_type;          /* of the generations to come */
    uint32_t chunk;            /* rows of their longest passes, usually */
    pj_error *declined;        /* why "auto" took no GPU, then; may be NULL */
    const _Atomic bool *cancel;
    pj_progress *progress;
} pj_load_request;

typedef struct pj_compute_facts {
    const char *name;      /* "cpu", "NVIDIA H200" */
    const uint8_t *key;    /* of the device, 16 bytes; NULL: the host has none */
    const char *isa;       /* kernel set or interface: "avx512", "vulkan" */
    bool host_memory;      /* activations are in host memory: logits cost nothing to read */
    uint64_t upload_bytes; /* of weights, copied while loading; 0: none */
    int64_t upload_begin_ns, upload_end_ns;
} pj_compute_facts;

/* The memory a generation needs of its device. */
typedef struct pj_generation_shape {
    const pj_state_options *options;
    /* Floats of each buffer. */
    size_t floats[PJ_BUFFERS];
    /* Positions that a sequence has in the cache of layers without and with a window. */
    uint32_t full_slots, window_slots;
    /* Of the forward pass, for the whole generation; the device records through it. */
    pj_instrument *instrument;
} pj_generation_shape;

enum { PJ_LEAST_READ_BYTES = 64 << 20 };

/* A way to reach devices. */
typedef struct pj_backend {
    uint32_t version; /* PJ_BACKEND_VERSION */
    const char *name; /* "cpu" */
    /* Whether one of its devices is meant by this name. */
    bool (*has)(const char *device);
    /* Once per engine: takes the device and brings the model's weights there, or says in one line
     * why not. */
    pj_status (*load)(const pj_load_request *request, void **loaded, pj_error *err);
    void (*unload)(void *loaded);
    void (*facts)(void *loaded, pj_compute_facts *facts);
    /* Upper bounds of what it can do, for reports: operations per second of the layers' products
     * (two per multiply-add), bytes per second at which one pass over at most `max_bytes` of the
     * weights reads them in `streams` streams a thread. NAN: not known, or fewer than
     * PJ_LEAST_READ_BYTES, which caches would serve. */
    double (*peak)(void *loaded, int64_t duration_ns);
    double (*read_pass)(void *loaded, unsigned streams, uint64_t max_bytes);
    /* Once per generation: everything that passes of this shape need; they allocate nothing. */
    pj_status (*open)(void *loaded, const pj_generation_shape *shape, void **state, pj_error *err);
    void (*close)(void *state);
    pj_ops ops;
} pj_backend;

#endif
