/* Advice on constructed runs: each triggers its rule, and only that rule. */
#include "../assertions.h"
#include "bench/planted_advice.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static pj_advice_facts nothing(void)
{
    pj_advice_facts f;
    pj_planted_advice_none(&f);
    return f;
}

static pj_advice_facts planted(const char *rule)
{
    pj_advice_facts f = nothing();
    const pj_planted_advice *p = pj_planted_advices;
    while (p->rule && strcmp(p->rule, rule) != 0) p++;
    assert_non_null(p->rule);
    p->plant(&f);
    return f;
}

static const pj_advice *only(const pj_advice_facts *f, const char *rule)
{
    static pj_advice all[32];
    char found[256] = "";
    size_t speaking, count = pj_advise(f, all, &speaking);
    assert_int_equal(count, pj_advice_rules());
    for (size_t i = 0; i < speaking; i++)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s ", all[i].rule);
    if (rule ? speaking != 1 || strcmp(all[0].rule, rule) != 0 : speaking != 0)
        fail_msg("wanted %s, found %s", rule ? rule : "nothing", found);
    for (size_t i = speaking; i < count; i++) assert_true(all[i].text[0]);
    if (!rule) return NULL;
    assert_true(all[0].text[0]);
    assert_true(all[0].test[0]);
    assert_that(all[0].evidence_count, >, 0);
    assert_memory_equal(all[0].test, "perjoule ", 9);
    if (!isnan(all[0].share)) {
        assert_that(all[0].lo, <=, all[0].share);
        assert_that(all[0].share, <=, all[0].hi);
        assert_that(all[0].hi, <=, 1);
    }
    return &all[0];
}

static void a_good_run_is_left_alone(void **state)
{
    pj_advice_facts f = nothing();
    only(&f, NULL);
    assert_that(pj_advice_rules(), >=, 12);
}

/* Also when every figure is a little different. */
static void planted_cases_find_theirs_and_only_theirs(void **state)
{
    pj_random random = {3};
    size_t cases = 0;
    for (const pj_planted_advice *p = pj_planted_advices; p->rule; p++, cases++)
        for (int i = 0; i < 50; i++) {
            pj_advice_facts f = nothing();
            p->plant(&f);
            if (i) pj_planted_advice_vary(&f, &random, 0.02);
            only(&f, p->rule);
        }
    assert_int_equal(cases, pj_advice_rules());
}

/* What is proposed to be tried runs on the same device. */
static void commands_name_the_device(void **state)
{
    static const char *const rules[] = {"batch-up", "dtype", "calibrate"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        pj_advice_facts f = planted(rules[i]);
        f.device = "'A card'";
        const pj_advice *a = only(&f, rules[i]);
        if (!strstr(a->test, " --device 'A card'")) fail_msg("%s", a->test);
    }
    pj_advice_facts f = planted("threads");
    f.device = "'A card'";
    only(&f, NULL);
}

/* What another engine computed is repeated by its program, and compared; nothing of perjoule's
 * engine is proposed. */
static void other_engines_are_compared(void **state)
{
    for (const pj_planted_advice *p = pj_planted_advices; p->rule; p++) {
        pj_advice_facts f = planted(p->rule);
        f.is_elsewhere = true;
        if (strcmp(p->rule, "calibrate") == 0) {
            only(&f, NULL);
            continue;
        }
        const char *test = only(&f, p->rule)->test;
        if (strcmp(p->rule, "idle") == 0 || strcmp(p->rule, "region") == 0) continue;
        if (strncmp(test, "perjoule compare ", 17) != 0 || !strstr(test, f.run_id))
            fail_msg("%s: %s", p->rule, test);
    }
}

/* A reason says what is not known. */
static void unknown_sizes_are_not_called_too_small(void **state)
{
    pj_advice all[32];
    size_t speaking;
    pj_advice_facts f = planted("batch-up");
    f.kv_bytes_per_token = NAN;
    only(&f, NULL);
    size_t count = pj_advise(&f, all, &speaking);
    for (size_t i = 0; i < count; i++)
        if (strcmp(all[i].rule, "batch-up") == 0) assert_non_null(strstr(all[i].text, "unknown"));
    f = planted("kv-precision");
    f.kv_type = NULL;
    only(&f, NULL);
}

static void load_of_a_model_in_use(void **state)
{
    pj_advice_facts f = planted("keep-resident");
    const pj_advice *a = only(&f, "keep-resident");
    assert_near(a->share * a->mj, 4000, 1e-6);
    assert_string_equal(a->of, "total");
    f.same_model_last_hour = 0;
    only(&f, NULL); /* it may never be run again */
}

