/* perjoule ls: stored runs, filtered and sorted. */
#include "cli/stored.h"
#include "cli/terminal.h"

#include "base/clock.h"
#include "store/run_summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct ls_args {
    const char *db, *sort, *from, *to, *status, *model, *experiment, *search, *source, *engine,
        *scope, *level, *dtype, *machine;
    pj_text_list tags;
    double min_joules, max_joules, min_joules_per_token, max_joules_per_token;
    int64_t limit, offset;
    bool ascending, json;
    pj_price_options prices;
} ls_args;

static pj_status make_query(const ls_args *args, pj_run_query *query, pj_error *err)
{
    int sort = args->sort ? pj_run_sort_parse(args->sort) : PJ_SORT_DATE;
    if (sort < 0)
        return pj_fail(err, PJ_E_INVALID,
                       "cannot sort runs by %.40s (use date, duration, energy, "
                       "tokens_per_second, joules_per_token)",
                       args->sort);
    if (args->status && pj_run_status_parse(args->status) < 0)
        return pj_fail(err, PJ_E_INVALID,
                       "unknown status %.40s (use completed, failed, cancelled, "
                       "interrupted, running)",
                       args->status);
    if (args->source && pj_quality_parse(args->source) < 0)
        return pj_fail(err, PJ_E_INVALID,
                       "unknown energy source %.40s (use measured, modelled or unavailable)",
                       args->source);
    *query = (pj_run_query){.search = args->search,
                            .model = args->model,
                            .experiment = args->experiment,
                            .status = args->status,
                            .energy_source = args->source,
                            .engine = args->engine,
                            .scope = args->scope,
                            .level = args->level,
                            .dtype = args->dtype,
                            .machine = args->machine,
                            .has_min_joules_per_token = !isnan(args->min_joules_per_token),
                            .has_max_joules_per_token = !isnan(args->max_joules_per_token),
                            .min_joules_per_token = args->min_joules_per_token,
                            .max_joules_per_token = args->max_joules_per_token,
                            .tags = args->tags.items,
                            .tag_count = (uint32_t)args->tags.count,
                            .from = args->from,
                            .to = args->to,
                            .has_min_energy = !isnan(args->min_joules),
                            .has_max_energy = !isnan(args->max_joules),
                            .min_energy_mj = args->min_joules * 1e3,
                            .max_energy_mj = args->max_joules * 1e3,
                            .sort = (pj_run_sort)sort,
                            .ascending = args->ascending,
                            .limit = (uint32_t)args->limit,
                            .offset = (uint64_t)args->offset};
    return PJ_OK;
}

/* The begin of the prompt on one line, truncated between characters. */
static void shorten(const char *text, int width, char *out, size_t bytes)
{
    size_t at = 0;
    int shown = 0;
    for (; text && *text && at + 5 < bytes; text++) {
        bool starts = ((unsigned char)*text & 0xc0) != 0x80;
        if (starts && shown++ == width - 1 && text[1]) {
            at += (size_t)snprintf(out + at, bytes - at, "…");
            break;
        }
        out[at++] = (unsigned char)*text < 0x20 || *text == 0x7f ? ' ' : *text;
    }
    out[at] = 0;
}

/* Marks energies that need an explanation, which follows below the list. */
static const char *mark_of(const pj_run_info *run)
{
    if (isnan(run->total_mj)) return " ";
    return run->partial_rails ? "!" : run->quality == PJ_MODELLED ? "~" : " ";
}

/* Lists the rails that the shown totals lack, each once. */
static void explain_partial(const pj_run_list *list)
{
    char text[256], last[256] = "";
    for (uint32_t i = 0; i < list->count; i++) {
        const pj_run_info *run = &list->runs[i];
        if (*mark_of(run) != '!') continue;
        pj_partial_text(run->total_rails, run->partial_rails, text, sizeof text);
        if (strcmp(text, last) != 0) printf("! partial: %s (%.18s)\n", text, run->id);
        memcpy(last, text, sizeof last);
    }
}

static void print_run(const pj_run_info *run, int prompt_width)
{
    char created[32], prompt[512], model[64];
    pj_run_ratios r;
    pj_run_ratios_get(run, &r);
    pj_clock_format_iso(run->created_wall_ns, created);
    created[16] = 0;
    created[10] = ' ';
    shorten(run->prompt_private ? "(private)" : run->prompt, prompt_width, prompt, sizeof prompt);
    shorten(run->model_name ? run->model_name : "", 16, model, sizeof model);
    printf("%.18s  %s  %-11s %-16s %s %s%s %8s %8s  %s\n", run->id, created,
           pj_run_status_name(run->status), model, pj_padded(9, pj_time_text(run->total_ms)).s,
           pj_padded(10, pj_or_dash(run->total_mj, pj_energy_text(run->total_mj))).s, mark_of(run),
           pj_number_text("%.1f", r.tokens_per_second).s,
           pj_number_text("%.3g", r.joules_per_token).s, prompt);
}

static void ls_print_list(const pj_run_list *list)
{
    int width = pj_terminal_width(stdout) - 108;
    if (list->count == 0) {
        printf("no runs\n");
        return;
    }
    printf("%s%-18s  %-16s  %-11s %-16s %9s %10s  %7s %8s  %s%s\n",
           pj_style_on(stdout, PJ_STYLE_BOLD), "run", "created (UTC)", "status", "model",
           "duration", "energy", "tok/s", "J/token", "prompt", pj_style_off(stdout));
    bool modelled = false;
    for (uint32_t i = 0; i < list->count; i++) {
        print_run(&list->runs[i], width > 20 ? width : 20);
        modelled |= list->runs[i].quality == PJ_MODELLED;
    }
    if (list->total > list->count)
        printf("%u of %llu runs; more with --limit and --offset\n", list->count,
               (unsigned long long)list->total);
    explain_partial(list);
    if (modelled) printf("~ modelled, not measured\n");
}

