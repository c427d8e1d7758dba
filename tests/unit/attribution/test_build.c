/* From a spool to a finished run: rows, nesting, gaps, batches, device spans, what clients leave
 * out, cut spools, energies that add up at every level, phase tags. Spans are written with times
 * of the test's choosing, so that every expectation is exact. */
#include "../sanitized.h"
#include "attribution/build.h"
#include "base/clock.h"
#include "trace/run_json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* ---- writing a spool by hand --------------------------------------------------------------- */

enum { LAYERS_NAME = 1, Q_PROJ, ATTENTION, DOWN_PROJ, SOFTMAX, QK_MATMUL, SAMPLING, ENTROPY };

static const char *const names[] = {NULL,      "layers",    "q_proj",   "attention", "down_proj",
                                    "softmax", "qk_matmul", "sampling", "entropy"};

typedef struct writer {
    pj_spool spool;
    uint32_t serial;
} writer;

static void put_json(writer *w, pj_record_type type, pj_buffer *buffer)
{
    assert_int_equal(pj_spool_append(&w->spool, type, buffer->data, buffer->length, NULL), PJ_OK);
    pj_buffer_fini(buffer);
}

static void open_spool(writer *w)
{
    pj_buffer buffer;
    pj_json json;
    pj_run_info info = {.id = "01890000-0000-7000-8000-000000000000",
                        .prompt = "p",
                        .depth = PJ_DEPTH_DEEP,
                        .batch_size = 1,
                        .quality = PJ_MODELLED};
    *w = (writer){0};
    assert_int_equal(pj_spool_create(NULL, "test", 1, 2, &w->spool, NULL), PJ_OK);
    pj_buffer_init(&buffer, 1 << 20);
    pj_json_init(&json, &buffer);
    pj_run_info_write(&json, &info, 1000);
    put_json(w, PJ_RECORD_INFO, &buffer);
    for (uint32_t id = 1; id < sizeof names / sizeof *names; id++) {
        char payload[64];
        memcpy(payload, &id, 4);
        memcpy(payload + 4, names[id], strlen(names[id]));
        pj_spool_append(&w->spool, PJ_RECORD_NAME, payload, 4 + strlen(names[id]), NULL);
    }
}

static void put_end(writer *w, int64_t at_ns)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1 << 20);
    pj_json_init(&json, &buffer);
    pj_run_end_write(&json, at_ns, PJ_RUN_COMPLETED);
    put_json(w, PJ_RECORD_END, &buffer);
}

static pj_span make(pj_span_kind kind, uint32_t id, pj_phase phase, int32_t token, int32_t layer,
                    int64_t begin, int64_t end)
{
    return (pj_span){.begin_ns = begin,
                     .end_ns = end,
                     .flops = NAN,
                     .bytes = NAN,
                     .id = id,
                     .token = token,
                     .layer = (int16_t)layer,
                     .kind = (uint8_t)kind,
                     .phase = (uint8_t)phase};
}

static void put_span(writer *w, pj_span span, uint32_t serial)
{
    span.serial = serial;
    assert_int_equal(pj_spool_append(&w->spool, PJ_RECORD_SPAN, &span, sizeof span, NULL), PJ_OK);
}

static void put_begin(writer *w, pj_span span, uint32_t serial)
{
    span.serial = serial;
    span.end_ns = 0;
    pj_spool_append(&w->spool, PJ_RECORD_SPAN_BEGIN, &span, sizeof span, NULL);
}

static void put_text(writer *w, uint32_t serial, uint32_t sequence, int32_t id, const char *text)
{
    char payload[64];
    pj_token_text_record head = {serial, 0, sequence, id};
    memcpy(payload, &head, sizeof head);
    memcpy(payload + sizeof head, text, strlen(text));
    pj_spool_append(&w->spool, PJ_RECORD_TOKEN_TEXT, payload, sizeof head + strlen(text), NULL);
}

/* A run from 1 000 to 10 001 000 ns: prefill of one token, decode of `steps`, two layers each.
 * Serial numbers are given at begin, records are written at end, as the recorder does. */
static void put_run(writer *w, int steps, uint32_t sequences)
{
    int64_t t = 1000, each = 10000000 / (steps + 1);
    for (int step = 0; step <= steps; step++) {
        pj_phase phase = step ? PJ_PHASE_DECODE : PJ_PHASE_PREFILL;
        int64_t begin = 1000 + step * each, end = begin + each;
        uint32_t phase_serial = 0;
        if (step < 2) {
            phase_serial = w->serial++;
            put_begin(w, make(PJ_SPAN_PHASE, phase, PJ_PHASE_IDLE, -1, -1, begin, 0), phase_serial);
        }
        uint32_t token_serial = w->serial++;
        put_begin(w, make(PJ_SPAN_TOKEN, (uint32_t)step, phase, -1, -1, begin, 0), token_serial);
        t = begin + each / 10; /* a gap at the begin */
        for (int layer = 0; layer < 2; layer++) {
            int64_t part = each / 10;
            uint32_t layer_serial = w->serial++, q = w->serial++;
            put_span(w, make(PJ_SPAN_COMPONENT, Q_PROJ, phase, step, layer, t, t + part), q);
            uint32_t attention = w->serial++, op = w->serial++;
            pj_span inner =
                make(PJ_SPAN_OPERATION, QK_MATMUL, phase, step, layer, t + part, t + 2 * part);
            inner.component = ATTENTION;
            put_span(w, inner, op);
            put_span(w,
                     make(PJ_SPAN_COMPONENT, ATTENTION, phase, step, layer, t + part, t + 3 * part),
                     attention); /* the last third is its own */
            put_span(
                w,
                make(PJ_SPAN_COMPONENT, DOWN_PROJ, phase, step, layer, t + 3 * part, t + 4 * part),
                w->serial++);
            put_span(w, make(PJ_SPAN_LAYER, (uint32_t)layer, phase, step, -1, t, t + 4 * part),
                     layer_serial);
            t += 4 * part;
        }
        for (uint32_t s = 0; s < sequences; s++)
            put_text(w, token_serial, s, 100 + step, step ? "b" : "a");
        put_span(w, make(PJ_SPAN_TOKEN, (uint32_t)step, phase, -1, -1, begin, end), token_serial);
        if (step == 0 || step == steps)
            put_span(w, make(PJ_SPAN_PHASE, phase, phase, -1, -1, step ? 1000 + each : begin, end),
                     step ? 1 + 1 + 10 : phase_serial);
    }
}

