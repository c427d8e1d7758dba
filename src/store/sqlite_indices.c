/*
 * The entries of the indices of layers, components and operations, computed from a run in memory:
 * rows inserted as pages bring their indices with them.
 */
#include "store/sqlite_pages.h"

#include "base/memory.h"
#include "store/rows.h"

static const pj_table_id bulk_tables[] = {PJ_TABLE_LAYERS, PJ_TABLE_COMPONENTS,
                                          PJ_TABLE_OPERATIONS};

typedef struct index_rule {
    const char *name;
    pj_table_id of, to; /* table of the rows, table of the keys */
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
    return c->layer == PJ_NO_PARENT && c->token == PJ_NO_PARENT && c->step == PJ_NO_PARENT;
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

static bool fill_index(const pj_bulk_rows *source, const index_rule *rule, pj_bulk_index *index)
{
    *index = (pj_bulk_index){.name = rule->name, .first_key = source->first_ids[rule->to]};
    for (int pass = 0; pass < 2; pass++) {
        uint32_t count = 0, key;
        for (uint32_t row = 0; row < source->rows; row++) {
            if (!rule->key(source->data, row, &key)) continue;
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

bool pj_bulk_has_indices(int table)
{
    for (size_t i = 0; i < sizeof bulk_tables / sizeof *bulk_tables; i++)
        if ((int)bulk_tables[i] == table) return true;
    return false;
}

bool pj_bulk_fill_indices(pj_bulk *bulk)
{
    const pj_bulk_rows *source = bulk->source;
    for (size_t i = 0; i < sizeof index_rules / sizeof *index_rules; i++)
        if ((int)index_rules[i].of == source->table_id &&
            !fill_index(source, &index_rules[i], &bulk->indices[bulk->index_count++]))
            return false;
    return true;
}

void pj_bulk_free_indices(pj_bulk *bulk)
{
    for (uint32_t i = 0; i < bulk->index_count; i++) pj_free(bulk->indices[i].entries);
    bulk->index_count = 0;
}
