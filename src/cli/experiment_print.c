/* Prints one line per cell, then the optimum and whether a repetition confirmed it. */
#include "cli/experiment_print.h"

#include "base/buffer.h"
#include "cli/terminal.h"
#include "insight/sides.h"
#include "trace/summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TIES_SHOWN = 8, LINE_BYTES = 8 << 10 };

/* Of the first column: the longest name of a cell, since names may differ in their ends alone. */
static int name_width(const pj_experiment_result *r)
{
    size_t width = 12;
    for (uint32_t i = 0; i < r->count; i++) {
        size_t length = strlen(r->cells[i].name);
        if (length > width) width = length;
    }
    return (int)width;
}

static bool is_typical(const pj_experiment_result *r)
{
    return r->primary == pj_primary_figure(true);
}

static const char *per_text(const pj_experiment_result *r)
{
    return is_typical(r) ? "typical token" : "token";
}

/* Four digits, and no exponent however large. */
static pj_text digits_text(double value)
{
    pj_text text = {"-"};
    if (!isnan(value)) pj_digits_write(value, 4, text.s, sizeof text.s);
    return text;
}

static pj_text joules_text_of(const pj_mean *m)
{
    return pj_bounds_text(m->value * 1e3, (pj_bounds){m->lo * 1e3, m->hi * 1e3});
}

static void print_cell(const pj_experiment_result *r, uint32_t index, int width)
{
    const pj_cell_figures *f = &r->cells[index];
    pj_text joules = joules_text_of(&f->primary);
    pj_print(stdout, "%-*s %3u  %s %8s  %8s  %s", width, f->name, f->n, pj_padded(22, joules).s,
             digits_text(f->speed).s, digits_text(f->ttft_ms).s,
             pj_padded(8, pj_or_dash(f->primary.value, pj_power_text(f->power_mw))).s);
    if (!isnan(f->loss)) pj_print(stdout, "  %.4f", f->loss);
    putchar('\n');
}

static void print_against(const pj_experiment_result *r, const pj_cell_ratio *all, uint32_t count,
                          const char *title, int width)
{
    if (count) pj_print(stdout, "\n%s\n", title);
    for (uint32_t i = 0; i < count; i++) {
        const pj_cell_ratio *c = &all[i];
        char ratio[96];
        pj_estimate_write(c->ratio.ratio, (pj_bounds){c->ratio.lo, c->ratio.hi}, ratio,
                          sizeof ratio);
        pj_print(stdout, "%-*s %18s  ", width, r->cells[c->cell].name,
                 isnan(c->ratio.ratio) ? "-" : ratio);
        if (isnan(c->ratio.lo) || isnan(c->ratio.hi))
            puts(isnan(c->ratio.ratio) ? "(energy is unavailable)"
                                       : "(too few runs for an interval)");
        else
            puts(c->different ? "different" : "");
    }
}

/* "1.2 mJ (1.1 mJ to 1.3 mJ)" */
static pj_text estimate_text(const pj_estimate *e)
{
    pj_text text = pj_energy_text(e->value * 1e3);
    size_t used = strlen(text.s);
    if (!isnan(e->value))
        snprintf(text.s + used, sizeof text.s - used, " (%s to %s)", pj_energy_text(e->lo * 1e3).s,
                 pj_energy_text(e->hi * 1e3).s);
    return text;
}

static void print_ablations(const pj_experiment_result *r, int width)
{
    if (r->ablation_count)
        pj_print(stdout,
                 "\n%swhat the missing part takes per token\n"
                 "%-*s by the difference of runs           by attribution%s\n",
                 pj_style_on(stdout, PJ_STYLE_BOLD), width, "cell", pj_style_off(stdout));
    for (uint32_t i = 0; i < r->ablation_count; i++) {
        const pj_ablated_part *a = &r->ablations[i];
        pj_print(stdout, "%-*s %s %s\n%-*s %s\n", width, r->cells[a->cell].name,
                 pj_padded(-35, estimate_text(&a->cost.difference)).s,
                 estimate_text(&a->cost.attributed).s, width, "", a->text);
    }
}

/* What each cell read of its model and keeps in memory; experts only where the model has them. */
static void print_use(const pj_experiment_result *r, int width)
{
    bool any = false;
    for (uint32_t i = 0; i < r->count; i++) any |= r->cells[i].context.limit > 0;
    if (!any) return;
    pj_print(stdout, "\n%s%-*s  read MB    KV MB   context  mJ / M active  experts per step%s\n",
             pj_style_on(stdout, PJ_STYLE_BOLD), width, "cell", pj_style_off(stdout));
    for (uint32_t i = 0; i < r->count; i++) {
        const pj_cell_figures *f = &r->cells[i];
        bool has_context = f->context.limit > 0, has_experts = f->experts.experts > 0;
        pj_print(stdout, "%-*s %8s %8s %9s  %13s  %16s\n", width, f->name,
                 digits_text(f->weight_bytes / 1e6).s,
                 digits_text(has_context ? f->context.kv_bytes / 1e6 : NAN).s,
                 pj_number_text("%.3g %%", has_context ? 100 * f->context.share : NAN).s,
                 digits_text(f->mj_per_million_active).s,
                 pj_number_text("%.4g", has_experts ? f->experts.per_step : NAN).s);
    }
}

