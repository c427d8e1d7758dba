/* perjoule compare: runs, or groups of runs, side by side, with tests of their differences. */
#include "cli/compare_print.h"
#include "cli/stored.h"
#include "cli/why_print.h"
#include "record/leftovers.h"

#include <stdio.h>
#include <string.h>

typedef struct compare_args {
    pj_group_query groups;
    const char *db;
    pj_text_list tags;
    bool json, why;
    pj_price_options prices;
    char **runs;
    uint32_t run_count;
    const pj_run_list *waiting; /* to be recovered */
} compare_args;

/* Comparing needs the figures of every run. */
static pj_status compare_find(pj_store *store, const compare_args *a, const char *text,
                              char id[PJ_UUID_BYTES], pj_error *err)
{
    const pj_run_info *interrupted = NULL;
    pj_status status = pj_leftovers_resolve(a->waiting, store, text, id, &interrupted, err);
    if (status == PJ_OK && interrupted)
        return pj_fail(err, PJ_E_AGAIN,
                       "run %s was interrupted, and its figures are not recovered yet: "
                       "perjoule check recovers them",
                       interrupted->id);
    return status;
}

/* Of a list of runs with commas. */
static pj_status compare_find_all(pj_store *store, const compare_args *a, const char *list,
                                  pj_error *err)
{
    char one[128], id[PJ_UUID_BYTES];
    pj_status status = PJ_OK;
    while (*list && status == PJ_OK) {
        size_t length = strcspn(list, ",");
        snprintf(one, sizeof one, "%.*s", (int)length, list);
        if (length && length < sizeof one) status = compare_find(store, a, one, id, err);
        list += length + (list[length] == ',');
    }
    return status;
}

/* Two sides, runs or with --by values of a field, and what explains their difference. */
static pj_status explain(pj_store *store, const compare_args *a, const char *const *sides,
                         pj_error *err)
{
    pj_explained *e = NULL;
    pj_json_out out;
    pj_status status = PJ_OK;
    for (int i = 0; i < 2 && !a->groups.by && status == PJ_OK; i++)
        status = compare_find_all(store, a, sides[i], err);
    if (status == PJ_OK)
        status = a->groups.by ? pj_explained_groups(store, &a->groups, sides, &e, err)
                              : pj_explained_runs(store, sides, &e, err);
    if (e && a->json) {
        pj_explained_write(e, pj_json_out_begin(&out));
        status = pj_json_out_end(&out, status, err);
    } else if (e) {
        pj_why_print(e);
    }
    pj_explained_free(e);
    return status;
}

static pj_status compare_named(pj_store *store, const compare_args *a, pj_compared **c,
                               pj_error *err)
{
    char texts[PJ_COMPARE_MAX][PJ_UUID_BYTES];
    const char *ids[PJ_COMPARE_MAX];
    for (uint32_t i = 0; i < a->run_count; i++) {
        ids[i] = texts[i];
        pj_status status = compare_find(store, a, a->runs[i], texts[i], err);
        if (status != PJ_OK) return status;
    }
    for (uint32_t b = 1; b < a->run_count; b++)
        for (uint32_t k = 0; k < b; k++)
            if (strcmp(ids[k], ids[b]) == 0)
                return pj_fail(err, PJ_E_INVALID, "%s and %s are the same run, %.18s", a->runs[k],
                               a->runs[b], ids[b]);
    return pj_compared_runs(store, ids, a->run_count, c, err);
}

static pj_status compare_act(pj_store *store, void *context, pj_error *err)
{
    compare_args *a = context;
    pj_cost_rates rates = pj_prices_get(&a->prices);
    pj_compared *c = NULL;
    pj_json_out out;
    if (a->why) return explain(store, a, a->run_count ? (const char *const *)a->runs : NULL, err);
    pj_status status = a->groups.by ? pj_compared_groups(store, &a->groups, &c, err)
                                    : compare_named(store, a, &c, err);
    if (c && a->json) {
        pj_compared_write(c, &rates, pj_json_out_begin(&out));
        status = pj_json_out_end(&out, status, err);
    } else if (c) {
        pj_compare_print(c);
    }
    pj_compared_free(c);
    return status;
}

