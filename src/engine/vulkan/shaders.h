/*
 * The kernels of the engine on a GPU: for each its SPIR-V, and the C form of its specialisation
 * constants and of its arguments (push constants). Sources are shaders/<name>.comp, which also say
 * how a kernel is dispatched. All addresses are device addresses, all strides count floats unless
 * they say bytes, and an address 0 means that there is no such operand.
 */
#ifndef PJ_VULKAN_SHADERS_H
#define PJ_VULKAN_SHADERS_H

#include "engine/files/dtype.h"
#include "engine/vulkan/vk.h"

typedef enum pj_vk_kernel {
    PJ_VK_PRODUCT,
    PJ_VK_PRODUCT_PACKED, /* needs packed dot products; constants and arguments of product */
    PJ_VK_PRODUCT_TILED,
    PJ_VK_PRODUCT_MATRIX,       /* needs cooperative matrices of f16; arguments of product_tiled */
    PJ_VK_PRODUCT_MATRIX_PLAIN, /* the same without, for tests */
    PJ_VK_PRODUCT_EXPERTS,
    PJ_VK_PRODUCT_EXPERTS_PACKED, /* likewise, of product_experts */
    PJ_VK_QUANTISE,
    PJ_VK_NORM,
    PJ_VK_GATHER,
    PJ_VK_ROWS,
    PJ_VK_ROPE,
    PJ_VK_ATTENTION,
    PJ_VK_ATTENTION_MERGE,
    PJ_VK_INDEX_SCORES,
    PJ_VK_INDEX_CHOOSE,
    PJ_VK_SLIDE,
    PJ_VK_ROUTE,
    PJ_VK_SORT,
    PJ_VK_COMBINE,
    PJ_VK_CONVOLVE,
    PJ_VK_DELTA_RULE,
    PJ_VK_CUT,
    PJ_VK_MATCH,
    PJ_VK_STREAMS,
    PJ_VK_WEIGH,
    PJ_VK_ARGMAX,
    PJ_VK_STATISTICS,
    PJ_VK_GATE_FIGURES,
    PJ_VK_ATTENTION_FIGURES,
    PJ_VK_NORM_FIGURES,
    PJ_VK_ROUTE_FIGURES,
    PJ_VK_PEAK,
    PJ_VK_PEAK_MATRIX, /* needs cooperative matrices of f16; arguments of peak */
    PJ_VK_READ,
    PJ_VK_KERNELS
} pj_vk_kernel;

extern const pj_vk_shader pj_vk_kernels[PJ_VK_KERNELS];

typedef enum pj_vk_norm { PJ_VK_NORM_NONE, PJ_VK_NORM_RMS, PJ_VK_NORM_LAYER } pj_vk_norm;
typedef enum pj_vk_gate {
    PJ_VK_GATE_SILU,
    PJ_VK_GATE_GELU,
    PJ_VK_GATE_CLAMPED,
    PJ_VK_GATE_RELU2,
    PJ_VK_GATE_XIELU /* of rows alone, whose `other` has its parameters */
} pj_vk_gate;

/* ---- product: few rows of x --------------------------------------------------------------- */

typedef enum pj_vk_product_output {
    PJ_VK_OUTPUT_STORE,
    PJ_VK_OUTPUT_RESIDUAL, /* also residual += residual_scale y */
    PJ_VK_OUTPUT_GATE      /* f(gate) up of two matrices */
} pj_vk_product_output;

typedef struct pj_vk_product_constants {
    uint32_t threads; /* a multiple of 16 and of lanes */
    uint32_t type;    /* of the weights: pj_dtype or PJ_VK_Q8_ROWS */
    uint32_t lanes;   /* threads that share a row */
    uint32_t rows;    /* of weights per `lanes` threads */
    uint32_t tokens;  /* rows of x of a workgroup */
    uint32_t norm;    /* pj_vk_norm of x */
    uint32_t output;
    uint32_t gate;
    float eps, residual_scale;
    float alpha, limit; /* PJ_VK_GATE_CLAMPED */
} pj_vk_product_constants;

