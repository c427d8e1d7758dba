/*
 * Runs of a small transformer as spans with times and values, and simulated sensors that observe
 * them; everything from the spool on is what real runs go through. What is planted costs 2 to 8 %.
 * Names that a program may choose are drawn, so that nothing can be concluded from them.
 */
#include "bench/planted_why.h"

#include "analysis/why.h"
#include "attribution/build.h"
#include "base/random.h"
#include "trace/run_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const pj_planted_cost_names[PJ_COST_COUNT] = {"none",  "norm",  "copy",   "type", "gap",
                                                          "pause", "clock", "kernel", "power"};

enum { LAYERS = 4, PROMPT = 12, NAMES_FREE = 5 };
enum {
    NORM_PART = 0,
    K_PART = 2,
    LAYER_PARTS = 11,
    EMBED = 11,
    HEAD,
    CACHE,
    PART_COUNT,
    PLANTED = PART_COUNT
};

static const struct part {
    const char *name;
    double share, flops, bytes; /* of a layer's time; per token, relative to q_proj's */
} parts[PART_COUNT] = {{"input_layernorm", 0, 0.01, 0.01},
                       {"q_proj", 0.10, 1, 1},
                       {"k_proj", 0.05, 0.5, 0.5},
                       {"v_proj", 0.05, 0.5, 0.5},
                       {"attention", 0.12, 0.3, 0.6},
                       {"o_proj", 0.10, 1, 1},
                       {"post_attention_layernorm", 0, 0.01, 0.01},
                       {"gate_proj", 0.17, 2.5, 2.5},
                       {"up_proj", 0.17, 2.5, 2.5},
                       {"act", 0.03, 0.05, 0.05},
                       {"down_proj", 0.17, 2.5, 2.5},
                       {"embed_tokens", 0.01, 0, 0.02},
                       {"lm_head", 0.12, 8, 8},
                       {"kv_cache_init", 0.005, 0, 0.1}};

static const int products[] = {1, 5, 7, 8, 10}; /* large enough to matter */
static const char *const free_norms[NAMES_FREE] = {"input_layernorm", "norm_2", "layer_norm",
                                                   "rms_norm_1", "op_17"};
static const char *const free_copies[NAMES_FREE] = {"contiguous", "copy", "transpose", "op_23",
                                                    "buffer"};
static const char *const sensors[] = {"kind=counter,period_ms=1,resolution_mj=0.061",
                                      "kind=counter,period_ms=10,resolution_mj=1",
                                      "kind=power,period_ms=20,noise=0.003"};

/* What both sides share: model, machine, and the cause that only B has. */
typedef struct world {
    pj_planted_cost cost;
    uint32_t tokens;
    bool busy;
    uint64_t model;    /* of the values */
    double norm_share; /* of a layer's time, of each norm */
    double token_ms;
    int part;              /* that the cause changes */
    double size;           /* its factor in time, or its share of it */
    const char *name;      /* of an additional part */
    bool copy_tells_flops; /* a copy's FLOPs are 0 or not given */
    const char *sensor;
    double mw[PART_COUNT + 1]; /* the last: of an additional part */
} world;

static double planted_why_between(pj_random *r, double lo, double hi)
{
    return lo + (hi - lo) * pj_random_unit(r);
}

static world draw_world(const pj_planted_why_plan *plan, uint64_t seed)
{
    pj_planted_cost cost = plan->cost;
    pj_random r = {seed * 0x9e3779b97f4a7c15u + cost};
    uint32_t name = (uint32_t)(pj_random_u64(&r) % (2 * NAMES_FREE));
    world w = {.cost = cost,
               .tokens = plan->tokens,
               .busy = plan->busy,
               .model = pj_random_u64(&r),
               .norm_share = planted_why_between(&r, 0.03, 0.06),
               .token_ms = planted_why_between(&r, 15, 40),
               .part = products[pj_random_u64(&r) % (sizeof products / sizeof *products)],
               .copy_tells_flops = pj_random_unit(&r) < 0.5,
               .sensor = sensors[pj_random_u64(&r) % (sizeof sensors / sizeof *sensors)]};
    for (int i = 0; i < PART_COUNT; i++) w.mw[i] = planted_why_between(&r, 20e3, 60e3);
    w.mw[PLANTED] = planted_why_between(&r, 20e3, 60e3);
    /* Waiting draws little more than idling: it has to be long to cost as much as work. */
    w.size = cost == PJ_COST_TYPE                              ? planted_why_between(&r, 1.5, 2.1)
             : cost == PJ_COST_KERNEL || cost == PJ_COST_POWER ? planted_why_between(&r, 1.4, 1.8)
             : cost == PJ_COST_CLOCK                           ? planted_why_between(&r, 1.1, 1.5)
             : cost == PJ_COST_GAP                             ? planted_why_between(&r, 0.1, 0.3)
             : cost == PJ_COST_PAUSE                           ? planted_why_between(&r, 0.02, 0.05)
                                     : planted_why_between(&r, 0.03, 0.06);
    /* Half of the repeated norms have the name of the first. */
    if (cost == PJ_COST_NORM) w.part = NORM_PART;
    if (cost == PJ_COST_NORM) w.mw[PLANTED] = w.mw[NORM_PART];
    if (cost == PJ_COST_COPY) w.part = K_PART;
    w.name = cost == PJ_COST_COPY ? free_copies[name % NAMES_FREE]
             : name < NAMES_FREE  ? free_norms[name]
                                  : free_norms[0];
    return w;
}

