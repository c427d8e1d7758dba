/*
 * Where does the difference between A and B come from? One term per part of the work (a component
 * within a phase), exact: the terms add up to the difference. Each is split by what changed it:
 * time at A's power, and power over B's time.
 */
#ifndef PJ_ANALYSIS_DECOMPOSE_H
#define PJ_ANALYSIS_DECOMPOSE_H

#include <stddef.h>

typedef struct pj_term {
    const char *phase, *name;
    double ms_a, ms_b; /* per output token; 0: absent on that side */
    double mj_a, mj_b;
    double sd_mj;      /* of the difference, 1 sigma; NAN: unknown */
    double difference; /* mj_b - mj_a */
    double by_time, by_power;
} pj_term;

/* Fills the last three of each term, sorts by size, and folds what lies beyond the `keep` largest,
 * together with what the parts do not explain of `difference_mj`, into one last term "other" of
 * phase "". `terms` has room for one more than `count`. Returns how many are left. */
size_t pj_decompose(pj_term *terms, size_t count, double difference_mj, size_t keep);

#endif
