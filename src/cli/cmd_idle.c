/* perjoule idle: what keeping a model loaded costs against loading it again. */
#include "analysis/idleness.h"
#include "base/memory.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "power/source.h"
#include "record/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct idle_args {
    pj_run_query query;
    double keep_watts; /* NAN: from the runs */
    pj_price_options prices;
    pj_cost_rates rates;
    bool json;
} idle_args;

typedef struct model_bill {
    const char *model;
    uint32_t runs;
    bool modelled;
    pj_moments load_mj, keep_mw;
    pj_use_span *spans; /* [runs] */
    pj_idleness idleness;
    pj_idle_history history;
} model_bill;

/* ---- from runs ---- */

static int by_model_and_time(const void *a, const void *b)
{
    const pj_run_info *x = a, *y = b;
    int order = strcmp(x->model_name, y->model_name);
    return order ? order
                 : (x->created_wall_ns > y->created_wall_ns) -
                       (x->created_wall_ns < y->created_wall_ns);
}

static void take_run(const idle_args *a, const pj_run_info *run, model_bill *bill)
{
    double keep_mw = run->baseline_resident_mw - run->baseline_cold_mw;
    double begin_ms = (double)run->created_wall_ns / 1e6;
    bill->spans[bill->runs++] = (pj_use_span){begin_ms, begin_ms + run->total_ms};
    bill->modelled |= run->quality == PJ_MODELLED;
    if (run->model_load_mj > 0) pj_moments_add(&bill->load_mj, run->model_load_mj);
    /* a series shares its baselines */
    if (isnan(a->keep_watts) && !isnan(keep_mw) && !run->repeat_index)
        pj_moments_add(&bill->keep_mw, keep_mw);
}

/* The runs of a model, which follow each other. */
static uint32_t bill_of(const idle_args *a, const pj_run_info *runs, uint32_t count,
                        pj_use_span *spans, model_bill *bill)
{
    uint32_t n = 0;
    *bill = (model_bill){.model = runs[0].model_name, .spans = spans};
    for (; n < count && strcmp(runs[n].model_name, bill->model) == 0; n++)
        take_run(a, &runs[n], bill);
    if (!isnan(a->keep_watts)) pj_moments_add(&bill->keep_mw, a->keep_watts * 1e3);
    pj_idleness_judge(&bill->load_mj, &bill->keep_mw, &bill->idleness);
    pj_idleness *i = &bill->idleness;
    if (!isnan(a->keep_watts)) /* a power that is given has no error of its own */
        i->breakeven =
            (pj_bounds){i->load_mj.lo / i->keep_mw.value, i->load_mj.hi / i->keep_mw.value};
    pj_idle_history_of(bill->spans, bill->runs, &bill->idleness, &bill->history);
    return n;
}

/* ---- printing ---- */

static pj_text mean_text(const pj_mean *mean, pj_text (*text)(double))
{
    pj_text all = text(mean->value);
    size_t used = strlen(all.s);
    if (!isnan(mean->lo) && mean->hi > mean->lo)
        snprintf(all.s + used, sizeof all.s - used, " (%s to %s)", text(mean->lo).s,
                 text(mean->hi).s);
    return all;
}

/* Two digits, and whole numbers from 100 on. */
static pj_text amount_text(double value)
{
    return pj_number_text(value < 99.5 ? "%.2g" : "%.0f", value);
}

static void print_keeping(const idle_args *a, const model_bill *b)
{
    const pj_mean *keep = &b->idleness.keep_mw;
    double day_mj = keep->value * 86400;
    if (!keep->n) {
        pj_print(stdout,
                 "  keeping     unknown: no run has the idle power both without and with the "
                 "model (perjoule run --warmup 1 measures both; or give --keep-watts)\n");
    } else if (!(keep->value > 0) || (keep->n > 1 && !b->idleness.keep_is_certain)) {
        pj_print(stdout, "  keeping     not distinguishable from nothing: %s\n",
                 mean_text(keep, pj_power_text).s);
    } else {
        pj_print(stdout, "  keeping     %s: %s an hour, %s a day, %s USD and %s g of CO2 a day\n",
                 mean_text(keep, pj_power_text).s, pj_energy_text(keep->value * 3600).s,
                 pj_energy_text(day_mj).s, amount_text(pj_cost_usd(day_mj, &a->rates)).s,
                 amount_text(pj_co2_grams(day_mj, &a->rates)).s);
    }
}

