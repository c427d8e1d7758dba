/* Packs and unpacks values of rows. */
#include "store/packing.h"

#include "base/ids.h"
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
    case PJ_COLUMN_TEXT:
    case PJ_COLUMN_NAME: return PJ_CODE_NAME;
    case PJ_COLUMN_NJ:
    case PJ_COLUMN_SOME_NJ:
    case PJ_COLUMN_SOME: return PJ_CODE_MILLIONTHS;
    case PJ_COLUMN_DOUBLE: return is_duration(column->name) ? PJ_CODE_MILLIONTHS : PJ_CODE_NONE;
    case PJ_COLUMN_FLOAT:
    case PJ_COLUMN_STAT_FLOAT: return PJ_CODE_FLOAT;
    default: return PJ_CODE_NONE;
    }
}

static void code_millionths(pj_value *value)
{
    double number = value->number, code = nearbyint(number * 1e6);
    if (fabs(code) < 0x1p53 && code / 1e6 == number) *value = pj_value_int((int64_t)code);
}

/* Exponents for which the views' shift is 0 to 62: numbers from 1.8e-12 to 1.7e7. */
enum { FRACTION_BITS = 23, LOWEST_EXPONENT = 88, HIGHEST_EXPONENT = 150 };
static void code_float(pj_value *value)
{
    float number = (float)value->number;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    int64_t magnitude = bits & 0x7fffffff;
    int64_t exponent = magnitude >> FRACTION_BITS;
    bool has_code = bits == 0 || (exponent >= LOWEST_EXPONENT && exponent <= HIGHEST_EXPONENT);
    if (has_code && (double)number == value->number)
        *value = pj_value_int(bits == (uint32_t)magnitude ? magnitude : -magnitude);
}

/* ---- values that follow from others --------------------------------------------------------- */

static double derive_same(const double *x)
{
    return x[0];
}

static double derive_net_gain(const double *x)
{
    return x[0] * fabs(x[1] / x[2]);
}

/* No input is derived itself. */
static const pj_derivation derivations[] = {
    {"self_energy_mj", {"energy_mj"}, "$0", derive_same},
    {"net_energy_sd_gain_mj",
     {"energy_sd_gain_mj", "net_energy_mj", "energy_mj"},
     "$0 * abs($1 / $2)",
     derive_net_gain},
};

/* Deviations of net and gross energy are close to each other, and so are their bits as integers:
 * the difference is stored. No base has one itself. */
static const struct {
    const char *column, *base;
} bases[] = {
    {"net_energy_sd_mj", "energy_sd_mj"},
    {"net_energy_sd_bias_mj", "energy_sd_bias_mj"},
};

const pj_derivation *pj_derivation_find(const char *column, const void *of, pj_has_column_fn *has,
                                        uint8_t *inputs)
{
    for (size_t d = 0; d < sizeof derivations / sizeof *derivations; d++) {
        const pj_derivation *derivation = &derivations[d];
        int i = 0;
        if (strcmp(derivation->column, column) != 0) continue;
        while (i < PJ_DERIVED_FROM && derivation->inputs[i] &&
               has(of, derivation->inputs[i], &inputs[i]))
            i++;
        if (i == PJ_DERIVED_FROM || !derivation->inputs[i]) return derivation;
    }
    return NULL;
}

bool pj_base_find(const char *column, const void *of, pj_has_column_fn *has, uint8_t *base)
{
    for (size_t b = 0; b < sizeof bases / sizeof *bases; b++)
        if (strcmp(bases[b].column, column) == 0 && has(of, bases[b].base, base)) return true;
    return false;
}

/* ---- packing -------------------------------------------------------------------------------- */

bool pj_packer_add(pj_packer *packer, const pj_column *column)
{
    if (packer->count == PJ_PACKED_COLUMNS) return false;
    packer->columns[packer->count++] =
        (pj_packer_column){.column = column, .code = column ? pj_code_of(column) : PJ_CODE_NONE};
    return true;
}

