/* Writes the sentence. */
#include "analysis/verdict.h"

#include <math.h>
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
    if (isnan(f->ratio.ratio)) return PJ_OUTCOME_NONE;
    if (f->refusal) return PJ_OUTCOME_REFUSED;
    if (f->ratio.n_a < 2 || f->ratio.n_b < 2) return PJ_OUTCOME_SINGLE;
    return f->p < PJ_LEVEL ? PJ_OUTCOME_DIFFERENT : PJ_OUTCOME_INDISTINGUISHABLE;
}

/* What more runs should detect after an inconclusive comparison: about half, rounded. */
static double target_of(double detectable)
{
    static const double targets[] = {0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (targets[i] < 0.75 * detectable) return targets[i];
    return 0.001;
}

static void plan(const pj_verdict_facts *f, pj_judgement *j)
{
    double n = (double)(f->ratio.n_a < f->ratio.n_b ? f->ratio.n_a : f->ratio.n_b);
    j->detectable = j->outcome == PJ_OUTCOME_REFUSED ? NAN : f->ratio.detectable;
    j->target = NAN;
    j->more_runs = NAN;
    if (j->outcome != PJ_OUTCOME_INDISTINGUISHABLE || !(f->ratio.cv > 0)) return;
    j->target = target_of(j->detectable);
    j->more_runs = fmax(ceil(pj_repeats_for(f->ratio.cv, j->target)) - n, 1);
}

/* A fraction in words: "3.4 %", "48 %". */
static void percent(double share, char *text, size_t bytes)
{
    double value = 100 * share;
    snprintf(text, bytes, value < 9.95 ? "%.2g %%" : "%.0f %%", value);
}

/* Nothing where both ends are the figure itself, to the digits that are shown. */
static void write_interval(char *text, size_t bytes, double lo, double hi)
{
    char first[32], last[32];
    *text = 0;
    if (isnan(lo) || isnan(hi)) return;
    snprintf(first, sizeof first, "%.3g", lo);
    snprintf(last, sizeof last, "%.3g", hi);
    if (strcmp(first, last) != 0) snprintf(text, bytes, " (%s to %s)", first, last);
}

static void write_open(const pj_verdict_facts *f, const pj_judgement *j, char *text, size_t bytes)
{
    char seen[32], shown[32], detected[96] = "", more[96] = "";
    percent(j->detectable, seen, sizeof seen);
    percent(j->target, shown, sizeof shown);
    if (j->detectable > 0)
        snprintf(detected, sizeof detected, ": differences above %s would have been detected",
                 seen);
    if (j->more_runs > 0)
        snprintf(more, sizeof more, "; %.0f more run%s per side would detect %s", j->more_runs,
                 j->more_runs > 1 ? "s" : "", shown);
    snprintf(text, bytes, "%s and %s are not distinguishable in energy per token%s%s%s.", f->name_a,
             f->name_b, detected, more,
             f->mann_whitney_p < PJ_LEVEL / 5
                 ? "; most runs of one lie above those of the other, but a few outliers hide it"
                 : "");
}

static void write_times(const pj_verdict_facts *f, double lo, double hi, char *text, size_t bytes)
{
    char interval[64];
    write_interval(interval, sizeof interval, lo, hi);
    snprintf(text, bytes, "%s needs %.3g%s times the energy of %s per token", f->name_b,
             f->ratio.ratio, interval, f->name_a);
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
                 f->ratio.n_a > 1 || f->ratio.n_b > 1
                     ? " in these runs; one run of %s says nothing about future ones: repeat it."
                     : " in these two runs; one run per side says nothing about future ones: use "
                       "--repeat.",
                 f->ratio.n_a > 1 ? f->name_b : f->name_a);
        end = advice;
        break;
    case PJ_OUTCOME_INDISTINGUISHABLE:
        write_open(f, j, main, sizeof main);
        end = "";
        break;
    case PJ_OUTCOME_DIFFERENT: write_times(f, f->ratio.lo, f->ratio.hi, main, sizeof main); break;
    }
    snprintf(text, bytes, "%s%s%s", main, *main ? end : "", speed + (*main ? 0 : *speed == ' '));
}

bool pj_verdict_is_different(const double *a, const double *b, size_t n)
{
    char text[600];
    pj_judgement judgement;
    pj_verdict_facts f = {.name_a = "A", .name_b = "B", .mann_whitney_p = NAN, .speed_ratio = NAN};
    pj_ratio_compare(a, n, b, n, 0, &f.ratio);
    f.p = f.ratio.p;
    pj_verdict_write(&f, &judgement, text, sizeof text);
    return judgement.outcome == PJ_OUTCOME_DIFFERENT;
}