static void print_history(const model_bill *b)
{
    const pj_idle_history *h = &b->history;
    char unloading[128] = "";
    if (h->unloads)
        snprintf(unloading, sizeof unloading,
                 "; unloading after the break-even, %u time%s, would have %s %s", h->unloads,
                 h->unloads == 1 ? "" : "s", h->saved_mj >= 0 ? "saved" : "cost",
                 pj_energy_text(fabs(h->saved_mj)).s);
    pj_print(stdout, "  history     %u %s in %s, idle for %.0f %%%s\n", b->runs,
             b->runs == 1 ? "run or request" : "runs and requests", pj_time_text(h->whole_ms).s,
             h->whole_ms > 0 ? 100 * h->idle_ms / h->whole_ms : 0, unloading);
}

static void print_bill(const idle_args *a, const model_bill *b)
{
    const pj_idleness *i = &b->idleness;
    pj_print(stdout, "%s%s%s%s\n", pj_style_on(stdout, PJ_STYLE_BOLD), pj_safe(b->model).s,
             pj_style_off(stdout), b->modelled ? " (modelled)" : "");
    if (i->load_mj.n)
        pj_print(stdout, "  loading     %s, %u time%s\n", mean_text(&i->load_mj, pj_energy_text).s,
                 i->load_mj.n, i->load_mj.n == 1 ? "" : "s");
    else
        pj_print(stdout, "  loading     unknown: no run has the energy of loading it\n");
    print_keeping(a, b);
    if (!isnan(i->breakeven_s)) {
        bool minutes = i->breakeven_s >= 6; /* below, a tenth of one */
        double scale = minutes ? 1 / 60.0 : 1;
        char bounds[64] = "";
        if (!isnan(i->breakeven.lo) && !isnan(i->breakeven.hi))
            snprintf(bounds, sizeof bounds, " (%.3g to %.3g)", i->breakeven.lo * scale,
                     i->breakeven.hi * scale);
        pj_print(stdout, "  break-even  %.3g %s%s: idle for longer, loading again costs less\n",
                 i->breakeven_s * scale, minutes ? "minutes" : "s", bounds);
    }
    print_history(b);
}

static void write_mean(pj_json *json, const char *name, const pj_mean *mean)
{
    pj_json_kv_object_begin(json, name);
    pj_json_kv_double(json, "value", mean->value);
    pj_json_kv_double(json, "lo", mean->lo);
    pj_json_kv_double(json, "hi", mean->hi);
    pj_json_kv_uint(json, "n", mean->n);
    pj_json_object_end(json);
}

static void write_bill(const model_bill *b, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "model_name", b->model);
    pj_json_kv_string(json, "energy_source", b->modelled ? "modelled" : "measured");
    write_mean(json, "load_energy_mj", &b->idleness.load_mj);
    write_mean(json, "keep_power_mw", &b->idleness.keep_mw);
    pj_json_kv_bool(json, "keep_is_certain", b->idleness.keep_is_certain);
    pj_json_kv_double(json, "breakeven_minutes", b->idleness.breakeven_s / 60);
    pj_json_kv_double(json, "breakeven_minutes_lo", b->idleness.breakeven.lo / 60);
    pj_json_kv_double(json, "breakeven_minutes_hi", b->idleness.breakeven.hi / 60);
    pj_json_kv_uint(json, "runs", b->runs);
    pj_json_kv_double(json, "history_ms", b->history.whole_ms);
    pj_json_kv_double(json, "idle_ms", b->history.idle_ms);
    pj_json_kv_uint(json, "unloads", b->history.unloads);
    pj_json_kv_double(json, "saved_mj", b->history.saved_mj);
    pj_json_object_end(json);
}

