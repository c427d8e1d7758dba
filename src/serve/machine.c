#include "serve/machine.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/process.h"
#include "engine/model/scan.h"
#include "engine/model/synthetic.h"
#include "generate/devices.h"
#include "generate/find_model.h"
#include "power/survey.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- models -------------------------------------------------------------------------------- */

static const pj_model_entry *find_entry(const pj_model_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].name, name) == 0) return &list->items[i];
    return NULL;
}

/* The models of the folder and the cache, and in `installed` those of the demonstration model's
 * folder if that is another one. */
typedef struct all_models {
    pj_model_list found, installed;
} all_models;

static void free_models(all_models *all)
{
    pj_model_list_fini(&all->found);
    pj_model_list_fini(&all->installed);
}

static pj_status list_models(const char *folder, all_models *all, pj_error *err)
{
    char demo[4096];
    *all = (all_models){0};
    if (!folder) folder = pj_models_default_folder();
    pj_status status = pj_models_scan(folder, true, &all->found, err);
    if (status != PJ_OK || find_entry(&all->found, "demo")) return status;
    if (pj_model_find(NULL, folder, demo, sizeof demo, NULL) != PJ_OK) return PJ_OK;
    *strrchr(demo, '/') = 0;
    if (pj_models_scan(demo, false, &all->installed, NULL) != PJ_OK)
        all->installed = (pj_model_list){0};
    return PJ_OK;
}

static void machine_write_model(pj_json *out, const pj_model_entry *entry)
{
    pj_json_object_begin(out);
    pj_json_kv_string(out, "name", entry->name);
    pj_json_kv_string(out, "place", entry->location);
    pj_json_kv_bool(out, "usable", entry->usable);
    if (entry->usable) pj_model_facts_json(&entry->facts, out);
    pj_json_kv_string(out, "error", entry->usable ? NULL : entry->reason.text);
    pj_json_object_end(out);
}

pj_status pj_serve_write_models(const char *folder, pj_json *out, pj_error *err)
{
    all_models all;
    pj_status status = list_models(folder, &all, err);
    pj_json_array_begin(out);
    for (size_t i = 0; i < all.found.count; i++) machine_write_model(out, &all.found.items[i]);
    for (size_t i = 0; i < all.installed.count; i++)
        if (!find_entry(&all.found, all.installed.items[i].name))
            machine_write_model(out, &all.installed.items[i]);
    pj_json_array_end(out);
    free_models(&all);
    return status;
}

/* Memory limit for weights generated or converted in memory: four fifths of what there is. */
static double memory_for_weights(void)
{
    return 0.8 * pj_memory_limit("");
}

static pj_status check_size(const char *name, uint64_t parameters, pj_dtype dtype, pj_error *err)
{
    const pj_dtype_info *type = pj_dtype_get(dtype);
    double bytes = (double)parameters / (double)type->block_values * (double)type->block_bytes;
    if (!(bytes > memory_for_weights())) return PJ_OK; /* nor if unknown */
    return pj_fail(err, PJ_E_INVALID,
                   "the weights of %s as %s take %.0f GB, and this machine has %.0f GB for them",
                   name, type->name, bytes / 1e9, memory_for_weights() / 1e9);
}

static pj_status check_synthetic(const char *name, int wanted, pj_error *err)
{
    pj_model_config config;
    pj_dtype dtype;
    uint32_t layers;
    pj_model_facts facts;
    pj_arena arena;
    pj_arena_init(&arena, 0);
    pj_status status =
        pj_synthetic_config(name + strlen("synthetic:"), &arena, &config, &dtype, &layers, err);
    if (status == PJ_OK)
        pj_model_facts_fill(&config, wanted >= 0 ? (pj_dtype)wanted : dtype, &facts);
    pj_arena_fini(&arena);
    if (status != PJ_OK) return pj_fail(err, PJ_E_INVALID, "model_name: %s", err->text);
    return check_size(name, facts.parameters, facts.dtype, err);
}

static pj_status take_entry(const pj_model_entry *entry, int wanted, char *path, size_t bytes,
                            pj_error *err)
{
    if (!entry->usable)
        return pj_fail(err, PJ_E_INVALID, "model %s cannot be used: %s", entry->name,
                       entry->reason.text);
    if ((size_t)snprintf(path, bytes, "%s", entry->path) >= bytes)
        return pj_fail(err, PJ_E_INVALID, "the path of model %s is too long", entry->name);
    if (wanted < 0) return PJ_OK; /* as stored: the file is mapped, not copied into memory */
    return check_size(entry->name, entry->facts.parameters, (pj_dtype)wanted, err);
}

pj_status pj_serve_find_model(const char *folder, const char *name, const char *dtype, char *path,
                              size_t bytes, pj_error *err)
{
    int wanted = dtype ? pj_dtype_parse(dtype) : -1;
    all_models all;
    if (!name) return pj_model_find(NULL, folder, path, bytes, err);
    if (strncmp(name, "synthetic:", 10) == 0) {
        if ((size_t)snprintf(path, bytes, "%s", name) >= bytes)
            return pj_fail(err, PJ_E_INVALID, "model_name is too long");
        return check_synthetic(name, wanted, err);
    }
    pj_status status = list_models(folder, &all, err);
    const pj_model_entry *entry = find_entry(&all.found, name);
    if (!entry) entry = find_entry(&all.installed, name);
    if (status == PJ_OK)
        status = entry ? take_entry(entry, wanted, path, bytes, err)
                       : pj_fail(err, PJ_E_INVALID,
                                 "unknown model %.100s; /api/profiling/models lists the available "
                                 "ones, and synthetic:SHAPE creates one",
                                 name);
    free_models(&all);
    return status;
}

