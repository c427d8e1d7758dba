/* Pools classes for the fit, whose cost grows with the cube of their number. In a run of many
 * classes, those with less than a thousandth of the time share one power per phase, as do all
 * beyond the largest MOST_CLASSES. Runs of up to FEW_CLASSES keep them all: an exact counter can
 * separate even small classes, and one pooled power would be wrong for each of them. */
#include "attribution/energies.h"

#include "base/memory.h"

#include <stdlib.h>

enum { FEW_CLASSES = 96, MOST_CLASSES = 160 };
static const double LEAST_SHARE = 0.001;

typedef struct sized_class {
    uint32_t class_;
    double time_ns;
} sized_class;

static int longest_first(const void *a, const void *b)
{
    const sized_class *x = a, *y = b;
    if (x->time_ns != y->time_ns) return x->time_ns < y->time_ns ? 1 : -1;
    return x->class_ < y->class_ ? -1 : 1;
}

static void measure_classes(const pj_tree *tree, sized_class *sizes, double *whole_ns)
{
    *whole_ns = 0;
    for (uint32_t c = 0; c < tree->class_count; c++) sizes[c].class_ = c;
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        double ns = (double)(tree->leaves[i].end_ns - tree->leaves[i].begin_ns);
        sizes[tree->leaves[i].class_].time_ns += ns;
        *whole_ns += ns;
    }
    qsort(sizes, tree->class_count, sizeof *sizes, longest_first);
}

/* Of the machine outside phases, or of a device. */
static bool is_idle_time(const pj_energies *j, uint32_t class_)
{
    const pj_tree_class *c = &j->tree->classes[class_];
    return class_ == j->tree->idle_class || (c->device != PJ_HOST && pj_tree_class_is_idle(c));
}

/* Whether a class gets a power of its own; idle time always does. */
static bool stands_alone(const pj_energies *j, const sized_class *c, double whole_ns)
{
    return j->tree->class_count <= FEW_CLASSES || is_idle_time(j, c->class_) ||
           c->time_ns >= LEAST_SHARE * whole_ns;
}

static void energy_classes_assign(pj_energies *j, const sized_class *sizes, double whole_ns)
{
    const pj_tree *tree = j->tree;
    uint32_t pooled[PJ_PHASE_COUNT + 1];
    for (int p = 0; p <= PJ_PHASE_COUNT; p++) pooled[p] = UINT32_MAX;
    for (uint32_t i = 0; i < tree->class_count; i++) {
        uint32_t c = sizes[i].class_;
        uint8_t phase = tree->classes[c].phase;
        bool alone = stands_alone(j, &sizes[i], whole_ns), idle = is_idle_time(j, c);
        if (alone && !idle && j->pool_count >= MOST_CLASSES) {
            alone = false;
            j->pooled_many++;
        }
        uint32_t *shared = &pooled[phase < PJ_PHASE_COUNT ? phase : PJ_PHASE_COUNT];
        if (!alone && *shared != UINT32_MAX) {
            j->pool_of[c] = *shared;
            j->pool_class[*shared] = PJ_NO_PARENT;
            continue;
        }
        if (!alone) *shared = j->pool_count;
        j->pool_class[j->pool_count] = c;
        j->pool_phase[j->pool_count] = phase;
        j->pool_of[c] = j->pool_count++;
    }
}

pj_status pj_energy_pool(pj_energies *j, pj_error *err)
{
    const pj_tree *tree = j->tree;
    double whole_ns;
    pj_arena *arena = &j->arena;
    sized_class *sizes = pj_arena_alloc(arena, tree->class_count, sizeof *sizes);
    j->pool_of = pj_arena_alloc(arena, tree->class_count, sizeof *j->pool_of);
    j->pool_class = pj_arena_alloc(arena, tree->class_count, sizeof *j->pool_class);
    j->pool_phase = pj_arena_alloc(arena, tree->class_count, sizeof *j->pool_phase);
    j->pool_mw = pj_arena_alloc(arena, tree->class_count, sizeof *j->pool_mw);
    j->leaves = j->pooled = pj_arena_alloc(arena, (size_t)tree->leaf_count + 2, sizeof *j->leaves);
    if (!sizes || !j->pool_of || !j->pool_class || !j->pool_phase || !j->pool_mw || !j->leaves)
        return pj_fail_memory(err, "the classes of a run");
    measure_classes(tree, sizes, &whole_ns);
    energy_classes_assign(j, sizes, whole_ns);
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        j->leaves[i + 1] = tree->leaves[i];
        j->leaves[i + 1].class_ = j->pool_of[tree->leaves[i].class_];
    }
    return PJ_OK;
}
