/* Advice on constructed runs: each triggers its rule, and only that rule. */
#include "analysis/advice.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A run without advice: 4-bit weights, a batch, a sensor with little noise and a short interval. */
static pj_advice_facts nothing(void)
{
    return (pj_advice_facts){
        .run_id = "01989c2e-7d1a-7c3e-9b8f-0123456789ab",
        .model = "models/demo",
        .engine = "perjoule",
        .dtype = "q4_0",
        .prompt = "'The kettle'",
        .own_engine = true,
        .has_energy = true,
        .input_tokens = 64,
        .output_tokens = 128,
        .batch = 1,
        .threads = 8,
        .request_mj = 10000,
        .total_mj = 10100,
        .load_mj = NAN,
        .prefill_mj = 3000,
        .decode_mj = 7000,
        .prefill_ms = 100,
        .decode_ms = 400,
        .relative_sd = 0.01,
        .idle_mw = 5000,
        .decode_flops = 1e12, /* not memory-bound: as fast per FLOP as prefill */
        .decode_bytes = 1e10,
        .weight_bytes = 9e9,
        .cache_bytes = 1e9,
        .matrix_mj = 6000,
        .head_mj = 500,
        .attention_mj = 600,
        .prefill_flops = 2.5e11,
        .model_bytes = 1e9,
        .memory_bytes = 16e9,
        .kv_bytes_per_token = 1e5,
        .context = 4096,
        .kv_type = "f16",
        .parameters = 1e9,
        .disturbed_share = 0.01,
        .throttled_share = 0,
        .power_mw = 20000,
        .power_limit_mw = NAN,
        .interval = 0.05,
        .interval_calibrated = NAN,
        .prefix_share = NAN,
        .smaller_parameters = NAN,
        .g_per_kwh = NAN,
        .lowest_region = "Iceland",
        .lowest_g_per_kwh = 28,
    };
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
    assert_true(all[0].text[0] && all[0].test[0] && all[0].evidence_count > 0);
    assert_memory_equal(all[0].test, "perjoule ", 9);
    if (!isnan(all[0].share))
        assert_true(all[0].lo <= all[0].share && all[0].share <= all[0].hi && all[0].hi <= 1);
    return &all[0];
}

static void add_neighbour(pj_advice_facts *f, uint32_t threads, uint32_t batch, const char *dtype,
                          double ratio)
{
    pj_advice_neighbour *n = &f->neighbours[f->neighbour_count++];
    *n = (pj_advice_neighbour){.threads = threads,
                               .batch = batch,
                               .n = 5,
                               .ratio = ratio,
                               .lo = ratio * 0.98,
                               .hi = ratio * 1.02,
                               .speed = 1,
                               .power = ratio};
    snprintf(n->dtype, sizeof n->dtype, "%s", dtype);
}

static void make_bytes_bound(pj_advice_facts *f)
{
    f->decode_flops = 2e10; /* a twentieth of prefill's FLOP/s */
}

static void a_good_run_is_left_alone(void **state)
{
    pj_advice_facts f = nothing();
    only(&f, NULL);
    assert_true(pj_advice_rules() >= 12);
}

static void load_of_a_model_in_use(void **state)
{
    pj_advice_facts f = nothing();
    f.load_mj = 4000;
    f.total_mj = 14000;
    only(&f, NULL); /* it may never be run again */
    f.same_model_last_hour = 3;
    const pj_advice *a = only(&f, "keep-resident");
    assert_true(fabs(a->share * a->mj - 4000) < 1e-6);
    assert_string_equal(a->of, "total");
}

static void batches(void **state)
{
    pj_advice_facts f = nothing();
    make_bytes_bound(&f);
    const pj_advice *a = only(&f, "batch-up");
    assert_true(a->hi <= 0.5 * 0.6 + 1e-12); /* half of the components that read weights */
    assert_string_equal(a->basis, "predicted");
    f.memory_bytes = 1.1e9;
    only(&f, NULL); /* no room to grow */
    f = nothing();
    f.batch = 16;
    only(&f, NULL);
    add_neighbour(&f, 8, 4, "q4_0", 0.8);
    a = only(&f, "batch-down");
    assert_string_equal(a->basis, "observed");
    f.neighbours[0].ratio = f.neighbours[0].lo = f.neighbours[0].hi = 1.1;
    only(&f, NULL);
}

/* 16-bit weights in a batch that cannot grow. */
static void weights_in_many_bits(void **state)
{
    pj_advice_facts f = nothing();
    make_bytes_bound(&f);
    f.memory_bytes = 1.1e9;
    f.dtype = "bf16";
    const pj_advice *a = only(&f, "dtype");
    assert_non_null(strstr(a->test, "--dtypes bf16,q8_0"));
    add_neighbour(&f, 8, 1, "q8_0", 0.99);
    only(&f, NULL); /* measured: it saves nothing */
    f.neighbours[0].ratio = 0.6;
    f.neighbours[0].lo = 0.58;
    f.neighbours[0].hi = 0.62;
    a = only(&f, "dtype");
    assert_true(fabs(a->share - 0.4) < 1e-12);
    f.weight_bytes = 0.3 * f.decode_bytes;
    only(&f, NULL);
}

