/* Settings that differ first, then what explains the difference, largest first. */
#include "cli/why_print.h"

#include "cli/terminal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARTS_SHOWN = 6 };

/* What one side alone knows, as of two engines, is no difference. */
static void print_known_alone(const pj_sides *s, uint32_t side)
{
    char names[1024] = "";
    size_t used = 0;
    for (uint32_t d = 0; d < s->difference_count && used < sizeof names; d++) {
        const pj_side_difference *of = &s->differences[d];
        if (of->values[1 - side]) continue;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                 of->setting);
    }
    if (used) pj_print(stdout, "   known of %s alone   %s\n", side ? "B" : "A", names);
}

static void print_sides(const pj_sides *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const pj_side *side = &s->sides[i];
        const pj_run_info *run = side->runs[0];
        const char *dtype = run->dtype; /* of other engines: unknown */
        bool has_model = run->model_name && *run->model_name;
        pj_print(stdout, "%s  %s%s%s, %u run%s", i ? "B" : "A",
                 pj_safe(has_model ? run->model_name : run->engine).s, dtype && *dtype ? ", " : "",
                 pj_safe(dtype).s, side->run_count, side->run_count == 1 ? "" : "s");
        char partial[128];
        pj_print(stdout, ", energy %s", pj_side_source(side));
        if (pj_side_partial(side, partial, sizeof partial))
            pj_print(stdout, ", partial: %s", partial);
        if (strlen(side->name) > 1) pj_print(stdout, ": %s", pj_safe(side->name).s);
        putchar('\n');
    }
    for (uint32_t d = 0; d < s->difference_count; d++) {
        const pj_side_difference *of = &s->differences[d];
        if (!of->values[0] || !of->values[1]) continue;
        pj_print(stdout, "   %-18s %s -> %s\n", pj_safe(of->setting).s, pj_safe(of->values[0]).s,
                 pj_safe(of->values[1]).s);
    }
    print_known_alone(s, 0);
    print_known_alone(s, 1);
    for (uint32_t i = 0; i < s->caveat_count; i++)
        pj_print(stdout, "   %scaveat%s %s\n", pj_style_on(stdout, PJ_STYLE_YELLOW),
                 pj_style_off(stdout), pj_safe(s->caveats[i].text).s);
}

/* A trace without tokens has no phases. */
static const char *phase_before(const pj_why_row *r)
{
    bool none = r->per_run && r->phase == PJ_PHASE_PRE_INFERENCE;
    return none ? "" : pj_phase_name((pj_phase)r->phase);
}

/* "+ 4.1 mJ (3.2 to 5.0)  12 %  decode attention". Whole lines, which a narrow terminal breaks. */
static void print_energy(double mj, pj_bounds bounds, double of, const char *what)
{
    pj_text interval = {""};
    if (isfinite(bounds.lo))
        snprintf(interval.s, sizeof interval.s, "(%s to %s)", pj_energy_text(bounds.lo).s,
                 pj_energy_text(bounds.hi).s);
    pj_style style = mj > 0 ? PJ_STYLE_RED : PJ_STYLE_GREEN;
    pj_print(stdout, "%s%s%s%s  %s %+6.1f %%  %s\n", pj_style_on(stdout, style), mj > 0 ? "+" : "-",
             pj_padded(9, pj_energy_text(fabs(mj))).s, pj_style_off(stdout),
             pj_padded(-28, interval).s, 100 * mj / of, pj_safe(what).s);
}

static void print_finding(const pj_why *w, const pj_why_row *r)
{
    char text[256], what[400];
    pj_why_row_text(r, text, sizeof text);
    snprintf(what, sizeof what, "%s%s%s%s%s%s", phase_before(r), *phase_before(r) ? " " : "",
             r->name, r->other ? " (in B: " : "", r->other ? r->other : "", r->other ? ")" : "");
    print_energy(r->explained_mj, r->explained, w->request_a_mj, what);
    pj_print(stdout, "      %s\n", pj_safe(text).s);
}

static void print_common(const pj_why *w, const pj_why_common *c)
{
    char text[256], what[64];
    const char *phase = pj_why_common_phase(c);
    pj_why_common_text(c, text, sizeof text);
    snprintf(what, sizeof what, "%s%s%s", phase ? phase : "", phase ? " " : "",
             pj_why_common_part(c));
    print_energy(c->explained_mj, c->explained, w->request_a_mj, what);
    pj_print(stdout, "      %s\n", pj_safe(text).s);
}

