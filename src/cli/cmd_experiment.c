/* perjoule experiment: a grid of settings, run in randomised blocks, with its result. */
#include "base/file.h"
#include "cli/experiment_engines.h"
#include "cli/experiment_print.h"
#include "cli/inputs.h"
#include "cli/interrupt.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "engine/generation/devices.h"
#include "experiment/experiment.h"
#include "experiment/experiment_plan.h"
#include "experiment/experiment_view.h"
#include "power/source.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PLAN_BYTES = 1 << 20 };

/* Lists that make the grid; in the plan they have these names. */
enum { MODELS, DTYPES, BATCHES, INPUTS, OUTPUTS, THREADS, ABLATE, LISTS };
static const char *const list_names[LISTS] = {"models",  "dtypes",  "batches", "inputs",
                                              "outputs", "threads", "ablate"};

typedef struct experiment_args {
    const char *lists[LISTS], *eval, *tasks, *name, *prompt, *precision, *depth, *device;
    pj_session_options session;
    pj_text_list engines;
    int64_t repeat, cool_down_ns, seed;
    double max_latency_ms;
    bool json, again, result;
} experiment_args;

static bool has_grid(const experiment_args *a)
{
    for (int i = 0; i < LISTS; i++)
        if (a->lists[i]) return true;
    return a->engines.count > 0;
}

/* ---- the plan ---- */

/* A synthetic model's name has commas of its own: "synthetic:SHAPE,bf16,layers=2". */
static size_t length_of_item(const char *at)
{
    static const char *const parts[] = {",layers=", ",bf16", ",f16", ",f32", ",q8_0", ",q4_0"};
    size_t length = strcspn(at, ","), count = sizeof parts / sizeof *parts, i = 0;
    while (strncmp(at, "synthetic:", 10) == 0 && i < count) {
        for (i = 0; i < count; i++) {
            if (strncmp(at + length, parts[i], strlen(parts[i])) != 0) continue;
            length += 1 + strcspn(at + length + 1, ",");
            break;
        }
    }
    return length;
}

/* "a,b" as a list of texts or of numbers. */
static void experiment_put_list(json_t *plan, const char *key, const char *list, bool numbers)
{
    if (!list) return;
    json_t *items = json_array();
    for (const char *at = list; *at;) {
        size_t length = length_of_item(at);
        char word[512], *end;
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        double value = strtod(word, &end);
        json_array_append_new(items, !numbers              ? json_string(word)
                                     : *end || end == word ? json_string(word)
                                     : value == (int)value ? json_integer((int)value)
                                                           : json_real(value));
        at += length + (at[length] == ',');
    }
    json_object_set_new(plan, key, items);
}

static pj_status experiment_rule_share(const char *text, pj_error *err)
{
    double share = pj_share_parse(text);
    return share > 0 && share < 1
               ? PJ_OK
               : pj_fail(err, PJ_E_INVALID, "must be a fraction such as 1%% or 0.01");
}

static json_t *plan_of_flags(const experiment_args *a)
{
    json_t *plan = json_object();
    for (int i = 0; i < LISTS; i++)
        experiment_put_list(plan, list_names[i], a->lists[i], i >= BATCHES && i <= THREADS);
    json_t *engines = a->engines.count ? json_array() : NULL;
    for (int i = 0; i < a->engines.count; i++)
        json_array_append_new(engines, json_string(a->engines.items[i]));
    if (engines) json_object_set_new(plan, "engines", engines);
    return plan;
}

/* The list of sources is stored without secrets. */
static void put_power(json_t *plan, const pj_session_options *session)
{
    char power[1024];
    if (session->power) {
        pj_power_list_public(session->power, power, sizeof power);
        json_object_set_new(plan, "power", json_string(power));
    }
    if (session->interval_ns)
        json_object_set_new(plan, "interval_ms", json_real((double)session->interval_ns * 1e-6));
}

