/*
 * Why the fast path is exact: an integer k < 2^53 and a power of ten up to 10^22 are both doubles
 * without error, so k / 10^p is the double nearest to the decimal number "k shifted by p digits",
 * which is also what parsing that text gives. If it equals the value, the text reads back equal.
 */
#include "base/decimal.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

size_t pj_decimal_uint(uint64_t value, char *text)
{
    char reversed[24];
    size_t n = 0;
    do {
        reversed[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    for (size_t i = 0; i < n; i++) text[i] = reversed[n - 1 - i];
    text[n] = 0;
    return n;
}

size_t pj_decimal_int(int64_t value, char *text)
{
    if (value >= 0) return pj_decimal_uint((uint64_t)value, text);
    text[0] = '-';
    return 1 + pj_decimal_uint(0 - (uint64_t)value, text + 1);
}

/* k / 10^p as text; p of 0 to 22, k without trailing zeros unless p is 0. */
static size_t put_scaled(uint64_t k, int p, char *text)
{
    char digits[PJ_DECIMAL_BYTES];
    int n = (int)pj_decimal_uint(k, digits), at = 0;
    if (p == 0) {
        memcpy(text, digits, (size_t)n + 1);
        return (size_t)n;
    }
    if (p - n > 4) { /* below 0.00001: with an exponent */
        text[at++] = digits[0];
        if (n > 1) text[at++] = '.';
        memcpy(text + at, digits + 1, (size_t)n - 1);
        at += n - 1;
        return (size_t)at + (size_t)snprintf(text + at, 8, "e-%02d", p - n + 1);
    }
    if (n > p) {
        memcpy(text, digits, (size_t)(n - p));
        at = n - p;
    } else {
        text[at++] = '0';
    }
    text[at++] = '.';
    for (int zeros = p - n; zeros > 0; zeros--) text[at++] = '0';
    int tail = n < p ? n : p;
    memcpy(text + at, digits + n - tail, (size_t)tail);
    at += tail;
    text[at] = 0;
    return (size_t)at;
}

/* The number of digits after the decimal point that gives `magnitude` (> 0) `digits` digits in
 * all. */
static int decimals_for_digits(double magnitude, int digits)
{
    int exponent;
    (void)frexp(magnitude, &exponent);
    int decimal = (int)floor((exponent - 1) * 0.30102999566398120); /* log10(2); one low at most */
    return digits - 1 - decimal;
}

static int strip_zeros(uint64_t *k, int p)
{
    while (p > 0 && *k % 10 == 0) {
        *k /= 10;
        p--;
    }
    return p;
}

static bool fits_double(double magnitude, uint64_t *k, int *p)
{
    *p = decimals_for_digits(magnitude, 15);
    if (*p > 22) *p = 22;
    if (*p < 0) return false;
    double scaled = magnitude * powers[*p];
    if (!(scaled < 0x1p53)) return false;
    *k = (uint64_t)(scaled + 0.5);
    return (double)*k / powers[*p] == magnitude;
}

static bool fits_float(float magnitude, uint64_t *k, int *p)
{
    for (int digits = 7; digits <= 9; digits += 2) {
        *p = decimals_for_digits((double)magnitude, digits);
        if (*p < 0 || *p > 22) return false;
        *k = (uint64_t)((double)magnitude * powers[*p] + 0.5);
        if ((float)((double)*k / powers[*p]) == magnitude) return true;
    }
    return false;
}

/* The text of a value: as k / 10^p if that is exact, else by printf with the fewest of `least` to
 * `most` digits that read back equal. */
static size_t put_shortest(double value, bool exact, uint64_t k, int p, int least, int most,
                           char *text)
{
    size_t sign = signbit(value) != 0;
    if (sign) *text = '-';
    if (value == 0) return sign + pj_decimal_uint(0, text + sign);
    if (exact) {
        p = strip_zeros(&k, p);
        return sign + put_scaled(k, p, text + sign);
    }
    int n = 0;
    for (int digits = least; digits <= most; digits++) {
        n = snprintf(text, PJ_DECIMAL_BYTES, "%.*g", digits, value);
        bool equal = most > 9 ? strtod(text, NULL) == value : strtof(text, NULL) == (float)value;
        if (equal) break;
    }
    return (size_t)n;
}

size_t pj_decimal_double(double value, char *text)
{
    uint64_t k = 0;
    int p = 0;
    bool exact = value != 0 && fits_double(fabs(value), &k, &p);
    return put_shortest(value, exact, k, p, 15, 17, text);
}

size_t pj_decimal_float(float value, char *text)
{
    uint64_t k = 0;
    int p = 0;
    bool exact = value != 0 && fits_float(fabsf(value), &k, &p);
    return put_shortest((double)value, exact, k, p, 6, 9, text);
}
