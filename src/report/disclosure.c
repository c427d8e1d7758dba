/* Collects the measurements of runs or of an experiment. */
#include "report/disclosure_forms.h"

#include "base/clock.h"
#include "base/memory.h"
#include "store/class_sums.h"
#include "store/rows.h"
#include "trace/request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const names[PJ_DISCLOSURE_COUNT] = {"cyclonedx", "spdx", "sci", "eu",
                                                       "inferencex"};

int pj_disclosure_parse(const char *name)
{
    for (int i = 0; i < PJ_DISCLOSURE_COUNT; i++)
        if (strcmp(name, names[i]) == 0) return i;
    return -1;
}

/* ---- measurements --------------------------------------------------------------------------- */

static bool is_equal_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool is_equal_field(const pj_run_info *a, const pj_run_info *b, const char *field)
{
    char x[64] = "", y[64] = "";
    pj_run_field(a, field, x, sizeof x);
    pj_run_field(b, field, y, sizeof y);
    return strcmp(x, y) == 0;
}

static bool is_equal_setting(const pj_run_info *a, const pj_run_info *b)
{
    return is_equal_text(a->model_name, b->model_name) && is_equal_text(a->dtype, b->dtype) &&
           is_equal_text(a->engine, b->engine) && is_equal_text(a->machine, b->machine) &&
           is_equal_text(a->scope, b->scope) && a->batch_size == b->batch_size &&
           a->threads == b->threads && a->quality == b->quality &&
           a->input_tokens == b->input_tokens && a->output_tokens == b->output_tokens &&
           pj_run_at_a_time(a) == pj_run_at_a_time(b) && is_equal_field(a, b, "draft") &&
           is_equal_field(a, b, "model.kv_type") && pj_run_same_devices(a, b) &&
           !pj_run_is_ablated(a) == !pj_run_is_ablated(b);
}

/* What can be reported; parts of models and failed runs are no inference of the model. */
static bool is_reported(const pj_run_info *run)
{
    return run->output_tokens > 0 && isfinite(run->request_mj) && !pj_run_is_ablated(run) &&
           run->status == PJ_RUN_COMPLETED;
}

static pj_status group_runs(pj_sides *sides, const pj_run_list *lists, uint32_t list_count,
                            pj_error *err)
{
    uint32_t all = 0;
    for (uint32_t l = 0; l < list_count; l++) all += lists[l].count;
    const pj_run_info **runs = pj_arena_alloc(&sides->arena, all + 1, sizeof *runs);
    const pj_run_info **group = pj_arena_alloc(&sides->arena, all + 1, sizeof *group);
    if (!runs || !group) return pj_fail_memory(err, "a report");
    uint32_t count = 0;
    for (uint32_t l = 0; l < list_count; l++)
        for (uint32_t i = 0; i < lists[l].count; i++)
            if (is_reported(&lists[l].runs[i])) runs[count++] = &lists[l].runs[i];
    pj_status status = PJ_OK;
    for (uint32_t i = 0; i < count && status == PJ_OK; i++) {
        uint32_t n = 0;
        const pj_run_info *first = runs[i];
        if (!first) continue;
        for (uint32_t k = i; k < count; k++)
            if (runs[k] && is_equal_setting(first, runs[k])) {
                group[n++] = runs[k];
                runs[k] = NULL;
            }
        status = pj_sides_add(sides, "", group, n, err);
    }
    return status;
}

/* FLOPs of the request of one run. */
static double flops_of(pj_store *store, const pj_run_info *run)
{
    pj_arena arena;
    pj_class_sum *sums = NULL;
    pj_error ignored = {0};
    uint32_t count = 0;
    double flops = 0;
    const char *id = run->id;
    pj_arena_init(&arena, 0);
    if (pj_store_class_sums(store, &id, 1, &arena, &sums, &count, &ignored) == PJ_OK)
        for (uint32_t i = 0; i < count; i++)
            if (isfinite(sums[i].flops) && strcmp(sums[i].name, PJ_SECTION_MODEL_LOAD) != 0)
                flops += sums[i].flops;
    pj_arena_fini(&arena);
    return flops > 0 ? flops : NAN;
}

/* Energy of the rails of GPUs in prefill and decode; those that others contain do not count twice,
 * as only rails without a parent are added. */
static pj_status add_gpus(pj_store *store, const pj_run_info *run, pj_disclosure_item *item,
                          pj_error *err)
{
    pj_run_data data = {0};
    const uint32_t tables =
        1u << PJ_TABLE_RAILS | 1u << PJ_TABLE_RAIL_ENERGY | 1u << PJ_TABLE_PHASES;
    pj_status status = pj_store_load_tables(store, run->id, tables, UINT32_MAX, &data, err);
    double joules = NAN;
    uint32_t gpus = 0;
    for (uint32_t r = 0; status == PJ_OK && r < data.rail_count; r++) {
        const pj_rail *rail = &data.rails[r];
        if (rail->rail_class != PJ_RAIL_GPU || rail->parent >= 0) continue;
        gpus++;
        item->gpu_modelled |= rail->quality != PJ_MEASURED;
        for (uint32_t e = 0; e < data.rail_energy_count; e++) {
            const pj_rail_energy *of = &data.rail_energy[e];
            if (of->rail != r || (of->phase != PJ_PHASE_PREFILL && of->phase != PJ_PHASE_DECODE))
                continue;
            joules = (isnan(joules) ? 0 : joules) + of->gross_mj / 1e3;
        }
    }
    for (uint32_t p = 0; status == PJ_OK && p < data.phase_count; p++)
        if (data.phases[p].phase == PJ_PHASE_PREFILL || data.phases[p].phase == PJ_PHASE_DECODE)
            item->gpu_seconds += data.phases[p].duration_ms / 1e3;
    if (gpus > item->gpus) item->gpus = gpus;
    item->gpu_joules += joules; /* one run without makes the sum unknown */
    pj_run_data_fini(&data);
    return status;
}

