/*
 * The power figures of one powermetrics document. The stream is XML property lists separated by NUL
 * bytes; keys come and go with macOS versions and chips, so every figure may be missing, and a
 * missing one is NAN.
 */
#ifndef PJ_POWER_POWERMETRICS_PLIST_H
#define PJ_POWER_POWERMETRICS_PLIST_H

#include "base/error.h"
#include "trace/rail.h"

typedef enum pj_pm_rail {
    PJ_PM_CPU = 0,
    PJ_PM_GPU,
    PJ_PM_ANE,
    PJ_PM_DRAM,
    PJ_PM_PACKAGE,
    PJ_PM_RAILS
} pj_pm_rail;

typedef struct pj_pm_sample {
    int64_t elapsed_ns; /* the true window of the sample */
    double mw[PJ_PM_RAILS];
    double step_mw[PJ_PM_RAILS]; /* resolution: 1 mJ over the window */
    bool rejected[PJ_PM_RAILS];  /* there was a figure, but impossible: negative, not finite */
} pj_pm_sample;

/* PJ_OK; PJ_E_AGAIN for an empty document (only white space or NULs); PJ_E_INVALID for one that is
 * truncated or no plist, or whose elapsed_ns is missing or 0. */
pj_status pj_pm_parse(const char *text, size_t bytes, pj_pm_sample *sample, pj_error *err);
/* Describes the rails of these kinds, which are in ascending order. */
void pj_pm_describe(const pj_pm_rail *kinds, uint32_t count, const char *source, const char *device,
                    pj_rail *rails);

#endif
