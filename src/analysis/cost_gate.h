/*
 * Whether something costs more than allowed, judged again after each run with a controlled error:
 * "over" and "within" are each said wrongly in at most PJ_LEVEL of all gates, however often it is
 * looked (looks.h). What is judged is a ratio: of runs in alternating blocks to those of a
 * baseline beside them (pairs, so that drift cancels), of runs to those of a stored baseline, or
 * of runs to a fixed figure. The unit is the run; figures are compared on logarithms. Pure.
 */
#ifndef PJ_ANALYSIS_COST_GATE_H
#define PJ_ANALYSIS_COST_GATE_H

#include "analysis/looks.h"

typedef enum pj_gate_kind {
    PJ_GATE_PAIRS = 0, /* a[i] and b[i] were run one after the other */
    PJ_GATE_STORED,    /* all of a exists before b begins */
    PJ_GATE_FIXED      /* there is no a: the figure is in `limit` */
} pj_gate_kind;

typedef enum pj_gate_outcome {
    PJ_GATE_UNDECIDED = 0,
    PJ_GATE_WITHIN,
    PJ_GATE_OVER
} pj_gate_outcome;

/* The first look is after so many runs. */
enum { PJ_GATE_FIRST = 4 };

typedef struct pj_cost_gate {
    pj_gate_kind kind;
    double limit;           /* the ratio allowed; PJ_GATE_FIXED: the figure allowed */
    uint32_t stored;        /* values of a stored baseline */
    uint32_t most;          /* runs; at least PJ_GATE_FIRST, at most PJ_LOOKS_MAX */
    double p[PJ_LOOKS_MAX]; /* [most] one-sided levels of the looks, by runs - 1 */
} pj_cost_gate;

typedef struct pj_cost_look {
    pj_gate_outcome outcome;
    double ratio;  /* b / a; PJ_GATE_FIXED: the mean of b */
    double lo, hi; /* what would be "over" and "within" at this look; NAN: too few runs */
    double spread; /* relative, of single runs; NAN: unknown */
} pj_cost_look;

/* `level`: PJ_LEVEL divided by the number of gates that are judged together. */
void pj_cost_gate_plan(pj_cost_gate *gate, double level);
/* After `n` runs. */
pj_gate_outcome pj_cost_gate_judge(const pj_cost_gate *gate, const double *a, const double *b,
                                   uint32_t n);
/* The same with its figures. */
pj_cost_look pj_cost_gate_look(const pj_cost_gate *gate, const double *a, const double *b,
                               uint32_t n);
/* Relative spread of single values; NAN: fewer than two. */
double pj_cost_spread(const double *values, uint32_t n);
/* What the true spread exceeds in one of 20 cases, of an estimate with so many degrees of freedom.
 */
double pj_cost_spread_at_most(double spread, double freedom);
/* After how many runs at most 95 of 100 gates have decided, when single runs vary by `spread` and
 * the true ratio is `times` the limit; 0: not within `most`. */
uint32_t pj_cost_gate_needed(const pj_cost_gate *gate, double spread, double times);

#endif
