/* Writes and reads the cell of a run. */
#include "record/experiment_cell.h"

#include <jansson.h>
#include <string.h>

void pj_experiment_cell_write(const pj_experiment_cell *cell_id, pj_json *json)
{
    if (!cell_id) return;
    pj_json_kv_uint(json, "experiment_cell", cell_id->cell);
    pj_json_kv_uint(json, "experiment_block", cell_id->block);
    pj_json_kv_uint(json, "experiment_round", cell_id->round);
}

static bool whole(const json_t *object, const char *name, uint32_t *out)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (uint32_t)json_integer_value(value);
    return true;
}

bool pj_experiment_cell_of(const pj_run_info *info, pj_experiment_cell *cell_id)
{
    if (!info->settings_json || !strstr(info->settings_json, "\"experiment_cell\"")) return false;
    json_t *settings = json_loads(info->settings_json, 0, NULL);
    bool found = whole(settings, "experiment_cell", &cell_id->cell) &&
                 whole(settings, "experiment_block", &cell_id->block) &&
                 whole(settings, "experiment_round", &cell_id->round);
    json_decref(settings);
    return found;
}
