/* A streaming JSON writer: no tree, bounded memory, automatic commas. It writes into a pj_buffer
 * or, in blocks, to a callback (for exports of any size). Strings may hold any bytes: invalid UTF-8
 * becomes U+FFFD. NaN and infinities become null: JSON has neither, and here they mean
 * "unavailable". JSON is read with base/json_scan.h or, as trees, with jansson. */
#ifndef PJ_BASE_JSON_H
#define PJ_BASE_JSON_H

#include "base/buffer.h"
#include "base/memory.h"

enum { PJ_JSON_MAX_DEPTH = 64 };

typedef bool pj_json_write_fn(void *context, const char *bytes, size_t count);

typedef struct pj_json {
    pj_buffer *buffer;       /* the target, or the block when `write` is set */
    pj_json_write_fn *write; /* NULL: everything stays in `buffer` */
    void *context;
    int depth;
    bool failed;
    bool after_key;
    bool has_items[PJ_JSON_MAX_DEPTH];
    pj_buffer own; /* of pj_json_open */
} pj_json;

void pj_json_init(pj_json *json, pj_buffer *target);
/* `block` is scratch of the caller's; it is flushed whenever it holds 32 kB, and by finish. */
void pj_json_init_stream(pj_json *json, pj_buffer *block, pj_json_write_fn *write, void *context);
bool pj_json_finish(pj_json *json); /* flushes; false when anything failed */

/* A writer with a buffer of its own, of at most `max_bytes`; it may not be copied. */
void pj_json_open(pj_json *json, size_t max_bytes);
const char *pj_json_whole(pj_json *json); /* the whole text; NULL when anything failed */
void pj_json_close(pj_json *json);        /* frees the text; may run twice */
/* Copies the text into the arena and closes the writer; NULL when anything failed. */
const char *pj_json_keep(pj_json *json, pj_arena *arena);

void pj_json_object_begin(pj_json *json);
void pj_json_object_end(pj_json *json);
void pj_json_array_begin(pj_json *json);
void pj_json_array_end(pj_json *json);
void pj_json_key(pj_json *json, const char *key);
void pj_json_string(pj_json *json, const char *text); /* NULL: null */
void pj_json_string_n(pj_json *json, const char *text, size_t bytes);
void pj_json_int(pj_json *json, int64_t value);
void pj_json_uint(pj_json *json, uint64_t value);
void pj_json_double(pj_json *json, double value); /* shortest form that reads back equal */
void pj_json_float(pj_json *json, float value);   /* shortest form that reads back equal as float */
void pj_json_bool(pj_json *json, bool value);
void pj_json_null(pj_json *json);
void pj_json_raw(pj_json *json, const char *text, size_t bytes); /* a value that is already JSON */

/* "key": value in one call. */
void pj_json_kv_object_begin(pj_json *json, const char *key);
void pj_json_kv_array_begin(pj_json *json, const char *key);
void pj_json_kv_string(pj_json *json, const char *key, const char *text);
void pj_json_kv_int(pj_json *json, const char *key, int64_t value);
void pj_json_kv_uint(pj_json *json, const char *key, uint64_t value);
void pj_json_kv_double(pj_json *json, const char *key, double value);
void pj_json_kv_bool(pj_json *json, const char *key, bool value);
void pj_json_kv_null(pj_json *json, const char *key);
void pj_json_kv_optional(pj_json *json, const char *key, bool known, int64_t value); /* or null */

#endif
