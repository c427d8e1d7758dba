/*
 * One row as SQLite keeps it in a file: a record, which is a header of one type a column and the
 * values behind it. Written here column by column, so that rows by the million need not pass
 * through a statement one value at a time (sqlite_bulk.c says what becomes of them).
 *
 * The format is SQLite's published file format ("2.1 Record Format"), and values become what SQLite
 * itself would make of them: whole numbers in as few bytes as hold them, in a REAL column too.
 */
#ifndef PJ_STORE_RECORD_H
#define PJ_STORE_RECORD_H

#include "base/buffer.h"

#include <math.h>
#include <string.h>

enum { PJ_RECORD_COLUMNS = 48, PJ_VARINT_BYTES = 9 };

typedef struct pj_row_record {
    unsigned char types[PJ_RECORD_COLUMNS * PJ_VARINT_BYTES]; /* varints, one a column */
    uint32_t type_bytes;
    pj_buffer body; /* failed: no memory */
} pj_row_record;

/* Seven bits a byte, the highest first; the ninth has eight. */
static inline uint32_t pj_varint_write(unsigned char *out, uint64_t value)
{
    if (value < 0x80) {
        out[0] = (unsigned char)value;
        return 1;
    }
    if (value < 0x4000) {
        out[0] = (unsigned char)(value >> 7 | 0x80);
        out[1] = (unsigned char)(value & 0x7f);
        return 2;
    }
    if (value >> 56) {
        for (int i = 0; i < 8; i++) out[i] = (unsigned char)(value >> (57 - 7 * i) | 0x80);
        out[8] = (unsigned char)value;
        return 9;
    }
    uint32_t bytes = 3;
    while (value >> (7 * bytes)) bytes++;
    for (uint32_t i = 0; i < bytes; i++)
        out[i] =
            (unsigned char)((value >> (7 * (bytes - 1 - i)) & 0x7f) | (i + 1 < bytes ? 0x80u : 0u));
    return bytes;
}

/* The highest `bytes` of eight, highest first. */
static inline void pj_big_endian_write(unsigned char *out, uint64_t value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    memcpy(out, &value, sizeof value);
}

static inline void pj_row_record_begin(pj_row_record *record)
{
    record->type_bytes = 0;
    pj_buffer_clear(&record->body);
    /* Numbers are put down without asking for room again. */
    pj_buffer_reserve(&record->body, (size_t)PJ_RECORD_COLUMNS * sizeof(uint64_t));
}

static inline void pj_row_record_null(pj_row_record *record)
{
    record->types[record->type_bytes++] = 0;
}

/* Type and width of a whole number by its significant bits, sign included; 0 and 1 have types of
 * their own and no bytes. Returns the width; `type` is set. */
static inline uint32_t pj_integer_width(int64_t value, unsigned char *type)
{
    static const unsigned char widths[9] = {1, 1, 2, 3, 4, 6, 6, 8, 8};
    static const unsigned char types[9] = {0, 1, 2, 3, 4, 0, 5, 0, 6};
    if (value == 0 || value == 1) {
        *type = (unsigned char)(8 + value);
        return 0;
    }
    uint64_t magnitude = (uint64_t)(value ^ value >> 63);
    uint32_t bits = magnitude ? 65 - (uint32_t)__builtin_clzll(magnitude) : 1;
    uint32_t width = widths[(bits + 7) / 8];
    *type = types[width];
    return width;
}

static inline void pj_row_record_int(pj_row_record *record, int64_t value)
{
    pj_buffer *body = &record->body;
    uint32_t width = pj_integer_width(value, &record->types[record->type_bytes++]);
    if (!width || body->capacity - body->length < sizeof value) return;
    pj_big_endian_write((unsigned char *)body->data + body->length,
                        (uint64_t)value << (64 - 8 * width));
    body->length += width;
}

/* NAN: NULL */
static inline void pj_row_record_double(pj_row_record *record, double value)
{
    pj_buffer *body = &record->body;
    if (fabs(value) < 0x1p47) {
        int64_t whole = (int64_t)value;
        if ((double)whole == value) {
            pj_row_record_int(record, whole);
            return;
        }
    } else if (isnan(value)) {
        pj_row_record_null(record);
        return;
    }
    uint64_t bits;
    record->types[record->type_bytes++] = 7;
    if (body->capacity - body->length < sizeof bits) return;
    memcpy(&bits, &value, sizeof bits);
    pj_big_endian_write((unsigned char *)body->data + body->length, bits);
    body->length += sizeof bits;
}

/* The last `bytes` of the body are the value. */
static inline void pj_row_record_text_written(pj_row_record *record, size_t bytes, bool blob)
{
    record->type_bytes +=
        pj_varint_write(record->types + record->type_bytes, 2 * (uint64_t)bytes + (blob ? 12 : 13));
    pj_buffer_reserve(&record->body, (size_t)PJ_RECORD_COLUMNS * sizeof(uint64_t));
}

static inline void pj_row_record_text(pj_row_record *record, const char *text, size_t bytes,
                                      bool blob)
{
    pj_buffer_append(&record->body, text, bytes);
    pj_row_record_text_written(record, bytes, blob);
}

/* Bytes of the header, its own length included. */
static inline uint32_t pj_row_record_header(const pj_row_record *record)
{
    return record->type_bytes + (record->type_bytes + 1 < 0x80 ? 1 : 2);
}

#endif