static pj_status build(writer *w, const pj_sim_spec *sim, pj_run_data *data)
{
    pj_spool_reader reader;
    pj_error err = {0};
    pj_status status = pj_spool_flush(&w->spool, &err);
    if (status == PJ_OK) status = pj_spool_reader_of(&w->spool, &reader, &err);
    if (status != PJ_OK) return status;
    status = pj_build_run(&reader, &(pj_build_options){.sim = sim}, data, &err);
    pj_spool_reader_close(&reader);
    return status;
}

/* ---- energies add up ----------------------------------------------------------------------- */

static void add(int64_t *sums, uint32_t index, uint32_t count, int64_t value)
{
    assert_true(index < count);
    sums[index] += value;
}

/* A token is what its sections keep to themselves, its layers and its components outside them; a
 * phase is its tokens and the sections outside them. Rows of a batch's step count as one. */
static void assert_tokens_and_phases_conserved(const pj_run_data *d)
{
    int64_t *token = calloc(d->token_count + 1, 8), *phase = calloc(d->phase_count + 1, 8);
    for (uint32_t i = 0; i < d->section_count; i++) {
        const pj_section_row *s = &d->sections[i];
        uint32_t step = pj_step_of(s->token, s->step);
        bool inside = step != PJ_NO_PARENT;
        add(inside ? token : phase, inside ? step : s->phase,
            inside ? d->token_count : d->phase_count, s->energy.self_nj);
    }
    for (uint32_t i = 0; i < d->layer_count; i++)
        add(token, pj_step_of(d->layers[i].token, d->layers[i].step), d->token_count,
            d->layers[i].energy.gross_nj);
    for (uint32_t i = 0; i < d->component_count; i++) {
        const pj_component_row *c = &d->components[i];
        if (c->layer != PJ_NO_PARENT) continue;
        if (pj_step_of(c->token, c->step) != PJ_NO_PARENT) {
            add(token, pj_step_of(c->token, c->step), d->token_count, c->energy.gross_nj);
            continue;
        }
        assert_true(c->section < d->section_count);
        add(phase, d->sections[c->section].phase, d->phase_count, c->energy.gross_nj);
    }
    int64_t parts = 0, whole = 0;
    for (uint32_t i = 0; i < d->token_count; i++) {
        const pj_token_row *t = &d->tokens[i];
        parts += token[i] + t->energy.self_nj;
        whole += t->energy.gross_nj;
        add(phase, t->phase, d->phase_count, t->energy.gross_nj);
        if (i + 1 < d->token_count && d->tokens[i + 1].sequence > t->sequence) continue;
        assert_int_equal(parts, whole);
        parts = whole = 0;
    }
    for (uint32_t i = 0; i < d->phase_count; i++)
        assert_int_equal(phase[i] + d->phases[i].energy.self_nj, d->phases[i].energy.gross_nj);
    free(token);
    free(phase);
}

/* children + self = parent, to the nanojoule, at every level. */
static void assert_conserved(const pj_run_data *d)
{
    int64_t *component = calloc(d->component_count + 1, 8), *layer = calloc(d->layer_count + 1, 8);
    int64_t run = 0;
    for (uint32_t i = 0; i < d->operation_count; i++)
        add(component, d->operations[i].component, d->component_count,
            d->operations[i].energy.gross_nj);
    for (uint32_t i = 0; i < d->component_count; i++) {
        assert_int_equal(component[i] + d->components[i].energy.self_nj,
                         d->components[i].energy.gross_nj);
        if (d->components[i].layer != PJ_NO_PARENT)
            add(layer, d->components[i].layer, d->layer_count, d->components[i].energy.gross_nj);
    }
    for (uint32_t i = 0; i < d->layer_count; i++)
        assert_int_equal(layer[i] + d->layers[i].energy.self_nj, d->layers[i].energy.gross_nj);
    if (isnan(d->info.total_mj)) { /* nothing was recorded yet */
        free(component);
        free(layer);
        return;
    }
    assert_tokens_and_phases_conserved(d);
    for (uint32_t i = 0; i < d->phase_count; i++) run += d->phases[i].energy.gross_nj;
    assert_true(fabs((double)run * 1e-6 - d->info.total_mj) <= 1e-9 * d->info.total_mj);
    free(component);
    free(layer);
}

static void put_rails(writer *w, const pj_sim_spec *sim)
{
    pj_rail rails[PJ_SIM_MAX_RAILS];
    uint32_t count = pj_sim_rails(sim, rails, PJ_SIM_MAX_RAILS);
    for (uint32_t i = 0; i < count; i++) {
        pj_buffer buffer;
        pj_json json;
        pj_buffer_init(&buffer, 1 << 20);
        pj_json_init(&json, &buffer);
        pj_rail_write(&json, i, &rails[i], 10000.0 / count, 10.0 / count);
        put_json(w, PJ_RECORD_RAIL, &buffer);
    }
}

