/* Regularised least squares with a banded normal matrix. Unknowns are the powers x of blocks that
 * end where windows end; window w states sum_j a_wj x_j = v_w, with a_wj the share of the window in
 * block j. Minimises sum_w (v_w - a_w x)^2 / s^2 + sum_j (x_j - x_{j-1})^2 / q, where s is the
 * sensor's noise and q the step variance estimated from the readings: a window mean over N blocks
 * changes by (x_new - x_old) / N between neighbours. The matrix has as many bands as a window has
 * blocks, so its Cholesky factorisation costs blocks x bands^2. */
#include "power/deconvolve.h"

#include "base/banded.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { MAX_BANDS = PJ_MOST_BLOCKS_PER_WINDOW + 4, MAX_HOLE_PERIODS = 3 };
static const double relative_noise = 0.002; /* of a reading: one step in 500, typical of boards */

typedef struct system {
    size_t n, bands; /* of the matrix, as in base/banded.h */
    double *matrix, *x;
    pj_block *blocks;
} system_t;

/* Blocks of one contiguous series of windows: period steps back over the first window, then from
 * end to end. Where the first window is too long for that its first block takes the rest, so that a
 * series has at most MAX_BANDS blocks more than windows. */
static size_t lay_blocks(const pj_curve_point *w, size_t count, int64_t period, pj_block *blocks)
{
    size_t n = 0;
    int64_t back = (w[0].end_ns - w[0].begin_ns + period / 2) / period;
    if (back < 1) back = 1;
    if (back > MAX_BANDS) back = MAX_BANDS;
    for (int64_t i = back; i > 0; i--) {
        int64_t begin = i == back ? w[0].begin_ns : w[0].end_ns - i * period;
        blocks[n++] = (pj_block){begin, w[0].end_ns - (i - 1) * period, 0};
    }
    for (size_t i = 1; i < count; i++)
        if (w[i].end_ns > w[i - 1].end_ns)
            blocks[n++] = (pj_block){w[i - 1].end_ns, w[i].end_ns, 0};
    return n;
}

/* The blocks that a window covers: how many, and from *first on, which was that of the window
 * before. Windows are in order of their ends; their lengths vary where readings are late. */
static size_t covered(const system_t *s, const pj_curve_point *w, size_t *first)
{
    size_t j;
    while (*first && s->blocks[*first - 1].end_ns > w->begin_ns) (*first)--;
    while (*first + 1 < s->n && s->blocks[*first].end_ns <= w->begin_ns) (*first)++;
    for (j = *first; j < s->n && s->blocks[j].begin_ns < w->end_ns;) j++;
    return j - *first;
}

/* As many bands as the widest window needs, within reason: wider ones are left out. */
static size_t bands_for(const system_t *s, const pj_curve_point *w, size_t count)
{
    size_t widest = 2, first = 0;
    for (size_t i = 0; i < count; i++) {
        size_t blocks = covered(s, &w[i], &first);
        if (blocks > widest && blocks <= MAX_BANDS + 1) widest = blocks;
    }
    return widest - 1;
}

/* Adds one window's weighted equation to the normal equations. A window that extends beyond the
 * blocks, or over more of them than there are bands, is skipped. *first advances with the
 * windows. */
static void deconvolve_add_window(const system_t *s, const pj_curve_point *w, double weight,
                                  size_t *first)
{
    double a[MAX_BANDS + 1], length = (double)(w->end_ns - w->begin_ns);
    size_t used = covered(s, w, first);
    if (used == 0 || used > s->bands + 1 || w->begin_ns < s->blocks[0].begin_ns) return;
    for (size_t i = 0; i < used; i++) {
        int64_t b = s->blocks[*first + i].begin_ns, e = s->blocks[*first + i].end_ns;
        b = b > w->begin_ns ? b : w->begin_ns;
        e = e < w->end_ns ? e : w->end_ns;
        a[i] = e > b ? (double)(e - b) / length : 0;
    }
    for (size_t i = 0; i < used; i++) {
        s->x[*first + i] += weight * a[i] * w->power_mw;
        for (size_t j = 0; j <= i; j++)
            s->matrix[(*first + i) * (s->bands + 1) + i - j] += weight * a[i] * a[j];
    }
}

