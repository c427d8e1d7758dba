/* Runs whose work is on devices: nesting, which rail pays for what, idle time of devices, devices
 * and hosts without a rail, clock errors, launches that are not known. */
#include "../assertions.h"
#include "made_spool.h"
#include "trace/run_json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS INT64_C(1000000)
enum { TOKENS = 24, TOKEN_MS = 20, FIRST_NS = 1000 };

/* ---- recording ------------------------------------------------------------------------------- */

static void put_device(writer *w, uint32_t number, const char *name, const char *uuid,
                       const char *pci, const char *rail)
{
    pj_spool_writer out = {.spool = &w->spool};
    pj_device_row row = pj_device_row_make(number);
    row.name = name;
    row.kind = "gpu";
    row.uuid = uuid;
    row.pci = pci;
    row.rail = rail;
    pj_spool_put_device(&out, &row);
    assert_int_equal(out.status, PJ_OK);
}

/* The spans of one device, on its lane. */
typedef struct queue {
    writer *w;
    uint32_t device, serial;
    int64_t error_ns;
} queue;

static void launch_from(const queue *q, uint32_t host_serial)
{
    pj_launch_record record = {.clock_error_ns = q->error_ns,
                               .lane = 10 + q->device,
                               .serial = q->serial,
                               .host_lane = host_serial == UINT32_MAX ? UINT32_MAX : 0,
                               .host_serial = host_serial,
                               .device = q->device};
    pj_spool_append(&q->w->spool, PJ_RECORD_LAUNCH, &record, sizeof record, NULL);
}

static void put_on(const queue *q, pj_span_kind kind, uint32_t id, int32_t token, int32_t layer,
                   int64_t begin_ns, int64_t end_ns, uint32_t serial)
{
    pj_span span = make(kind, id, PJ_PHASE_DECODE, token, layer, begin_ns, end_ns);
    span.device = (uint8_t)q->device;
    span.lane = (uint16_t)(10 + q->device);
    span.flags = PJ_SPAN_DEVICE;
    put_span(q->w, span, serial);
}

static int64_t token_ns(int token)
{
    return FIRST_NS + token * TOKEN_MS * MS;
}

/* The host's phase and tokens; returns the serial number of the first token. */
static uint32_t put_host(writer *w)
{
    int64_t end_ns = token_ns(TOKENS);
    uint32_t phase = w->serial++, first = w->serial;
    put_begin(w, make(PJ_SPAN_PHASE, PJ_PHASE_DECODE, PJ_PHASE_IDLE, -1, -1, FIRST_NS, 0), phase);
    for (int t = 0; t < TOKENS; t++)
        put_span(
            w,
            make(PJ_SPAN_TOKEN, (uint32_t)t, PJ_PHASE_DECODE, -1, -1, token_ns(t), token_ns(t + 1)),
            w->serial++);
    put_span(w, make(PJ_SPAN_PHASE, PJ_PHASE_DECODE, PJ_PHASE_DECODE, -1, -1, FIRST_NS, end_ns),
             phase);
    return first;
}

/* A layer: q_proj, and attention with two operations and time of its own. */
static void put_layer(queue *q, int token, int32_t layer, int64_t at_ns)
{
    uint32_t s = q->serial;
    q->serial += 5;
    put_on(q, PJ_SPAN_COMPONENT, Q_PROJ, token, layer, at_ns, at_ns + 3 * MS, s + 1);
    put_on(q, PJ_SPAN_OPERATION, QK_MATMUL, token, layer, at_ns + 3 * MS, at_ns + 4 * MS, s + 3);
    put_on(q, PJ_SPAN_OPERATION, SOFTMAX, token, layer, at_ns + 4 * MS, at_ns + 6 * MS, s + 4);
    put_on(q, PJ_SPAN_COMPONENT, ATTENTION, token, layer, at_ns + 3 * MS, at_ns + 7 * MS, s + 2);
    put_on(q, PJ_SPAN_LAYER, (uint32_t)layer, token, -1, at_ns, at_ns + 8 * MS, s);
}

/* Two devices that overlap each other and the host; all of their spans come after the host's last,
 * and the second one's work ends when the next token has begun. */
