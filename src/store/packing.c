/* Packs and unpacks values of rows. */
#include "store/packing.h"

#include "store/extras.h"
#include "store/store_impl.h"

#include <math.h>
#include <string.h>

/* ---- codes ---------------------------------------------------------------------------------- */

static bool is_duration(const char *name)
{
    size_t length = strlen(name);
    return length > 3 && strcmp(name + length - 3, "_ms") == 0;
}

pj_code pj_code_of(const pj_column *column)
{
    switch ((pj_column_type)column->type) {
    case PJ_COLUMN_NJ:
    case PJ_COLUMN_SOME_NJ:
    case PJ_COLUMN_SOME: return PJ_CODE_MILLIONTHS;
    case PJ_COLUMN_DOUBLE: return is_duration(column->name) ? PJ_CODE_MILLIONTHS : PJ_CODE_NONE;
    case PJ_COLUMN_FLOAT:
    case PJ_COLUMN_STAT_FLOAT: return PJ_CODE_FLOAT;
    case PJ_COLUMN_TEXT:
    case PJ_COLUMN_NAME: return PJ_CODE_TEXT;
    case PJ_COLUMN_EXTRAS: return PJ_CODE_EXTRAS;
    default: return PJ_CODE_NONE;
    }
}

static void code_millionths(pj_value *value)
{
    double number = value->number, code = nearbyint(number * 1e6);
    if (fabs(code) < 0x1p53 && code / 1e6 == number) *value = pj_value_int((int64_t)code);
}

static void code_float(pj_value *value)
{
    float number = (float)value->number;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    int64_t magnitude = bits & 0x7fffffff;
    bool has_code = bits == 0 || pj_code_has_float((uint32_t)magnitude);
    if (has_code && (double)number == value->number)
        *value = pj_value_int(bits == (uint32_t)magnitude ? magnitude : -magnitude);
}

/* ---- values that are close to others -------------------------------------------------------- */

/* Net and gross deviations are close to each other, and so are their bits as integers. No base has
 * one itself. */
static const pj_relation relations[] = {
    {"self_energy_mj", "energy_mj", true},
    {"net_energy_sd_mj", "energy_sd_mj", false},
    {"net_energy_sd_bias_mj", "energy_sd_bias_mj", false},
    {"net_energy_sd_gain_mj", "energy_sd_gain_mj", false},
};

const pj_relation *pj_relation_of(const char *column)
{
    for (size_t i = 0; i < sizeof relations / sizeof *relations; i++)
        if (strcmp(relations[i].column, column) == 0) return &relations[i];
    return NULL;
}

/* ---- packing -------------------------------------------------------------------------------- */

bool pj_packer_add(pj_packer *packer, const pj_column *column)
{
    if (packer->count == PJ_PACKED_COLUMNS) return false;
    packer->columns[packer->count++] =
        (pj_packer_column){.column = column, .code = column ? pj_code_of(column) : PJ_CODE_NONE};
    return true;
}

void pj_packer_begin(pj_packer *packer)
{
    for (uint32_t c = 0; c < packer->count; c++) {
        pj_packer_column *p = &packer->columns[c];
        p->relation = p->column ? pj_relation_of(p->column->name) : NULL;
        for (uint32_t b = 0; p->relation && b < packer->count; b++) {
            const pj_column *base = packer->columns[b].column;
            if (base && strcmp(base->name, p->relation->base) == 0) p->base = (uint8_t)b;
        }
    }
}

static void code_value(pj_code code, pj_value *value)
{
    if (value->type != PJ_VALUE_DOUBLE) return;
    if (code == PJ_CODE_MILLIONTHS) code_millionths(value);
    if (code == PJ_CODE_FLOAT) code_float(value);
}

/* A value whose base has its code already, which is an integer or none. */
static void relate_value(const pj_packer_column *p, const pj_value *base, pj_value *value)
{
    if (!p->relation->is_equal && base->type != PJ_VALUE_INT) return;
    code_value(p->code, value);
    if (value->type != PJ_VALUE_INT || base->type != PJ_VALUE_INT) return;
    if (!p->relation->is_equal)
        value->integer -= base->integer;
    else if (value->integer == base->integer)
        *value = pj_value_text("");
}

