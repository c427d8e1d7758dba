/* Builds blocks from windows: their energies, and how these depend on the readings. */
#include "energy/blocks.h"

#include "base/banded.h"
#include "base/interval.h"

#include <math.h>
#include <string.h>

enum { MAX_HOLE_PERIODS = 3, MAX_BANDS = 130 };
/* Relative standard deviation of power at an edge of the run that no window covers: the spread of
 * the prior of class powers. */
#define EDGE_SPREAD 0.4

void pj_blocks_fini(pj_blocks *b)
{
    pj_arena_fini(&b->arena);
    *b = (pj_blocks){0};
}

static bool blocks_allocate(pj_blocks *b, size_t room, size_t windows)
{
    double **const by_block[] = {&b->expected_mj, &b->squares,   &b->moment,     &b->noise_var,
                                 &b->closing,     &b->weight,    &b->unseen_var, &b->observed_s,
                                 &b->reading_var, &b->varied_var};
    b->segments = pj_arena_alloc(&b->arena, room, sizeof *b->segments);
    b->window_of = pj_arena_alloc(&b->arena, room, sizeof *b->window_of);
    b->window_var = pj_arena_alloc(&b->arena, windows, sizeof(double));
    bool ok = b->segments && b->window_of && b->window_var;
    for (size_t i = 0; i < sizeof by_block / sizeof *by_block; i++)
        ok &= (*by_block[i] = pj_arena_alloc(&b->arena, room + 1, sizeof(double))) != NULL;
    return ok;
}

/* ---- laying blocks ---- */

static void blocks_add_block(pj_blocks *b, int64_t begin, int64_t end, size_t window, bool hole)
{
    if (end <= begin) return;
    b->segments[b->count] = (pj_segment){begin, end, hole ? NAN : 0};
    b->window_of[b->count++] = window;
}

/* Blocks before the end of the first window, one period each, back to the window's begin. */
static void lay_first(pj_blocks *b, const pj_blocks_input *in)
{
    const pj_window *w = &in->windows[0];
    int64_t begin = w->begin_ns;
    if (!in->overlapping) {
        int64_t from = w->end_ns - in->period_ns;
        if (begin >= in->begin_ns && from < in->begin_ns) from = in->begin_ns;
        if (!in->counted && from < begin) begin = from;
        blocks_add_block(b, begin, w->end_ns, 0, false);
        return;
    }
    int64_t periods = (w->end_ns - begin + in->period_ns / 2) / in->period_ns;
    for (int64_t i = periods; i > 0; i--) {
        int64_t from = i == periods ? begin : w->end_ns - i * in->period_ns;
        blocks_add_block(b, from, w->end_ns - (i - 1) * in->period_ns, i == 1 ? 0 : SIZE_MAX,
                         false);
    }
}

/* The sensor's last update before the run's end, or the first after its begin, may lie inside the
 * run, further inside where a delay is assumed. The uncovered rest extends the nearest block as
 * unobserved time; beyond edge_ns it stays a hole. */
static void lay_edges(pj_blocks *b, const pj_blocks_input *in)
{
    pj_segment *first = &b->segments[0], *last = &b->segments[b->count - 1];
    int64_t early = first->begin_ns - in->begin_ns, late = in->end_ns - last->end_ns;
    if (early > 0 && early <= in->edge_ns) first->begin_ns = in->begin_ns;
    if (late <= 0 || late > in->edge_ns) return;
    if (in->overlapping)
        blocks_add_block(b, last->end_ns, in->end_ns, SIZE_MAX, false);
    else
        last->end_ns = in->end_ns;
}