/* ---- the command ---- */

static pj_status show_bills(pj_store *store, void *context, pj_error *err)
{
    const idle_args *a = context;
    pj_run_list list = {0};
    pj_json_out out;
    pj_json *json = a->json ? pj_json_out_begin(&out) : NULL;
    pj_status status = pj_store_list(store, &a->query, &list, err);
    uint32_t count = 0;
    for (uint32_t i = 0; i < list.count; i++) /* those that name their model */
        if (list.runs[i].model_name) list.runs[count++] = list.runs[i];
    pj_use_span *spans = pj_alloc((size_t)count + 1, sizeof *spans);
    if (status == PJ_OK && !spans) status = pj_fail_memory(err, "the runs");
    if (status == PJ_OK && count) qsort(list.runs, count, sizeof *list.runs, by_model_and_time);
    if (json) pj_json_array_begin(json);
    for (uint32_t i = 0; i < count && status == PJ_OK;) {
        model_bill bill;
        i += bill_of(a, list.runs + i, count - i, spans, &bill);
        if (json)
            write_bill(&bill, json);
        else
            print_bill(a, &bill);
    }
    if (json) pj_json_array_end(json);
    if (status == PJ_OK && !count)
        status = pj_fail(err, PJ_E_NOT_FOUND,
                         "there are no completed runs of this machine that "
                         "name their model");
    if (json) status = pj_json_out_end(&out, status, err);
    pj_free(spans);
    pj_run_list_fini(&list);
    return status;
}

static int run_idle(const pj_command *command, int argc, char **argv)
{
    idle_args a = {.query = {.status = "completed", .limit = PJ_QUERY_MAX},
                   .keep_watts = NAN,
                   .prices = PJ_PRICES_NONE};
    const char *db = NULL;
    pj_error err = {0};
    pj_power_env env;
    pj_arena arena;
    pj_machine machine = {0};
    const pj_option options[] = {
        {"model", 'm', PJ_OPTION_TEXT, &a.query.model, "NAME", "only this model, as runs name it"},
        {"keep-watts", 0, PJ_OPTION_DOUBLE, &a.keep_watts, "W",
         "power that keeping it takes, measured otherwise (perjoule top, before and after loading)",
         1e-6, 1e6},
        {"from", 0, PJ_OPTION_TEXT, &a.query.from, "TIME", "only runs since this time or date",
         .rule = pj_rule_time},
        PJ_OPTIONS_PRICES(&a.prices, NULL),
        PJ_OPTION_DB(&db),
        {"json", 0, PJ_OPTION_FLAG, &a.json, NULL, "print an array of models"},
        {0}};
    int code = pj_options_parse(command, options, argc, argv, NULL);
    if (code != PJ_PARSE_GO_ON) return code;
    pj_power_env_get(&env);
    pj_arena_init(&arena, 0);
    a.rates = pj_prices_get(&a.prices);
    pj_status status =
        pj_machine_read(env.procfs_root ? env.procfs_root : "", NULL, 0, &arena, &machine, &err);
    a.query.machine = machine.name;
    code = status == PJ_OK ? pj_stored_command(command, db, show_bills, &a)
                           : pj_command_failed(command, &err);
    pj_arena_fini(&arena);
    return code;
}

const pj_command pj_command_idle = {
    .name = "idle",
    .summary = "what keeping a model loaded costs against loading it again",
    .run = run_idle,
    .usage = "[options]",
    .text =
        "From this machine's stored runs, by model: the energy of loading it, the power by which the "
        "idle\nmachine with the model exceeds the one without it, both with 95 % intervals, and the "
        "break-even:\na model that idles for longer had better been unloaded. For runs and requests "
        "in the store, such\nas a proxy's, it adds up what unloading after the break-even would "
        "have saved.",
    .examples = "perjoule idle\n"
                "perjoule idle --model llama3 --keep-watts 38 --from 2026-01-01\n",
};
