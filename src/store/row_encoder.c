/* Encodes rows into values, as pj_column_get gives them to exports, with ids for references. */
#include "store/row_encoder.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/json.h"
#include "store/extras.h"
#include "store/schema.h"
#include "store/store_impl.h"
#include "trace/summary.h"

#include <string.h>

/* ---- values --------------------------------------------------------------------------------- */

static pj_value encode_text(pj_row_encoder *e, const char *text)
{
    pj_known_text *known =
        &e->known[((uintptr_t)text >> 3 ^ (uintptr_t)text >> 9) % PJ_KNOWN_TEXTS];
    if (known->text != text) {
        *known = (pj_known_text){text, pj_value_text(text)};
        pj_value_check_utf8(&known->value);
    }
    return known->value;
}

static bool is_packed(const pj_row_encoder *e)
{
    return e->stored_as != e->table->name;
}

static pj_value encode_extras(pj_row_encoder *e, const unsigned char *row)
{
    const pj_run_data *data = e->saving->data;
    uint32_t range[2]; /* begin, count */
    memcpy(range, row + e->table->extras, sizeof range);
    if (range[1] == 0 || range[0] > data->extra_count || range[1] > data->extra_count - range[0])
        return (pj_value){.type = PJ_VALUE_NULL};
    const pj_extra_row *extras = data->extras + range[0];
    if (is_packed(e) && pj_extras_pack(e->packer.texts, extras, range[1], &e->text, &e->figures))
        return pj_value_bytes(PJ_VALUE_BLOB, e->figures.data, e->figures.length);
    pj_buffer_clear(&e->text);
    if (!pj_extras_write(&e->text, extras, range[1])) return (pj_value){.type = PJ_VALUE_NULL};
    return pj_value_bytes(PJ_VALUE_TEXT, e->text.data, e->text.length);
}

/* ---- derived columns ------------------------------------------------------------------------ */

static pj_value derive_id(pj_row_encoder *e, uint32_t row)
{
    return pj_value_int(e->saving->first[e->id] + row);
}

static pj_value derive_run_id(pj_row_encoder *e, uint32_t row)
{
    return encode_text(e, e->saving->data->info.id);
}

int64_t pj_machine_id(const char *machine)
{
    const char *name = machine ? machine : "";
    return (int64_t)(pj_hash64(0, name, strlen(name)) >> 1); /* positive */
}

static pj_value derive_machine_id(pj_row_encoder *e, uint32_t row)
{
    return pj_value_int(pj_machine_id(e->saving->data->info.machine));
}

static pj_value derive_rowid(pj_row_encoder *e, uint32_t row)
{
    return pj_value_int(e->saving->run_number);
}

static uint32_t operations_of(const pj_saving *s, uint32_t component)
{
    return s->begins ? s->begins[component + 1] - s->begins[component] : 0;
}

static pj_value derive_first_operation(pj_row_encoder *e, uint32_t component)
{
    const pj_saving *s = e->saving;
    if (!operations_of(s, component)) return (pj_value){.type = PJ_VALUE_NULL};
    return pj_value_int(s->first[PJ_TABLE_OPERATIONS] + s->begins[component]);
}

static pj_value derive_operation_count(pj_row_encoder *e, uint32_t component)
{
    return pj_value_int(operations_of(e->saving, component));
}

static pj_value derive_created_at(pj_row_encoder *e, uint32_t row)
{
    pj_clock_format_iso(e->saving->data->info.created_wall_ns, e->created);
    return pj_value_text(e->created);
}

static pj_value derive_tags(pj_row_encoder *e, uint32_t row)
{
    const pj_run_info *info = &e->saving->data->info;
    pj_json json;
    pj_json_init(&json, &e->text);
    pj_tags_write(&json, info->tags, info->tag_count);
    return pj_value_bytes(PJ_VALUE_TEXT, e->text.data, e->text.length);
}

static pj_run_ratios ratios_of(const pj_row_encoder *e)
{
    pj_run_ratios ratios;
    pj_run_ratios_get(&e->saving->data->info, &ratios);
    return ratios;
}

static pj_value derive_tokens_per_second(pj_row_encoder *e, uint32_t row)
{
    return pj_value_double(ratios_of(e).tokens_per_second);
}

static pj_value derive_joules_per_token(pj_row_encoder *e, uint32_t row)
{
    return pj_value_double(ratios_of(e).joules_per_token);
}

static pj_value derive_joules_per_token_sd(pj_row_encoder *e, uint32_t row)
{
    return pj_value_double(ratios_of(e).joules_per_token_sd);
}

static const struct {
    pj_table_id id;
    const char *column;
    pj_derive_fn *derive;
} derived[] = {
    {PJ_TABLE_COMPONENTS, "first_operation_id", derive_first_operation},
    {PJ_TABLE_COMPONENTS, "operation_count", derive_operation_count},
    {PJ_TABLE_COUNT, "id", derive_run_id},
    {PJ_TABLE_COUNT, "rowid", derive_rowid},
    {PJ_TABLE_COUNT, "created_at", derive_created_at},
    {PJ_TABLE_COUNT, "tags", derive_tags},
    {PJ_TABLE_COUNT, "tokens_per_second", derive_tokens_per_second},
    {PJ_TABLE_COUNT, "joules_per_token", derive_joules_per_token},
    {PJ_TABLE_COUNT, "joules_per_token_sd", derive_joules_per_token_sd},
};