static void put_rail(writer *w, const pj_sim_spec *sim)
{
    put_rails(w, sim);
}

/* A spool whose one rail is simulated as `text` says. */
static void begin_run(writer *w, pj_sim_spec *sim, const char *text)
{
    pj_sim_parse(text, sim, NULL);
    open_spool(w);
    put_rail(w, sim);
}

static void end_run(writer *w, pj_run_data *data)
{
    pj_run_data_fini(data);
    pj_spool_close(&w->spool, true);
}

/* ---- tests --------------------------------------------------------------------------------- */

static void rows_hang_together(void **state)
{
    writer w;
    pj_run_data d;
    open_spool(&w);
    put_run(&w, 4, 1);
    put_end(&w, 10001000);
    assert_int_equal(build(&w, NULL, &d), PJ_OK);
    assert_int_equal(d.info.status, PJ_RUN_COMPLETED);
    assert_int_equal(d.phase_count, 2);
    assert_int_equal(d.token_count, 5);
    assert_int_equal(d.layer_count, 10);
    assert_int_equal(d.component_count, 30);
    assert_int_equal(d.operation_count, 10);
    assert_string_equal(d.info.output_text, "abbbb");
    assert_true(fabs(d.info.total_ms - 10) < 1e-9);
    assert_true(fabs(d.info.prefill_ms - 2) < 1e-9 && fabs(d.info.decode_ms - 8) < 1e-9);
    assert_true(isnan(d.info.total_mj));
    assert_int_equal(d.info.quality, PJ_UNAVAILABLE);
    for (uint32_t i = 0; i < d.component_count; i++) {
        const pj_component_row *c = &d.components[i];
        assert_true(c->energy.gross_nj == PJ_NJ_UNKNOWN);
        assert_int_equal(d.layers[c->layer].token, c->token);
        const pj_token_row *token = &d.tokens[c->token];
        assert_true(c->start_ms >= token->start_ms &&
                    c->start_ms + c->duration_ms <= token->start_ms + token->duration_ms + 1e-9);
        assert_int_equal(d.phases[token->phase].phase,
                         token->position ? PJ_PHASE_DECODE : PJ_PHASE_PREFILL);
    }
    for (uint32_t i = 0; i < d.operation_count; i++)
        assert_string_equal(d.components[d.operations[i].component].name, "attention");
    /* attention 0.4 ms and q_proj 0.2 ms of each layer, down_proj 0.2 ms. */
    assert_true(fabs(d.layers[0].attention_ms - .6) < 1e-9 && fabs(d.layers[0].mlp_ms - .2) < 1e-9);
    pj_run_data_fini(&d);
    end_run(&w, &d);
}

static void simulated_energy_is_conserved_and_right(void **state)
{
    const char *const sensors[] = {"period_ms=0.1,phase_ms=0,noise=0,resolution_mj=0.000001",
                                   "kind=power,period_ms=1,noise=0.01", "kind=power,period_ms=30"};
    for (int k = 0; k < 3; k++) {
        writer w;
        pj_run_data d;
        pj_sim_spec sim;
        assert_int_equal(pj_sim_parse(sensors[k], &sim, NULL), PJ_OK);
        open_spool(&w);
        put_rail(&w, &sim);
        put_run(&w, 40, 1);
        put_end(&w, 10001000);
        assert_int_equal(build(&w, &sim, &d), PJ_OK);
        assert_conserved(&d);
        double truth = 0, found = 0;
        for (uint32_t i = 0; i < d.component_count; i++)
            truth += pj_mj_of_nj(d.components[i].energy.planted_nj);
        for (uint32_t i = 0; i < d.phase_count; i++)
            found += pj_mj_of_nj(d.phases[i].energy.planted_nj);
        assert_true(truth > 0 && found > truth);
        if (k == 0) { /* a fine counter without noise finds the components */
            assert_true(fabs(d.info.total_mj - found) < 1e-3 * found);
            for (uint32_t i = 0; i < d.component_count; i++) {
                const pj_energy *e = &d.components[i].energy;
                if (d.components[i].token == 0) continue; /* prefill: one token, no evidence */
                assert_true(llabs(e->gross_nj - e->planted_nj) < e->planted_nj / 20);
            }
        }
        uint32_t covered = 0;
        for (uint32_t i = 0; i < d.component_count; i++) {
            const pj_energy *e = &d.components[i].energy;
            covered += fabs(pj_mj_of_nj(e->gross_nj - e->planted_nj)) <= 1.96 * (double)e->sd_mj;
        }
        assert_true(covered >= 0.9 * d.component_count); /* each with its window's own noise */
        for (uint32_t i = 0; i < d.token_count; i++) assert_false(isnan(d.tokens[i].power_mw));
        pj_run_data_fini(&d);
        pj_spool_close(&w.spool, true);
    }
}

/* `--interval` made samples twenty times as long as the sensor's own: the same energy
 * in a twentieth of the samples. */