static void lay(pj_blocks *b, const pj_blocks_input *in)
{
    int64_t longest = MAX_HOLE_PERIODS * in->period_ns;
    lay_first(b, in);
    for (size_t i = 1; i < in->count; i++) {
        const pj_window *w = &in->windows[i], *before = w - 1;
        if (w->end_ns <= before->end_ns) continue;
        int64_t from = before->end_ns;
        int64_t unseen = w->begin_ns - from;
        if (longest > 0 && unseen > longest) {
            blocks_add_block(b, from, w->begin_ns, SIZE_MAX, true);
            from = w->begin_ns;
        }
        blocks_add_block(b, from, w->end_ns, i, false);
    }
    if (b->count > 0) lay_edges(b, in);
}

/* ---- energy predicted from class powers ---- */

/* Predicted net energy of the leaves over [begin, end), mJ; `from` is the first leaf that can
 * overlap it. */
static double blocks_expect(const pj_blocks_input *in, size_t from, int64_t begin, int64_t end)
{
    double sum = 0;
    for (size_t i = from; i < in->leaf_count && in->leaves[i].begin_ns < end; i++) {
        const pj_leaf *leaf = &in->leaves[i];
        int64_t ns = pj_overlap_ns(leaf->begin_ns, leaf->end_ns, begin, end);
        sum += in->power_mw[leaf->class_] * (double)ns * 1e-9;
    }
    return sum;
}

/* Advances to the first leaf from which leaves may reach `at`. Parallel leaves (threads) end out of
 * order, so a leaf that has ended may precede one that has not. */
static size_t skip_leaves(const pj_blocks_input *in, size_t from, int64_t at)
{
    while (from < in->leaf_count && in->leaves[from].end_ns <= at) from++;
    return from;
}

/* The same of a window, as its readings weigh the leaves. */
static double expect_window(const pj_blocks_input *in, size_t from, const pj_window *w)
{
    double sum = 0;
    if (!(w->lag_s > 0)) return blocks_expect(in, from, w->begin_ns, w->end_ns);
    for (size_t i = from; i < in->leaf_count && in->leaves[i].begin_ns < w->end_ns; i++)
        sum += in->power_mw[in->leaves[i].class_] * pj_window_part_s(w, &in->leaves[i]);
    return sum;
}

/* Of the blocks, with their squares and moments. */
static void expect_blocks(pj_blocks *b, const pj_blocks_input *in)
{
    size_t from = 0;
    for (size_t k = 0; k < b->count; k++) {
        const pj_segment *s = &b->segments[k];
        from = skip_leaves(in, from, s->begin_ns);
        for (size_t i = from; i < in->leaf_count && in->leaves[i].begin_ns < s->end_ns; i++) {
            const pj_leaf *leaf = &in->leaves[i];
            double mj = in->power_mw[leaf->class_] * PJ_OVERLAP_S(leaf, s);
            b->expected_mj[k] += mj;
            b->squares[k] += mj * mj;
            b->moment[k] += mj * pj_middle_s(leaf, s, in->begin_ns);
        }
    }
}

static double blocks_idle_of(const pj_blocks_input *in, int64_t ns)
{
    return isfinite(in->idle_mw) ? in->idle_mw * (double)ns * 1e-9 : 0;
}

/* What the window's reading exceeds its prediction by; *from moves to the first leaf in it. */
static double window_residual(const pj_blocks_input *in, const pj_window *w, size_t *from)
{
    *from = skip_leaves(in, *from, w->begin_ns);
    return w->energy_mj - blocks_idle_of(in, w->end_ns - w->begin_ns) - expect_window(in, *from, w);
}

static double blocks_window_variance(const pj_window *w, double noise)
{
    double relative = noise * fabs(w->energy_mj);
    return relative * relative + w->sd_mj * w->sd_mj;
}

/* ---- tiled and partly seen ---- */