/* "75 % (53 to 89 %)" of the tasks, where the plan has some. */
static void print_answers(const pj_experiment_result *r, int width)
{
    if (!r->answers.tasks) return;
    pj_print(stdout, "\n%s%-*s solved       score, 95 %%%s\n", pj_style_on(stdout, PJ_STYLE_BOLD),
             width, "answers to tasks", pj_style_off(stdout));
    for (uint32_t i = 0; i < r->count; i++) {
        const pj_cell_figures *f = &r->cells[i];
        if (!f->score.tasks) continue;
        pj_print(stdout, "%-*s %3u of %-4u  %3.0f %% (%.0f to %.0f %%)\n", width, f->name,
                 f->score.right, f->score.tasks, 100 * f->score.share, 100 * f->score.lo,
                 100 * f->score.hi);
    }
}

static const char *front_name(const char *over)
{
    return strcmp(over, "loss") == 0 ? "loss" : strcmp(over, "score") == 0 ? "answers" : "speed";
}

static void print_front(const pj_experiment_result *r, const pj_cell_front *front)
{
    pj_buffer line;
    pj_buffer_init(&line, LINE_BYTES);
    pj_buffer_printf(&line, "\nEnergy against %s, on the Pareto front:", front_name(front->over));
    for (uint32_t i = 0; i < front->count; i++)
        pj_buffer_printf(&line, "%s %s", i ? ";" : "", r->cells[front->cells[i]].name);
    if (front->knee != PJ_NO_CELL)
        pj_buffer_printf(&line, ". Its knee: %s", r->cells[front->knee].name);
    pj_print(stdout, "%s.\n", pj_buffer_get(&line));
    pj_buffer_fini(&line);
}

static void print_optimum(const pj_experiment_result *r)
{
    if (r->refusal)
        pj_print(stdout, "\nNo verdict, since cells are not comparable: %s\n", r->refusal);
    if (r->optimum == PJ_NO_CELL) return;
    pj_print(stdout, "\n%sLeast energy per %s: %s.%s\n", pj_style_on(stdout, PJ_STYLE_BOLD),
             per_text(r), r->cells[r->optimum].name, pj_style_off(stdout));
    if (!r->tie_count) return;
    pj_buffer line;
    pj_buffer_init(&line, LINE_BYTES);
    for (uint32_t i = 0; i < r->tie_count && i < TIES_SHOWN; i++)
        pj_buffer_printf(&line, "%s %s", i ? ";" : "", r->cells[r->ties[i]].name);
    if (r->tie_count > TIES_SHOWN)
        pj_buffer_printf(&line, "; and %u more", r->tie_count - TIES_SHOWN);
    pj_print(stdout, "Not distinguishable from it:%s. More blocks may separate them.\n",
             pj_buffer_get(&line));
    pj_buffer_fini(&line);
}

/* That of the first run whose energy is known. */
static const char *quality_of(const pj_cell_runs *runs)
{
    for (uint32_t i = 0; i < runs->count; i++)
        if (runs->runs[i]->quality != PJ_UNAVAILABLE)
            return pj_quality_name(runs->runs[i]->quality);
    return runs->count ? pj_quality_name(PJ_UNAVAILABLE) : "unknown";
}

void pj_experiment_print(const pj_experiment_result *r)
{
    char title[240];
    int width = name_width(r);
    char partial[256];
    bool is_partial = pj_cell_partial(&r->runs.cells[0], partial, sizeof partial);
    pj_print(stdout, "%s%s%s: %s, %u of %u runs, energy %s%s%s\n\n",
             pj_style_on(stdout, PJ_STYLE_BOLD), r->plan.name, pj_style_off(stdout), r->state,
             r->done, r->total, quality_of(&r->runs.cells[0]), is_partial ? ", partial: " : "",
             is_partial ? partial : "");
    pj_print(stdout, "%s%-*sruns %22s tokens/s   TTFT ms     power  loss%s\n",
             pj_style_on(stdout, PJ_STYLE_BOLD), width, "cell",
             is_typical(r) ? "typical token, 95 %" : "energy per token, 95 %",
             pj_style_off(stdout));
    for (uint32_t i = 0; i < r->count; i++) print_cell(r, i, width);
    if (r->cells[0].n) pj_gain_note_print(stdout, "", pj_run_gain_sd(r->runs.cells[0].runs[0]));
    print_use(r, width);
    snprintf(title, sizeof title, "energy per %s relative to %s", per_text(r), r->cells[0].name);
    print_against(r, r->against_first, r->first_count, title, width);
    print_against(r, r->against_former, r->former_count, "against the previous round", width);
    print_ablations(r, width);
    print_answers(r, width);
    for (uint32_t i = 0; i < r->knee_count; i++) pj_print(stdout, "\n%s\n", r->knees[i].text);
    for (uint32_t i = 0; i < r->front_count && r->count > 1; i++) print_front(r, &r->fronts[i]);
    if (r->answers.text[0] && r->count > 1) pj_print(stdout, "\n%s\n", r->answers.text);
    print_optimum(r);
}
