/*
 * The working state of attribution and its parts, private to them:
 *   joules.c              rails, sums bottom up, and the order of everything
 *   joules_checks.c       what rails say of each other
 *   joules_truth.c        truth and readings of simulated rails
 *   joules_classes.c      classes as the fit has them: small ones are pooled
 *   joules_rail.c         one rail: fit, blocks, energy of every leaf
 *   joules_timing.c       how a power sensor's windows may lie, by the run's own edges
 *   joules_uncertainty.c  what every figure's standard deviation consists of
 *   joules_rows.c         energies into rows
 *   joules_run.c          figures of classes, rails and the run
 */
#ifndef PJ_ATTRIBUTION_JOULES_H
#define PJ_ATTRIBUTION_JOULES_H

#include "attribution/build.h"
#include "energy/attribute.h"
#include "energy/blocks.h"
#include "energy/design.h"
#include "power/checks.h"

enum { PJ_MAX_TIMINGS = 6 };

/* One way in which the windows of a power sensor may lie. */
typedef struct pj_timing {
    int64_t shift_ns;  /* earlier than the sensor says */
    int64_t window_ns; /* 0: as the sensor says */
    double weight;     /* how likely, all together 1 */
} pj_timing;

typedef struct pj_rail_result {
    uint32_t rail;
    int64_t begin_ns, end_ns;        /* the run, extended to whole windows */
    double phase_mj[PJ_PHASE_COUNT]; /* gross */
    double whole_mj;                 /* gross, of the run */
    double weight_mj;                /* gross, to find the rail that matters most */
    double idle_sd_mw;               /* of the baseline */
    double gain_sd;                  /* relative */
    uint32_t gain_group;             /* rails of one group share their gain */
    double class_spread;             /* relative 1 sigma of power from leaf to leaf of a class */
    double observed;                 /* share of the run's time that windows saw */
    bool counter;
    pj_fit fit; /* of pooled classes */
    bool has_fit;
    pj_window *windows; /* in the likeliest timing */
    size_t window_count;
    pj_design design; /* seconds of classes in windows */
    pj_blocks blocks;
    float *leaf_mj;                          /* [leaf] gross; NAN: unknown */
    size_t *first_block;                     /* [leaf] that it touches; SIZE_MAX: none */
    double alternative_weight[PJ_MAX_TIMINGS]; /* of other timings */
    float *alternative_mj[PJ_MAX_TIMINGS];   /* [leaf] gross in them */
    uint32_t alternative_count;
} pj_rail_result;

struct pj_joules {
    const pj_tree *tree;
    const pj_build_options *options;
    pj_run_data *d;
    pj_curve *curves[PJ_MAX_RAILS];
    char (*class_names)[128];
    double *sim_mw; /* [class] planted net power, NULL: nothing is simulated */
    /* Leaves as the fit has them: of pooled classes, with one more before and after the run. */
    pj_leaf *leaves;   /* [leaf_count + 2] */
    uint32_t *pool_of; /* [class] of the tree -> class of the fit */
    uint32_t pool_count;
    uint8_t *pool_phase;            /* [pool] */
    uint32_t *pool_class;           /* [pool] the class it is; PJ_NO_PARENT: several */
    double *pool_mw;                /* [pool] scratch of a rail: powers to share by */
    int64_t *gross, *net;           /* [leaf] over all rails */
    int64_t *rail_gross, *rail_net; /* [leaf + 2] of one rail */
    pj_energy run;                  /* the root's; every other node's are its row's */
    uint32_t *leaf_begin, *leaf_of; /* leaves grouped by node */
    pj_rail_result results[PJ_MAX_RAILS];
    uint32_t result_count;
    bool replayed;          /* a calibration was the prior */
    bool by_time;           /* some rail could not be fitted */
    bool below_resolution;  /* no sensor's windows tell what the run took */
    uint64_t used_rails, missing_rails; /* of those that count: in the total, lacking from it */
    pj_finding *findings;               /* of the checks */
    uint32_t finding_count;
    uint32_t pooled_many;   /* classes pooled although they have over a thousandth of the time */
};

/* Adds, where unknown plus anything is unknown. */
static inline void pj_nj_add(int64_t *sum, int64_t value)
{
    *sum = *sum == PJ_NJ_UNKNOWN || value == PJ_NJ_UNKNOWN ? PJ_NJ_UNKNOWN : *sum + value;
}

/* The energy of a node: it lies in the node's row. A batch's step has several rows; until it is
 * shared out, all of it is the first one's. */
static inline pj_energy *pj_joules_of(pj_joules *j, uint32_t index)
{
    const pj_node *node = &j->tree->nodes[index];
    switch (node->kind) {
    case PJ_SPAN_PHASE: return &j->d->phases[node->row].energy;
    case PJ_SPAN_SECTION: return &j->d->sections[node->row].energy;
    case PJ_SPAN_TOKEN: return &j->d->tokens[node->row].energy;
    case PJ_SPAN_LAYER: return &j->d->layers[node->row].energy;
    case PJ_SPAN_COMPONENT: return &j->d->components[node->row].energy;
    case PJ_SPAN_OPERATION: return &j->d->operations[node->row].energy;
    default: return &j->run;
    }
}

/* Checks rails against each other and takes what a finding speaks of for less certain. Touches
 * nothing but rails and curves. */
pj_status pj_joules_check(pj_joules *j, pj_error *err);
/* Tells of it in the run's warnings, and names the rails of the total. */
pj_status pj_joules_tell(pj_joules *j, pj_error *err);

/* Simulated rails: their truth, and curves of every rail. */
pj_status pj_joules_curves(pj_joules *j, const pj_readings *readings, pj_error *err);
/* Planted energy of a leaf: all rails of a simulation together. */
int64_t pj_joules_planted(const pj_joules *j, const pj_leaf *leaf);

/* Pools classes and makes the leaves of the fit. */
pj_status pj_joules_pool(pj_joules *j, pj_error *err);

/* Gross and net of every leaf from one rail, into rail_gross and rail_net and added to the sums. */
pj_status pj_joules_rail(pj_joules *j, uint32_t rail, pj_error *err);
void pj_joules_rail_fini(pj_rail_result *result);

/* Ways in which the windows of a rail may lie, the likeliest first; returns how many. */
uint32_t pj_joules_timings(pj_joules *j, const pj_rail_result *result, const pj_window *windows,
                           size_t count, int64_t period_ns, pj_timing timings[PJ_MAX_TIMINGS]);

/* Uncertainties of all nodes of the tree, and of any other set of leaves. */
pj_status pj_joules_judge(pj_joules *j, pj_error *err);
/* Of the leaves given, on one rail (index of its result) or on all together (PJ_ALL_RAILS). */
enum { PJ_ALL_RAILS = -1 };
pj_status pj_joules_judge_leaves(pj_joules *j, const uint32_t *leaves, size_t count,
                                 int result, pj_sd *gross, pj_sd *net, pj_error *err);
/* Method of a node that lasts so long. */
pj_method pj_joules_method(const pj_joules *j, uint8_t kind, int64_t ns);

/* What rows have beside the energy of their node: classes, shares of a batch, idle time. */
pj_status pj_joules_rows(pj_joules *j, pj_error *err);
/* Classes, rail energies, and the figures of the run. */
pj_status pj_joules_run(pj_joules *j, pj_error *err);

#endif
