/* Disturbances of generated runs: prompts, steps and gaps with and without planted stalls, batches,
 * several rails. With disturbances and without them every level adds up; planted ones are found
 * with the joules they cost; quiet runs have none. */
#include "../assertions.h"
#include "../sanitized.h"
#include "base/random.h"
#include "insight/run_events.h"
#include "made_spool.h"
#include "store/store.h"
#include "trace/disturbance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    RUNS = PJ_SANITIZED ? 8 : 60,
    QUIET_RUNS = PJ_SANITIZED ? 10 : 100,
    LAYERS_MOST = 6,
    NS_PER_US = 1000
};

/* What is planted, and where the run stands while it is written. */
typedef struct made {
    writer w;
    pj_random random;
    pj_sim_spec sim;
    int64_t now, token_begin;
    int steps, layers;
    uint32_t sequences;
    int stalled_step, stalled_layer; /* -1: none; step 0 is the prompt */
    int gap_after;                   /* step; -1: none */
    int64_t stall_ns;                /* of a component of that layer, or of the gap */
    bool deep;
} made;

static int64_t made_ns(made *m, int64_t usual)
{
    return (int64_t)((double)usual * (1 + 0.05 * pj_random_normal(&m->random)));
}

static void put_component(made *m, uint32_t name, pj_phase phase, int step, int layer,
                          int64_t usual, int64_t stall)
{
    int64_t begin = m->now, end = m->now + made_ns(m, usual) + stall;
    pj_span span = make(PJ_SPAN_COMPONENT, name, phase, step, layer, begin, end);
    uint32_t serial = m->w.serial++;
    span.flops = (double)usual;
    if (m->deep && name == ATTENTION) {
        pj_span inner = make(PJ_SPAN_OPERATION, QK_MATMUL, phase, step, layer, begin,
                             begin + (end - begin) * 2 / 3);
        inner.component = name;
        put_span(&m->w, inner, m->w.serial++);
    }
    put_span(&m->w, span, serial);
    m->now = end;
}

static void put_layer(made *m, pj_phase phase, int step, int layer, int64_t usual)
{
    bool stalled = step == m->stalled_step && layer == m->stalled_layer;
    uint32_t serial = m->w.serial++;
    int64_t begin = m->now;
    m->now += usual / 50;
    put_component(m, Q_PROJ, phase, step, layer, usual / 4, 0);
    put_component(m, ATTENTION, phase, step, layer, usual / 4, 0);
    put_component(m, DOWN_PROJ, phase, step, layer, usual / 2, stalled ? m->stall_ns : 0);
    put_span(&m->w, make(PJ_SPAN_LAYER, (uint32_t)layer, phase, step, -1, begin, m->now), serial);
}

static void put_step(made *m, int step)
{
    pj_phase phase = step ? PJ_PHASE_DECODE : PJ_PHASE_PREFILL;
    uint32_t serial = m->w.serial++;
    int64_t begin = m->now, usual = (step ? 100 : 600) * NS_PER_US;
    put_begin(&m->w, make(PJ_SPAN_TOKEN, (uint32_t)step, phase, -1, -1, begin, 0), serial);
    for (int layer = 0; layer < m->layers; layer++) put_layer(m, phase, step, layer, usual);
    m->now += 5 * NS_PER_US;
    for (uint32_t s = 0; s < m->sequences; s++) put_text(&m->w, serial, s, 100 + step, "a");
    put_span(&m->w, make(PJ_SPAN_TOKEN, (uint32_t)step, phase, -1, -1, begin, m->now), serial);
}

static void put_phase(made *m, pj_phase phase, int first, int end)
{
    uint32_t serial = m->w.serial++;
    int64_t begin = m->now;
    put_begin(&m->w, make(PJ_SPAN_PHASE, phase, PJ_PHASE_IDLE, -1, -1, begin, 0), serial);
    for (int step = first; step < end; step++) {
        m->now += 2 * NS_PER_US;
        put_step(m, step);
        if (step == m->gap_after) m->now += m->stall_ns;
    }
    m->now += 2 * NS_PER_US;
    put_span(&m->w, make(PJ_SPAN_PHASE, phase, phase, -1, -1, begin, m->now), serial);
}