typedef struct pj_vk_part {
    uint64_t w, bias, y;
    uint32_t rows, y_stride;
} pj_vk_part;

typedef struct pj_vk_product_args {
    uint64_t x, norm; /* norm: weights of the norm of x; packed: x are codes, norm their scales */
    pj_vk_part parts[3];
    uint32_t cols, x_stride, tokens;
    uint32_t norm_bias; /* floats from the norm's weights to its bias; 0: none */
} pj_vk_product_args;

/* Workgroups in x for the parts. */
uint32_t pj_vk_product_groups(const pj_vk_product_constants *constants,
                              const pj_vk_product_args *args);

/* ---- quantise: the activations of packed products ------------------------------------------- */

typedef struct pj_vk_quantise_constants {
    uint32_t threads;
    uint32_t norm; /* pj_vk_norm of x */
    float eps;
} pj_vk_quantise_constants;

typedef struct pj_vk_quantise_args {
    uint64_t x, weight, bias; /* weight and bias: of the norm */
    uint64_t codes;           /* [rows][cols] signed bytes */
    uint64_t scales;          /* [rows][cols / 32] */
    uint32_t rows, cols, x_stride;
} pj_vk_quantise_args;

/* ---- product_tiled: many rows of x, or many tokens' experts -------------------------------- */

typedef struct pj_vk_product_tiled_constants {
    uint32_t threads; /* tile_tokens / per_token * tile_rows / per_row */
    uint32_t type;
    uint32_t tile_tokens, tile_rows;
    uint32_t per_token, per_row; /* outputs of a thread */
    uint32_t output;             /* PJ_VK_OUTPUT_STORE or PJ_VK_OUTPUT_RESIDUAL */
    float residual_scale;
} pj_vk_product_tiled_constants;

typedef struct pj_vk_product_tiled_args {
    uint64_t x, w, bias, y; /* with tiles, w and bias are tables of addresses by expert */
    uint64_t residual;
    uint64_t tiles; /* of sort; 0: dense */
    uint64_t list;  /* [entries] row of x; 0: the entry itself */
    uint32_t rows, cols, tokens, x_stride, y_stride, residual_stride;
} pj_vk_product_tiled_args;

/* A tile is 64 down x 32 across. */
enum { PJ_VK_MATRIX_DOWN = 64, PJ_VK_MATRIX_ACROSS = 32 };

typedef struct pj_vk_product_matrix_constants {
    uint32_t threads; /* down * across * subgroup */
    uint32_t type;
    uint32_t down, across; /* subgroups */
    uint32_t subgroup;     /* its size: a divisor of 256 */
    uint32_t output;       /* PJ_VK_OUTPUT_STORE or PJ_VK_OUTPUT_RESIDUAL */
    float residual_scale;
} pj_vk_product_matrix_constants;

/* ---- product_experts: few tokens ----------------------------------------------------------- */

typedef enum pj_vk_experts_output {
    PJ_VK_EXPERTS_GATE,   /* y[entry] = f(gate x[token]) up x[token] */
    PJ_VK_EXPERTS_SINGLE, /* y[entry] = W x[token] */
    PJ_VK_EXPERTS_DOWN    /* y[token] = sum of weight W x[entry] */
} pj_vk_experts_output;

typedef struct pj_vk_product_experts_constants {
    uint32_t threads, type, lanes, rows, tokens; /* as those of product; without tiles: 1 token */
    uint32_t output;
    uint32_t gate;
    float alpha, limit;
    float residual_scale;
} pj_vk_product_experts_constants;