static void batches(void **state)
{
    pj_advice_facts f = planted("batch-up");
    const pj_advice *a = only(&f, "batch-up");
    /* At best half of all but reading the caches, which is 10 % more than the weights' part. */
    assert_that(a->share, <=, 0.5 * 0.6 + 1e-12);
    assert_that(a->hi, <=, 0.5 * 0.64 * 1.03);
    assert_string_equal(a->basis, "predicted");
    pj_planted_no_room(&f);
    only(&f, NULL);
    f = planted("batch-down");
    a = only(&f, "batch-down");
    assert_string_equal(a->basis, "observed");
    f.neighbours[0].ratio = f.neighbours[0].lo = f.neighbours[0].hi = 1.1;
    only(&f, NULL);
    f.neighbour_count = 0;
    only(&f, NULL);
}

/* 16-bit weights in a batch that cannot grow. */
static void weights_in_many_bits(void **state)
{
    pj_advice_facts f = planted("dtype");
    const pj_advice *a = only(&f, "dtype");
    assert_non_null(strstr(a->test, "--dtypes bf16,q8_0"));
    pj_planted_neighbour(&f, 8, 1, "q8_0", 0.99);
    only(&f, NULL); /* measured: it saves nothing */
    f.neighbours[0].ratio = 0.6;
    f.neighbours[0].lo = 0.58;
    f.neighbours[0].hi = 0.62;
    a = only(&f, "dtype");
    assert_near(a->share, 0.4, 1e-12);
    f.weight_bytes = 0.3 * f.decode_bytes;
    only(&f, NULL);
}

/* What a cache holds costs no memory traffic, and what memory delivers slowly is not bound by it.
 */
static void weights_that_memory_does_not_slow(void **state)
{
    static const char *const rules[] = {"batch-up", "dtype", "head", "speculate"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        pj_advice_facts f = planted(rules[i]);
        double far = only(&f, rules[i])->share;
        f.processor_cache_bytes = 0.3 * f.model_bytes;
        assert_that(only(&f, rules[i])->share, <, 0.75 * far);
        f.processor_cache_bytes = 1.1 * f.model_bytes;
        only(&f, NULL);
    }
    pj_advice_facts f = planted("dtype");
    f.read_bytes_per_s = f.decode_bytes / (f.decode_ms / 1e3) * 1.3;
    only(&f, "dtype");
    f.read_bytes_per_s *= 4;
    only(&f, NULL);
}

/* Runs of which nothing may be promised: every rule says why. */
static void refused_runs_get_no_advice(void **state)
{
    pj_advice all[32];
    size_t speaking;
    for (const pj_planted_advice *p = pj_planted_advices; p->rule; p++) {
        pj_advice_facts f = planted(p->rule);
        f.refusal = "the run's energy is modelled, not measured";
        size_t count = pj_advise(&f, all, &speaking);
        assert_int_equal(speaking, 0);
        for (size_t i = 0; i < count; i++) assert_string_equal(all[i].text, f.refusal);
    }
}

/* The drawback is said with each recommendation, also where there is none. */
static void every_advice_names_its_cost(void **state)
{
    pj_advice all[32];
    size_t speaking;
    for (const pj_planted_advice *p = pj_planted_advices; p->rule; p++) {
        pj_advice_facts f = planted(p->rule);
        pj_advise(&f, all, &speaking);
        assert_int_equal(speaking, 1);
        assert_true(all[0].quality[0] && all[0].latency[0] && all[0].memory[0]);
    }
}

static void a_large_vocabulary(void **state)
{
    pj_advice_facts f = planted("head");
    f.dtype = "q8_0";
    only(&f, NULL);
}

static void threads_beyond_the_bandwidth(void **state)
{
    pj_advice_facts f = planted("threads");
    f.neighbours[0].speed = 0.5; /* speed fell in proportion to threads: they were useful */
    only(&f, NULL);
}

static void prompts_that_repeat(void **state)
{
    pj_advice_facts f = planted("prompt");
    f.prefix_runs = 0;
    f.prefix_share = NAN;
    only(&f, NULL);
}

static void a_wide_cache(void **state)
{
    pj_advice_facts f = planted("kv-precision");
    f.kv_type = "f16";
    only(&f, NULL); /* 16 bits are the fewest */
}

static void a_smaller_model_of_the_same_words(void **state)
{
    pj_advice_facts f = planted("speculate");
    f.smaller_parameters = 0.5e9;
    only(&f, NULL);
    f.smaller_parameters = 0.05e9;
    f.batch = 8;
    only(&f, NULL);
}

static void machines_that_spoil_figures(void **state)
{
    pj_advice_facts f = planted("disturbed");
    const pj_advice *a = only(&f, "disturbed");
    assert_true(isnan(a->share) && a->limits);
    f = planted("calibrate");
    f.interval_calibrated = 0.58;
    only(&f, NULL);
}