static void put_two_devices(writer *w, uint32_t first_token)
{
    queue one = {.w = w, .device = 1}, two = {.w = w, .device = 2};
    for (int t = 0; t < TOKENS; t++) {
        launch_from(&one, first_token + (uint32_t)t);
        put_layer(&one, t, 0, token_ns(t) + 2 * MS);
        launch_from(&two, first_token + (uint32_t)t);
        put_layer(&two, t, 1, token_ns(t) + 7 * MS);
        if (t + 1 < TOKENS) {
            launch_from(&two, first_token + (uint32_t)t);
            put_on(&two, PJ_SPAN_COMPONENT, DOWN_PROJ, t, 2, token_ns(t) + 17 * MS,
                   token_ns(t) + 23 * MS, two.serial++);
        }
    }
}

/* ---- planted truth ----------------------------------------------------------------------------
 */

#define POWERS "q_proj=90000,attention=60000,softmax=50000,qk_matmul=120000,down_proj=70000"

static void assert_near_truth(const pj_energy *e, const char *name)
{
    double mj = pj_mj_of_nj(e->gross_nj), truth = pj_mj_of_nj(e->planted_nj);
    if (!(fabs(mj - truth) <= fmax(0.02 * truth, 3 * (double)e->sd_mj)))
        fail_msg("%s: %g mJ attributed, %g planted, sd %g", name, mj, truth, (double)e->sd_mj);
}

/* No row twice, each on its device. */
static void assert_rows_of_two_devices(const pj_run_data *d)
{
    assert_int_equal(d->token_count, TOKENS);
    assert_int_equal(d->layer_count, TOKENS * 3 - 1); /* down_proj's layer is synthesised */
    assert_int_equal(d->component_count, TOKENS * 5 - 1);
    assert_int_equal(d->operation_count, TOKENS * 4);
    for (uint32_t i = 0; i < d->component_count; i++) {
        const pj_component_row *c = &d->components[i];
        const pj_layer_row *layer = &d->layers[c->layer];
        assert_int_equal(c->device, layer->layer_index == 0 ? 1 : 2);
        assert_int_equal(layer->device, c->device);
        assert_int_equal(layer->token, c->token);
    }
    for (uint32_t i = 0; i < d->operation_count; i++)
        assert_string_equal(d->components[d->operations[i].component].name, "attention");
}

static void assert_devices_add_up(const pj_run_data *d)
{
    double sum = 0;
    for (uint32_t i = 0; i < d->device_count; i++) sum += d->devices[i].energy_mj;
    assert_near(sum, d->info.total_mj, 1e-9 * d->info.total_mj);
    for (uint32_t i = 0; i < d->rail_energy_count; i++) { /* cpu, gpu0, gpu1 */
        const pj_rail_energy *e = &d->rail_energy[i];
        if (e->phase == PJ_PHASE_COUNT)
            assert_near(e->gross_mj, d->devices[e->rail].energy_mj, 1e-9 * d->info.total_mj);
    }
}

static void devices_are_charged_to_their_rails(void **state)
{
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    begin_run(&w, &sim, "rails=cpu+gpu0+gpu1,kind=counter,period_ms=1,idle_mw=10000," POWERS);
    put_device(&w, 1, "card A", NULL, NULL, "gpu0");
    put_device(&w, 2, "card B", NULL, NULL, "gpu1");
    put_two_devices(&w, put_host(&w));
    put_end(&w, token_ns(TOKENS));
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    assert_conserved(&d);
    assert_rows_of_two_devices(&d);
    assert_int_equal(d.device_count, 3);
    assert_string_equal(d.devices[0].rails, "cpu");
    assert_string_equal(d.devices[1].rails, "gpu0");
    assert_string_equal(d.devices[2].rails, "gpu1");
    assert_devices_add_up(&d);
    /* 7 of 8 ms of a layer: the last is between components */
    assert_near(d.devices[1].busy_ms, TOKENS * 7, 1e-6);
    assert_near(d.devices[2].busy_ms, TOKENS * 7 + (TOKENS - 1) * 6, 1e-6);
    for (uint32_t i = 0; i < d.component_count; i++)
        assert_near_truth(&d.components[i].energy, d.components[i].name);
    for (uint32_t i = 0; i < d.operation_count; i++)
        assert_near_truth(&d.operations[i].energy, d.operations[i].name);
    for (uint32_t i = 0; i < d.token_count; i++) assert_near_truth(&d.tokens[i].energy, "a token");
    /* q_proj: 90 W for 3 ms above the idle power of its own card, and of none else */
    assert_near(pj_mj_of_nj(d.components[0].energy.planted_nj), (90 + 10. / 3) * 3, 1e-5);
    end_run(&w, &d);
}

