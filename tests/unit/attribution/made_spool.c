#include "made_spool.h"
#include "../assertions.h"

#include "trace/run_json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- writing a spool by hand --------------------------------------------------------------- */

const char *const names[] = {NULL,      "layers",    "q_proj",   "attention", "down_proj",
                             "softmax", "qk_matmul", "sampling", "entropy"};

static void put_json(writer *w, pj_record_type type, pj_buffer *buffer)
{
    assert_int_equal(pj_spool_append(&w->spool, type, buffer->data, buffer->length, NULL), PJ_OK);
    pj_buffer_fini(buffer);
}

void open_spool(writer *w)
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

void put_end(writer *w, int64_t at_ns)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1 << 20);
    pj_json_init(&json, &buffer);
    pj_run_end_write(&json, at_ns, PJ_RUN_COMPLETED);
    put_json(w, PJ_RECORD_END, &buffer);
}

pj_span make(pj_span_kind kind, uint32_t id, pj_phase phase, int32_t token, int32_t layer,
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

void put_span(writer *w, pj_span span, uint32_t serial)
{
    span.serial = serial;
    assert_int_equal(pj_spool_append(&w->spool, PJ_RECORD_SPAN, &span, sizeof span, NULL), PJ_OK);
}

void put_begin(writer *w, pj_span span, uint32_t serial)
{
    span.serial = serial;
    span.end_ns = 0;
    pj_spool_append(&w->spool, PJ_RECORD_SPAN_BEGIN, &span, sizeof span, NULL);
}

void put_text(writer *w, uint32_t serial, uint32_t sequence, int32_t id, const char *text)
{
    char payload[64];
    pj_token_text_record head = {serial, 0, sequence, id};
    memcpy(payload, &head, sizeof head);
    memcpy(payload + sizeof head, text, strlen(text));
    pj_spool_append(&w->spool, PJ_RECORD_TOKEN_TEXT, payload, sizeof head + strlen(text), NULL);
}

static void put_long_run(writer *w, int steps, uint32_t sequences, int64_t ns)
{
    int64_t t = 1000, each = ns / (steps + 1);
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
                     attention); /* the last third is self time */
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

void put_run(writer *w, int steps, uint32_t sequences)
{
    put_long_run(w, steps, sequences, 10000000);
}

pj_status build(writer *w, const pj_sim_spec *sim, pj_run_data *data)
{
    return build_with(w, &(pj_build_options){.sim = sim}, data);
}

pj_status build_with(writer *w, const pj_build_options *options, pj_run_data *data)
{
    pj_spool_reader reader;
    pj_error err = {0};
    pj_status status = pj_spool_flush(&w->spool, &err);
    if (status == PJ_OK) status = pj_spool_reader_of(&w->spool, &reader, &err);
    if (status != PJ_OK) return status;
    status = pj_build_run(&reader, options, data, &err);
    pj_spool_reader_close(&reader);
    return status;
}

/* ---- energies add up ----------------------------------------------------------------------- */

static void add(int64_t *sums, uint32_t index, uint32_t count, int64_t value)
{
    assert_that(index, <, count);
    sums[index] += value;
}

/* A token is the self energy of its sections plus its layers plus components outside layers; a
 * phase is its tokens plus sections outside tokens. Rows of one batched step count once. */
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
        assert_that(c->section, <, d->section_count);
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

/* An energy that is unavailable has no uncertainty. */
static void assert_no_lone_deviation(const pj_energy *e)
{
    if (e->net_nj == PJ_NJ_UNKNOWN) assert_true(isnan(e->net_sd_mj) && isnan(e->net_sd.gain_mj));
    if (e->gross_nj == PJ_NJ_UNKNOWN) assert_true(isnan(e->sd_mj));
}

static void assert_no_lone_deviations(const pj_run_data *d)
{
    for (uint32_t i = 0; i < d->phase_count; i++) assert_no_lone_deviation(&d->phases[i].energy);
    for (uint32_t i = 0; i < d->token_count; i++) assert_no_lone_deviation(&d->tokens[i].energy);
    for (uint32_t i = 0; i < d->component_count; i++)
        assert_no_lone_deviation(&d->components[i].energy);
    if (isnan(d->info.net_mj)) assert_true(isnan(d->info.net_sd_mj));
    for (uint32_t i = 0; i < d->class_count && isnan(d->info.total_mj); i++)
        assert_true(isnan(d->classes[i].energy_mj) && isnan(d->classes[i].energy_sd_mj));
}

void assert_conserved(const pj_run_data *d)
{
    assert_no_lone_deviations(d);
    if (isnan(d->info.total_mj)) return; /* nothing was recorded, or it says nothing */
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
    assert_tokens_and_phases_conserved(d);
    for (uint32_t i = 0; i < d->phase_count; i++) run += d->phases[i].energy.gross_nj;
    assert_near((double)run * 1e-6, d->info.total_mj, 1e-9 * d->info.total_mj);
    free(component);
    free(layer);
}

void put_rails(writer *w, const pj_sim_spec *sim)
{
    pj_rail rails[PJ_SIM_MAX_RAILS];
    uint32_t count = pj_sim_rails(sim, rails, PJ_SIM_MAX_RAILS), logs = 0;
    for (uint32_t i = 0; i < count; i++) logs += rails[i].log_ns > 0;
    double shared_by = count - logs;
    for (uint32_t i = 0; i < count; i++) {
        pj_buffer buffer;
        pj_json json;
        pj_buffer_init(&buffer, 1 << 20);
        pj_json_init(&json, &buffer);
        pj_rail_write(&json, i, &rails[i], 10000.0 / shared_by, 10.0 / shared_by);
        put_json(w, PJ_RECORD_RAIL, &buffer);
    }
}

void build_steps(writer *w, const pj_sim_spec *sim, int steps, pj_run_data *data)
{
    put_run(w, steps, 1);
    put_end(w, 10001000);
    assert_int_equal(build(w, sim, data), PJ_OK);
}

void build_slow_steps(writer *w, const pj_sim_spec *sim, int steps, int64_t ns, pj_run_data *data)
{
    put_slow_steps(w, steps, ns);
    assert_int_equal(build(w, sim, data), PJ_OK);
}

void put_slow_steps(writer *w, int steps, int64_t ns)
{
    put_long_run(w, steps, 1, ns);
    put_end(w, 1000 + ns);
}

void begin_run(writer *w, pj_sim_spec *sim, const char *text)
{
    assert_int_equal(pj_sim_parse(text, sim, NULL), PJ_OK);
    open_spool(w);
    put_rails(w, sim);
}

void end_run(writer *w, pj_run_data *data)
{
    pj_run_data_fini(data);
    pj_spool_close(&w->spool, true);
}