/* ---- other programs -------------------------------------------------------------------------- */

/* They take the processor at times, and slow it while they use its caches. */
typedef struct other_load {
    double stall_every_ms, stall_ms, to_stall_ms; /* means; until the next one */
    double spell_every_ms, to_change_ms, slow;    /* mean; until the next change; factor now */
} other_load;

static double draw_wait(pj_random *r, double mean)
{
    return -mean * log(1 - pj_random_unit(r));
}

static other_load draw_load(pj_random *r)
{
    other_load l = {.stall_every_ms = 20 * pow(20, pj_random_unit(r)),
                    .stall_ms = planted_why_between(r, 2, 8),
                    .spell_every_ms = planted_why_between(r, 100, 1000),
                    .slow = 1};
    l.to_stall_ms = draw_wait(r, l.stall_every_ms);
    l.to_change_ms = draw_wait(r, l.spell_every_ms);
    return l;
}

/* How long work of `ms` takes. */
static double held_up(other_load *l, pj_random *r, double ms)
{
    double took = ms * l->slow;
    for (; l->to_stall_ms < ms; l->to_stall_ms += draw_wait(r, l->stall_every_ms))
        took += draw_wait(r, l->stall_ms);
    if (l->to_change_ms < ms) {
        bool begins = l->slow == 1;
        l->slow = begins ? planted_why_between(r, 1.1, 1.6) : 1;
        l->to_change_ms = draw_wait(r, begins ? 100 : l->spell_every_ms);
    }
    l->to_stall_ms -= ms;
    l->to_change_ms -= ms;
    return took;
}

/* ---- one run -------------------------------------------------------------------------------- */

typedef struct writing {
    const world *world;
    bool second;      /* has the planted cost */
    pj_random random; /* of this run alone */
    double pace, part_pace[PART_COUNT + 1];
    other_load load;
    pj_spool spool;
    pj_spool_writer w;
    int64_t at_ns;
    uint32_t serial;
    pj_phase phase;
    uint32_t token;
} writing;

static void put_span_with(writing *s, pj_span span, const pj_stats *stats)
{
    struct {
        pj_span span;
        pj_stats stats;
        uint32_t zero;
    } record = {span, *stats, 0};
    record.span.flags |= PJ_SPAN_HAS_STATS;
    pj_spool_put(&s->w, PJ_RECORD_SPAN, &record, sizeof record);
}

/* Values are the model's, up to the order of additions; with a product of another type all differ
 * by its rounding. */
static pj_stats values_of(writing *s, uint32_t part, uint32_t layer)
{
    pj_random r = {s->world->model ^ (part + 1) * 0xd1b54a32d192ed03u ^
                   (layer + 1) * 0x9e3779b97f4a7c15u ^ (s->token + 1) * 0x94d049bb133111ebu};
    double off = s->second && s->world->cost == PJ_COST_TYPE ? 1e-3 : 1e-7;
    double std = planted_why_between(&r, 0.1, 2), mean = 0.1 * std * pj_random_normal(&r);
    double abs = std * planted_why_between(&r, 0.7, 0.85);
    double max = std * planted_why_between(&r, 3, 8), sparsity = planted_why_between(&r, 0, 0.1);
    return (pj_stats){.mean_abs = (float)(abs * (1 + off * pj_random_normal(&s->random))),
                      .mean = (float)(mean + off * std * pj_random_normal(&s->random)),
                      .std = (float)(std * (1 + off * pj_random_normal(&s->random))),
                      .max_abs = (float)(max * (1 + off * pj_random_normal(&s->random))),
                      .sparsity = (float)sparsity};
}