static void a_large_vocabulary(void **state)
{
    pj_advice_facts f = nothing();
    f.dtype = "bf16";
    f.head_mj = 3000;
    only(&f, "head");
    f.dtype = "q8_0";
    only(&f, NULL);
}

static void threads_beyond_the_bandwidth(void **state)
{
    pj_advice_facts f = nothing();
    add_neighbour(&f, 4, 1, "q4_0", 0.7);
    f.neighbours[0].speed = 0.98;
    only(&f, "threads");
    f.neighbours[0].speed = 0.5; /* speed fell in proportion to threads: they were useful */
    only(&f, NULL);
}

static void prompts_that_repeat(void **state)
{
    pj_advice_facts f = nothing();
    f.prefill_mj = 9000;
    f.decode_mj = 1000;
    f.matrix_mj = 900;
    f.head_mj = 10;
    only(&f, NULL);
    f.prefix_share = 0.8;
    f.prefix_runs = 12;
    only(&f, "prompt");
}

static void a_wide_cache(void **state)
{
    pj_advice_facts f = nothing();
    f.cache_bytes = 6e9;
    f.attention_mj = 3000;
    only(&f, NULL); /* 16 bits are the fewest */
    f.kv_type = "f32";
    only(&f, "kv-precision");
}

static void a_smaller_model_of_the_same_words(void **state)
{
    pj_advice_facts f = nothing();
    make_bytes_bound(&f);
    f.memory_bytes = 1.1e9;
    f.smaller_model = "small";
    f.smaller_parameters = 0.05e9;
    only(&f, "speculate");
    f.smaller_parameters = 0.5e9;
    only(&f, NULL);
    f.smaller_parameters = 0.05e9;
    f.batch = 8;
    only(&f, NULL);
}

static void machines_that_spoil_figures(void **state)
{
    pj_advice_facts f = nothing();
    f.disturbed_share = 0.3;
    const pj_advice *a = only(&f, "disturbed");
    assert_true(isnan(a->share) && a->limits);
    f = nothing();
    f.throttled_share = 0.2;
    only(&f, "throttled");
    f = nothing();
    f.interval = 0.6;
    only(&f, "calibrate");
    f.interval_calibrated = 0.58;
    only(&f, NULL);
}

static void a_card_at_its_limit(void **state)
{
    pj_advice_facts f = nothing();
    make_bytes_bound(&f);
    f.memory_bytes = 1.1e9;
    f.power_limit_mw = 21000;
    only(&f, "power-limit");
    f.power_limit_mw = 60000;
    only(&f, NULL);
}

static void a_machine_that_waits(void **state)
{
    pj_advice_facts f = nothing();
    f.window_ms = 3000e3;
    f.window_busy_ms = 100e3;
    f.window_runs = 20;
    only(&f, NULL); /* the same prompt repeated is a measurement, not a workload */
    f.window_prompts = 15;
    only(&f, "idle");
    f.window_busy_ms = 2800e3;
    only(&f, NULL);
}

static void grams_only_when_asked(void **state)
{
    pj_advice_facts f = nothing();
    f.g_per_kwh = 500;
    const pj_advice *a = only(&f, "region");
    assert_string_equal(a->of, "co2");
    f.g_per_kwh = 40;
    only(&f, NULL);
}

/* Without energy nothing is claimed about energy. */
static void no_energy_no_savings(void **state)
{
    pj_advice_facts f = nothing();
    make_bytes_bound(&f);
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
    make_bytes_bound(&f);
    f.dtype = "f32";
    f.disturbed_share = 0.2;
    f.smaller_model = "small";
    f.smaller_parameters = 1e7;
    pj_advise(&f, all, &speaking);
    assert_true(speaking >= 4);
    assert_string_equal(all[0].rule, "disturbed");
    for (size_t i = 2; i < speaking; i++)
        assert_true(all[i - 1].share * all[i - 1].mj >= all[i].share * all[i].mj);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_run_is_left_alone),
        cmocka_unit_test(load_of_a_model_in_use),
        cmocka_unit_test(batches),
        cmocka_unit_test(weights_in_many_bits),
        cmocka_unit_test(a_large_vocabulary),
        cmocka_unit_test(threads_beyond_the_bandwidth),
        cmocka_unit_test(prompts_that_repeat),
        cmocka_unit_test(a_wide_cache),
        cmocka_unit_test(a_smaller_model_of_the_same_words),
        cmocka_unit_test(machines_that_spoil_figures),
        cmocka_unit_test(a_card_at_its_limit),
        cmocka_unit_test(a_machine_that_waits),
        cmocka_unit_test(grams_only_when_asked),
        cmocka_unit_test(no_energy_no_savings),
        cmocka_unit_test(order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