static void made_begin(made *m, uint64_t seed, const char *sensor)
{
    char text[200];
    *m = (made){.random = {seed}, .now = 1000, .stalled_step = -1, .gap_after = -1};
    snprintf(text, sizeof text, "%s,seed=%d", sensor, (int)seed);
    m->steps = 8 + (int)(pj_random_unit(&m->random) * 40);
    m->layers = 4 + (int)(pj_random_unit(&m->random) * (LAYERS_MOST - 3));
    m->sequences = 1 + (uint32_t)(pj_random_unit(&m->random) * 3);
    m->deep = pj_random_unit(&m->random) < 0.5;
    begin_run(&m->w, &m->sim, text);
}

static void made_end(made *m, pj_run_data *d)
{
    put_phase(m, PJ_PHASE_PREFILL, 0, 1);
    put_phase(m, PJ_PHASE_DECODE, 1, 1 + m->steps);
    put_end(&m->w, m->now + 1000);
    assert_int_equal(build(&m->w, &m->sim, d), PJ_OK);
}

static pj_disturbances events_of(const pj_run_data *d, pj_arena *arena)
{
    pj_disturbances list;
    assert_int_equal(pj_disturbances_read(d->info.disturbances_json, arena, &list, NULL), PJ_OK);
    return list;
}

/* ---- rows without disturbances, in memory: the reference of the database's ---- */

static void less_mj(double *mj, double *sd_mj, pj_sd *sd, double part)
{
    double remains = *mj != 0 && part > 0 ? 1 - part / *mj : 1;
    if (!(part > 0)) return;
    *mj -= part;
    *sd_mj *= fabs(remains);
    *sd = pj_sd_scaled(sd, remains);
}

#define LEAVE_OUT(row, time)                                                    \
    ((row)->energy = pj_energy_without(&(row)->energy, &(row)->disturbed_part), \
     *(time) -= (row)->disturbed_part.ms, (row)->disturbed_part = (pj_disturbed){0})

static void leave_out_components(pj_run_data *d)
{
    pj_disturbed *parts = calloc((size_t)d->component_count + 1, sizeof *parts);
    pj_component_disturbed_parts(d, parts);
    for (uint32_t i = 0; i < d->operation_count; i++) {
        pj_operation_row *o = &d->operations[i];
        if (o->component >= d->component_count) continue;
        double share = pj_component_disturbed_share(&d->components[o->component]);
        o->energy = pj_energy_without_share(&o->energy, share);
        o->duration_ms *= 1 - share;
    }
    for (uint32_t i = 0; i < d->component_count; i++) {
        pj_component_row *c = &d->components[i];
        double share = pj_component_disturbed_share(c);
        c->energy = pj_energy_without(&c->energy, &parts[i]);
        c->duration_ms *= 1 - share;
        c->disturbed_ms = 0;
    }
    free(parts);
}

static void leave_out_sums(pj_run_data *d)
{
    for (uint32_t i = 0; i < d->rail_energy_count; i++) {
        pj_rail_energy *r = &d->rail_energy[i];
        if (r->disturbed_net_mj != 0) r->idle_mj -= r->disturbed_mj - r->disturbed_net_mj;
        less_mj(&r->gross_mj, &r->sd_mj, &r->sd, r->disturbed_mj);
        r->net_mj -= r->disturbed_net_mj;
        r->disturbed_mj = r->disturbed_net_mj = 0;
    }
    for (uint32_t i = 0; i < d->class_count; i++) {
        pj_class_row *c = &d->classes[i];
        less_mj(&c->energy_mj, &c->energy_sd_mj, &c->energy_sd, c->disturbed_mj);
        c->net_energy_mj -= c->disturbed_net_mj;
        c->time_ms -= c->disturbed_ms;
        c->disturbed_ms = c->disturbed_mj = c->disturbed_net_mj = 0;
    }
}

