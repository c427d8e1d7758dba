/* Baselines of a gate: stored runs, exports, and files written by `perjoule gate --save`. */
#include "base/clock.h"
#include "base/file.h"
#include "cli/gate_runs_impl.h"
#include "cli/stored.h"
#include "store/export.h"

#include <string.h>

enum { BASELINE_VERSION = 1, BASELINE_BYTES = 1 << 20 };
static const char baseline_format[] = "perjoule-baseline";

/* ---- runs of the database ---- */

/* The settings that have to be equal among the runs of a baseline. */
static pj_status gate_alike(const pj_run_info *a, const pj_run_info *b, const char *baseline,
                            pj_error *err)
{
    static const char *const fields[] = {"engine",  "model",        "dtype",          "batch",
                                         "threads", "input_tokens", "settings.ablate"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char x[128] = "", y[128] = "";
        pj_run_field(a, fields[i], x, sizeof x);
        pj_run_field(b, fields[i], y, sizeof y);
        if (strcmp(x, y) != 0)
            return pj_fail(err, PJ_E_INVALID,
                           "%s has runs of different %s (%s and %s): give the runs of one setting",
                           baseline, fields[i], x, y);
    }
    return PJ_OK;
}

static pj_status gate_completed(const pj_run_info *info, pj_error *err)
{
    if (info->status == PJ_RUN_COMPLETED) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "run %.18s is %s: a baseline needs completed runs", info->id,
                   pj_run_status_name(info->status));
}

/* Without disturbed runs, if at least two and half of all remain. */
static pj_status add_list(const pj_run_list *list, const char *baseline, pj_gate_runs *runs,
                          pj_error *err)
{
    uint32_t good = 0;
    pj_status status = PJ_OK;
    for (uint32_t i = 0; i < list->count; i++) good += !pj_run_is_disturbed(&list->runs[i]);
    bool all = good < 2 || 2 * good < list->count;
    for (uint32_t i = 0; i < list->count && status == PJ_OK; i++) {
        const pj_run_info *info = &list->runs[i];
        pj_gate_run run = pj_gate_run_of(info);
        status = gate_alike(&list->runs[0], info, baseline, err);
        if (status == PJ_OK) status = gate_completed(info, err);
        if (status != PJ_OK || (run.disturbed && !all)) continue;
        status = pj_gate_add(runs, &run, err);
    }
    return status;
}

static pj_status add_query(pj_store *store, const pj_run_query *query, const char *baseline,
                           pj_gate_runs *runs, pj_error *err)
{
    pj_run_list list = {0};
    pj_status status = pj_store_list(store, query, &list, err);
    if (status == PJ_OK && list.count == 0)
        status = pj_fail(err, PJ_E_INVALID,
                         "--baseline %.200s is not a file, a run or an experiment", baseline);
    if (status == PJ_OK) status = add_list(&list, baseline, runs, err);
    if (status != PJ_OK && list.count) pj_error_prefix(err, "baseline %.100s", baseline);
    pj_run_list_fini(&list);
    return status;
}

static pj_status read_stored(pj_store *store, const char *baseline, pj_gate_runs *runs,
                             pj_error *err)
{
    pj_run_list one = {0};
    pj_error absent = {0};
    pj_run_query query = {.status = "completed", .limit = PJ_GATE_RUNS};
    pj_status status = PJ_OK;
    char id[PJ_UUID_BYTES];
    bool is_run = pj_store_resolve(store, baseline, id, &absent) == PJ_OK &&
                  pj_store_info(store, id, &one, &absent) == PJ_OK;
    if (is_run) status = gate_completed(&one.runs[0], err);
    if (is_run && one.runs[0].repeat_group)
        query.repeat_group = one.runs[0].repeat_group;
    else if (!is_run)
        query.experiment = baseline;
    if (status == PJ_OK && is_run && !query.repeat_group)
        status = add_list(&one, baseline, runs, err);
    else if (status == PJ_OK)
        status = add_query(store, &query, baseline, runs, err);
    pj_run_list_fini(&one);
    return status;
}

/* ---- files ---- */

