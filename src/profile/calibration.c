/* Measuring, keeping and applying calibrations. Each pass over the components is a recorded run of
 * its own that is attributed like any other; passes are combined by their precision, and a
 * component whose passes disagree is marked and gets the interval that covers both. */
#include "profile/calibration.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "llm/calibrate.h"
#include "power/sim.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double LEAST_RELATIVE_SD = 0.001; /* silicon is not steadier than that */
static const double OPERATION_SD = 0.15;       /* of an operation around its component's power */

void pj_calibration_key(const pj_session *session, const pj_engine *engine, char *key, size_t bytes)
{
    const pj_engine_facts *f = pj_engine_get_facts(engine);
    const pj_model_config *c = f->config;
    uint32_t rails = 0;
    const pj_rail *rail = session->meter ? pj_meter_rails(session->meter, &rails) : NULL;
    const pj_sim_spec *sim = session->meter ? pj_meter_sim(session->meter) : NULL;
    int used =
        snprintf(key, bytes,
                 "machine %s; %s %ux%u heads %u/%u/%u mlp %u vocab %u experts %u/%u; %s kv %s; "
                 "%u threads; %s; sensors",
                 session->machine.fingerprint, f->architecture, c->layers, c->hidden, c->heads,
                 c->kv_heads, c->head_dim, c->intermediate, c->vocab, c->experts,
                 c->expert_intermediate, f->dtype, f->kv, f->threads, f->isa);
    for (uint32_t i = 0; i < rails && used > 0 && (size_t)used < bytes; i++)
        used += snprintf(key + used, bytes - (size_t)used, " %s=%s %s %s", rail[i].name,
                         rail[i].source, rail[i].device, rail[i].field);
    if (sim && used > 0 && (size_t)used < bytes)
        snprintf(key + used, bytes - (size_t)used, " sim seed %llu", (unsigned long long)sim->seed);
}

/* ---- files ----------------------------------------------------------------------------------- */

static pj_status path_of(const char *key, char *path, size_t bytes, pj_error *err)
{
    char data[PATH_MAX], name[64];
    pj_status status = pj_path_user_data(data, sizeof data, err);
    if (status != PJ_OK) return status;
    snprintf(name, sizeof name, "calibrations/%016llx.json",
             (unsigned long long)pj_hash64(0, key, strlen(key)));
    return pj_path_join(path, bytes, data, name)
               ? PJ_OK
               : pj_fail(err, PJ_E_INVALID, "the path of the user's data folder is too long");
}

pj_status pj_calibration_save(const pj_calibration *calibration, char *path, size_t bytes,
                              pj_error *err)
{
    pj_buffer buffer;
    pj_json json;
    char created[32], folder[PATH_MAX];
    pj_status status = path_of(calibration->key, path, bytes, err);
    if (status != PJ_OK) return status;
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    status = pj_dir_make(folder, err);
    if (status != PJ_OK) return status;
    pj_clock_format_iso(calibration->created_wall_ns, created);
    pj_buffer_init(&buffer, 4 << 20);
    pj_json_init(&json, &buffer);
    pj_json_object_begin(&json);
    pj_json_kv_int(&json, "version", 1);
    pj_json_kv_string(&json, "key", calibration->key);
    pj_json_kv_string(&json, "created_at", created);
    pj_json_key(&json, "classes");
    pj_json_array_begin(&json);
    for (uint32_t i = 0; i < calibration->count; i++) {
        const pj_calibration_row *r = &calibration->rows[i];
        pj_json_object_begin(&json);
        pj_json_kv_string(&json, "name", r->name);
        pj_json_kv_string(&json, "phase", pj_phase_name(r->phase));
        pj_json_kv_string(&json, "rail", r->rail);
        pj_json_kv_double(&json, "power_mw", r->power_mw);
        pj_json_kv_double(&json, "sd_mw", r->sd_mw);
        pj_json_kv_bool(&json, "unstable", r->unstable);
        pj_json_object_end(&json);
    }
    pj_json_array_end(&json);
    pj_json_object_end(&json);
    status = pj_json_finish(&json) ? pj_file_write(path, buffer.data, buffer.length, err)
                                   : pj_fail_memory(err, "a calibration");
    pj_buffer_fini(&buffer);
    return status;
}