/* ---- sensors ------------------------------------------------------------------------------- */

enum { LISTEN_NS = 200 * 1000 * 1000, FRESH_NS = 5LL * 1000 * 1000 * 1000 };

static pthread_mutex_t survey_mutex = PTHREAD_MUTEX_INITIALIZER;
static pj_survey_source *survey; /* latest result; NULL: none yet */
static uint32_t survey_count;
static int64_t survey_ns;

static pj_survey_options survey_options(const pj_serve_sensors *sensors)
{
    return (pj_survey_options){.listen_ns = LISTEN_NS,
                               .until_shown = true,
                               .power = sensors->power ? sensors->power : pj_power_default(),
                               .used = sensors->meter ? pj_meter_sources(sensors->meter) : ""};
}

/* The mutex must be held, so that concurrent requests share one survey. During a run an existing
 * result is reused, because a second reader could disturb the run's sampling. */
static pj_status refresh_survey(const pj_serve_sensors *sensors, pj_error *err)
{
    pj_survey_source *sources;
    uint32_t count;
    if (survey && (sensors->busy || pj_clock_ns() - survey_ns < FRESH_NS)) return PJ_OK;
    pj_survey_options options = survey_options(sensors);
    pj_status status = pj_survey(&options, &sources, &count, err);
    if (status != PJ_OK) return status;
    pj_free(survey);
    survey = sources;
    survey_count = count;
    survey_ns = pj_clock_ns();
    return PJ_OK;
}

pj_status pj_serve_write_sensors(const pj_serve_sensors *sensors, pj_json *out, pj_error *err)
{
    pj_survey_options options = survey_options(sensors);
    char power[2 * PJ_POWER_ARGUMENT_BYTES];
    pj_power_list_public(options.power, power, sizeof power);
    pthread_mutex_lock(&survey_mutex);
    pj_status status = refresh_survey(sensors, err);
    if (status == PJ_OK) {
        pj_json_object_begin(out);
        pj_json_kv_string(out, "power", power);
        pj_json_key(out, "sources");
        pj_survey_json(&options, survey, survey_count, out);
        pj_json_object_end(out);
    }
    pthread_mutex_unlock(&survey_mutex);
    return status;
}

/* ---- devices ------------------------------------------------------------------------------- */

static pthread_mutex_t devices_mutex = PTHREAD_MUTEX_INITIALIZER;
static pj_device_list devices; /* latest result; empty: none yet */
static int64_t devices_ns;

void pj_serve_write_devices(const pj_serve_sensors *sensors, pj_json *out)
{
    pthread_mutex_lock(&devices_mutex);
    if (!devices.count || (!sensors->busy && pj_clock_ns() - devices_ns > FRESH_NS)) {
        pj_device_list_read(&devices, sensors->power);
        devices_ns = pj_clock_ns();
    }
    pj_device_list_json(&devices, out);
    pthread_mutex_unlock(&devices_mutex);
}

/* ---- power now ----------------------------------------------------------------------------- */

static void write_rail_now(pj_power_log *log, uint32_t index, const pj_rail *rail, int64_t now_ns,
                           uint32_t seconds, pj_json *out)
{
    double power_mw[PJ_POWER_LOG_SECONDS];
    pj_power_log_history(log, index, now_ns, power_mw, seconds);
    pj_json_object_begin(out);
    pj_json_kv_string(out, "name", rail->name);
    pj_json_kv_string(out, "source", rail->source);
    pj_json_kv_string(out, "class", pj_rail_class_name(rail->rail_class));
    pj_json_kv_string(out, "scope", pj_rail_scope_name(rail->scope));
    pj_json_kv_string(out, "quality", rail->quality == PJ_MEASURED ? "measured" : "modelled");
    pj_json_kv_double(out, "now_mw", pj_power_log_now_mw(log, index, now_ns));
    pj_json_kv_double(out, "energy_mj", pj_power_log_energy_mj(log, index));
    pj_json_kv_array_begin(out, "power_mw");
    for (uint32_t i = 0; i < seconds; i++) pj_json_double(out, power_mw[i]);
    pj_json_array_end(out);
    pj_json_object_end(out);
}

void pj_serve_write_power_now(const pj_meter *meter, pj_power_log *log, uint32_t seconds,
                              pj_json *out)
{
    uint32_t count = 0;
    const pj_rail *rails = log ? pj_power_log_rails(log, &count) : NULL;
    int64_t now = pj_clock_ns(), end = now / PJ_NS_PER_S * PJ_NS_PER_S;
    double end_ms = (double)(pj_clock_wall_ns() - (now - end)) / 1e6;
    const char *remedy = meter && !count ? pj_meter_remedy(meter) : "";
    pj_json_object_begin(out);
    pj_json_kv_double(out, "end_unix_ms", round(end_ms));
    pj_json_kv_int(out, "step_ms", 1000);
    pj_json_kv_int(out, "seconds", seconds);
    pj_json_kv_array_begin(out, "rails");
    for (uint32_t i = 0; i < count; i++) write_rail_now(log, i, &rails[i], now, seconds, out);
    pj_json_array_end(out);
    pj_json_kv_string(out, "remedy", remedy[0] ? remedy : NULL);
    pj_json_object_end(out);
}
