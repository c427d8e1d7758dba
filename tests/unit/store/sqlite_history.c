/* How earlier versions made their tables on SQLite: step i led from version i to i + 1. Databases
 * of each of them are still around, so this never changes. */
#include "history.h"

#include <stddef.h>

#define ENERGY                                                                     \
    "energy_mj REAL, net_energy_mj REAL, self_energy_mj REAL, energy_sd_mj REAL, " \
    "planted_mj REAL, method TEXT"

#define OF_RUN "run_id TEXT NOT NULL REFERENCES profiling_runs(id) ON DELETE CASCADE"

/* The rows of OLD by their range. */
#define ROWS_OF(what, table) \
    "(SELECT " what " FROM run_rows WHERE run_id = OLD.id AND table_name = '" table "')"
#define DELETE_ROWS(table)                                                                 \
    " DELETE FROM " table " WHERE id BETWEEN " ROWS_OF("first_id", table) " AND " ROWS_OF( \
        "first_id + row_count - 1", table) ";"

/* Deletes all rows of a run quickly, with foreign keys on or off. */
#define RUN_IS_DELETED                                                                             \
    "CREATE TRIGGER run_is_deleted BEFORE DELETE ON profiling_runs BEGIN" DELETE_ROWS(             \
        "deep_operation_metrics") DELETE_ROWS("component_metrics") DELETE_ROWS("layer_metrics")    \
        DELETE_ROWS("pipeline_sections") DELETE_ROWS("tokens") DELETE_ROWS("run_phases")           \
            DELETE_ROWS("run_classes") DELETE_ROWS("power_samples") DELETE_ROWS("run_rail_energy") \
                DELETE_ROWS("run_rails")                                                           \
                    DELETE_ROWS("run_warnings") " DELETE FROM run_charts WHERE run_id = OLD.id; "  \
                                                "DELETE FROM run_tags WHERE run_id = OLD.id;"      \
                                                " DELETE FROM run_texts WHERE run_id = OLD.id; "   \
                                                "DELETE FROM run_rows WHERE run_id = OLD.id;"      \
                                                " END;"

/* Energy of each level and the sum of its parts; `operations`: join of components and operations.
 */
#define CONSERVATION(operations)                                                          \
    "CREATE VIEW conservation AS"                                                         \
    " SELECT 'component' AS level, c.id AS row_id, c.energy_mj AS whole_mj,"              \
    "  c.self_energy_mj + total(o.energy_mj) AS parts_mj"                                 \
    "  FROM " operations "  WHERE c.energy_mj IS NOT NULL GROUP BY c.id"                  \
    " UNION ALL SELECT 'layer', l.id, l.energy_mj, l.self_energy_mj + total(c.energy_mj)" \
    "  FROM layer_metrics l JOIN component_metrics c ON c.layer_metric_id = l.id"         \
    "  WHERE l.energy_mj IS NOT NULL GROUP BY l.id"                                       \
    " UNION ALL SELECT 'token', min(token_id), sum(energy_mj), sum(parts_mj)"             \
    "  FROM energy_of_token_parts GROUP BY phase_id, position"                            \
    " UNION ALL SELECT 'phase', p.id, p.energy_mj, p.self_energy_mj"                      \
    "  + (SELECT total(parts_mj) FROM energy_of_token_parts t WHERE t.phase_id = p.id)"   \
    "  + (SELECT total(parts_mj) FROM energy_of_section_parts s WHERE s.phase_id = p.id)" \
    "  FROM run_phases p WHERE p.energy_mj IS NOT NULL"                                   \
    " UNION ALL SELECT 'run', r.rowid, r.total_energy_mj, total(p.energy_mj)"             \
    "  FROM profiling_runs r JOIN run_phases p ON p.run_id = r.id"                        \
    "  WHERE r.total_energy_mj IS NOT NULL GROUP BY r.rowid;"

