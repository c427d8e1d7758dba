/*
 * Cells of an experiment that another engine runs: "attach:URL" sends a request to a server,
 * "exec:COMMAND" runs a program. From the command line alone: a plan that comes over the network
 * must neither run programs nor open connections.
 */
#ifndef PJ_CLI_EXPERIMENT_ENGINES_H
#define PJ_CLI_EXPERIMENT_ENGINES_H

#include "cli/exec_child.h"
#include "profile/experiment.h"

typedef struct pj_engines {
    pj_session *session;
    const char *headers; /* of requests, each with CR LF; or NULL */
    uint32_t last_cell;  /* whose server has answered a request already */
    pj_child blank;      /* with a descriptor reserved for the markers of programs */
} pj_engines;

void pj_engines_init(pj_engines *engines); /* before anything else is opened */

/* As pj_experiment_options.foreign, with a pj_engines as context. */
pj_status pj_engines_measure(void *context, const pj_foreign_cell *cell, double *joules_per_token,
                             pj_error *err);

#endif
