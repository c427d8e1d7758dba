/* The linear model: the windows' noise covariance, normal equations, and Gaussian conditioning. All
 * memory is allocated at init; nothing else fails. */
#include "energy/regression.h"

#include "energy/linear.h"

#include <math.h>
#include <string.h>

/* Also compiled for wider vectors, chosen when the program starts; every element is computed the
 * same way. Sanitizers do not support that choice. */
#if defined __x86_64__ && defined __GLIBC__ && defined __GNUC__ && !defined __clang__ && \
    !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

#define DRIFT_KNOT_NS 4000000000LL
enum {
    DRIFT_LEAST_KNOTS = 3,
    DRIFT_MAX_KNOTS = 96,
    DRIFT_WINDOWS_A_KNOT = 12,
    DRIFT_LEAST_WINDOWS = 3
};

static size_t choose_knots(const pj_fit_input *in)
{
    if (in->evidence_only) return 0; /* a drift would explain windows at the wrong time */
    int64_t span = in->end_ns - in->begin_ns;
    size_t knots = (size_t)(span / DRIFT_KNOT_NS) + 1;
    if (knots < DRIFT_LEAST_KNOTS) knots = DRIFT_LEAST_KNOTS;
    size_t afford = in->window_count / DRIFT_WINDOWS_A_KNOT;
    if (knots > DRIFT_MAX_KNOTS) knots = DRIFT_MAX_KNOTS;
    if (knots > afford) knots = afford;
    if (knots >= DRIFT_LEAST_KNOTS) return knots;
    return in->window_count >= DRIFT_LEAST_WINDOWS ? 2 : 0;
}

/* ---- set-up ---- */

/* Rows of several windows, so that a row of the normal equations is read and written once for all
 * of them. */
enum { BATCH = 8 };
typedef struct pj_row_batch {
    size_t windows, columns;
    size_t *column;   /* [n] those that some window of the batch has */
    size_t *position; /* [n] of a column in `column`, plus one; 0: not there */
    double *factor;   /* [n][BATCH] weighted seconds, by position in the batch */
    double *far;      /* [BATCH][n] */
} pj_row_batch;

static bool allocate_batch(pj_regression *r)
{
    pj_row_batch *b = r->batch = pj_arena_alloc(&r->arena, 1, sizeof *b);
    if (!b) return false;
    b->column = pj_arena_alloc(&r->arena, r->n, sizeof *b->column);
    b->position = pj_arena_alloc(&r->arena, r->n, sizeof *b->position);
    b->factor = pj_arena_alloc(&r->arena, r->n, BATCH * sizeof *b->factor);
    b->far = pj_arena_alloc(&r->arena, r->n, BATCH * sizeof *b->far);
    return b->column && b->position && b->factor && b->far;
}

void pj_regression_fini(pj_regression *r)
{
    pj_design_fini(&r->design);
    pj_arena_fini(&r->arena);
    *r = (pj_regression){0};
}

static bool regression_allocate(pj_regression *r)
{
    size_t rows = r->in->window_count, n = r->n;
    const struct {
        double **array;
        size_t count;
    } arrays[] = {{&r->answer, rows},  {&r->y, rows},      {&r->level, rows}, {&r->known, rows},
                  {&r->link, rows},    {&r->own, rows},    {&r->bound, rows}, {&r->weight, rows},
                  {&r->step, rows},    {&r->m0, n},        {&r->d0, n},       {&r->common, n},
                  {&r->around, n},     {&r->pull, n},      {&r->rhs, n},      {&r->vector, n},
                  {&r->normal, n * n}, {&r->factor, n * n}};
    r->calibrated = pj_arena_alloc(&r->arena, n, sizeof *r->calibrated);
    r->before = pj_arena_alloc(&r->arena, rows, sizeof *r->before);
    bool ok = r->calibrated && r->before && allocate_batch(r);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        ok &=
            (*arrays[i].array = pj_arena_alloc(&r->arena, arrays[i].count, sizeof(double))) != NULL;
    return ok;
}

