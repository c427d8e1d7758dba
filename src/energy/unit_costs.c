/* Energy per FLOP and per byte, by weighted least squares over the class energies of a fit. Two
 * unknowns, so the normal equations are written out. */
#include "energy/attribute.h"

#include <math.h>

typedef struct normal2 {
    double ff, fb, bb, fe, be, ee;
    int count;
} normal2;

static normal2 unit_costs_add_up(const pj_fit *fit, const double *flops, const double *bytes)
{
    normal2 n = {0};
    for (uint32_t c = 0; c < fit->class_count; c++) {
        double seconds = fit->time_ms[c] * 1e-3;
        double energy_pj = fit->power_mw[c] * seconds * 1e9;
        if (!isfinite(flops[c]) || !isfinite(bytes[c]) || flops[c] + bytes[c] <= 0 || seconds <= 0)
            continue;
        /* Model error: two coefficients cannot explain a class better than to about 20 %. */
        double sd = sqrt(fmax(fit->covariance[c * fit->class_count + c], 0)) * seconds * 1e9;
        double variance = sd * sd + 0.04 * energy_pj * energy_pj;
        if (!(variance > 0)) continue;
        double w = 1 / variance;
        n.ff += w * flops[c] * flops[c];
        n.fb += w * flops[c] * bytes[c];
        n.bb += w * bytes[c] * bytes[c];
        n.fe += w * flops[c] * energy_pj;
        n.be += w * bytes[c] * energy_pj;
        n.ee += w * energy_pj * energy_pj;
        n.count++;
    }
    return n;
}

void pj_unit_costs_fit(const pj_fit *fit, const double *flops, const double *bytes,
                       pj_unit_costs *costs)
{
    *costs = (pj_unit_costs){NAN, NAN, NAN, NAN};
    normal2 n = unit_costs_add_up(fit, flops, bytes);
    double det = n.ff * n.bb - n.fb * n.fb;
    if (n.count < 3 || !(n.ff > 0) || !(n.bb > 0) || !(det > 1e-12 * n.ff * n.bb)) return;
    double a = (n.fe * n.bb - n.be * n.fb) / det, b = (n.be * n.ff - n.fe * n.fb) / det;
    if (a < 0) a = 0, b = n.be / n.bb;
    if (b < 0) b = 0, a = n.fe / n.ff;
    double rest = n.ee - 2 * (a * n.fe + b * n.be) + a * a * n.ff + 2 * a * b * n.fb + b * b * n.bb;
    /* misfit widens intervals, a good fit never narrows them */
    double spread = fmax(1, rest / (n.count - 2));
    *costs = (pj_unit_costs){a, sqrt(n.bb / det * spread), b, sqrt(n.ff / det * spread)};
    /* An interval that includes zero: the run does not identify the figure. */
    if (!(a > 1.96 * costs->pj_per_flop_sd)) costs->pj_per_flop = costs->pj_per_flop_sd = NAN;
    if (!(b > 1.96 * costs->pj_per_byte_sd)) costs->pj_per_byte = costs->pj_per_byte_sd = NAN;
}
