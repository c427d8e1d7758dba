/* Parts of a run's time from the records of its spool. */
#include "attribution/shares.h"

#include "base/interval.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

typedef struct found {
    pj_share_record record;
    const unsigned char *energies;
} found;

static bool shares_is_sound(const pj_share_record *r, uint32_t bytes)
{
    return r->begin_ns >= 0 && r->begin_ns < PJ_LATEST_NS && r->end_ns >= 0 &&
           r->end_ns < PJ_LATEST_NS && (!r->end_ns || r->end_ns > r->begin_ns) && r->share >= 0 &&
           r->share <= 1 && r->rule < PJ_SHARE_RULE_COUNT && r->rail_count <= PJ_MAX_RAILS &&
           bytes == sizeof *r + r->rail_count * sizeof(pj_share_energy);
}

static size_t shares_collect(const pj_tree *tree, found *all)
{
    size_t count = 0;
    for (uint32_t i = 0; i < tree->note_count; i++) {
        const pj_record *record = tree->notes[i];
        if (pj_record_kind(record) != PJ_RECORD_SHARE) continue;
        uint32_t bytes = pj_record_bytes(record);
        found f = {.energies = record->payload + sizeof f.record};
        if (bytes < sizeof f.record) continue;
        memcpy(&f.record, record->payload, sizeof f.record);
        if (shares_is_sound(&f.record, bytes)) all[count++] = f;
    }
    return count;
}

/* By begin; announcements before the energies of the same time. */
static int shares_by_begin(const void *a, const void *b)
{
    const pj_share_record *x = &((const found *)a)->record, *y = &((const found *)b)->record;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    return (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

static void add_part(pj_shares *s, const pj_tree *tree, pj_share_part part)
{
    int64_t from_ns = s->count ? s->parts[s->count - 1].end_ns : tree->begin_ns;
    bool is_whole = part.begin_ns >= from_ns && part.end_ns <= tree->end_ns;
    if (part.begin_ns < from_ns) part.begin_ns = from_ns;
    if (part.end_ns > tree->end_ns) part.end_ns = tree->end_ns;
    if (!is_whole) part.energies = NULL; /* damaged: its interval does not match */
    if (part.end_ns > part.begin_ns) s->parts[s->count++] = part;
}

pj_status pj_shares_read(const pj_tree *tree, pj_shares *s, pj_error *err)
{
    size_t notes = 0;
    *s = (pj_shares){0};
    for (uint32_t i = 0; i < tree->note_count; i++)
        notes += pj_record_kind(tree->notes[i]) == PJ_RECORD_SHARE;
    if (!notes) return PJ_OK;
    found *all = pj_alloc(notes, sizeof *all);
    s->parts = pj_alloc(2 * notes + 1, sizeof *s->parts);
    if (!all || !s->parts) {
        pj_free(all);
        return pj_fail_memory(err, "the shares of a run");
    }
    size_t count = shares_collect(tree, all);
    qsort(all, count, sizeof *all, shares_by_begin);
    double share = 1; /* announced share for a time without determined energies */
    int64_t until_ns = tree->begin_ns;
    for (size_t i = 0; i < count; i++) {
        const pj_share_record *r = &all[i].record;
        s->rule = (pj_share_rule)r->rule;
        if (r->begin_ns > until_ns) {
            add_part(s, tree, (pj_share_part){until_ns, r->begin_ns, share, NULL, 0});
            until_ns = r->begin_ns;
        }
        share = r->share;
        if (!r->end_ns) continue;
        add_part(s, tree,
                 (pj_share_part){r->begin_ns, r->end_ns, share,
                                 (const pj_share_energy *)(const void *)all[i].energies,
                                 r->rail_count});
        until_ns = r->end_ns;
    }
    if (count && tree->end_ns > until_ns)
        add_part(s, tree, (pj_share_part){until_ns, tree->end_ns, share, NULL, 0});
    pj_free(all);
    return PJ_OK;
}

void pj_shares_fini(pj_shares *s)
{
    pj_free(s->parts);
    *s = (pj_shares){0};
}

/* ---- using ---- */

const pj_share_part *pj_shares_at(const pj_shares *s, int64_t at_ns)
{
    uint32_t low = 0, high = s->count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->parts[middle].end_ns > at_ns)
            high = middle;
        else
            low = middle + 1;
    }
    return &s->parts[low];
}

double pj_shares_mean(const pj_shares *s, int64_t begin_ns, int64_t end_ns)
{
    double sum = 0, covered = 0;
    if (!s->count) return 1;
    const pj_share_part *p = pj_shares_at(s, begin_ns);
    double at_begin = p->share;
    for (; p < s->parts + s->count && p->begin_ns < end_ns; p++) {
        double ns = (double)pj_overlap_ns(p->begin_ns, p->end_ns, begin_ns, end_ns);
        sum += p->share * ns;
        covered += ns;
    }
    return covered > 0 ? sum / covered : at_begin;
}

pj_share_energy pj_share_part_energy(const pj_share_part *p, uint32_t rail)
{
    pj_share_energy e = {NAN, NAN};
    if (p->energies && rail < p->rail_count)
        memcpy(&e, (const unsigned char *)(const void *)p->energies + rail * sizeof e, sizeof e);
    return e;
}

static size_t parts_in(const pj_shares *s, const pj_leaf *leaf)
{
    const pj_share_part *first = pj_shares_at(s, leaf->begin_ns);
    const pj_share_part *last = pj_shares_at(s, leaf->end_ns - 1);
    return last > first ? (size_t)(last - first) + 1 : 1;
}

static int shares_leaf_by_begin(const void *a, const void *b)
{
    const pj_leaf *x = a, *y = b;
    return x->begin_ns < y->begin_ns ? -1 : x->begin_ns > y->begin_ns;
}

pj_status pj_shares_cut(const pj_shares *s, pj_tree *tree, pj_error *err)
{
    size_t wanted = 0, used = 0;
    if (s->count < 2) return PJ_OK;
    for (uint32_t i = 0; i < tree->leaf_count; i++) wanted += parts_in(s, &tree->leaves[i]);
    if (wanted == tree->leaf_count) return PJ_OK;
    pj_leaf *all = wanted < UINT32_MAX - 2 ? pj_alloc(wanted + 2, sizeof *all) : NULL;
    if (!all) return pj_fail_memory(err, "the spans of a run");
    pj_leaf *leaves = all + 1; /* slots for the time around the run, see tree.h */
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        pj_leaf rest = tree->leaves[i];
        const pj_share_part *p = pj_shares_at(s, rest.begin_ns);
        for (size_t n = parts_in(s, &rest); n > 1; n--, p++) {
            leaves[used] = rest;
            leaves[used++].end_ns = rest.begin_ns = p->end_ns;
        }
        leaves[used++] = rest;
    }
    if (tree->overlaps || tree->device_count > 1)
        qsort(leaves, used, sizeof *leaves, shares_leaf_by_begin);
    pj_free(tree->leaves - 1);
    tree->leaves = leaves;
    tree->leaf_count = (uint32_t)used;
    tree->leaf_capacity = (uint32_t)wanted + 2;
    return PJ_OK;
}
