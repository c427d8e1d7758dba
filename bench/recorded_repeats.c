/* Reads the runs and compares pairs of them. */
#include "bench/recorded_repeats.h"

#include "analysis/ratio.h"
#include "analysis/verdict.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = PJ_RECORDED_RUNS, PAIRS = 2000, LARGEST = 10 };

/* ---- the file ---- */

static const char *recorded_repeats_field(const char *line, int index)
{
    for (; index > 0 && line; index--) {
        line = strchr(line, ',');
        if (line) line++;
    }
    return line;
}

/* -1: there is none of that name. */
static int column(const char *header, const char *name)
{
    size_t length = strlen(name);
    for (int i = 0;; i++) {
        const char *at = recorded_repeats_field(header, i);
        if (!at) return -1;
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\n')) return i;
    }
}

/* A run: its configuration and joules per token. */
typedef struct recorded {
    const char *key;
    size_t key_bytes;
    double log_joules;
} recorded;

static bool recorded_repeats_is_alike(const recorded *a, const recorded *b)
{
    return a->key_bytes == b->key_bytes && memcmp(a->key, b->key, a->key_bytes) == 0;
}

static size_t recorded_repeats_read_runs(const char *text, recorded *runs)
{
    int power = column(text, "power_draw_watts_mean"), key = column(text, "learning_rate");
    int speed = column(text, "tokens_per_second_mean");
    size_t n = 0;
    if (power < 0 || key < 0 || speed < 0) return 0;
    for (const char *line = strchr(text, '\n'); line && line[1] && n < MOST;
         line = strchr(line + 1, '\n')) {
        const char *row = line + 1, *w = recorded_repeats_field(row, power),
                   *r = recorded_repeats_field(row, speed);
        double watts = w ? strtod(w, NULL) : 0, rate = r ? strtod(r, NULL) : 0;
        if (!(watts > 0) || !(rate > 0)) continue;
        runs[n++] =
            (recorded){row, (size_t)(recorded_repeats_field(row, key) - row), log(watts / rate)};
    }
    return n;
}

/* From the mean of the configuration, which takes a part of the spread with it. */
static void note_deviations(const recorded *runs, size_t n, pj_recorded_repeats *r)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++) {
        double sum = 0, alike = 0;
        for (size_t k = 0; k < n; k++)
            if (recorded_repeats_is_alike(&runs[i], &runs[k])) sum += runs[k].log_joules, alike++;
        if (alike < 2) continue;
        double away = (runs[i].log_joules - sum / alike) * sqrt(alike / (alike - 1));
        r->deviations[r->count++] = away;
        squares += away * away;
    }
    r->spread = sqrt(squares / (double)r->count);
}

pj_status pj_recorded_repeats_read(const char *path, pj_recorded_repeats *r, pj_error *err)
{
    char *text;
    size_t bytes;
    pj_status status = pj_file_read(path, 16 << 20, &text, &bytes, err);
    if (status != PJ_OK) return status;
    *r = (pj_recorded_repeats){0};
    recorded *runs = pj_alloc(MOST, sizeof *runs);
    if (runs) note_deviations(runs, recorded_repeats_read_runs(text, runs), r);
    if (!runs)
        status = pj_fail_memory(err, "recorded runs");
    else if (!r->count)
        status = pj_fail(err, PJ_E_INVALID, "%s has no runs of equal configuration", path);
    pj_free(runs);
    pj_free(text);
    return status;
}

/* ---- judging ---- */

static bool recorded_repeats_is_different(const pj_recorded_repeats *r, pj_random *random, size_t n,
                                          double factor)
{
    double a[LARGEST], b[LARGEST];
    for (size_t i = 0; i < n; i++) {
        a[i] = exp(r->deviations[pj_random_u64(random) % r->count]);
        b[i] = factor * exp(r->deviations[pj_random_u64(random) % r->count]);
    }
    return pj_verdict_is_different(a, b, n);
}

double pj_recorded_repeats_different(const pj_recorded_repeats *r, size_t n, double factor)
{
    pj_random random = {n};
    double different = 0;
    for (int i = 0; i < PAIRS; i++)
        different += recorded_repeats_is_different(r, &random, n, factor);
    return different / PAIRS;
}

double pj_recorded_repeats_detectable(const pj_recorded_repeats *r)
{
    return pj_detectable(r->spread, 10, 10, 1);
}
