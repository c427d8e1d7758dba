/* The request's energy within a run (trace/request.h), and its standard deviations: those of the
 * leaves that remain without model loading and idle gaps, and those of loading the model. */
#include "attribution/energies.h"

#include "base/memory.h"
#include "trace/request.h"

#include <math.h>
#include <string.h>

static bool is_model_load(const pj_tree *tree, const pj_node *node)
{
    return node->kind == PJ_SPAN_SECTION &&
           strcmp(pj_tree_name(tree, node->id), PJ_SECTION_MODEL_LOAD) == 0;
}

typedef enum leaf_use { BETWEEN_PHASES, LOADS_MODEL, IN_REQUEST } leaf_use;

static leaf_use use_of(const pj_tree *tree, uint32_t leaf)
{
    uint32_t at = tree->leaves[leaf].node;
    if (at == 0) return BETWEEN_PHASES;
    for (; at != 0; at = tree->nodes[at].parent)
        if (is_model_load(tree, &tree->nodes[at])) return LOADS_MODEL;
    return IN_REQUEST;
}

static uint32_t list_leaves(const pj_tree *tree, leaf_use use, uint32_t *leaves)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tree->leaf_count; i++)
        if (use_of(tree, i) == use) leaves[count++] = i;
    return count;
}

static pj_status measure_request(pj_energies *j, uint32_t *leaves, pj_error *err)
{
    pj_run_info *info = &j->d->info;
    uint32_t count = list_leaves(j->tree, IN_REQUEST, leaves);
    pj_sd gross, net;
    if (count == j->tree->leaf_count) return PJ_OK; /* all of the run */
    pj_status status = pj_energy_check_leaves(j, leaves, count, PJ_ALL_RAILS, &gross, &net, err);
    if (status != PJ_OK) return status;
    info->request_sd = gross;
    info->request_sd_mj = pj_sd_total(&gross);
    if (isnan(info->request_net_mj)) return PJ_OK;
    info->request_net_sd = net;
    info->request_net_sd_mj = pj_sd_total(&net);
    return PJ_OK;
}

static pj_status measure_model_load(pj_energies *j, uint32_t *leaves, pj_error *err)
{
    pj_run_info *info = &j->d->info;
    pj_sd net;
    if (isnan(info->model_load_mj)) return PJ_OK;
    uint32_t count = list_leaves(j->tree, LOADS_MODEL, leaves);
    pj_status status =
        pj_energy_check_leaves(j, leaves, count, PJ_ALL_RAILS, &info->model_load_sd, &net, err);
    if (status == PJ_OK) info->model_load_sd_mj = pj_sd_total(&info->model_load_sd);
    return status;
}

/* Part of what computed the request has no rail: its energy is unknown. */
static void forget_request(pj_run_info *info)
{
    double ms = info->request_ms, share = info->disturbed_share;
    double thinking = info->thinking_tokens, thinking_ms = info->thinking_ms;
    double tool_calls = info->tool_calls;
    int32_t disturbed = info->disturbed_tokens;
    pj_request_clear(info);
    info->thinking_tokens = thinking;
    info->thinking_ms = thinking_ms;
    info->tool_calls = tool_calls;
    info->request_ms = ms;
    info->disturbed_tokens = disturbed;
    info->disturbed_share = share;
}

pj_status pj_energy_request(pj_energies *j, pj_error *err)
{
    pj_usual_times usual = PJ_USUAL_TIMES_UNKNOWN;
    if (j->options->usual) j->options->usual(j->options->usual_context, &j->d->info, &usual);
    pj_status status = pj_request_figures(j->d, &usual, err);
    if (j->no_parts) forget_request(&j->d->info);
    if (status != PJ_OK || isnan(j->d->info.request_mj)) return status;
    uint32_t *leaves = pj_alloc((size_t)j->tree->leaf_count + 1, sizeof *leaves);
    if (!leaves) return pj_fail_memory(err, "the energies of a run");
    status = measure_request(j, leaves, err);
    if (status == PJ_OK) status = measure_model_load(j, leaves, err);
    pj_free(leaves);
    return status;
}
