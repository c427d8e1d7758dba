/* Spans from a law of time, written into a spool in memory and built as every run is. */
#include "bench/sim_machine.h"

#include "attribution/build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    QKV_PROJ = 1,
    ATTENTION,
    O_PROJ,
    GATE_UP_PROJ,
    DOWN_PROJ,
    EMBED_TOKENS,
    LM_HEAD,
    LOAD,
    NAMES
};

static const char *const names[NAMES] = {NULL,           "qkv_proj",     "attention",
                                         "o_proj",       "gate_up_proj", "down_proj",
                                         "embed_tokens", "lm_head",      "model_load"};

static const double jitter = 0.03; /* of every duration */

enum { STEP_NS = 20000 }; /* of a step in which nothing is computed */

typedef struct made {
    const pj_sim_machine *machine;
    const pj_sim_work *work;
    pj_random *random;
    pj_spool spool;
    pj_spool_writer w;
    int64_t now_ns;
    int64_t stall_ns; /* of the next component */
    uint32_t serial;
    pj_phase phase;
    int32_t token;
} made;

/* Bytes and FLOPs overlap, but for a rest where they take equally long. */
static int64_t ns_of(made *m, double flops, double bytes)
{
    double compute = flops / m->machine->flops_per_s, memory = bytes / m->machine->bytes_per_s;
    double s = pow(pow(compute, 6) + pow(memory, 6), 1.0 / 6) * m->work->slower;
    return (int64_t)(1e9 * s * exp(jitter * pj_random_normal(m->random))) + 1;
}

static pj_span machine_span(made *m, pj_span_kind kind, uint32_t id, uint32_t serial, int64_t begin)
{
    pj_span span = pj_span_make(serial, kind, id, m->phase, begin, m->now_ns);
    if (kind != PJ_SPAN_PHASE) span.token = m->token;
    return span;
}

static void put_component(made *m, uint32_t name, int layer, double flops, double bytes)
{
    int64_t begin = m->now_ns;
    m->now_ns += ns_of(m, flops, bytes) + m->stall_ns;
    m->stall_ns = 0;
    pj_span span = machine_span(m, PJ_SPAN_COMPONENT, name, m->serial++, begin);
    span.layer = (int16_t)layer;
    span.flops = (float)flops;
    span.bytes = (float)bytes;
    pj_spool_put_span(&m->w, &span);
}

static void put_product(made *m, uint32_t name, int layer, double rows, double weights, double each)
{
    put_component(m, name, layer, 2 * rows * weights, weights * each);
}

/* One pass over the model: `rows` positions of all sequences, of which `last` get logits. */
static void put_pass(made *m, double rows, double last, double context)
{
    const pj_sim_machine *of = m->machine;
    const pj_sim_work *w = m->work;
    double d = of->hidden, kv = d / 4, weight = w->weight_bytes;
    uint32_t serial = m->serial++;
    int64_t begin = m->now_ns;
    pj_span token = machine_span(m, PJ_SPAN_TOKEN, (uint32_t)m->token, serial, begin);
    token.end_ns = 0;
    pj_spool_put(&m->w, PJ_RECORD_SPAN_BEGIN, &token, sizeof token);
    put_component(m, EMBED_TOKENS, -1, 0, rows * d * (w->head_bytes + 4));
    for (uint32_t l = 0; l < of->layers; l++) {
        uint32_t of_layer = m->serial++;
        int64_t layer_begin = m->now_ns;
        put_product(m, QKV_PROJ, (int)l, rows, d * (d + 2 * kv), weight);
        put_component(m, ATTENTION, (int)l, 4 * rows * context * d,
                      2 * w->batch * context * kv * w->kv_bytes);
        put_product(m, O_PROJ, (int)l, rows, d * d, weight);
        put_product(m, GATE_UP_PROJ, (int)l, rows, 2 * d * of->intermediate, weight);
        put_product(m, DOWN_PROJ, (int)l, rows, d * of->intermediate, weight);
        pj_span layer = machine_span(m, PJ_SPAN_LAYER, l, of_layer, layer_begin);
        pj_spool_put_span(&m->w, &layer);
    }
    put_product(m, LM_HEAD, -1, last, d * of->vocabulary, w->head_bytes);
    m->now_ns += STEP_NS;
    for (uint32_t s = 0; s < w->batch; s++) {
        struct {
            pj_token_text_record head;
            char text[4];
        } text = {{serial, 0, s, 7}, "a"};
        pj_spool_put(&m->w, PJ_RECORD_TOKEN_TEXT, &text, sizeof text.head + 1);
    }
    pj_span whole = machine_span(m, PJ_SPAN_TOKEN, (uint32_t)m->token, serial, begin);
    pj_spool_put_span(&m->w, &whole);
}

