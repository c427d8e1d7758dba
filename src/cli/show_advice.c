/* Advice as text. */
#include "cli/show.h"
#include "cli/stored.h"
#include "cli/terminal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 3 };

/* "31 % of the request (22 to 40 %)", "" without an estimated saving. */
static void write_saving(const json_t *finding, char *text, size_t bytes)
{
    const json_t *saving = json_object_get(finding, "saving");
    text[0] = 0;
    if (!json_is_object(saving)) return;
    snprintf(text, bytes, "%.0f %% of the %s (%.0f to %.0f %%), %s",
             100 * pj_member_number(saving, "share"),
             strcmp(pj_member_text(saving, "of"), "co2") == 0 ? "CO2"
                                                              : pj_member_text(saving, "of"),
             100 * pj_member_number(saving, "share_lo"), 100 * pj_member_number(saving, "share_hi"),
             pj_member_text(saving, "basis"));
}

static void show_cost(const json_t *cost)
{
    static const char *const kinds[] = {"quality", "latency", "memory"};
    for (int i = 0; i < 3; i++) {
        const char *text = pj_member_text(cost, kinds[i]);
        if (*text && strcmp(text, "none") != 0) printf("  %-8s %s\n", kinds[i], text);
    }
}

static void show_finding(const json_t *f)
{
    size_t i;
    json_t *e;
    char saving[128];
    write_saving(f, saving, sizeof saving);
    printf("\n%s%s%s (%s)\n  %s\n", pj_style_on(stdout, PJ_STYLE_BOLD), pj_member_text(f, "title"),
           pj_style_off(stdout), pj_member_text(f, "rule"), pj_member_text(f, "text"));
    if (*saving) printf("  saves    %s\n", saving);
    json_array_foreach(json_object_get(f, "evidence"), i, e)
    {
        double value = pj_member_number(e, "value");
        bool share = strcmp(pj_member_text(e, "unit"), "share") == 0;
        const char *unit = share ? "%" : pj_member_text(e, "unit");
        printf("  %s %.3g%s%s %s\n", i ? "        " : "because ", share ? 100 * value : value,
               *unit ? " " : "", unit, pj_member_text(e, "text"));
    }
    show_cost(json_object_get(f, "cost"));
    if (*pj_member_text(f, "test")) printf("  test     %s\n", pj_member_text(f, "test"));
}

void pj_show_advice(const json_t *advice)
{
    size_t i;
    json_t *f;
    const json_t *findings = json_object_get(advice, "findings");
    if (!json_array_size(findings)) printf("no advice: no rule has evidence enough\n");
    json_array_foreach(findings, i, f) show_finding(f);
    printf("\nsilent: %zu rules; why: --advice --json\n",
           json_array_size(json_object_get(advice, "silent")));
}

void pj_show_findings(const json_t *advice)
{
    size_t i;
    json_t *f;
    char saving[128];
    const json_t *findings = json_object_get(advice, "findings");
    if (!json_array_size(findings)) return;
    printf("\n%sadvice%s (in full: show --advice)\n", pj_style_on(stdout, PJ_STYLE_BOLD),
           pj_style_off(stdout));
    json_array_foreach(findings, i, f)
    {
        if (i == SHOWN) break;
        write_saving(f, saving, sizeof saving);
        printf("  %s%s%s\n", pj_member_text(f, "title"), *saving ? ": " : "", saving);
    }
}
