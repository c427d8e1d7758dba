/*
 * Standard uncertainties (1 sigma) of one energy figure in millijoules, kept apart by how they
 * combine (docs/measurement.md, "Uncertainty"):
 *   random  noise, rounding, the fit: independent from figure to figure, adds in quadrature
 *   bias    delay, window, drift, power varying within a class, idle power: shared by neighbouring
 *           figures of one run, adds linearly to be on the safe side
 *   gain    calibration of the sensor: shared by all figures of a device class, adds linearly over
 *           its devices and cancels in shares and in comparisons on one device
 */
#ifndef PJ_TRACE_UNCERTAINTY_H
#define PJ_TRACE_UNCERTAINTY_H

#include <math.h>

typedef struct pj_sd {
    float random_mj, bias_mj, gain_mj;
} pj_sd;

#define PJ_SD_UNKNOWN ((pj_sd){__builtin_nanf(""), __builtin_nanf(""), __builtin_nanf("")})

/* The three combined: the basis of an interval. */
static inline double pj_sd_total(const pj_sd *sd)
{
    double random = (double)sd->random_mj, bias = (double)sd->bias_mj, gain = (double)sd->gain_mj;
    return sqrt(random * random + bias * bias + gain * gain);
}

/* The uncertainty of the sum of two figures of one device class in one run. */
static inline pj_sd pj_sd_add(const pj_sd *a, const pj_sd *b)
{
    return (pj_sd){hypotf(a->random_mj, b->random_mj), a->bias_mj + b->bias_mj,
                   a->gain_mj + b->gain_mj};
}

static inline pj_sd pj_sd_scaled(const pj_sd *sd, double factor)
{
    float f = (float)fabs(factor);
    return (pj_sd){sd->random_mj * f, sd->bias_mj * f, sd->gain_mj * f};
}

#endif
