/* Figures as text: a value and its interval share a unit and the places that the interval deserves,
 * as on the page. */
#include "cli/terminal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void a_value_shares_unit_and_places_with_its_interval(void **state)
{
    static const struct {
        double mj, half_mj;
        const char *text;
    } cases[] = {{1120, 0.224, "1.1200 ± 0.0002 J"},
                 {19844, 3, "19.844 ± 0.003 J"},
                 {12.4, 0.3, "12.4 ± 0.3 mJ"},
                 {12.34, 0.13, "12.34 ± 0.13 mJ"},
                 {1.45, 5.76, "1.4 (0.18 to 12) mJ"},
                 {0.0157, 0.0073, "16 (10 to 25) µJ"},
                 {463, 79.5, "460 ± 80 mJ"},
                 {480, 471, "500 (200 to 1100) mJ"},
                 {508, 120, "510 ± 120 mJ"},
                 {980, 400, "1.0 (0.66 to 1.5) J"},
                 {5, NAN, "5.00 mJ"},
                 {5, 0, "5.00 mJ"},
                 {NAN, 1, "unavailable"},
                 {1e9, 1e-5, "1.000000 ± <0.000001 MJ"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(pj_interval_text(cases[i].mj, cases[i].half_mj / 1.96).s,
                            cases[i].text);
    }
}

static void columns_count_characters(void **state)
{
    assert_string_equal(pj_padded(10, (pj_text){"3.27 µs"}).s, "   3.27 µs");
    assert_string_equal(pj_padded(-10, (pj_text){"3.27 µs"}).s, "3.27 µs   ");
    assert_string_equal(pj_padded(10, (pj_text){"3.27 ms"}).s, "   3.27 ms");
    assert_string_equal(pj_padded(3, pj_or_dash(NAN, pj_energy_text(NAN))).s, "  -");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_shares_unit_and_places_with_its_interval),
        cmocka_unit_test(columns_count_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
