/* The table experiments. */
#include "store/experiments.h"

#include "base/clock.h"
#include "store/sql.h"

#include <stdio.h>

pj_status pj_store_experiment_put(pj_store *store, const char *name, const char *plan,
                                  pj_error *err)
{
    return pj_sql_change(
        store,
        "INSERT INTO experiments (name, created_ns, plan) VALUES (?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET plan = excluded.plan",
        PJ_VALUES(pj_value_text(name), pj_value_int(pj_clock_wall_ns()), pj_value_text(plan)), err);
}

static const char *experiments_keep(pj_sql *sql, int column, pj_arena *arena)
{
    size_t bytes;
    const char *text = pj_sql_get_text(sql, column, &bytes);
    return text ? pj_arena_strndup(arena, text, bytes) : NULL;
}

/* Two columns of an experiment, NULL where there is none of that name. */
static pj_status experiments_get(pj_store *store, const char *text, const char *name,
                                 pj_arena *arena, const char **first, const char **second,
                                 pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store, text, err);
    *first = *second = NULL;
    pj_sql_text(sql, 1, name);
    if (pj_sql_step(sql)) {
        *first = experiments_keep(sql, 0, arena);
        *second = experiments_keep(sql, 1, arena);
    }
    return pj_sql_end(sql, err);
}

pj_status pj_store_experiment_get(pj_store *store, const char *name, pj_arena *arena,
                                  const char **plan, const char **quality, pj_error *err)
{
    pj_status status = experiments_get(store, "SELECT plan, losses FROM experiments WHERE name = ?",
                                       name, arena, plan, quality, err);
    if (status == PJ_OK && !*plan)
        return pj_fail(err, PJ_E_NOT_FOUND, "there is no experiment %.200s", name);
    return status;
}

pj_status pj_store_experiment_set_quality(pj_store *store, const char *name, const char *quality,
                                          pj_error *err)
{
    return pj_sql_change(store, "UPDATE experiments SET losses = ? WHERE name = ?",
                         PJ_VALUES(pj_value_text(quality), pj_value_text(name)), err);
}

pj_status pj_store_experiment_queue(pj_store *store, const char *name, const char *machine,
                                    pj_error *err)
{
    return pj_sql_change(
        store,
        "UPDATE experiments SET state = 'queued', error = NULL, queued_ns = ?, machine = ?"
        " WHERE name = ?",
        PJ_VALUES(pj_value_int(pj_clock_wall_ns()), pj_value_text(machine), pj_value_text(name)),
        err);
}

pj_status pj_store_experiment_claim(pj_store *store, const char *name, const char *from,
                                    const char *owner, pj_error *err)
{
    return pj_sql_change(
        store, "UPDATE experiments SET owner = ?1 WHERE name = ?2 AND coalesce(owner, '') = ?3",
        PJ_VALUES(pj_value_text(owner), pj_value_text(name), pj_value_text(from)), err);
}

pj_status pj_store_experiment_owner(pj_store *store, const char *name, char owner[PJ_UUID_BYTES],
                                    pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store, "SELECT owner FROM experiments WHERE name = ?", err);
    pj_sql_text(sql, 1, name);
    const char *text = pj_sql_step(sql) ? pj_sql_get_text(sql, 0, NULL) : NULL;
    snprintf(owner, PJ_UUID_BYTES, "%s", text ? text : "");
    return pj_sql_end(sql, err);
}

pj_status pj_store_experiment_set_state(pj_store *store, const char *name, const char *state,
                                        const char *error, pj_error *err)
{
    return pj_sql_change(store, "UPDATE experiments SET state = ?, error = ? WHERE name = ?",
                         PJ_VALUES(pj_value_text(state), pj_value_text(error), pj_value_text(name)),
                         err);
}

pj_status pj_store_experiment_get_state(pj_store *store, const char *name, pj_arena *arena,
                                        const char **state, const char **error, pj_error *err)
{
    return experiments_get(store, "SELECT state, error FROM experiments WHERE name = ?", name,
                           arena, state, error, err);
}

#define COLUMNS "SELECT name, created_ns, plan, state, error, owner FROM experiments "

static pj_status experiments_list(pj_sql *sql, pj_experiment_fn *take, void *context, pj_error *err)
{
    while (pj_sql_step(sql)) {
        pj_experiment_row row = {.name = pj_sql_get_text(sql, 0, NULL),
                                 .plan = pj_sql_get_text(sql, 2, NULL),
                                 .state = pj_sql_get_text(sql, 3, NULL),
                                 .error = pj_sql_get_text(sql, 4, NULL),
                                 .owner = pj_sql_get_text(sql, 5, NULL),
                                 .created_ns = pj_sql_get_int(sql, 1)};
        if (row.name && row.plan) take(context, &row);
    }
    return pj_sql_end(sql, err);
}

pj_status pj_store_experiment_list(pj_store *store, pj_experiment_fn *take, void *context,
                                   pj_error *err)
{
    return experiments_list(pj_sql_begin(store, COLUMNS "ORDER BY created_ns DESC", err), take,
                            context, err);
}

/* Those queued by an earlier version name no machine. */
pj_status pj_store_experiment_list_queued(pj_store *store, const char *machine,
                                          pj_experiment_fn *take, void *context, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store,
                               COLUMNS "WHERE state = 'queued' AND (machine IS NULL OR machine = ?)"
                                       " ORDER BY queued_ns, name",
                               err);
    pj_sql_text(sql, 1, machine);
    return experiments_list(sql, take, context, err);
}