static const char version_1[] =
    "CREATE TABLE profiling_runs ("
    " id TEXT PRIMARY KEY NOT NULL, created_at TEXT NOT NULL, created_ns INTEGER NOT NULL,"
    " status TEXT NOT NULL, profiling_depth TEXT, model_name TEXT, model_path TEXT, engine TEXT,"
    " dtype TEXT, isa TEXT, threads INTEGER, batch_size INTEGER, experiment_name TEXT,"
    " machine TEXT, repeat_group TEXT, repeat_index INTEGER, input_tokens INTEGER,"
    " output_tokens INTEGER, total_duration_ms REAL, prefill_duration_ms REAL,"
    " decode_duration_ms REAL, energy_source TEXT, power_sources TEXT, method TEXT,"
    " total_energy_mj REAL, total_energy_sd_mj REAL, idle_energy_mj REAL, net_energy_mj REAL,"
    " total_is_partial INTEGER, prefill_energy_mj REAL, decode_energy_mj REAL,"
    " prefill_energy_net_mj REAL, decode_energy_net_mj REAL, baseline_cold_mw REAL,"
    " baseline_resident_mw REAL, condition_number REAL, pj_per_flop REAL, pj_per_flop_sd REAL,"
    " pj_per_byte REAL, pj_per_byte_sd REAL, attribution_interval REAL,"
    " attribution_interval_calibrated REAL, calibration_gap REAL, overhead_ms REAL,"
    " overhead_share REAL, sampler_cpu_share REAL, sampler_jitter_us REAL,"
    " samples_missed INTEGER, spans_lost INTEGER, tokens_per_second REAL, joules_per_token REAL,"
    " tags TEXT, settings TEXT, model TEXT, prompt TEXT);"
    "CREATE INDEX runs_by_date ON profiling_runs(created_ns);"
    "CREATE INDEX runs_by_duration ON profiling_runs(total_duration_ms);"
    "CREATE INDEX runs_by_energy ON profiling_runs(total_energy_mj);"
    "CREATE INDEX runs_by_speed ON profiling_runs(tokens_per_second);"
    "CREATE INDEX runs_by_cost ON profiling_runs(joules_per_token);"
    "CREATE INDEX runs_by_model ON profiling_runs(model_name, created_ns);"
    "CREATE INDEX runs_by_experiment ON profiling_runs(experiment_name, created_ns)"
    " WHERE experiment_name IS NOT NULL;"
    "CREATE INDEX runs_by_group ON profiling_runs(repeat_group) WHERE repeat_group IS NOT NULL;"

    "CREATE TABLE run_texts (run_id TEXT PRIMARY KEY NOT NULL"
    " REFERENCES profiling_runs(id) ON DELETE CASCADE, output_text TEXT, machine_info TEXT);"
    "CREATE TABLE run_tags (tag TEXT NOT NULL, " OF_RUN ", PRIMARY KEY (tag, run_id))"
    " WITHOUT ROWID;"
    "CREATE INDEX tags_by_run ON run_tags(run_id);"
    "CREATE TABLE run_rows (" OF_RUN ", table_name TEXT NOT NULL, first_id INTEGER NOT NULL,"
    " row_count INTEGER NOT NULL, PRIMARY KEY (run_id, table_name)) WITHOUT ROWID;"
    "CREATE TABLE run_charts (id INTEGER PRIMARY KEY, " OF_RUN ", chart TEXT NOT NULL,"
    " data BLOB NOT NULL, UNIQUE (run_id, chart));"

    "CREATE TABLE run_rails (id INTEGER PRIMARY KEY, " OF_RUN ", rail_index INTEGER NOT NULL,"
    " rail_name TEXT, source TEXT, device TEXT, field TEXT, rail_class TEXT, kind TEXT, scope TEXT,"
    " quality TEXT, parent_index INTEGER, period_ms REAL, window_ms REAL, delay_ms REAL,"
    " resolution REAL, modulus_uj REAL, max_power_mw REAL, gain_sd REAL, baseline_mw REAL,"
    " baseline_sd_mw REAL, power_mw BLOB);"
    "CREATE INDEX rails_by_run ON run_rails(run_id);"
    "CREATE TABLE power_samples (id INTEGER PRIMARY KEY, " OF_RUN ", timestamp_ms REAL,"
    " cpu_power_mw REAL, gpu_power_mw REAL, ane_power_mw REAL, dram_power_mw REAL,"
    " total_power_mw REAL, phase TEXT, phase_confidence REAL);"
    "CREATE INDEX samples_by_run ON power_samples(run_id);"
    "CREATE TABLE run_rail_energy (id INTEGER PRIMARY KEY, " OF_RUN ", phase TEXT,"
    " rail_index INTEGER, gross_mj REAL, idle_mj REAL, net_mj REAL, sd_mj REAL);"
    "CREATE INDEX rail_energy_by_run ON run_rail_energy(run_id);"
    "CREATE TABLE run_phases (id INTEGER PRIMARY KEY, " OF_RUN ", phase TEXT, start_ms REAL,"
    " duration_ms REAL, " ENERGY ");"
    "CREATE INDEX phases_by_run ON run_phases(run_id);"
    "CREATE TABLE run_classes (id INTEGER PRIMARY KEY, " OF_RUN ", class_name TEXT, phase TEXT,"
    " time_ms REAL, flops REAL, bytes REAL, power_mw REAL, power_sd_mw REAL, energy_mj REAL,"
    " energy_sd_mj REAL, data_share REAL, truncated INTEGER);"
    "CREATE INDEX classes_by_run ON run_classes(run_id);"
    "CREATE TABLE tokens (id INTEGER PRIMARY KEY, " OF_RUN ", position INTEGER, text TEXT,"
    " phase TEXT, duration_ms REAL, " ENERGY ", power_snapshot_mw REAL, start_ms REAL,"
    " sequence INTEGER, vocabulary_id INTEGER,"
    " phase_id INTEGER REFERENCES run_phases(id) ON DELETE CASCADE);"
    "CREATE INDEX tokens_by_run ON tokens(run_id);"
    "CREATE INDEX tokens_by_phase ON tokens(phase_id);"
    "CREATE TABLE pipeline_sections (id INTEGER PRIMARY KEY, " OF_RUN ", phase TEXT,"
    " section_name TEXT, start_ms REAL, end_ms REAL, duration_ms REAL, " ENERGY ","
    " phase_id INTEGER REFERENCES run_phases(id) ON DELETE CASCADE,"
    " token_id INTEGER REFERENCES tokens(id) ON DELETE CASCADE);"
    "CREATE INDEX sections_by_run ON pipeline_sections(run_id);"
    "CREATE INDEX sections_by_phase ON pipeline_sections(phase_id);"
    "CREATE INDEX sections_by_token ON pipeline_sections(token_id) WHERE token_id IS NOT NULL;"
    "CREATE TABLE layer_metrics (id INTEGER PRIMARY KEY,"
    " token_id INTEGER REFERENCES tokens(id) ON DELETE CASCADE, layer_index INTEGER,"
    " total_time_ms REAL, attention_time_ms REAL, mlp_time_ms REAL, " ENERGY ","
    " activation_mean REAL, activation_std REAL, activation_max REAL, activation_sparsity REAL,"
    " activation_signed_mean REAL, nan_count INTEGER, inf_count INTEGER, start_ms REAL);"
    "CREATE INDEX layers_by_token ON layer_metrics(token_id);"
    "CREATE TABLE component_metrics (id INTEGER PRIMARY KEY,"
    " layer_metric_id INTEGER REFERENCES layer_metrics(id) ON DELETE CASCADE,"
    " component_name TEXT, time_ms REAL, " ENERGY ", activation_mean REAL, activation_std REAL,"
    " activation_max REAL, activation_sparsity REAL, activation_signed_mean REAL,"
    " nan_count INTEGER, inf_count INTEGER, start_ms REAL, flops_estimate REAL,"
    " bytes_estimate REAL, token_id INTEGER, section_id INTEGER, class_id INTEGER,"
    " extra_metrics TEXT);"
    "CREATE INDEX components_by_layer ON component_metrics(layer_metric_id)"
    " WHERE layer_metric_id IS NOT NULL;"
    "CREATE INDEX components_outside ON component_metrics(token_id) WHERE layer_metric_id IS NULL;"
    "CREATE INDEX components_of_sections ON component_metrics(section_id)"
    " WHERE token_id IS NULL AND layer_metric_id IS NULL;"
    "CREATE TABLE deep_operation_metrics (id INTEGER PRIMARY KEY,"
    " component_metric_id INTEGER REFERENCES component_metrics(id) ON DELETE CASCADE,"
    " operation_name TEXT, time_ms REAL, energy_mj REAL, flops_estimate REAL, tensor_mean REAL,"
    " tensor_std REAL, tensor_max REAL, tensor_sparsity REAL, tensor_signed_mean REAL,"
    " nan_count INTEGER, inf_count INTEGER, extra_metrics TEXT, bytes_estimate REAL,"
    " start_ms REAL, net_energy_mj REAL, energy_sd_mj REAL, planted_mj REAL, class_id INTEGER);"
    "CREATE INDEX operations_by_component ON deep_operation_metrics(component_metric_id);"
    "CREATE TABLE run_warnings (id INTEGER PRIMARY KEY, " OF_RUN ", t_ms REAL, code TEXT,"
    " text TEXT);"
    "CREATE INDEX warnings_by_run ON run_warnings(run_id);"

    "CREATE VIEW run_efficiency AS SELECT id AS run_id, created_at, status, model_name, dtype,"
    " batch_size, threads, machine, energy_source, input_tokens, output_tokens,"
    " total_duration_ms / 1000 AS seconds, total_energy_mj / 1000 AS joules,"
    " net_energy_mj / 1000 AS net_joules, tokens_per_second, joules_per_token,"
    " 1 / joules_per_token AS tokens_per_joule,"
    " total_energy_mj * total_duration_ms / 1e6 AS energy_delay_product,"
    " total_energy_mj / 3.6e9 AS kwh, tags, experiment_name FROM profiling_runs;"
    "CREATE VIEW components_of_runs AS SELECT t.run_id, t.phase, t.position, t.sequence,"
    " t.id AS token_id, l.layer_index, c.id AS component_metric_id, c.component_name, c.time_ms,"
    " c.energy_mj, c.net_energy_mj, c.energy_sd_mj, c.method, c.flops_estimate, c.bytes_estimate,"
    " c.activation_mean, c.activation_std, c.activation_max, c.activation_sparsity"
    " FROM component_metrics c LEFT JOIN layer_metrics l ON l.id = c.layer_metric_id"
    " JOIN tokens t ON t.id = coalesce(l.token_id, c.token_id);"
    "CREATE VIEW operations_of_runs AS SELECT c.run_id, c.phase, c.position, c.sequence,"
    " c.token_id, c.layer_index, c.component_name, c.component_metric_id, o.operation_name,"
    " o.time_ms, o.energy_mj, o.net_energy_mj, o.energy_sd_mj, c.method, o.flops_estimate,"
    " o.bytes_estimate, o.tensor_mean, o.tensor_std, o.tensor_max, o.extra_metrics"
    " FROM deep_operation_metrics o JOIN components_of_runs c"
    " ON c.component_metric_id = o.component_metric_id;"
    "CREATE VIEW energy_by_phase AS SELECT run_id, phase, duration_ms, energy_mj,"
    " energy_mj - 1.96 * energy_sd_mj AS energy_lo_mj, energy_mj + 1.96 * energy_sd_mj AS"
    " energy_hi_mj, net_energy_mj, energy_mj * 1000 / duration_ms AS power_mw FROM run_phases;"
    "CREATE VIEW energy_by_component AS SELECT run_id, phase, component_name, count(*) AS count,"
    " sum(time_ms) AS time_ms, sum(energy_mj) AS energy_mj, sum(flops_estimate) AS flops,"
    " sum(bytes_estimate) AS bytes FROM components_of_runs GROUP BY run_id, phase, component_name;"
    "CREATE VIEW energy_by_layer AS SELECT t.run_id, t.phase, l.layer_index,"
    " sum(l.total_time_ms) AS time_ms, sum(l.attention_time_ms) AS attention_time_ms,"
    " sum(l.mlp_time_ms) AS mlp_time_ms, sum(l.energy_mj) AS energy_mj FROM layer_metrics l"
    " JOIN tokens t ON t.id = l.token_id GROUP BY t.run_id, t.phase, l.layer_index;"
    /* Energy of each level and of its parts, equal up to rounding. A batch's step counts as one
     * part (grouped by phase and position), because its rows share the layers. */
    "CREATE VIEW energy_of_token_parts AS SELECT t.id AS token_id, t.phase_id, t.position,"
    " t.energy_mj, t.self_energy_mj"
    " + (SELECT total(s.self_energy_mj) FROM pipeline_sections s WHERE s.token_id = t.id)"
    " + (SELECT total(l.energy_mj) FROM layer_metrics l WHERE l.token_id = t.id)"
    " + (SELECT total(c.energy_mj) FROM component_metrics c WHERE c.token_id = t.id"
    "    AND c.layer_metric_id IS NULL) AS parts_mj"
    " FROM tokens t WHERE t.energy_mj IS NOT NULL;"
    "CREATE VIEW energy_of_section_parts AS SELECT s.id AS section_id, s.phase_id,"
    " total(s.self_energy_mj) + (SELECT total(c.energy_mj) FROM component_metrics c"
    "  WHERE c.section_id = s.id AND c.token_id IS NULL AND c.layer_metric_id IS NULL) AS parts_mj"
    " FROM pipeline_sections s WHERE s.token_id IS NULL GROUP BY s.id;" CONSERVATION(
        "component_metrics c JOIN deep_operation_metrics o ON o.component_metric_id = c.id")
        RUN_IS_DELETED;