static uint32_t machine_phase_begin(made *m, pj_phase phase)
{
    m->phase = phase;
    m->token = -1;
    pj_span span = machine_span(m, PJ_SPAN_PHASE, phase, m->serial++, m->now_ns);
    span.phase = PJ_PHASE_IDLE;
    span.end_ns = 0;
    pj_spool_put(&m->w, PJ_RECORD_SPAN_BEGIN, &span, sizeof span);
    return span.serial;
}

static void machine_phase_end(made *m, uint32_t serial, int64_t begin)
{
    pj_span span = machine_span(m, PJ_SPAN_PHASE, m->phase, serial, begin);
    pj_spool_put_span(&m->w, &span);
}

static void put_load(made *m)
{
    int64_t begin = m->now_ns;
    uint32_t phase = machine_phase_begin(m, PJ_PHASE_PRE_INFERENCE), serial = m->serial++;
    m->now_ns += ns_of(m, 0, m->work->load_bytes);
    pj_span section = machine_span(m, PJ_SPAN_SECTION, LOAD, serial, begin);
    pj_spool_put_span(&m->w, &section);
    machine_phase_end(m, phase, begin);
}

static void put_request(made *m)
{
    const pj_sim_work *w = m->work;
    int64_t begin = m->now_ns;
    uint32_t phase = machine_phase_begin(m, PJ_PHASE_PREFILL);
    double fresh = (double)(w->input - w->cached) * w->batch;
    m->token = 0;
    put_pass(m, fresh, w->batch, 0.5 * (w->input + w->cached));
    machine_phase_end(m, phase, begin);
    begin = m->now_ns;
    phase = machine_phase_begin(m, PJ_PHASE_DECODE);
    for (uint32_t step = 1; step < w->output; step++) {
        m->token = (int32_t)step;
        if (step == w->stalled) m->stall_ns = (int64_t)(w->stall_ms * 1e6);
        put_pass(m, w->batch, w->batch, w->input + step);
    }
    machine_phase_end(m, phase, begin);
}

/* ---- what is known of the run ---- */

static double parameters_of(const pj_sim_machine *of)
{
    double d = of->hidden;
    return of->layers * (d * (d + d / 2) + d * d + 3 * d * of->intermediate) + d * of->vocabulary;
}

static void put_info(made *m, const char *id, char *model, char *fingerprint, size_t bytes)
{
    const pj_sim_machine *of = m->machine;
    const pj_sim_work *w = m->work;
    double head = of->hidden * of->vocabulary, body = parameters_of(of) - head;
    snprintf(model, bytes,
             "{\"parameters\":%.0f,\"active_parameters\":%.0f,\"weight_bytes\":%.0f,"
             "\"kv_bytes_per_token\":%.0f,\"context\":8192,\"kv_type\":\"%s\",\"vocab_size\":%.0f}",
             head + body, head + body, body * w->weight_bytes + head * w->head_bytes,
             of->layers * of->hidden / 2 * w->kv_bytes, w->kv_type, of->vocabulary);
    snprintf(fingerprint, bytes, "{\"memory_bytes\":%.0f,\"cache_bytes\":%.0f}", of->memory_bytes,
             of->cache_bytes);
    pj_run_info info;
    pj_run_info_init(&info);
    snprintf(info.id, sizeof info.id, "%s", id);
    info.created_wall_ns = INT64_C(1700000000000000000) - (int64_t)(w->age_ms * 1e6);
    info.depth = PJ_DEPTH_MODULE;
    info.quality = PJ_MODELLED;
    info.engine = "perjoule";
    info.model_name = info.model_path = "planted";
    info.machine = "simulated";
    info.dtype = w->dtype;
    info.prompt = w->prompt;
    info.batch_size = w->batch;
    info.threads = w->threads;
    info.model_json = model;
    info.machine_json = fingerprint;
    info.input_tokens = (uint64_t)w->input * w->batch;
    info.output_tokens = (uint64_t)w->output * w->batch;
    info.baseline_resident_mw = of->idle_mw;
    pj_spool_put_info(&m->w, &info, 1000);
}

