/* Prints the settings that differ, then figures and tests, and last the conclusion, which stays
 * visible above the prompt. */
#include "cli/compare_print.h"

#include "base/buffer.h"
#include "cli/terminal.h"
#include "cli/wrap.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    COLUMNS_MAX = 6,
    TERMS_SHOWN = 10,
    SETTING = 20,
    LINE_BYTES = 8 << 10
}; /* sides that a table shows */

static void print_title(const char *title)
{
    pj_print(stdout, "\n%s%s%s\n", pj_style_on(stdout, PJ_STYLE_BOLD), title, pj_style_off(stdout));
}

/* ---- heads and settings ---- */

static void print_head(const pj_side *side, const pj_run_info *run)
{
    bool one = run && side->run_count == 1 && !side->left_out;
    pj_buffer line;
    pj_buffer_init(&line, LINE_BYTES);
    pj_buffer_printf(&line, "%s", pj_safe(side->name).s);
    if (run) {
        const char *const names[] = {run->model_name, run->dtype}; /* of other engines: unknown */
        pj_buffer_printf(&line, "  %.18s  ", run->id);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (names[i] && *names[i]) pj_buffer_printf(&line, "%s, ", pj_safe(names[i]).s);
        pj_buffer_printf(&line, "%s, ", pj_run_status_name(run->status));
    }
    if (!one)
        pj_buffer_printf(&line, "%s%u run%s", run ? "" : "  ", side->run_count,
                         side->run_count == 1 ? "" : "s");
    if (side->left_out) pj_buffer_printf(&line, " (%u left out)", side->left_out);
    char partial[128];
    pj_buffer_printf(&line, "%senergy %s", one ? "" : ", ", pj_side_source(side));
    if (pj_side_partial(side, partial, sizeof partial))
        pj_buffer_printf(&line, ", partial: %s", partial);
    pj_print(stdout, "%s\n", pj_buffer_get(&line));
    pj_buffer_fini(&line);
}

/* Whole lines, so that what does not fit one is broken between words. */
static void print_differences(const pj_sides *s)
{
    int width = pj_terminal_width(stdout);
    pj_buffer line;
    pj_buffer_init(&line, 1 << 16);
    if (s->difference_count) print_title("settings that differ");
    for (uint32_t d = 0; d < s->difference_count; d++) {
        int column = SETTING;
        pj_buffer_printf(&line, "%-*s", SETTING, pj_safe(s->differences[d].setting).s);
        for (uint32_t i = 0; i < s->count; i++) {
            const char *value = s->differences[d].values[i];
            char text[600];
            snprintf(text, sizeof text, "  %s: %.40s", pj_safe(s->sides[i].name).s,
                     value ? pj_safe(value).s : "unknown");
            int columns = pj_columns_of(text, (int)strlen(text));
            if (column > SETTING && column + columns > width) {
                pj_print(stdout, "%s\n", pj_buffer_get(&line));
                line.length = 0;
                pj_buffer_printf(&line, "%*s", SETTING, "");
                column = SETTING;
            }
            pj_buffer_text(&line, text);
            column += columns;
        }
        pj_print(stdout, "%s\n", pj_buffer_get(&line));
        line.length = 0;
    }
    pj_buffer_fini(&line);
}

static void print_caveats(const pj_sides *s)
{
    for (uint32_t i = 0; i < s->caveat_count; i++)
        pj_print(stdout, "%s%scaveat%s  %s\n", i ? "" : "\n", pj_style_on(stdout, PJ_STYLE_YELLOW),
                 pj_style_off(stdout), pj_safe(s->caveats[i].text).s);
}

/* ---- the table ---- */

static void print_change(double percent, bool lower)
{
    bool good = lower ? percent < 0 : percent > 0;
    pj_style style = fabs(percent) < 0.5 || isnan(percent) ? PJ_STYLE_PLAIN
                     : good                                ? PJ_STYLE_GREEN
                                                           : PJ_STYLE_RED;
    pj_print(stdout, "  %s", pj_style_on(stdout, style));
    pj_text change = percent < 1000 ? pj_number_text("%+7.1f %%", percent)
                                    : pj_number_text("× %.3g", 1 + percent / 100);
    pj_print(stdout, "%s", pj_padded(9, change).s);
    pj_print(stdout, "%s", pj_style_off(stdout));
}

/* How a row is laid out: on one line, with the changes below the values, or with the name above. */
typedef enum layout { ONE_LINE, CHANGES_BELOW, NAME_ABOVE } layout;