static bool packer_has(const void *of, const char *name, uint8_t *index)
{
    const pj_packer *packer = of;
    for (uint32_t c = 0; c < packer->count; c++) {
        *index = (uint8_t)c;
        if (packer->columns[c].column && strcmp(packer->columns[c].column->name, name) == 0)
            return true;
    }
    return false;
}

void pj_packer_begin(pj_packer *packer)
{
    for (uint32_t c = 0; c < packer->count; c++) {
        pj_packer_column *p = &packer->columns[c];
        if (!p->column) continue;
        p->derivation = pj_derivation_find(p->column->name, packer, packer_has, p->inputs);
        p->has_base = pj_base_find(p->column->name, packer, packer_has, &p->base);
    }
}

/* Whether the view's formula gives exactly this value, as the row in memory has it. */
static bool is_derived(const pj_packer_column *p, const pj_value *values, const pj_value *value)
{
    double inputs[PJ_DERIVED_FROM];
    if (value->type != PJ_VALUE_DOUBLE) return false;
    for (int i = 0; i < PJ_DERIVED_FROM && p->derivation->inputs[i]; i++) {
        const pj_value *input = &values[p->inputs[i]];
        if (input->type != PJ_VALUE_DOUBLE) return false;
        inputs[i] = input->number;
    }
    double derived = p->derivation->derive(inputs);
    return p->code == PJ_CODE_FLOAT ? (float)derived == (float)value->number
                                    : derived == value->number;
}

static int64_t find_number(pj_store *store, const pj_value *name)
{
    pj_sql *sql = pj_sql_begin(store, "SELECT id FROM stored_names WHERE name = ?", NULL);
    pj_sql_value(sql, 1, name);
    int64_t number = pj_sql_step(sql) ? pj_sql_get_int(sql, 0) : 0;
    pj_sql_end(sql, NULL);
    return number;
}

static int64_t number_name(pj_store *store, const pj_value *name)
{
    int64_t number = find_number(store, name);
    if (number) return number;
    pj_sql_change(store, "INSERT INTO stored_names (name) VALUES (?)", name, 1, NULL);
    return find_number(store, name);
}

/* A name that cannot be numbered stays. */
static void code_name(pj_packer *packer, pj_value *value)
{
    if (value->type != PJ_VALUE_TEXT || value->bytes == 0) return;
    uint32_t slot = (uint32_t)pj_hash64(0, value->text, value->bytes) % PJ_KNOWN_NAMES;
    char *name = packer->known[slot].name;
    int64_t *number = &packer->known[slot].number;
    bool fits = value->bytes < PJ_KNOWN_NAME_BYTES;
    if (!fits || !*number || strlen(name) != value->bytes ||
        memcmp(name, value->text, value->bytes) != 0) {
        int64_t found = number_name(packer->store, value);
        if (!found) return;
        if (!fits) {
            *value = pj_value_int(found);
            return;
        }
        memcpy(name, value->text, value->bytes);
        name[value->bytes] = '\0';
        *number = found;
    }
    *value = pj_value_int(*number);
}

static void code_value(pj_packer *packer, const pj_packer_column *p, pj_value *value)
{
    if (p->derived)
        *value = pj_value_text("");
    else if (p->code == PJ_CODE_NAME)
        code_name(packer, value);
    else if (p->code == PJ_CODE_MILLIONTHS && value->type == PJ_VALUE_DOUBLE)
        code_millionths(value);
    else if (p->code == PJ_CODE_FLOAT && value->type == PJ_VALUE_DOUBLE)
        code_float(value);
}

void pj_packer_pack(pj_packer *packer, pj_value *values)
{
    for (uint32_t c = 0; c < packer->count; c++) {
        pj_packer_column *p = &packer->columns[c];
        p->derived = p->derivation && is_derived(p, values, &values[c]);
    }
    for (uint32_t c = 0; c < packer->count; c++)
        if (!packer->columns[c].has_base) code_value(packer, &packer->columns[c], &values[c]);
    for (uint32_t c = 0; c < packer->count; c++) {
        const pj_packer_column *p = &packer->columns[c];
        if (!p->has_base || values[p->base].type != PJ_VALUE_INT) continue;
        code_value(packer, p, &values[c]);
        if (values[c].type == PJ_VALUE_INT) values[c].integer -= values[p->base].integer;
    }
}

