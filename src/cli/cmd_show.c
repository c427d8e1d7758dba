/* perjoule show: one run in the terminal, from its summary down to its operations. */
#include "cli/show.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "insight/advice.h"
#include "insight/insight.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct show_args {
    const char *db, *metric, *component;
    int64_t token, layer, limit;
    bool phases, tokens, layers, components, operations, heatmap, advice, json;
    pj_price_options prices;
    pj_depth depth; /* of the run */
} show_args;

typedef pj_status view_fn(pj_store *store, const char *id, const show_args *args,
                          const pj_cost_rates *rates, pj_json *json, pj_error *err);

static pj_status view_summary(pj_store *store, const char *id, const show_args *args,
                              const pj_cost_rates *rates, pj_json *json, pj_error *err)
{
    return pj_insight_summary(store, id, rates, json, err);
}

static pj_status view_run(pj_store *store, const char *id, const show_args *args,
                          const pj_cost_rates *rates, pj_json *json, pj_error *err)
{
    return pj_view_run(store, id, &(pj_view_page){.limit = (uint32_t)args->limit}, rates, json,
                       err);
}

static pj_status view_tokens(pj_store *store, const char *id, const show_args *args,
                             const pj_cost_rates *rates, pj_json *json, pj_error *err)
{
    return pj_view_tokens(store, id, 0, (uint32_t)args->limit, json, err);
}

static pj_view_choice choice_of(const show_args *args)
{
    return (pj_view_choice){.metric = (pj_metric)pj_metric_parse(args->metric),
                            .token = args->token,
                            .layer = (int32_t)args->layer,
                            .component = args->component};
}

static pj_status view_heatmap(pj_store *store, const char *id, const show_args *args,
                              const pj_cost_rates *rates, pj_json *json, pj_error *err)
{
    pj_view_choice choice = choice_of(args);
    choice.layer = PJ_ANY;
    return pj_view_heatmap(store, id, &choice, json, err);
}

static pj_status view_advice(pj_store *store, const char *id, const show_args *args,
                             const pj_cost_rates *rates, pj_json *json, pj_error *err)
{
    bool asked = args->prices.region || !isnan(args->prices.g_per_kwh);
    pj_advice_options options = {asked ? rates->co2_g_per_kwh : NAN};
    return pj_insight_advice(store, id, &options, json, err);
}

static pj_status view_all_tokens(pj_store *store, const char *id, const show_args *args,
                                 const pj_cost_rates *rates, pj_json *json, pj_error *err)
{
    return pj_view_tokens(store, id, 0, 0, json, err);
}

static pj_status view_operations(pj_store *store, const char *id, const show_args *args,
                                 const pj_cost_rates *rates, pj_json *json, pj_error *err)
{
    pj_view_choice choice = choice_of(args);
    return pj_view_operations(store, id, &choice, json, err);
}

/* Removes all but the first `limit` rows of a table; returns how many rows are hidden. */
static size_t cut_table(json_t *view, const char *table, size_t limit)
{
    json_t *rows = json_object_get(view, table);
    double all = pj_member_number(view, "total"); /* of a view that is truncated already */
    size_t shown = json_array_size(rows), count = isnan(all) ? shown : (size_t)all;
    for (; shown > limit; shown--) json_array_remove(rows, shown - 1);
    return count > shown ? count - shown : 0;
}

/* Shows the view as a tree, or writes it to standard output. `table` is the one that --limit
 * applies to, or NULL. */
static pj_status show(pj_store *store, const char *id, const show_args *args,
                      const pj_cost_rates *rates, view_fn *view, void (*print)(const json_t *),
                      const char *table, pj_error *err)
{
    pj_buffer out;
    pj_json json;
    pj_buffer_init(&out, 1u << 31);
    pj_json_init(&json, &out);
    pj_status status = view(store, id, args, rates, &json, err);
    if (status == PJ_OK && !print) {
        if (pj_print_json(&out) != PJ_EXIT_OK)
            status = pj_fail(err, PJ_E_IO, "can't write to standard output");
    } else if (status == PJ_OK) {
        json_t *tree = pj_parse_view(&out, err);
        size_t hidden = tree && table ? cut_table(tree, table, (size_t)args->limit) : 0;
        if (tree)
            print(tree);
        else
            status = err->status;
        if (hidden) printf("%zu more row%s with --limit\n", hidden, hidden == 1 ? "" : "s");
        json_decref(tree);
    }
    pj_buffer_fini(&out);
    return status;
}