typedef struct pj_vk_product_experts_args {
    uint64_t x, y;
    uint64_t scales;            /* packed: of x */
    uint64_t chosen;            /* [entries] experts */
    uint64_t weights, order;    /* DOWN, of route: [entries] weights; slots by ascending expert */
    uint64_t w, bias;           /* tables of addresses by expert: gate's for GATE */
    uint64_t up, up_bias;       /* GATE */
    uint64_t residual;          /* DOWN: added to; rows of y_stride; 0: none */
    uint64_t tiles, list;       /* of sort, whose tiles have at most `tokens` entries; 0: none */
    uint32_t rows, cols, slots; /* slots: entries of a token */
    uint32_t x_stride, y_stride, residual_stride;
} pj_vk_product_experts_args;

/* ---- norm ---------------------------------------------------------------------------------- */

typedef enum pj_vk_norm_output {
    PJ_VK_NORM_STORE,
    PJ_VK_NORM_RESIDUAL, /* also other += residual_scale y */
    PJ_VK_NORM_GATED     /* y = norm(x) silu(other) */
} pj_vk_norm_output;

typedef struct pj_vk_norm_constants {
    uint32_t threads;
    uint32_t norm; /* pj_vk_norm */
    uint32_t output;
    float eps, residual_scale;
} pj_vk_norm_constants;

typedef struct pj_vk_norm_args {
    uint64_t x, y, weight, bias, other;
    uint32_t rows, n;
    uint32_t per_token; /* rows of a token, adjacent; the strides are those of tokens */
    uint32_t x_stride, y_stride, other_stride;
    uint32_t weight_step; /* floats between the weights of rows of a token; 0: they share them */
} pj_vk_norm_args;

/* ---- gather -------------------------------------------------------------------------------- */

typedef struct pj_vk_gather_constants {
    uint32_t threads, type;
} pj_vk_gather_constants;

typedef struct pj_vk_gather_args {
    uint64_t table, list, y; /* list: [rows] rows of the table; 0: the first ones */
    uint64_t row_bytes;
    uint32_t rows, cols, y_stride;
    uint32_t table_rows; /* rows beyond them are the first one */
    float scale;
} pj_vk_gather_args;

/* ---- rows ---------------------------------------------------------------------------------- */

typedef enum pj_vk_rows_operation {
    PJ_VK_ROWS_SCALE,    /* y = scale x */
    PJ_VK_ROWS_ADD,      /* y += scale x */
    PJ_VK_ROWS_CAP,      /* y = cap tanh(scale x / cap) */
    PJ_VK_ROWS_GATE,     /* y = f(x) other, or f(x); scale, cap: alpha, limit */
    PJ_VK_ROWS_SIGMOID,  /* y *= sigmoid(x): gates after the queries of each head of x */
    PJ_VK_ROWS_QUERIES,  /* y = the queries in such rows of x */
    PJ_VK_ROWS_MIX,      /* y += sigmoid(other[0]) x */
    PJ_VK_ROWS_JOIN,     /* y = scale (y + x) */
    PJ_VK_ROWS_MULTIPLY, /* y = x other, the second half of GATE */
    PJ_VK_ROWS_HEADS     /* y = x, heads x_step and y_step apart */
} pj_vk_rows_operation;

typedef struct pj_vk_rows_constants {
    uint32_t threads;
    uint32_t operation;
    uint32_t gate; /* pj_vk_gate */
} pj_vk_rows_constants;

typedef struct pj_vk_rows_args {
    uint64_t x, y, other;
    uint32_t rows, n, x_stride, y_stride, other_stride;
    uint32_t dim; /* of a head */
    float scale, cap;
    uint32_t x_step, y_step;
} pj_vk_rows_args;

/* ---- the cache ----------------------------------------------------------------------------- */

/* What rope and attention have to know about each row of a pass; written by the host. A cache is
 * [sequences][heads][slots] rows of keys or values, by bytes between them; slot is position - base
 * in layers with a window, else position. */
typedef struct pj_vk_cache_row {
    uint32_t position, sequence, base;
    float scale; /* of queries */
} pj_vk_cache_row;