static bool read_row(const json_t *object, pj_calibration_row *row)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    const char *rail = json_string_value(json_object_get(object, "rail"));
    const char *phase = json_string_value(json_object_get(object, "phase"));
    const json_t *power = json_object_get(object, "power_mw"),
                 *sd = json_object_get(object, "sd_mw");
    if (!name || !rail || !phase || !json_is_number(power) || !json_is_number(sd)) return false;
    *row = (pj_calibration_row){.phase = PJ_PHASE_COUNT,
                                .power_mw = json_number_value(power),
                                .sd_mw = json_number_value(sd),
                                .unstable = json_is_true(json_object_get(object, "unstable"))};
    snprintf(row->name, sizeof row->name, "%s", name);
    snprintf(row->rail, sizeof row->rail, "%s", rail);
    for (int p = 0; p < PJ_PHASE_COUNT; p++)
        if (strcmp(pj_phase_name((pj_phase)p), phase) == 0) row->phase = (pj_phase)p;
    return row->phase != PJ_PHASE_COUNT && row->power_mw >= 0 && row->sd_mw > 0 &&
           isfinite(row->power_mw) && isfinite(row->sd_mw);
}

pj_status pj_calibration_load(const char *key, pj_calibration **calibration, pj_error *err)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes;
    *calibration = NULL;
    pj_status status = path_of(key, path, sizeof path, err);
    if (status == PJ_OK && !pj_file_exists(path))
        return pj_fail(err, PJ_E_NOT_FOUND, "there is no calibration for this model and machine");
    if (status == PJ_OK) status = pj_file_read(path, 4 << 20, &text, &bytes, err);
    if (status != PJ_OK) return status;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    const json_t *rows = json_object_get(root, "classes");
    const char *kept = json_string_value(json_object_get(root, "key"));
    pj_calibration *c = pj_alloc(1, sizeof *c);
    if (!c)
        status = pj_fail_memory(err, "a calibration");
    else if (!kept || strcmp(kept, key) != 0 || !json_is_array(rows))
        status = pj_fail(err, PJ_E_INVALID,
                         "%s is not a calibration of this model and machine; "
                         "delete it and calibrate again",
                         path);
    for (size_t i = 0; status == PJ_OK && i < json_array_size(rows); i++) {
        if (c->count < PJ_CALIBRATION_MAX_ROWS &&
            read_row(json_array_get(rows, i), &c->rows[c->count]))
            c->count++;
        else
            status = pj_fail(err, PJ_E_INVALID,
                             "%s: row %zu is damaged; delete the file and "
                             "calibrate again",
                             path, i);
    }
    if (status == PJ_OK) {
        const char *created = json_string_value(json_object_get(root, "created_at"));
        snprintf(c->key, sizeof c->key, "%s", key);
        if (created) pj_clock_parse_iso(created, &c->created_wall_ns);
        *calibration = c;
    } else {
        pj_free(c);
    }
    json_decref(root);
    pj_free(text);
    return status;
}

/* ---- use ------------------------------------------------------------------------------------- */

static const pj_calibration_row *find(const pj_calibration *c, const char *rail, const char *name,
                                      size_t length, pj_phase phase)
{
    for (uint32_t i = 0; i < c->count; i++) {
        const pj_calibration_row *r = &c->rows[i];
        if (r->phase == phase && strcmp(r->rail, rail) == 0 && strlen(r->name) == length &&
            strncmp(r->name, name, length) == 0)
            return r;
    }
    return NULL;
}

bool pj_calibration_prior(void *context, const pj_rail *rail, const char *class_name,
                          pj_phase phase, double *power_mw, double *sd_mw)
{
    const pj_calibration *c = context;
    size_t length = strlen(class_name), component = strcspn(class_name, "/");
    const pj_calibration_row *row = find(c, rail->name, class_name, length, phase);
    bool whole = row != NULL;
    if (!row && component < length) row = find(c, rail->name, class_name, component, phase);
    if (!row) return false;
    *power_mw = row->power_mw;
    *sd_mw = whole ? row->sd_mw : hypot(row->sd_mw, OPERATION_SD * row->power_mw);
    return true;
}

/* ---- measuring --------------------------------------------------------------------------------
 */

static pj_calibration_row *row_for(pj_calibration *c, const char *rail, const char *name,
                                   pj_phase phase)
{
    pj_calibration_row *row =
        (pj_calibration_row *)(uintptr_t)find(c, rail, name, strlen(name), phase);
    if (row || c->count == PJ_CALIBRATION_MAX_ROWS || strlen(name) >= sizeof row->name) return row;
    row = &c->rows[c->count++];
    *row = (pj_calibration_row){.phase = phase, .power_mw = NAN};
    snprintf(row->name, sizeof row->name, "%s", name);
    snprintf(row->rail, sizeof row->rail, "%s", rail);
    return row;
}