static pj_status read_saved(const json_t *file, pj_gate_runs *runs, pj_error *err)
{
    size_t i;
    json_t *item;
    pj_status status = PJ_OK;
    if (pj_gate_number(file, "version") != BASELINE_VERSION)
        return pj_fail(err, PJ_E_INVALID, "a baseline of another version");
    if (json_array_size(json_object_get(file, "runs")) == 0)
        return pj_fail(err, PJ_E_INVALID, "a baseline without runs");
    json_array_foreach(json_object_get(file, "runs"), i, item)
    {
        pj_gate_run run = {0};
        pj_gate_energy *e = &run.energy;
        for (int k = 0; k < PJ_GATE_FIGURES; k++)
            run.joules[k] = pj_gate_number(item, pj_gate_figure_name((pj_gate_figure)k));
        pj_gate_text(item, "id", run.id, sizeof run.id);
        pj_gate_text(file, "energy_source", e->source, sizeof e->source);
        pj_gate_text(file, "power_sources", e->power, sizeof e->power);
        pj_gate_text(file, "scope", e->scope, sizeof e->scope);
        pj_gate_text(file, "rails", e->rails, sizeof e->rails);
        pj_gate_text(file, "missing_rails", e->missing, sizeof e->missing);
        pj_gate_text(file, "machine", run.machine, sizeof run.machine);
        double joules = run.joules[PJ_GATE_RUN];
        if (status == PJ_OK && !(joules > 0))
            status = pj_fail(err, PJ_E_INVALID,
                             "joules_per_run of run %zu must be above 0, not %.6g", i + 1, joules);
        if (status == PJ_OK) status = pj_gate_add(runs, &run, err);
    }
    return status;
}

static pj_status read_export(const pj_mapping *file, const char *path, pj_gate_runs *runs,
                             pj_error *err)
{
    pj_run_data data = {0};
    pj_status status = pj_import_json((const char *)file->data, file->size, &data, err);
    pj_run_list one = {.runs = &data.info, .count = 1};
    if (status == PJ_OK) status = add_list(&one, path, runs, err);
    pj_run_data_fini(&data);
    return status;
}

static pj_status read_file(const char *path, pj_gate_runs *runs, pj_error *err)
{
    pj_mapping file;
    json_error_t where;
    pj_status status = pj_file_map(path, &file, err);
    if (status != PJ_OK) return status;
    /* an export may be large: only a small text with our mark near its beginning becomes a tree */
    size_t head = file.size < 256 ? file.size : 256;
    if (head && file.size <= BASELINE_BYTES &&
        memmem(file.data, head, baseline_format, sizeof baseline_format - 1)) {
        json_t *tree = json_loadb((const char *)file.data, file.size, 0, &where);
        status = tree ? read_saved(tree, runs, err)
                      : pj_fail(err, PJ_E_INVALID, "%s (line %d)", where.text, where.line);
        json_decref(tree);
    } else {
        status = read_export(&file, path, runs, err);
    }
    if (status != PJ_OK) pj_error_prefix(err, "%.200s", path);
    pj_file_unmap(&file);
    return status;
}

pj_status pj_gate_read(const char *baseline, const char *db, pj_gate_runs *runs, pj_error *err)
{
    if (pj_file_exists(baseline)) return read_file(baseline, runs, err);
    pj_store *store = NULL;
    pj_status status = pj_stored_open(db, &store, err);
    if (status == PJ_OK) status = read_stored(store, baseline, runs, err);
    pj_store_close(store);
    return status;
}

pj_status pj_gate_save(const char *path, const char *command, const pj_gate_runs *runs,
                       pj_error *err)
{
    pj_json json;
    char now[32];
    pj_clock_format_iso(pj_clock_wall_ns(), now);
    pj_json_open(&json, BASELINE_BYTES);
    pj_json_object_begin(&json);
    pj_json_kv_string(&json, "format", baseline_format);
    pj_json_kv_int(&json, "version", BASELINE_VERSION);
    pj_json_kv_string(&json, "created_at", now);
    pj_json_kv_string(&json, "command", command);
    pj_json_kv_string(&json, "machine", runs->machine);
    pj_json_kv_string(&json, "energy_source", runs->energy.source);
    pj_json_kv_string(&json, "power_sources", runs->energy.power);
    pj_json_kv_string(&json, "scope", runs->energy.scope);
    pj_json_kv_string(&json, "rails", runs->energy.rails);
    pj_json_kv_string(&json, "missing_rails", runs->energy.missing);
    pj_json_kv_array_begin(&json, "runs");
    for (uint32_t i = 0; i < runs->count; i++) {
        pj_json_object_begin(&json);
        pj_json_kv_string(&json, "id", *runs->ids[i] ? runs->ids[i] : NULL);
        for (int k = 0; k < PJ_GATE_FIGURES; k++)
            pj_json_kv_double(&json, pj_gate_figure_name((pj_gate_figure)k), runs->joules[k][i]);
        pj_json_object_end(&json);
    }
    pj_json_array_end(&json);
    pj_json_object_end(&json);
    const char *text = pj_json_whole(&json);
    pj_status status =
        text ? pj_file_write(path, text, strlen(text), err) : pj_fail_memory(err, "a baseline");
    pj_json_close(&json);
    return status;
}
