/* Plays a request of a transformer as segments of constant power, one per component, lets the
 * simulated sensor read them, and tags each reading. */
#include "bench/sim_trace.h"

#include "base/memory.h"
#include "base/random.h"
#include "power/sim.h"
#include "trace/run_data.h"

#include <math.h>

typedef struct part {
    const char *name;
    double share; /* of the time of a layer */
} part;

static const part layer[] = {{"attn_norm", 0.02},    {"q_proj", 0.10},    {"k_proj", 0.05},
                             {"v_proj", 0.05},       {"qk_matmul", 0.04}, {"softmax", 0.02},
                             {"value_matmul", 0.04}, {"o_proj", 0.10},    {"mlp_norm", 0.02},
                             {"gate_proj", 0.18},    {"up_proj", 0.18},   {"gate_mul", 0.02},
                             {"down_proj", 0.18}};
enum { PARTS = sizeof layer / sizeof *layer };

typedef struct stage {
    int64_t begin_ns, end_ns;
    uint8_t phase;
} stage;

typedef struct play {
    pj_sim_spec spec;
    pj_random random;
    int64_t at_ns;
    pj_sim_segment *segments;
    size_t count, room;
    stage stages[8];
    size_t stage_count;
} play;

static void sim_trace_work(play *p, const char *name, pj_phase phase, double ms, double factor)
{
    double varied = ms * (1 + 0.03 * pj_random_normal(&p->random));
    int64_t end = p->at_ns + (int64_t)(fmax(varied, 0.1 * ms) * 1e6);
    if (p->count == p->room || end <= p->at_ns) return;
    p->segments[p->count++] =
        (pj_sim_segment){p->at_ns, end, factor * pj_sim_class_mw(&p->spec, name, phase)};
    p->at_ns = end;
}

static void sim_trace_pass(play *p, pj_phase phase, uint32_t layers, double ms, double factor)
{
    double one = 0.85 * ms / layers;
    sim_trace_work(p, "embedding", phase, 0.01 * ms, factor);
    for (uint32_t l = 0; l < layers; l++)
        for (size_t i = 0; i < PARTS; i++)
            sim_trace_work(p, layer[i].name, phase, one * layer[i].share, factor);
    sim_trace_work(p, "lm_head", phase, (phase == PJ_PHASE_DECODE ? 0.12 : 0.01) * ms, factor);
    sim_trace_work(p, "sampling", phase, 0.02 * ms, factor);
}

static void sim_trace_enter(play *p, pj_phase phase)
{
    if (p->stage_count) p->stages[p->stage_count - 1].end_ns = p->at_ns;
    p->stages[p->stage_count++] = (stage){p->at_ns, p->at_ns, (uint8_t)phase};
}

static void play_request(play *p, const pj_sim_request *r)
{
    sim_trace_enter(p, PJ_PHASE_IDLE);
    p->at_ns += (int64_t)(r->idle_ms * 1e6);
    sim_trace_enter(p, PJ_PHASE_PRE_INFERENCE);
    sim_trace_work(p, "model_load", PJ_PHASE_PRE_INFERENCE, 0.98 * r->load_ms, 1);
    sim_trace_work(p, "tokenization", PJ_PHASE_PRE_INFERENCE, 0.02 * r->load_ms, 1);
    sim_trace_enter(p, PJ_PHASE_PREFILL);
    sim_trace_pass(p, PJ_PHASE_PREFILL, r->layers, 0.1 * r->prompt * r->token_ms, r->prefill);
    sim_trace_enter(p, PJ_PHASE_DECODE);
    for (uint32_t i = 0; i < r->tokens; i++)
        sim_trace_pass(p, PJ_PHASE_DECODE, r->layers, r->token_ms, 1);
    sim_trace_enter(p, PJ_PHASE_POST_INFERENCE);
    sim_trace_work(p, "detokenization", PJ_PHASE_POST_INFERENCE, 0.2 * r->token_ms, 1);
    sim_trace_enter(p, PJ_PHASE_IDLE);
    p->at_ns += (int64_t)(r->idle_ms * 1e6);
    p->stages[p->stage_count - 1].end_ns = p->at_ns;
}

/* The phase that covers most of a window. */
static uint8_t sim_trace_phase_of(const play *p, int64_t begin_ns, int64_t end_ns)
{
    uint8_t best = PJ_PHASE_IDLE;
    int64_t longest = 0;
    for (size_t i = 0; i < p->stage_count; i++) {
        const stage *s = &p->stages[i];
        int64_t from = begin_ns > s->begin_ns ? begin_ns : s->begin_ns;
        int64_t to = end_ns < s->end_ns ? end_ns : s->end_ns;
        if (to - from > longest) longest = to - from, best = s->phase;
    }
    return best;
}

/* Counters become the power between two readings, as a recorder of traces writes it. */
static void sim_trace_take(const play *p, const pj_reading *r, size_t count, pj_sim_trace *t)
{
    const pj_sim_spec *s = &p->spec;
    bool counter = s->kind == PJ_RAIL_COUNTER;
    int64_t window = s->window_ns > 0 && !counter ? s->window_ns : s->period_ns;
    for (size_t i = counter; i < count; i++) {
        int64_t end = r[i].after_ns - s->delay_ns;
        if (r[i].status != PJ_READING_OK || end < 0 || end > p->at_ns) continue;
        t->t_ms[t->count] = (double)r[i].after_ns * 1e-6;
        t->mw[t->count] = counter ? (r[i].value - r[i - 1].value) * 1e6 /
                                        (double)(r[i].after_ns - r[i - 1].after_ns)
                                  : r[i].value;
        t->phase[t->count++] = sim_trace_phase_of(p, end - window, end);
    }
}

static pj_status sim_trace_read_all(const play *p, pj_sim_trace *t, pj_error *err)
{
    pj_reading *readings;
    size_t count;
    pj_status status =
        pj_sim_read(&p->spec, 0, p->segments, p->count, 0, p->at_ns, &readings, &count, err);
    if (status != PJ_OK) return status;
    t->t_ms = pj_alloc(count + 1, sizeof *t->t_ms);
    t->mw = pj_alloc(count + 1, sizeof *t->mw);
    t->phase = pj_alloc(count + 1, 1);
    if (t->t_ms && t->mw && t->phase)
        sim_trace_take(p, readings, count, t);
    else
        status = pj_fail_memory(err, "a simulated trace");
    pj_free(readings);
    return status;
}

pj_status pj_sim_trace_make(const char *sensor, const pj_sim_request *request, uint64_t seed,
                            pj_sim_trace *trace, pj_error *err)
{
    play p = {.random = {seed}};
    *trace = (pj_sim_trace){0};
    pj_status status = pj_sim_parse(sensor, &p.spec, err);
    if (status != PJ_OK) return status;
    p.room = (size_t)(request->tokens + 1) * (request->layers * (size_t)PARTS + 3) + 3;
    p.segments = pj_alloc(p.room, sizeof *p.segments);
    if (!p.segments) return pj_fail_memory(err, "a simulated request");
    play_request(&p, request);
    status = sim_trace_read_all(&p, trace, err);
    pj_free(p.segments);
    return status;
}

void pj_sim_trace_fini(pj_sim_trace *t)
{
    pj_free(t->t_ms);
    pj_free(t->mw);
    pj_free(t->phase);
    *t = (pj_sim_trace){0};
}
