/* The request's energy, typical tokens and disturbed steps, on runs made up row by row. */
#include "../assertions.h"
#include "trace/request.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_STEPS = 400, MOST_BATCH = 4 };

/* A run of one prefill token and `steps` decode steps of `batch` sequences, each step with one
 * component outside the layers that holds its work. */
typedef struct made {
    pj_run_data d;
    pj_phase_row phases[8];
    pj_section_row sections[4];
    pj_token_row tokens[MOST_BATCH * (MOST_STEPS + 1)];
    pj_component_row components[MOST_STEPS];
} made;

static pj_energy energy_of(double mj)
{
    pj_energy e = PJ_ENERGY_UNKNOWN;
    if (isnan(mj)) return e;
    e.gross_nj = llround(mj * 1e6);
    e.net_nj = e.gross_nj / 2;
    return e;
}

static made *make(uint32_t steps, uint32_t batch)
{
    made *m = calloc(1, sizeof *m);
    pj_run_data *d = &m->d;
    d->phases = m->phases;
    d->sections = m->sections;
    d->tokens = m->tokens;
    d->components = m->components;
    d->phase_count = 2;
    m->phases[0] = (pj_phase_row){PJ_PHASE_PREFILL, 0, 5, energy_of(50)};
    m->phases[1] = (pj_phase_row){PJ_PHASE_DECODE, 5, steps, energy_of(100)};
    for (uint32_t step = 0; step <= steps; step++)
        for (uint32_t s = 0; s < batch; s++)
            m->tokens[d->token_count++] = (pj_token_row){.phase = step ? 1 : 0,
                                                         .position = step,
                                                         .sequence = s,
                                                         .step = PJ_NO_PARENT,
                                                         .start_ms = step ? 50 + step : 0,
                                                         .duration_ms = step ? 1 : 50,
                                                         .energy = energy_of(step ? 2 : 90),
                                                         .disturbed = 7};
    for (uint32_t step = 0; step < steps; step++)
        m->components[d->component_count++] = (pj_component_row){.layer = PJ_NO_PARENT,
                                                                 .section = PJ_NO_PARENT,
                                                                 .token = (step + 1) * batch,
                                                                 .step = PJ_NO_PARENT,
                                                                 .name = "lm_head",
                                                                 .flops = 1e6,
                                                                 .bytes = 1e6};
    d->info.total_mj = 1000;
    d->info.net_mj = 500;
    d->info.total_sd_mj = 10;
    d->info.total_sd = (pj_sd){6, 0, 8};
    d->info.total_ms = 300;
    return m;
}

static void unmake(made *m)
{
    pj_arena_fini(&m->d.arena);
    free(m);
}

static void set_step(made *m, uint32_t step, uint32_t batch, double ms, double work)
{
    for (uint32_t s = 0; s < batch; s++) m->tokens[step * batch + s].duration_ms = ms;
    m->components[step - 1].flops *= work;
}

static void figure(made *m)
{
    assert_int_equal(pj_request_figures(&m->d, NULL, NULL), PJ_OK);
}

static void loading_and_idle_gaps_are_left_out(void **state)
{
    made *m = make(20, 1);
    m->phases[m->d.phase_count++] = (pj_phase_row){PJ_PHASE_IDLE, 100, 30, energy_of(60)};
    m->phases[m->d.phase_count++] = (pj_phase_row){PJ_PHASE_IDLE, 200, 10, energy_of(20)};
    m->sections[m->d.section_count++] =
        (pj_section_row){0, PJ_NO_PARENT, PJ_NO_PARENT, "model_load", 0, 100, energy_of(300)};
    m->sections[m->d.section_count++] =
        (pj_section_row){0, PJ_NO_PARENT, PJ_NO_PARENT, "tokenization", 100, 1, energy_of(5)};
    figure(m);
    assert_near(m->d.info.request_mj, 620, 1e-9);
    assert_near(m->d.info.request_net_mj, 310, 1e-9);
    assert_near(m->d.info.request_ms, 160, 1e-9);
    assert_near(m->d.info.model_load_mj, 300, 1e-9);
    assert_near(m->d.info.request_sd_mj, 6.2, 1e-9);
    assert_near(pj_sd_total(&m->d.info.request_sd), 6.2, 1e-6);
    assert_near(m->d.info.model_load_sd_mj, 3, 1e-9);
    assert_near(pj_sd_total(&m->d.info.model_load_sd), 3, 1e-6);
    unmake(m);
}

static void a_run_without_loading_is_all_request(void **state)
{
    made *m = make(20, 1);
    figure(m);
    assert_that(m->d.info.request_mj, ==, 1000);
    assert_that(m->d.info.request_ms, ==, 300);
    assert_true(isnan(m->d.info.model_load_mj)); /* absent, not zero */
    unmake(m);
}

static void unknown_loading_makes_the_request_unknown(void **state)
{
    made *m = make(20, 1);
    m->sections[m->d.section_count++] =
        (pj_section_row){0, PJ_NO_PARENT, PJ_NO_PARENT, "model_load", 0, 100, energy_of(NAN)};
    figure(m);
    assert_true(isnan(m->d.info.request_mj) && isnan(m->d.info.model_load_mj));
    assert_that(m->d.info.request_ms, ==, 200);
    unmake(m);
}

