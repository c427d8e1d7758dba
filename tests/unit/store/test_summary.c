/* The run's ratios, and the summary object: units, unavailable figures, the fields of the contract.
 */
#include "../assertions.h"
#include "store/rows.h"
#include "store/run_summary.h"
#include "trace/private_text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static pj_run_info example(void)
{
    return (pj_run_info){.id = "0190-x",
                         .status = PJ_RUN_COMPLETED,
                         .depth = PJ_DEPTH_MODULE,
                         .prompt = "say \"hi\"",
                         .model_name = "m",
                         .batch_size = 2,
                         .input_tokens = 20,
                         .output_tokens = 22,
                         .total_ms = 1000,
                         .prefill_ms = 250,
                         .decode_ms = 500,
                         .quality = PJ_MEASURED,
                         .method = PJ_METHOD_FIT,
                         .request_mj = 44000,
                         .request_sd_mj = 220,
                         .request_net_mj = 33000,
                         .request_ms = 1000,
                         .model_load_mj = 12000,
                         .typical_token_mj = 1300,
                         .disturbed_tokens = 2,
                         .disturbed_share = 0.25,
                         .parameters = 2e6,
                         .active_parameters = 1e6,
                         .total_mj = 56000,
                         .idle_mj = 11000,
                         .net_mj = 33000,
                         .prefill_mj = 10000,
                         .decode_mj = 30000,
                         .calibration_gap = NAN};
}

static void ratios_follow_their_definitions(void **state)
{
    pj_run_info info = example();
    pj_run_ratios r;
    pj_run_ratios_get(&info, &r);
    assert_that(r.tokens_per_second, ==, 40); /* 22 less the first of each of two sequences */
    assert_that(r.prefill_tokens_per_second, ==, 80);
    assert_that(r.joules_per_token, ==, 2);
    assert_near(r.joules_per_token_sd, 0.01, 1e-12);
    assert_that(r.joules_per_token_typical, ==, 1.3);
    assert_that(r.mj_per_million_parameters, ==, 22000);
    assert_that(r.mj_per_million_active_parameters, ==, 44000);
    assert_that(r.joules_per_token_net, ==, 1.5);
    assert_that(r.joules_per_input_token, ==, 0.5);
    assert_that(r.joules_per_output_token, ==, 30.0 / 22); /* those first ones count here */
    assert_that(r.tokens_per_joule, ==, 0.5);
    assert_that(r.energy_delay_product, ==, 44);
    assert_that(r.mean_power_mw, ==, 56000);                  /* the whole run */
    info.output_tokens = info.batch_size, info.decode_mj = 0; /* all of them out of prefill */
    pj_run_ratios_get(&info, &r);
    assert_true(isnan(r.tokens_per_second) && isnan(r.joules_per_output_token));
    assert_that(r.prefill_tokens_per_second, ==, 80);
    info.output_tokens = 0; /* a run without output read its prompt, ... */
    pj_run_ratios_get(&info, &r);
    assert_that(r.prefill_tokens_per_second, ==, 80);
    info.status = PJ_RUN_CANCELLED; /* ... one that was ended may have read a part */
    pj_run_ratios_get(&info, &r);
    assert_true(isnan(r.prefill_tokens_per_second) && isnan(r.joules_per_input_token));
    assert_true(isnan(r.joules_per_token));
}

static void units_are_not_off_by_a_thousand(void **state)
{
    const pj_cost_rates usual = PJ_COST_RATES_DEFAULT;
    assert_near(pj_cost_usd(3.6e9, &usual), 0.12, 1e-12);
    assert_near(pj_co2_grams(3.6e9, &usual), 400, 1e-9);
    assert_near(pj_cost_usd(1e6, &usual), 3.33e-5, 1e-7); /* 1 kJ */
    /* 1 mW for 1 s is 1 mJ, and 44 J in 1 s are 44 W. */
    pj_run_info info = example();
    pj_run_ratios r;
    pj_run_ratios_get(&info, &r);
    assert_that(r.mean_power_mw * info.total_ms / 1000, ==, info.total_mj);
}

