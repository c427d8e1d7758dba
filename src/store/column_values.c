/* The value of one column of one row, out of memory and into it. */
#include "base/json_document.h"
#include "base/utf8.h"
#include "store/extras.h"
#include "store/rows.h"
#include "trace/summary.h"

#include <math.h>
#include <string.h>

/* ---- names --------------------------------------------------------------------------------- */

static const char *column_values_name_of(pj_names names, int v)
{
    switch (names) {
    case PJ_NAMES_PHASE: return v == PJ_PHASE_COUNT ? "run" : pj_phase_name((pj_phase)v);
    case PJ_NAMES_METHOD: return pj_method_name((pj_method)v);
    case PJ_NAMES_ABSENCE: return pj_absence_name((pj_absence)v);
    case PJ_NAMES_STATUS: return pj_run_status_name((pj_run_status)v);
    case PJ_NAMES_DEPTH: return pj_depth_name((pj_depth)v);
    case PJ_NAMES_QUALITY: return pj_quality_name((pj_source_quality)v);
    case PJ_NAMES_RAIL_CLASS: return pj_rail_class_name((pj_rail_class)v);
    case PJ_NAMES_RAIL_KIND: return pj_rail_kind_name((pj_rail_kind)v);
    case PJ_NAMES_RAIL_SCOPE: return pj_rail_scope_name((pj_rail_scope)v);
    }
    return "unknown";
}

/* The names of an enumeration end where its values do. */
static int column_values_value_of(pj_names names, const char *name)
{
    for (int v = 0;; v++) {
        const char *known = column_values_name_of(names, v);
        if (strcmp(known, "unknown") == 0) return -1;
        if (strcmp(known, name) == 0) return v;
    }
}

/* ---- integers ------------------------------------------------------------------------------ */

/* The range that a member may have, and the value that stands for NULL, if any. */
typedef struct integer_range {
    int64_t low, high, none;
    bool has_none;
} integer_range;

static const integer_range integers[] = {
    [PJ_COLUMN_I64] = {INT64_MIN, INT64_MAX, 0, false},
    [PJ_COLUMN_U64] = {0, INT64_MAX, 0, false},
    [PJ_COLUMN_U32] = {0, UINT32_MAX, 0, false},
    [PJ_COLUMN_U16] = {0, UINT16_MAX, 0, false},
    [PJ_COLUMN_COUNT] = {0, UINT32_MAX, 0, true},
    [PJ_COLUMN_COUNT64] = {0, INT64_MAX, 0, true},
    [PJ_COLUMN_I32] = {INT32_MIN, INT32_MAX, -1, true},
    [PJ_COLUMN_BOOL] = {0, 1, 0, false},
    [PJ_COLUMN_STAT_U32] = {0, UINT32_MAX, 0, false},
    [PJ_COLUMN_REFERENCE] = {0, UINT32_MAX - 1, PJ_NO_PARENT, true},
};

#define AT(type) (*(type const *)(const void *)at)

static int64_t column_values_load(const pj_column *column, const unsigned char *at)
{
    switch (column->bytes) {
    case 1: return *at;
    case 2: return AT(uint16_t);
    case 4: return column->type == PJ_COLUMN_I32 ? AT(int32_t) : (int64_t)AT(uint32_t);
    default: return AT(int64_t);
    }
}

static void column_values_keep(const pj_column *column, unsigned char *at, int64_t integer)
{
    switch (column->bytes) {
    case 1: *at = (unsigned char)integer; break;
    case 2: memcpy(at, &(uint16_t){(uint16_t)integer}, 2); break;
    case 4: memcpy(at, &(uint32_t){(uint32_t)integer}, 4); break;
    default: memcpy(at, &integer, sizeof integer);
    }
}

bool pj_column_is_float(const pj_column *column)
{
    return column->type == PJ_COLUMN_FLOAT || column->type == PJ_COLUMN_STAT_FLOAT;
}

/* ---- values out ---------------------------------------------------------------------------- */

static bool is_statistic(const pj_column *column)
{
    return column->type == PJ_COLUMN_STAT_FLOAT || column->type == PJ_COLUMN_STAT_U32;
}

