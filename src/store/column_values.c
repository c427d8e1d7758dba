/* The value of one column of one row, out of memory and into it. */
#include "store/rows.h"
#include "trace/phases.h"
#include "trace/summary.h"

#include <math.h>
#include <string.h>

/* ---- names --------------------------------------------------------------------------------- */

static const char *const rail_kinds[] = {"counter", "instant", "average"};
static const char *const rail_scopes[] = {"domain", "package", "board", "module", "machine"};

static int column_values_find(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

static const char *column_values_name_of(pj_names names, int v)
{
    switch (names) {
    case PJ_NAMES_PHASE_U8: return v == PJ_PHASE_COUNT ? "run" : pj_phase_name((pj_phase)v);
    case PJ_NAMES_METHOD_U8:
    case PJ_NAMES_METHOD: return pj_method_name((pj_method)v);
    case PJ_NAMES_ABSENCE_U8:
    case PJ_NAMES_ABSENCE: return v ? pj_absence_name((pj_absence)v) : NULL;
    case PJ_NAMES_STATUS: return pj_run_status_name((pj_run_status)v);
    case PJ_NAMES_DEPTH: return pj_depth_name((pj_depth)v);
    case PJ_NAMES_QUALITY: return pj_quality_name((pj_source_quality)v);
    case PJ_NAMES_RAIL_CLASS: return pj_rail_class_name((pj_rail_class)v);
    case PJ_NAMES_RAIL_KIND: return pj_rail_kind_name((pj_rail_kind)v);
    case PJ_NAMES_RAIL_SCOPE: return pj_rail_scope_name((pj_rail_scope)v);
    }
    return "unknown";
}

static int phase_parse(const char *name)
{
    return strcmp(name, "run") == 0 ? PJ_PHASE_COUNT : pj_phase_parse(name);
}

static int column_values_value_of(pj_names names, const char *name)
{
    switch (names) {
    case PJ_NAMES_PHASE_U8: return phase_parse(name);
    case PJ_NAMES_METHOD_U8:
    case PJ_NAMES_METHOD: return pj_method_parse(name);
    case PJ_NAMES_ABSENCE_U8:
    case PJ_NAMES_ABSENCE: return pj_absence_parse(name);
    case PJ_NAMES_STATUS: return pj_run_status_parse(name);
    case PJ_NAMES_DEPTH: return pj_depth_parse(name);
    case PJ_NAMES_QUALITY: return pj_quality_parse(name);
    case PJ_NAMES_RAIL_CLASS: return pj_rail_class_parse(name);
    case PJ_NAMES_RAIL_KIND: return column_values_find(rail_kinds, 3, name);
    case PJ_NAMES_RAIL_SCOPE: return column_values_find(rail_scopes, 5, name);
    }
    return -1;
}

static bool is_byte(pj_names names)
{
    return names == PJ_NAMES_PHASE_U8 || names == PJ_NAMES_METHOD_U8 ||
           names == PJ_NAMES_ABSENCE_U8;
}

/* ---- values out ---------------------------------------------------------------------------- */

static void give_double(pj_value *v, double number)
{
    v->type = isnan(number) ? PJ_VALUE_NULL : PJ_VALUE_DOUBLE;
    v->number = number;
}

static void give_int(pj_value *v, int64_t integer)
{
    v->type = PJ_VALUE_INT;
    v->integer = integer;
}

static void column_values_give_text(pj_value *v, const char *text, size_t bytes)
{
    v->type = text ? PJ_VALUE_TEXT : PJ_VALUE_NULL;
    v->text = text;
    v->bytes = bytes;
}

static bool row_has_stats(const pj_row_table *table, const unsigned char *row)
{
    bool has;
    memcpy(&has, row + table->stats_flag, sizeof has);
    return has;
}

#define AT(type) (*(type const *)(const void *)at)

void pj_column_get(const pj_row_table *table, const pj_column *column, const void *row, pj_value *v)
{
    const unsigned char *at = (const unsigned char *)row + column->offset;
    v->type = PJ_VALUE_NULL;
    switch ((pj_column_type)column->type) {
    case PJ_COLUMN_TEXT:
    case PJ_COLUMN_LIST:
    case PJ_COLUMN_JSON: {
        const char *text = AT(const char *);
        column_values_give_text(v, text, text ? strlen(text) : 0);
        break;
    }
    case PJ_COLUMN_DOUBLE: give_double(v, AT(double)); break;
    case PJ_COLUMN_FLOAT: give_double(v, (double)AT(float)); break;
    case PJ_COLUMN_NJ: give_double(v, pj_mj_of_nj(AT(int64_t))); break;
    case PJ_COLUMN_NS:
        if (AT(int64_t) != -1) give_double(v, (double)AT(int64_t) * 1e-6);
        break;
    case PJ_COLUMN_I64: give_int(v, AT(int64_t)); break;
    case PJ_COLUMN_U64: give_int(v, (int64_t)AT(uint64_t)); break;
    case PJ_COLUMN_U32: give_int(v, AT(uint32_t)); break;
    case PJ_COLUMN_U16: give_int(v, AT(uint16_t)); break;
    case PJ_COLUMN_COUNT:
        if (AT(uint32_t)) give_int(v, AT(uint32_t));
        break;
    case PJ_COLUMN_COUNT64:
        if (AT(uint64_t)) give_int(v, (int64_t)AT(uint64_t));
        break;
    case PJ_COLUMN_I32:
        if (AT(int32_t) != -1) give_int(v, AT(int32_t));
        break;
    case PJ_COLUMN_BOOL: give_int(v, AT(bool)); break;
    case PJ_COLUMN_NAME: {
        const char *name =
            column_values_name_of(column->kind, is_byte(column->kind) ? AT(uint8_t) : AT(int));
        column_values_give_text(v, name, name ? strlen(name) : 0);
        break;
    }
    case PJ_COLUMN_STAT_FLOAT:
        if (row_has_stats(table, row)) give_double(v, (double)AT(float));
        break;
    case PJ_COLUMN_STAT_U32:
        if (row_has_stats(table, row)) give_int(v, AT(uint32_t));
        break;
    case PJ_COLUMN_REFERENCE:
        if (AT(uint32_t) != PJ_NO_PARENT) give_int(v, AT(uint32_t));
        break;
    case PJ_COLUMN_ARRAY_NAME:
        column_values_give_text(v, (const char *)at, strnlen((const char *)at, column->bytes));
        break;
    case PJ_COLUMN_EXTRAS: break; /* written by callers that hold the run */
    }
}

#undef AT

/* ---- as JSON ------------------------------------------------------------------------------- */

static void column_values_write_text(pj_json *json, const pj_column *column, const pj_value *v)
{
    bool is_json = column->type == PJ_COLUMN_JSON || column->type == PJ_COLUMN_EXTRAS;
    if (is_json && v->bytes)
        pj_json_raw(json, v->text, v->bytes);
    else if (is_json)
        pj_json_null(json);
    else
        pj_json_string_n(json, v->text ? v->text : "", v->bytes);
}

void pj_column_write(pj_json *json, const pj_column *column, const pj_value *v)
{
    bool is_float = column->type == PJ_COLUMN_FLOAT || column->type == PJ_COLUMN_STAT_FLOAT;
    switch (v->type) {
    case PJ_VALUE_NULL: pj_json_null(json); break;
    case PJ_VALUE_INT:
        if (column->type == PJ_COLUMN_BOOL)
            pj_json_bool(json, v->integer != 0);
        else
            pj_json_int(json, v->integer);
        break;
    case PJ_VALUE_DOUBLE:
        if (is_float)
            pj_json_float(json, (float)v->number);
        else
            pj_json_double(json, v->number);
        break;
    case PJ_VALUE_TEXT:
    case PJ_VALUE_BLOB: column_values_write_text(json, column, v); break;
    }
}

/* ---- values in ----------------------------------------------------------------------------- */

static bool as_double(const pj_value *v, double *number)
{
    switch (v->type) {
    case PJ_VALUE_NULL: *number = NAN; return true;
    case PJ_VALUE_INT: *number = (double)v->integer; return true;
    case PJ_VALUE_DOUBLE: *number = v->number; return true;
    case PJ_VALUE_TEXT:
    case PJ_VALUE_BLOB: break;
    }
    return false;
}

/* Integers from `low` to `high`; NULL becomes `none`. */
static bool as_int(const pj_value *v, int64_t low, int64_t high, int64_t none, int64_t *integer)
{
    if (v->type == PJ_VALUE_NULL) {
        *integer = none;
        return true;
    }
    if (v->type == PJ_VALUE_INT)
        *integer = v->integer;
    else if (v->type == PJ_VALUE_DOUBLE && fabs(v->number) < 0x1p62)
        *integer = (int64_t)v->number;
    else
        return false;
    return *integer >= low && *integer <= high;
}

/* Millijoules or milliseconds to integer nanojoules or nanoseconds. */
static bool as_millionths(const pj_value *v, int64_t none, int64_t *integer)
{
    double number;
    if (!as_double(v, &number)) return false;
    *integer = none;
    if (isnan(number)) return true;
    if (!(fabs(number) < 9.2e12)) return false;
    *integer = llround(number * 1e6);
    return true;
}

static bool column_values_put_name(const pj_column *column, unsigned char *at, const pj_value *v)
{
    if (v->type == PJ_VALUE_NULL) return true;
    if (v->type != PJ_VALUE_TEXT) return false;
    char name[32];
    if (v->bytes >= sizeof name) return false;
    memcpy(name, v->text, v->bytes);
    name[v->bytes] = 0;
    int value = column_values_value_of(column->kind, name);
    if (value < 0) return false;
    if (is_byte(column->kind))
        *at = (unsigned char)value;
    else
        memcpy(at, &value, sizeof value);
    return true;
}

static bool column_values_put_text(unsigned char *at, const pj_value *v, pj_arena *arena)
{
    if (v->type == PJ_VALUE_NULL) return true;
    if (v->type != PJ_VALUE_TEXT) return false;
    const char *copy = pj_arena_strndup(arena, v->text, v->bytes);
    memcpy(at, &copy, sizeof copy);
    return copy != NULL;
}

static bool column_values_put_array(const pj_column *column, unsigned char *at, const pj_value *v)
{
    if (v->type == PJ_VALUE_NULL) return true;
    if (v->type != PJ_VALUE_TEXT || v->bytes >= column->bytes) return false;
    memcpy(at, v->text, v->bytes);
    at[v->bytes] = 0;
    return true;
}

bool pj_column_set(const pj_row_table *table, const pj_column *column, void *row, const pj_value *v,
                   pj_arena *arena)
{
    unsigned char *at = (unsigned char *)row + column->offset;
    double number = NAN;
    int64_t integer = 0;
    bool fits = true;
#define PUT(type, value)                        \
    do {                                        \
        type put = (type)(value);               \
        if (fits) memcpy(at, &put, sizeof put); \
    } while (0)
    switch ((pj_column_type)column->type) {
    case PJ_COLUMN_TEXT:
    case PJ_COLUMN_LIST:
    case PJ_COLUMN_JSON: return column_values_put_text(at, v, arena);
    case PJ_COLUMN_NAME: return column_values_put_name(column, at, v);
    case PJ_COLUMN_ARRAY_NAME: return column_values_put_array(column, at, v);
    case PJ_COLUMN_EXTRAS: return true;
    case PJ_COLUMN_DOUBLE:
        fits = as_double(v, &number);
        PUT(double, number);
        break;
    case PJ_COLUMN_FLOAT:
    case PJ_COLUMN_STAT_FLOAT:
        fits = as_double(v, &number);
        PUT(float, number);
        break;
    case PJ_COLUMN_NJ:
        fits = as_millionths(v, PJ_NJ_UNKNOWN, &integer);
        PUT(int64_t, integer);
        break;
    case PJ_COLUMN_NS:
        fits = as_millionths(v, -1, &integer);
        PUT(int64_t, integer);
        break;
    case PJ_COLUMN_I64:
    case PJ_COLUMN_U64:
    case PJ_COLUMN_COUNT64:
        fits = as_int(v, column->type == PJ_COLUMN_I64 ? INT64_MIN : 0, INT64_MAX, 0, &integer);
        PUT(int64_t, integer);
        break;
    case PJ_COLUMN_U32:
    case PJ_COLUMN_COUNT:
    case PJ_COLUMN_STAT_U32:
        fits = as_int(v, 0, UINT32_MAX, 0, &integer);
        PUT(uint32_t, integer);
        break;
    case PJ_COLUMN_REFERENCE:
        fits = as_int(v, 0, UINT32_MAX - 1, PJ_NO_PARENT, &integer);
        PUT(uint32_t, integer);
        break;
    case PJ_COLUMN_U16:
        fits = as_int(v, 0, UINT16_MAX, 0, &integer);
        PUT(uint16_t, integer);
        break;
    case PJ_COLUMN_I32:
        fits = as_int(v, INT32_MIN, INT32_MAX, -1, &integer);
        PUT(int32_t, integer);
        break;
    case PJ_COLUMN_BOOL:
        fits = as_int(v, 0, 1, 0, &integer);
        PUT(bool, integer);
        break;
    }
#undef PUT
    bool is_stat = column->type == PJ_COLUMN_STAT_FLOAT || column->type == PJ_COLUMN_STAT_U32;
    if (fits && is_stat && v->type != PJ_VALUE_NULL)
        memcpy((unsigned char *)row + table->stats_flag, &(bool){true}, sizeof(bool));
    return fits;
}
