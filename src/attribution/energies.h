/* The working state of attribution, private to energies.c, which has the order of steps, and the
 * energy_*.c, one for each step. */
#ifndef PJ_ATTRIBUTION_ENERGIES_H
#define PJ_ATTRIBUTION_ENERGIES_H

#include "attribution/build.h"
#include "energy/attribute.h"
#include "energy/blocks.h"
#include "energy/design.h"
#include "power/checks.h"

enum { PJ_MAX_TIMINGS = 12 };

/* A hypothesis about the timing of a power sensor's windows. */
typedef struct pj_timing {
    int64_t shift_ns;  /* earlier than reported */
    int64_t window_ns; /* 0: as reported */
    double weight;     /* posterior probability */
} pj_timing;

typedef struct pj_timings {
    pj_timing all[PJ_MAX_TIMINGS]; /* likeliest first */
    uint32_t count;
    bool settled;       /* when the sensor sampled is known or evident from its readings */
    bool certain;       /* known */
    double log_against; /* by how much the likeliest explains them better than the declared one */
} pj_timings;

typedef struct pj_rail_result {
    uint32_t rail;
    uint64_t devices;                /* whose work the rail measures, a bit each */
    pj_leaf *leaves;                 /* [leaf_count + 2] as the rail sees them, see pj_energies */
    int64_t begin_ns, end_ns;        /* the run, extended to whole windows */
    double phase_mj[PJ_PHASE_COUNT]; /* gross */
    double whole_mj;                 /* gross, of the run */
    double weight_mj;                /* gross, to find the most important rail */
    double idle_sd_mw;               /* of the baseline */
    double gain_sd;                  /* relative */
    double offset_sd_mw;             /* pj_rail_offset_sd_mw */
    double unseen_sd;                /* relative: steps taken as powers, and what was counted */
    uint32_t gain_group;             /* rails of one group share their gain */
    double class_spread;             /* relative 1 sigma of power between leaves of a class */
    double observed;                 /* share of the run's time covered by windows */
    int64_t period_ns;               /* typical time between two readings */
    bool settled, certain;           /* as in pj_timings */
    /* net energies; NAN: idle power is unknown */
    double phase_net_mj[PJ_PHASE_COUNT], whole_net_mj;
    bool counter;
    pj_fit fit; /* of pooled classes */
    bool has_fit;
    pj_window *windows; /* at the likeliest timing */
    size_t window_count;
    pj_design design; /* seconds of classes in windows */
    pj_blocks blocks;
    float *leaf_mj;      /* [leaf] gross; NAN: unknown */
    size_t *first_block; /* [leaf] first block it overlaps; SIZE_MAX: none */
    /* leaves that overlap several blocks; [block + 1] the first of those that begin in it */
    uint32_t *bridges;
    size_t *bridge_begin;
    /* of other timings; a device's clock adds one */
    double alternative_weight[PJ_MAX_TIMINGS + 1];
    float *alternative_mj[PJ_MAX_TIMINGS + 1]; /* [leaf] gross energy under them */
    uint32_t alternative_count;
    /* [part of options->shares] leaf energies times factor are the run's own; relative 1 sigma of
     * the part's energy. NULL: the run was alone. */
    double *part_factor, *part_sd;
} pj_rail_result;

struct pj_energies {
    pj_arena arena; /* has what results do not free themselves */
    const pj_tree *tree;
    const pj_build_options *options;
    pj_run_data *d;
    pj_curve *curves[PJ_MAX_RAILS];
    pj_curve *steps[PJ_MAX_RAILS]; /* of counters whose steps may be powers: those; else NULL */
    char (*class_names)[128];
    double *sim_mw; /* [class] simulated net power, NULL: no simulation */
    /* Leaves for the fit of the current rail: with pooled classes, plus one leaf before and one
     * after the run. Those of devices that the rail does not measure have no duration. */
    pj_leaf *leaves;                     /* [leaf_count + 2] */
    pj_leaf *pooled;                     /* the same with every leaf's duration */
    uint64_t rail_devices[PJ_MAX_RAILS]; /* that each rail measures, a bit each */
    uint64_t measured;                   /* devices that a rail of the total measures */
    uint32_t *pool_of;                   /* [class] of the tree -> class of the fit */
    uint32_t pool_count;
    uint8_t *pool_phase;            /* [pool] */
    uint32_t *pool_class;           /* [pool] its class; PJ_NO_PARENT: several */
    double *pool_mw;                /* [pool] scratch for one rail: powers to share by */
    int64_t *gross, *net;           /* [leaf] over all rails */
    int64_t *rail_gross, *rail_net; /* [leaf + 2] of one rail */
    pj_energy run;                  /* the root's energy; other nodes' energies are in their rows */
    pj_groups by_node;              /* leaves */
    pj_rail_result results[PJ_MAX_RAILS];
    uint32_t result_count;
    bool replayed;         /* a calibration was the prior */
    bool by_time;          /* some rail could not be fitted */
    bool no_device;        /* what computed has no rail: there is no total */
    bool no_parts;         /* a device that computed has no rail: what it worked on has no energy */
    bool idle_moved;       /* net energy is below zero, so the baseline no longer holds */
    bool below_resolution; /* no sensor's windows resolve the run's energy */
    /* of the rails that count: included in the total, missing from it */
    uint64_t used_rails, missing_rails;
    uint32_t *leaf_part;  /* [leaf] part of options->shares; NULL: the run was alone */
    float *leaf_idle;     /* [leaf] mean of 1 / leaves at the same time, which share idle power;
                             NULL: leaves do not overlap */
    pj_finding *findings; /* of the consistency checks */
    uint32_t finding_count;
    uint32_t pooled_many; /* classes pooled although they have over a thousandth of the time */
};

