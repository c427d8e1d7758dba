/* Robustness of attribution when its model of the sensor or the load is wrong: the simulation knows
 * the truth, the estimator only what the row declares. One recorded run is stretched to several
 * lengths. For runs, phases, tokens, sums of classes and single rows, the table shows the coverage
 * of the nominal 95 % interval and its median half width relative to the truth; figures reported as
 * unavailable count for neither and are printed separately. Rows whose sensor is as declared are
 * also evaluated with an estimator that knows everything: the ratio of the median widths is the
 * price of not knowing. */
#include "bench/model_error.h"
#include "bench/prior.h"

#include "base/memory.h"
#include "base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct table_row {
    const char *name, *sim;
    double calibration; /* relative 1 sigma of a calibrated power; 0: none */
    bool declared;      /* sensor and load behave as the estimator assumes */
} table_row;

#define PRESET(name)                                 \
    {                                                \
        name, "preset=" name ",noise=0.005", 0, true \
    }
#define COUNTER(name)                 \
    {                                 \
        name, "preset=" name, 0, true \
    }

static const table_row rows[] = {
    COUNTER("rapl"),
    COUNTER("counter"),
    COUNTER("nvml-counter"),
    {"nvml-h200", "preset=nvml-h200,log_noise=0.005,log_gain=1.016", 0, true},
    {"calibrated h200", "preset=nvml-h200,log_noise=0.005,log_gain=1.016", 0.001, true},
    PRESET("nvml-h200-instant"),
    PRESET("nvml-h200-average"),
    PRESET("nvml-fermi"),
    PRESET("nvml-kepler2"),
    PRESET("nvml-maxwell"),
    PRESET("nvml-volta"),
    PRESET("nvml-turing"),
    PRESET("nvml-ampere"),
    PRESET("nvml-ampere-average"),
    PRESET("nvml-a100"),
    PRESET("nvml-hopper"),
    PRESET("nvml-hopper-average"),
    PRESET("apple"),
    {"calibrated ampere", "preset=nvml-ampere,noise=0.005", 0.0022, true},
    {"rapl, 2 rails", "preset=rapl,rails=cpu0+cpu1", 0, true},
    {"rapl, 4 rails", "preset=rapl,rails=cpu0+cpu1+cpu2+cpu3", 0, true},
    {"rapl, 8 rails", "preset=rapl,rails=cpu0+cpu1+cpu2+cpu3+cpu4+cpu5+cpu6+cpu7", 0, true},
    {"rapl, 4 unequal rails", "preset=rapl,rails=cpu0+cpu1+cpu2+cpu3,share=0.55+0.25+0.15+0.05", 0,
     true},
    {"counter, 4 unequal rails",
     "preset=counter,rails=cpu0+cpu1+cpu2+cpu3,share=0.55+0.25+0.15+0.05", 0, true},
    {"ampere, 2 rails", "preset=nvml-ampere,noise=0.005,rails=gpu0+gpu1", 0, true},
    {"ampere, 4 unequal rails",
     "preset=nvml-ampere,noise=0.005,rails=gpu0+gpu1+gpu2+gpu3,share=0.55+0.25+0.15+0.05", 0, true},
    {"ampere, 8 rails",
     "preset=nvml-ampere,noise=0.005,rails=gpu0+gpu1+gpu2+gpu3+gpu4+gpu5+gpu6+gpu7", 0, true},
    {"delay 30 ms not declared", "preset=nvml-ampere,noise=0.005,delay_ms=30,declare_delay_ms=0", 0,
     false},
    {"1 s average, delay off by 0.5 s",
     "preset=nvml-ampere-average,noise=0.005,delay_ms=510,declare_delay_ms=10", 0, false},
    {"window 25 of 100 not declared", "preset=nvml-a100,noise=0.005,declare_window_ms=0", 0, false},
    {"window of 1 s not declared", "preset=nvml-ampere-average,noise=0.005,declare_window_ms=0", 0,
     false},
    {"gain 1.1 not declared", "preset=nvml-ampere,noise=0.005,gain=1.1,declare_gain=unknown", 0,
     false},
    {"counter sees 25 of 100", "preset=nvml-counter,window_ms=25,sees=window", 0, true},
    {"25 of 100 not declared", "preset=nvml-counter,window_ms=25,sees=window,declare_window_ms=0",
     0, false},
    {"counter, window not declared", "preset=nvml-counter,declare_window_ms=0", 0, false},
    {"counter, delay 30 ms", "preset=nvml-counter,delay_ms=30,declare_delay_ms=0", 0, false},
    {"counter, 300 ms late", "preset=nvml-counter,delay_ms=300,declare_delay_ms=0", 0, false},
    {"rapl, 3 ms late", "preset=rapl,delay_ms=3,declare_delay_ms=0", 0, false},
    {"sees 60 ms, declares 100",
     "preset=nvml-ampere,noise=0.005,window_ms=60,declare_window_ms=100", 0, false},
    {"window of 300 ms declared 100",
     "preset=nvml-ampere,noise=0.005,window_ms=300,declare_window_ms=100", 0, false},
    {"lag of 200 ms not declared", "preset=nvml-ampere,noise=0.005,lag_ms=200,declare_lag_ms=0", 0,
     false},
    {"offset of -3 W", "preset=nvml-ampere,noise=0.005,offset_mw=-3000,declare_gain=unknown", 0,
     false},
    {"counter, heat +20 %", "preset=nvml-counter,drift=0.2", 0, false},
    {"nvml-h200, +-20 % in a class",
     "preset=nvml-h200,log_noise=0.005,log_gain=1.016,class_jitter=0.2", 0, false},
    {"ampere, heat +20 %", "preset=nvml-ampere,noise=0.005,drift=0.2", 0, false},
    {"rapl, +-20 % in a class", "preset=rapl,class_jitter=0.2", 0, false},
    {"ampere, +-20 % in a class", "preset=nvml-ampere,noise=0.005,class_jitter=0.2", 0, false},
    {"a100, +-20 % in a class", "preset=nvml-a100,noise=0.005,class_jitter=0.2", 0, false},
    {"average, noise 2 %", "preset=nvml-ampere-average,noise=0.02", 0, false},
    {"average, +-20 % in a class", "preset=nvml-ampere-average,noise=0.005,class_jitter=0.2", 0,
     false},
    {"calibrated, heat +20 %", "preset=nvml-ampere,noise=0.005,drift=0.2", 0.0022, false},
    {"calibrated, +-20 % in a class", "preset=nvml-ampere,noise=0.005,class_jitter=0.2", 0.0022,
     false},
    {"calibrated, delay 30 ms", "preset=nvml-ampere,noise=0.005,delay_ms=30,declare_delay_ms=0",
     0.0022, false},
};