static void put_machine_rails(made *m, const pj_sim_spec *spec)
{
    pj_rail rails[PJ_SIM_MAX_RAILS];
    uint32_t count = pj_sim_rails(spec, rails, PJ_SIM_MAX_RAILS);
    for (uint32_t i = 0; i < count; i++) {
        double idle = spec->idle_mw * spec->rails[i].share;
        pj_spool_put_rail(&m->w, i, &rails[i], idle, 0.001 * idle);
    }
}

static void read_truth(const made *m, const pj_sim_spec *spec, const pj_run_data *d,
                       pj_sim_truth *truth)
{
    *truth = (pj_sim_truth){.tokens = (double)m->work->output * m->work->batch};
    for (uint32_t i = 0; i < d->phase_count; i++) {
        double mj = pj_mj_of_nj(d->phases[i].energy.planted_nj);
        truth->total_mj += mj;
        if (d->phases[i].phase == PJ_PHASE_PREFILL || d->phases[i].phase == PJ_PHASE_DECODE)
            truth->request_mj += mj;
    }
    for (uint32_t i = 0; i < d->section_count; i++)
        if (strcmp(d->sections[i].name, names[LOAD]) == 0)
            truth->load_mj += pj_mj_of_nj(d->sections[i].energy.planted_nj);
    double mw = spec->idle_mw + pj_sim_class_mw(spec, names[EMBED_TOKENS], PJ_PHASE_DECODE);
    truth->stall_mj = m->work->stall_ms * mw / 1000;
}

static pj_status machine_build(made *m, const pj_sim_spec *spec, pj_run_data *data, pj_error *err)
{
    pj_spool_reader reader;
    pj_status status = m->w.status;
    if (status == PJ_OK) status = pj_spool_flush(&m->spool, err);
    if (status == PJ_OK) status = pj_spool_reader_of(&m->spool, &reader, err);
    if (status != PJ_OK) return status;
    status = pj_build_run(&reader, &(pj_build_options){.sim = spec}, data, err);
    pj_spool_reader_close(&reader);
    return status;
}

pj_status pj_sim_machine_run(const pj_sim_machine *machine, const pj_sim_work *work,
                             pj_random *random, pj_store *store, char id[PJ_UUID_BYTES],
                             pj_sim_truth *truth, pj_run_data *data, pj_error *err)
{
    char text[400], model[512], fingerprint[512];
    pj_sim_spec spec;
    made m = {.machine = machine, .work = work, .random = random, .now_ns = 1000};
    snprintf(text, sizeof text, "%s,seed=%llu,idle_mw=%g,low_mw=%g,high_mw=%g", machine->sensor,
             (unsigned long long)machine->seed, machine->idle_mw, machine->low_mw * work->hotter,
             machine->high_mw * work->hotter);
    snprintf(id, PJ_UUID_BYTES, "01890000-0000-7000-8000-%012llx",
             (unsigned long long)(pj_random_u64(random) >> 16));
    pj_status status = pj_sim_parse(text, &spec, err);
    if (status == PJ_OK) status = pj_spool_create(NULL, id, 1, 2, &m.spool, err);
    if (status != PJ_OK) return status;
    m.w = (pj_spool_writer){&m.spool, err, PJ_OK};
    put_info(&m, id, model, fingerprint, sizeof model);
    put_machine_rails(&m, &spec);
    for (uint32_t i = 1; i < NAMES; i++) pj_spool_put_name(&m.w, i, names[i]);
    if (work->load_bytes > 0) put_load(&m);
    put_request(&m);
    pj_spool_put_end(&m.w, m.now_ns, PJ_RUN_COMPLETED);
    status = machine_build(&m, &spec, data, err);
    pj_spool_close(&m.spool, true);
    if (status != PJ_OK) return status;
    read_truth(&m, &spec, data, truth);
    return store ? pj_store_save(store, data, err) : PJ_OK;
}