static void leave_out(pj_run_data *d)
{
    leave_out_components(d);
    pj_run_info_leave_out_disturbances(&d->info);
    for (uint32_t i = 0; i < d->phase_count; i++)
        LEAVE_OUT(&d->phases[i], &d->phases[i].duration_ms);
    for (uint32_t i = 0; i < d->section_count; i++)
        LEAVE_OUT(&d->sections[i], &d->sections[i].duration_ms);
    for (uint32_t i = 0; i < d->token_count; i++)
        LEAVE_OUT(&d->tokens[i], &d->tokens[i].duration_ms);
    for (uint32_t i = 0; i < d->layer_count; i++) {
        pj_layer_row *l = &d->layers[i];
        double remains = l->duration_ms > 0 ? 1 - l->disturbed_part.ms / l->duration_ms : 1;
        l->attention_ms *= remains;
        l->mlp_ms *= remains;
        LEAVE_OUT(l, &l->duration_ms);
    }
    leave_out_sums(d);
}

static void assert_same_energy(const pj_energy *a, const pj_energy *b)
{
    assert_that(llabs(a->gross_nj - b->gross_nj), <=, 2);
    assert_that(llabs(a->net_nj - b->net_nj), <=, 2);
    assert_that(llabs(a->self_nj - b->self_nj), <=, 2);
}

/* What the database reads without disturbances is what is left in memory. */
static void assert_same_rows(const pj_run_data *a, const pj_run_data *b)
{
    assert_near(a->info.total_mj, b->info.total_mj, 1e-6);
    assert_near(a->info.request_mj, b->info.request_mj, 1e-6);
    for (uint32_t i = 0; i < a->phase_count; i++) {
        assert_same_energy(&a->phases[i].energy, &b->phases[i].energy);
        assert_near(a->phases[i].duration_ms, b->phases[i].duration_ms, 1e-9);
    }
    for (uint32_t i = 0; i < a->token_count; i++)
        assert_same_energy(&a->tokens[i].energy, &b->tokens[i].energy);
    for (uint32_t i = 0; i < a->layer_count; i++)
        assert_same_energy(&a->layers[i].energy, &b->layers[i].energy);
    for (uint32_t i = 0; i < a->component_count; i++) {
        assert_same_energy(&a->components[i].energy, &b->components[i].energy);
        assert_near(a->components[i].duration_ms, b->components[i].duration_ms, 1e-9);
    }
    for (uint32_t i = 0; i < a->operation_count; i++)
        assert_that(llabs(a->operations[i].energy.gross_nj - b->operations[i].energy.gross_nj), <=,
                    2);
    for (uint32_t i = 0; i < a->rail_energy_count; i++) {
        assert_near(a->rail_energy[i].gross_mj, b->rail_energy[i].gross_mj, 1e-6);
        assert_near(a->rail_energy[i].net_mj, b->rail_energy[i].net_mj, 1e-6);
    }
}

static void load_without(pj_store *store, const pj_run_data *saved, pj_run_data *d)
{
    *d = (pj_run_data){0};
    assert_int_equal(pj_store_save(store, saved, NULL), PJ_OK);
    pj_store_leave_out_disturbances(store, true);
    assert_int_equal(pj_store_load(store, saved->info.id, d, NULL), PJ_OK);
    pj_store_leave_out_disturbances(store, false);
}

/* ---- invariants ---- */

static double part(double whole, double of)
{
    return isnan(of) ? 0 : whole + of;
}

/* Classes of a phase have its energy and time, whichever class a disturbance was in. */
static void assert_classes_hold(const pj_run_data *d, pj_phase phase)
{
    double gross = 0, net = 0, ms = 0;
    for (uint32_t i = 0; i < d->phase_count; i++) {
        if (d->phases[i].phase != phase) continue;
        gross += pj_mj_of_nj(d->phases[i].energy.gross_nj);
        net += pj_mj_of_nj(d->phases[i].energy.net_nj);
        ms += d->phases[i].duration_ms;
    }
    for (uint32_t i = 0; i < d->class_count; i++) {
        const pj_class_row *c = &d->classes[i];
        if (c->phase != phase) continue;
        assert_that(c->energy_mj, >=, -1e-6);
        gross -= c->energy_mj;
        net -= c->net_energy_mj;
        ms -= c->time_ms;
    }
    assert_near(gross, 0, 1e-6 * d->info.total_mj);
    assert_near(net, 0, 1e-6 * d->info.total_mj);
    assert_near(ms, 0, 1e-6);
}