enum { VALUE = 12, CHANGE = 11, UNIT = 5, INDENT = 2 };

static layout layout_for(uint32_t sides, int width)
{
    int reading = pj_wrapping_width(stdout), room = reading ? reading : INT_MAX;
    int values = width + UNIT + (int)sides * VALUE;
    if (values + (int)(sides - 1) * CHANGE <= room) return ONE_LINE;
    return values <= room ? CHANGES_BELOW : NAME_ABOVE;
}

/* The end of what stands before the values. */
static void end_name(layout l)
{
    if (l == NAME_ABOVE) pj_print(stdout, "\n%*s", INDENT, "");
}

/* The end of the values: changes below them begin under the second. */
static void begin_changes(layout l, int width)
{
    if (l != ONE_LINE)
        pj_print(stdout, "\n%*s", (l == NAME_ABOVE ? INDENT : width + UNIT) + VALUE, "");
}

static void print_metric(const pj_sides *s, uint32_t figure, uint32_t sides, int width)
{
    const pj_figure *f = &pj_figures[figure];
    layout l = layout_for(sides, width);
    double values[COLUMNS_MAX];
    pj_print(stdout, "%-*s %-4s", width, f->name, f->unit);
    end_name(l);
    for (uint32_t i = 0; i < sides; i++) {
        pj_text text;
        pj_mean mean = pj_side_mean_of(&s->sides[i], figure);
        values[i] = mean.value;
        pj_value_write(mean.value, (pj_bounds){mean.lo, mean.hi}, text.s, sizeof text.s);
        pj_print(stdout, " %11s", pj_or_dash(mean.value, text).s);
    }
    begin_changes(l, width);
    for (uint32_t i = 1; i < sides; i++) {
        if (l != ONE_LINE) putchar(' ');
        print_change(values[0] != 0 ? (values[i] / values[0] - 1) * 100 : NAN,
                     strcmp(f->better, "lower") == 0);
    }
    putchar('\n');
}

/* Programs have no tokens, machines without a sensor no energy: rows of nothing but dashes. */
static bool is_known(const pj_sides *s, uint32_t figure, uint32_t sides)
{
    for (uint32_t i = 0; i < sides; i++)
        if (!isnan(pj_side_mean_of(&s->sides[i], figure).value)) return true;
    return false;
}

static void print_metrics(const pj_sides *s)
{
    uint32_t sides = s->count < COLUMNS_MAX ? s->count : COLUMNS_MAX;
    int width = 0;
    for (uint32_t f = 0; f < pj_figure_count; f++) {
        int length = (int)strlen(pj_figures[f].name);
        if (length > width) width = length;
    }
    pj_print(stdout, "\n%s%-*s %-4s", pj_style_on(stdout, PJ_STYLE_BOLD), width, "metric (mean)",
             "unit");
    layout l = layout_for(sides, width);
    end_name(l);
    for (uint32_t i = 0; i < sides; i++) pj_print(stdout, " %11.11s", pj_safe(s->sides[i].name).s);
    begin_changes(l, width);
    for (uint32_t i = 1; i < sides; i++) {
        pj_text change; /* against the first side */
        snprintf(change.s, sizeof change.s, "Δ %.7s", pj_safe(s->sides[i].name).s);
        pj_print(stdout, "%s  %s", l == ONE_LINE ? "" : " ", pj_padded(9, change).s);
    }
    pj_print(stdout, "%s\n", pj_style_off(stdout));
    for (uint32_t f = 0; f < pj_figure_count; f++)
        if (is_known(s, f, sides)) print_metric(s, f, sides, width);
    double gain = 0;
    bool several = false;
    for (uint32_t i = 0; i < sides; i++) several |= s->sides[i].run_count > 1;
    for (uint32_t i = 0; i < sides; i++)
        for (uint32_t k = 0; k < s->sides[i].run_count; k++)
            gain = fmax(gain, pj_run_gain_sd(s->sides[i].runs[k]));
    pj_gain_note_print(stdout, "", gain);
    if (several) pj_print(stdout, "means are geometric, those of net energies arithmetic\n");
    if (s->count > COLUMNS_MAX)
        pj_print(stdout, "the first %d groups; --json prints all\n", COLUMNS_MAX);
}

/* ---- tests ---- */