/* What a query sees of the keys up to its own. */
typedef enum pj_vk_window {
    PJ_VK_WINDOW_NONE,   /* all */
    PJ_VK_WINDOW_SLIDES, /* the last ones; slots count from base */
    PJ_VK_WINDOW_CHUNK   /* those since the last multiple of the window; likewise */
} pj_vk_window;

/* ---- rope ---------------------------------------------------------------------------------- */

typedef struct pj_vk_rope_constants {
    uint32_t threads;
    uint32_t cache_type; /* PJ_F32 or PJ_F16 */
    uint32_t norm;       /* of each head of queries and keys: PJ_VK_NORM_NONE or PJ_VK_NORM_RMS */
    uint32_t neighbours; /* pairs (2i, 2i + 1) instead of halves */
    float eps;
} pj_vk_rope_constants;

typedef struct pj_vk_rope_args {
    uint64_t qkv;
    uint64_t rows;         /* pj_vk_cache_row by row */
    uint64_t cosine, sine; /* [tokens][pairs] */
    uint64_t q_norm, k_norm;
    uint64_t keys, values; /* the layer's cache */
    uint64_t sequence_bytes;
    uint32_t head_bytes, row_bytes;
    uint32_t heads, kv_heads, dim;
    uint32_t pairs; /* 0: no rotation */
    uint32_t qkv_stride;
    uint32_t windowed; /* 1: slots count from base */
    uint32_t scaled;   /* 1: queries times the row's scale */
    uint32_t first;    /* column that rotates */
    uint32_t stores;   /* 1: keys and values; 0: the rotation alone */
} pj_vk_rope_args;

/* ---- attention ----------------------------------------------------------------------------- */

typedef struct pj_vk_attention_constants {
    uint32_t threads; /* a multiple of 32 and of lanes */
    uint32_t cache_type;
    uint32_t dim;
    uint32_t heads;     /* query heads of a workgroup: a divisor of heads / kv_heads */
    uint32_t positions; /* adjacent rows of a workgroup, of one sequence; 1: any rows */
    uint32_t lanes;     /* threads per row of values */
    uint32_t chunk;     /* columns of keys in shared memory: a multiple of 4 */
    uint32_t split;     /* 1: stores parts for attention_merge */
    uint32_t value_dim; /* of a value and of a head of y, at most dim */
    uint32_t chosen;    /* 1: rows with more than `kept` keys list those they see */
} pj_vk_attention_constants;

typedef struct pj_vk_attention_args {
    uint64_t qkv, rows, keys, values;
    uint64_t y; /* with split: [tokens][heads][splits][2 + value_dim] floats */
    uint64_t sinks;
    uint64_t sequence_bytes;
    uint32_t head_bytes, row_bytes;
    uint32_t tokens, heads, kv_heads;
    uint32_t qkv_stride, y_stride;
    uint32_t window;     /* UINT32_MAX: all */
    uint32_t windowed;   /* pj_vk_window */
    uint32_t split_keys; /* per workgroup */
    float scale, cap;    /* cap 0: none */
    uint32_t kept;
    uint64_t seen; /* with chosen: [tokens][kept] positions, of index_choose */
} pj_vk_attention_args;

/* Workgroups in y. */
uint32_t pj_vk_attention_groups(const pj_vk_attention_constants *constants,
                                const pj_vk_attention_args *args);

typedef struct pj_vk_threads_constants {
    uint32_t threads;
} pj_vk_threads_constants; /* of kernels without others */

typedef struct pj_vk_attention_merge_args {
    uint64_t parts, y, sinks;
    uint32_t heads, splits, dim, y_stride;
} pj_vk_attention_merge_args;

/* ---- sparse attention ---------------------------------------------------------------------- */

