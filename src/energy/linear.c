/* Cholesky and Jacobi with row-wise inner loops, which the compiler vectorises; dot products along
 * a row would be latency-bound. */
#include "energy/linear.h"

#include <math.h>

/* to[0..n) -= factor x from[0..n) */
static void subtract_scaled(double *restrict to, const double *restrict from, double factor,
                            size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] -= factor * from[i];
}

/* Right-looking: each finished column is subtracted from all that follow. Row 0's upper triangle,
 * otherwise unused, is scratch for the column. */
bool pj_cholesky(double *a, size_t n, double *log_det)
{
    double log_sum = 0;
    for (size_t j = 0; j < n; j++) {
        double d = a[j * n + j];
        if (!(d > 0) || !isfinite(d)) return false;
        d = sqrt(d);
        a[j * n + j] = d;
        log_sum += 2 * log(d);
        double *column = a; /* [i]: a[i][j] for i > j */
        for (size_t i = j + 1; i < n; i++) column[i] = a[i * n + j] /= d;
        for (size_t i = j + 1; i < n; i++)
            subtract_scaled(a + i * n + j + 1, column + j + 1, column[i], i - j);
    }
    if (log_det) *log_det = log_sum;
    return true;
}

void pj_cholesky_solve(const double *factor, size_t n, double *x)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++) x[i] -= factor[i * n + k] * x[k];
        x[i] /= factor[i * n + i];
    }
    for (size_t i = n; i-- > 0;) {
        for (size_t k = i + 1; k < n; k++) x[i] -= factor[k * n + i] * x[k];
        x[i] /= factor[i * n + i];
    }
}

/* All columns of the identity at once, each solved as above. */
void pj_cholesky_inverse(const double *factor, size_t n, double *inverse)
{
    for (size_t i = 0; i < n; i++) {
        double *row = inverse + i * n;
        for (size_t c = 0; c < n; c++) row[c] = c == i;
        for (size_t k = 0; k < i; k++) /* column c starts in row c */
            subtract_scaled(row, inverse + k * n, factor[i * n + k], k + 1);
        for (size_t c = 0; c <= i; c++) row[c] /= factor[i * n + i];
    }
    for (size_t i = n; i-- > 0;) {
        double *row = inverse + i * n;
        for (size_t k = i + 1; k < n; k++)
            subtract_scaled(row, inverse + k * n, factor[k * n + i], n);
        for (size_t c = 0; c < n; c++) row[c] /= factor[i * n + i];
    }
}

static void linear_rotate(double *a, size_t n, size_t p, size_t q)
{
    double apq = a[p * n + q];
    double theta = (a[q * n + q] - a[p * n + p]) / (2 * apq);
    double t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1), s = t * c;
    for (size_t k = 0; k < n; k++) {
        double akp = a[k * n + p], akq = a[k * n + q];
        a[k * n + p] = c * akp - s * akq;
        a[k * n + q] = s * akp + c * akq;
    }
    for (size_t k = 0; k < n; k++) {
        double apk = a[p * n + k], aqk = a[q * n + k];
        a[p * n + k] = c * apk - s * aqk;
        a[q * n + k] = s * apk + c * aqk;
    }
}

double pj_condition_number(double *a, size_t n)
{
    if (n == 0) return NAN;
    double size = 0;
    for (size_t i = 0; i < n; i++) size += fabs(a[i * n + i]);
    for (int sweep = 0; sweep < 60; sweep++) {
        double off = 0;
        for (size_t p = 0; p < n; p++)
            for (size_t q = p + 1; q < n; q++) {
                double v = fabs(a[p * n + q]);
                off = v > off ? v : off;
                if (v > size * 1e-300 && v > 1e-18 * size) linear_rotate(a, n, p, q);
            }
        if (off <= 1e-15 * size) break;
    }
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < n; i++) {
        double v = a[i * n + i];
        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    return least > most * 1e-16 ? most / least : INFINITY;
}

/* V = L D L' with L unit lower bidiagonal: row i of L has below[i] / pivot[i - 1] left of its 1.
 * Backwards from the last row, V^-1[i][i] = 1 / pivot[i] + step^2 V^-1[i + 1][i + 1]. All terms of
 * both sums have the sign of the sum, so cancellation occurs only in the pivots. */
bool pj_tridiagonal_invert(double *diagonal, double *below, size_t n, double *log_det)
{
    double product = 1, log_sum = 0; /* product of many pivots per logarithm */
    for (size_t i = 0; i < n; i++) {
        double step = i > 0 && below[i] != 0 ? -below[i] * diagonal[i - 1] : 0;
        double pivot = diagonal[i] + (step != 0 ? below[i] * step : 0);
        if (!(pivot > 0) || !isfinite(pivot)) return false;
        below[i] = step;
        diagonal[i] = 1 / pivot;
        product *= pivot;
        if (product < 1e-100 || product > 1e100) log_sum += log(product), product = 1;
    }
    for (size_t i = n; i-- > 1;) diagonal[i - 1] += below[i] * below[i] * diagonal[i];
    *log_det = log_sum + log(product);
    return true;
}
