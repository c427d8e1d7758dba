/*
 * One row in SQLite's record format (its published file format, section 2.1): a header with one
 * type code per column, followed by the values. Rows are encoded column by column, so that millions
 * of them can be inserted without binding each value (sqlite_bulk.c); inserting by statement, and
 * an engine with a bulk format of its own, read the same records back with pj_record_next.
 *
 * Values are stored as SQLite itself would: integers in the fewest bytes, also in REAL columns.
 */
#ifndef PJ_STORE_RECORD_H
#define PJ_STORE_RECORD_H

#include "base/buffer.h"
#include "store/value.h"

#include <math.h>
#include <string.h>

enum { PJ_RECORD_COLUMNS = 128, PJ_VARINT_BYTES = 9 };

typedef struct pj_row_record {
    unsigned char types[PJ_RECORD_COLUMNS * PJ_VARINT_BYTES]; /* one varint per column */
    uint32_t type_bytes;
    pj_buffer body; /* failed: out of memory */
} pj_row_record;

/* SQLite's varint: seven bits per byte, most significant first; a ninth byte has eight. */
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

/* The `bytes` most significant bytes, big-endian. */
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
    /* Reserves once, so that appending numbers needs no checks. */
    pj_buffer_reserve(&record->body, (size_t)PJ_RECORD_COLUMNS * sizeof(uint64_t));
}

static inline void pj_row_record_null(pj_row_record *record)
{
    record->types[record->type_bytes++] = 0;
}

/* Type code and width of an integer by its significant bits, sign included; 0 and 1 have type codes
 * of their own and no bytes. Returns the width; sets `type`. */
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

/* The last `bytes` of the body become the value. */
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

/* ---- reading ------------------------------------------------------------------------------- */

/* A value of a record: type codes as in the file format, the bytes big-endian. */
typedef struct pj_record_value {
    uint64_t type;
    const unsigned char *bytes;
    size_t count;
} pj_record_value;

typedef struct pj_record_reader {
    const unsigned char *type, *end, *bytes;
} pj_record_reader;

static inline pj_record_reader pj_record_read(const pj_row_record *record)
{
    return (pj_record_reader){record->types, record->types + record->type_bytes,
                              (const unsigned char *)record->body.data};
}

/* The next value; false after the last. */
static inline bool pj_record_next(pj_record_reader *reader, pj_record_value *value)
{
    static const unsigned char widths[12] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0};
    if (reader->type == reader->end) return false;
    uint64_t type = 0;
    for (int i = 0; i < PJ_VARINT_BYTES; i++) {
        unsigned char byte = *reader->type++;
        type = i == 8 ? type << 8 | byte : type << 7 | (byte & 0x7f);
        if (byte < 0x80) break;
    }
    *value = (pj_record_value){type, reader->bytes, type < 12 ? widths[type] : (type - 12) / 2};
    reader->bytes += value->count;
    return true;
}

/* Decodes a value of type 1 to 6: a signed integer. */
static inline int64_t pj_record_integer(const pj_record_value *value)
{
    uint64_t bits = value->count && value->bytes[0] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = 0; i < value->count; i++) bits = bits << 8 | value->bytes[i];
    return (int64_t)bits;
}

/* The value as the type that it stands for. */
static inline pj_value pj_record_decode(const pj_record_value *value)
{
    pj_value out = {.type = PJ_VALUE_INT};
    if (value->type == 0) {
        out.type = PJ_VALUE_NULL;
    } else if (value->type < 7) {
        out.integer = pj_record_integer(value);
    } else if (value->type == 7) {
        uint64_t bits = (uint64_t)pj_record_integer(value);
        out.type = PJ_VALUE_DOUBLE;
        memcpy(&out.number, &bits, sizeof bits);
    } else if (value->type < 10) {
        out.integer = (int64_t)value->type - 8;
    } else {
        out.type = value->type % 2 ? PJ_VALUE_TEXT : PJ_VALUE_BLOB;
        out.text = (const char *)value->bytes;
        out.bytes = value->count;
    }
    return out;
}

/* The next value, decoded; false after the last. */
static inline bool pj_record_next_value(pj_record_reader *reader, pj_value *out)
{
    pj_record_value value;
    if (!pj_record_next(reader, &value)) return false;
    *out = pj_record_decode(&value);
    return true;
}

/* Bytes of the header, its own length included. */
static inline uint32_t pj_row_record_header(const pj_row_record *record)
{
    return record->type_bytes + (record->type_bytes + 1 < 0x80 ? 1 : 2);
}

#endif
