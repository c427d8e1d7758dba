/* Conditions of a run: rows from the spool, and a summary per device. */
#include "attribution/build.h"

#include "trace/device_conditions.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void pj_throttle_names(uint32_t throttle, char *text, size_t bytes)
{
    static const char *const names[] = {"power", "thermal", "hardware"};
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < 3 && used < bytes; i++)
        if (throttle >> i & 1)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "," : "", names[i]);
}

/* ---- rows ---- */

typedef struct row_source {
    const pj_condition *items;
    uint32_t count;
} row_source;

static row_source conditions_rows_of(const pj_record *record)
{
    if (pj_record_kind(record) != PJ_RECORD_CONDITIONS) return (row_source){NULL, 0};
    return (row_source){(const pj_condition *)record->payload,
                        pj_record_bytes(record) / (uint32_t)sizeof(pj_condition)};
}

static double finite_or_nan(double value)
{
    return isfinite(value) ? value : NAN;
}

static bool conditions_take_row(pj_run_data *d, const pj_condition *c, int64_t begin_ns)
{
    char device[PJ_DEVICE_NAME_BYTES + 1], throttle[64];
    pj_condition_row *row = &d->conditions[d->condition_count++];
    snprintf(device, sizeof device, "%.*s", PJ_DEVICE_NAME_BYTES, c->device);
    pj_throttle_names(c->throttle, throttle, sizeof throttle);
    *row = (pj_condition_row){
        .t_ms = (double)(c->at_ns - begin_ns) / 1e6,
        .device = pj_arena_strndup(&d->arena, device, strlen(device)),
        .temperature_c = finite_or_nan(c->temperature_c),
        .clock_mhz = finite_or_nan(c->clock_mhz),
        .memory_clock_mhz = finite_or_nan(c->memory_clock_mhz),
        .utilisation = finite_or_nan(c->utilisation),
        .power_limit_mw = finite_or_nan(c->power_limit_mw),
        .throttle =
            c->throttle_known ? pj_arena_strndup(&d->arena, throttle, strlen(throttle)) : NULL};
    return row->device && (!c->throttle_known || row->throttle);
}

/* ---- by device ---- */

typedef struct spread {
    double sum, least, most;
    uint32_t count;
} spread;

static void spread_take(spread *s, double value)
{
    if (isnan(value)) return;
    if (s->count == 0 || value < s->least) s->least = value;
    if (s->count == 0 || value > s->most) s->most = value;
    s->sum += value;
    s->count++;
}

static double spread_mean(const spread *s)
{
    return s->count ? s->sum / s->count : NAN;
}

static double spread_most(const spread *s)
{
    return s->count ? s->most : NAN;
}

/* Mean power over the run of this device's rails: the CPU column, or the GPU of that name. */
static double conditions_mean_mw(const pj_run_data *d, const char *device)
{
    double mj[PJ_MAX_RAILS], sum = NAN;
    for (uint32_t r = 0; r < PJ_MAX_RAILS; r++) mj[r] = NAN;
    for (uint32_t i = 0; i < d->rail_energy_count; i++)
        if (d->rail_energy[i].phase == PJ_PHASE_COUNT)
            mj[d->rail_energy[i].rail] = d->rail_energy[i].gross_mj;
    if (strcmp(device, "cpu") == 0)
        sum = pj_rail_column_sum(d->rails, d->rail_count, mj, PJ_RAIL_CPU);
    for (uint32_t r = 0; isnan(sum) && r < d->rail_count; r++)
        if (pj_rail_is_gpu(&d->rails[r], device)) sum = mj[r];
    return sum / (d->info.total_ms * 1e-3);
}

