/* perjoule ls: stored runs, filtered and sorted; perjoule table: the same runs as a table of tests.
 */
#include "cli/runs_list.h"
#include "cli/runs_table.h"
#include "cli/stored.h"
#include "cli/terminal.h"

#include "base/memory.h"
#include "insight/task_session.h"
#include "record/leftovers.h"
#include "store/run_summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct ls_args {
    pj_run_query query;
    const char *db, *sort, *session, *columns;
    char session_tag[256];
    pj_text_list tags;
    double min_joules, max_joules;
    int64_t limit, offset;
    bool json, table, csv;
    pj_price_options prices;
    const pj_run_list *waiting; /* to be recovered */
} ls_args;

enum { LIST_RUNS = 50, TABLE_RUNS = 10000 }; /* by default */

static void ls_complete_query(ls_args *a)
{
    pj_run_query *q = &a->query;
    if (a->session && a->tags.count < PJ_LIST_MAX) {
        snprintf(a->session_tag, sizeof a->session_tag, PJ_TAG_SESSION "%s", a->session);
        a->tags.items[a->tags.count++] = a->session_tag;
    }
    q->tags = a->tags.items;
    q->tag_count = (uint32_t)a->tags.count;
    q->energy_mj.min = a->min_joules * 1e3;
    q->energy_mj.max = a->max_joules * 1e3;
    pj_run_bounds *bounds[] = {&q->energy_mj, &q->joules_per_token, &q->joules_per_token_typical};
    for (int i = 0; i < 3; i++) {
        bounds[i]->has_min = !isnan(bounds[i]->min);
        bounds[i]->has_max = !isnan(bounds[i]->max);
    }
    q->sort = (pj_run_sort)pj_run_sort_parse(a->sort);
    q->limit = a->limit ? (uint32_t)a->limit : a->table ? TABLE_RUNS : LIST_RUNS;
    q->offset = (uint64_t)a->offset;
}

static pj_status print_summaries(const pj_run_list *list, const pj_run_info *const *first,
                                 uint32_t count, const pj_price_options *prices, pj_error *err)
{
    pj_json_out out;
    pj_cost_rates rates = pj_prices_get(prices);
    pj_json *json = pj_json_out_begin(&out);
    pj_json_array_begin(json);
    for (uint32_t i = 0; i < count; i++) pj_summary_write(json, first[i], &rates);
    for (uint32_t i = 0; i < list->count; i++) pj_summary_write(json, &list->runs[i], &rates);
    pj_json_array_end(json);
    return pj_json_out_end(&out, PJ_OK, err);
}

static pj_status print_table(const ls_args *args, const pj_run_list *list, pj_error *err)
{
    pj_run_table table;
    pj_json_out out;
    pj_status status = pj_run_table_make(list->runs, list->count, &table, err);
    if (status == PJ_OK && args->json) {
        pj_runs_table_write(&table, pj_json_out_begin(&out));
        status = pj_json_out_end(&out, status, err);
    } else if (status == PJ_OK && args->csv) {
        status = pj_runs_table_csv(&table, err);
    } else if (status == PJ_OK) {
        pj_runs_table_print(&table);
        if (list->total > list->count)
            pj_print(stdout, "of the newest %u of %llu runs; more with --limit\n", list->count,
                     (unsigned long long)list->total);
    }
    pj_run_table_fini(&table);
    return status;
}

/* Sums of a session, of which `perjoule session` says more. */
static pj_status print_session(const char *id, const pj_run_list *list, pj_error *err)
{
    pj_task_session s;
    if (list->total > list->count) return PJ_OK; /* not all of them */
    const pj_run_info **runs = pj_alloc(list->count + 1, sizeof *runs);
    if (!runs) return pj_fail_memory(err, "a session");
    for (uint32_t i = 0; i < list->count; i++) runs[i] = &list->runs[i];
    pj_task_session_of(id, runs, list->count, &s);
    pj_free(runs);
    pj_print(stdout, "session %s: %u runs, %llu output tokens, %s%s%s", pj_safe(id).s, s.runs,
             (unsigned long long)s.output_tokens,
             isnan(s.mj) ? "energy unavailable" : pj_interval_text(s.mj, s.sd_mj).s,
             !isnan(s.mj) && s.modelled ? ", modelled" : "",
             !isnan(s.mj) && s.partial ? ", partial" : "");
    if (s.tool_calls > 0)
        pj_print(stdout, ", %.0f tool call%s", s.tool_calls, s.tool_calls == 1 ? "" : "s");
    if (s.inside) pj_print(stdout, "; %u of them inside a program's run, counted once", s.inside);
    if (s.overlapping)
        pj_print(stdout, "; %u of them overlap%s others, that time counts once", s.overlapping,
                 s.overlapping == 1 ? "s" : "");
    pj_print(stdout, "\n");
    return PJ_OK;
}