static const double lengths_s[] = {0.005, 0.05, 0.5, 5};

enum { LENGTHS = 4, KINDS = 5, MOST_WIDTHS = 1 << 18 };
static const char *const kind_names[KINDS] = {"run", "phase", "token", "class", "row"};

typedef struct score {
    uint64_t scored, covered, unavailable, widths;
    float *width; /* relative half widths */
} score;

typedef struct table {
    const pj_model_error_options *options;
    score scores[2][KINDS]; /* as declared; knows everything */
} table;

/* ---- judging ---- */

static void model_error_judge(score *s, double found_mj, double sd_mj, double truth_mj)
{
    if (!(truth_mj > 0)) return;
    if (isnan(found_mj)) {
        s->unavailable++;
        return;
    }
    s->scored++;
    s->covered += fabs(found_mj - truth_mj) <= 1.96 * sd_mj;
    if (s->widths < MOST_WIDTHS) s->width[s->widths++] = (float)(1.96 * sd_mj / truth_mj);
}

static void score_energy(score *s, const pj_energy *e, double truth_mj)
{
    model_error_judge(s, pj_mj_of_nj(e->gross_nj), (double)e->sd_mj, truth_mj);
}

static void score_classes(score *s, const pj_run_data *d, double *truth_mj)
{
    double whole = 0;
    for (uint32_t c = 0; c < d->class_count; c++) truth_mj[c] = 0;
    for (uint32_t i = 0; i < d->component_count; i++) {
        const pj_component_row *row = &d->components[i];
        if (row->class_ != PJ_NO_PARENT)
            truth_mj[row->class_] += pj_mj_of_nj(row->energy.planted_nj);
    }
    for (uint32_t c = 0; c < d->class_count; c++) whole += truth_mj[c];
    for (uint32_t c = 0; c < d->class_count; c++)
        if (truth_mj[c] > 0.01 * whole)
            model_error_judge(s, d->classes[c].energy_mj, d->classes[c].energy_sd_mj, truth_mj[c]);
}

