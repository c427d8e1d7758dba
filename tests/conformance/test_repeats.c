/*
 * Comparison of recorded runs that are alike (fixtures/llm-energy/dos-group): joules per token of
 * 126 configurations on an A100, each measured four times. Deviations from the mean of their
 * configuration, as they were recorded, make 2,000 pairs of groups without a difference, of which
 * at most 5 % may be called different, and pairs that differ by a planted share. The figures are
 * printed.
 */
#include "judge.h"

#include "analysis/ratio.h"
#include "analysis/verdict.h"
#include "base/random.h"

#include <math.h>

enum { MOST = 1024, PAIRS = 2000, LARGEST = 10 };

static double deviations[MOST];
static size_t count;

/* ---- the file ------------------------------------------------------------------------------- */

static const char *field(const char *line, int index)
{
    for (; index > 0 && line; index--) {
        line = strchr(line, ',');
        if (line) line++;
    }
    return line;
}

static int column(const char *header, const char *name)
{
    size_t length = strlen(name);
    for (int i = 0;; i++) {
        const char *at = field(header, i);
        if (!at) fail_msg("no column %s", name);
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\n')) return i;
    }
}

/* A run: its configuration, which is everything before the learning rate, and joules per token. */
typedef struct recorded {
    const char *key;
    size_t key_bytes;
    double log_joules;
} recorded;

static bool is_alike(const recorded *a, const recorded *b)
{
    return a->key_bytes == b->key_bytes && memcmp(a->key, b->key, a->key_bytes) == 0;
}

static size_t read_runs(const char *text, recorded *runs)
{
    int power = column(text, "power_draw_watts_mean"), key = column(text, "learning_rate");
    int speed = column(text, "tokens_per_second_mean");
    size_t n = 0;
    for (const char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        const char *row = line + 1;
        double watts = strtod(field(row, power), NULL), rate = strtod(field(row, speed), NULL);
        if (!(watts > 0) || !(rate > 0)) continue;
        assert_true(n < MOST);
        runs[n++] = (recorded){row, (size_t)(field(row, key) - row), log(watts / rate)};
    }
    return n;
}

/* From the mean of the configuration, which takes a part of the spread with it. */
static void read_deviations(const char *text)
{
    static recorded runs[MOST];
    size_t n = read_runs(text, runs);
    for (size_t i = 0; i < n; i++) {
        double sum = 0, alike = 0;
        for (size_t k = 0; k < n; k++)
            if (is_alike(&runs[i], &runs[k])) sum += runs[k].log_joules, alike++;
        if (alike > 1)
            deviations[count++] = (runs[i].log_joules - sum / alike) * sqrt(alike / (alike - 1));
    }
}

static int read_all(void **state)
{
    char of[PATH_MAX], path[PATH_MAX], *text;
    size_t bytes;
    pj_error err;
    const char *folder = getenv("PJ_FIXTURES");
    (void)state;
    if (!folder || !folder[0]) return 0; /* the tests skip */
    judge_join(of, folder, "llm-energy/dos-group");
    judge_join(path, of, "mfu_aggregated_per_config_A100.csv");
    if (pj_file_read(path, 16 << 20, &text, &bytes, &err) != PJ_OK) fail_msg("%s", err.text);
    read_deviations(text);
    pj_free(text);
    return 0;
}

/* ---- judging -------------------------------------------------------------------------------- */

static bool is_different(pj_random *random, size_t n, double factor)
{
    double a[LARGEST], b[LARGEST];
    char text[600];
    pj_judgement judgement;
    pj_verdict_facts f = {.name_a = "A", .name_b = "B", .mann_whitney_p = NAN, .speed_ratio = NAN};
    for (size_t i = 0; i < n; i++) {
        a[i] = exp(deviations[pj_random_u64(random) % count]);
        b[i] = factor * exp(deviations[pj_random_u64(random) % count]);
    }
    pj_ratio_compare(a, n, b, n, 0, &f.ratio);
    f.p = f.ratio.p;
    pj_verdict_write(&f, &judgement, text, sizeof text);
    return judgement.outcome == PJ_OUTCOME_DIFFERENT;
}

static int different_of(size_t n, double factor)
{
    pj_random random = {n};
    int different = 0;
    for (int i = 0; i < PAIRS; i++) different += is_different(&random, n, factor);
    return different;
}

static double spread(void)
{
    double squares = 0;
    for (size_t i = 0; i < count; i++) squares += deviations[i] * deviations[i] / (double)count;
    return sqrt(squares);
}

/* 5 %, plus twice the sampling error of 2,000 pairs. */
static void runs_that_are_alike_are_seldom_called_different(void **state)
{
    static const size_t sizes[] = {3, 4, 5, 10};
    (void)state;
    judge_folder("PJ_FIXTURES");
    assert_true(count >= 400);
    printf("%zu recorded runs, a spread of %.2f %%\n", count, 100 * spread());
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int different = different_of(sizes[k], 1);
        printf("%zu a side: %.1f %% of pairs that are alike called different\n", sizes[k],
               100.0 * different / PAIRS);
        assert_true(different <= 0.061 * PAIRS);
    }
}

/* At the spread of the recorded runs, whatever it is: the difference that ten repeats find with the
 * stated power is found at least that often, less what the heavier tails of real runs cost. */
static void planted_differences_are_found(void **state)
{
    (void)state;
    judge_folder("PJ_FIXTURES");
    double difference = 0.001;
    while (pj_repeats_for(spread(), difference) > 10) difference *= 1.02;
    int found = different_of(10, 1 + difference);
    printf("10 a side, %.1f %% planted: %.1f %% found, %.0f %% stated\n", 100 * difference,
           100.0 * found / PAIRS, 100 * PJ_POWER);
    assert_true(found >= (PJ_POWER - 0.05) * PAIRS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_that_are_alike_are_seldom_called_different),
        cmocka_unit_test(planted_differences_are_found),
    };
    return cmocka_run_group_tests(tests, read_all, NULL);
}
