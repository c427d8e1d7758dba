/* Symmetric positive definite matrices with few bands: band[i * (bands + 1) + j] is the entry of
 * row i and column i - j. */
#ifndef PJ_BASE_BANDED_H
#define PJ_BASE_BANDED_H

#include <stdbool.h>
#include <stddef.h>

/* Replaces a matrix of n rows by its Cholesky factor; *log_det (may be NULL) becomes the logarithm
 * of its determinant. False: not positive definite. */
bool pj_banded_cholesky(double *band, size_t n, size_t bands, double *log_det);
/* x := A^-1 x from the factor, where only x[first..] is nonzero. */
void pj_banded_solve(const double *factor, size_t n, size_t bands, size_t first, double *x);

#endif