/* ---- the plan ------------------------------------------------------------------------------ */

/* Whether the database's column is this one, or the code of it. */
static bool holds(const pj_row_encoder *e, const char *stored, const pj_column *column)
{
    size_t length = strlen(column->name);
    const char *suffix =
        is_packed(e) && pj_code_is_number(pj_code_of(column)) ? PJ_CODE_SUFFIX : "";
    return strncmp(stored, column->name, length) == 0 && strcmp(stored + length, suffix) == 0;
}

static pj_planned_column plan_column(const pj_row_encoder *e, const char *name)
{
    for (int c = 0; c < e->table->column_count; c++)
        if (holds(e, name, &e->table->columns[c]))
            return (pj_planned_column){.column = &e->table->columns[c]};
    for (size_t i = 0; i < sizeof derived / sizeof *derived; i++)
        if (derived[i].id == e->id && strcmp(derived[i].column, name) == 0)
            return (pj_planned_column){.derive = derived[i].derive};
    if (e->id != PJ_TABLE_COUNT && strcmp(name, "id") == 0)
        return (pj_planned_column){.derive = derive_id};
    if (strcmp(name, "run_id") == 0) return (pj_planned_column){.derive = derive_run_id};
    if (strcmp(name, "machine_id") == 0) return (pj_planned_column){.derive = derive_machine_id};
    return (pj_planned_column){0};
}

static void take_column(void *context, const char *name)
{
    pj_row_encoder *e = context;
    pj_planned_column planned = plan_column(e, name);
    if (e->column_count < PJ_TABLE_COLUMNS) e->plan[e->column_count] = planned;
    if (is_packed(e) && !pj_packer_add(&e->packer, planned.column))
        e->column_count = PJ_TABLE_COLUMNS;
    e->column_count++;
}

pj_status pj_row_encoder_init(pj_row_encoder *e, const pj_saving *saving, pj_table_id id,
                              pj_error *err)
{
    enum { MAX_TEXT_BYTES = 1 << 28 };
    *e = (pj_row_encoder){.saving = saving, .id = id};
    pj_buffer_init(&e->text, MAX_TEXT_BYTES);
    pj_buffer_init(&e->figures, MAX_TEXT_BYTES);
    e->packer.texts = &saving->store->texts;
    e->table = id == PJ_TABLE_COUNT ? &pj_run_table : &pj_tables[id];
    e->stored_as = pj_schema_stored_table(saving->store->driver->dialect, e->table->name);
    pj_status status = pj_store_columns(saving->store, e->stored_as, take_column, e, err);
    if (status != PJ_OK) return status;
    pj_packer_begin(&e->packer);
    uint32_t ours = 0;
    bool too_many = e->column_count > PJ_TABLE_COLUMNS;
    for (uint32_t c = 0; c < e->column_count && !too_many; c++) ours += e->plan[c].column != NULL;
    if (!too_many && ours == e->table->column_count) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   "table %s of database %s does not match the schema of perjoule: %s",
                   e->table->name, pj_store_path(saving->store),
                   too_many ? "it has too many columns" : "columns are missing");
}

void pj_row_encoder_fini(pj_row_encoder *e)
{
    pj_buffer_fini(&e->text);
    pj_buffer_fini(&e->figures);
}

/* ---- rows ---------------------------------------------------------------------------------- */

#define AT(type) (*(type const *)(const void *)at)

static void encode_column(pj_row_encoder *e, const pj_column *column, const void *row,
                          pj_value *value)
{
    const unsigned char *at = (const unsigned char *)row + column->offset;
    switch (column->type) {
    case PJ_COLUMN_TEXT: *value = encode_text(e, AT(const char *)); break;
    case PJ_COLUMN_EXTRAS: *value = encode_extras(e, row); break;
    case PJ_COLUMN_REFERENCE:
        pj_column_get(e->table, column, row, value);
        if (value->type == PJ_VALUE_INT) value->integer += e->saving->first[column->kind];
        break;
    default: pj_column_get(e->table, column, row, value); pj_value_check_utf8(value);
    }
}

#undef AT

static const void *row_at(pj_row_encoder *e, uint32_t row)
{
    const pj_saving *s = e->saving;
    if (e->id == PJ_TABLE_COUNT) return &s->data->info;
    if (e->id == PJ_TABLE_OPERATIONS && s->order) row = s->order[row];
    return pj_table_row(s->data, e->id, row, e->scratch);
}

const pj_value *pj_row_encode(void *encoder, uint32_t row)
{
    pj_row_encoder *e = encoder;
    const void *at = row_at(e, row);
    pj_buffer_clear(&e->text);
    for (uint32_t i = 0; i < e->column_count; i++) {
        const pj_planned_column *planned = &e->plan[i];
        pj_value *value = &e->values[i];
        if (planned->column)
            encode_column(e, planned->column, at, value);
        else
            *value = planned->derive ? planned->derive(e, row) : (pj_value){.type = PJ_VALUE_NULL};
    }
    if (is_packed(e)) pj_packer_pack(&e->packer, e->values);
    return e->text.failed || e->packer.texts->failure.status != PJ_OK ? NULL : e->values;
}
