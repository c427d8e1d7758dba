/*
 * The schema on SQLite, and how databases of earlier versions are brought to it.
 *
 * The rows of a run are contiguous: a run is saved in one transaction, so that its rows in each
 * table have consecutive ids. run_rows stores first id and count; reading, exporting and deleting
 * scan the primary key instead of an index. Operations, three quarters of all rows, have no index
 * on their component, which would make saving a run a sixth slower: a component stores the first id
 * and the number of its operations, and a trigger replaces the foreign key's cascade.
 */
#include "store/schema.h"
#include "store/sqlite.h"

#include <stddef.h>
#include <string.h>

/* clang-format off */
static const char indices[] =
    "CREATE INDEX IF NOT EXISTS runs_by_date ON profiling_runs(created_ns);"
    "CREATE INDEX IF NOT EXISTS runs_by_duration ON profiling_runs(total_duration_ms);"
    "CREATE INDEX IF NOT EXISTS runs_by_energy ON profiling_runs(total_energy_mj);"
    "CREATE INDEX IF NOT EXISTS runs_by_speed ON profiling_runs(tokens_per_second);"
    "CREATE INDEX IF NOT EXISTS runs_by_cost ON profiling_runs(joules_per_token);"
    "CREATE INDEX IF NOT EXISTS runs_by_model ON profiling_runs(model_name, created_ns);"
    "CREATE INDEX IF NOT EXISTS runs_by_experiment ON profiling_runs(experiment_name, created_ns)"
    " WHERE experiment_name IS NOT NULL;"
    "CREATE INDEX IF NOT EXISTS runs_by_group ON profiling_runs(repeat_group)"
    " WHERE repeat_group IS NOT NULL;"
    "CREATE INDEX IF NOT EXISTS samples_by_run ON power_samples(run_id);";

static const char triggers[] =
    "CREATE TRIGGER component_is_deleted AFTER DELETE ON component_metrics_packed"
    " WHEN OLD.operation_count > 0 BEGIN DELETE FROM deep_operation_metrics_packed"
    " WHERE id BETWEEN OLD.first_operation_id AND OLD.first_operation_id + OLD.operation_count - 1;"
    " END;"
    /* Deleting a step's first token deletes the step's rows. */
    "CREATE TRIGGER step_is_deleted AFTER DELETE ON tokens WHEN OLD.step_id = OLD.id BEGIN"
    " DELETE FROM component_metrics_packed WHERE step_id = OLD.id AND layer_metric_id IS NULL;"
    " DELETE FROM layer_metrics_packed WHERE step_id = OLD.id;"
    " DELETE FROM pipeline_sections WHERE step_id = OLD.id; END;";

/* ---- earlier versions ------------------------------------------------------------------------ */

/* Version 1 stored the operations of a component anywhere in their run. Ids keep the order of runs in
 * both tables, so that runs stay contiguous. */
#define COLUMNS_OF_OPERATIONS_1                                                              \
    "component_metric_id, operation_name, time_ms, energy_mj, flops_estimate, tensor_mean,"  \
    " tensor_std, tensor_max, tensor_sparsity, tensor_signed_mean, nan_count, inf_count,"    \
    " extra_metrics, bytes_estimate, start_ms, net_energy_mj, energy_sd_mj, planted_mj, class_id"
static const char put_operations_aside[] =
    "ALTER TABLE deep_operation_metrics RENAME TO operations_1; DROP INDEX operations_by_component;";
static const char order_operations[] =
    "INSERT INTO deep_operation_metrics (id, " COLUMNS_OF_OPERATIONS_1 ") SELECT row_number() OVER"
    " (ORDER BY component_metric_id, id), " COLUMNS_OF_OPERATIONS_1 " FROM operations_1;"
    "DROP TABLE operations_1;"
    "UPDATE run_rows SET first_id = moved.first_id FROM (SELECT run_id AS id, 1 +"
    "  coalesce(sum(row_count) OVER (ORDER BY first_id ROWS BETWEEN UNBOUNDED PRECEDING AND"
    "  1 PRECEDING), 0) AS first_id FROM run_rows WHERE table_name = 'deep_operation_metrics')"
    " AS moved WHERE table_name = 'deep_operation_metrics' AND run_id = moved.id;"
    "UPDATE component_metrics SET first_operation_id = o.first_id, operation_count = o.count FROM"
    " (SELECT component_metric_id, min(id) AS first_id, count(*) AS count"
    "  FROM deep_operation_metrics GROUP BY component_metric_id) AS o"
    " WHERE component_metrics.id = o.component_metric_id;"
    "UPDATE component_metrics SET operation_count = 0 WHERE operation_count IS NULL;";

/* The reason of a failed run was stored among its warnings, where lists do not look. */
static const char find_failures[] =
    "UPDATE profiling_runs SET failure = (SELECT text FROM run_warnings w"
    " WHERE w.run_id = profiling_runs.id AND w.code = 'run_failed' ORDER BY w.id LIMIT 1)"
    " WHERE status = 'failed';";

