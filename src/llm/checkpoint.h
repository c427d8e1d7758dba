/*
 * A checkpoint on disk: configuration and tensors by name, mapped, not copied. A folder as Hugging
 * Face publishes it: config.json, generation_config.json where present, one safetensors file or
 * several with an index; or a GGUF file, or a set of them that belong together. Everything a file
 * says is checked before it is believed.
 */
#ifndef PJ_LLM_CHECKPOINT_H
#define PJ_LLM_CHECKPOINT_H

#include "llm/config.h"
#include "llm/dtype.h"
#include "llm/gguf.h"

#include <perjoule.h>

enum { PJ_TENSOR_MAX_RANK = 8 };

/* Element types a file may hold; only the floating ones can be weights. */
typedef enum pj_file_type {
    PJ_FILE_F32 = 0,
    PJ_FILE_F16,
    PJ_FILE_BF16,
    PJ_FILE_F64,
    PJ_FILE_I64,
    PJ_FILE_I32,
    PJ_FILE_I16,
    PJ_FILE_I8,
    PJ_FILE_U64,
    PJ_FILE_U32,
    PJ_FILE_U16,
    PJ_FILE_U8,
    PJ_FILE_BOOL,
    PJ_FILE_F8,   /* E5M2 and E8M0: readable as a file, refused as a weight */
    PJ_FILE_E4M3, /* 8-bit floats whose scales are a tensor of their own */
    PJ_FILE_Q8_0, /* in blocks, of GGUF files */
    PJ_FILE_Q4_0,
    PJ_FILE_Q4_K,
    PJ_FILE_Q5_K,
    PJ_FILE_Q6_K,
    PJ_FILE_Q4_1,
    PJ_FILE_Q5_0,
    PJ_FILE_Q5_1,
    PJ_FILE_IQ4_NL,
    PJ_FILE_MXFP4,
    PJ_FILE_Q2_K,
    PJ_FILE_Q3_K,
    PJ_FILE_IQ4_XS,
    PJ_FILE_TYPE_COUNT
} pj_file_type;

const char *pj_file_type_name(pj_file_type type); /* "BF16" */
/* The type that kernels know it by; false: it cannot be a weight. */
bool pj_file_dtype(pj_file_type type, pj_dtype *dtype);

typedef struct pj_tensor {
    const char *name;
    pj_file_type type;
    uint32_t rank;
    uint64_t shape[PJ_TENSOR_MAX_RANK];
    const unsigned char *data; /* may be unaligned: the format does not promise alignment */
    size_t bytes;
} pj_tensor;

/* For qsort and bsearch. By place: empty tensors before the one that begins at the same byte. */
int pj_tensor_by_place(const void *a, const void *b);
int pj_tensor_by_name(const void *a, const void *b);

typedef struct pj_checkpoint pj_checkpoint;

/* Opens a model folder, one .safetensors file inside one, or a GGUF file (one of a split set stands
 * for all of it; a folder that holds nothing else may stand for its only one). */
pj_status pj_checkpoint_open(const char *path, pj_checkpoint **checkpoint, pj_error *err);
void pj_checkpoint_close(pj_checkpoint *checkpoint); /* NULL is allowed */
const pj_model_config *pj_checkpoint_config(const pj_checkpoint *checkpoint);
const pj_generation_config *pj_checkpoint_generation(const pj_checkpoint *checkpoint);
const char *pj_checkpoint_path(const pj_checkpoint *checkpoint); /* the folder, or the GGUF file */
/* Metadata of the GGUF file; NULL when it is a folder. */
const pj_gguf *pj_checkpoint_gguf(const pj_checkpoint *checkpoint);
/* By name, with and without a leading "model."; NULL when absent. Names are those of Hugging Face,
 * whatever the file calls its tensors. */
const pj_tensor *pj_checkpoint_find(const pj_checkpoint *checkpoint, const char *name);
uint32_t pj_checkpoint_tensor_count(const pj_checkpoint *checkpoint);
const pj_tensor *pj_checkpoint_tensor(const pj_checkpoint *checkpoint, uint32_t index);
/* A tensor of a GGUF file that nobody has asked for: its model computes something that is not
 * known here. NULL: none. */
const pj_tensor *pj_checkpoint_unused(const pj_checkpoint *checkpoint);
/* A weight matrix [rows, cols]; with cols 0 a vector [rows], given as one row of that many columns.
 * An error that prints both shapes and the types when it is absent or something else. */
pj_status pj_checkpoint_matrix(const pj_checkpoint *checkpoint, const char *name, uint64_t rows,
                               uint64_t cols, pj_matrix *matrix, pj_error *err);

/* Has the kernel map bytes [at, at + bytes) of the weight files, which are counted one behind the
 * other (pj_pages_touch); false behind their end. May be called from several threads. */
bool pj_checkpoint_touch(const pj_checkpoint *checkpoint, size_t at, size_t bytes);

/* One safetensors file's header, checked: for the loader, tests and the fuzzer. Tensors and names
 * live in `arena`; data points into [file, file + bytes). */
pj_status pj_safetensors_parse(const unsigned char *file, size_t bytes, const char *name,
                               pj_arena *arena, pj_tensor **tensors, uint32_t *count,
                               pj_error *err);

#endif
