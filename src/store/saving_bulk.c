/*
 * Layers, components and operations as records. The common types of columns are written straight
 * from the row; all others go by their value, as everywhere else.
 */
#include "store/saving.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "store/bulk_pages.h"
#include "store/extras.h"

#include <stdio.h>
#include <string.h>

enum { KNOWN_TEXTS = 64 };
/* Columns that only the database has. */
enum { COLUMN_NONE = -1, COLUMN_FIRST_OPERATION = -2, COLUMN_OPERATION_COUNT = -3 };

static const pj_table_id bulk_tables[] = {PJ_TABLE_LAYERS, PJ_TABLE_COMPONENTS,
                                          PJ_TABLE_OPERATIONS};

/* Texts of rows are names, interned by whoever recorded them. */
typedef struct known_text {
    const char *text;
    size_t bytes;
    bool valid; /* UTF-8 */
} known_text;

typedef struct bulk_rows {
    const pj_saving *saving;
    const pj_table *table;
    pj_table_id id;
    int columns[PJ_RECORD_COLUMNS]; /* of the table in the database: index of ours, or COLUMN_... */
    int column_count;
    known_text known[KNOWN_TEXTS];
    char scratch[PJ_ROW_SCRATCH_BYTES] __attribute__((aligned(16)));
} bulk_rows;

/* ---- values -------------------------------------------------------------------------------- */

static void put_text(bulk_rows *b, const char *text, pj_row_record *record)
{
    known_text *known = &b->known[((uintptr_t)text >> 3 ^ (uintptr_t)text >> 9) % KNOWN_TEXTS];
    if (!text) {
        pj_row_record_null(record);
        return;
    }
    if (known->text != text) {
        size_t bytes = strlen(text);
        *known = (known_text){text, bytes, pj_utf8_valid(text, bytes)};
    }
    pj_row_record_text(record, text, known->bytes, !known->valid);
}

static void put_extras(const bulk_rows *b, const unsigned char *row, pj_row_record *record)
{
    const pj_run_data *data = b->saving->data;
    uint32_t range[2]; /* begin, count */
    size_t begin = record->body.length;
    memcpy(range, row + b->table->extras, sizeof range);
    if (range[1] == 0 || range[0] > data->extra_count || range[1] > data->extra_count - range[0])
        pj_row_record_null(record);
    else if (pj_extras_write(&record->body, data->extras + range[0], range[1]))
        pj_row_record_text_written(record, record->body.length - begin, false);
}

static void put_value(const bulk_rows *b, const pj_column *column, const void *row,
                      pj_row_record *record)
{
    pj_value v = {0};
    pj_column_get(b->table, column, row, &v);
    switch (v.type) {
    case PJ_VALUE_NULL: pj_row_record_null(record); break;
    case PJ_VALUE_INT: pj_row_record_int(record, v.integer); break;
    case PJ_VALUE_DOUBLE: pj_row_record_double(record, v.number); break;
    case PJ_VALUE_TEXT:
    case PJ_VALUE_BLOB:
        pj_row_record_text(record, v.text, v.bytes, !pj_utf8_valid(v.text, v.bytes));
        break;
    }
}

#define AT(type) (*(type const *)(const void *)at)

static void put_column(bulk_rows *b, const pj_column *column, const void *row,
                       pj_row_record *record)
{
    const unsigned char *at = (const unsigned char *)row + column->offset;
    switch (column->type) {
    case PJ_COLUMN_TEXT: put_text(b, AT(const char *), record); break;
    case PJ_COLUMN_DOUBLE: pj_row_record_double(record, AT(double)); break;
    case PJ_COLUMN_FLOAT: pj_row_record_double(record, (double)AT(float)); break;
    case PJ_COLUMN_NJ: pj_row_record_double(record, pj_mj_of_nj(AT(int64_t))); break;
    case PJ_COLUMN_STAT_FLOAT:
        if (((const bool *)row)[b->table->stats_flag])
            pj_row_record_double(record, (double)AT(float));
        else
            pj_row_record_null(record);
        break;
    case PJ_COLUMN_REFERENCE:
        if (AT(uint32_t) == PJ_NO_PARENT)
            pj_row_record_null(record);
        else
            pj_row_record_int(record, b->saving->first[column->kind] + AT(uint32_t));
        break;
    case PJ_COLUMN_EXTRAS: put_extras(b, row, record); break;
    default: put_value(b, column, row, record); break;
    }
}

#undef AT

/* Of a component: id of its first operation, or how many it has. */
static void put_range(const pj_saving *s, uint32_t component, bool of_first, pj_row_record *record)
{
    uint32_t count = s->begins ? s->begins[component + 1] - s->begins[component] : 0;
    if (!of_first)
        pj_row_record_int(record, count);
    else if (count)
        pj_row_record_int(record, s->first[PJ_TABLE_OPERATIONS] + s->begins[component]);
    else
        pj_row_record_null(record);
}

static void write_row(void *context, uint32_t index, pj_row_record *record)
{
    bulk_rows *b = context;
    const pj_saving *s = b->saving;
    uint32_t at = b->id == PJ_TABLE_OPERATIONS && s->order ? s->order[index] : index;
    const void *row = pj_table_row(s->data, b->id, at, b->scratch);
    for (int i = 0; i < b->column_count; i++) {
        int c = b->columns[i];
        if (c >= 0)
            put_column(b, &b->table->columns[c], row, record);
        else if (c == COLUMN_NONE)
            pj_row_record_null(record);
        else
            put_range(s, index, c == COLUMN_FIRST_OPERATION, record);
    }
}