static double idle_mw(const pj_fit_input *in)
{
    return isfinite(in->idle_mw) ? in->idle_mw : 0;
}

static bool has_prior(const pj_fit_input *in, size_t class_)
{
    return in->priors && isfinite(in->priors[class_].power_mw) &&
           isfinite(in->priors[class_].sd_mw);
}

static double window_seconds(const pj_regression *r, size_t w)
{
    return (double)(r->in->windows[w].end_ns - r->in->windows[w].begin_ns) * 1e-9;
}

/* Mean net power of the classes without a calibration, over the windows that contain any of them,
 * so that idle time before and after does not dilute it, however short the work. Falls back to all
 * classes. */
static double regression_mean_power(const pj_regression *r, double net_mj)
{
    const pj_fit_input *in = r->in;
    const pj_design *d = &r->design;
    double rest_s = 0, rest_mj = 0, busy_s = 0;
    for (size_t w = 0; w < d->rows; w++) {
        double unknown_s = 0, known_mj = idle_mw(in) * window_seconds(r, w);
        for (size_t i = d->row_begin[w]; i < d->row_begin[w + 1]; i++) {
            size_t c = d->column[i];
            if (c >= r->classes) continue;
            if (has_prior(in, c))
                known_mj += in->priors[c].power_mw * d->seconds[i];
            else
                unknown_s += d->seconds[i];
        }
        if (!(unknown_s > 0)) continue;
        rest_s += unknown_s;
        rest_mj += in->windows[w].energy_mj - known_mj;
    }
    for (size_t c = 0; c < r->classes; c++) busy_s += d->total_s[c];
    if (rest_s > 0 && rest_mj > 0) return rest_mj / rest_s;
    if (busy_s > 0 && net_mj > 0) return net_mj / busy_s;
    double gross = fabs(in->total_mj) / ((double)(in->end_ns - in->begin_ns) * 1e-9);
    return gross > 0 ? gross : 1;
}

static double regression_expect(const pj_design *d, size_t w, const double *powers)
{
    double sum = 0;
    for (size_t i = d->row_begin[w]; i < d->row_begin[w + 1]; i++)
        sum += d->seconds[i] * powers[d->column[i]];
    return sum;
}

static bool regression_is_empty(const pj_design *d, size_t w)
{
    return d->row_begin[w] == d->row_begin[w + 1];
}

/* Variances due to a spread of 1 within classes of these powers. */
static void set_leaf_variances(pj_regression *r, const double *powers)
{
    const pj_design *d = &r->design;
    r->own_total = 0;
    for (size_t c = 0; c < r->classes; c++)
        r->own_total += powers[c] * powers[c] * d->total_squares[c];
    for (size_t w = 0; w < d->rows; w++) {
        r->own[w] = r->bound[w] = 0;
        for (size_t i = d->row_begin[w]; i < d->row_begin[w + 1]; i++) {
            double p = powers[d->column[i]];
            r->own[w] += p * p * d->squares[i];
            r->bound[w] += p * p * d->bound[i];
        }
    }
    pj_overlap_judge(r, powers);
}

/* ---- known noise ---- */

/* Variance of a counter's reading with a timing error of `at_s` seconds while it rose by `mw`. */
static double reading_variance(const pj_regression *r, double reading_mj, double mw, double at_s)
{
    double rounding = reading_mj / r->scale, early = mw * at_s;
    return rounding * rounding + early * early;
}

/* For a window of a lagging sensor: the weight of the error of the reading at its end (closing)
 * and, with a negative sign, of that at its begin (opening). They differ by 1. */
static double closing(const pj_window *w)
{
    return 1 / (1 - pj_lag_decay(w));
}
static double opening(const pj_window *w)
{
    return closing(w) - 1;
}

static bool is_linked(const pj_regression *r, size_t w)
{
    return r->before[w] != w;
}

static bool lies_between_readings(const pj_window *w)
{
    return w->lag_s > 0 || w->reading_mj > 0 || w->begin_s > 0 || w->end_s > 0;
}

