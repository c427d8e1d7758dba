/* Settings that differ first, then what explains the difference, largest first. */
#include "cli/why_print.h"

#include "cli/terminal.h"
#include "trace/summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARTS_SHOWN = 6 };

/* What one side alone knows, as of two engines, is no difference. */
static void print_known_alone(const pj_sides *s, uint32_t side)
{
    bool any = false;
    for (uint32_t d = 0; d < s->difference_count; d++) {
        const pj_side_difference *of = &s->differences[d];
        if (of->values[1 - side]) continue;
        pj_print(stdout, "%s%s",
                 any    ? ", "
                 : side ? "   known of B alone   "
                        : "   known of A alone   ",
                 pj_safe(of->setting).s);
        any = true;
    }
    if (any) putchar('\n');
}

static void print_sides(const pj_sides *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const pj_side *side = &s->sides[i];
        const char *dtype = side->runs[0]->dtype; /* of other engines: unknown */
        pj_print(stdout, "%s  %s%s%s, %u run%s", i ? "B" : "A",
                 pj_safe(side->runs[0]->model_name).s, dtype && *dtype ? ", " : "",
                 pj_safe(dtype).s, side->run_count, side->run_count == 1 ? "" : "s");
        if (strlen(side->name) > 1) pj_print(stdout, ": %s", pj_safe(side->name).s);
        putchar('\n');
    }
    for (uint32_t d = 0; d < s->difference_count; d++) {
        const pj_side_difference *of = &s->differences[d];
        if (!of->values[0] || !of->values[1]) continue;
        pj_print(stdout, "   %-18s %s", pj_safe(of->setting).s, pj_safe(of->values[0]).s);
        pj_print(stdout, " -> %s\n", pj_safe(of->values[1]).s);
    }
    print_known_alone(s, 0);
    print_known_alone(s, 1);
    for (uint32_t i = 0; i < s->caveat_count; i++)
        pj_print(stdout, "   %scaveat%s %s\n", pj_style_on(stdout, PJ_STYLE_YELLOW),
                 pj_style_off(stdout), pj_safe(s->caveats[i].text).s);
}

/* "+ 4.1 mJ (3.2 to 5.0)  12 %". */
static void print_energy(double mj, pj_bounds bounds, double of)
{
    pj_text interval = {""};
    if (isfinite(bounds.lo))
        snprintf(interval.s, sizeof interval.s, "(%s to %s)", pj_energy_text(bounds.lo).s,
                 pj_energy_text(bounds.hi).s);
    pj_style style = mj > 0 ? PJ_STYLE_RED : PJ_STYLE_GREEN;
    pj_print(stdout, "%s%s%s%s  %s %+6.1f %%", pj_style_on(stdout, style), mj > 0 ? "+" : "-",
             pj_padded(9, pj_energy_text(fabs(mj))).s, pj_style_off(stdout),
             pj_padded(-28, interval).s, 100 * mj / of);
}

static void print_finding(const pj_why *w, const pj_why_row *r)
{
    char text[256];
    pj_why_row_text(r, text, sizeof text);
    print_energy(r->explained_mj, r->explained, w->request_a_mj);
    pj_print(stdout, "  %s %s", pj_phase_name((pj_phase)r->phase), pj_safe(r->name).s);
    if (r->other) pj_print(stdout, " (in B: %s)", pj_safe(r->other).s);
    pj_print(stdout, "\n      %s\n", pj_safe(text).s);
}

static void print_common(const pj_why *w, const pj_why_common *c)
{
    char text[256];
    pj_why_common_text(c, text, sizeof text);
    print_energy(c->explained_mj, c->explained, w->request_a_mj);
    pj_print(stdout, "  all parts\n      %s\n", pj_safe(text).s);
}

/* The largest that are not certain, so that nobody looks for them in vain. */
static void print_others(const pj_why *w, uint32_t from)
{
    uint32_t shown = 0;
    for (uint32_t i = from; i < w->row_count && shown < PARTS_SHOWN; i++) {
        const pj_why_row *r = &w->rows[i];
        if (fabs(r->difference_mj) < 0.01 * w->request_a_mj) continue;
        if (!shown++) puts("not certain, or of no single cause:");
        print_energy(r->difference_mj, r->bounds, w->request_a_mj);
        pj_print(stdout, "  %s %s\n", pj_phase_name((pj_phase)r->phase), pj_safe(r->name).s);
    }
}

static void print_totals(const pj_why *w, bool is_explained)
{
    pj_print(stdout, "%sper output token: A %s, B %s, %+.1f %%%s",
             pj_style_on(stdout, PJ_STYLE_BOLD), pj_energy_text(w->request_a_mj).s,
             pj_energy_text(w->request_b_mj).s,
             100 * (w->request_b_mj - w->request_a_mj) / w->request_a_mj, pj_style_off(stdout));
    if (is_explained)
        pj_print(stdout, "; explained: %+.1f %%", 100 * w->explained_mj / w->request_a_mj);
    putchar('\n');
}

void pj_why_print(const pj_explained *e)
{
    const pj_why *w = &e->why;
    double difference = w->request_b_mj - w->request_a_mj; /* NAN: a side has no energy */
    bool any = !e->refusal && w->named_count + w->common_count;
    print_sides(e->sides);
    putchar('\n');
    if (isfinite(difference)) print_totals(w, any);
    if (e->refusal) pj_print(stdout, "nothing is named: %s\n", pj_safe(e->refusal).s);
    if (!e->refusal && !any)
        pj_print(stdout, "nothing is named: no part differs by 1 %% of A's energy and beyond its "
                         "interval\n");
    for (uint32_t i = 0; any && i < w->common_count; i++) print_common(w, &w->commons[i]);
    for (uint32_t i = 0; any && i < w->named_count; i++) print_finding(w, &w->rows[i]);
    if (fabs(w->disturbed_b_mj - w->disturbed_a_mj) > 0.01 * w->request_a_mj)
        pj_print(stdout, "disturbances took %s per token of A and %s of B: they are in no part\n",
                 pj_energy_text(w->disturbed_a_mj).s, pj_energy_text(w->disturbed_b_mj).s);
    char unplaced[256];
    if (!e->refusal && pj_why_unplaced_text(w, unplaced, sizeof unplaced))
        pj_print(stdout, "%s\n", unplaced);
    print_others(w, e->refusal ? 0 : w->named_count);
    for (uint32_t i = 0; i < e->sides->conclusion_count; i++)
        if (*e->sides->conclusions[i].text)
            pj_print(stdout, "\n%s\n", pj_safe(e->sides->conclusions[i].text).s);
}
