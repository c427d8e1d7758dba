/* The request's energy within a run (trace/request.h), and its standard deviations: those of the
 * leaves that remain without model loading and idle gaps. */
#include "attribution/joules.h"

#include "base/memory.h"
#include "trace/request.h"

#include <math.h>
#include <string.h>

static bool is_model_load(const pj_tree *tree, const pj_node *node)
{
    return node->kind == PJ_SPAN_SECTION &&
           strcmp(pj_tree_name(tree, node->id), PJ_SECTION_MODEL_LOAD) == 0;
}

static bool in_request(const pj_tree *tree, uint32_t leaf)
{
    uint32_t at = tree->leaves[leaf].node;
    if (at == 0) return false;
    for (; at != 0; at = tree->nodes[at].parent)
        if (is_model_load(tree, &tree->nodes[at])) return false;
    return true;
}

pj_status pj_joules_request(pj_joules *j, pj_error *err)
{
    pj_run_info *info = &j->d->info;
    const pj_tree *tree = j->tree;
    pj_status status = pj_request_figures(j->d, err);
    if (status != PJ_OK || isnan(info->request_mj)) return status;
    uint32_t count = 0, *leaves = pj_alloc((size_t)tree->leaf_count + 1, sizeof *leaves);
    if (!leaves) return pj_fail_memory(err, "the energies of a run");
    for (uint32_t i = 0; i < tree->leaf_count; i++)
        if (in_request(tree, i)) leaves[count++] = i;
    pj_sd gross, net;
    if (count < tree->leaf_count) {
        status = pj_joules_judge_leaves(j, leaves, count, PJ_ALL_RAILS, &gross, &net, err);
        if (status == PJ_OK) {
            info->request_sd_mj = pj_sd_total(&gross);
            if (!isnan(info->request_net_mj)) info->request_net_sd_mj = pj_sd_total(&net);
        }
    }
    pj_free(leaves);
    return status;
}
