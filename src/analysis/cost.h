/* Grams of CO2 per kilowatt-hour by region: averages of generation, rounded. Published tables
 * disagree, so enter your own figure where it matters. */
#ifndef PJ_ANALYSIS_COST_H
#define PJ_ANALYSIS_COST_H

typedef struct pj_cost_region {
    const char *code, *name;
    double g_per_kwh;
} pj_cost_region;

/* NAN: unknown region. Codes and names, case-insensitive. */
double pj_cost_region_g_per_kwh(const char *region);
const pj_cost_region *pj_cost_lowest_region(void);

#endif