static bool row_has_stats(const pj_row_table *table, const unsigned char *row)
{
    bool has;
    memcpy(&has, row + table->stats_flag, sizeof has);
    return has;
}

static pj_value column_values_get_integer(const pj_column *column, const unsigned char *at)
{
    const integer_range *range = &integers[column->type];
    int64_t integer = column_values_load(column, at);
    if (range->has_none && integer == range->none) return (pj_value){.type = PJ_VALUE_NULL};
    return pj_value_int(integer);
}

void pj_column_get(const pj_row_table *table, const pj_column *column, const void *row, pj_value *v)
{
    const unsigned char *at = (const unsigned char *)row + column->offset;
    v->type = PJ_VALUE_NULL;
    if (is_statistic(column) && !row_has_stats(table, row)) return;
    switch ((pj_column_type)column->type) {
    case PJ_COLUMN_TEXT:
    case PJ_COLUMN_LIST:
    case PJ_COLUMN_JSON: *v = pj_value_text(AT(const char *)); break;
    case PJ_COLUMN_DOUBLE: *v = pj_value_double(AT(double)); break;
    case PJ_COLUMN_FLOAT:
    case PJ_COLUMN_STAT_FLOAT: *v = pj_value_double((double)AT(float)); break;
    case PJ_COLUMN_NJ: *v = pj_value_double(pj_mj_of_nj(AT(int64_t))); break;
    case PJ_COLUMN_SOME:
        if (AT(double) != 0) *v = pj_value_double(AT(double));
        break;
    case PJ_COLUMN_SOME_NJ:
        if (AT(int64_t)) *v = pj_value_double(pj_mj_of_nj(AT(int64_t)));
        break;
    case PJ_COLUMN_NS:
        if (AT(int64_t) != -1) *v = pj_value_double((double)AT(int64_t) * 1e-6);
        break;
    case PJ_COLUMN_NAME: {
        const char *name = column_values_name_of(column->kind, (int)column_values_load(column, at));
        if (*name) *v = pj_value_text(name);
        break;
    }
    case PJ_COLUMN_ARRAY_NAME:
        *v = pj_value_bytes(PJ_VALUE_TEXT, at, strnlen((const char *)at, column->bytes));
        break;
    case PJ_COLUMN_EXTRAS: break; /* written by callers that hold the run */
    default: *v = column_values_get_integer(column, at);
    }
}

#undef AT

/* Generated bytes need not be valid UTF-8 (a truncated character); these are stored as a blob, so
 * that TEXT values are always valid. */
void pj_value_check_utf8(pj_value *value)
{
    if (value->type == PJ_VALUE_TEXT && !pj_utf8_valid(value->text, value->bytes))
        value->type = PJ_VALUE_BLOB;
}

/* ---- as JSON ------------------------------------------------------------------------------- */

static void column_values_write_text(pj_json *json, const pj_column *column, const pj_value *v)
{
    bool is_json = column->type == PJ_COLUMN_JSON || column->type == PJ_COLUMN_EXTRAS;
    if (is_json && v->bytes)
        pj_json_document(json, v->text, v->bytes);
    else if (is_json)
        pj_json_null(json);
    else
        pj_json_string_n(json, v->text ? v->text : "", v->bytes);
}

void pj_column_write(pj_json *json, const pj_column *column, const pj_value *v)
{
    switch (v->type) {
    case PJ_VALUE_NULL: pj_json_null(json); break;
    case PJ_VALUE_INT:
        if (column->type == PJ_COLUMN_BOOL)
            pj_json_bool(json, v->integer != 0);
        else
            pj_json_int(json, v->integer);
        break;
    case PJ_VALUE_DOUBLE:
        if (pj_column_is_float(column))
            pj_json_float(json, (float)v->number);
        else
            pj_json_double(json, v->number);
        break;
    case PJ_VALUE_TEXT:
    case PJ_VALUE_BLOB: column_values_write_text(json, column, v); break;
    }
}

/* ---- values in ----------------------------------------------------------------------------- */