static void a_simulation_keeps_the_interval_asked_for(void **state)
{
    uint32_t samples_of[2];
    for (int coarse = 0; coarse < 2; coarse++) {
        writer w;
        pj_run_data d;
        pj_sim_spec sim, samples;
        assert_int_equal(pj_sim_parse("kind=power,period_ms=0.1,noise=0.001", &sim, NULL), PJ_OK);
        samples = sim;
        if (coarse) samples.period_ns *= 20;
        open_spool(&w);
        put_rail(&w, &samples);
        put_run(&w, 40, 1);
        put_end(&w, 10001000);
        assert_int_equal(build(&w, &sim, &d), PJ_OK);
        assert_conserved(&d);
        double truth = 0;
        for (uint32_t i = 0; i < d.phase_count; i++)
            truth += pj_mj_of_nj(d.phases[i].energy.planted_nj);
        assert_true(fabs(d.info.total_mj - truth) < 0.02 * truth);
        samples_of[coarse] = d.samples.count;
        pj_run_data_fini(&d);
        pj_spool_close(&w.spool, true);
    }
    assert_in_range(samples_of[0], 95, 101);
    assert_in_range(samples_of[1], 4, 6);
}

/* A sensor that samples 25 ms of every 100, none of them within the run, has no information about
 * it; one that integrates continuously does. */
static void what_no_window_saw_is_unavailable(void **state)
{
    static const char *const sensors[] = {
        "kind=power,period_ms=100,window_ms=25,phase_ms=90,noise=0.005",
        "kind=power,period_ms=1,noise=0.005"};
    for (int k = 0; k < 2; k++) {
        writer w;
        pj_run_data d;
        pj_sim_spec sim;
        assert_int_equal(pj_sim_parse(sensors[k], &sim, NULL), PJ_OK);
        open_spool(&w);
        put_rail(&w, &sim);
        put_run(&w, 4, 1);
        put_end(&w, 10001000);
        assert_int_equal(build(&w, &sim, &d), PJ_OK);
        if (k == 0) {
            assert_true(isnan(d.info.total_mj));
            assert_int_equal(d.info.absence, PJ_ABSENT_BELOW_RESOLUTION);
            assert_int_equal(d.info.quality, PJ_UNAVAILABLE);
            for (uint32_t i = 0; i < d.token_count; i++) {
                assert_true(d.tokens[i].energy.gross_nj == PJ_NJ_UNKNOWN);
                assert_int_equal(d.tokens[i].energy.absence, PJ_ABSENT_BELOW_RESOLUTION);
            }
            for (uint32_t i = 0; i < d.rail_energy_count; i++)
                assert_true(isnan(d.rail_energy[i].gross_mj));
            bool told = false;
            for (uint32_t i = 0; i < d.warning_count; i++)
                told |= strcmp(d.warnings[i].code, "below_resolution") == 0;
            assert_true(told);
        } else {
            double rail_sd = NAN;
            for (uint32_t i = 0; i < d.rail_energy_count; i++)
                if (d.rail_energy[i].phase == PJ_PHASE_COUNT) rail_sd = d.rail_energy[i].sd_mj;
            assert_int_equal(d.info.absence, PJ_ABSENT_NOT);
            /* one rail: its figure is the run's, with the same standard deviation */
            assert_true(fabs(rail_sd / d.info.total_sd_mj - 1) < 1e-5);
            assert_true(d.info.net_sd_mj > 0 &&
                        d.info.net_sd.gain_mj < d.info.total_sd.gain_mj + 1e-12F);
        }
        pj_run_data_fini(&d);
        pj_spool_close(&w.spool, true);
    }
}

/* A run far shorter than the sensor's window, of which nothing tells when it was: its energy could
 * be any. Known if the sensor is as declared, or if its readings show the window. */
static void what_may_have_been_missed_is_unavailable(void **state)
{
    static const struct {
        const char *sim;
        bool known;
    } cases[] = {{"kind=power,period_ms=100,noise=0.005", true},
                 {"kind=power,period_ms=100,noise=0.005,declare_window_ms=0", false},
                 {"kind=power,period_ms=100,window_ms=25,noise=0.005,declare_window_ms=0", false},
                 {"kind=power,period_ms=20,window_ms=200,noise=0.005,declare_window_ms=0", true},
                 /* 10 ms of 40 W in a mean over 5 s, beside 10 W: lost in the noise */
                 {"kind=power,period_ms=100,window_ms=5000,noise=0.01", false},
                 {"kind=power,period_ms=4,noise=0.005,declare_window_ms=0", true}};
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        writer w;
        pj_run_data d;
        pj_sim_spec sim;
        begin_run(&w, &sim, cases[k].sim);
        put_run(&w, 4, 1);
        put_end(&w, 10001000);
        assert_int_equal(build(&w, &sim, &d), PJ_OK);
        bool known = d.info.absence == PJ_ABSENT_NOT;
        if (known != cases[k].known) fail_msg("%s", cases[k].sim);
        if (!known) assert_int_equal(d.info.absence, PJ_ABSENT_BELOW_RESOLUTION);
        end_run(&w, &d);
    }
}

/* A counter's steps are energies, whatever lag is declared for the sensor behind it. */
static void a_lag_does_not_concern_a_counter(void **state)
{
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    (void)state;
    begin_run(&w, &sim, "period_ms=0.1,phase_ms=0,lag_ms=0.05,noise=0,resolution_mj=0.000001");
    put_run(&w, 40, 1);
    put_end(&w, 10001000);
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    for (uint32_t i = 0; i < d.component_count; i++) {
        const pj_energy *e = &d.components[i].energy;
        if (d.components[i].token == 0) continue; /* prefill: one token, no evidence */
        assert_true(llabs(e->gross_nj - e->planted_nj) < e->planted_nj / 20);
    }
    end_run(&w, &d);
}

/* Readings of a lagging sensor weigh late power more than early power, and each one's noise enters
 * two windows: over many machines the interval of a run and of its phases holds the truth, and is
 * hardly wider than the noise of as many readings. */
