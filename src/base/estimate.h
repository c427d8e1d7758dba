/* Figures with an interval: bounds of positive figures, and texts with no digit that the interval
 * does not support. Intervals are of 95 %. */
#ifndef PJ_BASE_ESTIMATE_H
#define PJ_BASE_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>

/* Standard deviations in half a 95 % interval. */
#define PJ_Z95 1.96

/* NAN: unknown. */
typedef struct pj_bounds {
    double lo, hi;
} pj_bounds;

/* The interval of a positive figure from half of its width, symmetric in logarithms, so that it
 * stays positive: value / f to value * f. For small widths f is 1 + half / value, as by the delta
 * method; for large ones it grows in proportion and not exponentially. A figure that is not
 * positive has value -+ half. */
pj_bounds pj_bounds_of(double value, double half);

/* The decimal place that a half width supports: its first digit, or the second if the first is 1.
 * -2: hundreds, 0: ones, 3: thousandths; at most 6. */
int pj_place_of(double half);

/* A number rounded to so many significant digits: 4507 to two is "4500". Returns its length. */
size_t pj_digits_write(double value, int digits, char *text, size_t bytes);

/* "12.4 ± 0.3"; "12 (5.1 to 31)" where the two sides differ visibly; "12.4" if the interval is
 * unknown. A half width that would be shown as 0 is shown as "<0.000001". */
size_t pj_estimate_write(double value, pj_bounds bounds, char *text, size_t bytes);
/* The value alone, with the digits that the interval supports, at most three; three if it is
 * unknown. */
size_t pj_value_write(double value, pj_bounds bounds, char *text, size_t bytes);

#endif
