/* Conditions by device: a run's means, or the range of the means of many runs. */
#include "report/report_conditions.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DEVICES = 16, MACHINES = 8, NAME_BYTES = 128 };

static const struct {
    const char *key;
    double scale;
} quantities[] = {
    {"temperature_c", 1}, {"clock_mhz", 1}, {"utilisation", 100}, {"throttled_share", 100}};

enum { QUANTITIES = sizeof quantities / sizeof *quantities };

typedef struct range {
    double lo, hi; /* NAN: not reported */
} range;

typedef struct ranges {
    char devices[DEVICES][NAME_BYTES], machines[MACHINES][NAME_BYTES];
    range of[DEVICES][QUANTITIES];
    uint32_t device_count, machine_count;
} ranges;

/* The place of a name in a list, where it is added at first; `most` when the list is full. */
static uint32_t place_of(char (*names)[NAME_BYTES], uint32_t *count, uint32_t most,
                         const char *name)
{
    char cut[NAME_BYTES];
    snprintf(cut, sizeof cut, "%s", name);
    for (uint32_t i = 0; i < *count; i++)
        if (strcmp(names[i], cut) == 0) return i;
    if (*count == most) return most;
    memcpy(names[*count], cut, sizeof cut);
    return (*count)++;
}

static void add_device(ranges *r, const char *name, const json_t *device)
{
    uint32_t known = r->device_count;
    uint32_t at = place_of(r->devices, &r->device_count, DEVICES, name);
    if (at == DEVICES) return;
    for (int q = 0; q < QUANTITIES; q++) {
        const json_t *member = json_object_get(device, quantities[q].key);
        double value = json_is_number(member) ? json_number_value(member) : NAN;
        range *of = &r->of[at][q];
        if (at == known) *of = (range){NAN, NAN};
        of->lo = fmin(of->lo, value * quantities[q].scale); /* of a NAN and a number, the number */
        of->hi = fmax(of->hi, value * quantities[q].scale);
    }
}

static void add_devices(ranges *r, const json_t *conditions)
{
    const char *name;
    const json_t *device;
    json_object_foreach((json_t *)(uintptr_t)conditions, name, device) add_device(r, name, device);
}

static void write_cell(pj_document *d, const range *of)
{
    char lo[32], hi[32];
    snprintf(lo, sizeof lo, "%.4g", of->lo);
    snprintf(hi, sizeof hi, "%.4g", of->hi);
    if (isnan(of->lo))
        pj_document_cell(d, "–");
    else if (strcmp(lo, hi) == 0)
        pj_document_cell(d, "%s", lo);
    else
        pj_document_cell(d, "%s to %s", lo, hi);
}

static void write_table(pj_document *d, const ranges *r)
{
    if (!r->device_count) return;
    pj_document_table(d, "device|°C|MHz|busy, %|throttled, %");
    for (uint32_t i = 0; i < r->device_count; i++) {
        pj_document_row(d);
        pj_document_cell(d, "%s", r->devices[i]);
        for (int q = 0; q < QUANTITIES; q++) write_cell(d, &r->of[i][q]);
        pj_document_row_end(d);
    }
    pj_document_table_end(d);
}

void pj_report_conditions(pj_document *d, const char *title, const json_t *conditions)
{
    ranges r = {0};
    if (!json_is_object(conditions)) return;
    pj_document_heading(d, title);
    add_devices(&r, conditions);
    write_table(d, &r);
}

static void add_run(ranges *r, pj_store *store, const char *id)
{
    pj_run_list list = {0};
    if (id && pj_store_info(store, id, &list, NULL) == PJ_OK && list.count) {
        const pj_run_info *info = &list.runs[0];
        json_t *conditions =
            info->conditions_json ? json_loads(info->conditions_json, 0, NULL) : NULL;
        if (info->machine) place_of(r->machines, &r->machine_count, MACHINES, info->machine);
        add_devices(r, conditions);
        json_decref(conditions);
    }
    pj_run_list_fini(&list);
}

void pj_report_experiment_conditions(pj_document *d, pj_store *store, const json_t *view)
{
    ranges r = {0};
    size_t i, k;
    const json_t *cell, *id;
    json_array_foreach(json_object_get(view, "cells"), i, cell)
        json_array_foreach(json_object_get(cell, "ids"), k, id)
            add_run(&r, store, json_string_value(id));
    if (!r.device_count && !r.machine_count) return;
    pj_document_heading(d, "Conditions");
    for (uint32_t m = 0; m < r.machine_count; m++)
        pj_document_text(d, "%s %s.", m ? "And on" : "Recorded on", r.machines[m]);
    if (r.device_count) pj_document_text(d, "The range of the runs' means, by device:");
    write_table(d, &r);
}