static void a_lagging_sensor_is_covered(void **state)
{
    enum { MACHINES = 60 };
    static const double noises[] = {0.002, 0.02};
    (void)state;
    for (int n = 0; n < 2; n++) {
        int covered = 0, phases = 0, covered_phases = 0;
        for (int seed = 1; seed <= MACHINES; seed++) {
            char text[128];
            writer w;
            pj_run_data d;
            pj_sim_spec sim;
            snprintf(text, sizeof text, "kind=power,period_ms=0.05,lag_ms=0.35,noise=%g,seed=%d",
                     noises[n], seed);
            begin_run(&w, &sim, text);
            put_run(&w, 40, 1);
            put_end(&w, 10001000);
            assert_int_equal(build(&w, &sim, &d), PJ_OK);
            double truth = 0;
            for (uint32_t i = 0; i < d.phase_count; i++) {
                const pj_energy *e = &d.phases[i].energy;
                truth += pj_mj_of_nj(e->planted_nj);
                phases++;
                covered_phases +=
                    fabs(pj_mj_of_nj(e->gross_nj - e->planted_nj)) <= 1.96 * (double)e->sd_mj;
            }
            covered += fabs(d.info.total_mj - truth) <= 1.96 * d.info.total_sd_mj;
            /* 200 readings */
            assert_true(d.info.total_sd_mj < 2 * noises[n] * truth / sqrt(200));
            end_run(&w, &d);
        }
        assert_in_range(covered, 52, MACHINES);
        assert_true(covered_phases >= 0.87 * phases);
    }
}

/* Two rails of one vendor share one gain error, which adds linearly; those of two vendors are
 * independent. */
static void gains_of_one_make_add_up(void **state)
{
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    assert_int_equal(pj_sim_parse("rails=cpu0+cpu1,period_ms=1,declare_gain=unknown", &sim, NULL),
                     PJ_OK);
    open_spool(&w);
    put_rails(&w, &sim);
    put_run(&w, 4, 1);
    put_end(&w, 10001000);
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    assert_true(fabs((double)d.info.total_sd.gain_mj / (0.08 * d.info.total_mj) - 1) < 1e-3);
    assert_true(fabs((double)d.info.net_sd.gain_mj / (0.08 * d.info.net_mj) - 1) < 1e-3);
    end_run(&w, &d);
}

/* A program that names its work by the thousand: 12,000 spans of 3,000 names. */
static void thousands_of_names_cost_little(void **state)
{
    enum { SPANS = 12000, NAMES = 3000 };
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    assert_int_equal(pj_sim_parse("period_ms=1", &sim, NULL), PJ_OK);
    open_spool(&w);
    put_rail(&w, &sim);
    int64_t each = 50000, begin = 1000, end = begin + SPANS * each;
    uint32_t phase = w.serial++, token = w.serial++;
    put_begin(&w, make(PJ_SPAN_PHASE, PJ_PHASE_DECODE, PJ_PHASE_IDLE, -1, -1, begin, 0), phase);
    put_begin(&w, make(PJ_SPAN_TOKEN, 0, PJ_PHASE_DECODE, -1, -1, begin, 0), token);
    for (int i = 0; i < SPANS; i++)
        put_span(&w,
                 make(PJ_SPAN_COMPONENT, 100 + (uint32_t)(i * 7 % NAMES), PJ_PHASE_DECODE, 0, -1,
                      begin + i * each, begin + (i + 1) * each),
                 w.serial++);
    put_span(&w, make(PJ_SPAN_TOKEN, 0, PJ_PHASE_DECODE, -1, -1, begin, end), token);
    put_span(&w, make(PJ_SPAN_PHASE, PJ_PHASE_DECODE, PJ_PHASE_DECODE, -1, -1, begin, end), phase);
    put_end(&w, end);
    clock_t before = clock();
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
    if (!PJ_SANITIZED) assert_true(seconds < 2);
    assert_true(d.class_count >= NAMES);
    assert_true(d.info.total_mj > 0);
    end_run(&w, &d);
}

/* From 20,000 nodes on rows and energies are made by several threads; one of them without memory
 * fails the whole. */
static void a_large_run_is_made_by_several_threads(void **state)
{
    enum { STEPS = 2500 };
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    assert_int_equal(pj_sim_parse("kind=counter,period_ms=1", &sim, NULL), PJ_OK);
    open_spool(&w);
    put_rail(&w, &sim);
    put_run(&w, STEPS, 1);
    put_end(&w, 10001000);
    for (int64_t after = 40; after >= -1; after -= after > 0 ? 4 : 1) {
        pj_memory_fail_after(after);
        pj_status status = build(&w, &sim, &d);
        pj_memory_fail_after(-1);
        if (status != PJ_OK) {
            assert_int_equal(status, PJ_E_NO_MEMORY);
            continue;
        }
        assert_int_equal(d.component_count, (STEPS + 1) * 6);
        assert_conserved(&d);
        for (uint32_t i = 0; i < d.component_count; i++) {
            const pj_energy *e = &d.components[i].energy;
            assert_true(e->method != PJ_METHOD_NONE && e->sd_mj >= 0);
            assert_int_equal(d.layers[d.components[i].layer].token, d.components[i].token);
        }
        pj_run_data_fini(&d);
        if (after < 0) break;
    }
    pj_spool_close(&w.spool, true);
}

