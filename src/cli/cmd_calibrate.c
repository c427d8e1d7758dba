/* perjoule calibrate: measures every component of a model in isolation, so that later runs can
 * separate components with any sensor. */
#include "cli/interrupt.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/stored.h"
#include "cli/terminal.h"

#include "generate/calibrate.h"
#include "generate/find_model.h"

#include <stdio.h>

typedef struct calibrate {
    const char *model, *dtype, *device;
    pj_session_options session;
    int64_t threads, context, rows, passes, seed;
    double seconds;
    bool json;
} calibrate;

static void show_block(void *context, pj_phase phase, const char *component, uint32_t done,
                       uint32_t of)
{
    if (pj_terminal_is(stderr))
        pj_live_line(stderr, "%u of %u  %s %s", done + 1, of, pj_phase_name(phase), component);
}

static pj_status calibrate_print_json(const pj_calibration *c, const char *path, pj_error *err)
{
    pj_json_out out;
    pj_json *json = pj_json_out_begin(&out);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "key", c->key);
    pj_json_kv_string(json, "file", path);
    pj_json_kv_array_begin(json, "classes");
    for (uint32_t i = 0; i < c->count; i++) {
        const pj_calibration_row *r = &c->rows[i];
        pj_json_object_begin(json);
        pj_json_kv_string(json, "phase", pj_phase_name(r->phase));
        pj_json_kv_string(json, "name", r->name);
        pj_json_kv_string(json, "rail", r->rail);
        pj_json_kv_double(json, "power_mw", r->power_mw);
        pj_json_kv_double(json, "power_sd_mw", r->sd_mw);
        pj_json_kv_bool(json, "unstable", r->unstable);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    pj_json_object_end(json);
    return pj_json_out_end(&out, PJ_OK, err);
}

static void calibrate_print_table(const pj_calibration *c, const char *path)
{
    pj_print(stdout, "%-8s  %-26s  %-8s  %10s  %8s\n", "phase", "component", "rail", "net power",
             "95 %");
    for (int phase = PJ_PHASE_PREFILL; phase <= PJ_PHASE_DECODE; phase++)
        for (uint32_t i = 0; i < c->count; i++) {
            const pj_calibration_row *r = &c->rows[i];
            char interval[32] = "";
            if (r->phase != (pj_phase)phase) continue;
            if (r->power_mw > 0)
                snprintf(interval, sizeof interval, "±%.1f %%", 196 * r->sd_mw / r->power_mw);
            pj_print(stdout, "%-8s  %-26s  %-8s  %10s  %9s%s\n", pj_phase_name(r->phase), r->name,
                     r->rail, pj_power_text(r->power_mw).s, interval,
                     r->unstable ? "  unstable: its passes differ" : "");
        }
    pj_print(stdout, "\nstored in %s; runs of this model on this machine use it from now on\n",
             path);
}

static int calibrate_measure(const pj_command *command, const calibrate *o)
{
    pj_session *session = NULL;
    pj_model_slot slot = {0};
    pj_calibration *calibration = NULL;
    char path[4096], model[4096];
    pj_error err = {0};
    pj_status status = pj_model_find(o->model, NULL, model, sizeof model, &err);
    if (status == PJ_OK) status = pj_stored_session(command, &o->session, &session, &err);
    if (status == PJ_OK)
        status = pj_calibrate(session, &slot,
                              &(pj_calibration_options){.engine = {.model = model,
                                                                   .dtype = o->dtype,
                                                                   .device = o->device,
                                                                   .threads = (uint32_t)o->threads,
                                                                   .no_tokenizer = true},
                                                        .seconds = o->seconds,
                                                        .passes = (uint32_t)o->passes,
                                                        .context = (uint32_t)o->context,
                                                        .rows = (uint32_t)o->rows,
                                                        .seed = (uint64_t)o->seed,
                                                        .cancel = &pj_interrupted,
                                                        .on_block = show_block},
                              &calibration, &err);
    if (pj_terminal_is(stderr)) fputs("\r\033[K", stderr);
    if (status == PJ_OK) status = pj_calibration_save(calibration, path, sizeof path, &err);
    if (status == PJ_OK && !o->json) calibrate_print_table(calibration, path);
    if (status == PJ_OK && o->json) status = calibrate_print_json(calibration, path, &err);
    if (status == PJ_OK && pj_engine_get_facts(slot.engine)->declined)
        pj_say("perjoule calibrate: the CPU computed: %s",
               pj_engine_get_facts(slot.engine)->declined);
    pj_free(calibration);
    pj_model_slot_close(&slot);
    pj_session_close(session);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

static int run_calibrate(const pj_command *command, int argc, char **argv)
{
    calibrate o = {.session = {.database = "none"},
                   .context = 128,
                   .rows = 128,
                   .passes = 2,
                   .seconds = 2,
                   .seed = 1};
    const pj_option options[] = {
        PJ_OPTION_MODEL(&o.model),
        PJ_OPTION_POWER(&o.session.power),
        PJ_OPTION_INTERVAL(&o.session.interval_ns, 0, "sampling interval"),
        PJ_OPTION_DTYPE(&o.dtype),
        PJ_OPTION_DEVICE(&o.device),
        {"threads", 't', PJ_OPTION_INT, &o.threads, "N", "threads (one per core)", 1, 256},
        {"seconds", 0, PJ_OPTION_DOUBLE, &o.seconds, "S", "seconds per component (2)", 0.05, 600},
        {"passes", 0, PJ_OPTION_INT, &o.passes, "N", "measurements of each component (2)", 1, 20},
        {"context", 0, PJ_OPTION_INT, &o.context, "N", "cached tokens in decode (128)", 1, 1000000},
        {"prompt", 0, PJ_OPTION_INT, &o.rows, "N", "tokens of a prefill pass (128)", 1, 65536},
        {"seed", 0, PJ_OPTION_INT, &o.seed, "N", "seed of the random order (1)", 0, 9e15},
        {"json", 0, PJ_OPTION_FLAG, &o.json, NULL, "print one JSON object"},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional == 1 && !o.model) o.model = argv[1], positional = 0;
    if (positional > 0) return pj_command_usage(command, "give one model");
    if (!o.model) return pj_command_usage(command, "name the model");
    pj_interrupt_catch();
    return calibrate_measure(command, &o);
}

const pj_command pj_command_calibrate = {
    .name = "calibrate",
    .summary = "measure each component on its own, so that runs can separate them",
    .run = run_calibrate,
    .usage = "[options] MODEL",
    .text =
        "Repeats each component of the model at its real shapes, rotating over the layers, long\n"
        "enough for the power sensor to see it alone: about a minute, once per machine, model,\n"
        "dtype and thread count. Later runs use the result as the prior of their attribution\n"
        "(method replay) and say so. Do not use the machine meanwhile.",
    .examples = "perjoule calibrate models/demo\n"
                "perjoule calibrate synthetic:llama-3.2-1b,bf16 --threads 2\n"
                "perjoule calibrate models/demo --power sim:preset=apple --seconds 0.5\n",
};
