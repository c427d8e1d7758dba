/* Wilson's interval of a share, and the exact sign test (McNemar's) on paired outcomes. */
#include "analysis/score.h"

#include "base/estimate.h"

#include <math.h>
#include <string.h>

pj_score pj_score_of(const char *outcomes)
{
    pj_score s = {.share = NAN, .lo = NAN, .hi = NAN};
    for (const char *at = outcomes; at && *at; at++) {
        s.tasks++;
        s.right += *at == '1';
    }
    if (!s.tasks) return s;
    double n = s.tasks, z = PJ_Z95, share = s.right / n, scale = 1 + z * z / n;
    double middle = (share + z * z / (2 * n)) / scale;
    double half = z / scale * sqrt(share * (1 - share) / n + z * z / (4 * n * n));
    s.share = share;
    s.lo = s.right ? middle - half : 0;
    s.hi = s.right < s.tasks ? middle + half : 1;
    return s;
}

/* The probability of at most `fewest` heads in `n` throws of a coin. */
static double at_most(uint32_t fewest, uint32_t n)
{
    double log_share = -(double)n * M_LN2, sum = exp(log_share); /* of throws with k heads */
    for (uint32_t k = 1; k <= fewest; k++) {
        log_share += log((n - k + 1.0) / k);
        sum += exp(log_share);
    }
    return sum;
}

pj_score_contrast pj_score_compare(const char *a, const char *b)
{
    pj_score_contrast c = {.p = NAN};
    if (!a || !b || strlen(a) != strlen(b)) return c;
    for (; *a; a++, b++) {
        c.only_a += *a == '1' && *b != '1';
        c.only_b += *b == '1' && *a != '1';
    }
    uint32_t different = c.only_a + c.only_b;
    uint32_t fewest = c.only_a < c.only_b ? c.only_a : c.only_b;
    if (different >= PJ_SCORE_LEAST_DIFFERENT) c.p = fmin(1, 2 * at_most(fewest, different));
    return c;
}