/* Sums of rails and phases are those of the run, gross and net; no part is more than its whole. */
static void assert_sums_hold(const pj_run_data *d)
{
    double gross = 0, net = 0, ms = 0, rails = 0, rail_net = 0;
    for (uint32_t i = 0; i < d->phase_count; i++) {
        gross += pj_mj_of_nj(d->phases[i].energy.gross_nj);
        net += pj_mj_of_nj(d->phases[i].energy.net_nj);
        ms += d->phases[i].duration_ms;
    }
    for (int phase = 0; phase < PJ_PHASE_COUNT; phase++) assert_classes_hold(d, phase);
    assert_that(ms, <=, d->info.total_ms + 1e-9);
    for (uint32_t i = 0; i < d->rail_energy_count; i++) {
        const pj_rail_energy *r = &d->rail_energy[i];
        bool in_total = pj_rail_in_column(d->rails, d->rail_count, r->rail, PJ_RAIL_TOTAL);
        if (r->phase != PJ_PHASE_COUNT || !in_total) continue;
        rails = part(rails, r->gross_mj);
        rail_net = part(rail_net, r->net_mj);
        assert_near(r->gross_mj - r->idle_mj, r->net_mj, 1e-6 * d->info.total_mj);
    }
    assert_near(gross, d->info.total_mj, 1e-9 * d->info.total_mj);
    assert_near(net, d->info.net_mj, 1e-6 * d->info.total_mj);
    assert_near(rails, d->info.total_mj, 1e-6 * d->info.total_mj);
    assert_near(rail_net, d->info.net_mj, 1e-6 * d->info.total_mj);
    assert_near(d->info.total_mj - d->info.idle_mj, d->info.net_mj, 1e-6 * d->info.total_mj);
    assert_that(d->info.request_mj, <=, d->info.total_mj * (1 + 1e-9));
    assert_that(d->info.prefill_mj + d->info.decode_mj, <=, d->info.request_mj * (1 + 1e-9));
}

static void assert_layers_hold(const pj_run_data *d)
{
    for (uint32_t l = 0; l < d->layer_count; l++) {
        const pj_layer_row *layer = &d->layers[l];
        double ms = 0;
        for (uint32_t i = 0; i < d->component_count; i++) {
            const pj_component_row *c = &d->components[i];
            if (c->layer != l) continue;
            assert_that(c->energy.gross_nj, >=, 0);
            assert_that(c->energy.gross_nj, <=, layer->energy.gross_nj);
            ms += c->duration_ms;
        }
        assert_that(ms, <=, layer->duration_ms * (1 + 1e-9) + 1e-9);
    }
}

/* Net energy of the layer that no component covers: it may be below zero. */
static int64_t net_of_layer(const pj_run_data *d, uint32_t layer)
{
    int64_t net = d->layers[layer].energy.net_nj;
    for (uint32_t i = 0; i < d->component_count; i++)
        if (d->components[i].layer == layer) net -= d->components[i].energy.net_nj;
    return net;
}

/* Without disturbances, what a layer's parts leave of its net energy has kept its sign and has not
 * grown: parts are not more than their whole where they were not before. */
static void assert_net_holds(const pj_run_data *d, const int64_t *before)
{
    for (uint32_t l = 0; l < d->layer_count; l++) {
        int64_t after = net_of_layer(d, l), rounding = 20;
        assert_that(llabs(after), <=, llabs(before[l]) + rounding);
        if (llabs(after) > rounding) assert_int_equal(after > 0, before[l] > 0);
    }
}

static void assert_run_holds(const pj_run_data *d)
{
    assert_conserved(d);
    assert_sums_hold(d);
    assert_layers_hold(d);
}

static void plant_any(made *m)
{
    double which = pj_random_unit(&m->random);
    m->stall_ns = (int64_t)((10 + 40 * pj_random_unit(&m->random)) * 1e6);
    m->stalled_layer = (int)(pj_random_unit(&m->random) * m->layers);
    if (which < 0.3)
        m->stalled_step = 0;
    else if (which < 0.8)
        m->stalled_step = 1 + (int)(pj_random_unit(&m->random) * m->steps);
    else
        m->gap_after = 1 + (int)(pj_random_unit(&m->random) * (m->steps - 1));
}

