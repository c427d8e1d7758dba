/* Grams of CO2 a kilowatt-hour by region: averages of generation, rounded; no two tables agree, so
 * the figure that matters to you is the one to give by hand. */
#ifndef PJ_ANALYSIS_COST_H
#define PJ_ANALYSIS_COST_H

typedef struct pj_cost_region {
    const char *code, *name;
    double g_per_kwh;
} pj_cost_region;

/* NAN: the region is not in the table. Codes and names, without regard to case. */
double pj_cost_region_g_per_kwh(const char *region);
const pj_cost_region *pj_cost_lowest_region(void);

#endif