/* Residual power of each window, mW; returns the lag-1 autocorrelation of the residuals, 0 to 1. */
static double measure_residuals(const pj_blocks *b, const pj_blocks_input *in, double *residual,
                                double *rms)
{
    double squares = 0, products = 0;
    size_t from = 0, used = 0;
    for (size_t k = 0; k < b->count; k++) {
        residual[k] = NAN;
        if (b->window_of[k] == SIZE_MAX) continue;
        const pj_window *w = &in->windows[b->window_of[k]];
        residual[k] = window_residual(in, w, &from) / ((double)(w->end_ns - w->begin_ns) * 1e-9);
        squares += residual[k] * residual[k];
        used++;
        if (k > 0 && isfinite(residual[k - 1])) products += residual[k] * residual[k - 1];
    }
    *rms = used ? sqrt(squares / (double)used) : 0;
    double alike = squares > 0 ? products / squares : 0;
    return alike > 0 ? fmin(alike, 1) : 0;
}

static double blocks_edge_variance(const pj_blocks_input *in, int64_t begin, int64_t end)
{
    double mj = EDGE_SPREAD * blocks_expect(in, 0, begin, end);
    return mj * mj;
}

static void fill_block(pj_blocks *b, const pj_blocks_input *in, size_t k, double residual_mw,
                       double rms_mw, double alike)
{
    pj_segment *s = &b->segments[k];
    const pj_window *w = &in->windows[b->window_of[k]];
    double block_s = (double)(s->end_ns - s->begin_ns) * 1e-9, seen_s = PJ_OVERLAP_S(w, s);
    double window_s = (double)(w->end_ns - w->begin_ns) * 1e-9;
    double unseen_s = block_s - seen_s;
    bool whole = unseen_s < 0.02 * block_s && fabs(window_s - block_s) < 0.02 * block_s;
    if (whole && w->lag_s > 0) {
        s->energy_mj =
            blocks_idle_of(in, s->end_ns - s->begin_ns) + b->expected_mj[k] + residual_mw * block_s;
        b->weight[k] = block_s / window_s;
        unseen_s = 0;
    } else if (whole) {
        s->energy_mj = w->energy_mj * (block_s / window_s);
        b->weight[k] = block_s / window_s;
        unseen_s = 0;
    } else {
        double moved_s = seen_s + alike * unseen_s;
        s->energy_mj =
            blocks_idle_of(in, s->end_ns - s->begin_ns) + b->expected_mj[k] + residual_mw * moved_s;
        b->weight[k] = moved_s / window_s;
    }
    double left_mw = rms_mw * sqrt(1 - alike * alike);
    b->unseen_var[k] = unseen_s * unseen_s * left_mw * left_mw;
    b->observed_s[k] = seen_s;
    if (k == 0 && w->begin_ns > s->begin_ns)
        b->unseen_var[k] += blocks_edge_variance(in, s->begin_ns, w->begin_ns);
    if (s->end_ns > w->end_ns) b->unseen_var[k] += blocks_edge_variance(in, w->end_ns, s->end_ns);
}

/* The error of a lagging sensor's reading between two blocks, as the energy of a block. Readings
 * follow the power of the blocks before. */
static void set_reading_variance(pj_blocks *b, const pj_blocks_input *in, size_t k,
                                 double *response_mw)
{
    const pj_window *w = &in->windows[b->window_of[k]];
    double seconds = (double)(w->end_ns - w->begin_ns) * 1e-9, decay = pj_lag_decay(w);
    double mw = fabs(w->energy_mj) / seconds;
    if (isnan(*response_mw)) *response_mw = mw;
    double first = in->noise * *response_mw * seconds;
    *response_mw = decay * *response_mw + (1 - decay) * mw;
    double last = in->noise * *response_mw * seconds, rounding = w->reading_mj * w->reading_mj;
    b->closing[k] = 1 / (1 - decay);
    if (k == 0 || b->window_of[k - 1] == SIZE_MAX) b->reading_var[k] = first * first + rounding;
    b->reading_var[k + 1] = last * last + rounding;
}

