/* How far energies as measured lie from what class powers predict, by how long a time they are of:
 * block sums of 1, 2, 4, ... segments. Noise that is new in each segment falls with the root of
 * their number; errors that neighbours share with opposite signs fall faster, slow ones slower. */
#include "energy/attribute.h"

#include <math.h>

enum { FEWEST_BLOCKS = 8 }; /* to judge a length by */

/* Root mean square of the differences, relative to that of the energies. */
static double relative_rms(const double *measured, const double *expected, size_t count)
{
    double squares = 0, energies = 0;
    for (size_t i = 0; i < count; i++) {
        double off = measured[i] - expected[i];
        if (!isfinite(off)) continue;
        squares += off * off;
        energies += measured[i] * measured[i];
    }
    return energies > 0 ? sqrt(squares / energies) : 0;
}

static size_t add_pairs(double *x, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) x[i] = x[2 * i] + x[2 * i + 1];
    return count / 2;
}

void pj_misfit_measure(double *measured_mj, double *expected_mj, size_t count, int64_t length_ns,
                       double least, pj_misfit *misfit)
{
    *misfit = (pj_misfit){.segment_ns = count ? (double)length_ns / (double)count : 1};
    do {
        double at_least = least / sqrt((double)(1ull << misfit->scales));
        double rms = relative_rms(measured_mj, expected_mj, count);
        misfit->relative[misfit->scales++] = fmax(rms, at_least);
        add_pairs(expected_mj, count);
        count = add_pairs(measured_mj, count);
    } while (count >= FEWEST_BLOCKS && misfit->scales < PJ_MISFIT_SCALES);
}

double pj_misfit_relative(const pj_misfit *misfit, int64_t ns)
{
    double segments = (double)ns / misfit->segment_ns;
    if (misfit->scales == 0) return 0;
    if (!(segments > 1)) return misfit->relative[0];
    double octave = log2(segments);
    unsigned k = (unsigned)octave, last = misfit->scales - 1;
    if (k >= last) return misfit->relative[last] * sqrt((double)(1ull << last) / segments);
    double part = octave - k;
    return (1 - part) * misfit->relative[k] + part * misfit->relative[k + 1];
}
