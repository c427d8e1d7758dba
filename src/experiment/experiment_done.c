/* Reads the stored runs of an experiment. */
#include "experiment/experiment_done.h"

#include "record/experiment_cell.h"

#include <string.h>

static bool experiment_done_add(pj_arena *arena, pj_cell_runs *cell, const pj_run_info *info,
                                uint32_t block)
{
    if (cell->count == cell->capacity) {
        uint32_t capacity = cell->capacity ? 2 * cell->capacity : 8;
        const pj_run_info **runs = pj_arena_alloc(arena, capacity, sizeof *runs);
        uint32_t *blocks = pj_arena_alloc(arena, capacity, sizeof *blocks);
        if (!runs || !blocks) return false;
        if (cell->count) {
            memcpy(runs, cell->runs, cell->count * sizeof *runs);
            memcpy(blocks, cell->blocks, cell->count * sizeof *blocks);
        }
        cell->runs = runs;
        cell->blocks = blocks;
        cell->capacity = capacity;
    }
    cell->runs[cell->count] = info;
    cell->blocks[cell->count++] = block;
    return true;
}

pj_status pj_experiment_runs_load(pj_store *store, const pj_plan *plan, uint32_t round,
                                  pj_experiment_runs *r, pj_error *err)
{
    uint32_t cells = pj_plan_cells(plan);
    bool room = true;
    *r = (pj_experiment_runs){0};
    pj_arena_init(&r->arena, 0);
    r->cells = pj_arena_alloc(&r->arena, cells, sizeof *r->cells);
    if (!r->cells) return pj_fail_memory(err, "an experiment");
    pj_run_query query = {
        .experiment = plan->name, .status = "completed", .limit = PJ_QUERY_MAX, .ascending = true};
    pj_status status = pj_store_list(store, &query, &r->list, err);
    for (uint32_t i = 0; i < r->list.count && status == PJ_OK && room; i++) {
        pj_experiment_cell cell_id;
        if (pj_experiment_cell_of(&r->list.runs[i], &cell_id) && cell_id.cell < cells &&
            cell_id.round == round)
            room = experiment_done_add(&r->arena, &r->cells[cell_id.cell], &r->list.runs[i],
                                       cell_id.block);
    }
    return room ? status : pj_fail_memory(err, "an experiment");
}

void pj_experiment_runs_fini(pj_experiment_runs *r)
{
    pj_run_list_fini(&r->list);
    pj_arena_fini(&r->arena);
}