/* Idle time far shorter than a reading is known by the baseline, not by the reading around it. */
static void short_idle_time_is_known(void **state)
{
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    assert_int_equal(pj_sim_parse("period_ms=5", &sim, NULL), PJ_OK);
    open_spool(&w);
    put_rail(&w, &sim);
    put_run(&w, 40, 1);
    put_end(&w, 10401000);
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    const pj_phase_row *idle = &d.phases[d.phase_count - 1];
    assert_int_equal(idle->phase, PJ_PHASE_IDLE);
    assert_true(fabs(idle->duration_ms - 0.4) < 1e-3);
    double gross = pj_mj_of_nj(idle->energy.gross_nj), truth = pj_mj_of_nj(idle->energy.planted_nj);
    assert_int_equal(idle->energy.method, PJ_METHOD_FIT);
    assert_true(idle->energy.sd_mj > 0 && idle->energy.sd_mj < 0.1 * gross);
    assert_true(fabs(gross - truth) < 4 * (double)idle->energy.sd_mj);
    assert_conserved(&d);
    end_run(&w, &d);
}

/* The time between two phases belongs to neither: a phase's idle energy is the baseline times its
 * own duration. */
static void a_phase_has_the_energy_of_its_own_time(void **state)
{
    enum { US = 1000, BASELINE_MW = 10000 };
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    assert_int_equal(pj_sim_parse("period_ms=0.1", &sim, NULL), PJ_OK);
    open_spool(&w);
    put_rail(&w, &sim);
    put_span(&w, make(PJ_SPAN_PHASE, PJ_PHASE_PREFILL, PJ_PHASE_PREFILL, -1, -1, US, 4000 * US), 0);
    put_span(
        &w, make(PJ_SPAN_PHASE, PJ_PHASE_DECODE, PJ_PHASE_DECODE, -1, -1, 4020 * US, 8000 * US), 1);
    put_end(&w, 8030 * US);
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    assert_int_equal(d.phase_count, 4); /* those two, and idle after each */
    double sum_ms = 0;
    for (uint32_t i = 0; i < d.phase_count; i++) {
        const pj_energy *e = &d.phases[i].energy;
        double idle_mj = BASELINE_MW * d.phases[i].duration_ms * 1e-3;
        sum_ms += d.phases[i].duration_ms;
        assert_true(fabs(pj_mj_of_nj(e->gross_nj - e->net_nj) - idle_mj) < 1e-3);
    }
    assert_true(fabs(sum_ms - d.info.total_ms) < 1e-9);
    assert_conserved(&d);
    end_run(&w, &d);
}

static void a_batch_shares_its_steps(void **state)
{
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    begin_run(&w, &sim, "period_ms=0.1");
    put_run(&w, 4, 3);
    put_end(&w, 10001000);
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    assert_int_equal(d.token_count, 15);
    for (uint32_t step = 0; step < 5; step++) {
        const pj_token_row *rows = &d.tokens[3 * step];
        int64_t layers = 0, whole = 0, self = 0;
        for (uint32_t i = 0; i < d.layer_count; i++)
            if (d.layers[i].step == 3 * step) layers += d.layers[i].energy.gross_nj;
        for (uint32_t s = 0; s < 3; s++) {
            assert_int_equal(rows[s].sequence, s);
            assert_int_equal(rows[s].position, step);
            assert_int_equal(rows[s].energy.method, PJ_METHOD_ALLOCATED);
            assert_true(llabs(rows[s].energy.gross_nj - rows[0].energy.gross_nj) <= 2);
            whole += rows[s].energy.gross_nj;
            self += rows[s].energy.self_nj;
        }
        for (uint32_t i = 0; i < d.layer_count; i++) /* it belongs to no single token */
            assert_int_equal(d.layers[i].token, PJ_NO_PARENT);
        assert_true(layers > 0);
        assert_int_equal(layers + self, whole);
    }
    assert_string_equal(d.info.output_text, "abbbb");
    assert_conserved(&d);
    end_run(&w, &d);
}

static void what_a_client_leaves_out_is_made_up(void **state)
{
    writer w;
    pj_run_data d;
    open_spool(&w);
    /* Layers without a token, an operation without a component, a section without a phase. */
    put_span(&w, make(PJ_SPAN_COMPONENT, Q_PROJ, PJ_PHASE_PREFILL, -1, 0, 2000, 3000), 2);
    put_span(&w, make(PJ_SPAN_LAYER, 0, PJ_PHASE_PREFILL, -1, -1, 2000, 4000), 1);
    put_span(&w, make(PJ_SPAN_LAYER, 1, PJ_PHASE_PREFILL, -1, -1, 4000, 6000), 3);
    put_span(&w, make(PJ_SPAN_OPERATION, SOFTMAX, PJ_PHASE_PREFILL, -1, -1, 6000, 7000), 4);
    put_span(&w, make(PJ_SPAN_PHASE, PJ_PHASE_PREFILL, PJ_PHASE_PREFILL, -1, -1, 1500, 8000), 0);
    put_span(&w, make(PJ_SPAN_SECTION, SAMPLING, PJ_PHASE_DECODE, -1, -1, 8000, 9000), 5);
    put_end(&w, 9000);
    assert_int_equal(build(&w, NULL, &d), PJ_OK);
    assert_int_equal(d.token_count, 1);
    assert_int_equal(d.layer_count, 2);
    assert_int_equal(d.layers[1].token, 0);
    assert_int_equal(d.component_count, 2);
    assert_string_equal(d.components[d.operations[0].component].name, "softmax");
    assert_int_equal(d.section_count, 2); /* the component is in a synthesised one */
    assert_int_equal(d.phases[d.sections[0].phase].phase, PJ_PHASE_DECODE);
    assert_int_equal(d.components[d.operations[0].component].section, 1);
    assert_int_equal(d.phases[d.sections[1].phase].phase, PJ_PHASE_PREFILL);
    end_run(&w, &d);
}

