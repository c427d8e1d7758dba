/* Sentences from tests: what differs, by how much, and what there is no evidence for. */
#include "cli/verdict.h"

#include "cli/stored.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const json_t *find_test(const json_t *tests, unsigned a, unsigned b, const char *metric)
{
    size_t i;
    json_t *t;
    json_array_foreach(tests, i, t)
    {
        if (strcmp(pj_member_text(t, "metric"), metric) == 0 && pj_member_number(t, "a") == a &&
            pj_member_number(t, "b") == b)
            return t;
    }
    return NULL;
}

static bool is_different(const json_t *test)
{
    return test && pj_member_number(test, "p_adjusted") < 0.05;
}

/* "12 % less", "3.1 % more" */
static void write_percent(double percent, char *text, size_t bytes)
{
    snprintf(text, bytes, "%.*f %% %s", fabs(percent) < 9.95 ? 1 : 0, fabs(percent),
             percent < 0 ? "less" : "more");
}

static void energy_clause(const json_t *test, char a, char b, char *text, size_t bytes)
{
    char middle[32], low[32], high[32];
    double mean = pj_member_number(test, "mean_a");
    write_percent(100 * pj_member_number(test, "difference") / mean, middle, sizeof middle);
    write_percent(100 * pj_member_number(test, "difference_lo") / mean, low, sizeof low);
    write_percent(100 * pj_member_number(test, "difference_hi") / mean, high, sizeof high);
    if (is_different(test))
        snprintf(text, bytes, "%c takes %s energy per token than %c (95 %% interval: %s to %s)", b,
                 middle, a, low, high);
    else
        snprintf(text, bytes,
                 "There is no evidence that %c and %c differ in energy per token (95 %% interval "
                 "of the difference: %s to %s)",
                 a, b, low, high);
}

/* How many times as fast the second is; NAN: unknown. */
static double speed_ratio(const json_t *rate, const json_t *duration)
{
    if (rate) return pj_member_number(rate, "mean_b") / pj_member_number(rate, "mean_a");
    if (duration)
        return pj_member_number(duration, "mean_a") / pj_member_number(duration, "mean_b");
    return NAN;
}

void pj_verdict(const json_t *tests, unsigned a, unsigned b, char *text, size_t bytes)
{
    char energy[256] = "", speed[128] = "", first = (char)('A' + a), second = (char)('A' + b);
    const json_t *joules = find_test(tests, a, b, "joules_per_token");
    const json_t *rate = find_test(tests, a, b, "tokens_per_second");
    const json_t *duration = find_test(tests, a, b, "token_duration_ms");
    if (!joules) joules = find_test(tests, a, b, "token_energy_mj");
    double ratio = speed_ratio(rate, duration);
    if (joules && pj_member_number(joules, "mean_a") > 0)
        energy_clause(joules, first, second, energy, sizeof energy);
    if (is_different(rate ? rate : duration))
        snprintf(speed, sizeof speed, "%c is %.3g times as fast as %c", second, ratio, first);
    else if (isfinite(ratio))
        snprintf(speed, sizeof speed, "there is no evidence of a difference in speed");
    bool single = duration && !rate; /* two runs, token by token */
    bool open = !is_different(joules) && !is_different(rate ? rate : duration);
    snprintf(
        text, bytes, "%s%s%s%s", energy, *energy && *speed ? "; " : "", speed,
        !*energy && !*speed ? ""
        : single
            ? ". This holds for these two runs and says nothing about future ones: use --repeat."
        : open ? "; add runs."
               : ".");
    if (text[0] >= 'a' && text[0] <= 'z') text[0] = (char)(text[0] - 'a' + 'A');
}