/* Operations are three quarters of all rows. An index on their component made saving a run a sixth
 * slower, although operations of a component are contiguous: now a component stores the first id
 * and the count, and id BETWEEN ... scans the primary key. A trigger replaces the foreign key's
 * cascade. */
static const char version_2[] =
    "DROP VIEW conservation; DROP VIEW operations_of_runs; DROP TRIGGER run_is_deleted;"
    "ALTER TABLE component_metrics ADD COLUMN first_operation_id INTEGER;"
    "ALTER TABLE component_metrics ADD COLUMN operation_count INTEGER;"
    "CREATE TABLE operations_2 (id INTEGER PRIMARY KEY, component_metric_id INTEGER,"
    " operation_name TEXT, time_ms REAL, energy_mj REAL, flops_estimate REAL, tensor_mean REAL,"
    " tensor_std REAL, tensor_max REAL, tensor_sparsity REAL, tensor_signed_mean REAL,"
    " nan_count INTEGER, inf_count INTEGER, extra_metrics TEXT, bytes_estimate REAL,"
    " start_ms REAL, net_energy_mj REAL, energy_sd_mj REAL, planted_mj REAL, class_id INTEGER);"
    /* Ids keep the order of runs in both tables, so that runs stay contiguous. */
    "INSERT INTO operations_2 SELECT row_number() OVER (ORDER BY component_metric_id, id),"
    " component_metric_id, operation_name, time_ms, energy_mj, flops_estimate, tensor_mean,"
    " tensor_std, tensor_max, tensor_sparsity, tensor_signed_mean, nan_count, inf_count,"
    " extra_metrics, bytes_estimate, start_ms, net_energy_mj, energy_sd_mj, planted_mj, class_id"
    " FROM deep_operation_metrics;"
    "DROP TABLE deep_operation_metrics;"
    "ALTER TABLE operations_2 RENAME TO deep_operation_metrics;"
    "UPDATE run_rows SET first_id = moved.first_id FROM (SELECT run_id AS id, 1 +"
    "  coalesce(sum(row_count) OVER (ORDER BY first_id ROWS BETWEEN UNBOUNDED PRECEDING AND"
    "  1 PRECEDING), 0) AS first_id FROM run_rows WHERE table_name = 'deep_operation_metrics')"
    " AS moved WHERE table_name = 'deep_operation_metrics' AND run_id = moved.id;"
    "UPDATE component_metrics SET first_operation_id = o.first_id, operation_count = o.count FROM"
    " (SELECT component_metric_id, min(id) AS first_id, count(*) AS count"
    "  FROM deep_operation_metrics GROUP BY component_metric_id) AS o"
    " WHERE component_metrics.id = o.component_metric_id;"
    "UPDATE component_metrics SET operation_count = 0 WHERE operation_count IS NULL;" RUN_IS_DELETED
    "CREATE TRIGGER component_is_deleted AFTER DELETE ON component_metrics"
    " WHEN OLD.operation_count > 0 BEGIN DELETE FROM deep_operation_metrics"
    " WHERE id BETWEEN OLD.first_operation_id AND OLD.first_operation_id + OLD.operation_count - 1;"
    " END;"
    "CREATE VIEW operations_of_runs AS SELECT t.run_id, t.phase, t.position, t.sequence,"
    " t.id AS token_id, l.layer_index, c.component_name, c.id AS component_metric_id,"
    " o.operation_name, o.time_ms, o.energy_mj, o.net_energy_mj, o.energy_sd_mj, c.method,"
    " o.flops_estimate, o.bytes_estimate, o.tensor_mean, o.tensor_std, o.tensor_max,"
    " o.extra_metrics"
    " FROM component_metrics c LEFT JOIN layer_metrics l ON l.id = c.layer_metric_id"
    " JOIN tokens t ON t.id = coalesce(l.token_id, c.token_id)"
    " JOIN deep_operation_metrics o ON o.id BETWEEN c.first_operation_id AND"
    " c.first_operation_id + c.operation_count - 1;" CONSERVATION(
        "component_metrics c CROSS JOIN deep_operation_metrics o ON o.id BETWEEN"
        " c.first_operation_id AND c.first_operation_id + c.operation_count - 1");