/* The block of its own and the rest are the whole. */
static void parts_and_disturbance_are_the_whole(void **state)
{
    static const char *const sensors[] = {"preset=rapl,rails=cpu+dram,share=0.8+0.2",
                                          "preset=counter,rails=cpu+gpu+dram,share=0.5+0.3+0.2",
                                          "preset=rapl",
                                          "preset=counter,rails=cpu+gpu,share=0.4+0.6,total=1"};
    uint32_t found = 0;
    char path[] = "/tmp/pj-disturbances-XXXXXX", file[64];
    pj_store *store;
    (void)state;
    assert_non_null(mkdtemp(path));
    snprintf(file, sizeof file, "%s/runs.db", path);
    assert_int_equal(pj_store_open(&(pj_store_options){.path = file}, &store, NULL), PJ_OK);
    for (uint64_t seed = 7001; seed < 7001 + RUNS; seed++) {
        made m;
        pj_run_data d;
        made_begin(&m, seed, sensors[seed % 4]);
        plant_any(&m);
        made_end(&m, &d);
        const pj_run_info with = d.info;
        assert_run_holds(&d);
        found += with.disturbed.mj > 0;
        int64_t *net = calloc(d.layer_count, sizeof *net);
        for (uint32_t l = 0; l < d.layer_count; l++) net[l] = net_of_layer(&d, l);
        pj_run_data stored;
        load_without(store, &d, &stored);
        leave_out(&d);
        assert_same_rows(&d, &stored);
        pj_run_data_fini(&stored);
        assert_run_holds(&d);
        assert_net_holds(&d, net);
        free(net);
        assert_near(d.info.total_mj + with.disturbed.mj, with.total_mj, 1e-9 * with.total_mj);
        assert_near(d.info.net_mj + with.disturbed.net_mj, with.net_mj, 1e-9 * with.total_mj);
        assert_near(d.info.total_ms + with.disturbed.ms, with.total_ms, 1e-9 * with.total_ms);
        end_run(&m.w, &d);
    }
    assert_int_equal(found, RUNS);
    pj_store_close(store);
    unlink(file);
    rmdir(path);
}

/* ---- planted stalls ---- */

/* Time of the decode phase outside its steps draws one power. */
static double planted_gap_mj(const made *m, const pj_run_data *d)
{
    double mj = 0, ms = 0;
    for (uint32_t i = 0; i < d->phase_count; i++) {
        if (d->phases[i].phase != PJ_PHASE_DECODE) continue;
        mj += pj_mj_of_nj(d->phases[i].energy.planted_nj);
        ms += d->phases[i].duration_ms;
    }
    for (uint32_t t = m->sequences; t < d->token_count; t++) {
        mj -= pj_mj_of_nj(d->tokens[t].energy.planted_nj);
        if (t % m->sequences == 0) ms -= d->tokens[t].duration_ms;
    }
    return mj / ms * (double)m->stall_ns * 1e-6;
}

/* A stall draws the power of the component that it holds up. */
static double planted_extra_mj(const made *m, const pj_run_data *d)
{
    if (m->gap_after >= 0) return planted_gap_mj(m, d);
    pj_phase phase = m->stalled_step ? PJ_PHASE_DECODE : PJ_PHASE_PREFILL;
    double mw = pj_sim_class_mw(&m->sim, "down_proj", phase);
    return (mw + m->sim.idle_mw) * (double)m->stall_ns * 1e-9;
}

static void assert_planted_is_found(const made *m, const pj_run_data *d, uint32_t *covered)
{
    pj_arena arena;
    pj_arena_init(&arena, 0);
    pj_disturbances list = events_of(d, &arena);
    assert_int_equal(list.count, 1);
    const pj_disturbance *e = &list.items[0];
    pj_disturbance_kind kind = m->gap_after >= 0     ? PJ_DISTURBED_GAP
                               : m->stalled_step > 0 ? PJ_DISTURBED_STEP
                                                     : PJ_DISTURBED_PROMPT;
    assert_int_equal(e->kind, kind);
    if (kind != PJ_DISTURBED_GAP)
        assert_int_equal(e->token, (uint32_t)m->stalled_step * m->sequences);
    assert_near(e->ms - e->expected_ms, (double)m->stall_ns * 1e-6,
                0.05 * (double)m->stall_ns * 1e-6);
    double off = fabs(e->extra_mj - planted_extra_mj(m, d));
    *covered += off <= 1.96 * e->extra_sd_mj;
    assert_that(off, <=, 0.25 * e->extra_mj);
    assert_near(d->info.disturbed.mj, e->extra_mj, 1e-6 * e->extra_mj);
    pj_arena_fini(&arena);
}