/* ---- unpacking ------------------------------------------------------------------------------ */

/* Room for names up to this number. */
static bool make_room(pj_stored_names *names, int64_t number)
{
    while (names->count < number) {
        const char **more =
            pj_arena_more(&names->arena, names->of, (uint32_t)names->count, sizeof *more);
        if (!more) return false;
        names->of = more;
        names->of[names->count++] = NULL;
    }
    return true;
}

/* Numbers increase, so that one below the highest that was looked for is known or has no name. */
static const char *find_name(pj_store *store, int64_t number)
{
    enum { MOST_NAMES = 1 << 20 };
    pj_stored_names *names = &store->names;
    if (number < 1 || number > MOST_NAMES) return NULL;
    if (number <= names->count) return names->of[number - 1];
    pj_sql *sql = pj_sql_begin(
        store, "SELECT id, name FROM stored_names WHERE id > ? AND id <= ? ORDER BY id", NULL);
    pj_sql_int(sql, 1, names->count);
    pj_sql_int(sql, 2, MOST_NAMES);
    while (pj_sql_step(sql)) {
        int64_t of = pj_sql_get_int(sql, 0);
        const char *name = pj_sql_get_text(sql, 1, NULL);
        if (name && make_room(names, of))
            names->of[of - 1] = pj_arena_strndup(&names->arena, name, strlen(name));
    }
    pj_sql_end(sql, NULL);
    return make_room(names, number) ? names->of[number - 1] : NULL;
}

static double float_of_code(int64_t code)
{
    uint64_t magnitude = code < 0 ? -(uint64_t)code : (uint64_t)code;
    uint32_t bits = (uint32_t)magnitude;
    float number;
    memcpy(&number, &bits, sizeof number);
    return code < 0 ? -(double)number : (double)number;
}

static void unpack_derived(const pj_packed_row *row, const pj_packer_column *p, pj_value *value)
{
    double inputs[PJ_DERIVED_FROM];
    *value = (pj_value){.type = PJ_VALUE_NULL};
    for (int i = 0; i < PJ_DERIVED_FROM && p->derivation->inputs[i]; i++) {
        pj_value input;
        row->get(row->context, p->inputs[i], &input);
        pj_unpack(row, p->inputs[i], &input);
        if (input.type != PJ_VALUE_DOUBLE) return;
        inputs[i] = input.number;
    }
    *value = pj_value_double(p->derivation->derive(inputs));
}

void pj_unpack(const pj_packed_row *row, int column, pj_value *value)
{
    const pj_packer_column *p = &row->packer->columns[column];
    bool is_derived = value->type == PJ_VALUE_TEXT && value->bytes == 0 && p->derivation;
    const char *name;
    if (is_derived) unpack_derived(row, p, value);
    if (value->type != PJ_VALUE_INT) return;
    if (p->has_base) {
        pj_value base;
        row->get(row->context, p->base, &base);
        uint64_t of_base = base.type == PJ_VALUE_INT ? (uint64_t)base.integer : 0;
        value->integer = (int64_t)((uint64_t)value->integer + of_base);
    }
    switch (p->code) {
    case PJ_CODE_NONE: break;
    case PJ_CODE_MILLIONTHS: *value = pj_value_double((double)value->integer / 1e6); break;
    case PJ_CODE_FLOAT: *value = pj_value_double(float_of_code(value->integer)); break;
    case PJ_CODE_NAME:
        name = find_name(row->packer->store, value->integer);
        if (name) *value = pj_value_text(name);
        break;
    }
}

pj_packer *pj_packer_of(pj_store *store, int table)
{
    const pj_row_table *rows = &pj_tables[table];
    pj_packer *packer = store->packers[table];
    if (packer) return packer;
    packer = pj_arena_alloc(&store->names.arena, 1, sizeof *packer);
    if (!packer) return NULL;
    packer->store = store;
    for (uint16_t c = 0; c < rows->column_count; c++)
        if (!pj_packer_add(packer, &rows->columns[c])) return NULL;
    pj_packer_begin(packer);
    return store->packers[table] = packer;
}