/* Options override the plan file. */
static void put_settings(json_t *plan, const experiment_args *a)
{
    if (a->repeat) json_object_set_new(plan, "repeat", json_integer(a->repeat));
    if (a->precision)
        json_object_set_new(plan, "precision", json_real(pj_share_parse(a->precision)));
    if (a->cool_down_ns >= 0)
        json_object_set_new(plan, "cool_down_s", json_real((double)a->cool_down_ns * 1e-9));
    if (a->seed >= 0) json_object_set_new(plan, "seed", json_integer(a->seed));
    if (!isnan(a->max_latency_ms))
        json_object_set_new(plan, "max_latency_ms", json_real(a->max_latency_ms));
    if (a->eval) json_object_set_new(plan, "eval", json_string(a->eval));
    if (a->tasks) json_object_set_new(plan, "tasks", json_string(a->tasks));
    if (a->prompt) json_object_set_new(plan, "prompt", json_string(a->prompt));
    if (a->depth) json_object_set_new(plan, "depth", json_string(a->depth));
    if (a->device) json_object_set_new(plan, "device", json_string(a->device));
    if (a->name) json_object_set_new(plan, "name", json_string(a->name));
    put_power(plan, &a->session);
}

static pj_status read_plan_file(const char *path, json_t **plan, pj_error *err)
{
    char *text;
    size_t bytes;
    json_error_t where;
    pj_status status = pj_file_read(path, MAX_PLAN_BYTES, &text, &bytes, err);
    if (status != PJ_OK) return status;
    *plan = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    pj_free(text);
    if (json_is_object(*plan)) return PJ_OK;
    if (*plan) {
        json_decref(*plan);
        *plan = NULL;
        return pj_fail(err, PJ_E_INVALID, "%s is not a JSON object", path);
    }
    return pj_fail(err, PJ_E_INVALID, "%s is not a JSON object: line %d: %s", path, where.line,
                   where.text);
}

static pj_status make_plan(const experiment_args *a, const char *file, pj_store *store,
                           pj_arena *arena, pj_plan *plan, pj_error *err)
{
    json_t *tree = NULL;
    pj_status status = PJ_OK;
    if (file)
        status = read_plan_file(file, &tree, err);
    else
        tree = plan_of_flags(a);
    if (status != PJ_OK) return status;
    bool given = file || json_object_size(tree) > 0;
    put_settings(tree, a);
    char *text = json_dumps(tree, JSON_COMPACT);
    json_decref(tree);
    if (!text) return pj_fail_memory(err, "a plan");
    pj_plan_request request = {.json = text,
                               .only_resumes = !given,
                               .again = a->again,
                               .power = a->result ? NULL : pj_power_default()};
    status = pj_plan_join_stored(store, &request, arena, plan, err);
    free(text);
    return status;
}

/* ---- running ---- */

static void print_progress(void *context, const pj_experiment_progress *p)
{
    char left[32] = "";
    bool live = pj_terminal_is(stderr);
    if (!isnan(p->left_s)) snprintf(left, sizeof left, ", %.0f s left at most", p->left_s);
    if (!isnan(p->joules_per_token)) {
        if (live) pj_live_line(stderr, "%s", "");
        pj_say("%u of %u: block %u, %s: %s/token%s", p->done, p->total, p->block + 1, p->name,
               pj_energy_text(1e3 * p->joules_per_token).s, left);
    } else if (live) {
        pj_live_line(stderr, "%u of %u: block %u, %s%s", p->done, p->total, p->block + 1, p->name,
                     left);
    }
}

extern const pj_command pj_command_experiment;

static pj_status run_plan(const experiment_args *a, const pj_plan *plan, pj_engines *engines,
                          pj_error *err)
{
    pj_session *session = NULL;
    pj_model_slot slot = {0};
    pj_interrupt_catch();
    pj_session_options how = a->session;
    if (!how.power) how.power = plan->power;
    if (!how.interval_ns) how.interval_ns = (int64_t)(plan->interval_ms * 1e6);
    pj_status status = pj_stored_session(&pj_command_experiment, &how, &session, err);
    if (status == PJ_OK) {
        engines->session = session;
        pj_experiment_options run = {.session = session,
                                     .foreign = pj_engines_measure,
                                     .foreign_context = engines,
                                     .slot = &slot,
                                     .plan = plan,
                                     .cancel = &pj_interrupted,
                                     .progress = print_progress};
        status = pj_experiment_run(&run, err);
    }
    pj_stored_session_close(session);
    pj_model_slot_close(&slot);
    return status;
}