/* Finds the windows that share readings; those of a log may lie between them. */
static void find_links(pj_regression *r)
{
    const pj_window *windows = r->in->windows;
    size_t last = SIZE_MAX;
    for (size_t w = 0; w < r->design.rows; w++) {
        r->before[w] = w;
        if (!lies_between_readings(&windows[w])) continue;
        bool shares = last != SIZE_MAX && windows[last].end_ns == windows[w].begin_ns &&
                      !regression_is_empty(&r->design, last) && !regression_is_empty(&r->design, w);
        if (shares) r->before[w] = last;
        r->crossed |= shares && last + 1 < w;
        last = w;
    }
}

/* Without room for them: as if independent. */
static void drop_crossed_links(pj_regression *r)
{
    if (!r->crossed || r->band) return;
    for (size_t w = 0; w < r->design.rows; w++)
        if (r->before[w] + 1 < w) r->before[w] = w;
    r->crossed = false;
}

/* What a lagging sensor reads at the end of the window, and the rounding of its readings. */
static void add_lagged_readings(pj_regression *r, size_t w)
{
    const pj_window *window = &r->in->windows[w];
    double decay = pj_lag_decay(window), rounding = window->reading_mj / r->scale;
    double before = is_linked(r, w) ? r->answer[r->before[w]] : r->level[w];
    r->answer[w] = decay * before + (1 - decay) * r->level[w];
    double variance = rounding * rounding, close = closing(window), open = opening(window);
    r->known[w] += variance * (close * close + open * open);
    if (is_linked(r, w)) r->link[w] = -variance * closing(&r->in->windows[r->before[w]]) * open;
}

/* Adds the variances of both readings of a window, and the covariance with the window before. */
static void add_counter_readings(pj_regression *r, size_t w)
{
    size_t last = r->before[w];
    const pj_window *window = &r->in->windows[w], *before = &r->in->windows[last];
    double seconds = window_seconds(r, w), mw = r->level[w] / seconds;
    if (is_linked(r, w)) { /* the window before counted the shared reading as its own */
        double last_seconds = window_seconds(r, last), last_mw = r->level[last] / last_seconds;
        double alone = reading_variance(r, before->reading_mj, last_mw, before->end_s);
        double mean_mw = (r->level[last] + r->level[w]) / (last_seconds + seconds);
        double shared = reading_variance(r, window->reading_mj, mean_mw, window->begin_s);
        r->known[last] += shared - alone;
        r->loose -= alone;
        r->known[w] += shared;
        r->link[w] = -shared;
    } else {
        double begin = reading_variance(r, window->reading_mj, mw, window->begin_s);
        r->known[w] += begin;
        r->loose += begin;
    }
    double end = reading_variance(r, window->reading_mj, mw, window->end_s);
    r->known[w] += end;
    r->loose += end;
}

static void set_window_variances(pj_regression *r)
{
    double before_mw = 0;
    r->loose = 0;
    for (size_t w = 0; w < r->design.rows; w++) {
        const pj_window *window = &r->in->windows[w];
        double mw = r->level[w] / window_seconds(r, w);
        double sd = window->sd_mj / r->scale;
        double shift = w > 0 ? (mw - before_mw) * window->shift_s : 0;
        r->known[w] = sd * sd + shift * shift;
        r->link[w] = 0;
        if (window->lag_s > 0)
            add_lagged_readings(r, w);
        else
            add_counter_readings(r, w);
        before_mw = mw;
    }
}

static void regression_fill(pj_regression *r)
{
    const pj_fit_input *in = r->in;
    double seconds = (double)(in->end_ns - in->begin_ns) * 1e-9;
    double net_mj = in->total_mj - idle_mw(in) * seconds;
    r->scale = regression_mean_power(r, net_mj);
    r->total_y = net_mj / r->scale;
    for (size_t w = 0; w < in->window_count; w++) {
        double mj = in->windows[w].energy_mj;
        r->y[w] = (mj - idle_mw(in) * window_seconds(r, w)) / r->scale;
        r->level[w] = fabs(mj) / r->scale;
    }
    set_window_variances(r);
}