typedef struct pj_vk_index_scores_constants {
    uint32_t threads; /* a multiple of 32 */
    uint32_t cache_type;
    uint32_t dim;
    uint32_t chunk; /* columns in shared memory: a multiple of 4 */
} pj_vk_index_scores_constants;

enum { PJ_VK_INDEX_KEYS = 32 }; /* of a workgroup */

typedef struct pj_vk_index_scores_args {
    uint64_t index; /* rows of [heads][dim] queries, a key, [heads] weights */
    uint64_t rows, keys;
    uint64_t scores; /* by row and key */
    uint64_t sequence_bytes;
    uint32_t row_bytes, heads, index_stride, scores_stride;
    uint32_t kept; /* rows with more keys are scored */
    float scale;
} pj_vk_index_scores_args;

/* constants: pj_vk_threads_constants, a power of two of at most 512 */
typedef struct pj_vk_index_choose_args {
    uint64_t rows, scores;
    uint64_t seen; /* [rows][kept] */
    uint32_t scores_stride, kept;
} pj_vk_index_choose_args;

typedef struct pj_vk_slide_args {
    uint64_t heads; /* the sequence's first */
    uint64_t head_bytes;
    uint32_t row_words, from, count; /* words of 16 bits */
} pj_vk_slide_args;

/* ---- experts ------------------------------------------------------------------------------- */

typedef struct pj_vk_route_constants {
    uint32_t threads;
    uint32_t slots;        /* experts per token */
    uint32_t renormalise;  /* 1: the weights of a token sum to `factor` */
    uint32_t experts;      /* shared memory holds 4 bytes of each */
    uint32_t sigmoid;      /* 1: scores are sigmoids; 0: softmax */
    uint32_t groups, kept; /* of neighbouring experts, and how many of them take part; 1: all */
    uint32_t pair;         /* 1: a group's score is the sum of its two largest */
    float factor;          /* of the weights */
    uint32_t mixed;        /* 1: experts are chosen and weighted one after the other */
    float reach;           /* of MIXED: which of the remaining ones share a weight's softmax */
} pj_vk_route_constants;

typedef struct pj_vk_route_args {
    uint64_t logits;
    uint64_t factors;         /* [experts] of the weights */
    uint64_t corrections;     /* [experts] of the scores, when choosing */
    uint64_t probability;     /* [tokens][experts] scores that sum to 1 */
    uint64_t chosen, weights; /* [tokens][slots], best first */
    uint64_t order;           /* [tokens][slots] slots by ascending expert */
    uint32_t logits_stride;
} pj_vk_route_args;

typedef struct pj_vk_sort_constants {
    uint32_t threads;
    uint32_t experts; /* shared memory holds 8 bytes of each */
} pj_vk_sort_constants;

typedef struct pj_vk_sort_args {
    uint64_t chosen; /* [entries], of route */
    uint64_t list;   /* [entries] token by sorted entry, for product_tiled */
    uint64_t places; /* [entries] sorted entry by entry, for combine */
    uint64_t begins; /* [experts + 1] first sorted entry of each expert */
    uint64_t tiles;  /* [1 + 3 pj_vk_most_tiles], for product_tiled */
    uint32_t entries, slots;
    uint32_t tile_entries; /* tile_tokens of product_tiled */
} pj_vk_sort_args;

/* Most tiles that sort makes: workgroups in y of product_tiled. */
uint32_t pj_vk_most_tiles(uint32_t entries, uint32_t experts, uint32_t tile_entries);

/* The input of experts whose weights apply to it. */
typedef struct pj_vk_weigh_args {
    uint64_t x, y;          /* y: [entries][n], by sorted entry with `places` */
    uint64_t weights, ones; /* [entries]; ones: the weights from then on */
    uint64_t places;        /* of sort */
    uint32_t entries, n, slots, x_stride;
} pj_vk_weigh_args; /* constants: pj_vk_threads_constants */

typedef struct pj_vk_combine_constants {
    uint32_t threads;
    float residual_scale;
} pj_vk_combine_constants;