static bool fill_tiled(pj_blocks *b, const pj_blocks_input *in)
{
    double *residual = pj_arena_alloc(&b->arena, b->count, sizeof *residual);
    if (!residual) return false;
    double rms, alike = measure_residuals(b, in, residual, &rms), response_mw = NAN;
    for (size_t k = 0; k < b->count; k++) {
        if (b->window_of[k] == SIZE_MAX) continue;
        const pj_window *w = &in->windows[b->window_of[k]];
        fill_block(b, in, k, residual[k], rms, alike);
        if (w->lag_s > 0) {
            set_reading_variance(b, in, k, &response_mw);
            continue;
        }
        (in->logged ? b->varied_var : b->noise_var)[k] = blocks_window_variance(w, in->noise);
        double mw = fabs(w->energy_mj) / ((double)(w->end_ns - w->begin_ns) * 1e-9);
        double early = mw * w->begin_s, late = mw * w->end_s;
        double step = w->reading_mj * w->reading_mj;
        b->reading_var[k] = step + early * early;
        b->reading_var[k + 1] = step + late * late;
    }
    return true;
}

/* ---- overlapping ---- */

static bool share_windows(pj_blocks *b, const pj_blocks_input *in)
{
    size_t first = 0;
    b->share = pj_arena_alloc(&b->arena, in->count, (b->bands + 1) * sizeof(double));
    b->first_block = pj_arena_alloc(&b->arena, in->count, sizeof *b->first_block);
    if (!b->share || !b->first_block) return false;
    for (size_t i = 0; i < in->count; i++) {
        const pj_window *w = &in->windows[i];
        while (first + 1 < b->count && b->segments[first].end_ns <= w->begin_ns) first++;
        b->first_block[i] = first;
        for (size_t j = 0; j <= b->bands && first + j < b->count; j++) {
            b->share[i * (b->bands + 1) + j] = PJ_OVERLAP_S(&b->segments[first + j], w);
        }
    }
    return true;
}

static void blocks_add_window(const pj_blocks *b, size_t window, double residual_mj, double *rhs)
{
    const double *h = &b->share[window * (b->bands + 1)];
    size_t first = b->first_block[window];
    double weight = 1 / b->window_var[window];
    for (size_t i = 0; i <= b->bands && first + i < b->count; i++) {
        if (h[i] == 0) continue;
        rhs[first + i] += weight * h[i] * residual_mj;
        for (size_t j = 0; j <= i; j++)
            if (h[j] != 0) b->factor[(first + i) * (b->bands + 1) + i - j] += weight * h[i] * h[j];
    }
}

/* Residual energies of the windows. */
static void find_residuals(const pj_blocks *b, const pj_blocks_input *in, double *residual_mj)
{
    size_t from = 0;
    for (size_t i = 0; i < b->window_count; i++)
        residual_mj[i] = window_residual(in, &in->windows[i], &from);
}

/* Sum over blocks of the squared difference between the seconds that two windows in a row have of
 * them. */
static double seconds_apart(const pj_blocks *b, size_t window)
{
    const double *h = &b->share[window * (b->bands + 1)], *before = h - (b->bands + 1);
    size_t ahead = b->first_block[window] - b->first_block[window - 1];
    double sum = 0;
    for (size_t j = 0; j <= b->bands + ahead; j++) {
        double first = j <= b->bands ? before[j] : 0;
        double second = j >= ahead ? h[j - ahead] : 0;
        sum += (second - first) * (second - first);
    }
    return sum;
}

/* Relative noise of the readings, separated from variation of the load by the windows' overlap:
 * noise differs from one reading to the next, the load that they have in common does not. Two
 * equations for two unknown variances, from the residuals and from the differences between
 * neighbours. */