pj_status pj_regression_init(pj_regression *r, const pj_fit_input *in, pj_error *err)
{
    *r = (pj_regression){.in = in, .classes = in->class_count, .knots = choose_knots(in)};
    r->n = r->classes + r->knots;
    pj_status status = pj_design_init(&r->design, in, r->knots, err);
    if (status != PJ_OK) return status;
    if (!regression_allocate(r)) return pj_fail_memory(err, "attribution");
    find_links(r);
    if (!pj_overlap_init(r)) return pj_fail_memory(err, "attribution");
    drop_crossed_links(r);
    regression_fill(r);
    return PJ_OK;
}

void pj_regression_centre(pj_regression *r, const double *mean)
{
    set_leaf_variances(r, mean);
    pj_design_set_powers(&r->design, r->in, mean);
    memcpy(r->around, mean, r->n * sizeof(double));
}

void pj_regression_relevel(pj_regression *r, const double *mean)
{
    for (size_t w = 0; w < r->design.rows; w++) {
        double idle = idle_mw(r->in) * window_seconds(r, w) / r->scale;
        double read = fabs(r->in->windows[w].energy_mj) / r->scale;
        double predicted = regression_expect(&r->design, w, mean) + idle;
        r->level[w] = fmin(fmax(predicted, read / 2), 2 * read);
    }
    set_window_variances(r);
}

/* ---- likelihood ---- */

/* to[0..n) += factor x from[0..n) */
WIDE static void add_scaled(double *restrict to, const double *restrict from, double factor,
                            size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] += factor * from[i];
}

/* far := step x (far + row w): the weight of the rows up to w on the next one. */
static void carry(const pj_regression *r, size_t w, double step, double *far)
{
    const pj_design *d = &r->design;
    for (size_t i = d->row_begin[w]; i < d->row_begin[w + 1]; i++)
        far[d->column[i]] += d->seconds[i];
    for (size_t i = 0; i < r->n; i++) far[i] *= step;
}

/* line[0..n) += factor[0] x far[0] + factor[1] x far[1] + ... */
WIDE static void add_batch(double *restrict line, const double *restrict far,
                           const double *restrict factor, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double sum = line[i];
        for (size_t k = 0; k < BATCH; k++) sum += factor[k] * far[k * n + i];
        line[i] = sum;
    }
}

/* In a column that few windows have, most factors are 0: these windows are then added one by one.
 */
static void flush_column(pj_regression *r, double *line, const double *factor)
{
    const double *far = r->batch->far;
    size_t used = 0;
    for (size_t k = 0; k < BATCH; k++) used += factor[k] != 0;
    if (used >= BATCH / 2) {
        add_batch(line, far, factor, r->n);
        return;
    }
    for (size_t k = 0; k < BATCH; k++)
        if (factor[k] != 0) add_scaled(line, far + k * r->n, factor[k], r->n);
}

static void flush_batch(pj_regression *r)
{
    pj_row_batch *b = r->batch;
    memset(b->far + b->windows * r->n, 0, (BATCH - b->windows) * r->n * sizeof(double));
    for (size_t c = 0; c < b->columns; c++) {
        flush_column(r, r->normal + b->column[c] * r->n, b->factor + c * BATCH);
        b->position[b->column[c]] = 0;
    }
    b->windows = b->columns = 0;
}

/* Adds the products of row w with `far` and with half of itself (the sum is mirrored at the end) to
 * the normal equations, in batches. */
static void put_in_batch(pj_regression *r, size_t w, double weight, const double *far)
{
    const pj_design *d = &r->design;
    pj_row_batch *b = r->batch;
    for (size_t i = d->row_begin[w]; i < d->row_begin[w + 1]; i++) {
        size_t column = d->column[i];
        if (!b->position[column]) {
            memset(b->factor + b->columns * BATCH, 0, BATCH * sizeof(double));
            b->column[b->columns] = column;
            b->position[column] = ++b->columns;
        }
        b->factor[(b->position[column] - 1) * BATCH + b->windows] += weight * d->seconds[i];
    }
    double *row = b->far + b->windows * r->n;
    memcpy(row, far, r->n * sizeof(double));
    for (size_t i = d->row_begin[w]; i < d->row_begin[w + 1]; i++)
        row[d->column[i]] += d->seconds[i] / 2;
    if (++b->windows == BATCH) flush_batch(r);
}

