/* How the energy per output token of a machine's runs follows size, shape, batch and lengths. JSON:
 * docs/api.md. */
#ifndef PJ_INSIGHT_LAWS_H
#define PJ_INSIGHT_LAWS_H

#include "analysis/law.h"
#include "base/json.h"
#include "store/store.h"

enum { PJ_LAWS = 8, PJ_LAW_POINTS = 64 };

/* A run as a point of laws. */
typedef struct pj_law_run {
    const pj_run_info *info;
    double x[PJ_LAWS], joules; /* x: by variable */
    char attention[16];
    uint64_t settings; /* equal dtype, threads, energy source, scope, devices */
} pj_law_run;

/* The law over one variable, fitted to the largest set of runs that are otherwise equal. */
typedef struct pj_run_law {
    const char *over;
    pj_law law;
    pj_law_point points[PJ_LAW_POINTS];  /* x, geometric mean of joules per token */
    const pj_law_run *of[PJ_LAW_POINTS]; /* the first run of each point */
    uint32_t runs[PJ_LAW_POINTS], count;
} pj_run_law;

/* Energy per token and billion active parameters, so that size is no confounder. */
typedef struct pj_attention_kind {
    const char *attention; /* multi-head, grouped or multi-query */
    uint32_t models;
    double joules_per_billion;
} pj_attention_kind;

typedef struct pj_laws {
    pj_arena arena;
    pj_run_list list;
    const char *machine;
    uint32_t run_count, kind_count;
    pj_run_law laws[PJ_LAWS];
    pj_attention_kind kinds[PJ_LAW_POINTS];
    double kinds_r2;           /* NAN: refused */
    const char *kinds_refusal; /* NULL: none */
} pj_laws;

/* `machine` NULL: this one. On failure *laws is NULL. */
pj_status pj_laws_get(pj_store *store, const char *machine, pj_laws **laws, pj_error *err);
void pj_laws_free(pj_laws *laws); /* NULL is allowed */
void pj_laws_write(const pj_laws *laws, pj_json *json);

/* Both at once. */
pj_status pj_insight_laws(pj_store *store, const char *machine, pj_json *json, pj_error *err);

#endif
