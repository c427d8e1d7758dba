/* Linear algebra for the estimator on symmetric positive definite matrices in the caller's memory:
 * small dense ones (n of 10 to a few hundred, row-major) and tridiagonal ones of any length. */
#ifndef PJ_ENERGY_LINEAR_H
#define PJ_ENERGY_LINEAR_H

#include <stdbool.h>
#include <stddef.h>

/* Replaces the lower triangle of a[n][n] by its Cholesky factor and overwrites row 0's upper
 * triangle; false when it is not positive definite (to rounding). *log_det (may be NULL) becomes
 * log |a|. */
bool pj_cholesky(double *a, size_t n, double *log_det);
/* x := a^-1 x from the factor. */
void pj_cholesky_solve(const double *factor, size_t n, double *x);
/* inverse[n][n] := a^-1 from the factor, both triangles. */
void pj_cholesky_inverse(const double *factor, size_t n, double *inverse);
/* Ratio of the largest to the smallest eigenvalue of the symmetric a[n][n], which is overwritten
 * (cyclic Jacobi); INFINITY when it is singular to rounding, NAN for n == 0. */
double pj_condition_number(double *a, size_t n);

/* Inverts a tridiagonal V of n rows with the given `diagonal` and subdiagonal `below` (below[0] is
 * ignored) into a factored form: for k < j, V^-1[j][k] is V^-1[j][j] times the product of step[k +
 * 1..j]. `below` becomes step, `diagonal` the diagonal of V^-1; step[0] is 0, as is step[i] where
 * rows i and i - 1 are uncorrelated. False: not positive definite. */
bool pj_tridiagonal_invert(double *diagonal, double *below, size_t n, double *log_det);

#endif