/* Calls vary by 3 %; now and then the thread is preempted. */
static void put_call(writing *s, uint32_t part, uint32_t name, uint32_t values, int32_t layer,
                     double ms, double flops, double bytes)
{
    double took = ms * s->pace * s->part_pace[part] * exp(0.03 * pj_random_normal(&s->random));
    if (pj_random_unit(&s->random) < 0.001) took += 1;
    if (s->world->busy) took = held_up(&s->load, &s->random, took);
    pj_span span = pj_span_make(s->serial++, PJ_SPAN_COMPONENT, name + 1, s->phase, s->at_ns,
                                s->at_ns + (int64_t)(took * 1e6));
    pj_stats stats = values_of(s, values, layer < 0 ? UINT32_MAX : (uint32_t)layer);
    if (s->phase != PJ_PHASE_PRE_INFERENCE) span.token = (int32_t)s->token;
    span.layer = (int16_t)layer;
    span.flops = (float)flops;
    span.bytes = (float)bytes;
    put_span_with(s, span, &stats);
    s->at_ns = span.end_ns;
}

static void put_part(writing *s, uint32_t part, int32_t layer, double ms)
{
    const world *w = s->world;
    bool changed = s->second && (int)part == w->part, prefill = s->phase == PJ_PHASE_PREFILL;
    double flops = 4e7 * parts[part].flops * (prefill ? PROMPT : 1),
           bytes = 4e7 * parts[part].bytes;
    if (changed && w->cost == PJ_COST_TYPE) bytes *= 2;
    if (changed && (w->cost == PJ_COST_TYPE || w->cost == PJ_COST_KERNEL)) ms *= w->size;
    put_call(s, part, part, part, layer, ms, flops, bytes);
    if (changed && w->cost == PJ_COST_NORM)
        put_call(s, PLANTED, w->name == free_norms[0] ? part : PLANTED, part, layer, ms, flops,
                 bytes);
    if (changed && w->cost == PJ_COST_COPY)
        put_call(s, PLANTED, PLANTED, part, layer, w->size * w->token_ms / LAYERS,
                 w->copy_tells_flops ? 0 : NAN, 0.1 * bytes);
}

static double share_of(const world *w, uint32_t part)
{
    return parts[part].share > 0 ? parts[part].share : w->norm_share;
}

static void put_layer(writing *s, int32_t layer, double ms)
{
    int64_t begin_ns = s->at_ns;
    uint32_t serial = s->serial++;
    for (uint32_t p = 0; p < LAYER_PARTS; p++) put_part(s, p, layer, ms * share_of(s->world, p));
    pj_span span =
        pj_span_make(serial, PJ_SPAN_LAYER, (uint32_t)layer, s->phase, begin_ns, s->at_ns);
    span.token = (int32_t)s->token;
    pj_spool_put_span(&s->w, &span);
}

/* About 1 % of a step is between its parts. */
static void put_wait(writing *s, double share)
{
    double ms = share * s->world->token_ms * exp(0.3 * pj_random_normal(&s->random));
    if (s->world->busy) ms = held_up(&s->load, &s->random, ms);
    s->at_ns += (int64_t)(ms * 1e6);
}

static void put_token(writing *s, double ms)
{
    int64_t begin_ns = s->at_ns;
    uint32_t serial = s->serial++;
    pj_token_text_record text = {serial, 0, 0, (int32_t)s->token};
    put_part(s, EMBED, -1, ms * parts[EMBED].share);
    for (int32_t l = 0; l < LAYERS; l++) put_layer(s, l, 0.86 * ms / LAYERS);
    put_part(s, HEAD, -1, ms * parts[HEAD].share);
    put_wait(s, 0.01);
    bool waits = s->world->cost == PJ_COST_GAP || s->world->cost == PJ_COST_PAUSE;
    if (s->second && waits) put_wait(s, s->world->size);
    pj_span span = pj_span_make(serial, PJ_SPAN_TOKEN, s->token, s->phase, begin_ns, s->at_ns);
    pj_spool_put(&s->w, PJ_RECORD_TOKEN_TEXT, &text, sizeof text);
    pj_spool_put_span(&s->w, &span);
    s->token++;
}

