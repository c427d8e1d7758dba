/* A synthetic run with known powers, and simulated sensors: the setting of docs/measurement.md's
 * table. 16 layers of 15 component classes, one prefill, then tokens; durations jitter by 8 % per
 * operation and 10 % per token. */
#ifndef PJ_TEST_TRUTH_H
#define PJ_TEST_TRUTH_H

#include "energy/attribute.h"

typedef struct truth {
    pj_leaf *leaves;
    double *before_mj; /* [leaf_count + 1] cumulative net energy */
    size_t leaf_count;
    uint32_t class_count;
    double *power_mw; /* [class_count] net */
    double idle_mw;
    int64_t begin_ns, end_ns;
} truth;

typedef struct sensor {
    const char *name;
    double period_ms, window_ms; /* window 0: the period; larger: trailing average */
    double noise;                /* relative, of a reading */
    double step_mj;              /* counters: quantisation; 0 and not a counter: none */
    bool counter;
    double late_ms; /* counters: a reading was taken up to this much before or after its time */
} sensor;

void truth_init(truth *t, uint64_t seed, unsigned tokens, double token_ms);
void truth_fini(truth *t);
/* True gross energy of [begin, end). */
double truth_energy_mj(const truth *t, int64_t begin_ns, int64_t end_ns);
/* Windows of the simulated sensor; the caller frees them. */
pj_window *truth_windows(const truth *t, const sensor *s, uint64_t seed, size_t *count);

#endif