/* Figures of the request: the run without model loading and idle gaps. They can be computed from
 * older runs' rows, except disturbed steps, which stay NULL. */
#define OF_MODEL_LOAD " FROM pipeline_sections s WHERE s.run_id = profiling_runs.id AND" \
    " s.section_name = 'model_load'"
#define OF_IDLE " FROM run_phases p WHERE p.run_id = profiling_runs.id AND p.phase = 'idle'"
/* NULL where the part exists and its figure is unavailable, 0 without such a part. */
#define PART(column, of) "(SELECT CASE WHEN count(*) = count(" column ") THEN" \
    " total(" column ") END" of ")"
#define REQUEST(of_run, of_part) of_run " - " PART(of_part, OF_MODEL_LOAD) " - " \
    PART(of_part, OF_IDLE)
static const char compute_requests[] =
    "UPDATE profiling_runs SET"
    " request_energy_mj = " REQUEST("total_energy_mj", "energy_mj") ","
    " request_energy_net_mj = " REQUEST("net_energy_mj", "net_energy_mj") ","
    " request_duration_ms = " REQUEST("total_duration_ms", "duration_ms") ","
    " model_load_energy_mj = (SELECT sum(energy_mj)" OF_MODEL_LOAD "),"
    " parameters = CASE WHEN json_valid(model) THEN json_extract(model, '$.parameters') END,"
    " active_parameters ="
    "  CASE WHEN json_valid(model) THEN json_extract(model, '$.active_parameters') END;"
    "UPDATE profiling_runs SET request_energy_sd_mj ="
    " total_energy_sd_mj * (request_energy_mj / total_energy_mj),"
    " joules_per_token = CASE WHEN output_tokens > 0 THEN request_energy_mj / 1e3 / output_tokens"
    " END;"
    "UPDATE profiling_runs SET joules_per_token_sd = CASE WHEN output_tokens > 0 THEN"
    " request_energy_sd_mj / 1e3 / output_tokens END;"
    "UPDATE profiling_runs SET typical_token_energy_mj = m.mj FROM (SELECT run_id,"
    "  avg(energy_mj) AS mj FROM (SELECT run_id, energy_mj,"
    "   row_number() OVER (PARTITION BY run_id ORDER BY energy_mj) AS rank,"
    "   count(*) OVER (PARTITION BY run_id) AS n FROM tokens"
    "   WHERE phase = 'decode' AND energy_mj IS NOT NULL)"
    "  WHERE rank IN ((n + 1) / 2, (n + 2) / 2) GROUP BY run_id) AS m"
    " WHERE m.run_id = profiling_runs.id;";

/* Rows in a step shared by the sequences of a batch referred to the step's first token, so that
 * joins from tokens gave that token too much. Now they refer to the step: step_id is the id of the
 * step's first token, token_id is NULL, and each token's part follows from its shares. */
#define MOVE_TO_STEP(table)                                                                  \
    "UPDATE " table " SET step_id = token_id, token_id = NULL FROM run_rows r JOIN"          \
    " profiling_runs p ON p.id = r.run_id AND p.batch_size > 1 WHERE r.table_name = '" table \
    "' AND " table ".id BETWEEN r.first_id AND r.first_id + r.row_count - 1 AND token_id IN" \
    " (SELECT step_id FROM tokens WHERE step_id IS NOT NULL);"
static const char find_steps[] =
    "UPDATE tokens SET step_id = s.first, share = coalesce(energy_mj / nullif(s.mj, 0), 1.0 / s.n)"
    " FROM (SELECT min(t.id) AS first, count(*) AS n, sum(t.energy_mj) AS mj, t.phase_id,"
    "  t.position FROM profiling_runs p JOIN tokens t ON t.run_id = p.id WHERE p.batch_size > 1"
    "  GROUP BY t.phase_id, t.position HAVING count(*) > 1) AS s"
    " WHERE tokens.phase_id = s.phase_id AND tokens.position = s.position;"
    "UPDATE tokens SET context_share = share WHERE step_id IS NOT NULL;"
    /* The first token had all of the step's self energy. */
    "UPDATE tokens SET self_energy_mj = s.self_mj * share FROM (SELECT step_id,"
    "  sum(self_energy_mj) AS self_mj FROM tokens WHERE step_id IS NOT NULL GROUP BY step_id) AS s"
    " WHERE tokens.step_id = s.step_id;"
    "UPDATE profiling_runs SET batch_rule = 'equal' WHERE id IN"
    " (SELECT run_id FROM tokens WHERE step_id IS NOT NULL);"
    MOVE_TO_STEP("pipeline_sections") MOVE_TO_STEP("layer_metrics")
    MOVE_TO_STEP("component_metrics");
