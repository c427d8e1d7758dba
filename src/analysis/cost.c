/* The table of CO2 intensities. The first four are perjoule's presets; countries are average
 * generation of 2022 and 2023 as published by Our World in Data, rounded to whole grams. */
#include "analysis/cost.h"

#include <math.h>
#include <stddef.h>
#include <strings.h>

static const pj_cost_region regions[] = {
    {"california", "California", 200},
    {"texas", "Texas", 500},
    {"eu", "European Union", 300},
    {"us", "United States", 400},
    {"ae", "United Arab Emirates", 561},
    {"ar", "Argentina", 354},
    {"au", "Australia", 549},
    {"at", "Austria", 111},
    {"be", "Belgium", 138},
    {"br", "Brazil", 98},
    {"ca", "Canada", 170},
    {"ch", "Switzerland", 35},
    {"cl", "Chile", 291},
    {"cn", "China", 582},
    {"cz", "Czechia", 450},
    {"de", "Germany", 381},
    {"dk", "Denmark", 152},
    {"es", "Spain", 174},
    {"fi", "Finland", 79},
    {"fr", "France", 56},
    {"gb", "United Kingdom", 238},
    {"id", "Indonesia", 676},
    {"in", "India", 713},
    {"ie", "Ireland", 291},
    {"is", "Iceland", 28},
    {"il", "Israel", 583},
    {"it", "Italy", 331},
    {"jp", "Japan", 485},
    {"kr", "South Korea", 431},
    {"mx", "Mexico", 507},
    {"nl", "Netherlands", 268},
    {"no", "Norway", 30},
    {"nz", "New Zealand", 113},
    {"pl", "Poland", 662},
    {"pt", "Portugal", 166},
    {"sa", "Saudi Arabia", 707},
    {"sg", "Singapore", 471},
    {"se", "Sweden", 41},
    {"tr", "Turkey", 465},
    {"tw", "Taiwan", 642},
    {"ua", "Ukraine", 260},
    {"za", "South Africa", 708},
    {NULL, NULL, 0},
};

double pj_cost_region_g_per_kwh(const char *region)
{
    for (const pj_cost_region *r = regions; r->code; r++)
        if (strcasecmp(r->code, region) == 0 || strcasecmp(r->name, region) == 0)
            return r->g_per_kwh;
    return NAN;
}

const pj_cost_region *pj_cost_lowest_region(void)
{
    const pj_cost_region *lowest = regions;
    for (const pj_cost_region *r = regions; r->code; r++)
        if (r->g_per_kwh < lowest->g_per_kwh) lowest = r;
    return lowest;
}