/* The reason of a failed run was stored among its warnings, where lists do not look. */
static const char version_3[] =
    "ALTER TABLE profiling_runs ADD COLUMN failure TEXT;"
    "UPDATE profiling_runs SET failure = (SELECT text FROM run_warnings w"
    " WHERE w.run_id = profiling_runs.id AND w.code = 'run_failed' ORDER BY w.id LIMIT 1)"
    " WHERE status = 'failed';";

/* Part of overhead_ms spent on statistics of outputs; unknown for older runs. */
static const char version_4[] = "ALTER TABLE profiling_runs ADD COLUMN statistics_ms REAL;";

/* Components of standard deviations, deviations of net energies, and why a figure is
 * unavailable. */
/* clang-format off */
#define ADD(table, column, type) "ALTER TABLE " table " ADD COLUMN " column " " type ";"
#define ADD_SDS(table, prefix)                                                             \
    ADD(table, prefix "sd_random_mj", "REAL")                                              \
    ADD(table, prefix "sd_bias_mj", "REAL") ADD(table, prefix "sd_gain_mj", "REAL")
#define ADD_UNCERTAINTY(table)                                                     \
    ADD(table, "net_energy_sd_mj", "REAL") ADD_SDS(table, "energy_")               \
    ADD(table, "net_energy_sd_bias_mj", "REAL") ADD(table, "net_energy_sd_gain_mj", "REAL")
