/*
 * Concurrent runs: scales leaf energies, computed as if the run had been alone, to the run's share.
 * Where the energy of a part of the run's time was determined for all runs together, the leaves of
 * that part add up to the run's share of it, to the nanojoule; elsewhere each leaf is multiplied by
 * the share.
 */
#include "attribution/energies.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* Leaves of one part: [begin, end) of the tree's. */
typedef struct part_leaves {
    uint32_t begin, end;
    uint32_t last;          /* of those that the rail sees */
    int64_t sum_nj, sum_ns; /* sum_nj is unknown because a leaf is */
} part_leaves;

/* Slot 0 of the rail's arrays is the time before the run. */
static part_leaves leaves_of(const pj_energies *j, const pj_rail_result *result, uint32_t part,
                             uint32_t from)
{
    part_leaves p = {from, from, from, 0, 0};
    for (; p.end < j->tree->leaf_count && j->leaf_part[p.end] == part; p.end++) {
        const pj_leaf *leaf = &j->tree->leaves[p.end];
        if (!pj_rail_sees_leaf(j, result, p.end)) continue;
        p.last = p.end;
        p.sum_ns += leaf->end_ns - leaf->begin_ns;
        pj_nj_add(&p.sum_nj, j->rail_gross[p.end + 1]);
    }
    return p;
}

/* Distributes the target by what the leaves have; by time if they have nothing. */
static void scale_leaves(pj_energies *j, const pj_rail_result *result, const part_leaves *p,
                         double share, int64_t target_nj)
{
    double sum = 0;
    int64_t given = 0;
    bool by_time = p->sum_nj == 0;
    for (uint32_t i = p->begin; i < p->end; i++) {
        const pj_leaf *leaf = &j->tree->leaves[i];
        int64_t *gross = &j->rail_gross[i + 1], *net = &j->rail_net[i + 1];
        if (!pj_rail_sees_leaf(j, result, i)) continue;
        int64_t idle = *net == PJ_NJ_UNKNOWN ? 0 : *gross - *net;
        sum += by_time ? (double)(leaf->end_ns - leaf->begin_ns) / (double)p->sum_ns
                       : (double)*gross / (double)p->sum_nj;
        int64_t own = i == p->last ? target_nj - given : llround(sum * (double)target_nj) - given;
        given += own;
        *gross = own;
        if (*net != PJ_NJ_UNKNOWN) *net = own - llround(share * (double)idle);
    }
}

static void scale_each(pj_energies *j, const part_leaves *p, double share)
{
    for (uint32_t i = p->begin; i < p->end; i++) {
        int64_t *gross = &j->rail_gross[i + 1], *net = &j->rail_net[i + 1];
        if (*gross != PJ_NJ_UNKNOWN) *gross = llround(share * (double)*gross);
        if (*net != PJ_NJ_UNKNOWN) *net = llround(share * (double)*net);
    }
}

static bool find_parts(pj_energies *j)
{
    const pj_shares *shares = j->options->shares;
    if (j->leaf_part) return true;
    j->leaf_part = pj_arena_alloc(&j->arena, j->tree->leaf_count, sizeof *j->leaf_part);
    for (uint32_t i = 0; j->leaf_part && i < j->tree->leaf_count; i++)
        j->leaf_part[i] =
            (uint32_t)(pj_shares_at(shares, j->tree->leaves[i].begin_ns) - shares->parts);
    return j->leaf_part != NULL;
}