static int run_compare(const pj_command *command, int argc, char **argv)
{
    compare_args a = {.prices = PJ_PRICES_NONE};
    pj_run_query *runs = &a.groups.runs;
    const pj_option options[] = {
        {"by", 0, PJ_OPTION_TEXT, &a.groups.by, "FIELD",
         "compare all completed runs in groups by the value of a field: model, dtype, batch, "
         "engine, machine, tag, experiment, threads, isa, depth, input_tokens, output_tokens, "
         "prompt, power, energy_source, session, commit, settings.NAME or model.NAME",
         .choices = "model dtype batch engine machine tag experiment threads isa depth "
                    "input_tokens output_tokens prompt power energy_source"},
        {"experiment", 0, PJ_OPTION_TEXT, &runs->experiment, "NAME", "only runs of an experiment",
         .needs = "by"},
        {"tag", 0, PJ_OPTION_LIST, &a.tags, "TAG", "only runs with a tag; may be repeated",
         .needs = "by"},
        {"model", 0, PJ_OPTION_TEXT, &runs->model, "NAME", "only runs of a model", .needs = "by"},
        {"dtype", 0, PJ_OPTION_TEXT, &runs->dtype, "TYPE", "only runs with weights of a type",
         .needs = "by"},
        {"engine", 0, PJ_OPTION_TEXT, &runs->engine, "NAME", "only runs of an engine",
         .needs = "by"},
        {"from", 0, PJ_OPTION_TEXT, &runs->from, "TIME", "only runs created at or after a time",
         .rule = pj_rule_time, .needs = "by"},
        {"to", 0, PJ_OPTION_TEXT, &runs->to, "TIME", "only runs created before a time",
         .rule = pj_rule_time, .needs = "by"},
        {"with-disturbed", 0, PJ_OPTION_FLAG, &a.groups.with_disturbed, NULL,
         "include disturbed and throttled runs", .needs = "by"},
        {"why", 0, PJ_OPTION_FLAG, &a.why, NULL,
         "explain the difference of two: which parts, and by what"},
        {"json", 0, PJ_OPTION_FLAG, &a.json, NULL, "print one JSON object"},
        PJ_OPTIONS_PRICES(&a.prices, "json"),
        PJ_OPTION_WITHOUT,
        PJ_OPTION_DB(&a.db),
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    bool by = a.groups.by != NULL;
    if (a.why && !by && positional != 2)
        return pj_command_usage(command, "--why explains two sides: give two runs, or lists of "
                                         "runs with commas");
    if (a.why && by && positional != 0 && positional != 2)
        return pj_command_usage(command,
                                "--why --by %s takes the two values to explain, or none "
                                "if there are only two",
                                a.groups.by);
    if (!a.why && by && positional)
        return pj_command_usage(command, "give runs or --by FIELD, not both");
    if (!by && !a.why && (positional < 2 || positional > PJ_COMPARE_MAX))
        return pj_command_usage(command, "give 2 to %d runs, or --by FIELD", PJ_COMPARE_MAX);
    runs->tags = a.tags.items;
    runs->tag_count = (uint32_t)a.tags.count;
    a.runs = argv + 1;
    a.run_count = (uint32_t)positional;
    return pj_stored_at_once(command, a.db, compare_act, &a, &a.waiting);
}

const pj_command pj_command_compare = {
    .name = "compare",
    .summary = "compare runs or groups of runs, with statistics",
    .run = run_compare,
    .usage = "[options] RUN RUN [RUN [RUN]] | --by FIELD [options] | --why A B",
    .text =
        "RUN is an id, the beginning of one, \"last\", or \"last~1\" for the run before the last. "
        "Settings that differ come first, then metrics side by side, tests (Welch on logarithms, "
        "or a permutation test of groups of 4 or 5 where it can find something, Hedges' g, p "
        "values corrected by Holm for the number of pairs), where the difference in energy per "
        "token comes from, and the verdict in joules per token: a sentence for each pair that "
        "differs, and one for all that are not distinguishable. Runs from --repeat are compared as "
        "groups, and so are all runs with --by; single runs are compared as they are, which says "
        "nothing about future runs. Disturbed runs are left out if enough others remain. With --why, "
        "the parts of two sides are matched by name, by the values they computed, or by their "
        "role, also across engines, and what explains the difference is named where it is certain "
        "and at least 1 % of A's energy: values computed twice, a copy, a conversion, another "
        "type, more calls, a slower or hotter kernel, time in which nothing computes, a clock. A "
        "and B are runs, lists of runs with commas, or with --by two values of the field.",
    .examples = "perjoule compare last~1 last\nperjoule compare 01989c2e 01989c2f\nperjoule "
                "compare --by dtype --experiment sweep\nperjoule compare --by batch --tag nightly "
                "--json\nperjoule compare --why last~1 last\nperjoule compare --why --by dtype "
                "bf16 q8_0\n",
};