/* Of two nested spans of one kind the outer one keeps its self energy, so that sums still hold. */
static void nested_spans_of_one_kind_stand_apart(void **state)
{
    enum { US = 1000 };
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    begin_run(&w, &sim, "period_ms=0.1");
    /* phase 0 { phase 1 { token 2 { section 3 { token 4 { layer 5 { layer 6 { component 7
     * { component 8 { operation 9 { operation 10 } } } } } } } } } component 11 }, by their
     * serials, each ending 100 us after the one inside it */
    static const uint8_t kinds[] = {PJ_SPAN_PHASE,     PJ_SPAN_PHASE,     PJ_SPAN_TOKEN,
                                    PJ_SPAN_SECTION,   PJ_SPAN_TOKEN,     PJ_SPAN_LAYER,
                                    PJ_SPAN_LAYER,     PJ_SPAN_COMPONENT, PJ_SPAN_COMPONENT,
                                    PJ_SPAN_OPERATION, PJ_SPAN_OPERATION};
    enum { INNERMOST = sizeof kinds - 1 };
    for (int i = INNERMOST; i >= 0; i--) {
        uint32_t id =
            kinds[i] == PJ_SPAN_PHASE ? PJ_PHASE_DECODE - (uint32_t)i : (uint32_t)i % 8 + 1;
        put_span(&w,
                 make(kinds[i], id, PJ_PHASE_DECODE, -1, -1, (100 + 100 * i) * US,
                      (4000 - 100 * i) * US),
                 (uint32_t)i);
        if (i == 1)
            put_span(&w,
                     make(PJ_SPAN_COMPONENT, Q_PROJ, PJ_PHASE_DECODE, -1, -1, 3910 * US, 3990 * US),
                     11);
    }
    put_end(&w, 4000 * US);
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    assert_int_equal(d.operation_count, 2);
    assert_conserved(&d);
    for (uint32_t i = 0; i < d.operation_count; i++) /* 2 ms inside, 100 us on either side */
        assert_true(d.operations[i].energy.gross_nj > 0);
    assert_true(d.operations[0].energy.gross_nj > 5 * d.operations[1].energy.gross_nj);
    assert_true(d.operations[1].energy.sd_mj >= 0);
    end_run(&w, &d);
}

typedef struct made_calibration {
    double mw[8], factor; /* by name */
} made_calibration;

static bool calibrated(void *context, const pj_rail *rail, const char *class_name, pj_phase phase,
                       double *power_mw, double *sd_mw)
{
    const made_calibration *made = context;
    for (uint32_t id = Q_PROJ; id <= DOWN_PROJ; id++) {
        if (phase != PJ_PHASE_DECODE || strcmp(class_name, names[id]) != 0) continue;
        *power_mw = made->mw[id] * made->factor;
        *sd_mw = 0.005 * *power_mw;
        return true;
    }
    return false;
}

/* Work that is not in the calibration must not hide errors in the work that is. */
static void a_wrong_calibration_is_seen(void **state)
{
    made_calibration made = {.factor = 1};
    const double factors[] = {0, 1, 0.8, 1.25};
    for (int round = 0; round < 4; round++) {
        writer w;
        pj_run_data d;
        pj_sim_spec sim;
        pj_spool_reader reader;
        pj_sim_parse("period_ms=0.1", &sim, NULL);
        open_spool(&w);
        put_rail(&w, &sim);
        put_run(&w, 40, 1);
        put_end(&w, 10401000);
        made.factor = factors[round];
        assert_int_equal(pj_spool_flush(&w.spool, NULL), PJ_OK);
        assert_int_equal(pj_spool_reader_of(&w.spool, &reader, NULL), PJ_OK);
        pj_build_options options = {
            .sim = &sim, .prior = round ? calibrated : NULL, .context = &made};
        assert_int_equal(pj_build_run(&reader, &options, &d, NULL), PJ_OK);
        pj_spool_reader_close(&reader);
        for (uint32_t c = 0; round == 0 && c < d.class_count; c++)
            for (uint32_t id = Q_PROJ; id <= DOWN_PROJ; id++)
                if (d.classes[c].phase == PJ_PHASE_DECODE &&
                    strcmp(d.classes[c].name, names[id]) == 0)
                    made.mw[id] = d.classes[c].power_mw;
        if (round == 0)
            assert_true(isnan(d.info.calibration_gap));
        else
            assert_true(fabs((1 + d.info.calibration_gap) * made.factor - 1) < 0.03);
        pj_run_data_fini(&d);
        pj_spool_close(&w.spool, true);
    }
}

static void device_spans_find_their_place(void **state)
{
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    begin_run(&w, &sim, "period_ms=0.1");
    put_run(&w, 4, 1);
    /* The device worked on token 2, layer 1, attention; it reports after everything. */
    pj_span late = make(PJ_SPAN_OPERATION, SOFTMAX, PJ_PHASE_DECODE, 2, 1, 5300000, 5500000);
    late.component = ATTENTION;
    late.flags = PJ_SPAN_DEVICE;
    put_span(&w, late, 5000);
    put_end(&w, 10001000);
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    assert_int_equal(d.operation_count, 11);
    const pj_operation_row *row = &d.operations[10];
    assert_string_equal(row->name, "softmax");
    const pj_component_row *around = &d.components[row->component];
    assert_string_equal(around->name, "attention");
    assert_int_equal(d.tokens[around->token].position, 2);
    assert_int_equal(d.layers[around->layer].layer_index, 1);
    assert_conserved(&d);
    end_run(&w, &d);
}

