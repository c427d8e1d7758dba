/* Writes the sentence. */
#include "analysis/verdict.h"

#include "base/estimate.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *pj_outcome_name(pj_outcome outcome)
{
    static const char *const names[] = {"none", "refused", "single_runs", "not_distinguishable",
                                        "different"};
    return names[outcome];
}

static pj_outcome verdict_judge(const pj_verdict_facts *f)
{
    if (isnan(f->pair.ratio.ratio)) return PJ_OUTCOME_NONE;
    if (f->refusal) return PJ_OUTCOME_REFUSED;
    if (f->pair.ratio.n_a < 2 || f->pair.ratio.n_b < 2) return PJ_OUTCOME_SINGLE;
    return f->pair.different ? PJ_OUTCOME_DIFFERENT : PJ_OUTCOME_INDISTINGUISHABLE;
}

/* What more runs should detect after an inconclusive comparison: about half, rounded. */
static double target_of(double detectable)
{
    static const double targets[] = {0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (targets[i] < 0.75 * detectable) return targets[i];
    return 0.001;
}

/* With the calibration error of two devices, which no number of runs makes smaller. */
static double verdict_add_gain(double difference, double gain_sd)
{
    return expm1(hypot(log1p(difference), 2.8 * gain_sd)); /* 2.8: 1.96 + 0.84, for PJ_POWER */
}

static void plan(const pj_verdict_facts *f, pj_judgement *j)
{
    const pj_ratio *r = &f->pair.ratio;
    double n = (double)(r->n_a < r->n_b ? r->n_a : r->n_b), gain = f->pair.gain_sd;
    j->detectable = j->target = j->more_runs = NAN;
    if (j->outcome != PJ_OUTCOME_INDISTINGUISHABLE && j->outcome != PJ_OUTCOME_DIFFERENT) return;
    j->detectable = verdict_add_gain(pj_detectable(r->cv, r->n_a, r->n_b, r->pairs), gain);
    if (j->outcome != PJ_OUTCOME_INDISTINGUISHABLE || !(r->cv > 0)) return;
    double target = target_of(j->detectable), floor = 2.8 * gain;
    double by_runs = expm1(sqrt(fmax(pow(log1p(target), 2) - floor * floor, 0)));
    if (!(by_runs > 0)) return; /* more runs would not show it */
    j->target = target;
    j->more_runs = fmax(pj_repeats_for(r->cv, by_runs, r->pairs) - n, 1);
}

/* A fraction in words: "3.4 %", "48 %". */
static void percent(double share, char *text, size_t bytes)
{
    double value = 100 * share;
    snprintf(text, bytes, value < 9.95 ? "%.2g %%" : "%.0f %%", value);
}

static const char *per_of(const pj_judgement *j)
{
    return j->per ? j->per : "token";
}

/* Appends to a text. */
static void verdict_add(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void verdict_add(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list list;
    va_start(list, format);
    vsnprintf(text + used, bytes - used, format, list);
    va_end(list);
}

/* ": differences above 4 % would have been detected; 8 more runs per side would detect 2 %" */
static void add_power(const pj_judgement *j, char *text, size_t bytes)
{
    char share[32];
    percent(j->detectable, share, sizeof share);
    if (j->detectable > 9) /* of few runs that vary much; its figure would be of no use */
        verdict_add(text, bytes, ": not even ten times as much would have been detected");
    else if (j->detectable > 0)
        verdict_add(text, bytes, ": differences above %s would have been detected", share);
    percent(j->target, share, sizeof share);
    if (j->more_runs > 0)
        verdict_add(text, bytes, "; %.0f more run%s per side would detect %s", j->more_runs,
                    j->more_runs > 1 ? "s" : "", share);
}

static void write_open(const pj_verdict_facts *f, const pj_judgement *j, char *text, size_t bytes)
{
    double pairs = (double)(f->pair.ratio.pairs ? f->pair.ratio.pairs : 1);
    snprintf(text, bytes, "%s and %s are not distinguishable in energy per %s", f->name_a,
             f->name_b, per_of(j));
    add_power(j, text, bytes);
    verdict_add(text, bytes, "%s.",
                f->mann_whitney_p < PJ_LEVEL / 5 / pairs
                    ? "; most runs of one lie above those of the other, but a few outliers hide it"
                    : "");
}

/* ---- several pairs in one sentence ---- */

static size_t count_ties_of(const pj_tied_pair *ties, size_t count, uint32_t side)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) n += ties[i].a == side || ties[i].b == side;
    return n;
}

/* "A, B and C": the sides with ties, without `except`. */
static void add_tied_names(const pj_tied_pair *ties, size_t count, const char *const *names,
                           size_t sides, size_t except, char *text, size_t bytes)
{
    size_t all = 0, n = 0;
    for (uint32_t i = 0; i < sides; i++) all += i != except && count_ties_of(ties, count, i);
    for (uint32_t i = 0; i < sides; i++) {
        if (i == except || !count_ties_of(ties, count, i)) continue;
        verdict_add(text, bytes, "%s%s", n == 0 ? "" : n + 1 == all ? " and " : ", ", names[i]);
        n++;
    }
}

