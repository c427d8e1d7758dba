/* Advice as text. */
#include "cli/show.h"
#include "cli/terminal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 3 };

/* "31 % of the request (22 to 40 %)", "" without an estimated saving. */
static void show_advice_write_saving(const pj_advice *a, char *text, size_t bytes)
{
    text[0] = 0;
    if (!isnan(a->share))
        snprintf(text, bytes, "%.0f %% of the %s (%.0f to %.0f %%), %s", 100 * a->share,
                 strcmp(a->of, "co2") == 0 ? "CO2" : a->of, 100 * a->lo, 100 * a->hi, a->basis);
}

/* What it costs, also where that is nothing. */
static void show_costs(const pj_advice *a)
{
    pj_print(stdout, "  costs    quality: %s; latency: %s; memory: %s\n", a->quality, a->latency,
             a->memory);
}

static void show_evidence(const pj_evidence *e, bool first)
{
    bool share = strcmp(e->unit, "share") == 0;
    const char *unit = share ? "%" : e->unit;
    pj_print(stdout, "  %s %.3g%s%s %s\n", first ? "because " : "        ",
             share ? 100 * e->value : e->value, *unit ? " " : "", unit, e->says);
}

static void show_finding(const pj_advice *a)
{
    char saving[128];
    show_advice_write_saving(a, saving, sizeof saving);
    pj_print(stdout, "\n%s%s%s (%s)\n  %s\n", pj_style_on(stdout, PJ_STYLE_BOLD), a->title,
             pj_style_off(stdout), a->rule, a->text);
    if (*saving) pj_print(stdout, "  saves    %s\n", saving);
    for (uint32_t i = 0; i < a->evidence_count; i++) show_evidence(&a->evidence[i], i == 0);
    show_costs(a);
    if (a->test[0]) pj_print(stdout, "  test     %s\n", a->test);
}

void pj_show_advice(const pj_advice_list *list)
{
    if (!list->speaking)
        pj_print(stdout, "no advice: %s\n",
                 list->refusal ? list->refusal : "no rule has enough evidence");
    if (list->refusal) return;
    for (size_t i = 0; i < list->speaking; i++) show_finding(&list->all[i]);
    pj_print(stdout, "\nsilent: %zu rules; why: --advice --json\n", list->count - list->speaking);
}

void pj_show_findings(const pj_advice_list *list)
{
    char saving[128];
    if (!list->speaking) return;
    pj_print(stdout, "\n%sadvice%s (in full: show --advice)\n", pj_style_on(stdout, PJ_STYLE_BOLD),
             pj_style_off(stdout));
    for (size_t i = 0; i < list->speaking && i < SHOWN; i++) {
        show_advice_write_saving(&list->all[i], saving, sizeof saving);
        pj_print(stdout, "  %s%s%s\n  ", list->all[i].title, *saving ? ": " : "", saving);
        show_costs(&list->all[i]);
    }
}