static void add_smoothness(const system_t *s, double weight)
{
    for (size_t i = 1; i < s->n; i++) {
        double *row = s->matrix + i * (s->bands + 1), *before = row - (s->bands + 1);
        row[0] += weight;
        before[0] += weight;
        row[1] -= weight;
    }
}

/* Noise of a reading and variance of a step between neighbouring blocks. */
static void scales(const pj_curve_point *w, size_t count, double blocks_per_window, double *noise,
                   double *step)
{
    double mean = 0, squares = 0;
    for (size_t i = 0; i < count; i++) mean += w[i].power_mw / (double)count;
    for (size_t i = 1; i < count; i++) {
        double d = w[i].power_mw - w[i - 1].power_mw;
        squares += d * d;
    }
    double s = relative_noise * fabs(mean) + 1e-6;
    *noise = s * s;
    double moved = count > 1 ? squares / (double)(count - 1) : 0;
    *step = moved * blocks_per_window * blocks_per_window / 2 + *noise;
}

/* One series without gaps; appends to the blocks. */
static pj_status deconvolve_resolve(const pj_curve_point *w, size_t count, int64_t period,
                                    pj_block *blocks, size_t *block_count, pj_error *err)
{
    system_t s = {.blocks = blocks + *block_count};
    s.n = lay_blocks(w, count, period, s.blocks);
    double per_window = (double)(w[0].end_ns - w[0].begin_ns) / (double)period;
    s.bands = bands_for(&s, w, count);
    pj_status status = PJ_OK;
    s.matrix = pj_alloc(s.n, (s.bands + 1) * sizeof(double));
    s.x = pj_alloc(s.n, sizeof(double));
    if (!s.matrix || !s.x) {
        status = pj_fail_memory(err, "resolving an averaging sensor");
        goto done;
    }
    double noise, step;
    scales(w, count, per_window, &noise, &step);
    size_t first = 0;
    for (size_t i = 0; i < count; i++) deconvolve_add_window(&s, &w[i], 1 / noise, &first);
    add_smoothness(&s, 1 / step);
    if (!pj_banded_cholesky(s.matrix, s.n, s.bands, NULL))
        goto done; /* cannot happen with step > 0; the series is then skipped */
    pj_banded_solve(s.matrix, s.n, s.bands, 0, s.x);
    for (size_t i = 0; i < s.n; i++) s.blocks[i].mw = s.x[i];
    *block_count += s.n;
done:
    pj_free(s.matrix);
    pj_free(s.x);
    return status;
}

pj_status pj_deconvolve(const pj_curve_point *windows, size_t count, int64_t period_ns,
                        pj_block **blocks, size_t *block_count, pj_error *err)
{
    *blocks = NULL;
    *block_count = 0;
    if (count == 0 || period_ns <= 0) return PJ_OK;
    int64_t length = windows[0].end_ns - windows[0].begin_ns;
    if (length / period_ns > PJ_MOST_BLOCKS_PER_WINDOW) return PJ_OK;
    size_t stretches = 1;
    for (size_t i = 1; i < count; i++)
        stretches += windows[i].end_ns - windows[i - 1].end_ns > MAX_HOLE_PERIODS * period_ns;
    size_t room = count + stretches * MAX_BANDS;
    *blocks = pj_alloc(room, sizeof **blocks);
    if (!*blocks) return pj_fail_memory(err, "resolving an averaging sensor");
    pj_status status = PJ_OK;
    for (size_t from = 0, to; from < count && status == PJ_OK; from = to) {
        for (to = from + 1; to < count; to++)
            if (windows[to].end_ns - windows[to - 1].end_ns > MAX_HOLE_PERIODS * period_ns) break;
        status =
            deconvolve_resolve(windows + from, to - from, period_ns, *blocks, block_count, err);
    }
    if (status != PJ_OK) {
        pj_free(*blocks);
        *blocks = NULL;
        *block_count = 0;
    }
    return status;
}