static bool score_run(score *scores, const pj_run_data *d)
{
    double run_mj = 0, *class_mj = pj_alloc(d->class_count + 1, sizeof *class_mj);
    if (!class_mj) return false;
    for (uint32_t i = 0; i < d->phase_count; i++)
        run_mj += pj_mj_of_nj(d->phases[i].energy.planted_nj);
    model_error_judge(&scores[0], d->info.total_mj, d->info.total_sd_mj, run_mj);
    for (uint32_t i = 0; i < d->phase_count; i++)
        if (d->phases[i].phase == PJ_PHASE_PREFILL || d->phases[i].phase == PJ_PHASE_DECODE)
            score_energy(&scores[1], &d->phases[i].energy,
                         pj_mj_of_nj(d->phases[i].energy.planted_nj));
    for (uint32_t i = 0; i < d->token_count; i++)
        score_energy(&scores[2], &d->tokens[i].energy, pj_mj_of_nj(d->tokens[i].energy.planted_nj));
    score_classes(&scores[3], d, class_mj);
    for (uint32_t i = 0; i < d->component_count; i++)
        score_energy(&scores[4], &d->components[i].energy,
                     pj_mj_of_nj(d->components[i].energy.planted_nj));
    pj_free(class_mj);
    return true;
}

/* ---- runs ---- */

static pj_status model_error_simulate(table *t, pj_tree *tree, const table_row *row, uint64_t seed,
                                      bool everything, pj_error *err)
{
    char text[256];
    pj_sim_spec spec;
    pj_run_data d = {0};
    pj_readings none = {0};
    pj_energies *joules = NULL;
    snprintf(text, sizeof text, "%s,seed=%llu", row->sim, (unsigned long long)seed);
    pj_status status = pj_sim_parse(text, &spec, err);
    if (status != PJ_OK) return status;
    pj_bench_prior prior = {&spec, row->calibration, seed};
    pj_build_options options = {.sim = &spec,
                                .prior = row->calibration > 0 ? pj_bench_prior_of : NULL,
                                .context = &prior,
                                .trusted = everything};
    status = pj_build_facts(tree, &d, err);
    if (status == PJ_OK) {
        d.rail_count = pj_sim_rails(&spec, d.rails, PJ_MAX_RAILS);
        for (uint32_t r = 0; r < d.rail_count; r++) {
            d.baseline_mw[r] = spec.idle_mw * spec.rails[r].share *
                               (isnan(spec.declared_gain) ? 1 : spec.gain / spec.declared_gain);
            d.baseline_sd_mw[r] = 0.001 * d.baseline_mw[r];
        }
        status = pj_build_rows(tree, &d, err);
    }
    if (status == PJ_OK) status = pj_energy_new(tree, &none, &options, &d, &joules, err);
    if (status == PJ_OK) status = pj_energy_fill(joules, err);
    pj_energy_free(joules);
    if (status == PJ_OK && !score_run(t->scores[everything], &d))
        status = pj_fail_memory(err, "the scores of a bench");
    pj_run_data_fini(&d);
    return status;
}

/* ---- printing ---- */

static int model_error_by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double median_width(score *s)
{
    if (!s->widths) return NAN;
    qsort(s->width, s->widths, sizeof *s->width, model_error_by_size);
    return (double)s->width[s->widths / 2];
}

static void model_error_print_json(pj_json *json, const table_row *row, double seconds, table *t)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "name", row->name);
    pj_json_kv_string(json, "sim", row->sim);
    pj_json_kv_double(json, "seconds", seconds);
    pj_json_kv_bool(json, "as_declared", row->declared);
    for (int k = 0; k < KINDS; k++) {
        score *s = &t->scores[0][k], *best = &t->scores[1][k];
        double all = (double)(s->scored + s->unavailable);
        pj_json_key(json, kind_names[k]);
        pj_json_object_begin(json);
        pj_json_kv_double(json, "coverage",
                          s->scored ? (double)s->covered / (double)s->scored : NAN);
        pj_json_kv_double(json, "half_width", median_width(s));
        pj_json_kv_double(json, "unavailable", all > 0 ? (double)s->unavailable / all : NAN);
        if (row->declared)
            pj_json_kv_double(json, "half_width_told_everything", median_width(best));
        pj_json_object_end(json);
    }
    pj_json_object_end(json);
}