static json_t *summary_of(const pj_run_info *info)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1 << 20);
    pj_json_init(&json, &buffer);
    pj_summary_write(&json, info, NULL);
    assert_true(pj_json_finish(&json));
    json_t *object = json_loads(buffer.data, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(object);
    pj_buffer_fini(&buffer);
    return object;
}

static void the_object_has_the_fields_of_the_contract(void **state)
{
    static const char *const fields[] = {"id",
                                         "run_id",
                                         "prompt",
                                         "model_name",
                                         "model_path",
                                         "created_at",
                                         "status",
                                         "profiling_depth",
                                         "total_duration_ms",
                                         "total_energy_mj",
                                         "idle_energy_mj",
                                         "energy_source",
                                         "input_tokens",
                                         "output_tokens",
                                         "tokens_per_second",
                                         "prefill_tokens_per_second",
                                         "request_energy_mj",
                                         "request_energy_sd_random_mj",
                                         "request_energy_net_sd_gain_mj",
                                         "request_duration_ms",
                                         "model_load_energy_mj",
                                         "model_load_energy_sd_mj",
                                         "model_load_energy_sd_bias_mj",
                                         "joules_per_token",
                                         "joules_per_token_sd",
                                         "joules_per_token_typical",
                                         "disturbed_tokens",
                                         "disturbed_share",
                                         "engine",
                                         "dtype",
                                         "joules_per_input_token",
                                         "joules_per_output_token",
                                         "joules_per_token_net",
                                         "tokens_per_joule",
                                         "energy_delay_product",
                                         "cost_usd",
                                         "co2_grams",
                                         "tags",
                                         "experiment_name",
                                         "machine"};
    pj_run_info info = example();
    json_t *o = summary_of(&info);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!json_object_get(o, fields[i])) fail_msg("%s is missing", fields[i]);
    assert_string_equal(json_string_value(json_object_get(o, "energy_source")), "measured");
    assert_string_equal(json_string_value(json_object_get(o, "prompt")), "say \"hi\"");
    const char *created = json_string_value(json_object_get(o, "created_at"));
    assert_string_equal(created + strlen(created) - 6, "+00:00");
    assert_true(json_is_array(json_object_get(o, "tags")));
    json_decref(o);
}