/* Two queues of one card: its power is shared in proportion to that of their classes. */
static void queues_of_one_device_share_its_power(void **state)
{
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    begin_run(&w, &sim, "rails=cpu+gpu,kind=counter,period_ms=1,q_proj=90000,down_proj=30000");
    put_device(&w, 1, "card", NULL, NULL, NULL);
    uint32_t first = put_host(&w);
    queue q = {.w = &w, .device = 1};
    for (int t = 0; t < TOKENS; t++) {
        launch_from(&q, first + (uint32_t)t);
        put_on(&q, PJ_SPAN_COMPONENT, Q_PROJ, t, -1, token_ns(t) + MS, token_ns(t) + 9 * MS,
               q.serial++);
        put_on(&q, PJ_SPAN_COMPONENT, DOWN_PROJ, t, -1, token_ns(t) + 5 * MS, token_ns(t) + 17 * MS,
               q.serial++);
    }
    put_end(&w, token_ns(TOKENS));
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    assert_conserved(&d);
    assert_near(d.devices[1].busy_ms, TOKENS * 16, 1e-6);
    for (uint32_t i = 0; i < d.component_count; i++) {
        const pj_component_row *c = &d.components[i];
        double truth = strcmp(c->name, "q_proj") == 0 ? 90 * 8 : 30 * 12;
        assert_near(pj_mj_of_nj(c->energy.net_nj), truth, 0.03 * truth);
    }
    end_run(&w, &d);
}

/* A model is loaded on the device: the upload is part of the section `model_load` of the host. */
static void an_upload_is_part_of_loading_the_model(void **state)
{
    enum { MODEL_LOAD = 30, TENSOR_TRANSFER };
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    begin_run(&w, &sim, "rails=cpu+gpu,kind=counter,period_ms=1,tensor_transfer=80000," POWERS);
    pj_spool_writer out = {.spool = &w.spool};
    pj_spool_put_name(&out, MODEL_LOAD, "model_load");
    pj_spool_put_name(&out, TENSOR_TRANSFER, "tensor_transfer");
    put_device(&w, 1, "card", NULL, NULL, NULL);
    put_span(&w,
             make(PJ_SPAN_SECTION, MODEL_LOAD, PJ_PHASE_PRE_INFERENCE, -1, -1, FIRST_NS + 5 * MS,
                  FIRST_NS + 65 * MS),
             1);
    put_span(&w,
             make(PJ_SPAN_PHASE, PJ_PHASE_PRE_INFERENCE, PJ_PHASE_PRE_INFERENCE, -1, -1, FIRST_NS,
                  FIRST_NS + 80 * MS),
             0);
    queue q = {.w = &w, .device = 1};
    launch_from(&q, 1);
    pj_span upload = make(PJ_SPAN_SECTION, TENSOR_TRANSFER, PJ_PHASE_PRE_INFERENCE, -1, -1,
                          FIRST_NS + 15 * MS, FIRST_NS + 55 * MS);
    upload.device = 1;
    upload.lane = 11;
    upload.flags = PJ_SPAN_DEVICE;
    put_span(&w, upload, q.serial);
    put_end(&w, FIRST_NS + 80 * MS);
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    assert_conserved(&d);
    assert_int_equal(d.section_count, 2);
    const pj_section_row *load = &d.sections[0], *transfer = &d.sections[1];
    assert_string_equal(load->name, "model_load");
    assert_int_equal(load->device, 0);
    assert_string_equal(transfer->name, "tensor_transfer");
    assert_int_equal(transfer->device, 1);
    /* half of 10 W of idle power; loading has the card's idle time besides, and the host's */
    assert_near(pj_mj_of_nj(transfer->energy.gross_nj), 40 * 85, 40);
    assert_near(pj_mj_of_nj(load->energy.gross_nj), pj_mj_of_nj(load->energy.planted_nj), 60);
    assert_that(pj_mj_of_nj(load->energy.planted_nj), >, 40 * 85 + 20 * 5 + 60 * 5 - 1);
    assert_near(d.info.model_load_mj, pj_mj_of_nj(load->energy.gross_nj), 1e-6);
    end_run(&w, &d);
}

