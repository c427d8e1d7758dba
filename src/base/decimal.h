/* Shortest decimal text that reads back equal, fast because exports print millions of numbers.
 * Values with at most 15 significant digits (floats: 9) use integer arithmetic; the rest goes
 * through printf. */
#ifndef PJ_BASE_DECIMAL_H
#define PJ_BASE_DECIMAL_H

#include <stddef.h>
#include <stdint.h>

enum { PJ_DECIMAL_BYTES = 40 };

/* Finite values only; `text` holds PJ_DECIMAL_BYTES, the result is valid JSON, its length is
 * returned. */
size_t pj_decimal_double(double value, char *text);
size_t pj_decimal_float(float value, char *text); /* reads back equal as float */
size_t pj_decimal_int(int64_t value, char *text);
size_t pj_decimal_uint(uint64_t value, char *text);

/* The value of a hexadecimal digit; -1: it is none. */
static inline int pj_hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

#endif
