/* perjoule show: one run in the terminal, from its summary down to its operations. */
#include "cli/show.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "record/leftovers.h"
#include "store/rows.h"
#include "store/run_summary.h"

#include <math.h>
#include <stdio.h>

typedef enum part {
    PHASES,
    LAYERS,
    COMPONENTS,
    SOME,
    TOKENS,
    OPERATIONS,
    HEATMAP,
    ADVICE,
    ALL
} part;

typedef struct show_args {
    const char *db, *run, *metric, *component;
    int64_t token, layer, limit;
    bool wanted[ALL + 1], json;
    pj_price_options prices;
    pj_depth depth;             /* of the run */
    const pj_run_list *waiting; /* runs to be recovered */
} show_args;

typedef struct showing {
    pj_store *store;
    const char *id;
    const show_args *args;
    pj_cost_rates rates;
} showing;

static pj_view_choice show_choice_of(const show_args *args, part what)
{
    return (pj_view_choice){.metric = (pj_metric)pj_metric_parse(args->metric),
                            .token = args->token,
                            .layer = what == HEATMAP ? PJ_ANY : (int32_t)args->layer,
                            .component = args->component};
}

static pj_advice_options advice_options(const showing *s)
{
    bool asked = s->args->prices.region || !isnan(s->args->prices.g_per_kwh);
    return (pj_advice_options){asked ? s->rates.co2_g_per_kwh : NAN};
}

/* ---- JSON ---- */

static pj_status show_write_part(const showing *s, part what, pj_json *json, pj_error *err)
{
    uint32_t limit = (uint32_t)s->args->limit;
    pj_view_choice choice = show_choice_of(s->args, what);
    pj_advice_options options = advice_options(s);
    switch (what) {
    case SOME:
    case OPERATIONS: return pj_view_operations(s->store, s->id, &choice, json, err);
    case TOKENS: return pj_view_tokens(s->store, s->id, 0, limit, json, err);
    case HEATMAP: return pj_view_heatmap(s->store, s->id, &choice, json, err);
    case ADVICE: return pj_insight_advice(s->store, s->id, &options, json, err);
    case ALL:
        return pj_view_run(s->store, s->id, &(pj_view_page){.limit = limit}, &s->rates, json, err);
    default: return pj_insight_summary(s->store, s->id, &s->rates, json, err);
    }
}

static pj_status show_write_json(const showing *s, part what, pj_error *err)
{
    pj_json_out out;
    pj_status status = show_write_part(s, what, pj_json_out_begin(&out), err);
    return pj_json_out_end(&out, status, err);
}

/* ---- text ---- */

enum {
    PHASE_ROWS = 1 << PJ_TABLE_PHASES,
    TOKEN_ROWS = 1 << PJ_TABLE_PHASES | 1 << PJ_TABLE_TOKENS,
    OVERVIEW_ROWS = PHASE_ROWS | 1 << PJ_TABLE_WARNINGS | 1 << PJ_TABLE_RAILS,
    MOST_TOKENS = 10000 /* of a sparkline */
};

static pj_status print_parts(const showing *s, bool operations, pj_error *err)
{
    pj_view_choice choice = show_choice_of(s->args, OPERATIONS);
    bool some = choice.token != PJ_ANY || choice.layer != PJ_ANY || choice.component;
    pj_show_parts parts = {.choice = &choice, .limit = (uint32_t)s->args->limit};
    pj_status status =
        pj_view_each_part(s->store, s->id, &choice, operations, pj_show_part, &parts, err);
    pj_show_table_end(&parts.table);
    if (status != PJ_OK) return status;
    const char *kind = operations ? "operations" : "components";
    if (!parts.count && some)
        pj_print(stdout, "\nthe run has no %s for this selection\n", kind);
    else if (!parts.count)
        pj_print(stdout, "\nno %s: only runs of depth %sdeep record them\n", kind,
                 operations ? "" : "module and ");
    pj_show_hidden(parts.count, parts.limit);
    return PJ_OK;
}