/* The largest that are not certain, so that nobody looks for them in vain. */
static void print_others(const pj_why *w, uint32_t from)
{
    uint32_t shown = 0;
    for (uint32_t i = from; i < w->row_count && shown < PARTS_SHOWN; i++) {
        const pj_why_row *r = &w->rows[i];
        if (fabs(r->left_mj) < 0.01 * w->request_a_mj) continue;
        if (!shown++)
            puts(w->common_count ? "what that leaves, not certain or of no single cause:"
                                 : "not certain, or of no single cause:");
        char what[200];
        snprintf(what, sizeof what, "%s%s%s", phase_before(r), *phase_before(r) ? " " : "",
                 r->name);
        print_energy(r->left_mj, r->left, w->request_a_mj, what);
    }
}

/* "12.3 mJ (11.9 to 12.7)". */
static pj_text with_bounds(double mj, pj_bounds bounds)
{
    pj_text text = pj_energy_text(mj);
    if (isfinite(bounds.lo))
        snprintf(text.s, sizeof text.s, "%s (%s to %s)", pj_energy_text(mj).s,
                 pj_energy_text(bounds.lo).s, pj_energy_text(bounds.hi).s);
    return text;
}

static void print_totals(const pj_why *w, bool is_explained)
{
    char interval[64] = "", explained[48] = "";
    double a = w->request_a_mj, b = w->request_b_mj;
    if (isfinite(w->ratio.lo))
        snprintf(interval, sizeof interval, " (%+.1f to %+.1f)", 100 * (w->ratio.lo - 1),
                 100 * (w->ratio.hi - 1));
    if (is_explained)
        snprintf(explained, sizeof explained, "; explained: %+.1f %%", 100 * w->explained_mj / a);
    pj_print(stdout, "%sper %s: A %s, B %s, %+.1f %%%s%s%s\n", pj_style_on(stdout, PJ_STYLE_BOLD),
             w->per_run ? "run" : "output token", with_bounds(a, w->request_a).s,
             with_bounds(b, w->request_b).s, 100 * (b - a) / a, interval, pj_style_off(stdout),
             explained);
    double quiet_a = a - w->disturbed_a_mj, quiet_b = b - w->disturbed_b_mj;
    if (fabs(w->disturbed_b_mj - w->disturbed_a_mj) > 0.01 * a && quiet_a > 0)
        pj_print(stdout,
                 "disturbances took %s of A and %s of B: they are in no part; without them "
                 "%+.1f %%\n",
                 pj_energy_text(w->disturbed_a_mj).s, pj_energy_text(w->disturbed_b_mj).s,
                 100 * (quiet_b - quiet_a) / quiet_a);
}

static bool has_whole(const pj_why *w)
{
    for (uint32_t i = 0; i < w->row_count; i++)
        if (w->rows[i].whole) return true;
    return false;
}

void pj_why_print(const pj_explained *e)
{
    const pj_why *w = &e->why;
    double difference = w->request_b_mj - w->request_a_mj; /* NAN: a side has no energy */
    bool any = !e->refusal && w->named_count + w->common_count;
    print_sides(e->sides);
    putchar('\n');
    if (isfinite(difference)) print_totals(w, any);
    if (*e->unlike)
        pj_print(stdout,
                 "the models differ (%s): their parts do other work, so that each phase is "
                 "compared as a whole\n",
                 e->unlike);
    else if (!e->refusal && has_whole(w))
        pj_print(stdout, "what a side did not record in parts is compared as a whole\n");
    if (e->refusal) pj_print(stdout, "nothing is named: %s\n", pj_safe(e->refusal).s);
    if (!e->refusal && !any)
        pj_print(stdout, "nothing is named: no part differs by 1 %% of A's energy and beyond its "
                         "interval\n");
    for (uint32_t i = 0; any && i < w->common_count; i++) print_common(w, &w->commons[i]);
    for (uint32_t i = 0; any && i < w->named_count; i++) print_finding(w, &w->rows[i]);
    char unplaced[256];
    if (!e->refusal && pj_why_unplaced_text(w, unplaced, sizeof unplaced))
        pj_print(stdout, "%s\n", unplaced);
    if (!e->refusal) print_others(w, w->named_count);
    for (uint32_t i = 0; i < e->sides->conclusion_count; i++)
        if (*e->sides->conclusions[i].text)
            pj_print(stdout, "\n%s\n", pj_safe(e->sides->conclusions[i].text).s);
}