typedef struct pj_vk_combine_args {
    uint64_t x; /* by sorted entry */
    uint64_t y, residual;
    uint64_t places, weights, order;
    uint32_t n, slots, x_stride, y_stride, residual_stride;
} pj_vk_combine_args;

/* ---- the delta rule ------------------------------------------------------------------------ */

/* Adjacent rows of one sequence. */
typedef struct pj_vk_segment {
    uint32_t row, count, sequence;
} pj_vk_segment;

typedef struct pj_vk_convolve_constants {
    uint32_t threads;
    uint32_t kernel;
    uint32_t plain; /* 1: without silu */
} pj_vk_convolve_constants;

typedef struct pj_vk_convolve_args {
    uint64_t x, y;
    uint64_t weights; /* [kernel][channels], oldest input first */
    uint64_t bias;    /* [channels] */
    uint64_t state;   /* [sequences] of [kernel - 1][channels], and more */
    uint64_t sequence_bytes;
    uint64_t segments;   /* pj_vk_segment */
    uint64_t kept_bytes; /* of a copy of the state after each row, which follow it; 0: none */
    uint32_t channels, x_stride, y_stride;
} pj_vk_convolve_args;

typedef struct pj_vk_delta_rule_constants {
    uint32_t threads; /* a multiple of 16 and of parts */
    uint32_t key_dim;
    uint32_t parts; /* threads per column of the state */
    uint32_t tiled; /* 1: value head h uses key head h % key_heads */
    uint32_t scan;  /* 1: a state-space scan */
} pj_vk_delta_rule_constants;

typedef struct pj_vk_delta_rule_args {
    uint64_t qkv, strength, y;
    uint64_t rate, bias; /* [value_heads] */
    uint64_t state;      /* first matrix of the first sequence */
    uint64_t sequence_bytes;
    uint64_t segments;
    uint64_t kept_bytes; /* as convolve's */
    uint64_t skip;       /* of a scan: [value_heads] */
    uint32_t key_heads, value_heads, value_dim;
    uint32_t qkv_stride, strength_stride, y_stride;
    float least_step, most_step; /* of a scan */
} pj_vk_delta_rule_args;

/* ---- alternating updates, and gates that are cut ------------------------------------------- */

typedef struct pj_vk_cut_constants {
    uint32_t threads;
    float cutoff; /* standard deviations above the mean */
} pj_vk_cut_constants;

typedef struct pj_vk_cut_args {
    uint64_t x, y;
    uint32_t rows, n, x_stride, y_stride;
} pj_vk_cut_args;

typedef struct pj_vk_match_args {
    uint64_t x, like;
    uint32_t rows, n, x_stride, like_stride;
} pj_vk_match_args; /* constants: pj_vk_threads_constants */

typedef struct pj_vk_streams_constants {
    uint32_t threads;
    uint32_t count, active;
    uint32_t correct; /* 0: predict */
} pj_vk_streams_constants;

typedef struct pj_vk_streams_args {
    uint64_t coefficients, streams, x;
    uint64_t scale; /* [n] of the corrected active stream */
    uint32_t rows, n, coefficients_stride, streams_stride, x_stride;
} pj_vk_streams_args;

/* ---- argmax -------------------------------------------------------------------------------- */

typedef struct pj_vk_argmax_constants {
    uint32_t threads;
    uint32_t last; /* 0: the best of each part of a row; then 1: of its parts */
} pj_vk_argmax_constants;

typedef struct pj_vk_argmax_args {
    uint64_t x, ids;
    uint64_t found; /* [rows][parts] floats, then as many words */
    uint32_t rows, n, x_stride, parts;
} pj_vk_argmax_args;

/* ---- statistics: what pj_value_sums has, in single precision -------------------------------- */

typedef struct pj_vk_value_sums {
    float sum, sum_abs, sum_square, max_abs;
    uint32_t count, skipped, below, nan, inf;
} pj_vk_value_sums;