static double noise_of_neighbours(const pj_blocks *b, const pj_blocks_input *in,
                                  const double *residual_mj)
{
    double squares = 0, energies = 0, seconds = 0; /* of residuals: what noise and load explain */
    double apart = 0, apart_energies = 0, apart_seconds = 0; /* the same of the differences */
    double before = 0;
    for (size_t i = 0; i < in->count; i++) {
        const pj_window *w = &in->windows[i];
        const double *h = &b->share[i * (b->bands + 1)];
        double energy = w->energy_mj * w->energy_mj, rounding = w->sd_mj * w->sd_mj;
        squares += residual_mj[i] * residual_mj[i] - rounding;
        energies += energy;
        for (size_t j = 0; j <= b->bands; j++) seconds += h[j] * h[j];
        if (i > 0) {
            double step = residual_mj[i] - residual_mj[i - 1];
            apart += step * step - rounding - w[-1].sd_mj * w[-1].sd_mj;
            apart_energies += energy + before;
            apart_seconds += seconds_apart(b, i);
        }
        before = energy;
    }
    double left = apart * seconds - squares * apart_seconds;
    double right = apart_energies * seconds - energies * apart_seconds;
    return left > 0 && right > 0 ? sqrt(left / right) : 0;
}

/* Variance of the blocks' power where there is work, mW^2, as far as the load itself must explain
 * the residuals, but not less than a third of the noise. */
static double load_variance(const pj_blocks *b, const double *residual_mj)
{
    double squares = 0, noise = 0, blocks_s2 = 0;
    for (size_t i = 0; i < b->window_count; i++) {
        const double *h = &b->share[i * (b->bands + 1)];
        squares += residual_mj[i] * residual_mj[i];
        noise += b->window_var[i];
        for (size_t j = 0; j <= b->bands && b->first_block[i] + j < b->count; j++)
            if (b->expected_mj[b->first_block[i] + j] > 0) blocks_s2 += h[j] * h[j];
    }
    if (!(blocks_s2 > 0)) return 1;
    return fmax(squares - noise, 0.3 * noise) / blocks_s2;
}

/* Variance of a block's power, mW^2, because leaves differ from their classes. */
static double varying(const pj_blocks *b, const pj_blocks_input *in, size_t k)
{
    double seconds = (double)(b->segments[k].end_ns - b->segments[k].begin_ns) * 1e-9;
    return in->spread * in->spread * b->squares[k] / (seconds * seconds);
}

static bool fill_overlapping(pj_blocks *b, const pj_blocks_input *in)
{
    int64_t longest = 0;
    for (size_t i = 0; i < in->count; i++)
        if (in->windows[i].end_ns - in->windows[i].begin_ns > longest)
            longest = in->windows[i].end_ns - in->windows[i].begin_ns;
    b->bands = (size_t)(longest / in->period_ns) + 3;
    if (b->bands > MAX_BANDS) b->bands = MAX_BANDS;
    if (!share_windows(b, in)) return false;
    b->factor = pj_arena_alloc(&b->arena, b->count, (b->bands + 1) * sizeof(double));
    double *residual = pj_arena_alloc(&b->arena, in->count, sizeof *residual);
    double *rhs = pj_arena_alloc(&b->arena, b->count, sizeof *rhs);
    if (!b->factor || !residual || !rhs) return false;
    find_residuals(b, in, residual);
    double seen = noise_of_neighbours(b, in, residual);
    double noise = fmin(in->noise, fmax(in->usual_noise, seen));
    for (size_t i = 0; i < in->count; i++)
        b->window_var[i] = fmax(blocks_window_variance(&in->windows[i], noise), 1e-18);
    double load = fmax(load_variance(b, residual), 1e-12);
    for (size_t i = 0; i < in->count; i++) blocks_add_window(b, i, residual[i], rhs);
    for (size_t k = 0; k < b->count; k++)
        b->factor[k * (b->bands + 1)] += 1 / fmax(load, varying(b, in, k));
    if (!pj_banded_cholesky(b->factor, b->count, b->bands, NULL)) return false;
    pj_banded_solve(b->factor, b->count, b->bands, 0, rhs);
    for (size_t k = 0; k < b->count; k++) {
        pj_segment *s = &b->segments[k];
        double seconds = (double)(s->end_ns - s->begin_ns) * 1e-9;
        if (isnan(s->energy_mj)) continue;
        s->energy_mj =
            blocks_idle_of(in, s->end_ns - s->begin_ns) + b->expected_mj[k] + rhs[k] * seconds;
        b->observed_s[k] = seconds;
    }
    return true;
}

