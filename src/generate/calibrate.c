/* Measuring a calibration. Each pass over the components is a recorded run that is attributed like
 * any other; passes are combined by their precision, and a component whose passes disagree is
 * marked and gets an interval that covers both. */
#include "generate/calibrate.h"

#include "base/clock.h"
#include "base/memory.h"
#include "engine/generation/calibrate.h"
#include "power/sim.h"
#include "power/source.h"
#include "record/run.h"

#include <math.h>
#include <stdio.h>

static const double LEAST_RELATIVE_SD =
    0.001; /* lower bound of the spread: no hardware is more stable */

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
    for (int i = 0; f->device_key && i < 16 && used > 0 && (size_t)used < bytes; i++)
        used += snprintf(key + used, bytes - (size_t)used, "%s%02x", i ? "" : " of device ",
                         f->device_key[i]);
    for (uint32_t i = 0; i < rails && used > 0 && (size_t)used < bytes; i++)
        used += snprintf(key + used, bytes - (size_t)used, " %s=%s %s %s", rail[i].name,
                         rail[i].source, rail[i].device, rail[i].field);
    if (sim && used > 0 && (size_t)used < bytes)
        snprintf(key + used, bytes - (size_t)used, " sim seed %llu", (unsigned long long)sim->seed);
}

/* A pj_build_options.observe callback: the power of one class in one pass. */
static void observe(void *context, const pj_rail *rail, const char *class_name, pj_phase phase,
                    double power_mw, double sd_mw)
{
    if ((phase != PJ_PHASE_DECODE && phase != PJ_PHASE_PREFILL) || class_name[0] == '(' ||
        !(sd_mw >= 0))
        return;
    pj_calibration_row *r = pj_calibration_row_for(context, rail->name, class_name, phase);
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
    pj_model_slot_check(slot, status);
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
    for (uint32_t i = 0; i < rails; i++) estimated += pj_rail_is_model(&rail[i]);
    if (rails > 0 && estimated == rails)
        return pj_fail(err, PJ_E_UNAVAILABLE,
                       "a calibration needs a power sensor: `estimate` only models power and would "
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
    pj_session_baseline(session, PJ_BASELINE_RESIDENT,
                        NULL); /* without a baseline powers are gross */
    uint32_t passes = o->passes ? o->passes : 2;
    for (uint32_t pass = 0; pass < passes && status == PJ_OK; pass++)
        status = run_pass(session, slot, o, pass, c, err);
    if (status == PJ_OK && c->count == 0)
        status = pj_fail(
            err, PJ_E_UNAVAILABLE,
            "the sensor returned no reading while the components ran; see: perjoule sensors");
    if (status == PJ_OK)
        *calibration = c;
    else
        pj_free(c);
    return status;
}