/* Computes normal, rhs and residual from weight and step. For rows k <= j, V^-1[j][k] is weight[j]
 * times a product of steps: `far` holds the rows k < j multiplied by these products, and the lower
 * triangle of pairs is mirrored at the end. */
static void accumulate(pj_regression *r)
{
    const pj_design *d = &r->design;
    size_t n = r->n;
    double *far = r->vector, far_rest = 0, rest = 0;
    memset(r->normal, 0, n * n * sizeof(double));
    memset(r->rhs, 0, n * sizeof(double));
    memset(far, 0, n * sizeof(double));
    r->residual = 0;
    for (size_t w = 0; w < d->rows; w++) {
        bool linked = r->step[w] != 0;
        if (linked) {
            carry(r, w - 1, r->step[w], far);
            far_rest = r->step[w] * (far_rest + rest);
        } else if (w > 0 && r->step[w - 1] != 0) {
            memset(far, 0, n * sizeof(double));
            far_rest = 0;
        }
        if (regression_is_empty(d, w)) continue;
        rest = r->y[w] - regression_expect(d, w, r->around);
        double weight = r->weight[w];
        r->residual += weight * rest * (rest + 2 * far_rest);
        if (linked) {
            add_scaled(r->rhs, far, weight * rest, n);
            put_in_batch(r, w, weight, far);
        }
        for (size_t a = d->row_begin[w]; a < d->row_begin[w + 1]; a++) {
            double weighted = weight * d->seconds[a];
            double *line = r->normal + d->column[a] * n;
            r->rhs[d->column[a]] += weighted * (rest + far_rest);
            for (size_t b = d->row_begin[w]; !linked && b < d->row_begin[w + 1]; b++)
                line[d->column[b]] += weighted / 2 * d->seconds[b];
        }
    }
    flush_batch(r);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k <= i; k++)
            r->normal[i * n + k] = r->normal[k * n + i] =
                r->normal[i * n + k] + r->normal[k * n + i];
}

/* Of the noise of its readings. */
static double noise_variance(const pj_regression *r, size_t w)
{
    const pj_window *window = &r->in->windows[w];
    if (window->lag_s > 0) {
        double begin = r->answer[r->before[w]];
        double late = r->noise * r->answer[w] * closing(window);
        double early = r->noise * begin * opening(window);
        return late * late + early * early;
    }
    double sd = r->noise * r->level[w];
    return window->parts > 1 ? sd * sd / window->parts : sd * sd;
}

/* Covariance with the window before: noise that depends on the readings, and what is known. */
static double link_of(const pj_regression *r, size_t w)
{
    const pj_window *window = &r->in->windows[w];
    if (!(window->lag_s > 0) || !is_linked(r, w)) return r->link[w];
    double shared = r->noise * r->answer[r->before[w]];
    const pj_window *before = &r->in->windows[r->before[w]];
    return r->link[w] - shared * shared * closing(before) * opening(window);
}

/* Without the spread. */
static double regression_window_variance(const pj_regression *r, size_t w)
{
    return fmax(noise_variance(r, w) + r->known[w], 1e-24);
}

void pj_regression_set_noise(pj_regression *r, double noise, double spread, bool bounded)
{
    const double *leaves = bounded ? r->bound : r->own;
    r->noise = noise;
    r->spread = spread;
    for (size_t w = 0; w < r->design.rows; w++)
        r->weight[w] = regression_is_empty(&r->design, w) ? 1 : regression_window_variance(r, w);
    if (r->band && (spread > 0 || r->crossed) && pj_overlap_accumulate(r, r->weight, bounded))
        return;
    for (size_t w = 0; w < r->design.rows; w++) {
        if (!regression_is_empty(&r->design, w)) r->weight[w] += spread * spread * leaves[w];
        r->step[w] = r->before[w] + 1 == w ? link_of(r, w) : 0;
    }
    if (!pj_tridiagonal_invert(r->weight, r->step, r->design.rows, &r->log_v)) r->log_v = INFINITY;
    accumulate(r);
}