static void add_tied_pairs(const pj_tied_pair *ties, size_t count, const char *const *names,
                           char *text, size_t bytes)
{
    verdict_add(text, bytes, "Not distinguishable in energy per %s are ", per_of(&ties->judgement));
    for (size_t i = 0; i < count; i++)
        verdict_add(text, bytes, "%s%s and %s", i ? ", " : "", names[ties[i].a], names[ties[i].b]);
}

/* All sides tied with each other, one side with all others, or any list of pairs. */
static void add_tied(const pj_tied_pair *ties, size_t count, const char *const *names, size_t sides,
                     char *text, size_t bytes)
{
    size_t tied = 0, centre = sides;
    for (uint32_t i = 0; i < sides; i++) {
        size_t n = count_ties_of(ties, count, i);
        tied += n > 0;
        if (n == count && centre == sides) centre = i;
    }
    if (2 * count == tied * (tied - 1)) {
        add_tied_names(ties, count, names, sides, sides, text, bytes);
        verdict_add(text, bytes, " are not distinguishable in energy per %s",
                    per_of(&ties->judgement));
    } else if (centre < sides) {
        verdict_add(text, bytes, "%s is not distinguishable in energy per %s from ", names[centre],
                    per_of(&ties->judgement));
        add_tied_names(ties, count, names, sides, centre, text, bytes);
    } else {
        add_tied_pairs(ties, count, names, text, bytes);
    }
}

void pj_verdict_write_ties(const pj_tied_pair *ties, size_t count, const char *const *names,
                           size_t sides, char *text, size_t bytes)
{
    const pj_judgement *worst = &ties[0].judgement; /* what is said holds for every pair */
    for (size_t i = 1; i < count; i++)
        if (ties[i].judgement.detectable > worst->detectable) worst = &ties[i].judgement;
    *text = 0;
    add_tied(ties, count, names, sides, text, bytes);
    add_power(worst, text, bytes);
    verdict_add(text, bytes, ".");
}

/* ---- one pair ---- */

static void write_times(const pj_verdict_facts *f, double lo, double hi, char *text, size_t bytes)
{
    char ratio[96];
    pj_estimate_write(f->pair.ratio.ratio, (pj_bounds){lo, hi}, ratio, sizeof ratio);
    snprintf(text, bytes, "%s needs %s times the energy of %s per %s", f->name_b, ratio, f->name_a,
             f->per ? f->per : "token");
}

static void add_speed(const pj_verdict_facts *f, char *text, size_t bytes)
{
    if (f->speed_differs && f->speed_ratio > 0)
        snprintf(text, bytes, " %s is %.3g times as fast as %s.", f->name_b, f->speed_ratio,
                 f->name_a);
}

void pj_verdict_write(const pj_verdict_facts *f, pj_judgement *j, char *text, size_t bytes)
{
    char main[512] = "", speed[256] = "", advice[256];
    const char *end = ".";
    j->outcome = verdict_judge(f);
    j->per = f->per;
    plan(f, j);
    add_speed(f, speed, sizeof speed);
    switch (j->outcome) {
    case PJ_OUTCOME_NONE: break;
    case PJ_OUTCOME_REFUSED:
        snprintf(main, sizeof main, "No verdict between %s and %s: %s", f->name_a, f->name_b,
                 f->refusal);
        end = "";
        break;
    case PJ_OUTCOME_SINGLE:
        write_times(f, f->single_lo, f->single_hi, main, sizeof main);
        snprintf(advice, sizeof advice,
                 f->pair.ratio.n_a > 1 || f->pair.ratio.n_b > 1
                     ? " in these runs; one run of %s says nothing about future ones: repeat it."
                     : " in these two runs; one run per side says nothing about future ones: use "
                       "--repeat.",
                 f->pair.ratio.n_a > 1 ? f->name_b : f->name_a);
        end = advice;
        break;
    case PJ_OUTCOME_INDISTINGUISHABLE:
        write_open(f, j, main, sizeof main);
        end = "";
        break;
    case PJ_OUTCOME_DIFFERENT:
        write_times(f, f->pair.ratio.lo, f->pair.ratio.hi, main, sizeof main);
        break;
    }
    snprintf(text, bytes, "%s%s%s", main, *main ? end : "", speed + (*main ? 0 : *speed == ' '));
}

bool pj_verdict_is_different(const double *a, const double *b, size_t n)
{
    pj_contrast pair = {.a = a, .b = b, .n_a = n, .n_b = n};
    pj_contrasts_judge(&pair, 1);
    return pair.different;
}