#define ADD_BOUND(table) ADD(table, "energy_upper_mj", "REAL") ADD(table, "unavailable_reason", "TEXT")

static const char version_5[] =
    ADD_SDS("profiling_runs", "total_energy_") ADD("profiling_runs", "net_energy_sd_mj", "REAL")
    ADD_SDS("profiling_runs", "net_energy_") ADD_BOUND("profiling_runs")
    ADD_SDS("run_rail_energy", "") ADD("run_rail_energy", "net_sd_mj", "REAL")
    ADD_SDS("run_rail_energy", "net_")
    ADD_SDS("run_classes", "energy_") ADD("run_classes", "net_energy_mj", "REAL")
    ADD("run_classes", "net_energy_sd_mj", "REAL") ADD_SDS("run_classes", "net_energy_")
    ADD_UNCERTAINTY("run_phases") ADD_BOUND("run_phases")
    ADD_UNCERTAINTY("tokens") ADD_BOUND("tokens")
    ADD_UNCERTAINTY("pipeline_sections") ADD_BOUND("pipeline_sections")
    ADD_UNCERTAINTY("layer_metrics") ADD_UNCERTAINTY("component_metrics")
    ADD("deep_operation_metrics", "net_energy_sd_mj", "REAL")
    ADD("deep_operation_metrics", "energy_sd_bias_mj", "REAL")
    ADD("deep_operation_metrics", "energy_sd_gain_mj", "REAL");

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

static const char version_6[] =
    "ALTER TABLE profiling_runs ADD COLUMN request_energy_mj REAL;"
    "ALTER TABLE profiling_runs ADD COLUMN request_energy_sd_mj REAL;"
    "ALTER TABLE profiling_runs ADD COLUMN request_energy_net_mj REAL;"
    "ALTER TABLE profiling_runs ADD COLUMN request_energy_net_sd_mj REAL;"
    "ALTER TABLE profiling_runs ADD COLUMN request_duration_ms REAL;"
    "ALTER TABLE profiling_runs ADD COLUMN model_load_energy_mj REAL;"
    "ALTER TABLE profiling_runs ADD COLUMN typical_token_energy_mj REAL;"
    "ALTER TABLE profiling_runs ADD COLUMN disturbed_tokens INTEGER;"
    "ALTER TABLE profiling_runs ADD COLUMN disturbed_share REAL;"
    "ALTER TABLE profiling_runs ADD COLUMN parameters REAL;"
    "ALTER TABLE profiling_runs ADD COLUMN active_parameters REAL;"
    "ALTER TABLE profiling_runs ADD COLUMN joules_per_token_sd REAL;"
    "ALTER TABLE tokens ADD COLUMN disturbed INTEGER;"
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
    " WHERE m.run_id = profiling_runs.id;"
    "DROP VIEW run_efficiency;"
    "CREATE VIEW run_efficiency AS SELECT id AS run_id, created_at, status, model_name, engine,"
    " dtype, batch_size, threads, machine, energy_source, input_tokens, output_tokens,"
    " total_duration_ms / 1000 AS seconds, request_duration_ms / 1000 AS request_seconds,"
    " total_energy_mj / 1000 AS joules, net_energy_mj / 1000 AS net_joules,"
    " request_energy_mj / 1000 AS request_joules, model_load_energy_mj / 1000 AS"
    " model_load_joules, tokens_per_second, joules_per_token, joules_per_token_sd,"
    " typical_token_energy_mj / 1000 AS joules_per_token_typical, disturbed_tokens,"
    " disturbed_share, 1 / joules_per_token AS tokens_per_joule,"
    " request_energy_mj * request_duration_ms / 1e6 AS energy_delay_product,"
    " request_energy_mj / (parameters / 1e6) AS mj_per_million_parameters,"
    " request_energy_mj / (active_parameters / 1e6) AS mj_per_million_active_parameters,"
    " total_energy_mj / 3.6e9 AS kwh, tags, experiment_name FROM profiling_runs;";

/* For earlier runs it is unknown which rails the total lacks. */
static const char version_7[] = "ALTER TABLE profiling_runs ADD COLUMN total_rails TEXT;"
                                "ALTER TABLE profiling_runs ADD COLUMN partial_rails TEXT;";

/* Rows in a step shared by the sequences of a batch referred to the step's first token, so that
 * joins from tokens gave that token too much. Now they refer to the step: step_id is the id of the
 * step's first token, token_id is NULL, and each token's part follows from its shares. */
#define MOVE_TO_STEP(table)                                                                  \
    "UPDATE " table " SET step_id = token_id, token_id = NULL FROM run_rows r JOIN"          \
    " profiling_runs p ON p.id = r.run_id AND p.batch_size > 1 WHERE r.table_name = '" table \
    "' AND " table ".id BETWEEN r.first_id AND r.first_id + r.row_count - 1 AND token_id IN" \
    " (SELECT step_id FROM tokens WHERE step_id IS NOT NULL);"

/* A token's part of a row in its step: `e` and `n` are the row's gross and net energy, `k` the part
 * of the net energy that is split by context. */
#define PART_OF_TOKEN(e, k)                                                                  \
    "CASE WHEN t.step_id IS NULL THEN " e " ELSE " e " * t.share + (" k ") *"                \
    " (t.context_share - t.share) END"
