/*
 * From a spool to a finished run in memory: facts, rows, samples, and energies on every row. Used
 * at the end of a run, for leftovers of dead processes, and to import a spool.
 */
#ifndef PJ_ATTRIBUTION_BUILD_H
#define PJ_ATTRIBUTION_BUILD_H

#include "attribution/shares.h"
#include "power/curve.h"
#include "power/sim.h"
#include "trace/disturbance.h"
#include "trace/run_json.h"

/* The warning of a run whose spool had unreadable parts. */
#define PJ_SPOOL_DAMAGED_CODE "spool_damaged"
/* Uniform within +-20 %. */
#define PJ_USUAL_CLASS_SPREAD 0.115

typedef struct pj_build_options {
    const pj_sim_spec *sim; /* truth from which rails of source "sim" are read; NULL: none */
    /* Looks up a calibration's prior for a class on a rail: net power and 1 sigma; false: it has
     * none. NULL: there is no calibration. */
    bool (*prior)(void *context, const pj_rail *rail, const char *class_name, pj_phase phase,
                  double *power_mw, double *sd_mw);
    void *context;
    /* Called with every class's estimated power on every rail; or NULL. */
    void (*observe)(void *context, const pj_rail *rail, const char *class_name, pj_phase phase,
                    double power_mw, double sd_mw);
    void *observe_context;
    /* Looks up what runs comparable to this one took; or NULL. */
    void (*usual)(void *context, const pj_run_info *info, pj_usual_times *usual);
    void *usual_context;
    const pj_shares *shares;  /* set by pj_build_run; NULL: the run was alone */
    const _Atomic bool *stop; /* set by another thread to cancel (PJ_E_CANCELLED); or NULL */
    bool trusted;             /* sensors and load behave as declared: the reference in benchmarks */
    /* assumed relative 1 sigma of power within a class where the sensor cannot resolve single rows;
     * 0: PJ_USUAL_CLASS_SPREAD */
    double class_spread;
} pj_build_options;

/* Readings of the spool by rail, in order. */
typedef struct pj_readings {
    pj_reading *items; /* grouped by rail */
    size_t begin[PJ_MAX_RAILS + 1];
} pj_readings;

pj_status pj_build_run(pj_spool_reader *reader, const pj_build_options *options, pj_run_data *data,
                       pj_error *err);

/* Builds the run of a spool in memory that has just been written, and closes the spool. */
pj_status pj_build_written(pj_spool_writer *w, pj_run_data *data);

/* ---- steps, for tests ---- */

/* Facts, rails and warnings; sets when recording began in the tree. */
pj_status pj_build_facts(pj_tree *tree, pj_run_data *data, pj_error *err);
/* Rows without energies; stores each node's row in the tree. */
pj_status pj_build_rows(pj_tree *tree, pj_run_data *data, pj_error *err);
/* Energies (energies.c), in two steps: first those of every leaf, from the tree and the rails,
 * while the rows of `data` may still be under construction; then those of all rows, rail energies,
 * classes and samples (samples.c). The tree must have been cut into leaves. */
typedef struct pj_energies pj_energies;
pj_status pj_energy_new(const pj_tree *tree, const pj_readings *readings,
                        const pj_build_options *options, pj_run_data *data, pj_energies **joules,
                        pj_error *err);
pj_status pj_energy_fill(pj_energies *joules, pj_error *err);
/* The figures of the request (trace/request.h); everything else must be filled. */
pj_status pj_energy_request(pj_energies *joules, pj_error *err);
void pj_energy_free(pj_energies *joules); /* NULL is allowed */
/* Conditions of devices, and their summary; energies must be known. */
pj_status pj_build_conditions(const pj_tree *tree, pj_run_data *data, pj_error *err);
pj_status pj_build_samples(const pj_tree *tree, pj_curve *const *curves, const pj_shares *shares,
                           pj_run_data *data, pj_error *err);

#endif