static pj_status print_heatmap(const showing *s, pj_error *err)
{
    pj_heatmap map;
    pj_view_choice choice = show_choice_of(s->args, HEATMAP);
    pj_status status = pj_heatmap_get(s->store, s->id, &choice, &map, err);
    if (status == PJ_OK) pj_show_heatmap(&map, choice.metric);
    pj_heatmap_fini(&map);
    return status;
}

static pj_status print_advice(const showing *s, void (*print)(const pj_advice_list *list),
                              pj_error *err)
{
    pj_advice_list list;
    pj_advice_options options = advice_options(s);
    pj_status status = pj_advice_list_get(s->store, s->id, &options, &list, err);
    if (status == PJ_OK) print(&list);
    pj_advice_list_fini(&list);
    return status;
}

static pj_status print_tables(const showing *s, part what, pj_show_run *run, pj_error *err)
{
    static const uint32_t rows[ALL + 1] = {
        [PHASES] = PHASE_ROWS, [TOKENS] = TOKEN_ROWS, [ALL] = OVERVIEW_ROWS};
    uint32_t limit = (uint32_t)s->args->limit;
    pj_arena *arena = &run->data.arena;
    pj_status status =
        pj_store_load_tables(s->store, s->id, rows[what], UINT32_MAX, &run->data, err);
    if (status == PJ_OK && (what == PHASES || what == ALL))
        status =
            pj_view_section_sums(s->store, s->id, arena, &run->sections, &run->section_count, err);
    if (status == PJ_OK && what == LAYERS)
        status = pj_view_layer_sums(s->store, s->id, arena, &run->layers, &run->layer_count, err);
    if (status == PJ_OK && (what == COMPONENTS || what == ALL))
        status = pj_view_component_sums(s->store, s->id, arena, &run->components,
                                        &run->component_count, err);
    if (status == PJ_OK && what == ALL)
        status = pj_run_insight_get(s->store, &run->data.info, arena, &run->insight, err);
    if (status != PJ_OK) return status;
    if (what == ALL) pj_show_overview(run, &s->rates);
    if (what == PHASES) pj_show_phases(run);
    if (what == LAYERS) pj_show_layers(run, limit);
    if (what == COMPONENTS) pj_show_components(run, limit);
    if (what == TOKENS) pj_show_tokens(&run->data, limit);
    return PJ_OK;
}

static pj_status show_print_table(const showing *s, part what, pj_error *err)
{
    pj_show_run run = {0};
    pj_status status = print_tables(s, what, &run, err);
    pj_run_data_fini(&run.data);
    return status;
}

static pj_status print_all(const showing *s, pj_error *err)
{
    pj_run_data run = {0};
    pj_status status = show_print_table(s, ALL, err);
    if (status == PJ_OK)
        status = pj_store_load_tables(s->store, s->id, TOKEN_ROWS, MOST_TOKENS, &run, err);
    if (status == PJ_OK) pj_show_sparkline(&run);
    pj_run_data_fini(&run);
    if (status == PJ_OK && s->args->depth != PJ_DEPTH_OFF) status = print_heatmap(s, err);
    if (status == PJ_OK) status = print_advice(s, pj_show_findings, err);
    return status;
}

static pj_status print_part(const showing *s, part what, pj_error *err)
{
    switch (what) {
    case SOME: return print_parts(s, false, err);
    case OPERATIONS: return print_parts(s, true, err);
    case HEATMAP: return print_heatmap(s, err);
    case ADVICE: return print_advice(s, pj_show_advice, err);
    case ALL: return print_all(s, err);
    default: return show_print_table(s, what, err);
    }
}

/* ---- which parts ---- */

static pj_status show_parts(const showing *s, pj_error *err)
{
    const show_args *args = s->args;
    bool some = args->token != PJ_ANY || args->layer != PJ_ANY || args->component;
    bool all = true;
    pj_status status = PJ_OK;
    for (part p = PHASES; p <= ALL && status == PJ_OK; p++) {
        if (p == ALL ? !all : !args->wanted[p]) continue;
        all = false;
        part shown = p == COMPONENTS && some ? SOME : p;
        status = args->json ? show_write_json(s, shown, err) : print_part(s, shown, err);
    }
    return status;
}

