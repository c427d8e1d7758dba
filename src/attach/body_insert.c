/* Copies a body range by range and inserts the member at the marked offsets. */
#include "attach/body_insert.h"

#include "http/head.h"

#include <ctype.h>
#include <inttypes.h>

static void body_insert_copy(const pj_body_insert *in, const char *bytes, size_t from, size_t to,
                             pj_buffer *out)
{
    for (uint32_t i = 0; i < in->count; i++) {
        if (in->at[i] < from || in->at[i] >= to) continue;
        pj_buffer_append(out, bytes + from, in->at[i] - from);
        if (!in->is_empty[i]) pj_buffer_char(out, ',');
        pj_buffer_append(out, in->member, in->member_bytes);
        from = in->at[i];
    }
    pj_buffer_append(out, bytes + from, to - from);
}

static size_t growth(const pj_body_insert *in, size_t from, size_t to)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < in->count; i++)
        if (in->at[i] >= from && in->at[i] < to) bytes += in->member_bytes + !in->is_empty[i];
    return bytes;
}

/* Parses a chunk's size line: the line end of the previous chunk, if any, the size and its
 * extensions. */
static void copy_size_line(const char *bytes, pj_body_part line, size_t grown, pj_buffer *out)
{
    size_t digits = bytes[0] == '\r' ? 2 : 0, end = digits;
    while (isxdigit((unsigned char)bytes[end])) end++;
    pj_buffer_append(out, bytes, digits);
    if (grown)
        pj_buffer_printf(out, "%" PRIx64, line.chunk_bytes + grown);
    else
        pj_buffer_append(out, bytes + digits, end - digits);
    pj_buffer_append(out, bytes + end, line.bytes - end);
}

void pj_body_insert_plain(const pj_body_insert *in, const char *bytes, size_t count, pj_buffer *to)
{
    body_insert_copy(in, bytes, 0, count, to);
}

void pj_body_insert_chunked(const pj_body_insert *in, const char *bytes, size_t count,
                            pj_buffer *to)
{
    pj_body body;
    size_t at = count >= 2 && bytes[0] == '\r' ? 2 : 0;
    pj_body_begin(&body, PJ_BODY_CHUNKED, 0);
    pj_buffer_append(to, bytes, at);
    while (at < count && !body.done) {
        pj_body_part part = pj_body_next(&body, bytes + at, count - at);
        size_t end = at + part.bytes;
        if (part.kind == PJ_PART_CHUNK)
            copy_size_line(bytes + at, part, growth(in, end, end + (size_t)part.chunk_bytes), to);
        else
            body_insert_copy(in, bytes, at, end, to);
        at = end;
    }
}
