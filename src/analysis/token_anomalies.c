/* Deviations of single figures, the forest over all of them, and causes by rule. */
#include "analysis/anomalies.h"

#include "analysis/forest.h"
#include "base/median.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { FEATURES = 5, LEAST_TOKENS = 16, WINDOW = 31 };

static const double alone = 5;           /* threshold for a single figure, in robust deviations */
static const double together = 4.5;      /* minimum deviation for an anomaly found by the forest */
static const double ordinary = 0.995;    /* share of permuted tokens below the threshold */
static const double least_share = 0.005; /* floor of a spread: of the median */

static const char *const names[FEATURES] = {"duration", "energy", "power", "attention share",
                                            "spread of statistics"};

typedef struct table {
    size_t count;
    double *rows;        /* count x FEATURES: deviations in robust spreads; 0 where unknown */
    double *trend;       /* count: expected value of the reported figure */
    const double *shown; /* energy, or duration */
    double *scratch;
} table;

/* ---- deviations ---- */

/* Median of the window around `at`: work grows with the position. */
static double local_median(const double *values, size_t count, size_t at)
{
    double window[WINDOW];
    size_t n = 0, half = WINDOW / 2;
    size_t from = at > half ? at - half : 0, to = at + half + 1 < count ? at + half + 1 : count;
    for (size_t i = from; i < to; i++)
        if (isfinite(values[i])) window[n++] = values[i];
    return pj_median(window, n);
}

/* Writes column k of the rows; `floor` in the figure's unit. */
static void deviate(table *t, const double *values, int k, double floor)
{
    size_t n = 0;
    double centre, spread;
    double *expected = t->scratch, *work = t->scratch + t->count;
    for (size_t i = 0; i < t->count; i++) {
        expected[i] = local_median(values, t->count, i);
        if (isfinite(values[i])) work[n++] = fabs(values[i] - expected[i]);
    }
    spread = 1.4826 * pj_median(work, n);
    n = 0;
    for (size_t i = 0; i < t->count; i++)
        if (isfinite(values[i])) work[n++] = values[i];
    centre = pj_median(work, n);
    spread = fmax(spread, fmax(floor, least_share * fabs(centre)));
    for (size_t i = 0; i < t->count; i++) {
        bool known = isfinite(values[i]) && spread > 0;
        t->rows[i * FEATURES + (size_t)k] = known ? (values[i] - expected[i]) / spread : 0;
    }
}

static void deviate_power(table *t, const pj_token_figures *f)
{
    double *power = t->scratch + 2 * t->count, typical = 0;
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++) {
        power[i] = f->energy_mj[i] / f->duration_ms[i] * 1e3;
        if (isfinite(f->duration_ms[i])) t->scratch[n++] = f->duration_ms[i];
    }
    typical = pj_median(t->scratch, n);
    deviate(t, power, 2, f->resolution_mj / typical * 1e3);
}

static void token_anomalies_fill_rows(table *t, const pj_token_figures *f)
{
    if (f->duration_ms) deviate(t, f->duration_ms, 0, 0);
    if (f->energy_mj) deviate(t, f->energy_mj, 1, f->resolution_mj);
    if (f->energy_mj && f->duration_ms) deviate_power(t, f);
    if (f->attention_share) deviate(t, f->attention_share, 3, 0.01);
    if (f->spread) deviate(t, f->spread, 4, 0);
    t->shown = f->energy_mj ? f->energy_mj : f->duration_ms;
    for (size_t i = 0; i < t->count; i++) t->trend[i] = local_median(t->shown, t->count, i);
}

/* ---- causes ---- */

static double known(const double *values, size_t i)
{
    return values ? values[i] : NAN;
}

/* The first rule that matches; a step that took much longer was waiting for something. */
static pj_anomaly_cause cause_of(const table *t, const pj_token_figures *f, size_t i)
{
    const double *z = t->rows + i * FEATURES;
    double processor = known(f->processor_share, i), clock = known(f->clock_share, i);
    double before = i ? known(f->faults, i - 1) : NAN, faults = known(f->faults, i);
    if (processor < 0.7 || (isnan(processor) && z[0] > alone && !(clock < 0.9)))
        return PJ_CAUSE_BUSY;
    if (clock < 0.9) return PJ_CAUSE_THROTTLED;
    if (faults > 10 && !(before > faults / 2)) return PJ_CAUSE_FAULTS;
    if (fabs(z[3]) > together || fabs(z[4]) > together) return PJ_CAUSE_REAL;
    return PJ_CAUSE_UNKNOWN;
}

const char *pj_anomaly_cause_name(pj_anomaly_cause cause)
{
    static const char *const causes[PJ_CAUSES] = {"unknown",   "busy",   "waited",
                                                  "throttled", "faults", "real"};
    return causes[cause];
}

/* ---- the search ---- */

static int strongest(const double *z)
{
    int best = 0;
    for (int k = 1; k < FEATURES; k++)
        if (fabs(z[k]) > fabs(z[best])) best = k;
    /* If energy is itself an outlier it is the figure named. */
    return fabs(z[1]) > alone ? 1 : best;
}

/* Small deviations are none, whatever their score: within the token's own interval, or below the
 * least share. */
static bool matters(const table *t, const pj_token_figures *f, size_t i)
{
    double sd = f->energy_mj ? known(f->energy_sd_mj, i) : NAN,
           off = fabs(t->shown[i] - t->trend[i]);
    bool at_edge = i == 0 || i + 1 == t->count;
    return !at_edge && off >= PJ_ANOMALY_LEAST * fabs(t->trend[i]) && !(off < 1.96 * sd);
}

static size_t search(const table *t, const pj_token_figures *f, const pj_forest *forest,
                     double threshold, pj_anomaly *found, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++) {
        const double *z = t->rows + i * FEATURES;
        int k = strongest(z);
        bool single = fabs(z[k]) >= alone;
        bool joint =
            !single && fabs(z[k]) >= together && forest && pj_forest_score(forest, z) > threshold;
        if ((!single && !joint) || !matters(t, f, i)) continue;
        pj_anomaly a = {.index = i,
                        .value = t->shown[i],
                        .expected = t->trend[i],
                        .score = fabs(z[k]),
                        .figure = names[k],
                        .by_forest = joint,
                        .cause = cause_of(t, f, i)};
        n = pj_anomalies_add(found, n, max, a);
    }
    return n;
}

size_t pj_token_anomalies_find(const pj_token_figures *f, uint64_t seed, pj_anomaly *found,
                               size_t max)
{
    size_t n = 0, count = f->count;
    if (count < LEAST_TOKENS || (!f->duration_ms && !f->energy_mj)) return 0;
    pj_arena arena;
    pj_arena_init(&arena, 0);
    table t = {.count = count,
               .rows = pj_arena_alloc(&arena, count * FEATURES, sizeof(double)),
               .trend = pj_arena_alloc(&arena, count, sizeof(double)),
               .scratch = pj_arena_alloc(&arena, 3 * count, sizeof(double))};
    if (t.rows && t.trend && t.scratch) {
        token_anomalies_fill_rows(&t, f);
        pj_forest *forest = pj_forest_grow(t.rows, count, FEATURES, seed);
        double threshold = pj_forest_threshold(t.rows, count, FEATURES, seed, ordinary);
        n = search(&t, f, forest, threshold, found, max);
        pj_forest_free(forest);
    }
    pj_arena_fini(&arena);
    return n;
}