void pj_regression_keep(pj_regression *r, pj_regression_sums *sums)
{
    size_t n = r->n;
    *sums = (pj_regression_sums){r->noise, r->spread, r->residual, r->log_v, NULL, NULL};
    sums->normal = pj_arena_alloc(&r->arena, n * n + n, sizeof(double));
    if (!sums->normal) return;
    sums->rhs = sums->normal + n * n;
    memcpy(sums->normal, r->normal, n * n * sizeof(double));
    memcpy(sums->rhs, r->rhs, n * sizeof(double));
}

void pj_regression_recall(pj_regression *r, const pj_regression_sums *sums)
{
    r->noise = sums->noise, r->spread = sums->spread, r->residual = sums->residual,
    r->log_v = sums->log_v;
    memcpy(r->normal, sums->normal, r->n * r->n * sizeof(double));
    memcpy(r->rhs, sums->rhs, r->n * sizeof(double));
}

void pj_regression_set_apart(pj_regression *r)
{
    for (size_t w = 0; w < r->design.rows; w++) {
        r->weight[w] = 1 / (regression_window_variance(r, w) + r->spread * r->spread * r->bound[w]);
        r->step[w] = 0;
    }
    accumulate(r);
}

/* pull := P0^-1 (m0 - around), misfit := (m0 - around)' P0^-1 (m0 - around); `along` as below. */
static void weigh_prior(pj_regression *r, const double along[2])
{
    double moved[2] = {0, 0};
    r->misfit = 0;
    for (size_t i = 0; i < r->n; i++)
        moved[r->calibrated[i]] += r->common[i] * (r->m0[i] - r->around[i]) / r->d0[i];
    for (size_t i = 0; i < r->n; i++) {
        int group = r->calibrated[i];
        double away = r->m0[i] - r->around[i];
        r->pull[i] = (away - r->common[i] * moved[group] / along[group]) / r->d0[i];
        r->misfit += away * r->pull[i];
    }
}

static double sum_of_squares(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}

/* The drift is one around the run's mean: its level belongs to the classes' powers. Conditions the
 * prior of the hats on work-weighted mean 0. */
static void hold_level(pj_regression *r, double drift_sd, double *log_prior)
{
    const double *hats = r->design.total_s + r->classes;
    double squares = sum_of_squares(hats, r->knots);
    double *corner = r->factor + r->classes * r->n + r->classes;
    if (!(squares > 0)) return;
    double variance = drift_sd * drift_sd * 1e-6; /* of the mean */
    for (size_t i = 0; i < r->knots; i++)
        for (size_t k = 0; k <= i; k++)
            corner[i * r->n + k] += hats[i] * hats[k] / squares / variance;
    *log_prior += log(variance / (drift_sd * drift_sd + variance));
}

/* factor := Cholesky of P0^-1 + normal; also pull and misfit; *log_prior := log |P0|. P0 is a
 * diagonal D plus a rank-one term u u' per group, inverted by Sherman-Morrison: P0^-1 = D^-1 -
 * (D^-1 u)(D^-1 u)' / (1 + u' D^-1 u). */
static bool regression_factorise(pj_regression *r, double drift_sd, double *log_prior,
                                 double *log_det)
{
    size_t n = r->n;
    double along[2] = {1, 1};
    *log_prior = 0;
    for (size_t c = 0; c < n; c++) {
        if (c >= r->classes) r->d0[c] = drift_sd * drift_sd;
        along[r->calibrated[c]] += r->common[c] * r->common[c] / r->d0[c];
        *log_prior += log(r->d0[c]);
    }
    *log_prior += log(along[0]) + log(along[1]);
    weigh_prior(r, along);
    for (size_t i = 0; i < n; i++) {
        double ui = r->common[i] / r->d0[i] / along[r->calibrated[i]];
        for (size_t k = 0; k <= i; k++) {
            double prior = i == k ? 1 / r->d0[i] : 0;
            if (r->calibrated[i] == r->calibrated[k]) prior -= ui * r->common[k] / r->d0[k];
            r->factor[i * n + k] = r->normal[i * n + k] + prior;
        }
    }
    hold_level(r, drift_sd, log_prior);
    return pj_cholesky(r->factor, n, log_det);
}