static void model_error_print_row(const table_row *row, double seconds, table *t)
{
    printf("%-32s %5g s", row->name, seconds);
    for (int k = 0; k < KINDS; k++) {
        score *s = &t->scores[0][k], *best = &t->scores[1][k];
        if (!s->scored) {
            printf("  %5s %8s %5s", "-", "-", s->unavailable ? "-" : "");
            continue;
        }
        double width = median_width(s), ratio = width / median_width(best);
        char beside[16] = "";
        if (row->declared) snprintf(beside, sizeof beside, "x%.1f", ratio);
        printf("  %5.1f %7.2g%% %5s", 100 * (double)s->covered / (double)s->scored, 100 * width,
               beside);
    }
    const score *run = &t->scores[0][0];
    uint64_t all = run->scored + run->unavailable;
    if (run->unavailable) printf("  %.0f%% n/a", 100 * (double)run->unavailable / (double)all);
    printf("\n");
    fflush(stdout);
}

static pj_status model_error_run_row(table *t, pj_tree *tree, const table_row *row, double seconds,
                                     pj_error *err)
{
    pj_status status = PJ_OK;
    for (int e = 0; e < 2; e++)
        for (int k = 0; k < KINDS; k++)
            t->scores[e][k].scored = t->scores[e][k].covered = t->scores[e][k].unavailable =
                t->scores[e][k].widths = 0;
    for (int64_t i = 0; i < t->options->runs && status == PJ_OK; i++) {
        uint64_t seed = (uint64_t)(t->options->seed + i);
        status = model_error_simulate(t, tree, row, seed, false, err);
        if (status == PJ_OK && row->declared)
            status = model_error_simulate(t, tree, row, seed, true, err);
    }
    if (status != PJ_OK) return status;
    if (t->options->json)
        model_error_print_json(t->options->json, row, seconds, t);
    else
        model_error_print_row(row, seconds, t);
    return PJ_OK;
}

static pj_status run_length(table *t, pj_spool_reader *reader, double seconds, pj_error *err)
{
    pj_run_data facts = {0};
    pj_tree tree = {0};
    pj_status status = pj_tree_init(&tree, reader, &facts.arena, err);
    if (status == PJ_OK) status = pj_build_facts(&tree, &facts, err);
    if (status == PJ_OK) {
        pj_tree_stretch(&tree, seconds * 1e9 / (double)(tree.end_ns - tree.begin_ns));
        status = pj_tree_cut(&tree, err);
    }
    for (size_t r = 0; r < sizeof rows / sizeof *rows && status == PJ_OK; r++)
        if (!t->options->only || strstr(rows[r].name, t->options->only))
            status = model_error_run_row(t, &tree, &rows[r], seconds, err);
    pj_tree_fini(&tree);
    pj_run_data_fini(&facts);
    return status;
}

pj_status pj_bench_model_error(pj_spool_reader *reader, const pj_model_error_options *options,
                               pj_error *err)
{
    table t = {.options = options};
    pj_status status = PJ_OK;
    for (int e = 0; e < 2; e++)
        for (int k = 0; k < KINDS; k++)
            if (!(t.scores[e][k].width = pj_alloc(MOST_WIDTHS, sizeof(float))))
                status = pj_fail_memory(err, "the widths of intervals");
    if (status == PJ_OK && !options->json)
        printf("%-32s %7s  %-20s  %-20s  %-20s  %-20s  %-20s\n", "covered %, median +-95 %, ratio",
               "length", "run", "phase", "token", "class", "row");
    if (status == PJ_OK && options->seconds > 0)
        status = run_length(&t, reader, options->seconds, err);
    for (int l = 0; l < LENGTHS && status == PJ_OK && !(options->seconds > 0); l++)
        status = run_length(&t, reader, lengths_s[l], err);
    for (int e = 0; e < 2; e++)
        for (int k = 0; k < KINDS; k++) pj_free(t.scores[e][k].width);
    return status;
}