pj_status pj_energy_scale(pj_energies *j, pj_rail_result *result, pj_error *err)
{
    const pj_shares *shares = j->options->shares;
    double whole_mj = 0; /* of the run so far: rounding errors do not add up over the parts */
    int64_t given_nj = 0;
    uint32_t at = 0;
    if (!shares) return PJ_OK;
    result->part_factor = pj_arena_alloc(&j->arena, shares->count, sizeof *result->part_factor);
    result->part_sd = pj_arena_alloc(&j->arena, shares->count, sizeof *result->part_sd);
    if (!result->part_factor || !result->part_sd || !find_parts(j))
        return pj_fail_memory(err, "the shares of a run");
    for (uint32_t k = 0; k < shares->count; k++) {
        const pj_share_part *part = &shares->parts[k];
        part_leaves p = leaves_of(j, result, k, at);
        pj_share_energy e = pj_share_part_energy(part, result->rail);
        at = p.end;
        result->part_factor[k] = part->share;
        if (p.begin == p.end) continue;
        bool is_known = p.sum_nj != PJ_NJ_UNKNOWN && e.mj > -1e12 && e.mj < 1e12 && p.sum_ns > 0;
        if (!is_known) {
            scale_each(j, &p, part->share);
            continue;
        }
        whole_mj += part->share * e.mj;
        int64_t target_nj = llround(whole_mj * 1e6) - given_nj;
        given_nj += target_nj;
        scale_leaves(j, result, &p, part->share, target_nj);
        if (p.sum_nj > 0) result->part_factor[k] = (double)target_nj / (double)p.sum_nj;
        if (e.mj > 0 && e.sd_mj > 0) result->part_sd[k] = e.sd_mj / e.mj;
    }
    return PJ_OK;
}

/* ---- leaves at the same time ---- */

typedef struct leaf_edge {
    int64_t at_ns;
    uint32_t leaf;
    bool is_end;
} leaf_edge;

static int share_by_time(const void *a, const void *b)
{
    const leaf_edge *x = a, *y = b;
    if (x->at_ns != y->at_ns) return x->at_ns < y->at_ns ? -1 : 1;
    return (int)y->is_end - (int)x->is_end;
}

/* Of the leaves of one device. */
typedef struct open_leaves {
    size_t count;
    int64_t at_ns;  /* of the last edge */
    double idle_ns; /* of one leaf that would have been there from the start */
} open_leaves;

static void pass_edge(pj_energies *j, open_leaves *open, const leaf_edge *edge, double *from)
{
    const pj_leaf *leaf = &j->tree->leaves[edge->leaf];
    double length = (double)(leaf->end_ns - leaf->begin_ns);
    if (open->count) open->idle_ns += (double)(edge->at_ns - open->at_ns) / (double)open->count;
    open->at_ns = edge->at_ns;
    open->count += edge->is_end ? (size_t)-1 : 1;
    if (!edge->is_end)
        from[edge->leaf] = open->idle_ns;
    else
        j->leaf_idle[edge->leaf] =
            length > 0 ? (float)((open->idle_ns - from[edge->leaf]) / length) : 1;
}

pj_status pj_energy_overlaps(pj_energies *j, pj_error *err)
{
    const pj_tree *tree = j->tree;
    open_leaves open[PJ_MAX_DEVICES] = {{0, 0, 0}};
    size_t count = 0;
    if (!tree->overlaps) return PJ_OK;
    leaf_edge *edges = pj_alloc((size_t)2 * tree->leaf_count, sizeof *edges);
    double *from = pj_alloc(tree->leaf_count, sizeof *from);
    j->leaf_idle = pj_arena_alloc(&j->arena, tree->leaf_count, sizeof *j->leaf_idle);
    for (uint32_t i = 0; edges && i < tree->leaf_count; i++) {
        edges[count++] = (leaf_edge){tree->leaves[i].begin_ns, i, false};
        edges[count++] = (leaf_edge){tree->leaves[i].end_ns, i, true};
    }
    bool ok = edges && from && j->leaf_idle;
    if (ok) qsort(edges, count, sizeof *edges, share_by_time);
    for (size_t i = 0; ok && i < count; i++)
        pass_edge(j, &open[pj_tree_leaf_device(tree, &tree->leaves[edges[i].leaf])], &edges[i],
                  from);
    pj_free(edges);
    pj_free(from);
    return ok ? PJ_OK : pj_fail_memory(err, "the energies of a run");
}
