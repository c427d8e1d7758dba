/* Sharing a batch's steps between sequences: every rule, several batch sizes and prompt lengths,
 * exact sums in nanojoules, and components that sum to each token. */
#include "../assertions.h"
#include "attribution/batch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 8, STEPS = 5, LAYERS = 2 };

/* `batch` sequences with a prefill and STEPS decode steps; each step has layers with a projection
 * and an attention, and a component outside them. Energies are chosen so that nothing divides
 * evenly.
 */
typedef struct made {
    pj_run_data d;
    pj_phase_row phases[2];
    pj_token_row tokens[MOST * (STEPS + 1)];
    pj_layer_row layers[LAYERS * (STEPS + 1)];
    pj_component_row components[(2 * LAYERS + 1) * (STEPS + 1)];
    uint32_t lengths[MOST];
} made;

static const int64_t idle_nj = 100003;

static pj_energy energy(int64_t gross_nj)
{
    pj_energy e = PJ_ENERGY_UNKNOWN;
    e.gross_nj = e.planted_nj = gross_nj;
    e.net_nj = gross_nj - idle_nj;
    e.self_nj = 0;
    e.sd_mj = 1;
    e.method = PJ_METHOD_FIT;
    return e;
}

static int64_t add_component(made *m, const char *name, uint32_t layer, uint32_t step,
                             int64_t gross_nj)
{
    m->components[m->d.component_count++] =
        (pj_component_row){.layer = layer,
                           .section = PJ_NO_PARENT,
                           .token = PJ_NO_PARENT,
                           .step = layer == PJ_NO_PARENT ? step : PJ_NO_PARENT,
                           .name = name,
                           .duration_ms = 1,
                           .energy = energy(gross_nj)};
    return gross_nj;
}

static void add_step(made *m, uint32_t position, uint32_t batch, int64_t self_nj)
{
    pj_run_data *d = &m->d;
    uint32_t first = d->token_count;
    int64_t whole = self_nj;
    for (uint32_t s = 0; s < batch; s++)
        m->tokens[d->token_count++] = (pj_token_row){.phase = position > 0,
                                                     .position = position,
                                                     .sequence = s,
                                                     .step = batch > 1 ? first : PJ_NO_PARENT,
                                                     .duration_ms = 10,
                                                     .energy = PJ_ENERGY_UNKNOWN};
    for (uint32_t l = 0; l < LAYERS; l++) {
        uint32_t layer = d->layer_count++;
        m->layers[layer] = (pj_layer_row){.token = PJ_NO_PARENT, .step = first, .layer_index = l};
        int64_t gross = add_component(m, "q_proj", layer, first, 700001 + 13 * position) +
                        add_component(m, "attention", layer, first, 900007 + 1001 * position);
        m->layers[layer].energy = energy(gross);
        whole += gross;
    }
    whole += add_component(m, "lm_head", PJ_NO_PARENT, first, 300017);
    m->tokens[first].energy = energy(whole);
    m->tokens[first].energy.net_nj = whole - 5 * idle_nj;
    m->tokens[first].energy.self_nj = self_nj;
}

static made *make(uint32_t batch, const char *rule, bool lengths)
{
    made *m = calloc(1, sizeof *m);
    pj_run_data *d = &m->d;
    d->phases = m->phases;
    d->tokens = m->tokens;
    d->layers = m->layers;
    d->components = m->components;
    d->phase_count = 2;
    m->phases[0].phase = PJ_PHASE_PREFILL;
    m->phases[1].phase = PJ_PHASE_DECODE;
    for (uint32_t i = 0; i < batch; i++) m->lengths[i] = 1 + 7 * i * i;
    d->info.prompt_tokens = lengths ? m->lengths : NULL;
    d->info.prompt_count = lengths ? batch : 0;
    d->info.batch_rule = rule;
    for (uint32_t position = 0; position <= STEPS; position++) add_step(m, position, batch, 50021);
    return m;
}

static void made_free(made *m)
{
    pj_arena_fini(&m->d.arena);
    free(m);
}

/* Exact sums, and components that sum to each token, for every rule and size. */
static void steps_and_tokens_add_up(void **state)
{
    static const char *const rules[] = {"bytes", "tokens", "equal", NULL};
    for (uint32_t batch = 2; batch <= MOST; batch++)
        for (int r = 0; r < 4; r++) {
            made *before = make(batch, rules[r], r != 2), *m = make(batch, rules[r], r != 2);
            assert_int_equal(pj_batch_share(&m->d, NAN, NULL), PJ_OK);
            for (uint32_t first = 0; first < m->d.token_count; first += batch) {
                const pj_energy *step = &before->tokens[first].energy;
                int64_t gross = 0, net = 0, self = 0, planted = 0;
                for (uint32_t i = first; i < first + batch; i++) {
                    const pj_token_row *t = &m->tokens[i];
                    double parts = pj_mj_of_nj(t->energy.self_nj);
                    gross += t->energy.gross_nj;
                    net += t->energy.net_nj;
                    self += t->energy.self_nj;
                    planted += t->energy.planted_nj;
                    for (uint32_t c = 0; c < m->d.component_count; c++)
                        if (pj_step_of_component(&m->d, &m->components[c]) == first)
                            parts += pj_token_part_mj(t, &m->components[c]);
                    assert_near(parts / pj_mj_of_nj(t->energy.gross_nj), 1, 1e-12);
                    assert_int_equal(t->energy.method, PJ_METHOD_ALLOCATED);
                }
                assert_int_equal(gross, step->gross_nj);
                assert_int_equal(net, step->net_nj);
                assert_int_equal(self, step->self_nj);
                assert_int_equal(planted, step->planted_nj);
            }
            made_free(before);
            made_free(m);
        }
}