#define CONTEXT_OF(c) "CASE WHEN " c ".component_name = 'attention' THEN"
#define CONTEXT_OF_COMPONENT(c) CONTEXT_OF(c) " coalesce(" c ".net_energy_mj, " c ".energy_mj) ELSE 0 END"
#define NET_CONTEXT_OF_COMPONENT(c) CONTEXT_OF(c) " " c ".net_energy_mj ELSE 0 END"
#define CONTEXT_OF_OPERATION CONTEXT_OF("c") " coalesce(o.net_energy_mj, o.energy_mj) ELSE 0 END"
#define NET_CONTEXT_OF_OPERATION CONTEXT_OF("c") " o.net_energy_mj ELSE 0 END"
#define CONTEXT_OF_LAYER                                                                     \
    "(SELECT total(coalesce(c.net_energy_mj, c.energy_mj)) FROM component_metrics c"         \
    " WHERE c.layer_metric_id = l.id AND c.component_name = 'attention')"

#define LAYERS_OF_TOKENS(join)                                                               \
    "SELECT t.run_id, t.id AS token_id, t.phase, t.position, t.sequence, l.id AS"            \
    " layer_metric_id, l.layer_index, l.total_time_ms, l.attention_time_ms, l.mlp_time_ms, " \
    PART_OF_TOKEN("l.energy_mj", CONTEXT_OF_LAYER) " AS energy_mj, l.method,"                \
    " l.activation_mean, l.activation_std, l.activation_max, l.activation_sparsity"          \
    " FROM tokens t JOIN layer_metrics l ON " join
#define COMPONENTS_OF_TOKENS(layer, join)                                                    \
    "SELECT t.run_id, t.id AS token_id, t.phase, t.position, t.sequence, " layer             \
    " AS layer_index, c.id AS component_metric_id, c.component_name, c.time_ms, "            \
    PART_OF_TOKEN("c.energy_mj", CONTEXT_OF_COMPONENT("c")) " AS energy_mj, "                \
    PART_OF_TOKEN("c.net_energy_mj", NET_CONTEXT_OF_COMPONENT("c")) " AS net_energy_mj,"     \
    " c.method, c.flops_estimate, c.bytes_estimate, c.activation_mean, c.activation_std,"    \
    " c.activation_max, c.activation_sparsity, c.first_operation_id, c.operation_count"      \
    " FROM tokens t " join

/* For one step, with t one of its tokens. */
#define SUM_OF_STEP(what, table, rest) \
    "(SELECT total(" what ") FROM " table " WHERE " rest ")"
#define PARTS_OF(id, column)                                                                 \
    SUM_OF_STEP("s.self_energy_mj", "pipeline_sections s", "s." column " = " id) " + "       \
    SUM_OF_STEP("l.energy_mj", "layer_metrics l", "l." column " = " id) " + "                \
    SUM_OF_STEP("c.energy_mj", "component_metrics c",                                        \
                "c." column " = " id " AND c.layer_metric_id IS NULL")
#define CONTEXT_OF_STEP                                                                      \
    "(SELECT total(coalesce(c.net_energy_mj, c.energy_mj)) FROM layer_metrics l JOIN"        \
    " component_metrics c ON c.layer_metric_id = l.id WHERE l.step_id = t.step_id AND"       \
    " c.component_name = 'attention') + " SUM_OF_STEP(                                       \
        "coalesce(c.net_energy_mj, c.energy_mj)", "component_metrics c",                     \
        "c.step_id = t.step_id AND c.layer_metric_id IS NULL AND c.component_name = 'attention'")