static void a_processor_that_works_beside_its_device(void **state)
{
    pj_advice_facts f = planted("fallback");
    assert_true(only(&f, "fallback")->limits);
    f.host_share = 0.4;
    only(&f, NULL);
    f.host_share = NAN;
    only(&f, NULL);
}

static void tokens_that_become_dearer(void **state)
{
    pj_advice_facts f = planted("rising");
    assert_true(only(&f, "rising")->limits);
    f.rise_explained = 1.4; /* a context that grows a lot */
    only(&f, NULL);
    f.rise_explained = 1.03;
    f.rise_sd = 0.2;
    only(&f, NULL);
    f.rise = f.rise_sd = NAN;
    only(&f, NULL);
}

static void a_card_at_its_limit(void **state)
{
    pj_advice_facts f = planted("power-limit");
    f.power_limit_mw = 60000;
    only(&f, NULL);
}

static void a_machine_that_waits(void **state)
{
    pj_advice_facts f = planted("idle");
    f.window_prompts = 0;
    only(&f, NULL); /* the same prompt repeated is a measurement, not a workload */
    f.window_prompts = 15;
    f.window_busy_ms = 2800e3;
    only(&f, NULL);
    /* The saving is a share of what the window's runs took, not of so many runs like this one. */
    f = planted("idle");
    double few = only(&f, "idle")->hi;
    f.window_mj *= 50;
    assert_that(only(&f, "idle")->hi, <, few);
}

static void ids_stay_ids(void **state)
{
    pj_advice_facts f = planted("disturbed");
    f.prompt = "1,2,3";
    assert_non_null(strstr(only(&f, "disturbed")->test, " --warmup 1 1,2,3"));
    f.prompt_is_ids = true;
    assert_non_null(strstr(only(&f, "disturbed")->test, " --warmup 1 --ids 1,2,3"));
}

static void grams_only_when_asked(void **state)
{
    pj_advice_facts f = planted("region");
    const pj_advice *a = only(&f, "region");
    assert_string_equal(a->of, "co2");
    f.g_per_kwh = 40;
    only(&f, NULL);
}

/* Without energy nothing is claimed about energy. */
static void no_energy_no_savings(void **state)
{
    pj_advice_facts f = nothing();
    pj_planted_bytes_bound(&f);
    f.dtype = "bf16";
    f.has_energy = false;
    f.request_mj = f.total_mj = f.prefill_mj = f.decode_mj = f.matrix_mj = f.head_mj =
        f.attention_mj = f.power_mw = f.disturbed_share = f.interval = NAN;
    f.load_mj = NAN;
    f.g_per_kwh = 500;
    only(&f, NULL);
}

/* Advice is sorted by saving, after what limits the reliability. */
static void order(void **state)
{
    pj_advice all[32];
    size_t speaking;
    pj_advice_facts f = nothing();
    pj_planted_bytes_bound(&f);
    f.dtype = "f32";
    f.disturbed_share = 0.2;
    f.smaller_model = "small";
    f.smaller_parameters = 1e7;
    pj_advise(&f, all, &speaking);
    assert_that(speaking, >=, 4);
    assert_string_equal(all[0].rule, "disturbed");
    for (size_t i = 2; i < speaking; i++)
        assert_that(all[i - 1].share * all[i - 1].mj, >=, all[i].share * all[i].mj);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_run_is_left_alone),
        cmocka_unit_test(planted_cases_find_theirs_and_only_theirs),
        cmocka_unit_test(commands_name_the_device),
        cmocka_unit_test(other_engines_are_compared),
        cmocka_unit_test(unknown_sizes_are_not_called_too_small),
        cmocka_unit_test(load_of_a_model_in_use),
        cmocka_unit_test(batches),
        cmocka_unit_test(weights_in_many_bits),
        cmocka_unit_test(weights_that_memory_does_not_slow),
        cmocka_unit_test(refused_runs_get_no_advice),
        cmocka_unit_test(every_advice_names_its_cost),
        cmocka_unit_test(a_large_vocabulary),
        cmocka_unit_test(threads_beyond_the_bandwidth),
        cmocka_unit_test(prompts_that_repeat),
        cmocka_unit_test(ids_stay_ids),
        cmocka_unit_test(a_wide_cache),
        cmocka_unit_test(a_smaller_model_of_the_same_words),
        cmocka_unit_test(machines_that_spoil_figures),
        cmocka_unit_test(a_processor_that_works_beside_its_device),
        cmocka_unit_test(tokens_that_become_dearer),
        cmocka_unit_test(a_card_at_its_limit),
        cmocka_unit_test(a_machine_that_waits),
        cmocka_unit_test(grams_only_when_asked),
        cmocka_unit_test(no_energy_no_savings),
        cmocka_unit_test(order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