static void planted_stalls_are_found(void **state)
{
    uint32_t covered = 0;
    (void)state;
    for (uint64_t seed = 8101; seed < 8101 + RUNS; seed++) {
        made m;
        pj_run_data d;
        made_begin(&m, seed, "preset=rapl");
        plant_any(&m);
        made_end(&m, &d);
        assert_planted_is_found(&m, &d, &covered);
        end_run(&m.w, &d);
    }
    print_message("extra joules of %u of %d stalls within their interval\n", covered, RUNS);
    assert_that(covered, >=, 0.9 * RUNS);
}

/* The extra time is taken from the component that was held up, not from those beside it. */
static void a_stall_is_its_components(void **state)
{
    (void)state;
    for (int stalled = 0; stalled < 12; stalled += 4) {
        made m;
        pj_run_data d;
        double stalled_ms = 0, other_ms = 0;
        made_begin(&m, 9301, "preset=rapl");
        m.stalled_step = stalled;
        m.stalled_layer = 2;
        m.stall_ns = 30000000;
        made_end(&m, &d);
        for (uint32_t i = 0; i < d.component_count; i++) {
            const pj_component_row *c = &d.components[i];
            bool here = c->disturbed_ms > 0 && d.layers[c->layer].layer_index == 2 &&
                        strcmp(c->name, "down_proj") == 0;
            *(here ? &stalled_ms : &other_ms) += c->disturbed_ms;
        }
        assert_near(stalled_ms, 30, 1);
        assert_that(other_ms, <, 0.5);
        end_run(&m.w, &d);
    }
}

static void quiet_runs_have_none(void **state)
{
    uint32_t quiet = 0;
    (void)state;
    for (uint64_t seed = 5001; seed < 5001 + QUIET_RUNS; seed++) {
        made m;
        pj_run_data d;
        made_begin(&m, seed, "preset=rapl");
        made_end(&m, &d);
        assert_non_null(d.info.disturbances_json);
        quiet += d.info.disturbed_tokens == 0 && d.info.disturbed.ms == 0;
        end_run(&m.w, &d);
    }
    assert_int_equal(quiet, QUIET_RUNS);
}

/* Of 100 quiet runs at least 95 have no event of any kind, whatever the sensor. */
static void quiet_runs_have_no_events(void **state)
{
    static const char *const sensors[] = {"preset=rapl", "preset=nvml-counter", "preset=nvml-volta",
                                          "preset=nvml-a100", "preset=apple"};
    char path[] = "/tmp/pj-events-XXXXXX", file[64];
    uint32_t quiet = 0;
    pj_store *store;
    (void)state;
    assert_non_null(mkdtemp(path));
    snprintf(file, sizeof file, "%s/runs.db", path);
    assert_int_equal(pj_store_open(&(pj_store_options){.path = file}, &store, NULL), PJ_OK);
    for (uint64_t seed = 6001; seed < 6001 + QUIET_RUNS; seed++) {
        made m;
        pj_run_data d;
        pj_arena arena;
        pj_run_insight insight = {0};
        made_begin(&m, seed, sensors[seed % (sizeof sensors / sizeof *sensors)]);
        made_end(&m, &d);
        pj_arena_init(&arena, 0);
        assert_int_equal(pj_store_save(store, &d, NULL), PJ_OK);
        assert_int_equal(pj_run_events_get(store, &d.info, &arena, &insight, NULL), PJ_OK);
        quiet += insight.anomaly_count == 0;
        pj_arena_fini(&arena);
        end_run(&m.w, &d);
    }
    pj_store_close(store);
    unlink(file);
    rmdir(path);
    print_message("%u of %d quiet runs without an event\n", quiet, QUIET_RUNS);
    assert_that(quiet, >=, (PJ_SANITIZED ? 0.8 : 0.95) * QUIET_RUNS);
}

/* ---- causes ---- */

static void lower_power(pj_run_data *d, const pj_disturbance *e)
{
    for (uint32_t i = 0; i < d->samples.count; i++)
        if (d->samples.t_ms[i] >= e->start_ms && d->samples.t_ms[i] <= e->start_ms + e->ms)
            d->samples.columns[PJ_RAIL_TOTAL][i] *= 0.3;
}

