/* perjoule compare: 2 to 4 runs side by side, with tests of their differences. */
#include "cli/stored.h"
#include "cli/terminal.h"
#include "cli/verdict.h"
#include "profile/insight.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void print_heads(const json_t *view)
{
    size_t i;
    json_t *run;
    json_array_foreach(json_object_get(view, "runs"), i, run)
        printf("%c  %.18s  %s, %s, %s, energy %s\n", (int)('A' + i), pj_member_text(run, "id"),
               pj_member_text(run, "model_name"), pj_member_text(run, "dtype"),
               pj_member_text(run, "status"), pj_member_text(run, "energy_source"));
}

static void print_metrics(const json_t *view)
{
    size_t i, j;
    json_t *m, *value;
    size_t runs = json_array_size(json_object_get(view, "runs"));
    printf("\n%s%-28s %-5s", pj_style_on(stdout, PJ_STYLE_BOLD), "metric", "unit");
    for (i = 0; i < runs; i++) printf(" %12c", (int)('A' + i));
    for (i = 1; i < runs; i++) printf("  %c against A", (int)('A' + i));
    printf("%s\n", pj_style_off(stdout));
    json_array_foreach(json_object_get(view, "metrics"), i, m)
    {
        bool lower = strcmp(pj_member_text(m, "better"), "lower") == 0;
        printf("%-28s %-5s", pj_member_text(m, "metric"), pj_member_text(m, "unit"));
        json_array_foreach(json_object_get(m, "values"), j, value)
        {
            if (json_is_number(value))
                printf(" %12.5g", json_number_value(value));
            else
                printf(" %12s", "-");
        }
        json_array_foreach(json_object_get(m, "difference_percent"), j, value)
        {
            if (j == 0) continue;
            double percent = json_is_number(value) ? json_number_value(value) : NAN;
            bool good = lower ? percent < 0 : percent > 0;
            pj_style style = fabs(percent) < 0.5 || isnan(percent) ? PJ_STYLE_PLAIN
                             : good                                ? PJ_STYLE_GREEN
                                                                   : PJ_STYLE_RED;
            printf("  %s", pj_style_on(stdout, style));
            if (isnan(percent))
                printf("%11s", "-");
            else
                printf("%+9.1f %%", percent);
            fputs(pj_style_off(stdout), stdout);
        }
        putchar('\n');
    }
}

static void print_tests(const json_t *view)
{
    size_t i;
    json_t *t, *tests = json_object_get(view, "tests");
    if (json_array_size(tests) == 0) return;
    printf(
        "\n%s%-24s pair  samples       difference  95 %% interval            g      p (Holm)%s\n",
        pj_style_on(stdout, PJ_STYLE_BOLD), "test (Welch)", pj_style_off(stdout));
    json_array_foreach(tests, i, t)
    {
        double p = pj_member_number(t, "p_adjusted");
        printf("%-24s %c-%c  %4.0f+%-4.0f %-5s %+10.4g  %+.4g to %+.4g  %6.2f  %.2g%s\n",
               pj_member_text(t, "metric"), (int)('A' + pj_member_number(t, "a")),
               (int)('A' + pj_member_number(t, "b")), pj_member_number(t, "n_a"),
               pj_member_number(t, "n_b"), pj_member_text(t, "sample"),
               pj_member_number(t, "difference"), pj_member_number(t, "difference_lo"),
               pj_member_number(t, "difference_hi"), pj_member_number(t, "hedges_g"), p,
               p < 0.05 ? " different" : "");
    }
    printf("Differences are second minus first.\n");
}

/* The last lines are what most readers want: one sentence per pair. */
static void print_verdicts(const json_t *view)
{
    char text[512];
    const json_t *tests = json_object_get(view, "tests");
    unsigned runs = (unsigned)json_array_size(json_object_get(view, "runs"));
    for (unsigned a = 0; a < runs; a++) {
        for (unsigned b = a + 1; b < runs; b++) {
            pj_verdict(tests, a, b, text, sizeof text);
            if (*text)
                printf("\n%s%s%s\n", pj_style_on(stdout, PJ_STYLE_BOLD), text,
                       pj_style_off(stdout));
        }
    }
}

static int run_compare(const pj_command *command, int argc, char **argv)
{
    const char *db = NULL;
    bool as_json = false;
    pj_price_options prices = PJ_PRICES_NONE;
    const pj_option options[] = {
        {"json", 0, PJ_OPTION_FLAG, &as_json, NULL, "everything as one object"},
        PJ_OPTIONS_PRICES(&prices),
        PJ_OPTION_DB(&db),
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional < 2 || positional > PJ_COMPARE_MAX)
        return pj_command_usage(command, "name 2 to %d runs", PJ_COMPARE_MAX);
    pj_store *store = NULL;
    pj_cost_rates rates;
    pj_error err = {0};
    pj_buffer out;
    pj_json json;
    pj_buffer_init(&out, 1u << 28);
    pj_json_init(&json, &out);
    pj_status status = pj_prices_get(&prices, &rates, &err);
    if (status == PJ_OK) status = pj_stored_open(db, &store, &err);
    if (status == PJ_OK)
        status = pj_insight_compare(store, (const char *const *)(argv + 1), (uint32_t)positional,
                                    &rates, &json, &err);
    code = PJ_EXIT_OK;
    if (status == PJ_OK && as_json) {
        code = pj_print_json(&out);
    } else if (status == PJ_OK) {
        json_t *view = pj_parse_view(&out, &err);
        if (view) {
            print_heads(view);
            print_metrics(view);
            print_tests(view);
            print_verdicts(view);
        } else {
            status = err.status;
        }
        json_decref(view);
    }
    pj_buffer_fini(&out);
    pj_store_close(store);
    return status == PJ_OK ? code : pj_command_failed(command, &err);
}

const pj_command pj_command_compare = {
    .name = "compare",
    .summary = "compare 2 to 4 runs, with statistics",
    .run = run_compare,
    .usage = "[options] RUN RUN [RUN [RUN]]",
    .text =
        "RUN is an id, the beginning of one, \"last\", or \"last~1\" for the run before the last. "
        "Metrics side by side, and tests of the differences: Welch's t with its 95 % interval, "
        "Mann-Whitney (in --json), Hedges' g, p values corrected by Holm. Runs from "
        "--repeat are compared as groups; single runs are compared token by token, which says "
        "nothing about future runs. A sentence for each pair ends it.",
    .examples = "perjoule compare last~1 last\nperjoule compare 01989c2e 01989c2f\nperjoule "
                "compare last 01989c2e --json\n",
};
