/* The CPU's table of operations, and a model on it. */
#include "engine/cpu/device.h"

#include "base/memory.h"
#include "engine/cpu/cpu.h"
#include "engine/kernels/limits.h"
#include "engine/model/latent.h"

#include <math.h>
#include <string.h>

/* ---- a model on the CPU ------------------------------------------------------------------- */

static bool cpu_has(const char *device)
{
    return strcmp(device, "cpu") == 0;
}

static pj_status cpu_load(const pj_load_request *request, void **loaded, pj_error *err)
{
    pj_cpu_device *d = pj_alloc(1, sizeof *d);
    if (!d) return pj_fail_memory(err, "the engine");
    *d = (pj_cpu_device){request->model, request->kernels, request->team};
    pj_ahead *ahead = pj_team_ahead(d->team);
    pj_ahead_begin(ahead, d->model->counts.decode_weight_bytes);
    if (ahead->active) pj_ahead_read(ahead, NULL, d->kernels->name, pj_team_threads(d->team));
    *loaded = d;
    return PJ_OK;
}

static void cpu_unload(void *loaded)
{
    const pj_cpu_device *d = loaded;
    pj_ahead_write(pj_team_ahead(d->team), NULL, d->kernels->name, pj_team_threads(d->team));
    pj_free(loaded);
}

static void cpu_facts(void *loaded, pj_compute_facts *facts)
{
    const pj_cpu_device *d = loaded;
    *facts = (pj_compute_facts){.name = "cpu", .isa = d->kernels->name, .host_memory = true};
}

/* ---- upper bounds ------------------------------------------------------------------------- */

static double cpu_peak(void *loaded, int64_t duration_ns)
{
    const pj_cpu_device *d = loaded;
    pj_form prefill = pj_linear_form(d->kernels, d->model->counts.dtype, SIZE_MAX);
    return pj_limits_peak(d->kernels, d->team, prefill, duration_ns);
}

typedef struct reading {
    const pj_cpu_device *device;
    unsigned streams;
    uint64_t bytes, max_bytes;
    unsigned next; /* prefetch distance, of which matrices are read with each in turn */
    uint64_t read[PJ_AHEAD_DISTANCES];
    double seconds[PJ_AHEAD_DISTANCES];
} reading;

static void read_matrix(reading *r, const pj_matrix *m)
{
    size_t bytes = m->data ? m->rows * m->row_bytes : 0;
    if (bytes == 0 || r->bytes + bytes > r->max_bytes) return;
    unsigned d = r->next++ % PJ_AHEAD_DISTANCES;
    r->seconds[d] += (double)bytes / pj_limits_read(r->device->team, m->data, bytes, r->streams,
                                                    pj_ahead_distances[d]);
    r->read[d] += bytes;
    r->bytes += bytes;
}

static void device_read_layer(reading *r, const pj_layer *l)
{
    const pj_matrix *matrices[] = {&l->q.w,      &l->k.w,           &l->v.w,
                                   &l->qkv.w,    &l->o.w,           &l->mlp.gate.w,
                                   &l->mlp.up.w, &l->mlp.gate_up.w, &l->mlp.down.w};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) read_matrix(r, matrices[i]);
    if (l->latent) {
        read_matrix(r, &l->latent->q_a.w);
        read_matrix(r, &l->latent->q.w);
        read_matrix(r, &l->latent->kv_a.w);
        if (pj_layer_has_indexer(l)) read_matrix(r, &l->indexer->q.w);
    }
    for (uint32_t e = 0; l->experts && e < r->device->model->config.experts; e++) {
        read_matrix(r, &l->experts[e].gate.w);
        read_matrix(r, &l->experts[e].up.w);
        read_matrix(r, &l->experts[e].down.w);
    }
}

static double cpu_read_pass(void *loaded, unsigned streams, uint64_t max_bytes)
{
    const pj_cpu_device *d = loaded;
    reading r = {.device = d, .streams = streams, .max_bytes = max_bytes};
    for (uint32_t i = 0; i < d->model->config.layers; i++)
        device_read_layer(&r, &d->model->layers[i]);
    read_matrix(&r, &d->model->head.w);
    if (r.bytes < PJ_LEAST_READ_BYTES) return NAN;
    double best = 0;
    for (unsigned i = 0; i < PJ_AHEAD_DISTANCES; i++)
        if (r.read[i] > 0) best = fmax(best, (double)r.read[i] / r.seconds[i]);
    return best;
}

/* ---- passes ------------------------------------------------------------------------------- */

static void cpu_begin_pass(void *state, const pj_rows_of_pass *rows)
{
    pj_cpu *s = state;
    s->rows = *rows;
}

/* Every operation has already run. */
static pj_status cpu_end_pass(void *state, bool cancelled, pj_error *err)
{
    return PJ_OK;
}

static float *cpu_logits(void *state, uint32_t rows)
{
    const pj_cpu *s = state;
    return s->buffers[PJ_BUFFER_LOGITS];
}

static const float *cpu_rows(void *state, pj_slice x)
{
    return pj_cpu_floats(state, x);
}

static const int32_t *cpu_ids(void *state)
{
    const pj_cpu *s = state;
    return s->ids;
}

const pj_backend pj_backend_cpu = {.version = PJ_BACKEND_VERSION,
                                   .name = "cpu",
                                   .has = cpu_has,
                                   .load = cpu_load,
                                   .unload = cpu_unload,
                                   .facts = cpu_facts,
                                   .peak = cpu_peak,
                                   .read_pass = cpu_read_pass,
                                   .open = pj_cpu_open,
                                   .close = pj_cpu_close,
                                   .ops = {.begin_pass = cpu_begin_pass,
                                           .end_pass = cpu_end_pass,
                                           .section = pj_cpu_section,
                                           .end_section = pj_cpu_end_section,
                                           .layer = pj_cpu_layer,
                                           .component = pj_cpu_component,
                                           .end = pj_cpu_end,
                                           .gather = pj_cpu_gather,
                                           .scale = pj_cpu_scale,
                                           .join_vectors = pj_cpu_join_vectors,
                                           .angles = pj_cpu_angles,
                                           .norm = pj_cpu_norm,
                                           .products = pj_cpu_products,
                                           .add = pj_cpu_add,
                                           .take_queries = pj_cpu_take_queries,
                                           .copy_heads = pj_cpu_copy_heads,
                                           .gate_heads = pj_cpu_gate_heads,
                                           .rotate = pj_cpu_rotate,
                                           .rotate_and_store = pj_cpu_rotate_and_store,
                                           .choose_keys = pj_cpu_choose_keys,
                                           .attend = pj_cpu_attend,
                                           .activate = pj_cpu_activate,
                                           .route = pj_cpu_route,
                                           .experts = pj_cpu_experts,
                                           .add_gated = pj_cpu_add_gated,
                                           .convolve = pj_cpu_convolve,
                                           .delta_rule = pj_cpu_delta_rule,
                                           .gated_norm = pj_cpu_gated_norm,
                                           .predict_streams = pj_cpu_predict_streams,
                                           .correct_streams = pj_cpu_correct_streams,
                                           .match_magnitude = pj_cpu_match_magnitude,
                                           .take_rows = pj_cpu_take_rows,
                                           .bound = pj_cpu_bound,
                                           .argmax = pj_cpu_argmax,
                                           .give = pj_cpu_give,
                                           .rows = cpu_rows,
                                           .logits = cpu_logits,
                                           .ids = cpu_ids,
                                           .reset = pj_cpu_reset,
                                           .rewind = pj_cpu_rewind,
                                           .slide = pj_cpu_slide}};