static int list_runs(const pj_command *command, const ls_args *args)
{
    pj_store *store = NULL;
    pj_run_list list = {0};
    pj_run_query query;
    pj_cost_rates rates;
    pj_error err = {0};
    pj_status status = make_query(args, &query, &err);
    if (status == PJ_OK) status = pj_prices_get(&args->prices, &rates, &err);
    if (status == PJ_OK) status = pj_stored_open(args->db, &store, &err);
    if (status == PJ_OK) status = pj_store_list(store, &query, &list, &err);
    if (status == PJ_OK && args->json) {
        pj_json_out out;
        pj_json *json = pj_json_out_begin(&out);
        pj_json_array_begin(json);
        for (uint32_t i = 0; i < list.count; i++) pj_summary_write(json, &list.runs[i], &rates);
        pj_json_array_end(json);
        status = pj_json_out_end(&out, status, &err);
    } else if (status == PJ_OK) {
        ls_print_list(&list);
    }
    pj_run_list_fini(&list);
    pj_store_close(store);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

static int run_ls(const pj_command *command, int argc, char **argv)
{
    ls_args args = {.limit = 50,
                    .min_joules = NAN,
                    .max_joules = NAN,
                    .min_joules_per_token = NAN,
                    .max_joules_per_token = NAN,
                    .prices = PJ_PRICES_NONE};
    const pj_option options[] = {
        {"search", 's', PJ_OPTION_TEXT, &args.search, "TEXT", "part of the prompt"},
        {"model", 'm', PJ_OPTION_TEXT, &args.model, "NAME", "runs of this model"},
        {"tag", 0, PJ_OPTION_LIST, &args.tags, "TAG",
         "runs with this tag; if repeated, with all of them", .old_letter = 't'},
        {"experiment", 0, PJ_OPTION_TEXT, &args.experiment, "NAME", "runs of this experiment"},
        {"status", 0, PJ_OPTION_CHOICE, &args.status, "STATUS",
         "completed, failed, cancelled, interrupted or running",
         .choices = "completed failed cancelled interrupted running"},
        {"energy-source", 0, PJ_OPTION_CHOICE, &args.source, "KIND",
         "measured, modelled or unavailable", .choices = "measured modelled unavailable"},
        {"from", 0, PJ_OPTION_TEXT, &args.from, "TIME", "created at or after (ISO 8601, UTC)"},
        {"to", 0, PJ_OPTION_TEXT, &args.to, "TIME", "created before"},
        {"min-joules", 0, PJ_OPTION_DOUBLE, &args.min_joules, "J", "minimum energy of the run"},
        {"max-joules", 0, PJ_OPTION_DOUBLE, &args.max_joules, "J", "maximum energy of the run"},
        {"engine", 0, PJ_OPTION_TEXT, &args.engine, "NAME", "runs of this engine"},
        {"scope", 0, PJ_OPTION_CHOICE, &args.scope, "SCOPE",
         "scope of the energy: machine, process or request", .choices = "machine process request"},
        {"level", 0, PJ_OPTION_CHOICE, &args.level, "LEVEL",
         "level of detail recorded from another engine: coarse or fine", .choices = "coarse fine"},
        {"dtype", 0, PJ_OPTION_TEXT, &args.dtype, "TYPE", "runs with weights of this type"},
        {"machine", 0, PJ_OPTION_TEXT, &args.machine, "TEXT",
         "part of the machine's name (CPU model and host)"},
        {"min-joules-per-token", 0, PJ_OPTION_DOUBLE, &args.min_joules_per_token, "J",
         "minimum energy of the request per output token"},
        {"max-joules-per-token", 0, PJ_OPTION_DOUBLE, &args.max_joules_per_token, "J",
         "maximum energy of the request per output token"},
        {"sort", 0, PJ_OPTION_CHOICE, &args.sort, "BY",
         "date, duration, energy, tokens_per_second or joules_per_token",
         .choices = "date duration energy tokens_per_second joules_per_token"},
        {"ascending", 0, PJ_OPTION_FLAG, &args.ascending, NULL, "smallest or oldest first",
         .old_letter = 'r'},
        {"limit", 0, PJ_OPTION_INT, &args.limit, "N", "maximum number of runs (default 50)", 1,
         PJ_QUERY_MAX, .old_letter = 'n'},
        {"offset", 0, PJ_OPTION_INT, &args.offset, "N", "skip the first N", 0, 1e15},
        {"json", 0, PJ_OPTION_FLAG, &args.json, NULL, "print an array of run summaries"},
        PJ_OPTIONS_PRICES(&args.prices),
        PJ_OPTION_DB(&args.db),
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional > 0) return pj_command_usage(command, "takes no arguments");
    return list_runs(command, &args);
}

const pj_command pj_command_ls = {
    .name = "ls",
    .summary = "list stored runs",
    .run = run_ls,
    .usage = "[options]",
    .text =
        "Lists the runs in the database, newest first. An id may be shortened in other commands "
        "as long as it is unique; \"last\" is the newest run.",
    .examples = "perjoule ls\n"
                "perjoule ls --model demo --sort joules_per_token --ascending\n"
                "perjoule ls --tag baseline --from 2026-01-01 --json\n",
};