/* As pj_build_options.observe has it: one class's power as one pass found it. */
static void observe(void *context, const pj_rail *rail, const char *class_name, pj_phase phase,
                    double power_mw, double sd_mw)
{
    if ((phase != PJ_PHASE_DECODE && phase != PJ_PHASE_PREFILL) || class_name[0] == '(' ||
        !(sd_mw >= 0))
        return;
    pj_calibration_row *r = row_for(context, rail->name, class_name, phase);
    if (!r) return;
    sd_mw = fmax(sd_mw, LEAST_RELATIVE_SD * power_mw);
    if (!(sd_mw > 0)) sd_mw = 1;
    if (isnan(r->power_mw)) {
        r->power_mw = power_mw;
        r->sd_mw = sd_mw;
        return;
    }
    double difference = fabs(power_mw - r->power_mw), expected = 1.96 * hypot(sd_mw, r->sd_mw);
    double a = 1 / (r->sd_mw * r->sd_mw), b = 1 / (sd_mw * sd_mw);
    r->power_mw = (a * r->power_mw + b * power_mw) / (a + b);
    r->sd_mw = fmax(sqrt(1 / (a + b)), LEAST_RELATIVE_SD * r->power_mw);
    if (difference > expected) {
        r->unstable = true;
        r->sd_mw = fmax(r->sd_mw, difference / 2);
    }
}

static pj_status run_pass(pj_session *session, pj_model_slot *slot, const pj_calibration_options *o,
                          uint32_t pass, pj_calibration *c, pj_error *err)
{
    pj_run *run;
    pj_run_data data = {0};
    uint32_t passes = o->passes ? o->passes : 2;
    pj_run_options options = {.prompt = "",
                              .model_name = "calibration",
                              .model_path = o->engine.model,
                              .engine = "perjoule",
                              .depth = PJ_DEPTH_MODULE};
    pj_status status = pj_run_begin(session, &options, &run, err);
    if (status != PJ_OK) return status;
    pj_calibrate_request request = {.run = run,
                                    .block_ns =
                                        (int64_t)((o->seconds > 0 ? o->seconds : 2) / passes * 1e9),
                                    .gap_ns = 150 * PJ_NS_PER_MS,
                                    .passes = 1,
                                    .context = o->context ? o->context : 128,
                                    .prefill_rows = o->rows ? o->rows : 128,
                                    .seed = o->seed + pass,
                                    .cancel = o->cancel,
                                    .on_block = o->on_block,
                                    .context_of_block = o->context_of_block};
    status = pj_engine_calibrate(slot->engine, &request, err);
    session->observe = status == PJ_OK ? observe : NULL;
    session->observe_context = c;
    pj_error storing = {0};
    pj_status built = pj_run_finish(run, status == PJ_OK ? PJ_RUN_COMPLETED : PJ_RUN_CANCELLED,
                                    NULL, &data, &storing);
    session->observe = NULL;
    pj_run_data_fini(&data);
    if (status == PJ_OK && built != PJ_OK) {
        status = built;
        if (err) *err = storing;
    }
    return status;
}

pj_status pj_calibrate(pj_session *session, pj_model_slot *slot, const pj_calibration_options *o,
                       pj_calibration **calibration, pj_error *err)
{
    uint32_t rails = 0, estimated = 0;
    *calibration = NULL;
    const pj_rail *rail = session->meter ? pj_meter_rails(session->meter, &rails) : NULL;
    for (uint32_t i = 0; i < rails; i++) estimated += strcmp(rail[i].source, "estimate") == 0;
    if (rails > 0 && estimated == rails)
        return pj_fail(
            err, PJ_E_UNAVAILABLE,
            "a calibration needs a power sensor: `estimate` only models power, and would "
            "be calibrated on itself");
    if (rails == 0)
        return pj_fail(err, PJ_E_UNAVAILABLE, "a calibration needs a power sensor%s%s",
                       session->meter ? ": " : "; --power none measures nothing",
                       session->meter ? pj_meter_remedy(session->meter) : "");
    pj_status status = pj_model_slot_open(slot, &o->engine, err);
    if (status != PJ_OK) return status;
    pj_calibration *c = pj_alloc(1, sizeof *c);
    if (!c) return pj_fail_memory(err, "a calibration");
    c->created_wall_ns = pj_clock_wall_ns();
    pj_calibration_key(session, slot->engine, c->key, sizeof c->key);
    pj_session_baseline(session, PJ_BASELINE_RESIDENT, NULL); /* without one powers are gross */
    uint32_t passes = o->passes ? o->passes : 2;
    for (uint32_t pass = 0; pass < passes && status == PJ_OK; pass++)
        status = run_pass(session, slot, o, pass, c, err);
    if (status == PJ_OK && c->count == 0)
        status =
            pj_fail(err, PJ_E_UNAVAILABLE,
                    "the sensor gave no reading while the components ran; see: perjoule sensors");
    if (status == PJ_OK)
        *calibration = c;
    else
        pj_free(c);
    return status;
}
