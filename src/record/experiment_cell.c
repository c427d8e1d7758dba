/* Writes and reads places. */
#include "record/experiment_cell.h"

#include <jansson.h>
#include <string.h>

void pj_experiment_cell_write(const pj_experiment_cell *place, pj_json *json)
{
    if (!place) return;
    pj_json_kv_uint(json, "experiment_cell", place->cell);
    pj_json_kv_uint(json, "experiment_block", place->block);
    pj_json_kv_uint(json, "experiment_round", place->round);
}

static bool whole(const json_t *object, const char *name, uint32_t *out)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = (uint32_t)json_integer_value(value);
    return true;
}

bool pj_experiment_cell_of(const pj_run_info *info, pj_experiment_cell *place)
{
    if (!info->settings_json || !strstr(info->settings_json, "\"experiment_cell\"")) return false;
    json_t *settings = json_loads(info->settings_json, 0, NULL);
    bool found = whole(settings, "experiment_cell", &place->cell) &&
                 whole(settings, "experiment_block", &place->block) &&
                 whole(settings, "experiment_round", &place->round);
    json_decref(settings);
    return found;
}