static pj_status list_runs(pj_store *store, void *context, pj_error *err)
{
    const ls_args *args = context;
    pj_run_list list = {0};
    const pj_run_info **first = NULL;
    uint32_t count = 0;
    if (!args->table && pj_leftovers_wanted(&args->query))
        first = pj_leftovers_unstored(args->waiting, store, &count);
    pj_status status = pj_store_list(store, &args->query, &list, err);
    if (status == PJ_OK && args->table)
        status = print_table(args, &list, err);
    else if (status == PJ_OK && args->json)
        status = print_summaries(&list, first, count, &args->prices, err);
    else if (status == PJ_OK)
        status = pj_runs_list_print(&list, first, count, args->columns, err);
    if (status == PJ_OK && args->session && list.count && !args->json && !args->csv)
        status = print_session(args->session, &list, err);
    pj_free(first);
    pj_run_list_fini(&list);
    return status;
}

extern const pj_command pj_command_table;

static int run_ls(const pj_command *command, int argc, char **argv)
{
    const pj_run_bounds any = {.min = NAN, .max = NAN};
    ls_args args = {.query = {.joules_per_token = any, .joules_per_token_typical = any},
                    .sort = "date",
                    .table = command == &pj_command_table,
                    .min_joules = NAN,
                    .max_joules = NAN,
                    .prices = PJ_PRICES_NONE};
    pj_run_query *query = &args.query;
    const pj_option options[] = {
        {"table", 0, PJ_OPTION_FLAG, &args.table, NULL, "as perjoule table prints them"},
        {"columns", 0, PJ_OPTION_CHOICES, &args.columns, "LIST",
         "what to list, separated by commas: run, per-token, energy, net, speed, status, name, "
         "model, dtype, batch, input, output, threads, tags, created, duration, prefill-speed, "
         "disturbed, thinking, experiment, engine, power, note, machine, prompt (default: as many as fit)",
         .choices = pj_runs_list_columns, .excludes = "json table"},
        {"search", 's', PJ_OPTION_TEXT, &query->search, "TEXT",
         "part of the prompt, the name or the note"},
        {"model", 'm', PJ_OPTION_TEXT, &query->model, "NAME", "runs of this model"},
        {"tag", 0, PJ_OPTION_LIST, &args.tags, "TAG",
         "runs with this tag; if repeated, with all of them", .old_letter = 't'},
        {"session", 0, PJ_OPTION_TEXT, &args.session, "ID",
         "runs and requests of this session (--session, X-Session-Id), and their sum",
         .rule = pj_rule_session},
        {"experiment", 0, PJ_OPTION_TEXT, &query->experiment, "NAME", "runs of this experiment"},
        {"status", 0, PJ_OPTION_CHOICE, &query->status, "STATUS",
         "completed, failed, cancelled, interrupted or running",
         .choices = "completed failed cancelled interrupted running"},
        {"energy-source", 0, PJ_OPTION_CHOICE, &query->energy_source, "KIND",
         "measured, modelled or unavailable", .choices = "measured modelled unavailable"},
        {"from", 0, PJ_OPTION_TEXT, &query->from, "TIME", "created at or after (ISO 8601, UTC)",
         .rule = pj_rule_time},
        {"to", 0, PJ_OPTION_TEXT, &query->to, "TIME", "created before", .rule = pj_rule_time},
        {"min-joules", 0, PJ_OPTION_DOUBLE, &args.min_joules, "J", "minimum energy of the run", 0,
         1e18},
        {"max-joules", 0, PJ_OPTION_DOUBLE, &args.max_joules, "J", "maximum energy of the run", 0,
         1e18},
        {"engine", 0, PJ_OPTION_TEXT, &query->engine, "NAME", "runs of this engine"},
        {"scope", 0, PJ_OPTION_CHOICE, &query->scope, "SCOPE",
         "scope of the energy: machine, process or request", .choices = "machine process request"},
        {"level", 0, PJ_OPTION_CHOICE, &query->level, "LEVEL",
         "level of detail recorded from another engine: coarse or fine", .choices = "coarse fine"},
        {"dtype", 0, PJ_OPTION_TEXT, &query->dtype, "TYPE", "runs with weights of this type"},
        {"machine", 0, PJ_OPTION_TEXT, &query->machine, "TEXT",
         "part of the machine's name (CPU model and host)"},
        {"min-joules-per-token-typical", 0, PJ_OPTION_DOUBLE, &query->joules_per_token_typical.min,
         "J", "minimum energy of the typical token, as listed", 0, 1e18},
        {"max-joules-per-token-typical", 0, PJ_OPTION_DOUBLE, &query->joules_per_token_typical.max,
         "J", "maximum energy of the typical token, as listed", 0, 1e18},
        {"min-joules-per-token", 0, PJ_OPTION_DOUBLE, &query->joules_per_token.min, "J",
         "minimum mean energy of the request per output token", 0, 1e18},
        {"max-joules-per-token", 0, PJ_OPTION_DOUBLE, &query->joules_per_token.max, "J",
         "maximum mean energy of the request per output token", 0, 1e18},
        {"sort", 0, PJ_OPTION_CHOICE, &args.sort, "BY",
         "date, duration, energy, tokens_per_second, joules_per_token (mean) or "
         "joules_per_token_typical",
         .choices = "date duration energy tokens_per_second joules_per_token "
                    "joules_per_token_typical"},
        {"ascending", 0, PJ_OPTION_FLAG, &query->ascending, NULL, "smallest or oldest first",
         .old_letter = 'r'},
        {"limit", 0, PJ_OPTION_INT, &args.limit, "N",
         "maximum number of runs (default 50; for a table 10000)", 1, PJ_QUERY_MAX,
         .old_letter = 'n'},
        {"offset", 0, PJ_OPTION_INT, &args.offset, "N", "skip the first N", 0, 1e15},
        {"json", 0, PJ_OPTION_FLAG, &args.json, NULL, "print an array of run summaries or rows"},
        {"csv", 0, PJ_OPTION_FLAG, &args.csv, NULL, "print the table as CSV"},
        PJ_OPTIONS_PRICES(&args.prices, "json"),
        PJ_OPTION_WITHOUT,
        PJ_OPTION_DB(&args.db),
        {0}};
    int code = pj_options_parse(command, options + (args.table ? 2 : 0), argc, argv, NULL);
    if (code != PJ_PARSE_GO_ON) return code;
    if (args.csv && (!args.table || args.json))
        return pj_command_usage(command, "--csv is for a table, and not with --json");
    ls_complete_query(&args);
    return pj_stored_at_once(command, args.db, list_runs, &args, &args.waiting);
}