/* Facts that the default views depend on: without energy, time is shown. */
static pj_status inspect_run(pj_store *store, const char *id, show_args *args, pj_error *err)
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

static pj_status show_interrupted(const showing *s, const pj_run_info *info, pj_error *err)
{
    pj_json_out out;
    for (part p = PHASES; p < ALL; p++)
        if (s->args->wanted[p])
            return pj_fail(err, PJ_E_AGAIN,
                           "run %s was interrupted, and its rows are not recovered yet: perjoule "
                           "check recovers them",
                           info->id);
    if (!s->args->json) {
        pj_show_interrupted(info);
        return PJ_OK;
    }
    pj_summary_write(pj_json_out_begin(&out), info, &s->rates);
    return pj_json_out_end(&out, PJ_OK, err);
}

static pj_status show_run(pj_store *store, void *context, pj_error *err)
{
    show_args *args = context;
    char id[PJ_UUID_BYTES];
    showing s = {.store = store, .id = id, .args = args, .rates = pj_prices_get(&args->prices)};
    const pj_run_info *interrupted = NULL;
    pj_status status = pj_leftovers_resolve(args->waiting, store, args->run, id, &interrupted, err);
    if (interrupted) return show_interrupted(&s, interrupted, err);
    if (status == PJ_OK) status = inspect_run(store, id, args, err);
    return status == PJ_OK ? show_parts(&s, err) : status;
}

static int run_show(const pj_command *command, int argc, char **argv)
{
    show_args args = {.token = PJ_ANY, .layer = PJ_ANY, .limit = 1000, .prices = PJ_PRICES_NONE};
    const pj_option options[] = {
        {"phases", 0, PJ_OPTION_FLAG, &args.wanted[PHASES], NULL, "phases and their sections"},
        {"tokens", 0, PJ_OPTION_FLAG, &args.wanted[TOKENS], NULL, "each token"},
        {"layers", 0, PJ_OPTION_FLAG, &args.wanted[LAYERS], NULL, "each layer over all tokens"},
        {"components", 0, PJ_OPTION_FLAG, &args.wanted[COMPONENTS], NULL,
         "components, the hottest first; see --layer, --component, --token"},
        {"operations", 0, PJ_OPTION_FLAG, &args.wanted[OPERATIONS], NULL,
         "operations of deep runs; see --layer, --component, --token"},
        {"heatmap", 0, PJ_OPTION_FLAG, &args.wanted[HEATMAP], NULL,
         "layers by components; see --metric"},
        {"advice", 0, PJ_OPTION_FLAG, &args.wanted[ADVICE], NULL,
         "what to change: evidence, expected saving, cost, the command that tests it"},
        {"metric", 0, PJ_OPTION_CHOICE, &args.metric, "NAME",
         &(PJ_HEATMAP_WORDS " (default energy, time where there is none)")[2],
         .choices = PJ_HEATMAP_LIST, .needs = "heatmap"},
        {"token", 0, PJ_OPTION_INT, &args.token, "N", "one token instead of all", 0, 1e9,
         .needs = "components operations heatmap"},
        {"layer", 0, PJ_OPTION_INT, &args.layer, "N", "one layer; -1: outside the layers", -1, 1e6,
         .needs = "components operations"},
        {"component", 0, PJ_OPTION_TEXT, &args.component, "NAME", "one component",
         .needs = "components operations"},
        {"limit", 0, PJ_OPTION_INT, &args.limit, "N", "maximum rows of a table", 1, 1e8,
         .old_letter = 'n', .needs = "tokens layers components operations"},
        {"json", 0, PJ_OPTION_FLAG, &args.json, NULL,
         "the selected part as JSON, or the whole run"},
        PJ_OPTIONS_PRICES(&args.prices, NULL),
        PJ_OPTION_WITHOUT,
        PJ_OPTION_DB(&args.db),
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional > 1) return pj_command_usage(command, "name one run");
    args.run = positional ? argv[1] : "last";
    return pj_stored_at_once(command, args.db, show_run, &args, &args.waiting);
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