/* Whether a net energy is too far below zero for its interval. */
static inline bool pj_net_is_refuted(double net_mj, double net_sd_mj)
{
    return net_mj < -2 * net_sd_mj;
}

static inline bool pj_rail_sees(const pj_rail_result *result, uint8_t device)
{
    return result->devices >> device & 1;
}

static inline bool pj_rail_sees_leaf(const pj_energies *j, const pj_rail_result *result,
                                     uint32_t leaf)
{
    return pj_rail_sees(result, pj_tree_leaf_device(j->tree, &j->tree->leaves[leaf]));
}

/* Whether a leaf's energy counts in that of the spans around it. Not where no rail measures a
 * device that did nothing then, or the host: the run is partial, and says so. */
static inline bool pj_energy_counts(const pj_energies *j, uint32_t leaf)
{
    const pj_tree_class *class_ = &j->tree->classes[j->tree->leaves[leaf].class_];
    if (j->d->device_count == 0 || j->measured >> class_->device & 1) return true;
    return class_->device != PJ_HOST && !pj_tree_class_is_idle(class_);
}

/* Adds; unknown plus anything is unknown. */
static inline void pj_nj_add(int64_t *sum, int64_t value)
{
    *sum = *sum == PJ_NJ_UNKNOWN || value == PJ_NJ_UNKNOWN ? PJ_NJ_UNKNOWN : *sum + value;
}

/* The energy of a node, in its row; that of a batch's step in the first one until it is split. */
static inline pj_energy *pj_energy_of(pj_energies *j, uint32_t index)
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

/* Raises the uncertainty of rails that others contradict. Touches only rails and curves. */
pj_status pj_energy_check(pj_energies *j, pj_error *err);
/* Adds the findings to the run's warnings, and names the rails of the total. */
pj_status pj_energy_report(pj_energies *j, pj_error *err);

/* Ground truth of simulated rails, and curves of every rail. */
pj_status pj_energy_curves(pj_energies *j, const pj_readings *readings, pj_error *err);
/* Whether a simulation states the energy of every leaf. */
bool pj_energy_has_planted(const pj_energies *j);
/* Simulated energy of a leaf, summed over all rails of the simulation. */
int64_t pj_energy_planted(const pj_energies *j, const pj_leaf *leaf);

/* Pools classes and creates the leaves for the fit. */
pj_status pj_energy_pool(pj_energies *j, pj_error *err);

/* Finds the rails that measure the run's devices. */
pj_status pj_energy_devices(pj_energies *j, pj_error *err);
/* Completes the table of devices: what they did, and with how much energy. */
pj_status pj_energy_of_devices(pj_energies *j, pj_error *err);
/* Names what no rail of the total measures, besides what the run's partial rails name already. */
void pj_energy_name_unmeasured(const pj_energies *j, char *text, size_t bytes);
/* The leaves as a rail sees them, for fits and shares; NULL: out of memory. */
pj_leaf *pj_energy_leaves_of(pj_energies *j, const pj_rail_result *result);

/* How much of the machine's idle power leaves of several threads are charged. */
pj_status pj_energy_overlaps(pj_energies *j, pj_error *err);
/* The time for which a leaf is charged idle power. */
static inline double pj_energy_idle_s(const pj_energies *j, uint32_t leaf)
{
    const pj_leaf *l = &j->tree->leaves[leaf];
    return (double)(l->end_ns - l->begin_ns) * 1e-9 *
           (j->leaf_idle ? (double)j->leaf_idle[leaf] : 1);
}

/* Gross and net energy of every leaf on one rail, into rail_gross, rail_net and the sums. */
pj_status pj_energy_rail(pj_energies *j, uint32_t rail, pj_error *err);
void pj_energy_rail_fini(pj_rail_result *result);
/* Scales rail_gross and rail_net of the leaves to the run's share. */
pj_status pj_energy_scale(pj_energies *j, pj_rail_result *result, pj_error *err);

/* Timing hypotheses for a rail's windows. */
void pj_energy_timings(pj_energies *j, const pj_rail_result *result, pj_timings *timings);
/* Moves windows to a timing; their mean powers stay as read. */
void pj_energy_shift_windows(const pj_window *given, size_t count, const pj_timing *timing,
                             pj_window *windows);

/* Uncertainties of all nodes of the tree; below, of any other set of leaves. */
pj_status pj_energy_check_total(pj_energies *j, pj_error *err);
/* For the given leaves, on one rail (index of its result) or summed over all (PJ_ALL_RAILS). */
enum { PJ_ALL_RAILS = -1 };
pj_status pj_energy_check_leaves(pj_energies *j, const uint32_t *leaves, size_t count, int result,
                                 pj_sd *gross, pj_sd *net, pj_error *err);
/* Attribution method for a node of that duration. */
pj_method pj_energy_method(const pj_energies *j, uint8_t kind, int64_t ns);

/* What rows have besides their node's energy: classes, shares of a batch, idle time. */
pj_status pj_energy_rows(pj_energies *j, pj_error *err);
/* Classes, rail energies, and the figures of the run. */
pj_status pj_energy_of_run(pj_energies *j, pj_error *err);

#endif
