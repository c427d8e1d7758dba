/* Calibrations as files and as a prior: saving, loading, looking up. */
#include "record/calibration.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "trace/phases.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* of an operation relative to its component's power */
static const double OPERATION_SD = 0.15;

/* ---- files ----------------------------------------------------------------------------------- */

static pj_status calibration_path_of(const char *key, char *path, size_t bytes, pj_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "calibrations/%016llx.json",
             (unsigned long long)pj_hash64(0, key, strlen(key)));
    return pj_path_user_file(name, path, bytes, err);
}

pj_status pj_calibration_save(const pj_calibration *calibration, char *path, size_t bytes,
                              pj_error *err)
{
    pj_json json;
    char created[32], folder[PATH_MAX];
    pj_status status = calibration_path_of(calibration->key, path, bytes, err);
    if (status != PJ_OK) return status;
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    status = pj_dir_make(folder, err);
    if (status != PJ_OK) return status;
    pj_clock_format_iso(calibration->created_wall_ns, created);
    pj_json_open(&json, 4 << 20);
    pj_json_object_begin(&json);
    pj_json_kv_int(&json, "version", 1);
    pj_json_kv_string(&json, "key", calibration->key);
    pj_json_kv_string(&json, "created_at", created);
    pj_json_kv_array_begin(&json, "classes");
    for (uint32_t i = 0; i < calibration->count; i++) {
        const pj_calibration_row *r = &calibration->rows[i];
        pj_json_object_begin(&json);
        pj_json_kv_string(&json, "name", r->name);
        pj_json_kv_string(&json, "phase", pj_phase_name(r->phase));
        pj_json_kv_string(&json, "rail", r->rail);
        pj_json_kv_double(&json, "power_mw", r->power_mw);
        pj_json_kv_double(&json, "sd_mw", r->sd_mw);
        pj_json_kv_bool(&json, "unstable", r->unstable);
        pj_json_object_end(&json);
    }
    pj_json_array_end(&json);
    pj_json_object_end(&json);
    const char *text = pj_json_whole(&json);
    status = text ? pj_file_write(path, text, json.own.length, err)
                  : pj_fail_memory(err, "a calibration");
    pj_json_close(&json);
    return status;
}

static bool calibration_read_row(const json_t *object, pj_calibration_row *row)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    const char *rail = json_string_value(json_object_get(object, "rail"));
    const char *phase = json_string_value(json_object_get(object, "phase"));
    const json_t *power = json_object_get(object, "power_mw"),
                 *sd = json_object_get(object, "sd_mw");
    if (!name || !rail || !phase || !json_is_number(power) || !json_is_number(sd)) return false;
    *row = (pj_calibration_row){.power_mw = json_number_value(power),
                                .sd_mw = json_number_value(sd),
                                .unstable = json_is_true(json_object_get(object, "unstable"))};
    snprintf(row->name, sizeof row->name, "%s", name);
    snprintf(row->rail, sizeof row->rail, "%s", rail);
    int parsed = pj_phase_parse(phase);
    row->phase = (pj_phase)parsed;
    return parsed >= 0 && row->power_mw >= 0 && row->sd_mw > 0 && isfinite(row->power_mw) &&
           isfinite(row->sd_mw);
}

pj_status pj_calibration_load(const char *key, pj_calibration **calibration, pj_error *err)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes;
    *calibration = NULL;
    pj_status status = calibration_path_of(key, path, sizeof path, err);
    if (status == PJ_OK && !pj_file_exists(path))
        return pj_fail(err, PJ_E_NOT_FOUND, "there is no calibration for this model and machine");
    if (status == PJ_OK) status = pj_file_read(path, 4 << 20, &text, &bytes, err);
    if (status != PJ_OK) return status;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    const json_t *rows = json_object_get(root, "classes");
    const char *kept = json_string_value(json_object_get(root, "key"));
    pj_calibration *c = pj_alloc(1, sizeof *c);
    if (!c)
        status = pj_fail_memory(err, "a calibration");
    else if (!kept || strcmp(kept, key) != 0 || !json_is_array(rows))
        status = pj_fail(err, PJ_E_INVALID,
                         "%s is not a calibration of this model and machine; "
                         "delete it and calibrate again",
                         path);
    for (size_t i = 0; status == PJ_OK && i < json_array_size(rows); i++) {
        if (c->count < PJ_CALIBRATION_MAX_ROWS &&
            calibration_read_row(json_array_get(rows, i), &c->rows[c->count]))
            c->count++;
        else
            status = pj_fail(err, PJ_E_INVALID,
                             "%s: row %zu is damaged; delete the file and "
                             "calibrate again",
                             path, i);
    }
    if (status == PJ_OK) {
        const char *created = json_string_value(json_object_get(root, "created_at"));
        snprintf(c->key, sizeof c->key, "%s", key);
        if (created) pj_clock_parse_iso(created, &c->created_wall_ns);
        *calibration = c;
    } else {
        pj_free(c);
    }
    json_decref(root);
    pj_free(text);
    return status;
}

/* ---- use ------------------------------------------------------------------------------------- */

static const pj_calibration_row *calibration_find(const pj_calibration *c, const char *rail,
                                                  const char *name, size_t length, pj_phase phase)
{
    for (uint32_t i = 0; i < c->count; i++) {
        const pj_calibration_row *r = &c->rows[i];
        if (r->phase == phase && strcmp(r->rail, rail) == 0 && strlen(r->name) == length &&
            strncmp(r->name, name, length) == 0)
            return r;
    }
    return NULL;
}

bool pj_calibration_prior(void *context, const pj_rail *rail, const char *class_name,
                          pj_phase phase, double *power_mw, double *sd_mw)
{
    const pj_calibration *c = context;
    size_t length = strlen(class_name), component = strcspn(class_name, "/");
    const pj_calibration_row *row = calibration_find(c, rail->name, class_name, length, phase);
    bool whole = row != NULL;
    if (!row && component < length)
        row = calibration_find(c, rail->name, class_name, component, phase);
    if (!row) return false;
    *power_mw = row->power_mw;
    *sd_mw = whole ? row->sd_mw : hypot(row->sd_mw, OPERATION_SD * row->power_mw);
    return true;
}

pj_calibration_row *pj_calibration_row_for(pj_calibration *c, const char *rail, const char *name,
                                           pj_phase phase)
{
    pj_calibration_row *row =
        (pj_calibration_row *)(uintptr_t)calibration_find(c, rail, name, strlen(name), phase);
    if (row || c->count == PJ_CALIBRATION_MAX_ROWS || strlen(name) >= sizeof row->name) return row;
    row = &c->rows[c->count++];
    *row = (pj_calibration_row){.phase = phase, .power_mw = NAN};
    snprintf(row->name, sizeof row->name, "%s", name);
    snprintf(row->rail, sizeof row->rail, "%s", rail);
    return row;
}
