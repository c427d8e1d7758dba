/* The runs that a gate judges: measured by running a command, read from the database and from
 * exports, or kept in a small file of their own (docs/formats.md, "Baselines"). */
#ifndef PJ_CLI_GATE_RUNS_H
#define PJ_CLI_GATE_RUNS_H

#include "cli/exec_run.h"

/* What is judged: the first of these that all runs of both sides have. */
typedef enum pj_gate_figure {
    PJ_GATE_TYPICAL = 0, /* joules of the typical output token: trace/typical.h */
    PJ_GATE_TOKEN,       /* joules of the request per output token */
    PJ_GATE_RUN,         /* joules of the whole run */
    PJ_GATE_FIGURES
} pj_gate_figure;

enum { PJ_GATE_RUNS = 256 };

/* What a run's energy is a quantity of: "measured" or "modelled", by which power sources, the
 * scope, the rails in the total, and those that it lacks, or "none". "": not known. */
typedef struct pj_gate_energy {
    char source[16], power[256], scope[16], rails[256], missing[256];
} pj_gate_energy;

typedef struct pj_gate_runs {
    double joules[PJ_GATE_FIGURES][PJ_GATE_RUNS]; /* NAN: unavailable */
    uint32_t count, disturbed;                    /* of stored ones the disturbed are left out */
    pj_gate_energy energy; /* of the first run, and its machine; "" as long as there is none */
    char machine[128];
    char ids[PJ_GATE_RUNS][PJ_UUID_BYTES]; /* "": not known */
} pj_gate_runs;

/* A command, as a text for the shell. `perjoule run` measures itself and is asked for its figures;
 * anything else is measured by the session. */
typedef struct pj_gate_command {
    const char *text;
    const char *power;      /* --power of the gate; NULL: not given */
    const char *db;         /* likewise */
    const char *tag;        /* of its runs; NULL: "gate" */
    const char *commit_tag; /* of its runs that count, too: PJ_TAG_COMMIT and what was built; NULL:
                               unknown */
    pj_session *session;
    pj_child blank; /* with the descriptor reserved for markers */
} pj_gate_command;

/* Where the options of a `perjoule run` begin; NULL: another program. */
const char *pj_gate_own_run(const char *command);
/* Runs it once. `runs` NULL: to warm up. Its standard output is discarded. */
pj_status pj_gate_measure(const pj_gate_command *command, pj_gate_runs *runs, pj_error *err);

/* Fails if the runs of the two sides are different quantities. */
pj_status pj_gate_comparable(const pj_gate_runs *a, const pj_gate_runs *b, pj_error *err);
/* Adds the runs of a baseline: a file, a run (or its --repeat series) or an experiment. */
pj_status pj_gate_read(const char *baseline, const char *db, pj_gate_runs *runs, pj_error *err);
pj_status pj_gate_save(const char *path, const char *command, const pj_gate_runs *runs,
                       pj_error *err);

const char *pj_gate_figure_name(pj_gate_figure figure); /* "joules_per_token", ... */
const char *pj_gate_figure_per(pj_gate_figure figure);  /* "per token", ...: after "joules" */
/* "CPU only, GPU missing"; NULL: the energy lacks nothing that is known of. */
const char *pj_gate_partial(const pj_gate_energy *energy, char *text, size_t bytes);
/* PJ_GATE_FIGURES: none. */
pj_gate_figure pj_gate_figure_of(const pj_gate_runs *a, const pj_gate_runs *b);

#endif