const pj_command pj_command_ls = {
    .name = "ls",
    .summary = "list stored runs",
    .run = run_ls,
    .usage = "[options]",
    .text =
        "Lists the runs in the database, newest first: joules per token (of the typical token), "
        "energy and speed, then what tells the runs apart, as far as the terminal has room for it "
        "(COLUMNS sets the width elsewhere). An id may be shortened in other commands as long as "
        "it is unique; \"last\" is the newest run.",
    .examples = "perjoule ls\n"
                "perjoule ls --columns run,per-token,dtype,batch,tags\n"
                "perjoule ls --model demo --sort joules_per_token_typical --ascending\n"
                "perjoule ls --tag baseline --from 2026-01-01 --json\n",
};

const pj_command pj_command_table = {
    .name = "table",
    .summary = "stored runs as a benchmark's table, with joules per token",
    .run = run_ls,
    .usage = "[options]",
    .text =
        "Prints completed runs as Markdown, ready to paste: for each model, type, batch, number of "
        "threads and device a row for the prompt (pp512: 512 tokens) and one for decoding (tg128), "
        "with tokens per second and joules per token, each the mean over the runs with its 95 % "
        "interval. A prompt's energy is per token of the prompt, decoding's is that of the typical "
        "token.",
    .examples = "perjoule table\n"
                "perjoule table --model demo --experiment lengths\n"
                "perjoule table --csv > runs.csv\n",
};
