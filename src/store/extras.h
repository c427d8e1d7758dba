/*
 * Extra figures of a component or operation as one JSON object: {"entropy": 1.5, "heads": [1, 2]}.
 * Values are kept to float precision (9 digits): none of them is measured better than that.
 */
#ifndef PJ_STORE_EXTRAS_H
#define PJ_STORE_EXTRAS_H

#include "base/buffer.h"
#include "trace/run_data.h"

/* Appends the object; at most 64 names. Elements of an array come in ascending order of index. */
bool pj_extras_write(pj_buffer *buffer, const pj_extra_row *extras, uint32_t count);

/* Extras of many rows, read one object after the other. */
typedef struct pj_extra_list {
    pj_extra_row *rows; /* on the heap: pj_free */
    uint32_t count, capacity;
} pj_extra_list;

/* Appends what the object says; names are copied into the arena, once a distinct name as long as
 * they repeat. False: not such an object, or memory is out. */
bool pj_extras_read(const char *json, size_t bytes, pj_extra_list *list, pj_arena *arena);

#endif