static void put_phase(writing *s, pj_phase phase, uint32_t tokens, double ms)
{
    int64_t begin_ns = s->at_ns;
    uint32_t serial = s->serial++;
    s->phase = phase;
    for (uint32_t i = 0; i < tokens; i++) put_token(s, ms);
    pj_span span = pj_span_make(serial, PJ_SPAN_PHASE, phase, phase, begin_ns, s->at_ns);
    pj_spool_put_span(&s->w, &span);
}

/* What a run does once: a small part that one call holds, and time without parts. */
static void put_start(writing *s)
{
    int64_t begin_ns = s->at_ns;
    uint32_t serial = s->serial++;
    s->phase = PJ_PHASE_PRE_INFERENCE;
    put_wait(s, 0.01);
    put_part(s, CACHE, -1, s->world->token_ms * parts[CACHE].share);
    pj_span span = pj_span_make(serial, PJ_SPAN_PHASE, s->phase, s->phase, begin_ns, s->at_ns);
    pj_spool_put_span(&s->w, &span);
}

/* The processor's clock, reported once at the begin and once at the end. */
static void put_clock(writing *s, int64_t at_ns)
{
    bool capped = s->second && s->world->cost == PJ_COST_CLOCK;
    double mhz = capped ? 3000 / s->world->size : 3000;
    pj_condition c = {.at_ns = at_ns,
                      .device = "cpu",
                      .temperature_c = NAN,
                      .clock_mhz = mhz * (1 + 0.005 * pj_random_normal(&s->random)),
                      .memory_clock_mhz = NAN,
                      .utilisation = NAN,
                      .power_limit_mw = NAN,
                      .tdp_mw = NAN};
    pj_spool_put(&s->w, PJ_RECORD_CONDITIONS, &c, sizeof c);
}

/* A lower clock needs less power, too. */
static void describe_machine(const writing *s, pj_sim_spec *spec)
{
    const world *w = s->world;
    bool capped = s->second && w->cost == PJ_COST_CLOCK;
    for (int i = 0; i <= PART_COUNT; i++) {
        pj_sim_class *c = &spec->classes[spec->class_count++];
        snprintf(c->name, sizeof c->name, "%s", i < PART_COUNT ? parts[i].name : w->name);
        bool hotter = s->second && w->cost == PJ_COST_POWER && i == w->part;
        c->mw = w->mw[i] * (capped ? pow(w->size, -0.7) : hotter ? w->size : 1);
    }
    pj_sim_class *between = &spec->classes[spec->class_count++];
    snprintf(between->name, sizeof between->name, "(between)");
    between->mw = 3e3;
}

static void put_run(writing *s, const pj_sim_spec *spec)
{
    pj_rail rails[PJ_SIM_MAX_RAILS];
    pj_run_info info = {.id = "01890000-0000-7000-8000-000000000000",
                        .prompt = "p",
                        .depth = PJ_DEPTH_MODULE,
                        .batch_size = 1,
                        .input_tokens = PROMPT,
                        .engine = "planted",
                        .machine = "planted",
                        .quality = PJ_MODELLED};
    uint32_t count = pj_sim_rails(spec, rails, PJ_SIM_MAX_RAILS);
    pj_spool_put_info(&s->w, &info, s->at_ns);
    for (uint32_t i = 0; i < count; i++)
        pj_spool_put_rail(&s->w, i, &rails[i], spec->idle_mw, 0.01 * spec->idle_mw);
    for (uint32_t i = 0; i <= PART_COUNT; i++)
        pj_spool_put_name(&s->w, i + 1, i < PART_COUNT ? parts[i].name : s->world->name);
    put_clock(s, s->at_ns + 1000);
    put_start(s);
    put_phase(s, PJ_PHASE_PREFILL, 1, 2 * s->world->token_ms);
    put_phase(s, PJ_PHASE_DECODE, s->world->tokens, s->world->token_ms);
    put_clock(s, s->at_ns - 1000);
    pj_spool_put_end(&s->w, s->at_ns, PJ_RUN_COMPLETED);
}