static double ratio(const made *m, uint32_t a, uint32_t b)
{
    return (double)m->tokens[a].energy.gross_nj / (double)m->tokens[b].energy.gross_nj;
}

static void prefill_goes_by_length(void **state)
{
    static const char *const rules[] = {"bytes", "tokens", "equal"};
    for (int r = 0; r < 3; r++) {
        made *m = make(3, rules[r], true); /* 1, 8 and 29 tokens */
        assert_int_equal(pj_batch_share(&m->d, NAN, NULL), PJ_OK);
        assert_near(ratio(m, 1, 0) / 8, 1, 1e-4);
        assert_near(ratio(m, 2, 0) / 29, 1, 1e-4);
        made_free(m);
    }
}

/* Only attention's net energy is shared by context length; idle power and weights are shared
 * equally. */
static void bytes_splits_attention_by_context(void **state)
{
    made *m = make(3, "bytes", true);
    assert_int_equal(pj_batch_share(&m->d, NAN, NULL), PJ_OK);
    assert_string_equal(m->d.info.batch_rule, "bytes");
    for (uint32_t position = 1; position <= STEPS; position++) {
        const pj_token_row *rows = m->tokens + 3 * position;
        double context[3], sum = 0;
        double net_nj = LAYERS * (900007.0 + 1001 * position - (double)idle_nj);
        double rest_nj = LAYERS * (700001.0 + 13 * position + (double)idle_nj) + 300017 + 50021;
        for (int i = 0; i < 3; i++) sum += context[i] = m->lengths[i] + position;
        for (int i = 0; i < 3; i++) {
            double expected = rest_nj / 3 + net_nj * context[i] / sum;
            assert_near((double)rows[i].energy.gross_nj, expected, 2);
            assert_int_equal(rows[i].context_tokens, (uint32_t)context[i]);
        }
    }
    made_free(m);
}

static void other_rules_do_not_look_at_context(void **state)
{
    static const char *const rules[] = {"tokens", "equal"};
    for (int r = 0; r < 2; r++) {
        made *m = make(4, rules[r], true);
        assert_int_equal(pj_batch_share(&m->d, NAN, NULL), PJ_OK);
        assert_string_equal(m->d.info.batch_rule, rules[r]);
        for (uint32_t i = 5; i < m->d.token_count; i++)
            assert_true(i % 4 == 0 || llabs(m->tokens[i].energy.gross_nj -
                                            m->tokens[i - 1].energy.gross_nj) <= 1);
        made_free(m);
    }
}

/* Two tokens of one sequence in a step (speculation): they count twice by tokens, once by sequence.
 */
static void tokens_and_sequences_differ(void **state)
{
    for (int by_tokens = 0; by_tokens < 2; by_tokens++) {
        made *m = make(3, by_tokens ? "tokens" : "equal", true);
        m->tokens[4].sequence = 0; /* of step 1: sequences 0, 0, 2 */
        assert_int_equal(pj_batch_share(&m->d, NAN, NULL), PJ_OK);
        double expected = by_tokens ? 1 : 0.5;
        assert_near(ratio(m, 3, 5), expected, 1e-5);
        assert_near(ratio(m, 4, 5), expected, 1e-5);
        made_free(m);
    }
}

/* The stored rule is the one applied. */
static void unknown_lengths_fall_back_to_equal(void **state)
{
    made *m = make(3, NULL, false);
    assert_int_equal(pj_batch_share(&m->d, NAN, NULL), PJ_OK);
    assert_string_equal(m->d.info.batch_rule, "equal");
    assert_near(ratio(m, 1, 0), 1, 1e-5);
    assert_near(ratio(m, 4, 3), 1, 1e-5);
    made_free(m);
    m = make(3, "bytes", true); /* no attention was recorded */
    for (uint32_t c = 0; c < m->d.component_count; c++) m->components[c].name = "linear";
    assert_int_equal(pj_batch_share(&m->d, NAN, NULL), PJ_OK);
    assert_string_equal(m->d.info.batch_rule, "equal");
    made_free(m);
}

static void a_sequence_alone_keeps_all(void **state)
{
    made *m = make(1, "bytes", true);
    assert_int_equal(pj_batch_share(&m->d, NAN, NULL), PJ_OK);
    assert_null(m->d.info.batch_rule);
    assert_int_equal(m->tokens[2].energy.method, PJ_METHOD_FIT);
    assert_int_equal(m->tokens[2].context_tokens, 3);
    made_free(m);
}

static void unavailable_stays_unavailable(void **state)
{
    made *m = make(3, "bytes", true);
    m->tokens[3].energy = PJ_ENERGY_UNKNOWN;
    assert_int_equal(pj_batch_share(&m->d, NAN, NULL), PJ_OK);
    for (uint32_t i = 3; i < 6; i++) {
        assert_int_equal(m->tokens[i].energy.gross_nj, PJ_NJ_UNKNOWN);
        assert_int_equal(m->tokens[i].energy.method, PJ_METHOD_NONE);
    }
    made_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_and_tokens_add_up),
        cmocka_unit_test(prefill_goes_by_length),
        cmocka_unit_test(bytes_splits_attention_by_context),
        cmocka_unit_test(other_rules_do_not_look_at_context),
        cmocka_unit_test(tokens_and_sequences_differ),
        cmocka_unit_test(unknown_lengths_fall_back_to_equal),
        cmocka_unit_test(a_sequence_alone_keeps_all),
        cmocka_unit_test(unavailable_stays_unavailable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
