/* Published figures: sorted by similarity, and never compared across different energy scopes. */
#include "../assertions.h"
#include "analysis/published.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static int has_caveat(const pj_published_beside *b, const char *words)
{
    for (uint32_t i = 0; i < b->caveat_count; i++)
        if (strstr(b->caveats[i], words)) return 1;
    return 0;
}

static void every_figure_names_its_source(void **state)
{
    assert_that(pj_published_count, >=, 10);
    for (size_t i = 0; i < pj_published_count; i++) {
        const pj_published *f = &pj_published_figures[i];
        assert_that(f->joules_per_token, >, 0);
        assert_that(f->joules_hi, >=, f->joules_per_token);
        assert_that(f->parameters, >=, f->active_parameters);
        assert_that(f->active_parameters, >, 1e9);
        assert_non_null(f->source);
        assert_int_equal(strncmp(f->address, "https://", 8), 0);
    }
}

static void one_scope_has_a_ratio(void **state)
{
    pj_published_beside b[PJ_PUBLISHED_NEAREST];
    pj_published_query request = {8.03e9, 64, "bf16", "gpu", 0.238, 0};
    assert_int_equal(pj_published_near(&request, b), PJ_PUBLISHED_NEAREST);
    assert_string_equal(b[0].figure->model, "Llama-3.1-8B");
    assert_int_equal(b[0].figure->batch, 64);
    assert_float_equal(b[0].ratio, 2, 1e-9);
    assert_int_equal(b[0].caveat_count, 1); /* the hardware */
    request = (pj_published_query){3e9, 64, "q4_0", "gpu", 0.1, 0};
    pj_published_near(&request, b);
    assert_string_equal(b[0].figure->model, "Qwen3-30B-A3B"); /* by active parameters */
    assert_true(has_caveat(&b[0], "weights in bf16"));
}

static void other_scopes_have_none(void **state)
{
    pj_published_beside b[PJ_PUBLISHED_NEAREST];
    pj_published_query request = {0.5e9, 1, "bf16", "rapl", 0.5, 0};
    uint32_t count = pj_published_near(&request, b);
    assert_that(count, >, 0);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(isnan(b[i].ratio));
        assert_true(has_caveat(&b[i], "another scope"));
        assert_true(has_caveat(&b[i], "times the active parameters"));
    }
    request.scope = "gpu";
    request.is_modelled = 1;
    pj_published_near(&request, b);
    assert_true(isnan(b[0].ratio) && has_caveat(&b[0], "modelled"));
    request.active_parameters = 2e6; /* no published figure is similar */
    assert_int_equal(pj_published_near(&request, b), 0);
    request.active_parameters = NAN;
    assert_int_equal(pj_published_near(&request, b), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_figure_names_its_source),
        cmocka_unit_test(one_scope_has_a_ratio),
        cmocka_unit_test(other_scopes_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
