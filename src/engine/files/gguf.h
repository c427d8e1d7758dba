/* One GGUF file: metadata by key, tensors by name, and the data, all in one mapping. The header is
 * accepted only if every length, count and offset lies inside the file, so every value and tensor
 * returned is inside the mapping, and no allocation depends on a size that the file merely claims.
 * Text and numbers are read in place: little-endian, unaligned, not terminated. */
#ifndef PJ_FILES_GGUF_H
#define PJ_FILES_GGUF_H

#include "base/error.h"
#include "base/memory.h"
#include "engine/files/tensors.h"

/* Value types, numbered as in the file. */
typedef enum pj_gguf_type {
    PJ_GGUF_U8 = 0,
    PJ_GGUF_I8,
    PJ_GGUF_U16,
    PJ_GGUF_I16,
    PJ_GGUF_U32,
    PJ_GGUF_I32,
    PJ_GGUF_F32,
    PJ_GGUF_BOOL,
    PJ_GGUF_STRING,
    PJ_GGUF_ARRAY,
    PJ_GGUF_U64,
    PJ_GGUF_I64,
    PJ_GGUF_F64,
    PJ_GGUF_TYPE_COUNT
} pj_gguf_type;

typedef struct pj_gguf_text {
    const char *text; /* not terminated */
    size_t bytes;
} pj_gguf_text;

typedef struct pj_gguf_value {
    pj_gguf_type type; /* of an array: the type of its items */
    bool is_array;
    uint64_t count; /* number of items; 1 for a scalar */
    const unsigned char *data;
} pj_gguf_value;

typedef struct pj_gguf_entry {
    const char *key;
    pj_gguf_value value;
} pj_gguf_entry;

typedef struct pj_gguf {
    uint32_t version;
    pj_gguf_entry *entries; /* [entry_count], by key */
    uint32_t entry_count;
    pj_tensor *tensors; /* [tensor_count], by name */
    uint32_t tensor_count;
} pj_gguf;

/* Whether a file name denotes a part of a split model other than the first:
 * "x-00002-of-00003.gguf". */
bool pj_gguf_is_later_part(const char *file);

/* Whether the bytes start with the GGUF magic. */
bool pj_gguf_has_magic(const unsigned char *file, size_t bytes);

/* Tables are in `arena`; what they point to, except names, is in [file, file + bytes). `name` (a
 * path) appears in errors. Shapes are [rows, row length], as in the other formats. */
pj_status pj_gguf_parse(const unsigned char *file, size_t bytes, const char *name, pj_arena *arena,
                        pj_gguf *gguf, pj_error *err);

/* NULL when absent. */
const pj_gguf_value *pj_gguf_find(const pj_gguf *gguf, const char *key);
/* Item `index` of a value, 0 for a scalar. False: another type, or an integer out of range.
 * Booleans are not numbers. */
bool pj_gguf_integer(const pj_gguf_value *value, uint64_t index, int64_t *number);
bool pj_gguf_number(const pj_gguf_value *value, uint64_t index, double *number);
bool pj_gguf_bool(const pj_gguf_value *value, bool *flag);
/* A scalar string; false: another type. */
bool pj_gguf_string(const pj_gguf_value *value, pj_gguf_text *text);
/* Iterates over an array of strings; `at` starts as value->data. */
pj_gguf_text pj_gguf_next_string(const unsigned char **at);
bool pj_gguf_text_is(pj_gguf_text text, const char *word);

#endif
