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
        uint32_t index = tree->leaves[i].node;
        const pj_tree_class *class_ = &tree->classes[tree->leaves[i].class_];
        bool is_work = class_->component || class_->operation;
        if (tree->child_begin[index] != tree->child_begin[index + 1] &&
            !(is_work && class_->device == PJ_HOST && node->device == PJ_HOST))
            continue; /* the time between its children is of another class */
        if (node->kind == PJ_SPAN_COMPONENT)
            d->components[node->row].class_ = tree->leaves[i].class_;
        if (node->kind == PJ_SPAN_OPERATION)
            d->operations[node->row].class_ = tree->leaves[i].class_;
    }
}

/* ---- idle time ---- */

/* A row of idle time: the host's leaves that follow one another outside phases, and those of
 * devices that begin meanwhile. */
typedef struct idle_gap {
    int64_t begin_ns, end_ns;
    uint32_t *leaves;
    uint32_t count;
} idle_gap;

static bool is_outside(const pj_energies *j, uint32_t leaf, bool of_host)
{
    const pj_leaf *l = &j->tree->leaves[leaf];
    return l->node == 0 && (pj_tree_leaf_device(j->tree, l) == PJ_HOST) == of_host;
}

/* Leaves that were only cut because the share of the run changed between them are one gap. */
static uint32_t find_gaps(const pj_energies *j, idle_gap *gaps)
{
    const pj_tree *tree = j->tree;
    uint32_t count = 0;
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        const pj_leaf *leaf = &tree->leaves[i];
        if (!is_outside(j, i, true)) continue;
        if (count && gaps[count - 1].end_ns == leaf->begin_ns)
            gaps[count - 1].end_ns = leaf->end_ns;
        else
            gaps[count++] = (idle_gap){leaf->begin_ns, leaf->end_ns, NULL, 0};
    }
    return count;
}

/* The last gap that begins by then, or the first. */
static uint32_t gap_at(const idle_gap *gaps, uint32_t count, int64_t at_ns)
{
    uint32_t low = 0, high = count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (gaps[middle].begin_ns <= at_ns)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Both in order of their begin, so that the leaves of each gap follow one another. */
static void give_leaves(const pj_energies *j, idle_gap *gaps, uint32_t count, uint32_t *room)
{
    const pj_tree *tree = j->tree;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < tree->leaf_count; i++) {
            if (tree->leaves[i].node != 0) continue;
            idle_gap *gap = &gaps[gap_at(gaps, count, tree->leaves[i].begin_ns)];
            if (pass == 1) gap->leaves[gap->count] = i;
            gap->count++;
        }
        for (uint32_t g = 0; pass == 0 && g < count; g++) {
            gaps[g].leaves = room;
            room += gaps[g].count;
            gaps[g].count = 0;
        }
    }
}

static void sum_gap(const pj_energies *j, const idle_gap *gap, pj_energy *e)
{
    bool has_planted = e->planted_nj != PJ_NJ_UNKNOWN, any = false;
    e->gross_nj = e->net_nj = 0;
    e->planted_nj = has_planted ? 0 : PJ_NJ_UNKNOWN;
    for (uint32_t i = 0; i < gap->count; i++) {
        if (!pj_energy_counts(j, gap->leaves[i])) continue;
        any = true;
        pj_nj_add(&e->gross_nj, j->gross[gap->leaves[i]]);
        pj_nj_add(&e->net_nj, j->net[gap->leaves[i]]);
        if (has_planted) e->planted_nj += pj_energy_planted(j, &j->tree->leaves[gap->leaves[i]]);
    }
    if (!any) e->gross_nj = e->net_nj = PJ_NJ_UNKNOWN;
    e->self_nj = e->gross_nj;
}

static pj_status fill_idle_row(pj_energies *j, const idle_gap *gap, pj_phase_row *row,
                               pj_error *err)
{
    *row = (pj_phase_row){PJ_PHASE_IDLE, (double)(gap->begin_ns - j->tree->begin_ns) / 1e6,
                          (double)(gap->end_ns - gap->begin_ns) / 1e6, j->run};
    pj_energy *e = &row->energy;
    sum_gap(j, gap, e);
    if (e->gross_nj == PJ_NJ_UNKNOWN) return PJ_OK;
    pj_status status =
        pj_energy_check_leaves(j, gap->leaves, gap->count, PJ_ALL_RAILS, &e->sd, &e->net_sd, err);
    e->sd_mj = (float)pj_sd_total(&e->sd);
    e->net_sd_mj = (float)pj_sd_total(&e->net_sd);
    e->method = (uint8_t)pj_energy_method(j, PJ_SPAN_PHASE, gap->end_ns - gap->begin_ns);
    return status;
}

static uint32_t count_outside(const pj_energies *j)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < j->tree->leaf_count; i++) count += j->tree->leaves[i].node == 0;
    return count;
}

/* Time outside phases becomes rows of phase `idle`, so that the phases add up to the run. */
static pj_status fill_idle(pj_energies *j, pj_error *err)
{
    pj_run_data *d = j->d;
    uint32_t outside = count_outside(j);
    if (!outside) return PJ_OK;
    idle_gap *gaps = pj_alloc(outside, sizeof *gaps);
    uint32_t *room = pj_alloc(outside, sizeof *room);
    uint32_t count = gaps ? find_gaps(j, gaps) : 0;
    pj_phase_row *rows = pj_arena_alloc(&d->arena, d->phase_count + count + 1, sizeof *rows);
    pj_status status = PJ_OK;
    if (!gaps || !room || !rows) status = pj_fail_memory(err, "the phases of a run");
    if (status == PJ_OK && count) give_leaves(j, gaps, count, room);
    if (status == PJ_OK && d->phase_count) memcpy(rows, d->phases, d->phase_count * sizeof *rows);
    if (status == PJ_OK) d->phases = rows;
    for (uint32_t g = 0; g < count && status == PJ_OK; g++)
        status = fill_idle_row(j, &gaps[g], &d->phases[d->phase_count++], err);
    pj_free(gaps);
    pj_free(room);
    return status;
}

pj_status pj_energy_rows(pj_energies *j, pj_error *err)
{
    energy_rows_fill_rows(j);
    double idle_mw = j->sim_mw ? j->options->sim->idle_mw : NAN;
    pj_status status = pj_batch_share(j->d, idle_mw, err);
    return status == PJ_OK ? fill_idle(j, err) : status;
}
