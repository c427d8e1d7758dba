/* Growing trees, path lengths, and the threshold from permuted rows. */
#include "analysis/forest.h"

#include "base/median.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

enum { LEAST_ROWS = 8, NODES = 2 * PJ_FOREST_SAMPLE, DEPTH = 8 /* log2 of the sample */ };

typedef struct node {
    uint32_t feature, left, right; /* left 0: a leaf; the root is never a child */
    double split;
    uint32_t size; /* rows of a leaf */
} node;

struct pj_forest {
    uint32_t features, sample;
    double centre[PJ_FOREST_FEATURES], spread[PJ_FOREST_FEATURES];
    node trees[PJ_FOREST_TREES][NODES];
};

/* ---- standardised features ---- */

static bool standardise(pj_forest *f, const double *rows, size_t count)
{
    double *column = pj_alloc(count, sizeof *column);
    if (!column) return false;
    for (uint32_t k = 0; k < f->features; k++) {
        for (size_t i = 0; i < count; i++) column[i] = rows[i * f->features + k];
        f->centre[k] = pj_median(column, count);
        for (size_t i = 0; i < count; i++)
            column[i] = fabs(rows[i * f->features + k] - f->centre[k]);
        f->spread[k] = 1.4826 * pj_median(column, count);
        if (!(f->spread[k] > 0)) f->spread[k] = 1;
    }
    pj_free(column);
    return true;
}

static double feature_of(const pj_forest *f, const double *row, uint32_t k)
{
    return (row[k] - f->centre[k]) / f->spread[k];
}

/* ---- trees ---- */

typedef struct growth {
    pj_forest *f;
    const double *rows;
    pj_random *random;
    node *tree;
    uint32_t used;
    uint32_t picked[PJ_FOREST_SAMPLE];
} growth;

/* Mean path length of an unsuccessful search among n rows. */
static double usual_path(double n)
{
    return n > 2 ? 2 * (log(n - 1) + 0.5772156649015329) - 2 * (n - 1) / n : n == 2 ? 1 : 0;
}

static void forest_range_of(const growth *g, const uint32_t *picked, uint32_t n, uint32_t k,
                            double *lo, double *hi)
{
    *lo = INFINITY;
    *hi = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        double x = feature_of(g->f, g->rows + (size_t)picked[i] * g->f->features, k);
        *lo = fmin(*lo, x);
        *hi = fmax(*hi, x);
    }
}

/* A random feature that still varies here; false: none does. */
static bool choose_split(const growth *g, const uint32_t *picked, uint32_t n, node *at)
{
    uint32_t first = (uint32_t)(pj_random_unit(g->random) * g->f->features);
    for (uint32_t i = 0; i < g->f->features; i++) {
        double lo, hi;
        at->feature = (first + i) % g->f->features;
        forest_range_of(g, picked, n, at->feature, &lo, &hi);
        at->split = lo + pj_random_unit(g->random) * (hi - lo);
        if (hi > lo && at->split > lo) return true;
    }
    return false;
}

static uint32_t forest_grow(growth *g, uint32_t *picked, uint32_t n, uint32_t depth)
{
    uint32_t self = g->used++, left = 0;
    node *at = &g->tree[self];
    *at = (node){.size = n};
    if (n < 2 || depth == DEPTH || !choose_split(g, picked, n, at)) return self;
    for (uint32_t i = 0; i < n; i++) {
        const double *row = g->rows + (size_t)picked[i] * g->f->features;
        if (feature_of(g->f, row, at->feature) >= at->split) continue;
        uint32_t kept = picked[left];
        picked[left++] = picked[i];
        picked[i] = kept;
    }
    uint32_t l = forest_grow(g, picked, left, depth + 1);
    uint32_t r = forest_grow(g, picked + left, n - left, depth + 1);
    g->tree[self].left = l;
    g->tree[self].right = r;
    return self;
}

/* A sample without repetition: the first ones of a partial shuffle of `order`. */
static void pick(growth *g, uint32_t *order, size_t count)
{
    for (uint32_t i = 0; i < g->f->sample; i++) {
        size_t j = i + (size_t)(pj_random_unit(g->random) * (double)(count - i));
        uint32_t kept = order[i];
        order[i] = order[j];
        order[j] = kept;
        g->picked[i] = order[i];
    }
}

pj_forest *pj_forest_grow(const double *rows, size_t count, uint32_t features, uint64_t seed)
{
    if (count < LEAST_ROWS || !features || features > PJ_FOREST_FEATURES) return NULL;
    pj_forest *f = pj_alloc(1, sizeof *f);
    uint32_t *order = pj_alloc(count, sizeof *order);
    pj_random random = {seed};
    if (f) f->features = features;
    if (!f || !order || !standardise(f, rows, count)) {
        pj_free(order);
        pj_free(f);
        return NULL;
    }
    f->sample = count < PJ_FOREST_SAMPLE ? (uint32_t)count : PJ_FOREST_SAMPLE;
    for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
    for (int t = 0; t < PJ_FOREST_TREES; t++) {
        growth g = {.f = f, .rows = rows, .random = &random, .tree = f->trees[t]};
        pick(&g, order, count);
        forest_grow(&g, g.picked, f->sample, 0);
    }
    pj_free(order);
    return f;
}

void pj_forest_free(pj_forest *forest)
{
    pj_free(forest);
}

/* ---- scores ---- */

static double forest_path_of(const pj_forest *f, const node *tree, const double *row)
{
    uint32_t at = 0, depth = 0;
    while (tree[at].left) {
        bool left = feature_of(f, row, tree[at].feature) < tree[at].split;
        at = left ? tree[at].left : tree[at].right;
        depth++;
    }
    return depth + usual_path(tree[at].size);
}

double pj_forest_score(const pj_forest *f, const double *row)
{
    double sum = 0;
    for (int t = 0; t < PJ_FOREST_TREES; t++) sum += forest_path_of(f, f->trees[t], row);
    return exp2(-sum / PJ_FOREST_TREES / usual_path(f->sample));
}

static double *permuted(const double *rows, size_t count, uint32_t features, pj_random *random)
{
    double *copy = pj_alloc(count * features, sizeof *copy);
    if (!copy) return NULL;
    memcpy(copy, rows, count * features * sizeof *copy);
    for (uint32_t k = 0; k < features; k++)
        for (size_t i = count; i > 1; i--) {
            size_t j = (size_t)(pj_random_unit(random) * (double)i);
            double kept = copy[(i - 1) * features + k];
            copy[(i - 1) * features + k] = copy[j * features + k];
            copy[j * features + k] = kept;
        }
    return copy;
}

double pj_forest_threshold(const double *rows, size_t count, uint32_t features, uint64_t seed,
                           double share)
{
    pj_random random = {seed ^ 0x5bd1e995u};
    double *copy = permuted(rows, count, features, &random), threshold = NAN;
    double *scores = pj_alloc(count, sizeof *scores);
    pj_forest *f = copy && scores ? pj_forest_grow(copy, count, features, seed) : NULL;
    if (f) {
        for (size_t i = 0; i < count; i++) scores[i] = pj_forest_score(f, copy + i * features);
        pj_sort_doubles(scores, count);
        threshold = scores[(size_t)(share * (double)(count - 1))];
    }
    pj_forest_free(f);
    pj_free(scores);
    pj_free(copy);
    return threshold;
}
