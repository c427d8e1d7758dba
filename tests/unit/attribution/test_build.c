/* From a spool to a finished run: rows, nesting, gaps, batches, device spans, missing levels,
 * truncated spools, threads, failing allocations. */
#include "../assertions.h"
#include "../sanitized.h"
#include "made_spool.h"
#include "trace/run_json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static void rows_hang_together(void **state)
{
    writer w;
    pj_run_data d;
    open_spool(&w);
    build_steps(&w, NULL, 4, &d);
    assert_int_equal(d.info.status, PJ_RUN_COMPLETED);
    assert_int_equal(d.phase_count, 2);
    assert_int_equal(d.token_count, 5);
    assert_int_equal(d.layer_count, 10);
    assert_int_equal(d.component_count, 30);
    assert_int_equal(d.operation_count, 10);
    assert_string_equal(d.info.output_text, "abbbb");
    assert_near(d.info.total_ms, 10, 1e-9);
    assert_near(d.info.prefill_ms, 2, 1e-9);
    assert_near(d.info.decode_ms, 8, 1e-9);
    assert_true(isnan(d.info.total_mj));
    assert_int_equal(d.info.quality, PJ_UNAVAILABLE);
    for (uint32_t i = 0; i < d.component_count; i++) {
        const pj_component_row *c = &d.components[i];
        assert_that(c->energy.gross_nj, ==, PJ_NJ_UNKNOWN);
        assert_int_equal(d.layers[c->layer].token, c->token);
        const pj_token_row *token = &d.tokens[c->token];
        assert_that(c->start_ms, >=, token->start_ms);
        assert_that(c->start_ms + c->duration_ms, <=, token->start_ms + token->duration_ms + 1e-9);
        assert_int_equal(d.phases[token->phase].phase,
                         token->position ? PJ_PHASE_DECODE : PJ_PHASE_PREFILL);
    }
    for (uint32_t i = 0; i < d.operation_count; i++)
        assert_string_equal(d.components[d.operations[i].component].name, "attention");
    /* attention 0.4 ms and q_proj 0.2 ms of each layer, down_proj 0.2 ms. */
    assert_near(d.layers[0].attention_ms, .6, 1e-9);
    assert_near(d.layers[0].mlp_ms, .2, 1e-9);
    pj_run_data_fini(&d);
    end_run(&w, &d);
}

/* A program with thousands of component names: 12,000 spans of 3,000 names. */
static void thousands_of_names_cost_little(void **state)
{
    enum { SPANS = 12000, NAMES = 3000 };
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    begin_run(&w, &sim, "period_ms=1");
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
    if (!PJ_SANITIZED) assert_that(seconds, <, 2);
    assert_that(d.class_count, >=, NAMES);
    assert_that(d.info.total_mj, >, 0);
    end_run(&w, &d);
}

/* From 20,000 nodes on, rows and energies are computed by several threads; an allocation failure in
 * one of them fails the build. */
static void a_large_run_is_made_by_several_threads(void **state)
{
    enum { STEPS = 2500 };
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    begin_run(&w, &sim, "kind=counter,period_ms=1");
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
            assert_that(e->method, !=, PJ_METHOD_NONE);
            assert_that(e->sd_mj, >=, 0);
            assert_int_equal(d.layers[d.components[i].layer].token, d.components[i].token);
        }
        pj_run_data_fini(&d);
        if (after < 0) break;
    }
    pj_spool_close(&w.spool, true);
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
            assert_near(rows[s].energy.gross_nj, rows[0].energy.gross_nj, 2);
            whole += rows[s].energy.gross_nj;
            self += rows[s].energy.self_nj;
        }
        for (uint32_t i = 0; i < d.layer_count; i++) /* it belongs to no single token */
            assert_int_equal(d.layers[i].token, PJ_NO_PARENT);
        assert_that(layers, >, 0);
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
    /* Missing levels: layers without a token, an operation without a component, a section without a
     * phase. */
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

/* Two nested spans of one kind: the outer one keeps only its self energy, so that sums still hold.
 */
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
        assert_that(d.operations[i].energy.gross_nj, >, 0);
    assert_that(d.operations[0].energy.gross_nj, >, 5 * d.operations[1].energy.gross_nj);
    assert_that(d.operations[1].energy.sd_mj, >=, 0);
    end_run(&w, &d);
}

static void device_spans_find_their_place(void **state)
{
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    begin_run(&w, &sim, "period_ms=0.1");
    put_run(&w, 4, 1);
    /* A device span of token 2, layer 1, attention, reported after all else. */
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
            assert_that(d.component_count, >=, most);
            most = d.component_count;
            pj_run_data_fini(&d);
        } else {
            assert_int_equal(most, 0); /* without the record of facts there is no run */
        }
        free(copy);
    }
    assert_int_equal(most, 24);
    pj_spool_reader_close(&whole);
    pj_spool_close(&w.spool, true);
}

/* A program that reports nothing: its power was read until it was killed. */
static void an_interrupted_run_lasts_until_its_last_reading(void **state)
{
    enum { READINGS = 400 };
    writer w;
    pj_run_data d;
    pj_sim_spec sim;
    begin_run(&w, &sim, "period_ms=10");
    pj_span phase = make(PJ_SPAN_PHASE, PJ_PHASE_PRE_INFERENCE, PJ_PHASE_IDLE, -1, -1, 2000, 0);
    put_begin(&w, phase, w.serial++);
    for (int i = 0; i <= READINGS; i++) { /* 5 W */
        int64_t at = 1000 + i * INT64_C(10000000);
        pj_reading reading = {
            .before_ns = at, .after_ns = at, .value = i * 50000.0, .sequence = (uint32_t)i};
        assert_int_equal(
            pj_spool_append(&w.spool, PJ_RECORD_READINGS, &reading, sizeof reading, NULL), PJ_OK);
    }
    assert_int_equal(build(&w, NULL, &d), PJ_OK);
    assert_int_equal(d.info.status, PJ_RUN_INTERRUPTED);
    assert_float_equal(d.info.total_ms, 4000, 1e-9);
    assert_float_equal(d.info.total_mj, 20000, 1);
    assert_float_equal(d.phases[0].duration_ms, 4000 - .001, 1e-9);
    assert_conserved(&d);
    end_run(&w, &d);
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
        assert_that(err.text[0], !=, 0);
        assert_that(++failures, <, 1000);
    }
    assert_that(failures, >, 20);
    pj_spool_reader_close(&reader);
    pj_spool_close(&w.spool, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_hang_together),
        cmocka_unit_test(thousands_of_names_cost_little),
        cmocka_unit_test(a_large_run_is_made_by_several_threads),
        cmocka_unit_test(a_batch_shares_its_steps),
        cmocka_unit_test(what_a_client_leaves_out_is_made_up),
        cmocka_unit_test(nested_spans_of_one_kind_stand_apart),
        cmocka_unit_test(device_spans_find_their_place),
        cmocka_unit_test(a_cut_spool_is_an_interrupted_run),
        cmocka_unit_test(an_interrupted_run_lasts_until_its_last_reading),
        cmocka_unit_test(nth_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
