/* Settings of a run as text, for grouping and for listing differences. */
#include "insight/sides.h"
#include "insight/task_session.h"
#include "trace/device.h"
#include "trace/summary.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const pj_group_fields[] = {
    "model",      "dtype",   "batch",         "engine",  "machine",      "tag",
    "experiment", "threads", "isa",           "depth",   "input_tokens", "output_tokens",
    "prompt",     "power",   "energy_source", "session", "commit",       NULL};

static bool run_field_give(const char *value, char *text, size_t bytes)
{
    if (!value || !*value) return false;
    snprintf(text, bytes, "%s", value);
    return true;
}

static bool give_count(uint64_t value, char *text, size_t bytes)
{
    if (!value) return false;
    snprintf(text, bytes, "%llu", (unsigned long long)value);
    return true;
}

static bool give_json(const json_t *value, char *text, size_t bytes)
{
    if (json_is_string(value)) return run_field_give(json_string_value(value), text, bytes);
    if (json_is_object(value) || json_is_array(value)) {
        char *whole = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS);
        bool given = run_field_give(whole, text, bytes);
        free(whole);
        return given;
    }
    if (!json_is_number(value) && !json_is_boolean(value)) return false;
    if (json_is_boolean(value))
        return run_field_give(json_is_true(value) ? "true" : "false", text, bytes);
    snprintf(text, bytes, "%.10g", json_number_value(value));
    return true;
}

/* A member of one of the objects that a run keeps as JSON. */
static bool give_member(const char *object, const char *name, char *text, size_t bytes)
{
    if (!object) return false;
    json_t *tree = json_loads(object, 0, NULL);
    bool found = give_json(json_object_get(tree, name), text, bytes);
    json_decref(tree);
    return found;
}

/* The name of the draft model. */
static bool give_draft(const char *model, char *text, size_t bytes)
{
    json_t *tree = model ? json_loads(model, 0, NULL) : NULL;
    bool found =
        give_json(json_object_get(json_object_get(tree, "draft"), "model_name"), text, bytes);
    json_decref(tree);
    return found;
}

/* What computed: the devices besides the host, else "cpu" if it was our engine. */
static bool give_devices(const pj_run_info *info, char *text, size_t bytes)
{
    pj_arena arena;
    pj_device_row devices[PJ_MAX_DEVICES];
    size_t used = 0;
    *text = 0;
    pj_arena_init(&arena, 0);
    uint32_t count = pj_devices_read(info->devices_json, &arena, devices);
    for (uint32_t i = 0; i < count && used < bytes; i++)
        if (devices[i].number != PJ_HOST)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "",
                                     devices[i].name ? devices[i].name : "device");
    pj_arena_fini(&arena);
    if (used) return true;
    bool ours = info->engine && strcmp(info->engine, "perjoule") == 0;
    return ours && run_field_give("cpu", text, bytes);
}

bool pj_run_same_devices(const pj_run_info *a, const pj_run_info *b)
{
    char of_a[PJ_DEVICES_TEXT] = "", of_b[PJ_DEVICES_TEXT] = "";
    if (!a->devices_json && !b->devices_json) return true;
    give_devices(a, of_a, sizeof of_a);
    give_devices(b, of_b, sizeof of_b);
    return strcmp(of_a, of_b) == 0;
}

bool pj_run_field(const pj_run_info *info, const char *field, char *text, size_t bytes)
{
    const struct {
        const char *name, *value;
    } texts[] = {{"model", info->model_name},
                 {"dtype", info->dtype},
                 {"engine", info->engine},
                 {"scope", pj_run_scope(info)},
                 {"level", info->level},
                 {"machine", info->machine},
                 {"experiment", info->experiment_name},
                 {"isa", info->isa},
                 {"prompt", info->prompt},
                 {"power", info->power_sources},
                 {"energy_source", pj_quality_name(info->quality)},
                 {"depth", pj_depth_name(info->depth)},
                 {"session", pj_run_tagged(info, PJ_TAG_SESSION)},
                 {"commit", pj_run_tagged(info, PJ_TAG_COMMIT)}};
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"batch", info->batch_size ? info->batch_size : 1},
                  {"threads", info->threads},
                  {"input_tokens", info->input_tokens},
                  {"output_tokens", info->output_tokens}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(field, texts[i].name) == 0) return run_field_give(texts[i].value, text, bytes);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (strcmp(field, counts[i].name) == 0) return give_count(counts[i].value, text, bytes);
    if (strcmp(field, "device") == 0) return give_devices(info, text, bytes);
    if (strcmp(field, "draft") == 0) return give_draft(info->model_json, text, bytes);
    if (strncmp(field, "model.", 6) == 0)
        return give_member(info->model_json, field + 6, text, bytes);
    if (strncmp(field, "settings.", 9) == 0)
        return give_member(info->settings_json, field + 9, text, bytes);
    return false;
}

bool pj_run_is_ablated(const pj_run_info *info)
{
    char part[64];
    return info->settings_json && strstr(info->settings_json, "\"ablate\"") &&
           pj_run_field(info, "settings.ablate", part, sizeof part);
}