static bool column_values_set_integer(const pj_column *column, unsigned char *at, const pj_value *v)
{
    const integer_range *range = &integers[column->type];
    int64_t integer = range->none;
    if (v->type == PJ_VALUE_INT)
        integer = v->integer;
    else if (v->type == PJ_VALUE_DOUBLE && fabs(v->number) < 0x1p62)
        integer = (int64_t)v->number;
    else if (v->type != PJ_VALUE_NULL)
        return false;
    if (v->type != PJ_VALUE_NULL && (integer < range->low || integer > range->high)) return false;
    column_values_keep(column, at, integer);
    return true;
}

/* Energies and times are kept as integer nanojoules and nanoseconds. */
static bool column_values_set_number(const pj_column *column, unsigned char *at, const pj_value *v)
{
    double number = v->type == PJ_VALUE_DOUBLE ? v->number
                    : v->type == PJ_VALUE_INT  ? (double)v->integer
                                               : NAN;
    if (v->type == PJ_VALUE_TEXT || v->type == PJ_VALUE_BLOB) return false;
    bool is_some = column->type == PJ_COLUMN_SOME || column->type == PJ_COLUMN_SOME_NJ;
    if (is_some && isnan(number)) number = 0;
    if (column->type == PJ_COLUMN_DOUBLE || column->type == PJ_COLUMN_SOME) {
        memcpy(at, &number, sizeof number);
    } else if (column->type == PJ_COLUMN_SOME_NJ) {
        if (fabs(number) >= 9.2e12) return false;
        column_values_keep(column, at, llround(number * 1e6));
    } else if (column->type == PJ_COLUMN_NJ || column->type == PJ_COLUMN_NS) {
        if (fabs(number) >= 9.2e12) return false;
        int64_t none = column->type == PJ_COLUMN_NJ ? PJ_NJ_UNKNOWN : -1;
        column_values_keep(column, at, isnan(number) ? none : llround(number * 1e6));
    } else {
        memcpy(at, &(float){(float)number}, sizeof(float));
    }
    return true;
}

static bool column_values_set_text(const pj_column *column, unsigned char *at, const pj_value *v,
                                   pj_arena *arena)
{
    char name[32];
    if (v->type == PJ_VALUE_NULL) return true;
    if (v->type != PJ_VALUE_TEXT) return false;
    if (column->type == PJ_COLUMN_JSON && v->bytes && !pj_json_is_valid(v->text, v->bytes))
        return false;
    if (column->type == PJ_COLUMN_ARRAY_NAME) {
        if (v->bytes >= column->bytes) return false;
        memcpy(at, v->text, v->bytes);
        at[v->bytes] = 0;
    } else if (column->type == PJ_COLUMN_NAME) {
        if (v->bytes >= sizeof name) return false;
        memcpy(name, v->text, v->bytes);
        name[v->bytes] = 0;
        int value = column_values_value_of(column->kind, name);
        if (value < 0) return false;
        column_values_keep(column, at, value);
    } else {
        const char *copy = pj_arena_strndup(arena, v->text, v->bytes);
        memcpy(at, &copy, sizeof copy);
        return copy != NULL;
    }
    return true;
}

bool pj_column_set(const pj_row_table *table, const pj_column *column, void *row, const pj_value *v,
                   pj_arena *arena, pj_extra_list *extras)
{
    unsigned char *at = (unsigned char *)row + column->offset;
    if (is_statistic(column) && v->type != PJ_VALUE_NULL)
        memcpy((unsigned char *)row + table->stats_flag, &(bool){true}, sizeof(bool));
    switch ((pj_column_type)column->type) {
    case PJ_COLUMN_TEXT:
    case PJ_COLUMN_LIST:
    case PJ_COLUMN_JSON:
    case PJ_COLUMN_NAME:
    case PJ_COLUMN_ARRAY_NAME: return column_values_set_text(column, at, v, arena);
    case PJ_COLUMN_EXTRAS: return pj_extras_set(extras, v, row, table->extras, arena);
    case PJ_COLUMN_DOUBLE:
    case PJ_COLUMN_FLOAT:
    case PJ_COLUMN_STAT_FLOAT:
    case PJ_COLUMN_NJ:
    case PJ_COLUMN_SOME:
    case PJ_COLUMN_SOME_NJ:
    case PJ_COLUMN_NS: return column_values_set_number(column, at, v);
    default: return column_values_set_integer(column, at, v);
    }
}