static pj_status measure(pj_store *store, const pj_side *side, pj_disclosure_item *item,
                         pj_error *err)
{
    pj_status status = PJ_OK;
    *item = (pj_disclosure_item){
        .first = side->runs[0],
        .runs = side->run_count,
        .joules = pj_side_mean_of(side, pj_figure_find("request_energy_mj")),
        .joules_per_token = pj_side_mean_of(side, pj_figure_find("joules_per_token"))};
    item->joules.value /= 1e3, item->joules.lo /= 1e3, item->joules.hi /= 1e3;
    for (uint32_t i = 0; i < side->run_count && status == PJ_OK; i++) {
        const pj_run_info *run = side->runs[i];
        item->total_joules += run->request_mj / 1e3;
        item->total_seconds += run->request_ms / 1e3;
        item->total_input += (double)run->input_tokens;
        item->total_output += (double)run->output_tokens;
        status = add_gpus(store, run, item, err);
    }
    double n = side->run_count;
    item->seconds = item->total_seconds / n;
    item->input_tokens = item->total_input / n;
    item->output_tokens = item->total_output / n;
    item->flops = flops_of(store, side->runs[0]);
    return status;
}

static pj_status read_runs(pj_store *store, const pj_disclosure_request *r, pj_run_list *lists,
                           uint32_t *count, pj_error *err)
{
    pj_status status = PJ_OK;
    if (r->experiment) {
        *count = 1;
        return pj_store_list(store,
                             &(pj_run_query){.experiment = r->experiment,
                                             .status = "completed",
                                             .limit = PJ_QUERY_MAX},
                             lists, err);
    }
    for (*count = 0; *count < r->count && status == PJ_OK;) {
        char id[PJ_UUID_BYTES];
        status = pj_store_resolve(store, r->ids[*count], id, err);
        if (status == PJ_OK) status = pj_store_info(store, id, &lists[(*count)++], err);
    }
    return status;
}

static pj_status write_items(const pj_disclosure_request *r, const pj_disclosure_item *items,
                             uint32_t count, pj_json *json)
{
    static void (*const writers[PJ_DISCLOSURE_COUNT])(const pj_disclosure *disclosure,
                                                      pj_json *json) = {
        pj_disclosure_cyclonedx, pj_disclosure_spdx, pj_disclosure_sci, pj_disclosure_eu,
        pj_disclosure_inferencex};
    pj_disclosure x = {.items = items, .count = count, .terms = &r->terms};
    pj_clock_format_iso(pj_clock_wall_ns(), x.now);
    snprintf(x.now + 19, sizeof x.now - 19, "Z"); /* without the fraction */
    pj_uuid7(x.id);
    writers[r->format](&x, json);
    return PJ_OK;
}

pj_status pj_disclosure_write(pj_store *store, const pj_disclosure_request *r, pj_json *json,
                              pj_error *err)
{
    pj_sides *sides = pj_alloc(1, sizeof *sides);
    pj_run_list *lists = pj_alloc(r->count + 1, sizeof *lists);
    uint32_t list_count = 0;
    pj_status status = sides && lists ? PJ_OK : pj_fail_memory(err, "a report");
    if (sides) pj_sides_init(sides, store);
    if (status == PJ_OK) status = read_runs(store, r, lists, &list_count, err);
    if (status == PJ_OK) status = group_runs(sides, lists, list_count, err);
    if (status == PJ_OK && !sides->count)
        status = pj_fail(
            err, PJ_E_UNAVAILABLE, "no completed run%s%.80s has an energy and output tokens",
            r->experiment ? " of experiment " : " among these", r->experiment ? r->experiment : "");
    pj_disclosure_item *items =
        status == PJ_OK ? pj_arena_alloc(&sides->arena, sides->count, sizeof *items) : NULL;
    if (status == PJ_OK && !items) status = pj_fail_memory(err, "a report");
    for (uint32_t i = 0; status == PJ_OK && i < sides->count; i++)
        status = measure(store, &sides->sides[i], &items[i], err);
    if (status == PJ_OK) status = write_items(r, items, sides->count, json);
    for (uint32_t i = 0; i < list_count; i++) pj_run_list_fini(&lists[i]);
    if (sides) pj_sides_fini(sides);
    pj_free(lists);
    pj_free(sides);
    return status;
}