static void causes_are_found(void **state)
{
    static const pj_disturbance_cause causes[] = {PJ_DISTURBED_BUSY, PJ_DISTURBED_WAITED,
                                                  PJ_DISTURBED_THROTTLED};
    (void)state;
    for (size_t k = 0; k < sizeof causes / sizeof *causes; k++) {
        made m;
        pj_run_data d;
        pj_condition_row slow = {.device = "cpu", .throttle = "thermal"};
        made_begin(&m, 333 + k, "preset=rapl,low_mw=40000,high_mw=41000");
        m.stalled_step = 5;
        m.stalled_layer = 1;
        m.stall_ns = 30000000;
        made_end(&m, &d);
        pj_disturbances list = events_of(&d, &d.arena);
        assert_int_equal(list.count, 1);
        slow.t_ms = list.items[0].start_ms + 1;
        if (causes[k] == PJ_DISTURBED_WAITED) lower_power(&d, &list.items[0]);
        if (causes[k] == PJ_DISTURBED_THROTTLED) {
            d.conditions = &slow;
            d.condition_count = 1;
        }
        assert_int_equal(pj_disturbances_explain(&d, NULL), PJ_OK);
        list = events_of(&d, &d.arena);
        assert_int_equal(list.items[0].cause, causes[k]);
        end_run(&m.w, &d);
    }
}

/* ---- comparable runs ---- */

typedef struct comparable {
    double prefill_ms;
} comparable;

/* A device without a sensor: what it worked on has no energy, of which nothing can be a part. */
static void a_phase_without_energy_has_no_part_of_it(void **state)
{
    (void)state;
    made m;
    pj_run_data d;
    made_begin(&m, 9301, "preset=rapl");
    m.stalled_step = 4;
    m.stalled_layer = 2;
    m.stall_ns = 30000000;
    made_end(&m, &d);
    for (int known = 1; known >= 0; known--) {
        assert_int_equal(pj_disturbances_find(&d, NULL, NULL), PJ_OK);
        for (uint32_t i = 0; i < d.phase_count; i++) {
            pj_phase_row *p = &d.phases[i];
            if (p->phase != PJ_PHASE_DECODE) continue;
            assert_that(p->disturbed_part.ms, >, 20);
            assert_true((p->disturbed_part.gross_nj != 0) == (known == 1));
            assert_true((p->disturbed_part.net_nj != 0) == (known == 1));
            p->energy = PJ_ENERGY_UNKNOWN;
        }
    }
    end_run(&m.w, &d);
}

static void tell_usual(void *context, const pj_run_info *info, pj_usual_times *usual)
{
    usual->prefill_ms = ((const comparable *)context)->prefill_ms;
}

/* A prompt that was slow everywhere shows it only beside other runs; one that others took as long
 * for is as usual, whatever its layers say. */
static void comparable_runs_decide(void **state)
{
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        made m;
        pj_run_data d;
        made_begin(&m, 4711, "preset=rapl");
        if (!slow) {
            m.stalled_step = 0;
            m.stalled_layer = 1;
            m.stall_ns = 40000000;
        }
        comparable others = {slow ? 0.5 : 45};
        put_phase(&m, PJ_PHASE_PREFILL, 0, 1);
        put_phase(&m, PJ_PHASE_DECODE, 1, 1 + m.steps);
        put_end(&m.w, m.now + 1000);
        pj_build_options options = {.sim = &m.sim, .usual = tell_usual, .usual_context = &others};
        assert_int_equal(build_with(&m.w, &options, &d), PJ_OK);
        assert_that(d.info.disturbed.ms > 0, ==, (slow == 1));
        assert_int_equal(d.tokens[0].disturbed, slow);
        end_run(&m.w, &d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_and_disturbance_are_the_whole),
        cmocka_unit_test(planted_stalls_are_found),
        cmocka_unit_test(a_stall_is_its_components),
        cmocka_unit_test(quiet_runs_have_none),
        cmocka_unit_test(quiet_runs_have_no_events),
        cmocka_unit_test(causes_are_found),
        cmocka_unit_test(a_phase_without_energy_has_no_part_of_it),
        cmocka_unit_test(comparable_runs_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
