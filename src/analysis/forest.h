/*
 * Isolation forest (Liu, Ting and Zhou 2008): rows that random splits isolate early are unusual,
 * also where no single figure is. Features are standardised by median and robust spread, so that
 * their units do not matter. Same seed, same forest. Pure.
 */
#ifndef PJ_ANALYSIS_FOREST_H
#define PJ_ANALYSIS_FOREST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PJ_FOREST_TREES = 100, PJ_FOREST_SAMPLE = 256, PJ_FOREST_FEATURES = 8 };

typedef struct pj_forest pj_forest;

/* `rows`: count x features, row by row, all finite. NULL: out of memory, or fewer than 8 rows. */
pj_forest *pj_forest_grow(const double *rows, size_t count, uint32_t features, uint64_t seed);
void pj_forest_free(pj_forest *forest); /* NULL is allowed */
/* 2^(-mean path length / that of an average row): 0.5 is usual, towards 1 unusual. */
double pj_forest_score(const pj_forest *forest, const double *row);
/* The score that `share` of ordinary rows stay below: of a forest grown on the same rows with every
 * feature permuted by itself, which keeps each figure's spread and destroys their relations. NAN:
 * out of memory, or too few rows. */
double pj_forest_threshold(const double *rows, size_t count, uint32_t features, uint64_t seed,
                           double share);

#endif