static pj_status build_run(const pj_sim_spec *spec, writing *s, pj_run_data *data)
{
    pj_spool_reader reader;
    pj_status status = s->w.status;
    if (status == PJ_OK) status = pj_spool_flush(&s->spool, s->w.err);
    if (status == PJ_OK) status = pj_spool_reader_of(&s->spool, &reader, s->w.err);
    if (status != PJ_OK) return status;
    status = pj_build_run(&reader, &(pj_build_options){.sim = spec}, data, s->w.err);
    pj_spool_reader_close(&reader);
    return status;
}

static pj_status add_run(const world *w, bool second, uint64_t seed, pj_why_side *side,
                         pj_error *err)
{
    char sensor[128];
    pj_sim_spec spec;
    pj_run_data data = {0};
    writing s = {.world = w, .second = second, .random = {seed}, .at_ns = 1000};
    s.pace = exp(0.01 * pj_random_normal(&s.random));
    if (second && w->cost == PJ_COST_CLOCK) s.pace *= w->size;
    for (int i = 0; i <= PART_COUNT; i++) s.part_pace[i] = exp(0.01 * pj_random_normal(&s.random));
    s.load = draw_load(&s.random);
    snprintf(sensor, sizeof sensor, "%s,seed=%u", w->sensor,
             (unsigned)(pj_random_u64(&s.random) % 1000000));
    pj_status status = pj_sim_parse(sensor, &spec, err);
    if (status == PJ_OK) status = pj_spool_create(NULL, "planted", 1, 2, &s.spool, err);
    if (status != PJ_OK) return status;
    s.w = (pj_spool_writer){.spool = &s.spool, .err = err};
    describe_machine(&s, &spec);
    put_run(&s, &spec);
    status = build_run(&spec, &s, &data);
    if (status == PJ_OK) status = pj_why_side_add(side, &data, err);
    pj_run_data_fini(&data);
    pj_spool_close(&s.spool, true);
    return status;
}

/* ---- judging -------------------------------------------------------------------------------- */

static bool is_planted(const world *w, const pj_why_row *row)
{
    const char *part = parts[w->part].name;
    switch (w->cost) {
    case PJ_COST_NORM: return row->kind == PJ_WHY_REPEATED && strcmp(row->name, w->name) == 0;
    case PJ_COST_COPY: return row->kind == PJ_WHY_COPY && strcmp(row->name, w->name) == 0;
    case PJ_COST_TYPE: return row->kind == PJ_WHY_TYPE && strcmp(row->name, part) == 0;
    case PJ_COST_POWER: return row->kind == PJ_WHY_POWER && strcmp(row->name, part) == 0;
    case PJ_COST_KERNEL: return row->kind == PJ_WHY_KERNEL && strcmp(row->name, part) == 0;
    case PJ_COST_GAP:
    case PJ_COST_PAUSE: return row->kind == PJ_WHY_GAP;
    default: return false;
    }
}

static void judge(const world *w, const pj_why *why, pj_planted_why_score *score)
{
    bool found = false, other = false;
    for (uint32_t i = 0; i < why->named_count; i++) {
        bool planted = is_planted(w, &why->rows[i]);
        found |= planted;
        other |= !planted;
    }
    for (uint32_t i = 0; i < why->common_count; i++) {
        bool planted = w->cost == PJ_COST_CLOCK && why->commons[i].kind == PJ_WHY_CLOCK;
        found |= planted;
        other |= !planted;
    }
    if (w->cost == PJ_COST_NONE) found = !other;
    score->pairs++;
    score->found += found;
    score->alone += found && !other;
}

pj_status pj_planted_why_try(const pj_planted_why_plan *plan, uint64_t seed,
                             pj_planted_why_score *score, pj_error *err)
{
    world w = draw_world(plan, seed);
    pj_why_side *a = NULL, *b = NULL;
    pj_why why = {0};
    pj_status status = pj_why_side_new(&a, err);
    if (status == PJ_OK) status = pj_why_side_new(&b, err);
    for (uint32_t i = 0; i < plan->runs && status == PJ_OK; i++) {
        uint64_t own = (seed * 64 + i) * PJ_COST_COUNT + plan->cost;
        status = add_run(&w, false, 2 * own * 0x2545f4914f6cdd1du, a, err);
        if (status == PJ_OK)
            status = add_run(&w, true, (2 * own + 1) * 0x2545f4914f6cdd1du, b, err);
    }
    if (status == PJ_OK) status = pj_why_find(a, b, true, &why, err);
    if (status == PJ_OK) judge(&w, &why, score);
    pj_why_fini(&why);
    pj_why_side_free(a);
    pj_why_side_free(b);
    return status;
}