static pj_status show_result(const experiment_args *a, pj_store *store, const char *name,
                             pj_error *err)
{
    pj_experiment_result *result;
    pj_status status = pj_experiment_result_get(store, name, NULL, &result, err);
    if (result && a->json) {
        pj_json_out out;
        pj_experiment_result_write(result, pj_json_out_begin(&out));
        status = pj_json_out_end(&out, PJ_OK, err);
    } else if (result) {
        pj_experiment_print(result);
    }
    pj_experiment_result_free(result);
    return status;
}

/* Creates the database only for a new plan: resuming in a new database is impossible. */
static pj_status experiment_open_store(const experiment_args *a, const char *file, pj_store **store,
                                       pj_error *err)
{
    bool begins = !a->result && (file || has_grid(a));
    return begins ? pj_stored_open_new(a->session.database, store, err)
                  : pj_stored_open(a->session.database, store, err);
}

static int experiment_execute(const pj_command *command, const experiment_args *a, const char *file)
{
    pj_error err = {0};
    pj_store *store = NULL;
    pj_arena arena;
    pj_plan *plan = pj_alloc(1, sizeof *plan);
    pj_engines engines;
    pj_engines_init(&engines);
    pj_arena_init(&arena, 0);
    pj_status status = plan ? pj_device_check(a->device, &err) : pj_fail_memory(&err, "a plan");
    if (status == PJ_OK) status = experiment_open_store(a, file, &store, &err);
    if (status == PJ_OK) status = make_plan(a, file, store, &arena, plan, &err);
    if (status == PJ_OK && !a->result) status = run_plan(a, plan, &engines, &err);
    if (status == PJ_OK || status == PJ_E_CANCELLED) {
        pj_error showing = {0};
        if (show_result(a, store, plan->name, &showing) != PJ_OK && status == PJ_OK) {
            status = showing.status;
            err = showing;
        }
    }
    pj_store_close(store);
    pj_arena_fini(&arena);
    pj_free(plan);
    if (status == PJ_OK) return PJ_EXIT_OK;
    pj_command_failed(command, &err);
    return status == PJ_E_CANCELLED ? PJ_EXIT_INTERRUPTED : pj_exit_code(status);
}