/* Version 20 stored names that are not valid UTF-8 as blobs, which are codes now. */
#define AS_TEXT(table, column) \
    "UPDATE " table " SET " column " = CAST(" column " AS TEXT) WHERE typeof(" column ") = 'blob';"
static const char free_blobs[] =
    AS_TEXT("layer_metrics_packed", "method")
    AS_TEXT("component_metrics_packed", "method")
    AS_TEXT("component_metrics_packed", "component_name")
    AS_TEXT("deep_operation_metrics_packed", "operation_name");
/* clang-format on */

/* ---- the dialect --------------------------------------------------------------------------- */

/* Rows with keys of several columns, and those of no run, are small and found by their key alone.
 */
static void end_table(pj_buffer *out, const pj_schema_table *table)
{
    if (table->unique) pj_buffer_printf(out, ", UNIQUE (%s)", table->unique);
    if (table->key) pj_buffer_printf(out, ", PRIMARY KEY (%s)", table->key);
    bool by_key = table->key && (!table->run || strchr(table->key, ','));
    pj_buffer_text(out, by_key ? ") WITHOUT ROWID;" : ");");
}

static void write_view(pj_buffer *out, const char *name, const char *select)
{
    pj_buffer_printf(out, "CREATE VIEW %s AS ", name);
    for (const char *comment; (comment = strstr(select, "/*"));) {
        pj_buffer_append(out, select, (size_t)(comment - select));
        select = strstr(comment, "*/") + 2;
    }
    pj_buffer_printf(out, "%s;", select);
}

static void write_before(pj_buffer *out, int64_t version)
{
    if (version < 21)
        pj_buffer_text(out,
                       "CREATE TABLE packed_texts (code BLOB PRIMARY KEY, text) WITHOUT ROWID;");
    if (!version) return;
    for (const pj_schema_view *view = pj_schema_views; view->name; view++)
        pj_buffer_printf(out, "DROP VIEW IF EXISTS %s;", view->name);
    pj_buffer_text(out, "DROP TRIGGER IF EXISTS run_is_deleted;"
                        "DROP TRIGGER IF EXISTS conditions_are_deleted;"
                        "DROP TRIGGER IF EXISTS component_is_deleted;"
                        "DROP TRIGGER IF EXISTS step_is_deleted;");
    if (version < 2) pj_buffer_text(out, put_operations_aside);
    /* It had other rows, and then surplus entries. */
    if (version < 12) pj_buffer_text(out, "DROP INDEX components_of_sections;");
}

/* Deletes all rows of a run quickly, by their ranges, with foreign keys on or off. */
static void write_run_is_deleted(pj_buffer *out)
{
    static const char rows_of[] = "(SELECT %s FROM run_rows WHERE run_id = OLD.id AND"
                                  " table_name = '%s')";
    pj_buffer_text(out, "CREATE TRIGGER run_is_deleted BEFORE DELETE ON profiling_runs BEGIN");
    for (int t = PJ_TABLE_COUNT - 1; t >= 0; t--) {
        pj_buffer_printf(out, " DELETE FROM %s WHERE id BETWEEN ",
                         pj_schema_stored_table(&pj_sqlite_dialect, pj_tables[t].name));
        pj_buffer_printf(out, rows_of, "first_id", pj_tables[t].name);
        pj_buffer_text(out, " AND ");
        pj_buffer_printf(out, rows_of, "first_id + row_count - 1", pj_tables[t].name);
        pj_buffer_char(out, ';');
    }
    pj_buffer_text(out, " DELETE FROM run_charts WHERE run_id = OLD.id;"
                        " DELETE FROM run_tags WHERE run_id = OLD.id;"
                        " DELETE FROM run_texts WHERE run_id = OLD.id;"
                        " DELETE FROM run_rows WHERE run_id = OLD.id; END;");
}

static void write_moves(pj_buffer *out, int64_t version)
{
    static const struct {
        int64_t below;
        const char *statements;
    } moves[] = {{2, order_operations}, {3, find_failures}, {6, compute_requests}, {8, find_steps}};
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
        if (version < moves[i].below) pj_buffer_text(out, moves[i].statements);
    if (version == 20) pj_buffer_text(out, free_blobs);
}

static void write_after(pj_buffer *out, int64_t version)
{
    pj_buffer_text(out, indices);
    write_run_is_deleted(out);
    pj_buffer_text(out, triggers);
}

const pj_dialect pj_sqlite_dialect = {.version = 21,
                                      .packs_since = 20,
                                      .write_packed = pj_packing_write,
                                      .types = {"TEXT", "REAL", "INTEGER", "BLOB"},
                                      .id_type = "INTEGER PRIMARY KEY",
                                      .has_foreign_keys = true,
                                      .end_table = end_table,
                                      .write_view = write_view,
                                      .write_before = write_before,
                                      .write_moves = write_moves,
                                      .write_after = write_after};