/* ---- all of it ---- */

pj_status pj_blocks_init(const pj_blocks_input *in, pj_blocks *b, pj_error *err)
{
    *b = (pj_blocks){.window_count = in->count};
    if (in->count == 0) return PJ_OK;
    int64_t period = in->period_ns > 0 ? in->period_ns : 1;
    size_t first = (size_t)((in->windows[0].end_ns - in->windows[0].begin_ns) / period) + 2;
    if (first > 100000) return pj_fail(err, PJ_E_INVALID, "windows are too long for their period");
    size_t room = 2 * in->count + first + 1;
    bool ok = blocks_allocate(b, room, in->count);
    if (ok) {
        lay(b, in);
        expect_blocks(b, in);
        ok = in->overlapping ? fill_overlapping(b, in) : fill_tiled(b, in);
    }
    if (ok) return PJ_OK;
    pj_blocks_fini(b);
    return pj_fail_memory(err, "the blocks of a sensor");
}

static double influence_overlapping(const pj_blocks *b, size_t first, size_t count, const double *f,
                                    double *scratch, double *c, size_t *window_first,
                                    size_t *window_last)
{
    double variance = 0;
    memset(scratch, 0, b->count * sizeof *scratch);
    for (size_t i = 0; i < count; i++)
        scratch[first + i] =
            f[i] * (double)(b->segments[first + i].end_ns - b->segments[first + i].begin_ns) * 1e-9;
    pj_banded_solve(b->factor, b->count, b->bands, first, scratch);
    for (size_t i = 0; i < count; i++)
        variance += scratch[first + i] * f[i] *
                    (double)(b->segments[first + i].end_ns - b->segments[first + i].begin_ns) *
                    1e-9;
    for (size_t w = 0; w < b->window_count; w++) {
        const double *h = &b->share[w * (b->bands + 1)];
        double sum = 0;
        for (size_t j = 0; j <= b->bands && b->first_block[w] + j < b->count; j++)
            sum += h[j] * scratch[b->first_block[w] + j];
        c[w] = sum / b->window_var[w];
    }
    *window_first = 0;
    *window_last = b->window_count;
    return variance;
}

double pj_blocks_influence(const pj_blocks *b, size_t first, size_t count, const double *f,
                           double *scratch, double *c, size_t *window_first, size_t *window_last)
{
    if (b->factor)
        return influence_overlapping(b, first, count, f, scratch, c, window_first, window_last);
    double variance = 0, before = 0; /* weight of the reading at the begin in the block before */
    *window_first = b->window_count;
    *window_last = 0;
    for (size_t i = 0; i < count; i++) {
        if (f[i] == 0 && before == 0) continue; /* most blocks, for a class of few spans */
        size_t k = first + i, w = b->window_of[k];
        double close = b->closing[k], open = close > 0 ? close - 1 : 1;
        variance += (f[i] * open - before) * (f[i] * open - before) * b->reading_var[k];
        before = f[i] * (close > 0 ? close : 1);
        variance += f[i] * f[i] * b->unseen_var[k];
        if (w == SIZE_MAX) continue;
        c[w] = f[i] * b->weight[k];
        variance += c[w] * c[w] * (b->noise_var[k] + (1 - f[i]) * (1 - f[i]) * b->varied_var[k]);
        if (w < *window_first) *window_first = w;
        if (w + 1 > *window_last) *window_last = w + 1;
    }
    return variance + before * before * b->reading_var[first + count];
}
