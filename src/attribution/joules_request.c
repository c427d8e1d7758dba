/*
 * The request's energy within a run (trace/request.h), and its standard deviation from the energy
 * curves: the request is what remains of the run's time after model loading and idle gaps have been
 * cut out, usually one interval. The errors of several intervals are added linearly, because most of
 * a sensor's error (its gain) is common to them.
 */
#include "attribution/joules.h"

#include "trace/request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct interval {
    int64_t begin_ns, end_ns;
} interval;

static int by_begin(const void *a, const void *b)
{
    int64_t x = ((const interval *)a)->begin_ns, y = ((const interval *)b)->begin_ns;
    return (x > y) - (x < y);
}

static bool is_model_load(const pj_tree *tree, const pj_node *node)
{
    return node->kind == PJ_SPAN_SECTION &&
           strcmp(pj_tree_name(tree, node->id), PJ_SECTION_MODEL_LOAD) == 0;
}

/* Model loading and idle gaps, in order of time; NULL: no memory. */
static interval *find_cuts(const pj_tree *tree, uint32_t *count)
{
    uint32_t most = 0;
    for (uint32_t i = 1; i < tree->node_count; i++) most += is_model_load(tree, &tree->nodes[i]);
    for (uint32_t i = 0; i < tree->leaf_count; i++) most += tree->leaves[i].node == 0;
    interval *cuts = pj_alloc((size_t)most + 1, sizeof *cuts);
    *count = 0;
    for (uint32_t i = 1; cuts && i < tree->node_count; i++)
        if (is_model_load(tree, &tree->nodes[i]))
            cuts[(*count)++] = (interval){tree->nodes[i].begin_ns, tree->nodes[i].end_ns};
    for (uint32_t i = 0; cuts && i < tree->leaf_count; i++)
        if (tree->leaves[i].node == 0)
            cuts[(*count)++] = (interval){tree->leaves[i].begin_ns, tree->leaves[i].end_ns};
    if (cuts) qsort(cuts, *count, sizeof *cuts, by_begin);
    return cuts;
}

static double request_sd(const pj_joules *j, const interval *cuts, uint32_t count)
{
    const pj_tree *tree = j->tree;
    int64_t at_ns = tree->begin_ns;
    double sd = 0;
    for (uint32_t i = 0; i <= count; i++) {
        int64_t until_ns = i < count ? cuts[i].begin_ns : tree->end_ns;
        if (until_ns > at_ns) sd += pj_joules_curve_sd_mj(j, at_ns, until_ns);
        if (i < count && cuts[i].end_ns > at_ns) at_ns = cuts[i].end_ns;
    }
    return sd;
}

pj_status pj_joules_request(pj_joules *j, pj_error *err)
{
    pj_run_info *info = &j->d->info;
    pj_status status = pj_request_figures(j->d, err);
    if (status != PJ_OK || isnan(info->request_mj)) return status;
    uint32_t count;
    interval *cuts = find_cuts(j->tree, &count);
    if (!cuts) return pj_fail_memory(err, "the energies of a run");
    if (count) info->request_sd_mj = request_sd(j, cuts, count);
    pj_free(cuts);
    return PJ_OK;
}
