/* Pareto front of alternatives under two costs, and its knee. Pure. */
#ifndef PJ_ANALYSIS_FRONT_H
#define PJ_ANALYSIS_FRONT_H

#include <stddef.h>
#include <stdint.h>

/* Less is better in both `x` and `y`; points with a NAN are left out. Writes the indices of the
 * points that no other point beats in one cost without losing in the other, by ascending x, and
 * returns their number. Of several identical points the first is kept. `front` has room for
 * `count`. */
size_t pj_pareto_front(const double *x, const double *y, size_t count, uint32_t *front);

/* The point of a front (indices by ascending x) that lies farthest below the straight line between
 * its ends, with both costs as shares of their range, or of the range of their logarithms where
 * all are positive and span more than a factor of 30. SIZE_MAX: fewer than three points, or the
 * front does not bend. Otherwise an index into `front`. */
size_t pj_pareto_knee(const double *x, const double *y, const uint32_t *front, size_t count);

#endif
