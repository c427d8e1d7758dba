/* The JSON objects that a run keeps come back as numbers; what they lack is unknown, never 0. */
#include "trace/device_conditions.h"
#include "trace/model_figures.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_model_is_read(void **state)
{
    pj_model_figures f;
    pj_model_figures_read("{\"layers\":30,\"active_parameters\":2.5e6,\"context\":\"long\","
                          "\"attention\":\"GQA\",\"draft\":{\"model_name\":\"small\","
                          "\"proposed\":8,\"accepted\":5}}",
                          &f);
    assert_true(f.layers == 30);
    assert_true(f.active_parameters == 2.5e6);
    assert_true(isnan(f.context)); /* a text is no number */
    assert_true(isnan(f.experts));
    assert_string_equal(f.attention, "GQA");
    assert_string_equal(f.kv_type, "");
    assert_string_equal(f.draft_name, "small");
    assert_true(f.draft_proposed == 8 && f.draft_accepted == 5);
    pj_model_figures_read(NULL, &f);
    assert_true(isnan(f.layers) && isnan(f.draft_proposed));
    assert_string_equal(f.draft_name, "");
}

static void conditions_come_back(void **state)
{
    pj_device_conditions out[2] = {{.device = "cpu",
                                    .temperature_c = 61.5,
                                    .throttled_share = 0.25,
                                    .throttle_known = true,
                                    .throttle = "power",
                                    .tdp_mw = NAN,
                                    .clock_mhz = 3900},
                                   {.device = "gpu0",
                                    .temperature_c = NAN,
                                    .power_limit_mw = 3e5,
                                    .power_limit_changed = true}};
    pj_device_conditions in[PJ_DEVICES_MAX];
    pj_buffer text;
    pj_json json;
    pj_buffer_init(&text, 1 << 16);
    pj_json_init(&json, &text);
    pj_json_object_begin(&json);
    for (int i = 0; i < 2; i++) pj_device_conditions_write(&out[i], &json);
    pj_json_object_end(&json);
    assert_int_equal(pj_device_conditions_read(pj_buffer_get(&text), in), 2);
    pj_buffer_fini(&text);
    assert_string_equal(in[0].device, "cpu");
    assert_true(in[0].temperature_c == 61.5 && in[0].throttled_share == 0.25);
    assert_true(in[0].throttle_known && !in[0].power_limit_changed);
    assert_string_equal(in[0].throttle, "power");
    assert_true(isnan(in[0].tdp_mw));
    assert_true(isnan(in[1].temperature_c) && in[1].power_limit_mw == 3e5);
    assert_true(!in[1].throttle_known && in[1].power_limit_changed);
    assert_int_equal(pj_device_conditions_read(NULL, in), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_read),
        cmocka_unit_test(conditions_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
