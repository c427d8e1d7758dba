/*
 * Values in PostgreSQL's binary formats.
 *
 * Text that is not valid UTF-8 (a token that is half a character), or that contains a zero byte,
 * cannot be stored in a text column: it is stored as U+FFFD, "\x" and its bytes in hexadecimal, and
 * so is a text that happens to begin like that. Every text comes back as it was.
 */
#include "store/postgres.h"

#include "base/utf8.h"

#include <math.h>
#include <string.h>

static const char marker[] = "\xef\xbf\xbd\\x";

enum { MARKER_BYTES = sizeof marker - 1, DIGITS_MAX = 64 };

/* ---- out ------------------------------------------------------------------------------------- */

static bool postgres_value_write_text(pj_buffer *out, const pj_value *value)
{
    static const char digits[] = "0123456789abcdef";
    const char *text = value->text;
    size_t bytes = value->bytes;
    bool plain = pj_utf8_valid(text, bytes) && (!bytes || !memchr(text, 0, bytes)) &&
                 (bytes < MARKER_BYTES || memcmp(text, marker, MARKER_BYTES) != 0);
    if (plain) return pj_buffer_append(out, text, bytes);
    pj_buffer_append(out, marker, MARKER_BYTES);
    for (size_t i = 0; i < bytes; i++) {
        pj_buffer_char(out, digits[(unsigned char)text[i] >> 4]);
        pj_buffer_char(out, digits[(unsigned char)text[i] & 15]);
    }
    return !out->failed;
}

static bool write_big_endian(pj_buffer *out, uint64_t bits, size_t bytes)
{
    unsigned char raw[8];
    for (size_t i = 0; i < bytes; i++) raw[i] = (unsigned char)(bits >> (8 * (bytes - 1 - i)));
    return pj_buffer_append(out, raw, bytes);
}

static bool write_integer(pj_buffer *out, const pj_value *value, size_t bytes)
{
    int64_t integer = value->integer;
    if (value->type == PJ_VALUE_DOUBLE && fabs(value->number) < 0x1p62)
        integer = (int64_t)value->number;
    else if (value->type != PJ_VALUE_INT)
        return false;
    return write_big_endian(out, (uint64_t)integer, bytes);
}

static bool write_number(pj_buffer *out, const pj_value *value)
{
    double number = value->type == PJ_VALUE_INT ? (double)value->integer : value->number;
    uint64_t bits;
    if (value->type != PJ_VALUE_INT && value->type != PJ_VALUE_DOUBLE) return false;
    memcpy(&bits, &number, sizeof bits);
    return write_big_endian(out, bits, sizeof bits);
}

bool pj_pg_write(pj_buffer *out, uint32_t type, const pj_value *value)
{
    bool is_text = value->type == PJ_VALUE_TEXT || value->type == PJ_VALUE_BLOB;
    switch (type) {
    case PJ_PG_INT8: return write_integer(out, value, 8);
    case PJ_PG_INT4: return write_integer(out, value, 4);
    case PJ_PG_INT2: return write_integer(out, value, 2);
    case PJ_PG_FLOAT8: return write_number(out, value);
    case PJ_PG_BOOL: return pj_buffer_char(out, value->integer != 0);
    case PJ_PG_BYTES: return is_text && pj_buffer_append(out, value->text, value->bytes);
    default: return is_text && postgres_value_write_text(out, value);
    }
}

/* ---- in -------------------------------------------------------------------------------------- */

static int64_t read_big_endian(const char *bytes, size_t count)
{
    uint64_t bits = count && (signed char)bytes[0] < 0 ? UINT64_MAX : 0;
    for (size_t i = 0; i < count; i++) bits = bits << 8 | (unsigned char)bytes[i];
    return (int64_t)bits;
}

/* Digits to base 10,000 with the weight of the first; sums of integers have this type. */
static void read_numeric(const char *bytes, size_t count, pj_value *value)
{
    *value = (pj_value){.type = PJ_VALUE_NULL};
    if (count < 8) return;
    int64_t digits = read_big_endian(bytes, 2), weight = read_big_endian(bytes + 2, 2);
    int64_t sign = read_big_endian(bytes + 4, 2) & 0xffff;
    if (sign == 0xc000 || digits < 0 || digits > DIGITS_MAX || count < 8 + 2 * (size_t)digits)
        return;
    double number = 0;
    int64_t integer = 0;
    bool is_whole = weight < 4; /* of less than 20 decimals */
    for (int64_t i = 0; i < digits; i++) {
        int64_t digit = read_big_endian(bytes + 8 + 2 * i, 2);
        number += (double)digit * pow(10000, (double)(weight - i));
        if (i > weight && digit) is_whole = false;
        if (i <= weight && is_whole) integer = integer * 10000 + digit;
    }
    for (int64_t i = digits; i <= weight && is_whole; i++) integer *= 10000;
    if (is_whole)
        *value = pj_value_int(sign ? -integer : integer);
    else
        *value = pj_value_double(sign ? -number : number);
}

static int postgres_value_hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void postgres_value_read_text(const char *bytes, size_t count, pj_arena *scratch,
                                     pj_value *value)
{
    *value = (pj_value){.type = PJ_VALUE_TEXT, .text = bytes, .bytes = count};
    if (count < MARKER_BYTES || memcmp(bytes, marker, MARKER_BYTES) != 0 ||
        (count - MARKER_BYTES) % 2)
        return;
    size_t n = 0;
    char *decoded = pj_arena_alloc(scratch, count, 1);
    if (!decoded) return;
    for (size_t i = MARKER_BYTES; i < count; i += 2) {
        int high = postgres_value_hex_digit(bytes[i]), low = postgres_value_hex_digit(bytes[i + 1]);
        if (high < 0 || low < 0) return; /* somebody else's text */
        decoded[n++] = (char)(high << 4 | low);
    }
    value->text = decoded;
    value->bytes = (count - MARKER_BYTES) / 2;
    if (!pj_utf8_valid(value->text, value->bytes)) value->type = PJ_VALUE_BLOB;
}

void pj_pg_read(uint32_t type, const char *bytes, size_t count, pj_arena *scratch, pj_value *value)
{
    uint64_t bits;
    switch (type) {
    case PJ_PG_INT8:
    case PJ_PG_INT4:
    case PJ_PG_INT2: *value = pj_value_int(read_big_endian(bytes, count)); break;
    case PJ_PG_BOOL: *value = pj_value_int(bytes[0] != 0); break;
    case PJ_PG_FLOAT8:
        bits = (uint64_t)read_big_endian(bytes, count);
        *value = (pj_value){.type = PJ_VALUE_DOUBLE};
        memcpy(&value->number, &bits, sizeof bits);
        break;
    case PJ_PG_NUMERIC: read_numeric(bytes, count, value); break;
    case PJ_PG_BYTES: *value = pj_value_bytes(PJ_VALUE_BLOB, bytes, count); break;
    default: postgres_value_read_text(bytes, count, scratch, value); break;
    }
}