static void device_json(pj_json *json, const pj_run_data *d, const char *device, double tdp_mw)
{
    spread temperature = {0}, clock = {0}, memory = {0}, use = {0}, limit = {0};
    pj_device_conditions all = {.tdp_mw = tdp_mw,
                                .tdp_share = conditions_mean_mw(d, device) / tdp_mw};
    uint32_t known = 0, throttled = 0;
    for (uint32_t i = 0; i < d->condition_count; i++) {
        const pj_condition_row *row = &d->conditions[i];
        if (strcmp(row->device, device) != 0) continue;
        spread_take(&temperature, row->temperature_c);
        spread_take(&clock, row->clock_mhz);
        spread_take(&memory, row->memory_clock_mhz);
        spread_take(&use, row->utilisation);
        spread_take(&limit, row->power_limit_mw);
        known += row->throttle != NULL;
        if (!row->throttle || !row->throttle[0]) continue;
        throttled++;
        size_t used = strlen(all.throttle);
        if (!strstr(all.throttle, row->throttle))
            snprintf(all.throttle + used, sizeof all.throttle - used, "%s%s", used ? "," : "",
                     row->throttle);
    }
    snprintf(all.device, sizeof all.device, "%s", device);
    all.temperature_c = spread_mean(&temperature);
    all.temperature_max_c = spread_most(&temperature);
    all.clock_mhz = spread_mean(&clock);
    all.clock_min_mhz = clock.count ? clock.least : NAN;
    all.clock_max_mhz = spread_most(&clock);
    all.memory_clock_mhz = spread_mean(&memory);
    all.utilisation = spread_mean(&use);
    all.power_limit_mw = spread_most(&limit);
    all.power_limit_changed = limit.count && limit.most > limit.least * 1.001;
    all.throttled_share = known ? (double)throttled / known : NAN;
    all.throttle_known = known > 0;
    pj_device_conditions_write(&all, json);
}

static bool seen_before(const pj_run_data *d, uint32_t row)
{
    for (uint32_t i = 0; i < row; i++)
        if (strcmp(d->conditions[i].device, d->conditions[row].device) == 0) return true;
    return false;
}

static double tdp_of(const pj_tree *tree, const char *device)
{
    for (uint32_t k = 0; k < tree->note_count; k++) {
        row_source rows = conditions_rows_of(tree->notes[k]);
        for (uint32_t i = 0; i < rows.count; i++)
            if (strncmp(rows.items[i].device, device, PJ_DEVICE_NAME_BYTES) == 0)
                return finite_or_nan(rows.items[i].tdp_mw);
    }
    return NAN;
}

static pj_status summarise(const pj_tree *tree, pj_run_data *d, pj_error *err)
{
    pj_buffer text;
    pj_json json;
    pj_buffer_init(&text, 1 << 20);
    pj_json_init(&json, &text);
    pj_json_object_begin(&json);
    for (uint32_t i = 0; i < d->condition_count && i < PJ_DEVICES_MAX; i++)
        if (!seen_before(d, i))
            device_json(&json, d, d->conditions[i].device, tdp_of(tree, d->conditions[i].device));
    pj_json_object_end(&json);
    bool written = pj_json_finish(&json);
    if (written) d->info.conditions_json = pj_arena_strndup(&d->arena, text.data, text.length);
    pj_buffer_fini(&text);
    return d->info.conditions_json ? PJ_OK : pj_fail_memory(err, "the conditions of a run");
}

pj_status pj_build_conditions(const pj_tree *tree, pj_run_data *d, pj_error *err)
{
    size_t count = 0;
    for (uint32_t k = 0; k < tree->note_count; k++)
        count += conditions_rows_of(tree->notes[k]).count;
    if (count == 0) return PJ_OK;
    if (count > UINT32_MAX / 2) count = UINT32_MAX / 2;
    d->conditions = pj_arena_alloc(&d->arena, count, sizeof *d->conditions);
    if (!d->conditions) return pj_fail_memory(err, "the conditions of a run");
    for (uint32_t k = 0; k < tree->note_count; k++) {
        row_source rows = conditions_rows_of(tree->notes[k]);
        for (uint32_t i = 0; i < rows.count && d->condition_count < count; i++)
            if (!conditions_take_row(d, &rows.items[i], tree->begin_ns))
                return pj_fail_memory(err, "the conditions of a run");
    }
    return summarise(tree, d, err);
}