static const char version_8[] =
    "DROP VIEW conservation; DROP VIEW operations_of_runs; DROP VIEW energy_by_component;"
    "DROP VIEW components_of_runs; DROP VIEW energy_by_layer; DROP VIEW energy_of_token_parts;"
    "DROP VIEW energy_of_section_parts;"
    "ALTER TABLE profiling_runs ADD COLUMN batch_rule TEXT;"
    "ALTER TABLE tokens ADD COLUMN step_id INTEGER;"
    "ALTER TABLE tokens ADD COLUMN context_tokens INTEGER;"
    "ALTER TABLE tokens ADD COLUMN share REAL;"
    "ALTER TABLE tokens ADD COLUMN context_share REAL;"
    "ALTER TABLE pipeline_sections ADD COLUMN step_id INTEGER;"
    "ALTER TABLE layer_metrics ADD COLUMN step_id INTEGER;"
    "ALTER TABLE component_metrics ADD COLUMN step_id INTEGER;"
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
    MOVE_TO_STEP("component_metrics")
    "CREATE INDEX layers_by_step ON layer_metrics(step_id) WHERE step_id IS NOT NULL;"
    "CREATE INDEX sections_by_step ON pipeline_sections(step_id) WHERE step_id IS NOT NULL;"
    "CREATE INDEX components_of_steps ON component_metrics(step_id)"
    " WHERE layer_metric_id IS NULL AND step_id IS NOT NULL;"
    "DROP INDEX components_of_sections;"
    "CREATE INDEX components_of_sections ON component_metrics(section_id)"
    " WHERE layer_metric_id IS NULL AND token_id IS NULL AND step_id IS NULL;"
    /* Deleting a step's first token deletes the step's rows. */
    "CREATE TRIGGER step_is_deleted AFTER DELETE ON tokens WHEN OLD.step_id = OLD.id BEGIN"
    " DELETE FROM component_metrics WHERE step_id = OLD.id AND layer_metric_id IS NULL;"
    " DELETE FROM layer_metrics WHERE step_id = OLD.id;"
    " DELETE FROM pipeline_sections WHERE step_id = OLD.id; END;"

    "CREATE VIEW steps AS SELECT coalesce(t.step_id, t.id) AS step_id, t.run_id, t.phase_id,"
    " t.phase, t.position, count(*) AS tokens, min(t.start_ms) AS start_ms, max(t.duration_ms) AS"
    " duration_ms, sum(t.energy_mj) AS energy_mj, sum(t.net_energy_mj) AS net_energy_mj,"
    " sum(t.self_energy_mj) AS self_energy_mj, max(t.power_snapshot_mw) AS power_mw,"
    " max(t.disturbed) AS disturbed FROM tokens t GROUP BY t.run_id, coalesce(t.step_id, t.id);"
    "CREATE VIEW layers_of_tokens AS "
    LAYERS_OF_TOKENS("l.token_id = t.id") " UNION ALL "
    LAYERS_OF_TOKENS("l.step_id = t.step_id") ";"
    "CREATE VIEW components_of_tokens AS "
    COMPONENTS_OF_TOKENS("l.layer_index", "JOIN layer_metrics l ON l.token_id = t.id JOIN"
                         " component_metrics c ON c.layer_metric_id = l.id") " UNION ALL "
    COMPONENTS_OF_TOKENS("l.layer_index", "JOIN layer_metrics l ON l.step_id = t.step_id JOIN"
                         " component_metrics c ON c.layer_metric_id = l.id") " UNION ALL "
    COMPONENTS_OF_TOKENS("NULL", "JOIN component_metrics c ON c.token_id = t.id AND"
                         " c.layer_metric_id IS NULL") " UNION ALL "
    COMPONENTS_OF_TOKENS("NULL", "JOIN component_metrics c ON c.step_id = t.step_id AND"
                         " c.layer_metric_id IS NULL") ";"
    "CREATE VIEW operations_of_tokens AS SELECT c.run_id, c.token_id, c.phase, c.position,"
    " c.sequence, c.layer_index, c.component_metric_id, c.component_name, o.id AS operation_id,"
    " o.operation_name, o.time_ms, "
    PART_OF_TOKEN("o.energy_mj", CONTEXT_OF_OPERATION) " AS energy_mj, "
    PART_OF_TOKEN("o.net_energy_mj", NET_CONTEXT_OF_OPERATION) " AS net_energy_mj, c.method,"
    " o.flops_estimate, o.bytes_estimate FROM components_of_tokens c JOIN tokens t ON t.id ="
    " c.token_id JOIN deep_operation_metrics o ON o.id BETWEEN c.first_operation_id AND"
    " c.first_operation_id + c.operation_count - 1;"
    "CREATE VIEW energy_by_sequence AS SELECT run_id, sequence, sum(phase = 'prefill') AS"
    " prompts, max(CASE WHEN phase = 'prefill' THEN context_tokens END) AS prompt_tokens,"
    " count(*) AS output_tokens, sum(energy_mj) AS energy_mj, sum(net_energy_mj) AS"
    " net_energy_mj, sum(CASE WHEN phase = 'prefill' THEN energy_mj END) AS prefill_energy_mj,"
    " sum(CASE WHEN phase = 'decode' THEN energy_mj END) AS decode_energy_mj"
    " FROM tokens GROUP BY run_id, sequence;"

    "CREATE VIEW components_of_runs AS SELECT t.run_id, t.phase, t.position,"
    " CASE WHEN t.step_id IS NULL THEN t.sequence END AS sequence,"
    " CASE WHEN t.step_id IS NULL THEN t.id END AS token_id, t.id AS step_id, l.layer_index,"
    " c.id AS component_metric_id, c.component_name, c.time_ms, c.energy_mj, c.net_energy_mj,"
    " c.energy_sd_mj, c.method, c.flops_estimate, c.bytes_estimate, c.activation_mean,"
    " c.activation_std, c.activation_max, c.activation_sparsity"
    " FROM component_metrics c LEFT JOIN layer_metrics l ON l.id = c.layer_metric_id"
    " JOIN tokens t ON t.id = coalesce(l.token_id, l.step_id, c.token_id, c.step_id);"
    "CREATE VIEW operations_of_runs AS SELECT t.run_id, t.phase, t.position,"
    " CASE WHEN t.step_id IS NULL THEN t.sequence END AS sequence,"
    " CASE WHEN t.step_id IS NULL THEN t.id END AS token_id, t.id AS step_id, l.layer_index,"
    " c.component_name, c.id AS component_metric_id, o.operation_name, o.time_ms, o.energy_mj,"
    " o.net_energy_mj, o.energy_sd_mj, c.method, o.flops_estimate, o.bytes_estimate,"
    " o.tensor_mean, o.tensor_std, o.tensor_max, o.extra_metrics"
    " FROM component_metrics c LEFT JOIN layer_metrics l ON l.id = c.layer_metric_id"
    " JOIN tokens t ON t.id = coalesce(l.token_id, l.step_id, c.token_id, c.step_id)"
    " JOIN deep_operation_metrics o ON o.id BETWEEN c.first_operation_id AND"
    " c.first_operation_id + c.operation_count - 1;"
    "CREATE VIEW energy_by_component AS SELECT run_id, phase, component_name, count(*) AS count,"
    " sum(time_ms) AS time_ms, sum(energy_mj) AS energy_mj, sum(flops_estimate) AS flops,"
    " sum(bytes_estimate) AS bytes FROM components_of_runs GROUP BY run_id, phase, component_name;"
    "CREATE VIEW energy_by_layer AS SELECT run_id, phase, layer_index, sum(total_time_ms) AS"
    " time_ms, sum(attention_time_ms) AS attention_time_ms, sum(mlp_time_ms) AS mlp_time_ms,"
    " sum(energy_mj) AS energy_mj FROM (SELECT t.run_id, t.phase, l.* FROM tokens t JOIN"
    "  layer_metrics l ON l.token_id = t.id UNION ALL SELECT t.run_id, t.phase, l.* FROM tokens t"
    "  JOIN layer_metrics l ON l.step_id = t.id) GROUP BY run_id, phase, layer_index;"

    "CREATE VIEW energy_of_token_parts AS SELECT t.id AS token_id, t.phase_id, t.position,"
    " t.energy_mj, t.self_energy_mj + CASE WHEN t.step_id IS NULL THEN "
    PARTS_OF("t.id", "token_id")
    " ELSE t.share * (" PARTS_OF("t.step_id", "step_id") ") + (t.context_share - t.share) * ("
    CONTEXT_OF_STEP ") END AS parts_mj FROM tokens t WHERE t.energy_mj IS NOT NULL;"
    "CREATE VIEW energy_of_section_parts AS SELECT s.id AS section_id, s.phase_id,"
    " total(s.self_energy_mj) + (SELECT total(c.energy_mj) FROM component_metrics c"
    "  WHERE c.section_id = s.id AND c.token_id IS NULL AND c.step_id IS NULL AND"
    "  c.layer_metric_id IS NULL) AS parts_mj"
    " FROM pipeline_sections s WHERE s.token_id IS NULL AND s.step_id IS NULL GROUP BY s.id;"
    "CREATE VIEW conservation AS"
    " SELECT 'component' AS level, c.id AS row_id, c.energy_mj AS whole_mj,"
    "  c.self_energy_mj + total(o.energy_mj) AS parts_mj FROM component_metrics c CROSS JOIN"
    "  deep_operation_metrics o ON o.id BETWEEN c.first_operation_id AND"
    "  c.first_operation_id + c.operation_count - 1"
    "  WHERE c.energy_mj IS NOT NULL GROUP BY c.id"
    " UNION ALL SELECT 'layer', l.id, l.energy_mj, l.self_energy_mj + total(c.energy_mj)"
    "  FROM layer_metrics l JOIN component_metrics c ON c.layer_metric_id = l.id"
    "  WHERE l.energy_mj IS NOT NULL GROUP BY l.id"
    " UNION ALL SELECT 'token', token_id, energy_mj, parts_mj FROM energy_of_token_parts"
    " UNION ALL SELECT 'step', t.id, (SELECT sum(energy_mj) FROM tokens s WHERE s.step_id = t.id"
    "   AND s.phase_id = t.phase_id), (SELECT sum(self_energy_mj) FROM tokens s WHERE"
    "   s.step_id = t.id AND s.phase_id = t.phase_id) + " PARTS_OF("t.id", "step_id")
    "  FROM tokens t WHERE t.step_id = t.id AND t.energy_mj IS NOT NULL"
    " UNION ALL SELECT 'phase', p.id, p.energy_mj, p.self_energy_mj"
    "  + (SELECT total(parts_mj) FROM energy_of_token_parts t WHERE t.phase_id = p.id)"
    "  + (SELECT total(parts_mj) FROM energy_of_section_parts s WHERE s.phase_id = p.id)"
    "  FROM run_phases p WHERE p.energy_mj IS NOT NULL"
    " UNION ALL SELECT 'run', r.rowid, r.total_energy_mj, total(p.energy_mj)"
    "  FROM profiling_runs r JOIN run_phases p ON p.run_id = r.id"
    "  WHERE r.total_energy_mj IS NOT NULL GROUP BY r.rowid;";