/* "p 0.003 (Welch)  different": corrected, and the test that decides. */
static void write_decision(const pj_side_test *t, char *text, size_t bytes)
{
    const char *test = strcmp(t->pair.ratio.method, "permutation") == 0 ? "permutation" : "Welch";
    if (isnan(t->pair.p))
        snprintf(text, bytes, "not judged");
    else
        snprintf(text, bytes, "p %.2g (%s)%s", t->pair.p, test,
                 t->pair.different ? "  different" : "");
}

static void print_test(const pj_sides *s, const pj_side_test *t)
{
    char decision[64], ratio[96];
    const pj_ratio *r = &t->pair.ratio;
    write_decision(t, decision, sizeof decision);
    pj_estimate_write(r->ratio, (pj_bounds){r->lo, r->hi}, ratio, sizeof ratio);
    pj_print(stdout, "%-24s %s, %s  %zu+%zu %ss  %s  g %.2f  %s\n", t->metric,
             pj_safe(s->sides[t->a].name).s, pj_safe(s->sides[t->b].name).s, r->n_a, r->n_b,
             t->sample, ratio, t->result.hedges_g, decision);
}

/* The verdict rests on the primary metric alone, which comes first. */
static void print_tests(const pj_sides *s)
{
    bool any = false;
    if (s->test_count)
        print_title(
            "tests: ratio of geometric means, 95 % interval; Hedges' g; p by Holm over pairs");
    for (uint32_t i = 0; i < s->test_count; i++) {
        const pj_side_test *t = &s->tests[i];
        if (!t->primary && !any) puts("secondary metrics, each corrected for itself");
        any |= !t->primary;
        print_test(s, t);
    }
}

/* ---- where the difference comes from ---- */

static void print_term(const pj_term *t)
{
    char name[64];
    snprintf(name, sizeof name, "%s %s", t->phase, pj_safe(t->name).s);
    pj_print(stdout, "  %-28s %s  %s time %s power\n", name,
             pj_padded(11, pj_energy_text(t->difference)).s,
             pj_padded(11, pj_energy_text(t->by_time)).s,
             pj_padded(11, pj_energy_text(t->by_power)).s);
}

static void print_terms(const pj_sides *s, const pj_side_terms *d)
{
    pj_print(stdout,
             "\n%sfrom %s to %s: %s per token on average%s, by time and by power of the parts\n",
             pj_style_on(stdout, PJ_STYLE_BOLD), s->sides[0].name, s->sides[d->side].name,
             pj_energy_text(d->mj_b - d->mj_a).s, pj_style_off(stdout));
    for (uint32_t k = 0; k < d->count && k < TERMS_SHOWN; k++) print_term(&d->terms[k]);
    if (d->count > TERMS_SHOWN)
        pj_print(stdout, "  and %u smaller ones (see --json)\n", d->count - TERMS_SHOWN);
}

/* ---- sentences ---- */

static void add_standing(pj_buffer *line, const pj_sides *s, const pj_side_best *best, int standing,
                         const char *introduction)
{
    bool any = false;
    for (uint32_t i = 0; i < s->count; i++) {
        if ((int)best->standing[i] != standing) continue;
        pj_buffer_printf(line, "%s%s", any ? ", " : introduction, pj_safe(s->sides[i].name).s);
        any = true;
    }
}

static void print_bests(const pj_sides *s)
{
    if (s->count < 2) return;
    putchar('\n');
    for (uint32_t i = 0; i < s->best_count; i++) {
        const pj_side_best *b = &s->bests[i];
        pj_buffer line;
        pj_buffer_init(&line, 1 << 16);
        pj_buffer_printf(&line, "%-15s %s", b->title, pj_safe(s->sides[b->side].name).s);
        add_standing(&line, s, b, PJ_STANDING_TIED, ", not distinguishable from ");
        add_standing(&line, s, b, PJ_STANDING_UNTESTED, ", not tested against ");
        pj_print(stdout, "%s\n", pj_buffer_get(&line));
        pj_buffer_fini(&line);
    }
}

void pj_compare_print(const pj_compared *c)
{
    const pj_sides *s = &c->sides;
    for (uint32_t i = 0; i < s->count; i++)
        print_head(&s->sides[i], c->run_count ? c->runs[i].info : NULL);
    print_differences(s);
    print_caveats(s);
    print_metrics(s);
    print_tests(s);
    for (uint32_t i = 0; i < s->term_count; i++) print_terms(s, &s->terms[i]);
    print_bests(s);
    for (uint32_t i = 0; i < s->conclusion_count; i++)
        if (*s->conclusions[i].text) print_title(s->conclusions[i].text);
}
