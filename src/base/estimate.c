/* Bounds, and texts of figures with their bounds. */
#include "base/estimate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DECIMALS = 6, DIGITS = 3 };

/* Up to this relative half width the two sides of an interval look alike. */
static const double narrow = 0.25;

pj_bounds pj_bounds_of(double value, double half)
{
    if (isnan(value) || !(half >= 0)) return (pj_bounds){NAN, NAN};
    if (!(value > 0)) return (pj_bounds){value - half, value + half};
    double factor = exp(asinh(half / value));
    return (pj_bounds){value / factor, value * factor};
}

int pj_place_of(double half)
{
    if (!(half > 0) || isinf(half)) return MOST_DECIMALS;
    double exponent = floor(log10(half));
    int place = (int)-exponent + (half / pow(10, exponent) < 1.95);
    return place < MOST_DECIMALS ? place : MOST_DECIMALS;
}

/* The place of the last of `digits` significant digits. */
static int place_of_digits(double value, int digits)
{
    if (value == 0 || !isfinite(value)) return digits - 1;
    double size = fabs(value);
    int place = digits - 1 - (int)floor(log10(size));
    bool carries = size * pow(10, place) >= pow(10, digits) - 0.5;
    return place - carries;
}

/* Rounded at a decimal place: 4507 at -2 is "4500". Returns its length. */
static size_t rounded_write(double value, int place, char *text, size_t bytes)
{
    double unit = pow(10, place);
    double rounded = place < 0 ? round(value * unit) / unit : value;
    if (fabs(rounded) * unit < 0.5) rounded = 0; /* not "-0" */
    int length = snprintf(text, bytes, "%.*f", place > 0 ? place : 0, rounded);
    return length > 0 ? (size_t)length : 0;
}

size_t pj_digits_write(double value, int digits, char *text, size_t bytes)
{
    return rounded_write(value, place_of_digits(value, digits), text, bytes);
}

static void append(char *text, size_t bytes, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s", more);
}

/* To two significant digits. */
static void append_end(char *text, size_t bytes, double end)
{
    char number[64];
    pj_digits_write(end, 2, number, sizeof number);
    append(text, bytes, number);
}

static void write_sides(double value, pj_bounds b, char *text, size_t bytes)
{
    rounded_write(value, pj_place_of(value - b.lo), text, bytes);
    append(text, bytes, " (");
    append_end(text, bytes, b.lo);
    append(text, bytes, " to ");
    append_end(text, bytes, b.hi);
    append(text, bytes, ")");
}

static void write_half(double value, double half, char *text, size_t bytes)
{
    char number[64];
    int place = pj_place_of(half);
    double least = pow(10, -place);
    bool below = half < least / 2;
    rounded_write(value, place, text, bytes);
    append(text, bytes, below ? " ± <" : " ± ");
    rounded_write(below ? least : half, place, number, sizeof number);
    append(text, bytes, number);
}

static bool is_known(pj_bounds b)
{
    return isfinite(b.lo) && isfinite(b.hi) && b.hi > b.lo;
}

size_t pj_estimate_write(double value, pj_bounds b, char *text, size_t bytes)
{
    double half = (b.hi - b.lo) / 2;
    if (!is_known(b)) return pj_value_write(value, b, text, bytes);
    if (b.lo > 0 && half > narrow * value)
        write_sides(value, b, text, bytes);
    else
        write_half(value, half, text, bytes);
    return strlen(text);
}

size_t pj_value_write(double value, pj_bounds b, char *text, size_t bytes)
{
    int place = place_of_digits(value, DIGITS);
    if (is_known(b)) {
        int supported = pj_place_of(fmin(value - b.lo, b.hi - value));
        if (supported < place) place = supported;
    }
    return rounded_write(value, place, text, bytes);
}
