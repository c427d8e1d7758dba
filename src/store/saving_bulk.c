/*
 * Layers, components and operations of a large run, inserted as pages of encoded rows, with the
 * entries of their indices.
 */
#include "store/bulk_pages.h"
#include "store/row_encoder.h"

#include "base/memory.h"

static const pj_table_id bulk_tables[] = {PJ_TABLE_LAYERS, PJ_TABLE_COMPONENTS,
                                          PJ_TABLE_OPERATIONS};

static void write_row(void *context, uint32_t row, pj_row_record *record)
{
    pj_row_encode(context, row, record);
}

/* ---- indices ------------------------------------------------------------------------------- */

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

static bool step_of_layer(const pj_run_data *data, uint32_t row, uint32_t *key)
{
    *key = data->layers[row].step;
    return *key != PJ_NO_PARENT;
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

static bool step_of_component(const pj_run_data *data, uint32_t row, uint32_t *key)
{
    *key = data->components[row].step;
    return data->components[row].layer == PJ_NO_PARENT && *key != PJ_NO_PARENT;
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
    {"layers_by_step", PJ_TABLE_LAYERS, PJ_TABLE_TOKENS, step_of_layer},
    {"components_of_steps", PJ_TABLE_COMPONENTS, PJ_TABLE_TOKENS, step_of_component},
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

/* ---- the tables -------------------------------------------------------------------------- */

static bool is_bulk(pj_table_id id)
{
    for (size_t i = 0; i < sizeof bulk_tables / sizeof *bulk_tables; i++)
        if (bulk_tables[i] == id) return true;
    return false;
}

pj_status pj_saving_bulk(pj_saving *s, pj_row_encoder *encoder, bool *done, pj_error *err)
{
    pj_table_id id = encoder->id;
    uint32_t rows = pj_table_rows(s->data, id);
    *done = false;
    if (s->by_statements || !pj_store_takes_pages(s->store) || rows <= PJ_GROUP_ROWS ||
        !is_bulk(id) || !encoder->has_id)
        return PJ_OK;
    pj_bulk bulk = {.table = encoder->table->name,
                    .rows = rows,
                    .first_id = s->first[id],
                    .write = write_row,
                    .context = encoder};
    pj_status status = PJ_OK;
    s->has_bulk = true;
    if (!fill_indices(s, id, &bulk))
        status = pj_fail_memory(err, "a run to be stored");
    else
        status = pj_sql_insert_bulk(s->store, &bulk, done, err);
    if (*done) pj_store_add_page_rows(s->store, rows);
    for (uint32_t i = 0; i < bulk.index_count; i++) pj_free(bulk.indices[i].entries);
    return status;
}

void pj_saving_bulk_end(const pj_saving *s)
{
    for (size_t i = 0; s->has_bulk && i < sizeof bulk_tables / sizeof *bulk_tables; i++)
        pj_sql_bulk_end(s->store, pj_tables[bulk_tables[i]].name);
}
