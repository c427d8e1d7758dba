/* Measuring a command under each setting of a limit. */
#include "cli/gate_runs_impl.h"
#include "cli/interrupt.h"
#include "cli/tune.h"

#include <math.h>
#include <string.h>

static const double least_share = 0.4; /* of the highest: below it, speed collapses */

void pj_tune_settings(pj_tune *t, uint32_t count)
{
    const pj_limit *l = t->limit;
    double unit = l->what == PJ_LIMIT_POWER ? 1e3 : 1; /* whole watts, whole megahertz */
    double most = fmax(l->now, l->usual);
    if (isnan(most) || most > l->most) most = l->most;
    double least = fmax(l->least, least_share * most);
    t->setting_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        double value = least + (most - least) * i / (count - 1);
        value = i + 1 == count ? most : ceil(value / unit) * unit;
        if (t->setting_count && value <= t->settings[t->setting_count - 1]) continue;
        t->settings[t->setting_count++] = value;
    }
}

static void note(pj_tune *t, pj_tune_part part, uint32_t setting, uint32_t block, double joules,
                 double speed)
{
    t->parts[part].joules[setting][block] = joules;
    t->parts[part].speed[setting][block] = speed;
}

static void note_run(pj_tune *t, uint32_t setting, uint32_t block, const pj_gate_run *run)
{
    t->tokens = run->joules[PJ_GATE_TOKEN] > 0;
    note(t, PJ_TUNE_PREFILL, setting, block, run->prefill_joules, run->prefill_speed);
    note(t, PJ_TUNE_DECODE, setting, block, run->decode_joules, run->decode_speed);
    if (t->tokens)
        note(t, PJ_TUNE_REQUEST, setting, block, run->joules[PJ_GATE_TOKEN],
             run->output_tokens * 1e3 / run->request_ms);
    else
        note(t, PJ_TUNE_REQUEST, setting, block, run->joules[PJ_GATE_RUN], 1e3 / run->total_ms);
}

static pj_status measure_setting(pj_tune *t, const pj_gate_command *command, bool warm_up,
                                 uint32_t setting, uint32_t block, pj_error *err)
{
    pj_gate_run run;
    pj_status status = pj_limit_set(t->limits, t->limit, t->settings[setting], err);
    /* the first run under a limit includes the change of power and temperature */
    if (status == PJ_OK && warm_up) status = pj_gate_run_once(command, NULL, err);
    if (status == PJ_OK) status = pj_gate_run_once(command, &run, err);
    if (status == PJ_OK) status = pj_gate_add(&t->runs, &run, err);
    if (status == PJ_OK && pj_interrupted) status = pj_fail(err, PJ_E_CANCELLED, "interrupted");
    if (status != PJ_OK) return status;
    note_run(t, setting, block, &run);
    pj_say("block %u of %u, %s: %s %s", block + 1, t->block_count,
           pj_tune_setting_text(t->limit, t->settings[setting]).s,
           pj_energy_text(1e3 * t->parts[PJ_TUNE_REQUEST].joules[setting][block]).s,
           t->tokens ? "per token" : "per run");
    return PJ_OK;
}

pj_status pj_tune_sweep(pj_tune *t, const pj_gate_command *command, bool warm_up, pj_error *err)
{
    uint32_t order[PJ_SWEEP_SETTINGS];
    pj_status status = PJ_OK;
    for (int part = 0; part < PJ_TUNE_PARTS; part++) {
        t->parts[part].settings = t->setting_count;
        t->parts[part].blocks = t->block_count;
        memcpy(t->parts[part].setting, t->settings, sizeof t->settings);
    }
    for (uint32_t block = 0; block < t->block_count && status == PJ_OK; block++) {
        pj_sweep_order(t->setting_count, block, order);
        for (uint32_t i = 0; i < t->setting_count && status == PJ_OK; i++)
            status = measure_setting(t, command, warm_up, order[i], block, err);
    }
    for (int part = 0; part < PJ_TUNE_PARTS && status == PJ_OK; part++)
        pj_sweep_judge(&t->parts[part], t->most_loss, &t->results[part]);
    return status;
}