/* ---- what no rail measures --------------------------------------------------------------------
 */

static void a_device_without_a_rail_has_no_energy(void **state)
{
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    begin_run(&w, &sim, "rails=cpu+gpu0,kind=counter,period_ms=1," POWERS);
    put_device(&w, 1, "card A", NULL, NULL, "gpu0");
    put_device(&w, 2, "card B", NULL, NULL, "gpu1");
    put_two_devices(&w, put_host(&w));
    put_end(&w, token_ns(TOKENS));
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    assert_null(d.devices[2].rails);
    assert_string_equal(d.devices[2].rail_reason, "no rail has the given name");
    assert_true(isnan(d.devices[2].energy_mj));
    assert_true(d.info.total_is_partial);
    assert_string_equal(d.info.partial_rails, "gpu1");
    assert_near(d.info.total_mj, d.devices[0].energy_mj + d.devices[1].energy_mj, 1e-6);
    assert_true(isnan(d.info.request_mj));
    assert_true(isnan(d.info.attribution_interval));
    assert_true(isnan(d.info.pj_per_flop));
    for (uint32_t i = 0; i < d.component_count; i++)
        assert_int_equal(d.components[i].energy.gross_nj == PJ_NJ_UNKNOWN,
                         d.components[i].device == 2);
    for (uint32_t i = 0; i < d.token_count; i++) /* each has work on both */
        assert_that(d.tokens[i].energy.gross_nj, ==, PJ_NJ_UNKNOWN);
    bool warned = false;
    for (uint32_t i = 0; i < d.warning_count; i++)
        warned |= strcmp(d.warnings[i].code, "device_without_sensor") == 0 &&
                  strstr(d.warnings[i].text, "card B");
    assert_true(warned);
    end_run(&w, &d);
}

/* In a virtual machine only the card has a sensor: the run is partial, its parts are the card's. */
static void a_host_without_a_rail_is_missing_from_the_total(void **state)
{
    writer w;
    pj_run_data d;
    pj_spool_writer out = {.spool = &w.spool};
    open_spool(&w);
    pj_rail rail = {.name = "gpu0",
                    .source = "nvml",
                    .device = "GPU-00112233-4455-6677-8899-aabbccddeeff 580.1",
                    .rail_class = PJ_RAIL_GPU,
                    .kind = PJ_RAIL_COUNTER,
                    .scope = PJ_SCOPE_BOARD,
                    .quality = PJ_MEASURED,
                    .parent = -1,
                    .period_ns = MS};
    pj_spool_put_rail(&out, 0, &rail, 20000, 10);
    put_device(&w, 1, "card", "00112233445566778899AABBCCDDEEFF", NULL, NULL);
    for (int64_t at = -2; at <= TOKENS * TOKEN_MS + 2; at++) /* 100 W */
        pj_spool_put_reading(&out, &(pj_reading){.before_ns = FIRST_NS + 3 * MS + at * MS,
                                                 .after_ns = FIRST_NS + 3 * MS + at * MS,
                                                 .fresh_ns = FIRST_NS + 3 * MS + at * MS,
                                                 .value = 1e6 + (double)at * 1e5});
    uint32_t first = put_host(&w);
    queue q = {.w = &w, .device = 1};
    for (int t = 0; t < TOKENS; t++) {
        launch_from(&q, first + (uint32_t)t);
        put_layer(&q, t, 0, token_ns(t) + 2 * MS);
    }
    put_end(&w, token_ns(TOKENS));
    assert_int_equal(build(&w, NULL, &d), PJ_OK);
    assert_string_equal(d.devices[1].rails, "gpu0");
    assert_string_equal(d.devices[1].rail_reason, "by UUID");
    assert_null(d.devices[0].rails);
    assert_true(isnan(d.devices[0].energy_mj));
    assert_string_equal(d.info.partial_rails, "cpu");
    assert_near(d.info.total_mj, d.devices[1].energy_mj, 1e-6);
    assert_conserved(&d);
    for (uint32_t i = 0; i < d.token_count; i++) assert_that(d.tokens[i].energy.gross_nj, >, 0);
    assert_that(d.info.request_mj, >, 0);
    end_run(&w, &d);
}

