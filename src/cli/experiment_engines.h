/*
 * Cells of an experiment that another engine runs: "attach:URL" sends a request to a server,
 * "exec:COMMAND" runs a program. Available only on the command line: a plan received over the
 * network must neither run programs nor open connections.
 */
#ifndef PJ_CLI_EXPERIMENT_ENGINES_H
#define PJ_CLI_EXPERIMENT_ENGINES_H

#include "cli/exec_child.h"
#include "experiment/experiment.h"

typedef struct pj_engines {
    pj_session *session;
    const char *headers; /* of requests, each with CR LF; or NULL */
    uint32_t last_cell;  /* number of a cell whose server is warmed up */
    pj_child blank;      /* with the descriptor reserved for markers */
} pj_engines;

void pj_engines_init(pj_engines *engines); /* to be called before anything else is opened */

/* As pj_experiment_options.foreign, with a pj_engines as context. */
pj_status pj_engines_measure(void *context, const pj_foreign_cell *cell, double *joules_per_token,
                             pj_error *err);

#endif
