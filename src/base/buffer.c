/* Bounded growing buffer: doubling up to the maximum. */
#include "base/buffer.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

void pj_buffer_init(pj_buffer *buffer, size_t max_bytes)
{
    *buffer = (pj_buffer){.max_bytes = max_bytes};
}

void pj_buffer_fini(pj_buffer *buffer)
{
    pj_free(buffer->data);
    *buffer = (pj_buffer){.max_bytes = buffer->max_bytes};
}

void pj_buffer_clear(pj_buffer *buffer)
{
    buffer->length = 0;
    buffer->failed = false;
    if (buffer->data) buffer->data[0] = 0;
}

bool pj_buffer_reserve(pj_buffer *buffer, size_t count)
{
    if (buffer->failed) return false;
    size_t needed;
    if (pj_add_overflows(buffer->length, count, &needed) || needed > buffer->max_bytes) {
        buffer->failed = true;
        return false;
    }
    if (needed < buffer->capacity) return true;
    size_t capacity = buffer->capacity ? buffer->capacity : 64;
    while (capacity <= needed) capacity *= 2;
    char *data = pj_resize(buffer->data, capacity, 1);
    if (!data) {
        buffer->failed = true;
        return false;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

bool pj_buffer_append(pj_buffer *buffer, const void *bytes, size_t count)
{
    if (!pj_buffer_reserve(buffer, count)) return false;
    if (count) memcpy(buffer->data + buffer->length, bytes, count);
    buffer->length += count;
    buffer->data[buffer->length] = 0;
    return true;
}

bool pj_buffer_text(pj_buffer *buffer, const char *text)
{
    return pj_buffer_append(buffer, text, strlen(text));
}

bool pj_buffer_char(pj_buffer *buffer, char c)
{
    return pj_buffer_append(buffer, &c, 1);
}

bool pj_buffer_printf(pj_buffer *buffer, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int count = vsnprintf(NULL, 0, format, args);
    va_end(args);
    bool done = count >= 0 && pj_buffer_reserve(buffer, (size_t)count);
    if (done) {
        vsnprintf(buffer->data + buffer->length, (size_t)count + 1, format, again);
        buffer->length += (size_t)count;
    }
    va_end(again);
    return done;
}

char *pj_buffer_take(pj_buffer *buffer)
{
    if (!buffer->failed && !buffer->data) pj_buffer_append(buffer, "", 0);
    char *data = buffer->failed ? NULL : buffer->data;
    if (data) *buffer = (pj_buffer){.max_bytes = buffer->max_bytes};
    return data;
}

const char *pj_buffer_get(const pj_buffer *buffer)
{
    return buffer->data ? buffer->data : "";
}

pj_status pj_buffer_status(const pj_buffer *buffer, const char *what, pj_error *err)
{
    if (!buffer->failed) return PJ_OK;
    return pj_fail(err, PJ_E_FULL, "%s does not fit in memory or its bound of %zu bytes", what,
                   buffer->max_bytes);
}
