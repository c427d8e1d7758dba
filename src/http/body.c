#include "http/body.h"

#include "base/decimal.h"

enum {
    SIZE,
    EXTENSION,
    SIZE_LF,
    CHUNK,
    CHUNK_CR,
    CHUNK_LF,
    TRAILER,
    TRAILER_LINE,
    TRAILER_LF,
    LAST_LF
};
enum { MOST_SIZE_DIGITS = 15, MOST_LINE_BYTES = 16 << 10 };

void pj_body_begin(pj_body *body, pj_body_kind kind, uint64_t length)
{
    *body = (pj_body){.kind = kind, .left = kind == PJ_BODY_LENGTH ? length : 0};
    body->done = kind == PJ_BODY_NONE || (kind == PJ_BODY_LENGTH && length == 0);
}

/* Consumes one byte of framing. Returns the kind of part that ends with it, or FRAMING. */
static pj_body_part_kind body_take_framing(pj_body *b, char c)
{
    int digit = pj_hex_digit(c);
    switch (b->state) {
    case SIZE:
        if (digit >= 0) {
            if (b->digits++ >= MOST_SIZE_DIGITS) return PJ_PART_BROKEN;
            b->left = b->left * 16 + (unsigned)digit;
            return PJ_PART_FRAMING;
        }
        if (!b->digits) return PJ_PART_BROKEN;
        b->state = c == '\r' ? SIZE_LF : EXTENSION;
        return c == '\r' || c == ';' || c == ' ' || c == '\t' ? PJ_PART_FRAMING : PJ_PART_BROKEN;
    case EXTENSION:
        if (c == '\r') b->state = SIZE_LF;
        return c == '\n' || ++b->line_bytes > MOST_LINE_BYTES ? PJ_PART_BROKEN : PJ_PART_FRAMING;
    case SIZE_LF:
        b->digits = 0;
        b->line_bytes = 0;
        b->state = b->left ? CHUNK : TRAILER;
        if (c != '\n') return PJ_PART_BROKEN;
        return b->left ? PJ_PART_CHUNK : PJ_PART_FRAMING;
    case CHUNK_CR: b->state = CHUNK_LF; return c == '\r' ? PJ_PART_FRAMING : PJ_PART_BROKEN;
    case CHUNK_LF: b->state = SIZE; return c == '\n' ? PJ_PART_FRAMING : PJ_PART_BROKEN;
    case TRAILER:
        b->state = c == '\r' ? LAST_LF : TRAILER_LINE;
        return c == '\n' ? PJ_PART_BROKEN : PJ_PART_FRAMING;
    case TRAILER_LINE:
        if (c == '\r') b->state = TRAILER_LF;
        return c == '\n' || ++b->line_bytes > MOST_LINE_BYTES ? PJ_PART_BROKEN : PJ_PART_FRAMING;
    case TRAILER_LF: b->state = TRAILER; return c == '\n' ? PJ_PART_FRAMING : PJ_PART_BROKEN;
    default: b->done = true; return c == '\n' ? PJ_PART_END : PJ_PART_BROKEN;
    }
}

static pj_body_part body_take_data(pj_body *b, size_t count)
{
    size_t bytes = count < b->left ? count : (size_t)b->left;
    b->left -= bytes;
    if (b->left == 0 && b->kind == PJ_BODY_LENGTH) b->done = true;
    if (b->left == 0 && b->kind == PJ_BODY_CHUNKED) b->state = CHUNK_CR;
    return (pj_body_part){.kind = PJ_PART_DATA, .bytes = bytes};
}

pj_body_part pj_body_next(pj_body *b, const char *bytes, size_t count)
{
    pj_body_part part = {0};
    if (b->done || count == 0) return (pj_body_part){.kind = PJ_PART_END};
    if (b->kind == PJ_BODY_UNTIL_CLOSE) return (pj_body_part){PJ_PART_DATA, count, 0};
    if (b->kind == PJ_BODY_LENGTH || b->state == CHUNK) return body_take_data(b, count);
    while (part.bytes < count && b->state != CHUNK && part.kind == PJ_PART_FRAMING)
        part.kind = body_take_framing(b, bytes[part.bytes++]);
    if (part.kind == PJ_PART_CHUNK) part.chunk_bytes = b->left;
    return part;
}

bool pj_body_between(const pj_body *b)
{
    return b->kind == PJ_BODY_CHUNKED && b->state == SIZE && !b->digits;
}

bool pj_body_ending(const pj_body *b)
{
    return b->kind == PJ_BODY_CHUNKED && !b->done && b->state >= TRAILER;
}
