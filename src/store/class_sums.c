/* Reading run_classes of many runs. */
#include "store/class_sums.h"

#include "store/sql.h"
#include "trace/phases.h"

#include <string.h>

typedef struct growing {
    pj_arena *arena;
    pj_class_sum *rows;
    uint32_t count;
} growing;

/* Strips the operation from a class name; consecutive equal names share one string. */
static const char *component_name(growing *g, const char *class_name)
{
    size_t length = strcspn(class_name, "/");
    for (uint32_t i = g->count; i-- > 0 && g->count - i < 64;) {
        const char *known = g->rows[i].name;
        if (known && strncmp(known, class_name, length) == 0 && !known[length]) return known;
    }
    return pj_arena_strndup(g->arena, class_name, length);
}

static bool class_sums_read_row(growing *g, pj_sql *sql, uint32_t run)
{
    const char *class_name = pj_sql_get_text(sql, 0, NULL), *phase = pj_sql_get_text(sql, 1, NULL);
    const char *name = component_name(g, class_name ? class_name : "");
    g->rows = pj_arena_more(g->arena, g->rows, g->count, sizeof *g->rows);
    if (!name || !g->rows) return false;
    int number = phase ? pj_phase_parse(phase) : -1;
    g->rows[g->count++] = (pj_class_sum){.run = run,
                                         .phase = (uint8_t)(number < 0 ? PJ_PHASE_COUNT : number),
                                         .name = name,
                                         .time_ms = pj_sql_get_double(sql, 2),
                                         .energy_mj = pj_sql_get_double(sql, 3),
                                         .energy_sd_mj = pj_sql_get_double(sql, 4),
                                         .flops = pj_sql_get_double(sql, 5),
                                         .bytes = pj_sql_get_double(sql, 6)};
    return true;
}

pj_status pj_store_class_sums(pj_store *store, const char *const *ids, uint32_t count,
                              pj_arena *arena, pj_class_sum **sums, uint32_t *sum_count,
                              pj_error *err)
{
    growing g = {.arena = arena};
    bool room = true;
    pj_sql *sql =
        pj_sql_begin(store,
                     "SELECT class_name, phase, time_ms - coalesce(disturbed_ms, 0), energy_mj -"
                     " coalesce(disturbed_energy_mj, 0), energy_sd_mj, flops,"
                     " bytes FROM run_classes WHERE run_id = ? ORDER BY id",
                     err);
    for (uint32_t i = 0; i < count && room; i++) {
        pj_sql_text(sql, 1, ids[i]);
        while (room && pj_sql_step(sql)) room = class_sums_read_row(&g, sql, i);
        pj_sql_reset(sql);
    }
    pj_status status = pj_sql_end(sql, err);
    *sums = g.rows;
    *sum_count = g.count;
    if (status == PJ_OK && !room) return pj_fail_memory(err, "the classes of runs");
    return status;
}