static void unavailable_is_null_and_never_zero(void **state)
{
    pj_run_info info = example();
    info.total_mj = info.idle_mj = info.net_mj = info.prefill_mj = info.decode_mj = NAN;
    info.request_mj = info.request_net_mj = info.request_sd_mj = info.model_load_mj = NAN;
    info.typical_token_mj = info.disturbed_share = NAN;
    info.disturbed_tokens = -1;
    info.quality = PJ_UNAVAILABLE;
    json_t *o = summary_of(&info);
    static const char *const fields[] = {"total_energy_mj",
                                         "idle_energy_mj",
                                         "joules_per_token",
                                         "joules_per_token_net",
                                         "tokens_per_joule",
                                         "cost_usd",
                                         "co2_grams",
                                         "energy_delay_product",
                                         "request_energy_mj",
                                         "model_load_energy_mj",
                                         "joules_per_token_sd",
                                         "disturbed_share",
                                         "joules_per_token_typical",
                                         "disturbed_tokens",
                                         "cost_usd_per_token"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        assert_true(json_is_null(json_object_get(o, fields[i])));
    assert_that(json_number_value(json_object_get(o, "tokens_per_second")), ==, 40);
    json_decref(o);
}

/* What the column `method` of a run makes of a name; -1: it is refused. */
static int stored_method(const char *name)
{
    pj_run_info info = {0};
    const pj_value value = pj_value_text(name);
    const pj_column *column = pj_run_table.columns;
    while (strcmp(column->name, "method") != 0) column++;
    return pj_column_set(&pj_run_table, column, &info, &value, NULL, NULL) ? (int)info.method : -1;
}

static void names_read_back(void **state)
{
    for (int i = 0; i <= PJ_RUN_INTERRUPTED; i++)
        assert_int_equal(pj_run_status_parse(pj_run_status_name((pj_run_status)i)), i);
    for (int i = 0; i <= PJ_DEPTH_DEEP; i++)
        assert_int_equal(pj_depth_parse(pj_depth_name((pj_depth)i)), i);
    for (int i = 0; i <= PJ_METHOD_ALLOCATED; i++)
        assert_int_equal(stored_method(pj_method_name((pj_method)i)), i);
    assert_int_equal(stored_method("unknown"), -1);
    assert_int_equal(pj_depth_parse("deepest"), -1);
    assert_int_equal(pj_depth_parse(NULL), -1);
    assert_int_equal(pj_component_part("down_proj"), PJ_PART_MLP);
    assert_int_equal(pj_component_part("qkv_proj"), PJ_PART_ATTENTION);
    assert_int_equal(pj_component_part("input_layernorm"), PJ_PART_NORM);
    assert_int_equal(pj_component_part("flash::flash_fwd_kernel"), PJ_PART_ATTENTION);
    assert_int_equal(pj_component_part("vllm::act_and_mul_kernel"), PJ_PART_MLP);
    assert_int_equal(pj_component_part("vllm::rms_norm_kernel"), PJ_PART_NORM);
    assert_int_equal(pj_component_part("ampere_sgemm_128x64_tn"), PJ_PART_OTHER);
    assert_int_equal(pj_component_part("input_layernorm+qkv_proj"), PJ_PART_ATTENTION);
}

static json_t *features_of(const char *text, size_t bytes)
{
    pj_buffer buffer;
    pj_json json;
    pj_buffer_init(&buffer, 1 << 12);
    pj_json_init(&json, &buffer);
    pj_private_text_write(&json, text, bytes);
    assert_true(pj_json_finish(&json));
    json_t *object = json_loadb(buffer.data, buffer.length, 0, NULL);
    assert_non_null(object);
    pj_buffer_fini(&buffer);
    return object;
}

static void assert_features(const char *text, size_t bytes, const char *expected)
{
    json_t *object = features_of(text, bytes), *want = json_loads(expected, 0, NULL);
    const char *key;
    json_t *value;
    assert_non_null(want);
    assert_int_equal(strlen(json_string_value(json_object_get(object, "sha256"))), 64);
    json_object_foreach(want, key, value)
    {
        json_t *got = json_object_get(object, key);
        if (json_is_null(value))
            assert_true(json_is_null(got));
        else
            assert_float_equal(json_number_value(got), json_number_value(value), 1e-12);
    }
    json_decref(object);
    json_decref(want);
}

static void features_are_counted_by_character(void **state)
{
    assert_features(
        "", 0,
        "{\"bytes\": 0, \"characters\": 0, \"words\": 0, \"lines\": 0,"
        " \"digit_share\": null, \"non_ascii_share\": null, \"distinct_word_share\": null,"
        " \"code_line_share\": null, \"byte_entropy\": null}");
    assert_features("to be or not to be\nabab", 23,
                    "{\"distinct_word_share\": 0.7142857142857143}");
    assert_features("  \n", 3, "{\"distinct_word_share\": null, \"code_line_share\": null}");
    assert_features("Look at this:\nint f(void) {\n  return 1;\n}\n\ndef g(x):\nAnd so on.", 63,
                    "{\"code_line_share\": 0.6666666666666666}");
    assert_features("abab", 4, "{\"byte_entropy\": 1}");
    assert_features("abcd", 4, "{\"byte_entropy\": 2}");
    assert_features("a 1, \303\274\n\nb\n", 10,
                    "{\"bytes\": 10, \"characters\": 9, \"words\": 4, \"lines\": 3,"
                    " \"digit_share\": 0.1111111111111111, \"punctuation_share\":"
                    " 0.1111111111111111, \"non_ascii_share\": 0.1111111111111111}");
    assert_features("\377\0x", 3,
                    "{\"bytes\": 3, \"characters\": 3, \"words\": 1,"
                    " \"lines\": 1, \"non_ascii_share\": 0.3333333333333333}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ratios_follow_their_definitions),
        cmocka_unit_test(features_are_counted_by_character),
        cmocka_unit_test(units_are_not_off_by_a_thousand),
        cmocka_unit_test(the_object_has_the_fields_of_the_contract),
        cmocka_unit_test(unavailable_is_null_and_never_zero),
        cmocka_unit_test(names_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