static int run_experiment(const pj_command *command, int argc, char **argv)
{
    experiment_args a = {.cool_down_ns = -1, .seed = -1, .max_latency_ms = NAN};
    const pj_option options[] = {
        {"models", 0, PJ_OPTION_TEXT, &a.lists[MODELS], "A,B", "models (default: the demo model)"},
        {"dtypes", 0, PJ_OPTION_CHOICES, &a.lists[DTYPES], "A,B",
         "types of the weights: q8_0, q4_0, bf16, f16, f32 (as stored)",
         .choices = PJ_REQUEST_DTYPES},
        {"batches", 0, PJ_OPTION_TEXT, &a.lists[BATCHES], "1,2", "sequences decoded at once (1)",
         .rule = pj_rule_counts},
        {"inputs", 0, PJ_OPTION_TEXT, &a.lists[INPUTS], "N,M", "tokens of the prompt (32)",
         .rule = pj_rule_counts, .excludes = "prompt"},
        {"outputs", 0, PJ_OPTION_TEXT, &a.lists[OUTPUTS], "N,M", "tokens generated (32)",
         .rule = pj_rule_counts},
        {"threads", 0, PJ_OPTION_TEXT, &a.lists[THREADS], "N,M", "threads (one per core)",
         .rule = pj_rule_counts},
        {"ablate", 0, PJ_OPTION_TEXT, &a.lists[ABLATE], "A,B",
         "add cells without attention, mlp or head, or with only the first N layers (layers=N), to "
         "compare the difference with attribution"},
        {"engine", 0, PJ_OPTION_LIST, &a.engines, "ENGINE",
         "engines that run the cells: perjoule (default), attach:URL (a server) or exec:COMMAND "
         "with {model} {batch} {input} {output} {prompt}; may be repeated, each engine is a cell"},
        {"repeat", 0, PJ_OPTION_INT, &a.repeat, "N",
         "blocks: runs of each cell (5), with --precision at most (30)", 1, 10000},
        {"precision", 0, PJ_OPTION_TEXT, &a.precision, "1%",
         "stop a cell when the half width of its interval is below this, after 3 runs",
         .rule = experiment_rule_share},
        {"cool-down", 0, PJ_OPTION_SECONDS, &a.cool_down_ns, "S",
         "before each run wait until power is back at idle, at most this long (0)", 0, 1e15},
        {"seed", 0, PJ_OPTION_INT, &a.seed, "N", "seed of the order within blocks (1)", 0, 9e15},
        {"eval", 0, PJ_OPTION_TEXT, &a.eval, "FILE", "a text whose loss is also measured",
         .rule = pj_rule_file},
        {"tasks", 0, PJ_OPTION_TEXT, &a.tasks, "FILE",
         "questions with answers or choices, one JSON object a line; scored for each model and "
         "type of weights",
         .rule = pj_rule_file},
        {"max-latency", 0, PJ_OPTION_DOUBLE, &a.max_latency_ms, "MS",
         "limit per token for the optimum", 0, 1e9},
        {"prompt", 'p', PJ_OPTION_TEXT, &a.prompt, "TEXT", "this prompt instead of --inputs"},
        {"depth", 0, PJ_OPTION_CHOICE, &a.depth, "DEPTH", "module (default) or deep",
         .choices = "module deep"},
        PJ_OPTION_DEVICE(&a.device),
        {"name", 0, PJ_OPTION_TEXT, &a.name, "NAME",
         "name of the experiment; an interrupted one is resumed"},
        {"again", 0, PJ_OPTION_FLAG, &a.again, NULL,
         "run the plan once more and compare with the previous result", .excludes = "result"},
        {"result", 0, PJ_OPTION_FLAG, &a.result, NULL, "do not run; show the stored result"},
        {"json", 0, PJ_OPTION_FLAG, &a.json, NULL, "the result as one object"},
        PJ_OPTION_INTERVAL(&a.session.interval_ns, 0, "between power samples"),
        PJ_OPTION_POWER(&a.session.power),
        PJ_OPTION_WITHOUT,
        PJ_OPTION_DB(&a.session.database),
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional > 1) return pj_command_usage(command, "name one plan");
    if (positional && has_grid(&a))
        return pj_command_usage(command, "the grid comes from the plan or from options, not both");
    if (!positional && !has_grid(&a) && !a.name)
        return pj_command_usage(command, "give a plan, a grid (--dtypes, --batches, ...) or the "
                                         "--name of an experiment to resume");
    return experiment_execute(command, &a, positional ? argv[1] : NULL);
}

const pj_command pj_command_experiment = {
    .name = "experiment",
    .summary = "run a grid of settings in randomised blocks, with its result",
    .run = run_experiment,
    .shows_progress = true,
    .usage = "[options] PLAN.json | --dtypes A,B --batches 1,2 ...",
    .text =
        "Every combination of the lists is a cell. Each block runs every cell once in random "
        "order, so that heat and other load affect all of them equally; loading and warming the "
        "model is not counted. Plan and runs are stored: run again with the same --name, an "
        "interrupted experiment resumes where it stopped. It ends in a table of cells with 95 % "
        "intervals, the knee over batches, and the cell with the least energy per token. The JSON "
        "of a plan has the names of the options (docs/formats.md).",
    .examples =
        "perjoule experiment --dtypes bf16,q8_0,q4_0 --batches 1,2,4,8 --repeat 5 --name sweep\n"
        "perjoule experiment --name sweep --again\n"
        "perjoule experiment plan.json --precision 1% --cool-down 10\n"
        "perjoule experiment --name sweep --result --json\n",
};
