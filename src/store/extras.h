/* Extra figures of a component or operation as one JSON object: {"entropy": 1.5, "heads": [1, 2]}.
 * Values have float precision (9 digits): none is measured more precisely. */
#ifndef PJ_STORE_EXTRAS_H
#define PJ_STORE_EXTRAS_H

#include "base/buffer.h"
#include "store/packed_texts.h"
#include "store/value.h"
#include "trace/run_data.h"

/* Appends the object; at most 64 names. Elements of an array come in ascending order of index. */
bool pj_extras_write(pj_buffer *buffer, const pj_extra_row *extras, uint32_t count);

/* As packed rows have the object (packing.h), in `out`; false: it has no such form. `text` is
 * scratch space. */
bool pj_extras_pack(pj_packed_texts *texts, const pj_extra_row *extras, uint32_t count,
                    pj_buffer *text, pj_buffer *out);
/* Replaces such a value by the object, in `made`. */
pj_status pj_extras_unpack(pj_packed_texts *texts, pj_arena *made, pj_value *value, pj_error *err);

/* Extras of many rows, parsed one object after another. */
typedef struct pj_extra_list {
    pj_extra_row *rows; /* on the heap: pj_free */
    uint32_t count, capacity;
} pj_extra_list;

/* Appends the figures of the object; names are copied into the arena, once per distinct name while
 * they repeat. False: not such an object, or out of memory. */
bool pj_extras_read(const char *json, size_t bytes, pj_extra_list *list, pj_arena *arena);
/* The same for a column of a row: its first extra and their number are at `offset` of the row. */
bool pj_extras_set(pj_extra_list *list, const pj_value *value, void *row, size_t offset,
                   pj_arena *arena);
/* Moves all of the list to the run. */
pj_status pj_extras_take(pj_extra_list *list, pj_run_data *data, pj_error *err);

#endif