/* Conditions of devices; a trigger deletes the rows with their run. */
static const char version_9[] =
    "ALTER TABLE profiling_runs ADD COLUMN conditions TEXT;"
    "CREATE TABLE run_conditions (id INTEGER PRIMARY KEY, " OF_RUN ", t_ms REAL, device TEXT,"
    " temperature_c REAL, clock_mhz REAL, memory_clock_mhz REAL, utilisation REAL,"
    " power_limit_mw REAL, throttle TEXT);"
    "CREATE INDEX conditions_by_run ON run_conditions(run_id);"
    "CREATE TRIGGER conditions_are_deleted BEFORE DELETE ON profiling_runs BEGIN"
    " DELETE FROM run_conditions WHERE run_id = OLD.id; END;";

/* The server's queue: requested runs that have not ended, which survive a restart. */
/* clang-format on */
static const char version_10[] =
    "CREATE TABLE run_queue (id TEXT PRIMARY KEY NOT NULL, queued_ns INTEGER NOT NULL,"
    " request TEXT NOT NULL) WITHOUT ROWID;";

/* What is stored instead of the texts of private runs. */
static const char version_11[] = "ALTER TABLE profiling_runs ADD COLUMN prompt_private TEXT;"
                                 "ALTER TABLE profiling_runs ADD COLUMN output_private TEXT;";

/* Components in a step of a batch, but in no layer, had surplus entries in this index when a large
 * run was inserted as pages; the rows themselves were correct. */
static const char version_12[] = "REINDEX components_of_sections;";

/* Plans of experiments; their runs carry the name. */
static const char version_13[] =
    "CREATE TABLE experiments (name TEXT PRIMARY KEY NOT NULL, created_ns INTEGER NOT NULL,"
    " plan TEXT NOT NULL, losses TEXT) WITHOUT ROWID;";

/* State of an experiment on a server (store/experiments.h). */
static const char version_14[] = "ALTER TABLE experiments ADD COLUMN state TEXT;"
                                 "ALTER TABLE experiments ADD COLUMN queued_ns INTEGER;"
                                 "ALTER TABLE experiments ADD COLUMN error TEXT;";

/* Heartbeats of machines (store/machines.h). */
static const char version_15[] =
    "CREATE TABLE machine_states (name TEXT PRIMARY KEY NOT NULL, seen_ns INTEGER NOT NULL,"
    " version TEXT, sensors TEXT, energy_source TEXT, day TEXT, energy_mj REAL, throttle TEXT,"
    " clock_offset_ms REAL, clock_uncertainty_ms REAL) WITHOUT ROWID;";

/* Which machine's server is to run a queued one. */
static const char version_16[] = "ALTER TABLE experiments ADD COLUMN machine TEXT;";

const char *const sqlite_history[] = {version_1,  version_2,  version_3,  version_4,  version_5,
                                      version_6,  version_7,  version_8,  version_9,  version_10,
                                      version_11, version_12, version_13, version_14, version_15,
                                      version_16, NULL};