static void typical_is_the_median_of_decode(void **state)
{
    made *m = make(6, 1); /* 2 mJ each; prefill's 90 mJ do not count */
    m->tokens[1].energy = energy_of(4);
    m->tokens[2].energy = energy_of(3);
    m->tokens[3].energy = energy_of(1000);
    m->tokens[4].energy = energy_of(NAN);
    figure(m);
    assert_that(m->d.info.typical_token_mj, ==, 3); /* of 2, 2, 3, 4, 1000 */
    unmake(m);
}

/* Markers of a program may have one time for several tokens: those have neither time nor energy. */
static void tokens_without_duration_are_not_typical(void **state)
{
    made *m = make(30, 1);
    for (uint32_t i = 1; i <= 30; i++) {
        m->tokens[i].duration_ms = i > 18 ? 1 : 0;
        m->tokens[i].energy = energy_of(i > 18 ? 7 : 0);
    }
    figure(m);
    assert_that(m->d.info.typical_token_mj, ==, 7);
    unmake(m);
}

static int count_marks(const made *m)
{
    int marks = 0;
    for (uint32_t i = 0; i < m->d.token_count; i++) marks += m->tokens[i].disturbed == 1;
    return marks;
}

/* Each stalled step is 40 times as long and as dear: more than a third of them, below half. */
static void stalls_are_no_typical_tokens(void **state)
{
    made *m = make(40, 1);
    for (uint32_t i = 1; i <= 13; i++) {
        set_step(m, 3 * i, 1, 40, 1);
        m->tokens[3 * i].energy = energy_of(80);
    }
    for (uint32_t i = 1; i < 40; i++)
        if (i % 3 == 1) m->tokens[i].energy = energy_of(3);
    figure(m);
    assert_int_equal(count_marks(m), 13);
    assert_that(m->d.info.typical_token_mj, <=, 2.5); /* 3 with them: of 2, 3 and 80 */
    unmake(m);
}

static void a_slow_step_is_marked(void **state)
{
    for (uint32_t batch = 1; batch <= MOST_BATCH; batch += 3) {
        made *m = make(40, batch);
        set_step(m, 7, batch, 3.1, 1);
        set_step(m, 30, batch, 2.9, 1); /* within the ratio */
        figure(m);
        assert_int_equal(count_marks(m), batch);
        assert_int_equal(m->d.info.disturbed_tokens, batch);
        assert_int_equal(m->tokens[7 * batch].disturbed, 1);
        assert_int_equal(m->tokens[6 * batch].disturbed, 0);
        assert_int_equal(m->tokens[0].disturbed, -1); /* prefill is not judged */
        assert_near(m->d.info.disturbed_share, 2.0 * 2.1 / 3.1 * batch / 1000, 1e-8);
        unmake(m);
    }
}

/* The step's own work explains it: a prompt processed within it, more sequences, a context that
 * grew at once. Half of the time's growth explained is not enough. */
static void work_explains_a_slow_step(void **state)
{
    made *m = make(40, 1);
    set_step(m, 10, 1, 8, 8);
    set_step(m, 20, 1, 8, 2);
    set_step(m, 30, 1, 8, 1);
    m->components[30 - 1].bytes *= 9; /* bytes explain as well as FLOPs */
    figure(m);
    assert_int_equal(m->tokens[10].disturbed, 0);
    assert_int_equal(m->tokens[20].disturbed, 1);
    assert_int_equal(m->tokens[30].disturbed, 0);
    unmake(m);
}

/* Steps that grow tenfold with the context, ever so slowly, are no disturbance. */
static void a_growing_context_is_followed(void **state)
{
    made *m = make(MOST_STEPS, 1);
    for (uint32_t i = 1; i <= MOST_STEPS; i++) set_step(m, i, 1, 1 + 9.0 * i / MOST_STEPS, 1);
    figure(m);
    assert_int_equal(count_marks(m), 0);
    unmake(m);
}

static void few_steps_are_not_judged(void **state)
{
    for (uint32_t steps = 0; steps < 8; steps++) {
        made *m = make(steps, 1);
        if (steps) set_step(m, steps, 1, 100, 1);
        figure(m);
        assert_int_equal(m->d.info.disturbed_tokens, steps >= PJ_DISTURBED_LEAST_STEPS ? 1 : -1);
        assert_that(isnan(m->d.info.disturbed_share), ==, (steps < PJ_DISTURBED_LEAST_STEPS));
        unmake(m);
    }
}

/* Without energy the marks are there, their share of it is not. */
static void marks_need_no_energy(void **state)
{
    made *m = make(40, 1);
    m->d.info.total_mj = NAN;
    set_step(m, 7, 1, 10, 1);
    figure(m);
    assert_int_equal(m->d.info.disturbed_tokens, 1);
    assert_true(isnan(m->d.info.disturbed_share) && isnan(m->d.info.request_mj));
    unmake(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading_and_idle_gaps_are_left_out),
        cmocka_unit_test(a_run_without_loading_is_all_request),
        cmocka_unit_test(unknown_loading_makes_the_request_unknown),
        cmocka_unit_test(typical_is_the_median_of_decode),
        cmocka_unit_test(stalls_are_no_typical_tokens),
        cmocka_unit_test(tokens_without_duration_are_not_typical),
        cmocka_unit_test(a_slow_step_is_marked),
        cmocka_unit_test(work_explains_a_slow_step),
        cmocka_unit_test(a_growing_context_is_followed),
        cmocka_unit_test(few_steps_are_not_judged),
        cmocka_unit_test(marks_need_no_energy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
