/*
 * Shared by the files that load a model. Private to model*.c. The loader keeps the first error;
 * after it, every function does nothing, so that loading a layer reads like a list of its parts.
 */
#ifndef PJ_MODEL_MODEL_LOAD_H
#define PJ_MODEL_MODEL_LOAD_H

#include "engine/model/model.h"
#include "engine/model/row_source.h"

enum { PJ_TENSOR_NAME_BYTES = 160 };

/* Embedding and head use 8 bits when layers use 4. */
typedef enum pj_role { PJ_ROLE_LAYER, PJ_ROLE_TABLE } pj_role;

typedef struct pj_loader {
    pj_model *model;
    pj_team *team;
    const pj_kernels *kernels;
    int dtype;                  /* requested type, -1: as stored */
    bool no_mmap;               /* copy the files before anything is read */
    pj_dtype synthetic;         /* type of synthetic weights */
    uint32_t matrices;          /* created so far: the random generator's stream number */
    bool check;                 /* check names and shapes only, without conversion */
    const _Atomic bool *cancel; /* or NULL */
    pj_progress *progress;      /* in layers; or NULL */
    pj_error *err;
    pj_status status;
} pj_loader;

/* A large block, from which matrices are allocated consecutively. Untouched pages cost nothing. */
typedef struct pj_slab {
    struct pj_slab *next;
    unsigned char *data;
    size_t bytes, used;
} pj_slab;

/* ---- model_tensors.c ---- */

/* From the model's arena; NULL after a failure. */
void *pj_load_alloc(pj_loader *l, size_t count, size_t size);
/* A new matrix of `type`, converted from `from` or `source`, or random if both are NULL. */
void pj_load_converted(pj_loader *l, const char *name, pj_dtype type, const pj_matrix *from,
                       const pj_row_source *source, size_t rows, size_t cols, pj_matrix *to);
/* A stored matrix in place, or converted if the model uses another type. */
void pj_load_adopt(pj_loader *l, const char *name, pj_role use, const pj_matrix *stored,
                   pj_matrix *out);
void pj_load_adopt_rows(pj_loader *l, const char *name, const pj_row_source *source, size_t rows,
                        pj_matrix *out);
void pj_load_matrix(pj_loader *l, const char *name, pj_role use, size_t rows, size_t cols,
                    pj_matrix *out);
/* All matrices of a tensor [count, rows, cols], one below the other; as stored, if that is a type
 * that kernels read. `transposed`: columns are outputs. */
void pj_load_stack(pj_loader *l, const char *name, size_t count, size_t rows, size_t cols,
                   bool transposed, pj_matrix *out);
/* As floats; synthetic models use `fallback` everywhere. */
void pj_load_vector(pj_loader *l, const char *name, size_t count, float fallback,
                    const float **out);
void pj_load_linear(pj_loader *l, const char *prefix, const char *part, size_t rows, size_t cols,
                    bool bias, pj_projection *out);
/* A projection recorded as its own component. */
void pj_load_component(pj_loader *l, const char *prefix, pj_instrument_name part, size_t rows,
                       size_t cols, bool bias, pj_projection *out);
/* Converts a router's matrix, unless its products are computed in float32 as it is: rounded
 * activations would choose otherwise where scores are close. */
void pj_load_exact(pj_loader *l, const char *name, pj_projection *out);
/* PJ_N_NONE: the architecture has no such norm. */
void pj_load_norm(pj_loader *l, const char *prefix, pj_instrument_name part, size_t count,
                  bool bias, pj_norm *out);
bool pj_load_is_gguf(const pj_loader *l);
/* Whether the file has "<prefix>.<part>". */
bool pj_load_has(const pj_loader *l, const char *prefix, const char *part);
/* Whether the file has "<prefix>.<part>.weight", packed or not. */
bool pj_load_has_linear(const pj_loader *l, const char *prefix, const char *part);

/* ---- model_attention.c ---- */

/* Rows [first, first + rows) of `whole`. */
pj_matrix pj_matrix_rows(const pj_matrix *whole, size_t first, size_t rows);
pj_projection pj_projection_rows(const pj_projection *whole, size_t first, size_t rows,
                                 pj_instrument_name name);
void pj_load_attention(pj_loader *l, const char *prefix, pj_layer *layer);
void pj_load_delta(pj_loader *l, const char *prefix, pj_layer *layer);

struct pj_delta;
/* Convolution, and decays with their biases, of a recurrent layer. */
void pj_load_convolution(pj_loader *l, const char *prefix, const char *part, struct pj_delta *d);
void pj_load_rates(pj_loader *l, const char *prefix, struct pj_delta *d);

/* ---- model_recurrent.c ---- */

void pj_load_scan(pj_loader *l, const char *prefix, pj_layer *layer);
void pj_load_short_convolution(pj_loader *l, const char *prefix, pj_layer *layer);

/* ---- model_packed.c ---- */

/* The rows of a matrix whose folder has packed weights instead of the tensor `name`; false: it has
 * none. */
bool pj_load_packed(pj_loader *l, const char *name, size_t rows, size_t cols,
                    pj_row_source *source);

/* ---- model_latent.c ---- */

void pj_load_latent(pj_loader *l, const char *prefix, pj_layer *layer);

/* ---- model_streams.c ---- */

void pj_load_streams(pj_loader *l, const char *prefix, pj_layer *layer);
void pj_load_stream_ends(pj_loader *l);

/* ---- model_experts.c ---- */

void pj_load_feed_forward(pj_loader *l, const char *prefix, pj_layer *layer);

/* ---- model_counts.c ---- */

void pj_model_count(pj_model *m);

#endif