static pj_status show_parts(pj_store *store, const char *id, const show_args *args,
                            const pj_cost_rates *rates, pj_error *err)
{
    bool some = args->token != PJ_ANY || args->layer != PJ_ANY || args->component;
    const struct {
        bool wanted;
        view_fn *view;
        void (*print)(const json_t *);
        const char *table;
    } parts[] = {
        {args->phases, view_summary, pj_show_phases, NULL},
        {args->layers, view_summary, pj_show_layers, "layers"},
        {args->components && !some, view_summary, pj_show_components, "components"},
        {args->components && some, view_operations, pj_show_some_components, "components"},
        {args->tokens, view_tokens, pj_show_tokens, "tokens"},
        {args->operations, view_operations, pj_show_operations, "operations"},
        {args->heatmap, view_heatmap, pj_show_heatmap, NULL},
        {args->advice, view_advice, pj_show_advice, NULL},
    };
    bool any = false;
    pj_status status = PJ_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == PJ_OK; i++) {
        if (!parts[i].wanted) continue;
        any = true;
        status = show(store, id, args, rates, parts[i].view, args->json ? NULL : parts[i].print,
                      parts[i].table, err);
    }
    if (any || status != PJ_OK) return status;
    if (args->json) return show(store, id, args, rates, view_run, NULL, NULL, err);
    status = show(store, id, args, rates, view_summary, pj_show_overview, NULL, err);
    if (status == PJ_OK)
        status = show(store, id, args, rates, view_all_tokens, pj_show_sparkline, NULL, err);
    if (status == PJ_OK && args->depth != PJ_DEPTH_OFF)
        status = show(store, id, args, rates, view_heatmap, pj_show_heatmap, NULL, err);
    if (status == PJ_OK)
        status = show(store, id, args, rates, view_advice, pj_show_findings, NULL, err);
    return status;
}

/* Facts that the default views depend on: without energy, time is shown. */
static pj_status look_at_run(pj_store *store, const char *id, show_args *args, pj_error *err)
{
    pj_run_list one = {0};
    pj_status status = pj_store_info(store, id, &one, err);
    if (status == PJ_OK) {
        args->depth = one.runs->depth;
        if (!args->metric) args->metric = one.runs->quality == PJ_UNAVAILABLE ? "time" : "energy";
    }
    pj_run_list_fini(&one);
    return status;
}

static int run_show(const pj_command *command, int argc, char **argv)
{
    show_args args = {.token = PJ_ANY, .layer = PJ_ANY, .limit = 1000, .prices = PJ_PRICES_NONE};
    const pj_option options[] = {
        {"phases", 0, PJ_OPTION_FLAG, &args.phases, NULL, "phases and their sections"},
        {"tokens", 0, PJ_OPTION_FLAG, &args.tokens, NULL, "each token"},
        {"layers", 0, PJ_OPTION_FLAG, &args.layers, NULL, "each layer over all tokens"},
        {"components", 0, PJ_OPTION_FLAG, &args.components, NULL,
         "components, the hottest first; see --layer, --component, --token"},
        {"operations", 0, PJ_OPTION_FLAG, &args.operations, NULL,
         "operations of deep runs; see --layer, --component, --token"},
        {"heatmap", 0, PJ_OPTION_FLAG, &args.heatmap, NULL, "layers by components; see --metric"},
        {"advice", 0, PJ_OPTION_FLAG, &args.advice, NULL,
         "what to change: evidence, expected saving, cost, the command that tests it"},
        {"metric", 0, PJ_OPTION_CHOICE, &args.metric, "NAME",
         &(PJ_HEATMAP_WORDS " (default energy, time where there is none)")[2],
         .choices = PJ_HEATMAP_LIST},
        {"token", 0, PJ_OPTION_INT, &args.token, "N", "one token instead of all", 0, 1e9},
        {"layer", 0, PJ_OPTION_INT, &args.layer, "N", "one layer; -1: outside the layers", -1, 1e6},
        {"component", 0, PJ_OPTION_TEXT, &args.component, "NAME", "one component"},
        {"limit", 0, PJ_OPTION_INT, &args.limit, "N", "maximum rows of a table", 1, 1e8,
         .old_letter = 'n'},
        {"json", 0, PJ_OPTION_FLAG, &args.json, NULL,
         "the selected part as JSON, or the whole run"},
        PJ_OPTIONS_PRICES(&args.prices),
        PJ_OPTION_DB(&args.db),
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional > 1) return pj_command_usage(command, "name one run");
    bool narrow = args.layer != PJ_ANY || args.component;
    if (!args.components && !args.operations && (narrow || (args.token != PJ_ANY && !args.heatmap)))
        return pj_command_usage(command, "--token, --layer and --component apply to "
                                         "--components and --operations, --token to --heatmap too");
    pj_store *store = NULL;
    pj_cost_rates rates;
    pj_error err = {0};
    char id[PJ_UUID_BYTES];
    pj_status status = pj_prices_get(&args.prices, &rates, &err);
    if (status == PJ_OK) status = pj_stored_open(args.db, &store, &err);
    if (status == PJ_OK) status = pj_store_resolve(store, positional ? argv[1] : "last", id, &err);
    if (status == PJ_OK) status = look_at_run(store, id, &args, &err);
    if (status == PJ_OK) status = show_parts(store, id, &args, &rates, &err);
    pj_store_close(store);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_command_show = {
    .name = "show",
    .summary = "show a stored run: phases, tokens, layers, components, operations",
    .run = run_show,
    .usage = "[options] [RUN]",
    .text = "Without options it shows an overview, the tokens' energy as a sparkline, a heatmap of "
            "layers by components and the advice that matters most. RUN is an id, the beginning of "
            "one, \"last\" (the default) or \"last~1\" for the run before it. Intervals are 95 %.",
    .examples = "perjoule show\n"
                "perjoule show last --components\n"
                "perjoule show 01989c2e --operations --layer 3 --component attention\n"
                "perjoule show last --heatmap --metric attention_entropy --token 5\n"
                "perjoule show last --advice\n"
                "perjoule show last --json\n",
};
