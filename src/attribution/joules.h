/*
 * The working state of joules.c and its parts: joules_rail.c attributes one rail, joules_rows.c
 * puts energies into rows, joules_run.c sums up classes, rails and the run. Private to them.
 */
#ifndef PJ_ATTRIBUTION_JOULES_H
#define PJ_ATTRIBUTION_JOULES_H

#include "energy/attribute.h"
#include "power/checks.h"
#include "attribution/build.h"

typedef struct pj_rail_result {
    uint32_t rail;
    int64_t begin_ns, end_ns;        /* the run, extended to whole windows */
    double phase_mj[PJ_PHASE_COUNT]; /* gross */
    double weight_mj;                /* net energy, to find the rail that matters most */
    pj_fit fit;
    bool has_fit;
    pj_misfit misfit; /* of its measured energies to the fit */
} pj_rail_result;

struct pj_joules {
    const pj_tree *tree;
    const pj_build_options *options;
    pj_run_data *d;
    pj_curve *curves[PJ_MAX_RAILS];
    char (*class_names)[128];
    double *sim_mw;                 /* [class] planted net power, NULL: nothing is simulated */
    int64_t *gross, *net;           /* [leaf] over all rails; one more lies before and after */
    int64_t *rail_gross, *rail_net; /* [leaf] likewise, of the second rail and further ones */
    double *equal;                  /* [class] 1: energy by time, where there is no fit */
    pj_energy run;                  /* the root's; every other node's are its row's */
    uint32_t *leaf_begin, *leaf_of; /* leaves grouped by node */
    pj_rail_result results[PJ_MAX_RAILS];
    uint32_t result_count;
    bool replayed; /* a calibration was the prior */
    uint64_t used_rails, missing_rails; /* of those that count: in the total, lacking from it */
    pj_finding *findings;               /* of the checks */
    uint32_t finding_count;
};

/* Adds, where unknown plus anything is unknown. */
static inline void pj_nj_add(int64_t *sum, int64_t value)
{
    *sum = *sum == PJ_NJ_UNKNOWN || value == PJ_NJ_UNKNOWN ? PJ_NJ_UNKNOWN : *sum + value;
}

/* Checks rails against each other and takes what a finding speaks of for less certain. Touches
 * nothing but rails and curves. */
pj_status pj_joules_check(pj_joules *j, pj_error *err);
/* Tells of it in the run's warnings, and names the rails of the total. */
pj_status pj_joules_tell(pj_joules *j, pj_error *err);
pj_status pj_joules_rails(pj_joules *j, pj_error *err); /* gross and net of every leaf */
void pj_joules_free_energies(int64_t *energies);        /* of leaves; NULL is allowed */
/* The energy of a node: it lies in the node's row. */
pj_energy *pj_joules_of(pj_joules *j, uint32_t node);
/* What rows have beside the energy of their node: classes, shares of a batch, idle time. */
pj_status pj_joules_rows(pj_joules *j, pj_error *err);
/* Classes, rail energies, and the figures of the run. */
pj_status pj_joules_run(pj_joules *j, pj_error *err);
/* Planted energy of a leaf: all rails of a simulation together. */
int64_t pj_joules_planted(const pj_joules *j, const pj_leaf *leaf);
/* 1 sigma of an interval from the curves alone: for what is longer than the sensor's period. */
double pj_joules_curve_sd_mj(const pj_joules *j, int64_t begin_ns, int64_t end_ns);
/* Method and 1 sigma of a leaf that is shown by itself; its gross energy is known. */
void pj_joules_judge_leaf(const pj_joules *j, const pj_leaf *leaf, pj_energy *e);

#endif