typedef struct pj_vk_statistics_constants {
    uint32_t threads;
    uint32_t last; /* 0: a record per workgroup; then 1: their total */
} pj_vk_statistics_constants;

typedef struct pj_vk_statistics_args {
    uint64_t x;
    uint64_t parts; /* [part_count] pj_vk_value_sums */
    uint64_t total; /* pj_vk_value_sums */
    uint32_t rows, cols, stride;
    uint32_t step; /* pj_sample_step: which rows are summed; of the others only bounds are kept */
    uint32_t part_count;
    float tau;
} pj_vk_statistics_args;

typedef struct pj_vk_gate_figures_args {
    uint64_t gate, activated, up;
    uint64_t counts; /* [sampled rows] of killed, dead, gated, as pj_gate_counts */
    uint32_t rows, n, gate_stride, activated_stride, up_stride;
    uint32_t step;
    float tau;
} pj_vk_gate_figures_args; /* constants: pj_vk_threads_constants */

/* Sums over rows, as pj_head_figures. */
typedef struct pj_vk_head_figures {
    uint32_t rows;
    float entropy, entropy_normalised, largest, largest_of_all;
    float visible, below, below_relative;
} pj_vk_head_figures;

typedef struct pj_vk_attention_figures_constants {
    uint32_t threads, cache_type, dim;
} pj_vk_attention_figures_constants;

typedef struct pj_vk_attention_figures_args {
    uint64_t qkv, rows, keys, sinks;
    uint64_t list;    /* [sampled] rows of the pass */
    uint64_t figures; /* [parts][heads] pj_vk_head_figures */
    uint64_t sequence_bytes;
    uint32_t head_bytes, row_bytes;
    uint32_t sampled, heads, kv_heads, qkv_stride;
    uint32_t window, windowed;
    float scale, cap, tau;
    uint32_t kept; /* 0: keys are not chosen */
    uint64_t seen; /* as that of attention */
} pj_vk_attention_figures_args;

typedef struct pj_vk_norm_figures_constants {
    uint32_t threads;
    uint32_t norm; /* pj_vk_norm */
    float eps;
} pj_vk_norm_figures_constants;

typedef struct pj_vk_norm_figures_args {
    uint64_t x, weight, bias;
    uint64_t ratios; /* [measured] of variances, then of mean squares; -1: not defined */
    uint32_t tokens, n, per_token, x_stride;
    uint32_t step, measured; /* every step-th token, all of its rows */
} pj_vk_norm_figures_args;

typedef struct pj_vk_route_figures_constants {
    uint32_t threads;
    uint32_t experts; /* shared memory holds 8 bytes of each */
} pj_vk_route_figures_constants;

typedef struct pj_vk_route_figures_args {
    uint64_t probability, chosen, weights; /* of route */
    uint64_t figures; /* [parts] of entropy, margin, [experts] counts, [experts] probabilities */
    uint64_t list;    /* [rows slots] chosen, then their weights; 0: not wanted */
    uint32_t rows, slots;
} pj_vk_route_figures_args;
/* ---- what the device can do, at most -------------------------------------------------------- */

typedef struct pj_vk_peak_constants {
    uint32_t threads;  /* with matrices 4 * subgroup */
    uint32_t subgroup; /* of peak_matrix */
} pj_vk_peak_constants;

typedef struct pj_vk_peak_args {
    uint64_t sink;
    uint32_t rounds; /* of 16 operations per thread, with matrices 4 x 8192 per subgroup */
    float factor, summand;
} pj_vk_peak_args;

typedef struct pj_vk_read_constants {
    uint32_t threads, streams, copies;
} pj_vk_read_constants;

typedef struct pj_vk_read_args {
    uint64_t memory, sink; /* as large as `memory` for copies */
    uint64_t quads;        /* of words */
} pj_vk_read_args;

#endif
