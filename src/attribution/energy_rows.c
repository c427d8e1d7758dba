/* Fills in what rows have besides their node's energy. */
#include "attribution/energies.h"

#include "attribution/batch.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

/* Mean power of the step, on each of its token rows; batch.c splits the energy. */
static void fill_power(pj_energies *j, const pj_node *node)
{
    pj_run_data *d = j->d;
    pj_token_row *row = &d->tokens[node->row];
    double seconds = (double)(node->end_ns - node->begin_ns) * 1e-9;
    if (row->energy.gross_nj == PJ_NJ_UNKNOWN || !(seconds > 0)) return;
    double mw = pj_mj_of_nj(row->energy.gross_nj) / seconds;
    uint32_t end = row->step == PJ_NO_PARENT ? node->row + 1 : pj_shared_step_end(d, node->row);
    for (uint32_t i = node->row; i < end; i++) d->tokens[i].power_mw = mw;
}

static void energy_rows_fill_rows(pj_energies *j)
{
    const pj_tree *tree = j->tree;
    pj_run_data *d = j->d;
    for (uint32_t i = 1; i < tree->node_count; i++) {
        const pj_node *node = &tree->nodes[i];
        if (node->kind == PJ_SPAN_TOKEN) fill_power(j, node);
    }
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        const pj_node *node = &tree->nodes[tree->leaves[i].node];
        if (tree->child_begin[tree->leaves[i].node] != tree->child_begin[tree->leaves[i].node + 1])
            continue; /* the time between its children is of another class */
        if (node->kind == PJ_SPAN_COMPONENT)
            d->components[node->row].class_ = tree->leaves[i].class_;
        if (node->kind == PJ_SPAN_OPERATION)
            d->operations[node->row].class_ = tree->leaves[i].class_;
    }
}

/* The end of the leaves that make one row of idle time: those that were only cut because the share
 * of the run changed between them. */
static uint32_t idle_end(const pj_tree *tree, uint32_t begin)
{
    uint32_t end = begin + 1;
    while (end < tree->leaf_count && tree->leaves[begin].node == 0 && tree->leaves[end].node == 0 &&
           tree->leaves[end].begin_ns == tree->leaves[end - 1].end_ns)
        end++;
    return end;
}

static pj_status fill_idle_row(pj_energies *j, uint32_t begin, uint32_t end, pj_phase_row *row,
                               pj_error *err)
{
    const pj_tree *tree = j->tree;
    int64_t from_ns = tree->leaves[begin].begin_ns, to_ns = tree->leaves[end - 1].end_ns;
    uint32_t *leaves = pj_alloc(end - begin, sizeof *leaves);
    if (!leaves) return pj_fail_memory(err, "the phases of a run");
    *row = (pj_phase_row){PJ_PHASE_IDLE, (double)(from_ns - tree->begin_ns) / 1e6,
                          (double)(to_ns - from_ns) / 1e6, j->run};
    bool has_planted = row->energy.planted_nj != PJ_NJ_UNKNOWN;
    row->energy.gross_nj = row->energy.net_nj = 0;
    row->energy.planted_nj = has_planted ? 0 : PJ_NJ_UNKNOWN;
    for (uint32_t i = begin; i < end; i++) {
        leaves[i - begin] = i;
        pj_nj_add(&row->energy.gross_nj, j->gross[i]);
        pj_nj_add(&row->energy.net_nj, j->net[i]);
        if (has_planted) row->energy.planted_nj += pj_energy_planted(j, &tree->leaves[i]);
    }
    row->energy.self_nj = row->energy.gross_nj;
    pj_status status = PJ_OK;
    if (row->energy.gross_nj != PJ_NJ_UNKNOWN) {
        status = pj_energy_check_leaves(j, leaves, end - begin, PJ_ALL_RAILS, &row->energy.sd,
                                        &row->energy.net_sd, err);
        row->energy.sd_mj = (float)pj_sd_total(&row->energy.sd);
        if (row->energy.net_nj == PJ_NJ_UNKNOWN) row->energy.net_sd = PJ_SD_UNKNOWN;
        row->energy.net_sd_mj = (float)pj_sd_total(&row->energy.net_sd);
        row->energy.method = (uint8_t)pj_energy_method(j, PJ_SPAN_PHASE, to_ns - from_ns);
    }
    pj_free(leaves);
    return status;
}

/* Time outside phases becomes rows of phase `idle`, so that the phases add up to the run. */
static pj_status fill_idle(pj_energies *j, pj_error *err)
{
    const pj_tree *tree = j->tree;
    pj_run_data *d = j->d;
    uint32_t extra = 0;
    for (uint32_t i = 0; i < tree->leaf_count; i = idle_end(tree, i))
        extra += tree->leaves[i].node == 0;
    if (!extra) return PJ_OK;
    pj_phase_row *rows = pj_arena_alloc(&d->arena, d->phase_count + extra, sizeof *rows);
    if (!rows) return pj_fail_memory(err, "the phases of a run");
    if (d->phase_count) memcpy(rows, d->phases, d->phase_count * sizeof *rows);
    d->phases = rows;
    for (uint32_t i = 0, end; i < tree->leaf_count; i = end) {
        end = idle_end(tree, i);
        if (tree->leaves[i].node != 0) continue;
        pj_status status = fill_idle_row(j, i, end, &d->phases[d->phase_count++], err);
        if (status != PJ_OK) return status;
    }
    return PJ_OK;
}

pj_status pj_energy_rows(pj_energies *j, pj_error *err)
{
    energy_rows_fill_rows(j);
    double idle_mw = j->sim_mw ? j->options->sim->idle_mw : NAN;
    pj_status status = pj_batch_share(j->d, idle_mw, err);
    return status == PJ_OK ? fill_idle(j, err) : status;
}
