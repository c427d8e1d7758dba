/* Overlapping windows, such as means over 1 s published every 100 ms, share leaves: where a leaf's
 * power differs from its class's, all windows that contain it differ alike. Taken for independent,
 * readings that follow each other smoothly would be evidence against any variation of power. */
#include "energy/regression.h"

#include "base/banded.h"

#include <string.h>

enum { MOST_BANDS = 130 }; /* a sensor of longer windows in its periods is taken for independent */

bool pj_overlap_init(pj_regression *r)
{
    const pj_window *windows = r->in->windows;
    size_t bands = 0;
    for (size_t w = 1; w < r->design.rows; w++) {
        if (windows[w].lag_s > 0) return true;
        while (w > bands && windows[w - bands - 1].end_ns > windows[w].begin_ns) bands++;
        if (r->crossed && w - r->before[w] > bands) bands = w - r->before[w];
    }
    bool is_needed = r->crossed || r->in->usual_spread > 0;
    if (bands == 0 || bands > MOST_BANDS || !is_needed) return true;
    r->bands = ++bands; /* a leaf may lie across the end of one window and the begin of another */
    r->band = pj_arena_alloc(&r->arena, r->design.rows * (bands + 1), sizeof *r->band);
    r->shared = pj_arena_alloc(&r->arena, r->design.rows * (bands + 1), sizeof *r->shared);
    r->outlasting = pj_arena_alloc(&r->arena, r->design.rows, sizeof *r->outlasting);
    r->white = pj_arena_alloc(&r->arena, (bands + 1) * (r->n + 1), sizeof *r->white);
    return r->band && r->shared && r->outlasting && r->white;
}

/* Adds what a leaf of this power adds to the windows from..to - 1 that see it. One that windows far
 * apart see would need a full matrix: it counts for the posterior alone, by the bound of design.h.
 */
static void overlap_add_leaf(pj_regression *r, const pj_leaf *leaf, double mw, size_t from,
                             size_t to)
{
    const pj_window *windows = r->in->windows;
    size_t width = r->bands + 1;
    if (to - from > width) {
        double sum = 0;
        for (size_t w = from; w < to; w++) sum += mw * pj_window_part_s(&windows[w], leaf);
        for (size_t w = from; w < to; w++)
            r->outlasting[w] += mw * pj_window_part_s(&windows[w], leaf) * sum;
        return;
    }
    double *part = r->white; /* has room for width */
    for (size_t w = from; w < to; w++) part[w - from] = mw * pj_window_part_s(&windows[w], leaf);
    for (size_t w = from; w < to; w++)
        for (size_t j = 0; j <= w - from; j++)
            r->shared[w * width + j] += part[w - from] * part[w - from - j];
}

void pj_overlap_judge(pj_regression *r, const double *powers)
{
    const pj_fit_input *in = r->in;
    size_t from = 0;
    if (!r->band) return;
    memset(r->shared, 0, r->design.rows * (r->bands + 1) * sizeof *r->shared);
    memset(r->outlasting, 0, r->design.rows * sizeof *r->outlasting);
    for (size_t i = 0; i < in->leaf_count; i++) {
        const pj_leaf *leaf = &in->leaves[i];
        while (from < in->window_count && in->windows[from].end_ns <= leaf->begin_ns) from++;
        size_t to = from;
        while (to < in->window_count && in->windows[to].begin_ns < leaf->end_ns) to++;
        if (to > from) overlap_add_leaf(r, leaf, powers[leaf->class_], from, to);
    }
}

static void fill_band(pj_regression *r, const double *variance, bool bounded)
{
    double square = r->spread * r->spread;
    for (size_t w = 0; w < r->design.rows; w++) {
        double *row = r->band + w * (r->bands + 1);
        for (size_t j = 0; j <= r->bands; j++) row[j] = square * r->shared[w * (r->bands + 1) + j];
        row[0] += variance[w] + (bounded ? square * r->outlasting[w] : 0);
        row[w - r->before[w]] += r->link[w]; /* 0 without one */
    }
}

/* Row w of L^-1 (A | y - A around), V = L L'. */
static const double *whiten(pj_regression *r, size_t w)
{
    const pj_design *d = &r->design;
    const double *factor = r->band + w * (r->bands + 1);
    size_t columns = r->n + 1;
    double *row = r->white + w % (r->bands + 1) * columns, rest = r->y[w];
    memset(row, 0, columns * sizeof *row);
    for (size_t i = d->row_begin[w]; i < d->row_begin[w + 1]; i++) {
        row[d->column[i]] += d->seconds[i];
        rest -= d->seconds[i] * r->around[d->column[i]];
    }
    row[r->n] = d->row_begin[w] < d->row_begin[w + 1] ? rest : 0;
    for (size_t j = 1; j <= r->bands && j <= w; j++) {
        const double *before = r->white + (w - j) % (r->bands + 1) * columns;
        if (factor[j] == 0) continue;
        for (size_t i = 0; i < columns; i++) row[i] -= factor[j] * before[i];
    }
    for (size_t i = 0; i < columns; i++) row[i] /= factor[0];
    return row;
}

bool pj_overlap_accumulate(pj_regression *r, const double *variance, bool bounded)
{
    size_t n = r->n;
    fill_band(r, variance, bounded);
    if (!pj_banded_cholesky(r->band, r->design.rows, r->bands, &r->log_v)) return false;
    memset(r->normal, 0, n * n * sizeof(double));
    memset(r->rhs, 0, n * sizeof(double));
    r->residual = 0;
    for (size_t w = 0; w < r->design.rows; w++) {
        const double *row = whiten(r, w);
        for (size_t i = 0; i < n; i++) {
            if (row[i] == 0) continue;
            double *line = r->normal + i * n;
            for (size_t k = 0; k <= i; k++) line[k] += row[i] * row[k];
            r->rhs[i] += row[i] * row[n];
        }
        r->residual += row[n] * row[n];
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) r->normal[k * n + i] = r->normal[i * n + k];
    return true;
}
