/* Streaming JSON writer. The only state is one "has items" bit per open container. */
#include "base/json.h"

#include "base/decimal.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FLUSH_BYTES = 32 * 1024 };

void pj_json_init(pj_json *json, pj_buffer *target)
{
    *json = (pj_json){.buffer = target};
}

void pj_json_init_stream(pj_json *json, pj_buffer *block, pj_json_write_fn *write, void *context)
{
    *json = (pj_json){.buffer = block, .write = write, .context = context};
}

static void json_flush(pj_json *json)
{
    if (!json->write || json->failed || json->buffer->length == 0) return;
    if (!json->write(json->context, json->buffer->data, json->buffer->length)) json->failed = true;
    pj_buffer_clear(json->buffer);
}

static void json_put(pj_json *json, const char *bytes, size_t count)
{
    if (json->failed) return;
    if (!pj_buffer_append(json->buffer, bytes, count)) json->failed = true;
    if (json->write && json->buffer->length >= FLUSH_BYTES) json_flush(json);
}

bool pj_json_finish(pj_json *json)
{
    json_flush(json);
    return !json->failed && json->depth == 0;
}

void pj_json_open(pj_json *json, size_t max_bytes)
{
    pj_json_init(json, &json->own);
    pj_buffer_init(&json->own, max_bytes);
}

const char *pj_json_whole(pj_json *json)
{
    return pj_json_finish(json) ? pj_buffer_get(json->buffer) : NULL;
}

void pj_json_close(pj_json *json)
{
    pj_buffer_fini(&json->own);
}

const char *pj_json_keep(pj_json *json, pj_arena *arena)
{
    const char *text = pj_json_whole(json);
    if (text) text = pj_arena_strndup(arena, text, json->own.length);
    pj_json_close(json);
    return text;
}

static void before_value(pj_json *json)
{
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    if (json->depth == 0) return;
    if (json->has_items[json->depth - 1]) json_put(json, ",", 1);
    json->has_items[json->depth - 1] = true;
}

static void open_container(pj_json *json, const char *bracket)
{
    before_value(json);
    if (json->depth == PJ_JSON_MAX_DEPTH) {
        json->failed = true;
        return;
    }
    json->has_items[json->depth++] = false;
    json_put(json, bracket, 1);
}

static void close_container(pj_json *json, const char *bracket)
{
    if (json->depth > 0) json->depth--;
    json_put(json, bracket, 1);
}

void pj_json_object_begin(pj_json *json)
{
    open_container(json, "{");
}
void pj_json_object_end(pj_json *json)
{
    close_container(json, "}");
}
void pj_json_array_begin(pj_json *json)
{
    open_container(json, "[");
}
void pj_json_array_end(pj_json *json)
{
    close_container(json, "]");
}

static void put_escaped(pj_json *json, uint32_t c)
{
    char text[16];
    switch (c) {
    case '"': json_put(json, "\\\"", 2); return;
    case '\\': json_put(json, "\\\\", 2); return;
    case '\n': json_put(json, "\\n", 2); return;
    case '\r': json_put(json, "\\r", 2); return;
    case '\t': json_put(json, "\\t", 2); return;
    default: json_put(json, text, (size_t)snprintf(text, sizeof text, "\\u%04x", c)); return;
    }
}

static void put_string(pj_json *json, const char *text, size_t bytes)
{
    json_put(json, "\"", 1);
    size_t plain = 0; /* start of the run of bytes that need no escape */
    for (size_t i = 0; i < bytes;) {
        unsigned char c = (unsigned char)text[i];
        uint32_t code_point;
        size_t n = pj_utf8_next(text + i, bytes - i, &code_point);
        bool is_plain = c < 0x7f ? c >= 0x20 && c != '"' && c != '\\'
                                 : n > 0 && !pj_utf8_is_control(code_point); /* JSON gets printed */
        if (is_plain) {
            i += n;
            continue;
        }
        json_put(json, text + plain, i - plain);
        if (n == 0)
            json_put(json, "\xef\xbf\xbd", 3);
        else
            put_escaped(json, code_point);
        plain = i += n ? n : 1;
    }
    json_put(json, text + plain, bytes - plain);
    json_put(json, "\"", 1);
}

void pj_json_key(pj_json *json, const char *key)
{
    before_value(json);
    put_string(json, key, strlen(key));
    json_put(json, ":", 1);
    json->after_key = true;
}

void pj_json_string_n(pj_json *json, const char *text, size_t bytes)
{
    before_value(json);
    put_string(json, text, bytes);
}

void pj_json_string(pj_json *json, const char *text)
{
    if (text)
        pj_json_string_n(json, text, strlen(text));
    else
        pj_json_null(json);
}

void pj_json_int(pj_json *json, int64_t value)
{
    char text[PJ_DECIMAL_BYTES];
    before_value(json);
    json_put(json, text, pj_decimal_int(value, text));
}

void pj_json_uint(pj_json *json, uint64_t value)
{
    char text[PJ_DECIMAL_BYTES];
    before_value(json);
    json_put(json, text, pj_decimal_uint(value, text));
}

void pj_json_double(pj_json *json, double value)
{
    char text[PJ_DECIMAL_BYTES];
    if (!isfinite(value)) {
        pj_json_null(json);
        return;
    }
    before_value(json);
    json_put(json, text, pj_decimal_double(value, text));
}

void pj_json_float(pj_json *json, float value)
{
    char text[PJ_DECIMAL_BYTES];
    if (!isfinite(value)) {
        pj_json_null(json);
        return;
    }
    before_value(json);
    json_put(json, text, pj_decimal_float(value, text));
}

void pj_json_bool(pj_json *json, bool value)
{
    before_value(json);
    if (value)
        json_put(json, "true", 4);
    else
        json_put(json, "false", 5);
}

void pj_json_null(pj_json *json)
{
    before_value(json);
    json_put(json, "null", 4);
}

void pj_json_raw(pj_json *json, const char *text, size_t bytes)
{
    before_value(json);
    json_put(json, text, bytes);
}

void pj_json_kv_object_begin(pj_json *json, const char *key)
{
    pj_json_key(json, key);
    pj_json_object_begin(json);
}

void pj_json_kv_array_begin(pj_json *json, const char *key)
{
    pj_json_key(json, key);
    pj_json_array_begin(json);
}

void pj_json_kv_string(pj_json *json, const char *key, const char *text)
{
    pj_json_key(json, key);
    pj_json_string(json, text);
}

void pj_json_kv_int(pj_json *json, const char *key, int64_t value)
{
    pj_json_key(json, key);
    pj_json_int(json, value);
}

void pj_json_kv_uint(pj_json *json, const char *key, uint64_t value)
{
    pj_json_key(json, key);
    pj_json_uint(json, value);
}

void pj_json_kv_double(pj_json *json, const char *key, double value)
{
    pj_json_key(json, key);
    pj_json_double(json, value);
}

void pj_json_kv_bool(pj_json *json, const char *key, bool value)
{
    pj_json_key(json, key);
    pj_json_bool(json, value);
}

void pj_json_kv_null(pj_json *json, const char *key)
{
    pj_json_key(json, key);
    pj_json_null(json);
}

void pj_json_kv_optional(pj_json *json, const char *key, bool known, int64_t value)
{
    pj_json_key(json, key);
    if (known)
        pj_json_int(json, value);
    else
        pj_json_null(json);
}
