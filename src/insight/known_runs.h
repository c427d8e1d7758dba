/* Data for predictions from stored runs: the work of each request with its joules and seconds. */
#ifndef PJ_INSIGHT_KNOWN_RUNS_H
#define PJ_INSIGHT_KNOWN_RUNS_H

#include "analysis/predict.h"
#include "store/store.h"

typedef struct pj_known_query {
    const char *machine;
    const char *before; /* ISO 8601: only runs created before; NULL: all */
    uint32_t threads;   /* 0: as the newest run */
    /* Only runs comparable with this one; NULL: with the newest, a measured one if there are
     * enough. */
    const pj_run_info *like;
} pj_known_query;

typedef struct pj_known_runs {
    pj_known_run *runs;
    size_t count;
    pj_source_quality quality; /* of their energy */
    char partial[256];         /* what it lacks: "CPU only, GPU missing"; "": nothing */
} pj_known_runs;

/* The newest undisturbed runs of our engine on that machine with equal threads. */
pj_status pj_known_runs_load(pj_store *store, const pj_known_query *query, pj_known_runs *known,
                             pj_error *err);
void pj_known_runs_fini(pj_known_runs *known); /* may run twice */
/* False: the run lacks a figure, for example because it has no energy. */
bool pj_known_run_of(const pj_run_info *info, pj_known_run *run);

#endif
