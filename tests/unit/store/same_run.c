/* Compares two runs value by value, by the tables' own columns. */
#include "made_run.h"

#include "store/rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static bool same_value(const pj_value *a, const pj_value *b)
{
    if (a->type != b->type) return false;
    switch (a->type) {
    case PJ_VALUE_NULL: return true;
    case PJ_VALUE_INT: return a->integer == b->integer;
    case PJ_VALUE_DOUBLE: return a->number == b->number;
    case PJ_VALUE_BLOB:
    case PJ_VALUE_TEXT: return a->bytes == b->bytes && memcmp(a->text, b->text, a->bytes) == 0;
    }
    return false;
}

static void assert_same_row(const pj_row_table *table, uint32_t i, const void *a, const void *b)
{
    for (int c = 0; c < table->column_count; c++) {
        pj_value x = {0}, y = {0};
        pj_column_get(table, &table->columns[c], a, &x);
        pj_column_get(table, &table->columns[c], b, &y);
        if (!same_value(&x, &y))
            fail_msg("row %u of %s differs in %s", i, table->name, table->columns[c].name);
    }
}

static double extra_of(const pj_run_data *data, uint32_t begin, uint32_t count,
                       const pj_extra_row *wanted)
{
    for (uint32_t i = begin; i < begin + count; i++)
        if (strcmp(data->extras[i].name, wanted->name) == 0 &&
            data->extras[i].index == wanted->index)
            return data->extras[i].value;
    return -1;
}

static void assert_same_extras(const pj_run_data *a, uint32_t a_begin, const pj_run_data *b,
                               uint32_t b_begin, uint32_t count)
{
    for (uint32_t i = a_begin; i < a_begin + count; i++)
        if ((float)extra_of(b, b_begin, count, &a->extras[i]) != (float)a->extras[i].value)
            fail_msg("extra %s differs", a->extras[i].name);
}

void assert_runs_equal(const pj_run_data *a, const pj_run_data *b)
{
    char s[PJ_ROW_SCRATCH_BYTES] __attribute__((aligned(16)));
    char t[PJ_ROW_SCRATCH_BYTES] __attribute__((aligned(16)));
    assert_string_equal(a->info.id, b->info.id);
    assert_same_row(&pj_run_table, 0, &a->info, &b->info);
    assert_int_equal(a->info.tag_count, b->info.tag_count);
    for (uint32_t i = 0; i < a->info.tag_count; i++)
        assert_string_equal(a->info.tags[i], b->info.tags[i]);
    assert_string_equal(a->info.output_text, b->info.output_text);
    for (int id = 0; id < PJ_TABLE_COUNT; id++) {
        if (pj_table_rows(a, id) != pj_table_rows(b, id))
            fail_msg("%s has %u and %u rows", pj_tables[id].name, pj_table_rows(a, id),
                     pj_table_rows(b, id));
        for (uint32_t i = 0; i < pj_table_rows(a, id); i++)
            assert_same_row(&pj_tables[id], i, pj_table_row(a, id, i, s),
                            pj_table_row(b, id, i, t));
    }
    for (uint32_t i = 0; i < a->component_count; i++) {
        const pj_component_row *x = &a->components[i], *y = &b->components[i];
        assert_int_equal(x->extra_count, y->extra_count);
        assert_same_extras(a, x->extra_begin, b, y->extra_begin, x->extra_count);
    }
    for (uint32_t i = 0; i < a->operation_count; i++) {
        const pj_operation_row *x = &a->operations[i], *y = &b->operations[i];
        assert_int_equal(x->extra_count, y->extra_count);
        assert_int_equal(x->energy.method, y->energy.method);
        assert_int_equal(x->energy.self_nj, y->energy.self_nj);
        assert_same_extras(a, x->extra_begin, b, y->extra_begin, x->extra_count);
    }
    for (uint32_t r = 0; r < a->rail_count; r++) {
        assert_int_equal(a->samples.mw[r] != NULL, b->samples.mw[r] != NULL);
        if (a->samples.mw[r])
            assert_memory_equal(a->samples.mw[r], b->samples.mw[r],
                                a->samples.count * sizeof(double));
    }
}