/* ---- which rail -------------------------------------------------------------------------------
 */

static pj_rail rail_of(const char *name, const char *device, pj_rail_class rail_class)
{
    pj_rail rail = {.rail_class = rail_class,
                    .kind = PJ_RAIL_COUNTER,
                    .scope = PJ_SCOPE_BOARD,
                    .quality = PJ_MEASURED,
                    .parent = -1,
                    .period_ns = MS};
    snprintf(rail.name, sizeof rail.name, "%s", name);
    snprintf(rail.source, sizeof rail.source, "nvml");
    snprintf(rail.device, sizeof rail.device, "%s", device);
    return rail;
}

#define UUID_A "GPU-aaaaaaaa-0000-0000-0000-000000000001"
#define UUID_B "GPU-bbbbbbbb-0000-0000-0000-000000000002"

static void rails_are_found(void **state)
{
    static const struct {
        const char *uuid, *pci, *name; /* of the device */
        const char *rail_a, *rail_b;   /* devices of the rails; NULL: there is none */
        const char *rails, *reason;
    } cases[] = {
        {UUID_B, NULL, NULL, UUID_A " 580", UUID_B " 580", "b", "by UUID"},
        {"BBBBBBBB000000000000000000000002", NULL, NULL, UUID_A, UUID_B, "b", "by UUID"},
        {NULL, "0000:0B:00.0", NULL, "amdgpu 0000:0a:00.0", "amdgpu 0000:0b:00.0", "b",
         "by PCI address"},
        {NULL, "0b:00.0", NULL, "amdgpu 0000:0a:00.0", "amdgpu 0000:0b:00.0", "b",
         "by PCI address"},
        {NULL, NULL, "a", UUID_A, UUID_B, "a", "by name"},
        {NULL, NULL, NULL, UUID_A, NULL, "a", "the only one of its kind"},
        {UUID_A, NULL, NULL, "gpu", NULL, "a", "the only one of its kind"},
        {NULL, NULL, NULL, UUID_A, UUID_B, NULL, "no rail measures it, or several may"},
        {UUID_B, NULL, NULL, UUID_A, NULL, NULL,
         "no rail has its UUID or PCI address, nor is there only one"},
        {UUID_A, NULL, "z", UUID_A, NULL, NULL, "no rail has the given name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        writer w;
        pj_run_data d;
        open_spool(&w);
        pj_spool_writer out = {.spool = &w.spool};
        pj_rail cpu = rail_of("cpu", "rapl-0", PJ_RAIL_CPU);
        pj_rail a = rail_of("a", cases[i].rail_a, PJ_RAIL_GPU);
        pj_spool_put_rail(&out, 0, &cpu, NAN, NAN);
        pj_spool_put_rail(&out, 1, &a, NAN, NAN);
        if (cases[i].rail_b) {
            pj_rail b = rail_of("b", cases[i].rail_b, PJ_RAIL_GPU);
            pj_spool_put_rail(&out, 2, &b, NAN, NAN);
        }
        put_device(&w, 1, "card", cases[i].uuid, cases[i].pci, cases[i].name);
        put_host(&w);
        put_end(&w, token_ns(TOKENS));
        assert_int_equal(build(&w, NULL, &d), PJ_OK);
        const char *rails = d.devices[1].rails ? d.devices[1].rails : "none";
        if (strcmp(rails, cases[i].rails ? cases[i].rails : "none") != 0)
            fail_msg("case %zu: rails %s", i, rails);
        if (strcmp(d.devices[1].rail_reason, cases[i].reason) != 0)
            fail_msg("case %zu: %s", i, d.devices[1].rail_reason);
        end_run(&w, &d);
    }
}

/* A UUID that two devices have, or that is zero, tells no rail; an address does, and what is left
 * is the other's. */
static void rails_of_one_uuid(void **state)
{
    static const char zero[] = "00000000-0000-0000-0000-000000000000";
    static const struct {
        const char *uuid;
        bool has_b;
        const char *reasons[2];
    } cases[] = {
        {UUID_A, true, {"the only one of its kind", "by PCI address"}},
        {zero, true, {"the only one of its kind", "by PCI address"}},
        {UUID_A,
         false,
         {"no rail has its UUID or PCI address, nor is there only one",
          "no rail has its UUID or PCI address, nor is there only one"}},
        {zero,
         false,
         {"no rail has its UUID or PCI address, nor is there only one",
          "no rail has its UUID or PCI address, nor is there only one"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        writer w;
        pj_run_data d;
        open_spool(&w);
        pj_spool_writer out = {.spool = &w.spool};
        pj_rail a = rail_of("a", cases[i].uuid, PJ_RAIL_GPU);
        pj_rail b = rail_of("b", "amdgpu 0000:0b:00.0", PJ_RAIL_GPU);
        pj_spool_put_rail(&out, 0, &a, NAN, NAN);
        if (cases[i].has_b) pj_spool_put_rail(&out, 1, &b, NAN, NAN);
        put_device(&w, 1, "card", cases[i].uuid, "0000:0a:00.0", NULL);
        put_device(&w, 2, "card", cases[i].uuid, "0000:0b:00.0", NULL);
        put_host(&w);
        put_end(&w, token_ns(TOKENS));
        assert_int_equal(build(&w, NULL, &d), PJ_OK);
        for (int n = 0; n < 2; n++)
            if (strcmp(d.devices[1 + n].rail_reason, cases[i].reasons[n]) != 0)
                fail_msg("case %zu: device %d is measured %s", i, 1 + n,
                         d.devices[1 + n].rail_reason);
        end_run(&w, &d);
    }
}

/* ---- clocks -----------------------------------------------------------------------------------
 */

/* A card that draws 100 W and 60 W for 30 ms each by turns, read every 10 ms; its spans are
 * recorded `late_ns` late. Returns the energy of the first class, and its deviation. */
static double energy_of_late_spans(int64_t late_ns, int64_t error_ns, double *sd_mj)
{
    enum { ROUNDS = 12 };
    writer w;
    pj_run_data d;
    open_spool(&w);
    pj_spool_writer out = {.spool = &w.spool};
    pj_rail card = rail_of("gpu", "card", PJ_RAIL_GPU);
    card.period_ns = 10 * MS;
    card.gain_sd = 1e-4; /* and no offset, which is assumed of NVML */
    snprintf(card.source, sizeof card.source, "hwmon");
    pj_spool_put_rail(&out, 0, &card, 20000, 1);
    put_device(&w, 1, "card", NULL, NULL, NULL);
    double uj = 5e6;
    for (int64_t ms = -60; ms <= ROUNDS * 60 + 60; ms++) {
        if ((ms + 60) % 10 == 0)
            pj_spool_put_reading(&out, &(pj_reading){.before_ns = 61 * MS + ms * MS,
                                                     .after_ns = 61 * MS + ms * MS,
                                                     .fresh_ns = 61 * MS + ms * MS,
                                                     .value = uj});
        bool busy = ms >= 0 && ms < ROUNDS * 60;
        uj += !busy ? 20e3 : ms % 60 < 30 ? 100e3 : 60e3;
    }
    queue q = {.w = &w, .device = 1, .error_ns = error_ns};
    launch_from(&q, UINT32_MAX);
    for (int i = 0; i < 2 * ROUNDS; i++) {
        int64_t at_ns = 61 * MS + i * 30 * MS + late_ns;
        put_on(&q, PJ_SPAN_COMPONENT, i % 2 ? DOWN_PROJ : Q_PROJ, 0, -1, at_ns, at_ns + 30 * MS,
               q.serial++);
    }
    put_end(&w, 61 * MS + ROUNDS * 60 * MS);
    assert_int_equal(build(&w, NULL, &d), PJ_OK);
    double mj = NAN;
    for (uint32_t i = 0; i < d.class_count; i++)
        if (strcmp(d.classes[i].name, "q_proj") == 0) {
            mj = d.classes[i].energy_mj;
            *sd_mj = d.classes[i].energy_sd_mj;
        }
    if (error_ns) assert_near(d.devices[1].clock_error_us, (double)error_ns * 1e-3, 1e-9);
    end_run(&w, &d);
    return mj;
}

static void an_error_of_the_clock_widens_the_interval(void **state)
{
    const double truth_mj = 12 * 100 * 30;
    double exact_sd, wide_sd, late_sd, small_sd;
    double exact = energy_of_late_spans(0, 0, &exact_sd);
    double wide = energy_of_late_spans(0, 4 * MS, &wide_sd);
    double late = energy_of_late_spans(4 * MS, 4 * MS, &late_sd);
    double small = energy_of_late_spans(0, 9000, &small_sd);
    assert_near(exact, truth_mj, 1e-3 * truth_mj);
    assert_near(wide, exact, 1e-9 * truth_mj);
    assert_that(wide_sd, >, 0.01 * truth_mj);
    assert_that(exact_sd, <, 0.002 * truth_mj);
    assert_that(fabs(late - truth_mj), <, 1.96 * late_sd);
    /* one that does not matter beside the sensor's period changes nothing */
    assert_near(small, exact, 1e-9 * truth_mj);
    assert_near(small_sd, exact_sd, 1e-9 * truth_mj);
}

/* ---- what spools may lack ---------------------------------------------------------------------
 */

/* The description and the launch are lost: the spans are placed by their context. */
static void devices_without_description_are_placed_by_context(void **state)
{
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    begin_run(&w, &sim, "rails=cpu+gpu,kind=counter,period_ms=1," POWERS);
    put_host(&w);
    queue q = {.w = &w, .device = 3};
    for (int t = 0; t < TOKENS; t++) put_layer(&q, t, 0, token_ns(t) + 2 * MS);
    put_end(&w, token_ns(TOKENS));
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    assert_conserved(&d);
    assert_int_equal(d.layer_count, TOKENS);
    assert_int_equal(d.component_count, TOKENS * 2);
    for (uint32_t i = 0; i < d.layer_count; i++)
        assert_int_equal(d.tokens[d.layers[i].token].position, i);
    assert_int_equal(d.device_count, 4);
    assert_string_equal(d.devices[3].name, "device 3");
    end_run(&w, &d);
}

/* Outside phases a device's idle time is the run's idle time. */
static void idle_time_of_a_device_adds_up(void **state)
{
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    begin_run(&w, &sim, "rails=cpu+gpu,kind=counter,period_ms=1," POWERS);
    put_device(&w, 1, "card", NULL, NULL, NULL);
    put_host(&w);
    put_end(&w, token_ns(TOKENS) + 40 * MS);
    assert_int_equal(build(&w, &sim, &d), PJ_OK);
    assert_conserved(&d);
    assert_int_equal(d.phase_count, 2);
    assert_int_equal(d.phases[1].phase, PJ_PHASE_IDLE);
    assert_near(d.phases[1].duration_ms, 40, 1e-6);
    double gpu_mw = 0.5 * 10000;
    assert_near(d.devices[1].energy_mj, gpu_mw * (TOKENS * TOKEN_MS + 40) * 1e-3,
                0.01 * d.devices[1].energy_mj);
    assert_near(d.devices[1].busy_ms, 0, 0);
    end_run(&w, &d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_charged_to_their_rails),
        cmocka_unit_test(queues_of_one_device_share_its_power),
        cmocka_unit_test(an_upload_is_part_of_loading_the_model),
        cmocka_unit_test(a_device_without_a_rail_has_no_energy),
        cmocka_unit_test(a_host_without_a_rail_is_missing_from_the_total),
        cmocka_unit_test(rails_are_found),
        cmocka_unit_test(rails_of_one_uuid),
        cmocka_unit_test(an_error_of_the_clock_widens_the_interval),
        cmocka_unit_test(devices_without_description_are_placed_by_context),
        cmocka_unit_test(idle_time_of_a_device_adds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
