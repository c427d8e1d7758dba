/* Why one side of a comparison costs more than another (analysis/why.h), over stored runs. */
#ifndef PJ_INSIGHT_EXPLAINED_H
#define PJ_INSIGHT_EXPLAINED_H

#include "analysis/why.h"
#include "insight/insight.h"

typedef struct pj_explained {
    pj_sides *sides; /* two, compared as in any comparison */
    pj_why why;
    const char *refusal; /* why their energies are not comparable: nothing is named then. Or NULL */
    char unlike[160];    /* how their models differ: phases are compared as a whole then; else "" */
    /* one of these owns the sides */
    pj_compared *groups;
    pj_sides own;
    pj_run_list lists[2];
} pj_explained;

/* Each side is a run, which stands for its --repeat series if both do, or several runs separated by
 * commas. On failure *explained is NULL. */
pj_status pj_explained_runs(pj_store *store, const char *const sides[2], pj_explained **explained,
                            pj_error *err);
/* Two groups of runs: of these values of the field, or the only two if `values` is NULL. */
pj_status pj_explained_groups(pj_store *store, const pj_group_query *query,
                              const char *const *values, pj_explained **explained, pj_error *err);
void pj_explained_free(pj_explained *explained); /* NULL is allowed */

/* The answer of /compare/why, an object. */
void pj_explained_write(const pj_explained *explained, pj_json *json);

pj_status pj_insight_why(pj_store *store, const char *const sides[2], pj_json *json, pj_error *err);

#endif