static void a_cut_spool_is_an_interrupted_run(void **state)
{
    writer w;
    pj_spool_reader whole;
    pj_sim_spec sim;
    begin_run(&w, &sim, "period_ms=0.1");
    put_run(&w, 3, 1);
    put_end(&w, 10001000);
    pj_spool_flush(&w.spool, NULL);
    assert_int_equal(pj_spool_reader_of(&w.spool, &whole, NULL), PJ_OK);
    uint32_t most = 0;
    for (size_t cut = PJ_SPOOL_HEADER_BYTES; cut < whole.mapping.size; cut += 4) {
        pj_spool_reader reader;
        pj_run_data d;
        pj_error err;
        unsigned char *copy = malloc(cut);
        memcpy(copy, whole.mapping.data, cut);
        assert_int_equal(pj_spool_reader_memory(copy, cut, &reader, &err), PJ_OK);
        pj_status status = pj_build_run(&reader, &(pj_build_options){.sim = &sim}, &d, &err);
        if (status == PJ_OK) {
            assert_int_equal(d.info.status, PJ_RUN_INTERRUPTED);
            assert_conserved(&d);
            assert_true(d.component_count >= most);
            most = d.component_count;
            pj_run_data_fini(&d);
        } else {
            assert_int_equal(most, 0); /* before the record of facts there is no run */
        }
        free(copy);
    }
    assert_int_equal(most, 24);
    pj_spool_reader_close(&whole);
    pj_spool_close(&w.spool, true);
}

static void nth_allocation_may_fail(void **state)
{
    writer w;
    pj_spool_reader reader;
    pj_sim_spec sim;
    begin_run(&w, &sim, "period_ms=1");
    put_run(&w, 3, 2);
    put_end(&w, 10001000);
    pj_spool_flush(&w.spool, NULL);
    assert_int_equal(pj_spool_reader_of(&w.spool, &reader, NULL), PJ_OK);
    int failures = 0;
    for (int n = 0;; n++) {
        pj_run_data d;
        pj_error err = {0};
        pj_memory_fail_after(n);
        pj_status status = pj_build_run(&reader, &(pj_build_options){.sim = &sim}, &d, &err);
        pj_memory_fail_after(-1);
        if (status == PJ_OK) {
            assert_conserved(&d);
            pj_run_data_fini(&d);
            break;
        }
        assert_int_equal(status, PJ_E_NO_MEMORY);
        assert_true(err.text[0] != 0);
        assert_true(++failures < 1000);
    }
    assert_true(failures > 20);
    pj_spool_reader_close(&reader);
    pj_spool_close(&w.spool, true);
}

static void samples_know_how_sure_their_phase_is(void **state)
{
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    /* Windows of 1.5 ms; prefill ends at 2 ms, inside one of them. */
    begin_run(&w, &sim, "period_ms=1.5,phase_ms=0.7");
    put_run(&w, 4, 1);
    put_end(&w, 10001000);
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    assert_true(d.samples.count >= 5);
    uint32_t straddling = 0;
    for (uint32_t i = 0; i < d.samples.count; i++) {
        double share = (double)d.samples.phase_confidence[i];
        double end = d.samples.t_ms[i], begin = end - 1.5;
        assert_true(share > 0 && share <= 1);
        if (begin > 2 && end < 10) {
            assert_int_equal(d.samples.phase[i], PJ_PHASE_DECODE);
            assert_true(share == 1);
        } else if (begin < 2 && end > 2) {
            double prefill = (2 - fmax(begin, 0)) / 1.5, decode = (end - 2) / 1.5;
            assert_int_equal(d.samples.phase[i],
                             prefill > decode ? PJ_PHASE_PREFILL : PJ_PHASE_DECODE);
            assert_true(fabs(share - fmax(prefill, decode)) < 1e-3);
            straddling++;
        }
        assert_false(isnan(d.samples.columns[PJ_RAIL_TOTAL][i]));
        assert_true(isnan(d.samples.columns[PJ_RAIL_GPU][i]));
    }
    assert_int_equal(straddling, 1);
    end_run(&w, &d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_hang_together),
        cmocka_unit_test(simulated_energy_is_conserved_and_right),
        cmocka_unit_test(a_simulation_keeps_the_interval_asked_for),
        cmocka_unit_test(what_no_window_saw_is_unavailable),
        cmocka_unit_test(what_may_have_been_missed_is_unavailable),
        cmocka_unit_test(a_lag_does_not_concern_a_counter),
        cmocka_unit_test(a_lagging_sensor_is_covered),
        cmocka_unit_test(gains_of_one_make_add_up),
        cmocka_unit_test(thousands_of_names_cost_little),
        cmocka_unit_test(a_large_run_is_made_by_several_threads),
        cmocka_unit_test(short_idle_time_is_known),
        cmocka_unit_test(a_phase_has_the_energy_of_its_own_time),
        cmocka_unit_test(a_batch_shares_its_steps),
        cmocka_unit_test(what_a_client_leaves_out_is_made_up),
        cmocka_unit_test(nested_spans_of_one_kind_stand_apart),
        cmocka_unit_test(a_wrong_calibration_is_seen),
        cmocka_unit_test(device_spans_find_their_place),
        cmocka_unit_test(a_cut_spool_is_an_interrupted_run),
        cmocka_unit_test(nth_allocation_may_fail),
        cmocka_unit_test(samples_know_how_sure_their_phase_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