/* A name that is not valid UTF-8 is a text if it has no code: a blob would be taken for one. */
static void code_text(pj_packer *packer, uint32_t column, pj_value *value)
{
    char *code = packer->codes[column];
    if (value->type != PJ_VALUE_TEXT && value->type != PJ_VALUE_BLOB) return;
    size_t bytes = pj_packed_texts_code(packer->texts, value, PJ_PACKED_TEXTS, code);
    value->type = PJ_VALUE_TEXT;
    if (bytes) *value = pj_value_bytes(PJ_VALUE_BLOB, code, bytes);
}

void pj_packer_pack(pj_packer *packer, pj_value *values)
{
    for (uint32_t c = 0; c < packer->count; c++) {
        const pj_packer_column *p = &packer->columns[c];
        if (p->code == PJ_CODE_TEXT)
            code_text(packer, c, &values[c]);
        else if (!p->relation)
            code_value(p->code, &values[c]);
    }
    for (uint32_t c = 0; c < packer->count; c++) {
        const pj_packer_column *p = &packer->columns[c];
        if (p->relation) relate_value(p, &values[p->base], &values[c]);
    }
}

/* ---- unpacking ------------------------------------------------------------------------------ */

static double float_of_code(int64_t code)
{
    uint64_t magnitude = code < 0 ? -(uint64_t)code : (uint64_t)code;
    uint32_t bits = (uint32_t)magnitude;
    float number;
    memcpy(&number, &bits, sizeof number);
    return code < 0 ? -(double)number : (double)number;
}

static pj_status unpack_blob(const pj_packed_row *row, pj_code code, pj_value *value, pj_error *err)
{
    pj_packed_texts *texts = row->packer->texts;
    if (code == PJ_CODE_TEXT)
        return pj_packed_texts_find(texts, value->text, value->bytes, value, err);
    return code == PJ_CODE_EXTRAS ? pj_extras_unpack(texts, row->made, value, err) : PJ_OK;
}

static void unpack_number(const pj_packed_row *row, const pj_packer_column *p, pj_value *value)
{
    bool is_equal = value->type == PJ_VALUE_TEXT && value->bytes == 0 && p->relation;
    if (p->relation && (is_equal || (value->type == PJ_VALUE_INT && !p->relation->is_equal))) {
        pj_value base;
        row->get(row->context, p->base, &base);
        uint64_t of_base = base.type == PJ_VALUE_INT ? (uint64_t)base.integer : 0;
        if (is_equal)
            *value = base;
        else
            value->integer = (int64_t)((uint64_t)value->integer + of_base);
    }
    if (value->type != PJ_VALUE_INT) return;
    if (p->code == PJ_CODE_MILLIONTHS) *value = pj_value_double((double)value->integer / 1e6);
    if (p->code == PJ_CODE_FLOAT) *value = pj_value_double(float_of_code(value->integer));
}

pj_status pj_unpack(const pj_packed_row *row, int column, pj_value *value, pj_error *err)
{
    const pj_packer_column *p = &row->packer->columns[column];
    if (value->type == PJ_VALUE_BLOB) return unpack_blob(row, p->code, value, err);
    unpack_number(row, p, value);
    return PJ_OK;
}

pj_packer *pj_packer_of(pj_store *store, int table)
{
    const pj_row_table *rows = &pj_tables[table];
    pj_packer *packer = store->packers[table];
    if (packer) return packer;
    packer = pj_arena_alloc(&store->packers_arena, 1, sizeof *packer);
    if (!packer) return NULL;
    packer->texts = &store->texts;
    for (uint16_t c = 0; c < rows->column_count; c++)
        if (!pj_packer_add(packer, &rows->columns[c])) return NULL;
    pj_packer_begin(packer);
    return store->packers[table] = packer;
}
