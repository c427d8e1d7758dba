/* perjoule tune: the power limit or clock with the least joules per token. */
#include "base/shell.h"
#include "cli/interrupt.h"
#include "cli/stored.h"
#include "cli/tune.h"
#include "power/limit_guard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_STEPS = 5, MOST_BLOCKS = PJ_SWEEP_BLOCKS / 4 };

typedef struct tune_args {
    const char *device, *limit, *settings, *power, *db;
    double most_loss; /* percent */
    int64_t steps, blocks;
    bool apply, no_store, json, no_warmup;
    char **words; /* of the command; NULL: none */
    pj_child blank;
} tune_args;

/* ---- which limit, which settings ---- */

static const pj_limit *find_limit(const pj_limits *l, const char *device, const char *what)
{
    for (uint32_t i = 0; i < l->count; i++)
        if ((!device || strcmp(l->items[i].device, device) == 0) &&
            (!what || strcmp(pj_limit_what_name(l->items[i].what), what) == 0) &&
            (device || l->items[i].settable))
            return &l->items[i];
    return NULL;
}

static pj_status choose_limit(const tune_args *a, pj_tune *t, pj_error *err)
{
    t->limit = find_limit(t->limits, a->device, a->limit);
    if (!t->limit && a->device)
        return pj_fail(err, PJ_E_INVALID,
                       "%s has no %s limit that could be set: see `perjoule tune`", a->device,
                       a->limit ? a->limit : "power or clock");
    if (!t->limit || !t->limit->settable) {
        const pj_limit *first = t->limit ? t->limit : &t->limits->items[0];
        return pj_fail(err, PJ_E_DENIED, "the %s limit of %s cannot be set: %s",
                       pj_limit_what_name(first->what), first->device,
                       first->reason[0] ? first->reason : "see `perjoule tune`");
    }
    return PJ_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* "150,200,250" */
static pj_status parse_settings(const char *text, pj_tune *t, pj_error *err)
{
    const pj_limit *l = t->limit;
    double unit = l->what == PJ_LIMIT_POWER ? 1e3 : 1;
    const char *at = text;
    for (t->setting_count = 0; *at; at += *at == ',') {
        char *end;
        double value = strtod(at, &end) * unit;
        if (end == at || (*end && *end != ',') || !(value > 0) || !isfinite(value))
            return pj_fail(err, PJ_E_INVALID,
                           "--settings must be numbers separated by commas, not %s", text);
        if (value < l->least || value > l->most)
            return pj_fail(err, PJ_E_INVALID, "%s is outside the bounds of %s: %s",
                           pj_tune_setting_text(l, value).s, l->device, pj_tune_bounds_text(l).s);
        if (t->setting_count == PJ_SWEEP_SETTINGS)
            return pj_fail(err, PJ_E_INVALID, "--settings has more than %d", PJ_SWEEP_SETTINGS);
        t->settings[t->setting_count++] = value;
        at = end;
    }
    qsort(t->settings, t->setting_count, sizeof *t->settings, ascending);
    for (uint32_t i = 1; i < t->setting_count; i++)
        if (t->settings[i] <= t->settings[i - 1])
            return pj_fail(err, PJ_E_INVALID, "--settings has a value twice");
    return PJ_OK;
}

static pj_status choose_settings(const tune_args *a, pj_tune *t, pj_error *err)
{
    pj_status status = PJ_OK;
    if (a->settings)
        status = parse_settings(a->settings, t, err);
    else
        pj_tune_settings(t, (uint32_t)a->steps);
    if (status == PJ_OK && t->setting_count < 2)
        status = pj_fail(err, PJ_E_INVALID, "a sweep needs at least two settings");
    return status;
}

/* ---- measuring ---- */

static pj_status measure(const pj_command *command, const tune_args *a, pj_tune *t, pj_error *err)
{
    pj_buffer text;
    pj_buffer_init(&text, 1 << 20);
    for (char **w = a->words; *w; w++) {
        if (w != a->words) pj_buffer_char(&text, ' ');
        pj_shell_word(&text, *w);
    }
    pj_gate_command run = {.text = pj_buffer_get(&text),
                           .power = a->power,
                           .db = a->no_store ? "none" : a->db,
                           .tag = "tune",
                           .blank = a->blank};
    pj_session_options options = {.size = sizeof options, .power = a->power, .database = run.db};
    pj_status status = pj_buffer_status(&text, "a command", err);
    if (status == PJ_OK && !pj_gate_own_run(run.text))
        status = pj_stored_session(command, &options, &run.session, err);
    if (status == PJ_OK) status = pj_tune_sweep(t, &run, !a->no_warmup, err);
    pj_stored_session_close(run.session);
    pj_buffer_fini(&text);
    return status;
}

/* The guard restores; where it was killed, this does. */
static pj_status restore(pj_limit_guard *guard, const pj_tune *t, pj_error *err)
{
    if (pj_limit_guard_end(guard, err) == PJ_OK) return PJ_OK;
    return t->limit ? pj_limit_restore(t->limits, t->limit, err) : PJ_OK;
}

static pj_status report(const pj_tune *t, bool as_json, pj_error *err)
{
    pj_json_out out;
    if (as_json) {
        pj_tune_write(t, pj_json_out_begin(&out));
        return pj_json_out_end(&out, PJ_OK, err);
    }
    pj_tune_print(t, stdout);
    return PJ_OK;
}

static pj_status tune_apply(const pj_command *command, const tune_args *a, const pj_power_env *env,
                            pj_tune *t, pj_error *err)
{
    pj_limit_guard guard;
    pj_limits limits = {0};
    pj_error trouble = {0};
    pj_status status = pj_limit_guard_start(&guard, env, err);
    if (status != PJ_OK) return status;
    pj_interrupt_catch();
    status = pj_limits_find(env, &limits, err);
    t->limits = &limits; /* cppcheck-suppress autoVariables; read only in here */
    if (status == PJ_OK) status = choose_limit(a, t, err);
    if (status == PJ_OK) status = choose_settings(a, t, err);
    if (status == PJ_OK) status = pj_limit_guard_arm(&guard, &limits, t->limit, err);
    bool armed = status == PJ_OK;
    if (status == PJ_OK) status = measure(command, a, t, err);
    pj_status restored = restore(&guard, t, &trouble);
    if (armed && restored == PJ_OK)
        pj_say("the %s limit of %s is %s again", pj_limit_what_name(t->limit->what),
               pj_safe(t->limit->device).s,
               isnan(t->limit->now) ? "the driver's"
                                    : pj_tune_setting_text(t->limit, t->limit->now).s);
    if (status == PJ_OK) status = report(t, a->json, err);
    pj_limits_close(&limits);
    if (restored == PJ_OK) return status;
    return pj_fail(err, PJ_E_UNAVAILABLE, "the former limit was not restored: %s", trouble.text);
}

static pj_status survey(const pj_power_env *env, bool as_json, pj_error *err)
{
    pj_limits limits;
    pj_json_out out;
    pj_status status = pj_limits_find(env, &limits, err);
    if (status != PJ_OK) return status;
    if (as_json) {
        pj_tune_survey_write(&limits, pj_json_out_begin(&out));
        status = pj_json_out_end(&out, PJ_OK, err);
    } else {
        pj_tune_survey_print(&limits, stdout);
    }
    pj_limits_close(&limits);
    return status;
}

static int tune_start(const pj_command *command, const tune_args *a)
{
    pj_error err = {0};
    pj_power_env env;
    pj_power_env_get(&env);
    pj_tune *t = pj_alloc(1, sizeof *t);
    pj_status status = t ? PJ_OK : pj_fail_memory(&err, "a sweep");
    if (t) {
        t->most_loss = a->most_loss / 100;
        t->block_count = (uint32_t)a->blocks;
        status = a->apply ? tune_apply(command, a, &env, t, &err) : survey(&env, a->json, &err);
    }
    pj_free(t);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

static int run_tune(const pj_command *command, int argc, char **argv)
{
    tune_args a = {.most_loss = 2, .steps = USUAL_STEPS, .blocks = PJ_SWEEP_LEAST_BLOCKS};
    const pj_option options[] = {
        {"apply", 0, PJ_OPTION_FLAG, &a.apply, NULL,
         "change the limit while measuring; the former one is restored afterwards"},
        {"device", 0, PJ_OPTION_TEXT, &a.device, "DEVICE",
         "whose limit, as listed (default: the first that can be set)", .needs = "apply"},
        {"limit", 0, PJ_OPTION_CHOICE, &a.limit, "WHAT", "sweep its power limit or its clock",
         .choices = "power clock", .needs = "apply"},
        {"settings", 0, PJ_OPTION_TEXT, &a.settings, "LIST",
         "watts or megahertz, separated by commas (default: --steps of them down to 40 %)",
         .needs = "apply"},
        {"steps", 0, PJ_OPTION_INT, &a.steps, "N", "settings to try (5)", 2, PJ_SWEEP_SETTINGS,
         .needs = "apply", .excludes = "settings"},
        {"blocks", 0, PJ_OPTION_INT, &a.blocks, "N", "runs under each setting (3)",
         PJ_SWEEP_LEAST_BLOCKS, MOST_BLOCKS, .needs = "apply"},
        {"max-loss", 0, PJ_OPTION_DOUBLE, &a.most_loss, "PERCENT", "speed that may be lost (2)", 0,
         90, .needs = "apply"},
        {"no-warmup", 0, PJ_OPTION_FLAG, &a.no_warmup, NULL,
         "do not run the command once, uncounted, after each change", .needs = "apply"},
        PJ_OPTION_POWER(&a.power),
        PJ_OPTION_DB(&a.db),
        {"no-store", 0, PJ_OPTION_FLAG, &a.no_store, NULL, "keep no runs", .needs = "apply"},
        {"json", 0, PJ_OPTION_FLAG, &a.json, NULL, "print one JSON value"},
        {0}};
    int separator = 1, positional;
    pj_child_reserve(&a.blank);
    while (separator < argc && strcmp(argv[separator], "--") != 0) separator++;
    int code = pj_options_parse(command, options, separator, argv, &positional);
    if (code == PJ_PARSE_GO_ON && positional)
        code = pj_command_usage(command, "put -- before the command");
    if (separator + 1 < argc) a.words = argv + separator + 1;
    if (code == PJ_PARSE_GO_ON && a.apply && !a.words)
        code = pj_command_usage(command, "no command given: put it after --");
    if (code == PJ_PARSE_GO_ON && !a.apply && a.words)
        code = pj_command_usage(command, "measuring changes the limit: give --apply to permit it");
    return code == PJ_PARSE_GO_ON ? tune_start(command, &a) : code;
}

const pj_command pj_command_tune = {
    .name = "tune",
    .summary = "find the power limit or clock with the least joules per token",
    .run = run_tune,
    .usage = "[options] [--apply -- COMMAND...]",
    .text =
        "Without --apply it lists the power limits and clocks of this machine's devices, and changes "
        "nothing.\nWith --apply it runs COMMAND under several settings of one limit: NVIDIA GPUs "
        "(NVML), AMD\nGPUs (power1_cap), the CPU (RAPL, cpufreq). Setting a limit takes root. Each "
        "block has every\nsetting once, high and low ones in turn. Prefill and decode are judged "
        "apart: prefill is mostly\nlimited by arithmetic and loses speed with power, decode by "
        "memory. It states the cheapest setting\nthat loses at most --max-loss of the speed, and "
        "the commands that set and reset it.\nThe former limit is restored whatever happens to "
        "perjoule, kill -9 included, by a process that\noutlives it; only a kill of the whole "
        "control group or a reboot, which resets limits, ends that too.",
    .examples =
        "perjoule tune\n"
        "sudo perjoule tune --apply -- perjoule run -m MODEL -n 256 -f prompt.txt\n"
        "sudo perjoule tune --apply --device gpu0 --settings 200,250,300,350 -- ./serve-once\n",
};