/* ---- columns and indices ------------------------------------------------------------------- */

static int find_column(const pj_table *table, const char *name)
{
    for (int c = 0; c < table->column_count; c++)
        if (strcmp(table->columns[c].name, name) == 0) return c;
    if (strcmp(name, "first_operation_id") == 0) return COLUMN_FIRST_OPERATION;
    return strcmp(name, "operation_count") == 0 ? COLUMN_OPERATION_COUNT : COLUMN_NONE;
}

/* In the order of the database; false: more than there is room for, or some of ours are missing. */
static bool find_columns(bulk_rows *b)
{
    int ours = 0;
    pj_sql *sql = pj_sql_begin(b->saving->store,
                               "SELECT name FROM pragma_table_info(?, 'main') ORDER BY cid", NULL);
    pj_sql_text(sql, 1, b->table->name);
    while (pj_sql_step(sql) && b->column_count < PJ_RECORD_COLUMNS) {
        int c = find_column(b->table, pj_sql_get_text(sql, 0, NULL));
        b->columns[b->column_count++] = c;
        ours += c >= 0;
    }
    return pj_sql_end(sql, NULL) == PJ_OK && b->column_count < PJ_RECORD_COLUMNS &&
           ours == b->table->column_count;
}

typedef struct index_rule {
    const char *name;
    pj_table_id of, to; /* whose rows, and whose its keys are */
    bool (*key)(const pj_run_data *data, uint32_t row, uint32_t *key); /* false: not in it */
} index_rule;

static bool token_of_layer(const pj_run_data *data, uint32_t row, uint32_t *key)
{
    *key = data->layers[row].token;
    return true;
}

static bool layer_of_component(const pj_run_data *data, uint32_t row, uint32_t *key)
{
    *key = data->components[row].layer;
    return *key != PJ_NO_PARENT;
}

static bool token_of_component(const pj_run_data *data, uint32_t row, uint32_t *key)
{
    *key = data->components[row].token;
    return data->components[row].layer == PJ_NO_PARENT;
}

static bool section_of_component(const pj_run_data *data, uint32_t row, uint32_t *key)
{
    const pj_component_row *c = &data->components[row];
    *key = c->section;
    return c->layer == PJ_NO_PARENT && c->token == PJ_NO_PARENT;
}

/* As the schema declares them. */
static const index_rule index_rules[] = {
    {"layers_by_token", PJ_TABLE_LAYERS, PJ_TABLE_TOKENS, token_of_layer},
    {"components_by_layer", PJ_TABLE_COMPONENTS, PJ_TABLE_LAYERS, layer_of_component},
    {"components_outside", PJ_TABLE_COMPONENTS, PJ_TABLE_TOKENS, token_of_component},
    {"components_of_sections", PJ_TABLE_COMPONENTS, PJ_TABLE_SECTIONS, section_of_component},
};

_Static_assert(PJ_NO_KEY == PJ_NO_PARENT, "NULL is no parent");

static bool fill_index(const pj_saving *s, const index_rule *rule, uint32_t rows,
                       pj_bulk_index *index)
{
    *index = (pj_bulk_index){.name = rule->name, .first_key = s->first[rule->to]};
    for (int pass = 0; pass < 2; pass++) {
        uint32_t count = 0, key;
        for (uint32_t row = 0; row < rows; row++) {
            if (!rule->key(s->data, row, &key)) continue;
            if (pass) index->entries[count] = (pj_bulk_entry){key, row};
            count++;
        }
        index->count = count;
        if (!pass && !(index->entries = pj_alloc((size_t)count + 1, sizeof *index->entries)))
            return false;
    }
    pj_bulk_sort(index->entries, index->count);
    return true;
}

static bool fill_indices(const pj_saving *s, pj_table_id id, pj_bulk *bulk)
{
    for (size_t i = 0; i < sizeof index_rules / sizeof *index_rules; i++)
        if (index_rules[i].of == id &&
            !fill_index(s, &index_rules[i], bulk->rows, &bulk->indices[bulk->index_count++]))
            return false;
    return true;
}

/* ---- all together -------------------------------------------------------------------------- */

static bool is_bulk(pj_table_id id)
{
    for (size_t i = 0; i < sizeof bulk_tables / sizeof *bulk_tables; i++)
        if (bulk_tables[i] == id) return true;
    return false;
}

pj_status pj_saving_bulk(pj_saving *s, pj_table_id id, bool *done, pj_error *err)
{
    uint32_t rows = pj_table_rows(s->data, id);
    *done = false;
    if (s->one_by_one || rows <= PJ_GROUP_ROWS || !is_bulk(id)) return PJ_OK;
    bulk_rows context = {.saving = s, .table = &pj_tables[id], .id = id};
    pj_bulk bulk = {.table = context.table->name,
                    .rows = rows,
                    .first_id = s->first[id],
                    .write = write_row,
                    .context = &context};
    pj_status status = PJ_OK;
    s->has_bulk = true;
    if (!fill_indices(s, id, &bulk))
        status = pj_fail_memory(err, "a run to be stored");
    else if (find_columns(&context))
        status = pj_sql_insert_bulk(s->store, &bulk, done, err);
    for (uint32_t i = 0; i < bulk.index_count; i++) pj_free(bulk.indices[i].entries);
    return status;
}

void pj_saving_bulk_end(const pj_saving *s)
{
    for (size_t i = 0; s->has_bulk && i < sizeof bulk_tables / sizeof *bulk_tables; i++)
        pj_sql_bulk_end(s->store, pj_tables[bulk_tables[i]].name);
}
