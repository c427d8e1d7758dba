/* Banded Cholesky factorisation: n rows cost n x bands^2. */
#include "base/banded.h"

#include <math.h>

bool pj_banded_cholesky(double *band, size_t n, size_t bands, double *log_det)
{
    double log_sum = 0;
    for (size_t i = 0; i < n; i++) {
        double *row = band + i * (bands + 1);
        size_t left = i < bands ? i : bands;
        for (size_t j = left; j > 0; j--) {
            const double *other = row - j * (bands + 1);
            double rest = row[j];
            for (size_t k = left; k > j; k--) rest -= row[k] * other[k - j];
            row[j] = rest / other[0];
        }
        double pivot = row[0];
        for (size_t k = left; k > 0; k--) pivot -= row[k] * row[k];
        if (!(pivot > 0) || !isfinite(pivot)) return false;
        log_sum += log(pivot);
        row[0] = sqrt(pivot);
    }
    if (log_det) *log_det = log_sum;
    return true;
}

void pj_banded_solve(const double *factor, size_t n, size_t bands, size_t first, double *x)
{
    size_t width = bands + 1;
    for (size_t i = first; i < n; i++) {
        for (size_t k = i - first < bands ? i - first : bands; k > 0; k--)
            x[i] -= factor[i * width + k] * x[i - k];
        x[i] /= factor[i * width];
    }
    for (size_t i = n; i-- > 0;) {
        for (size_t k = 1; k <= bands && i + k < n; k++)
            x[i] -= factor[(i + k) * width + k] * x[i + k];
        x[i] /= factor[i * width];
    }
}
