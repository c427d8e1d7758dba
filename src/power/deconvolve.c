/* Unknowns are the powers x of blocks that end where windows end; window w states sum_j a_wj x_j =
 * v_w, with a_wj the share of the window in block j. Minimises
 *
 *   sum_w |v_w - a_w x| / s + sum_j |x_j - x_{j-1}| / d
 *
 * where s is the sensor's noise and d the mean step between blocks, as the readings show it: a step
 * changes the readings of a whole window, by as much in all. Sums of absolute values, because
 * power changes seldom and by much, and because a single reading that no power explains (a card
 * that wakes up starts a new average) would otherwise be explained by power that swings with the
 * period of the window for ever after, which no mean over a window sees.
 *
 * The minimum is found by least squares with weights from the solution before. Their matrix has as
 * many bands as a window has blocks, so that a factorisation costs blocks x bands^2. */
#include "power/deconvolve.h"

#include "base/banded.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { MAX_BANDS = PJ_MOST_BLOCKS_PER_WINDOW + 4, MAX_HOLE_PERIODS = 3, ROUNDS = 12 };
static const double relative_noise = 0.002; /* of a reading: one step in 500, typical of boards */

typedef struct system {
    size_t n, bands; /* of the matrix, as in base/banded.h */
    double *matrix, *x;
    pj_block *blocks; /* with the powers found so far */
    double noise_mw, step_mw;
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

/* Weight of a square in place of an absolute value: of x / scale, with x as last found. */
static double weight_of(double x, double scale, double least)
{
    return 1 / (scale * fmax(fabs(x), least));
}

/* Adds one window's weighted equation to the normal equations. A window that extends beyond the
 * blocks, or over more of them than there are bands, is skipped. *first advances with the
 * windows. */
static void deconvolve_add_window(const system_t *s, const pj_curve_point *w, size_t *first)
{
    double a[MAX_BANDS + 1], length = (double)(w->end_ns - w->begin_ns), residual = w->power_mw;
    size_t used = covered(s, w, first);
    if (used == 0 || used > s->bands + 1 || w->begin_ns < s->blocks[0].begin_ns) return;
    for (size_t i = 0; i < used; i++) {
        int64_t b = s->blocks[*first + i].begin_ns, e = s->blocks[*first + i].end_ns;
        b = b > w->begin_ns ? b : w->begin_ns;
        e = e < w->end_ns ? e : w->end_ns;
        a[i] = e > b ? (double)(e - b) / length : 0;
        residual -= a[i] * s->blocks[*first + i].mw;
    }
    double weight = weight_of(residual, s->noise_mw, s->noise_mw);
    for (size_t i = 0; i < used; i++) {
        s->x[*first + i] += weight * a[i] * w->power_mw;
        for (size_t j = 0; j <= i; j++)
            s->matrix[(*first + i) * (s->bands + 1) + i - j] += weight * a[i] * a[j];
    }
}

static void add_steps(const system_t *s)
{
    for (size_t i = 1; i < s->n; i++) {
        double *row = s->matrix + i * (s->bands + 1), *before = row - (s->bands + 1);
        double step = s->blocks[i].mw - s->blocks[i - 1].mw;
        double weight = weight_of(step, s->step_mw, s->noise_mw);
        row[0] += weight;
        before[0] += weight;
        row[1] -= weight;
    }
}

/* Noise of a reading and mean step between neighbouring blocks. */
static void scales(system_t *s, const pj_curve_point *w, size_t count)
{
    double mean = 0, steps = 0;
    for (size_t i = 0; i < count; i++) mean += w[i].power_mw / (double)count;
    for (size_t i = 1; i < count; i++) steps += fabs(w[i].power_mw - w[i - 1].power_mw);
    s->noise_mw = relative_noise * fabs(mean) + 1e-3;
    s->step_mw = s->noise_mw + (count > 1 ? steps / (double)(count - 1) : 0);
}

/* False: the matrix is not positive definite. */
static bool solve_once(const system_t *s, const pj_curve_point *w, size_t count)
{
    size_t first = 0;
    memset(s->matrix, 0, s->n * (s->bands + 1) * sizeof(double));
    memset(s->x, 0, s->n * sizeof(double));
    for (size_t i = 0; i < count; i++) deconvolve_add_window(s, &w[i], &first);
    add_steps(s);
    if (!pj_banded_cholesky(s->matrix, s->n, s->bands, NULL)) return false;
    pj_banded_solve(s->matrix, s->n, s->bands, 0, s->x);
    for (size_t i = 0; i < s->n; i++) s->blocks[i].mw = s->x[i];
    return true;
}

/* One series without gaps; appends to the blocks. */
static pj_status deconvolve_resolve(const pj_curve_point *w, size_t count, int64_t period,
                                    pj_block *blocks, size_t *block_count, pj_error *err)
{
    system_t s = {.blocks = blocks + *block_count};
    s.n = lay_blocks(w, count, period, s.blocks);
    s.bands = bands_for(&s, w, count);
    s.matrix = pj_alloc(s.n, (s.bands + 1) * sizeof(double));
    s.x = pj_alloc(s.n, sizeof(double));
    pj_status status =
        s.matrix && s.x ? PJ_OK : pj_fail_memory(err, "resolving an averaging sensor");
    bool solved = status == PJ_OK;
    scales(&s, w, count);
    for (int round = 0; round < ROUNDS && solved; round++) solved = solve_once(&s, w, count);
    /* a matrix of these weights can be factorised; if not, the series is skipped */
    if (solved) *block_count += s.n;
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