/* x := the posterior mean relative to `around`; returns the decrease of the misfit. */
static double regression_solve(const pj_regression *r, double *x)
{
    double gain = 0;
    for (size_t i = 0; i < r->n; i++) x[i] = r->rhs[i] + r->pull[i];
    pj_cholesky_solve(r->factor, r->n, x);
    for (size_t i = 0; i < r->n; i++) gain += x[i] * (r->rhs[i] + r->pull[i]);
    return gain;
}

double pj_regression_evidence(pj_regression *r, double drift_sd)
{
    double log_prior, log_det;
    if (!regression_factorise(r, drift_sd, &log_prior, &log_det)) return -INFINITY;
    double gain = regression_solve(r, r->vector);
    return -0.5 * (r->log_v + log_det + log_prior + r->residual + r->misfit - gain);
}

/* ---- posterior ---- */

double pj_regression_least_noise(const pj_regression *r)
{
    double squares = sum_of_squares(r->level, r->design.rows);
    return squares > 0 && r->loose > 0 ? 0.1 * sqrt(r->loose / 2 / squares) : 0;
}

/* Variance of the run's measured total due to the noise of its windows, scaled where windows
 * overlap or leave gaps. A reading shared by two windows cancels in the sum. */
static double total_variance(const pj_regression *r)
{
    double seen_s = 0, squares = sum_of_squares(r->level, r->design.rows);
    for (size_t w = 0; w < r->design.rows; w++) seen_s += window_seconds(r, w);
    if (!(seen_s > 0)) return 0;
    double each = (double)(r->in->end_ns - r->in->begin_ns) * 1e-9 / seen_s;
    return (r->noise * r->noise * squares + r->loose) * each * each;
}

/* Conditions N(mean, cov) on total' x = total_y, so that parts add up to the measured total.
 * The total is a sum over the same noisy windows, so its noise stays in the intervals: with k
 * the change of the powers per unit of total, they keep the variance k k' times the total's.
 * Uncertainty of the total from unobserved time weakens the condition, as does rounding of its
 * sum. */
static void condition_on_total(const pj_regression *r, double *mean, double *cov)
{
    size_t n = r->n;
    const double *total = r->design.total_s;
    double *st = r->vector, tst = 0, expected = 0;
    for (size_t i = 0; i < n; i++) {
        st[i] = 0;
        for (size_t k = 0; k < n; k++) st[i] += cov[i * n + k] * total[k];
        tst += st[i] * total[i];
        expected += total[i] * mean[i];
    }
    if (!(tst > 0)) return;
    double sd = isfinite(r->in->total_sd_mj) ? r->in->total_sd_mj / r->scale : 0;
    double digits = 1e-7 * r->total_y;
    double leaves = r->spread * r->spread * r->own_total;
    double variance = tst + sd * sd + digits * digits + leaves, noise = total_variance(r);
    for (size_t i = 0; i < n; i++) mean[i] += st[i] / variance * (r->total_y - expected);
    double kept = 1 / variance - noise / (variance * variance);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) cov[i * n + k] -= st[i] * st[k] * kept;
}

bool pj_regression_posterior(pj_regression *r, double drift_sd, double *mean, double *cov)
{
    double log_prior, log_det;
    if (!regression_factorise(r, drift_sd, &log_prior, &log_det)) return false;
    regression_solve(r, mean);
    pj_cholesky_inverse(r->factor, r->n, cov);
    for (size_t c = 0; c < r->n; c++) mean[c] += r->around[c];
    condition_on_total(r, mean, cov);
    return true;
}
