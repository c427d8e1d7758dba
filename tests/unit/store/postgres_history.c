/* How earlier versions made their tables on PostgreSQL: see sqlite_history.c. */
#include "history.h"

#include <stddef.h>

/* clang-format off */
#define PJ_PG_BYTES_OF_NAMES                                                           \
    "octet_length(coalesce(machine, '') || coalesce(model_name, '') ||"                \
    " coalesce(engine, '') || coalesce(dtype, '') || coalesce(experiment_name, '') ||" \
    " coalesce(status, '') || coalesce(energy_source, '') || coalesce(scope, '') ||"   \
    " coalesce(level, ''))"
#define PJ_PG_LISTED_RUNS "(" PJ_PG_BYTES_OF_NAMES " <= 2000)"
#define SORTED_BY_BYTES " COLLATE \"C\""
#define TEXT(name) " " name " text" SORTED_BY_BYTES ","
#define REAL(name) " " name " double precision,"
#define INTEGER(name) " " name " bigint,"
#define BYTES(name) " " name " bytea,"
#define NN_TEXT(name) " " name " text" SORTED_BY_BYTES " NOT NULL,"
#define NN_INTEGER(name) " " name " bigint NOT NULL,"
#define NN_BYTES(name) " " name " bytea NOT NULL,"
#define RUN_ID NN_TEXT("run_id")
/* The machine of the rows that the connection writes, as a session variable. */
#define OF_MACHINE                                                                           \
    " machine_id bigint NOT NULL DEFAULT"                                                    \
    " coalesce(nullif(current_setting('perjoule.machine_id', true), ''), '0')::bigint,"

#define TABLES                                                                               \
    "CREATE TABLE profiling_runs ("                                                          \
    NN_TEXT("id") NN_TEXT("created_at") NN_INTEGER("created_ns")                             \
    NN_TEXT("status") TEXT("profiling_depth") TEXT("model_name")                             \
    TEXT("model_path") TEXT("engine") TEXT("dtype") TEXT("isa")                              \
    INTEGER("threads") INTEGER("batch_size") TEXT("experiment_name") TEXT("machine")         \
    TEXT("repeat_group") INTEGER("repeat_index") INTEGER("input_tokens")                     \
    INTEGER("output_tokens") REAL("total_duration_ms") REAL("prefill_duration_ms")           \
    REAL("decode_duration_ms") TEXT("energy_source") TEXT("power_sources")                   \
    TEXT("method") REAL("total_energy_mj") REAL("total_energy_sd_mj")                        \
    REAL("idle_energy_mj") REAL("net_energy_mj") INTEGER("total_is_partial")                 \
    REAL("prefill_energy_mj") REAL("decode_energy_mj") REAL("prefill_energy_net_mj")         \
    REAL("decode_energy_net_mj") REAL("baseline_cold_mw") REAL("baseline_resident_mw")       \
    REAL("condition_number") REAL("pj_per_flop") REAL("pj_per_flop_sd")                      \
    REAL("pj_per_byte") REAL("pj_per_byte_sd") REAL("attribution_interval")                  \
    REAL("attribution_interval_calibrated") REAL("calibration_gap") REAL("overhead_ms")      \
    REAL("overhead_share") REAL("sampler_cpu_share") REAL("sampler_jitter_us")               \
    INTEGER("samples_missed") INTEGER("spans_lost") REAL("tokens_per_second")                \
    REAL("joules_per_token") TEXT("tags") TEXT("settings") TEXT("model")                     \
    TEXT("prompt") TEXT("failure") REAL("statistics_ms")                                     \
    REAL("total_energy_sd_random_mj") REAL("total_energy_sd_bias_mj")                        \
    REAL("total_energy_sd_gain_mj") REAL("net_energy_sd_mj")                                 \
    REAL("net_energy_sd_random_mj") REAL("net_energy_sd_bias_mj")                            \
    REAL("net_energy_sd_gain_mj") REAL("energy_upper_mj") TEXT("unavailable_reason")         \
    REAL("request_energy_mj") REAL("request_energy_sd_mj")                                   \
    REAL("request_energy_sd_random_mj") REAL("request_energy_sd_bias_mj")                    \
    REAL("request_energy_sd_gain_mj") REAL("request_energy_net_mj")                          \
    REAL("request_energy_net_sd_mj") REAL("request_energy_net_sd_random_mj")                 \
    REAL("request_energy_net_sd_bias_mj") REAL("request_energy_net_sd_gain_mj")              \
    REAL("request_duration_ms") REAL("model_load_energy_mj")                                 \
    REAL("model_load_energy_sd_mj") REAL("model_load_energy_sd_random_mj")                   \
    REAL("model_load_energy_sd_bias_mj") REAL("model_load_energy_sd_gain_mj")                \
    REAL("typical_token_energy_mj")                                                          \
    INTEGER("disturbed_tokens") REAL("disturbed_share") REAL("parameters")                   \
    REAL("active_parameters") REAL("joules_per_token_sd") TEXT("total_rails")                \
    TEXT("partial_rails") TEXT("batch_rule") TEXT("conditions")                              \
    TEXT("prompt_private") TEXT("output_private") TEXT("scope") TEXT("level")                \
    REAL("cached_tokens") TEXT("allocation") REAL("monotonic_ms") NN_INTEGER("rowid")        \
    OF_MACHINE " PRIMARY KEY (id, machine_id)) PARTITION BY RANGE (id);"                     \
    "CREATE TABLE run_texts ("                                                               \
    RUN_ID TEXT("output_text") TEXT("machine_info")                                          \
    OF_MACHINE " PRIMARY KEY (run_id, machine_id)) PARTITION BY RANGE (run_id);"             \
    "CREATE TABLE run_tags ("                                                                \
    NN_TEXT("tag") RUN_ID                                                                    \
    OF_MACHINE " PRIMARY KEY (tag, run_id, machine_id)) PARTITION BY RANGE (run_id);"        \
    "CREATE TABLE run_rows ("                                                                \
    RUN_ID NN_TEXT("table_name") NN_INTEGER("first_id")                                      \
    NN_INTEGER("row_count")                                                                  \
    OF_MACHINE " PRIMARY KEY (run_id, table_name, machine_id)) PARTITION BY RANGE (run_id);" \
    "CREATE TABLE run_charts (id bigint NOT NULL DEFAULT nextval('run_charts_id'),"          \
    RUN_ID NN_TEXT("chart") NN_BYTES("data")                                                 \
    OF_MACHINE " PRIMARY KEY (run_id, chart, machine_id)) PARTITION BY RANGE (run_id);"      \
    "CREATE TABLE run_rails ("                                                               \
    NN_INTEGER("id") RUN_ID NN_INTEGER("rail_index") TEXT("rail_name")                       \
    TEXT("source") TEXT("device") TEXT("field") TEXT("rail_class") TEXT("kind")              \
    TEXT("scope") TEXT("quality") INTEGER("parent_index") REAL("period_ms")                  \
    REAL("window_ms") REAL("delay_ms") REAL("resolution") REAL("modulus_uj")                 \
    REAL("max_power_mw") REAL("gain_sd") REAL("baseline_mw") REAL("baseline_sd_mw")          \
    BYTES("power_mw")                                                                        \
    OF_MACHINE " PRIMARY KEY (id, run_id, machine_id)) PARTITION BY RANGE (run_id);"         \
    "CREATE TABLE power_samples ("                                                           \
    NN_INTEGER("id") RUN_ID REAL("timestamp_ms") REAL("cpu_power_mw")                        \
    REAL("gpu_power_mw") REAL("ane_power_mw") REAL("dram_power_mw")                          \
    REAL("total_power_mw") TEXT("phase") REAL("phase_confidence")                            \
    OF_MACHINE " PRIMARY KEY (id, run_id, machine_id)) PARTITION BY RANGE (run_id);"         \
    "CREATE TABLE run_rail_energy ("                                                         \
    NN_INTEGER("id") RUN_ID TEXT("phase") INTEGER("rail_index")                              \
    REAL("gross_mj") REAL("idle_mj") REAL("net_mj") REAL("sd_mj")                            \
    REAL("sd_random_mj") REAL("sd_bias_mj") REAL("sd_gain_mj") REAL("net_sd_mj")             \
    REAL("net_sd_random_mj") REAL("net_sd_bias_mj") REAL("net_sd_gain_mj")                   \
    OF_MACHINE " PRIMARY KEY (id, run_id, machine_id)) PARTITION BY RANGE (run_id);"         \
    "CREATE TABLE run_phases ("                                                              \
    NN_INTEGER("id") RUN_ID TEXT("phase") REAL("start_ms") REAL("duration_ms")               \
    REAL("energy_mj") REAL("net_energy_mj") REAL("self_energy_mj")                           \
    REAL("energy_sd_mj") REAL("planted_mj") TEXT("method") REAL("net_energy_sd_mj")          \
    REAL("energy_sd_random_mj") REAL("energy_sd_bias_mj") REAL("energy_sd_gain_mj")          \
    REAL("net_energy_sd_bias_mj") REAL("net_energy_sd_gain_mj") REAL("energy_upper_mj")      \
    TEXT("unavailable_reason")                                                               \
    OF_MACHINE " PRIMARY KEY (id, run_id, machine_id)) PARTITION BY RANGE (run_id);"         \
    "CREATE TABLE run_classes ("                                                             \
    NN_INTEGER("id") RUN_ID TEXT("class_name") TEXT("phase") REAL("time_ms")                 \
    REAL("flops") REAL("bytes") REAL("power_mw") REAL("power_sd_mw")                         \
    REAL("energy_mj") REAL("energy_sd_mj") REAL("data_share") INTEGER("truncated")           \
    REAL("energy_sd_random_mj") REAL("energy_sd_bias_mj") REAL("energy_sd_gain_mj")          \
    REAL("net_energy_mj") REAL("net_energy_sd_mj") REAL("net_energy_sd_random_mj")           \
    REAL("net_energy_sd_bias_mj") REAL("net_energy_sd_gain_mj")                              \
    OF_MACHINE " PRIMARY KEY (id, run_id, machine_id)) PARTITION BY RANGE (run_id);"         \
    "CREATE TABLE tokens ("                                                                  \
    NN_INTEGER("id") RUN_ID INTEGER("position") TEXT("text") TEXT("phase")                   \
    REAL("duration_ms") REAL("energy_mj") REAL("net_energy_mj")                              \
    REAL("self_energy_mj") REAL("energy_sd_mj") REAL("planted_mj") TEXT("method")            \
    REAL("power_snapshot_mw") REAL("start_ms") INTEGER("sequence")                           \
    INTEGER("vocabulary_id") INTEGER("phase_id") REAL("net_energy_sd_mj")                    \
    REAL("energy_sd_random_mj") REAL("energy_sd_bias_mj") REAL("energy_sd_gain_mj")          \
    REAL("net_energy_sd_bias_mj") REAL("net_energy_sd_gain_mj") REAL("energy_upper_mj")      \
    TEXT("unavailable_reason") INTEGER("disturbed") INTEGER("step_id")                       \
    INTEGER("context_tokens") REAL("share") REAL("context_share")                            \
    OF_MACHINE " PRIMARY KEY (id, run_id, machine_id)) PARTITION BY RANGE (run_id);"         \
    "CREATE TABLE pipeline_sections ("                                                       \
    NN_INTEGER("id") RUN_ID TEXT("phase") TEXT("section_name")                               \
    REAL("start_ms") REAL("end_ms") REAL("duration_ms") REAL("energy_mj")                    \
    REAL("net_energy_mj") REAL("self_energy_mj") REAL("energy_sd_mj")                        \
    REAL("planted_mj") TEXT("method") INTEGER("phase_id") INTEGER("token_id")                \
    REAL("net_energy_sd_mj") REAL("energy_sd_random_mj") REAL("energy_sd_bias_mj")           \
    REAL("energy_sd_gain_mj") REAL("net_energy_sd_bias_mj")                                  \
    REAL("net_energy_sd_gain_mj") REAL("energy_upper_mj") TEXT("unavailable_reason")         \
    INTEGER("step_id")                                                                       \
    OF_MACHINE " PRIMARY KEY (id, run_id, machine_id)) PARTITION BY RANGE (run_id);"         \
    "CREATE TABLE layer_metrics ("                                                           \
    NN_INTEGER("id") INTEGER("token_id") INTEGER("layer_index")                              \
    REAL("total_time_ms") REAL("attention_time_ms") REAL("mlp_time_ms")                      \
    REAL("energy_mj") REAL("net_energy_mj") REAL("self_energy_mj")                           \
    REAL("energy_sd_mj") REAL("planted_mj") TEXT("method") REAL("activation_mean")           \
    REAL("activation_std") REAL("activation_max") REAL("activation_sparsity")                \
    REAL("activation_signed_mean") INTEGER("nan_count") INTEGER("inf_count")                 \
    REAL("start_ms") REAL("net_energy_sd_mj") REAL("energy_sd_random_mj")                    \
    REAL("energy_sd_bias_mj") REAL("energy_sd_gain_mj") REAL("net_energy_sd_bias_mj")        \
    REAL("net_energy_sd_gain_mj") INTEGER("step_id") RUN_ID                                  \
    OF_MACHINE " PRIMARY KEY (id, run_id, machine_id)) PARTITION BY RANGE (run_id);"         \
    "CREATE TABLE component_metrics ("                                                       \
    NN_INTEGER("id") INTEGER("layer_metric_id") TEXT("component_name")                       \
    REAL("time_ms") REAL("energy_mj") REAL("net_energy_mj") REAL("self_energy_mj")           \
    REAL("energy_sd_mj") REAL("planted_mj") TEXT("method") REAL("activation_mean")           \
    REAL("activation_std") REAL("activation_max") REAL("activation_sparsity")                \
    REAL("activation_signed_mean") INTEGER("nan_count") INTEGER("inf_count")                 \
    REAL("start_ms") REAL("flops_estimate") REAL("bytes_estimate")                           \
    INTEGER("token_id") INTEGER("section_id") INTEGER("class_id")                            \
    TEXT("extra_metrics") INTEGER("first_operation_id") INTEGER("operation_count")           \
    REAL("net_energy_sd_mj") REAL("energy_sd_random_mj") REAL("energy_sd_bias_mj")           \
    REAL("energy_sd_gain_mj") REAL("net_energy_sd_bias_mj")                                  \
    REAL("net_energy_sd_gain_mj") INTEGER("step_id") RUN_ID                                  \
    OF_MACHINE " PRIMARY KEY (id, run_id, machine_id)) PARTITION BY RANGE (run_id);"         \
    "CREATE TABLE deep_operation_metrics ("                                                  \
    NN_INTEGER("id") INTEGER("component_metric_id") TEXT("operation_name")                   \
    REAL("time_ms") REAL("energy_mj") REAL("flops_estimate") REAL("tensor_mean")             \
    REAL("tensor_std") REAL("tensor_max") REAL("tensor_sparsity")                            \
    REAL("tensor_signed_mean") INTEGER("nan_count") INTEGER("inf_count")                     \
    TEXT("extra_metrics") REAL("bytes_estimate") REAL("start_ms")                            \
    REAL("net_energy_mj") REAL("energy_sd_mj") REAL("planted_mj")                            \
    INTEGER("class_id") REAL("net_energy_sd_mj") REAL("energy_sd_bias_mj")                   \
    REAL("energy_sd_gain_mj") RUN_ID                                                         \
    OF_MACHINE " PRIMARY KEY (id, run_id, machine_id)) PARTITION BY RANGE (run_id);"         \
    "CREATE TABLE run_warnings ("                                                            \
    NN_INTEGER("id") RUN_ID REAL("t_ms") TEXT("code") TEXT("text")                           \
    OF_MACHINE " PRIMARY KEY (id, run_id, machine_id)) PARTITION BY RANGE (run_id);"         \
    "CREATE TABLE run_conditions ("                                                          \
    NN_INTEGER("id") RUN_ID REAL("t_ms") TEXT("device") REAL("temperature_c")                \
    REAL("clock_mhz") REAL("memory_clock_mhz") REAL("utilisation")                           \
    REAL("power_limit_mw") TEXT("throttle")                                                  \
    OF_MACHINE " PRIMARY KEY (id, run_id, machine_id)) PARTITION BY RANGE (run_id);"

#define PART_OF_TOKEN(e, k)                                                                  \
    "CASE WHEN t.step_id IS NULL THEN " e " ELSE " e " * t.share + (" k ") *"                \
    " (t.context_share - t.share) END"
#define CONTEXT_OF(c) "CASE WHEN " c ".component_name = 'attention' THEN"
#define CONTEXT_OF_COMPONENT CONTEXT_OF("c") " coalesce(c.net_energy_mj, c.energy_mj) ELSE 0 END"
#define NET_CONTEXT_OF_COMPONENT CONTEXT_OF("c") " c.net_energy_mj ELSE 0 END"
#define CONTEXT_OF_OPERATION CONTEXT_OF("c") " coalesce(o.net_energy_mj, o.energy_mj) ELSE 0 END"
#define NET_CONTEXT_OF_OPERATION CONTEXT_OF("c") " o.net_energy_mj ELSE 0 END"
#define CONTEXT_OF_LAYER                                                                     \
    "(SELECT total(coalesce(c.net_energy_mj, c.energy_mj)) FROM component_metrics c"         \
    " WHERE c.run_id = l.run_id AND c.layer_metric_id = l.id AND"                            \
    " c.component_name = 'attention')"

#define LAYERS_OF_TOKENS(key)                                                                \
    "SELECT t.run_id, t.id AS token_id, t.phase, t.position, t.sequence, l.id AS"            \
    " layer_metric_id, l.layer_index, l.total_time_ms, l.attention_time_ms, l.mlp_time_ms, " \
    PART_OF_TOKEN("l.energy_mj", CONTEXT_OF_LAYER) " AS energy_mj, l.method,"                \
    " l.activation_mean, l.activation_std, l.activation_max, l.activation_sparsity"          \
    " FROM tokens t JOIN layer_metrics l ON l.run_id = t.run_id AND " key
#define COMPONENTS_OF_TOKENS(layer, join)                                                    \
    "SELECT t.run_id, t.id AS token_id, t.phase, t.position, t.sequence, " layer             \
    " AS layer_index, c.id AS component_metric_id, c.component_name, c.time_ms, "            \
    PART_OF_TOKEN("c.energy_mj", CONTEXT_OF_COMPONENT) " AS energy_mj, "                     \
    PART_OF_TOKEN("c.net_energy_mj", NET_CONTEXT_OF_COMPONENT) " AS net_energy_mj,"          \
    " c.method, c.flops_estimate, c.bytes_estimate, c.activation_mean, c.activation_std,"    \
    " c.activation_max, c.activation_sparsity, c.first_operation_id, c.operation_count"      \
    " FROM tokens t JOIN " join
#define IN_LAYER(key)                                                                        \
    "layer_metrics l ON l.run_id = t.run_id AND " key " JOIN component_metrics c ON"         \
    " c.run_id = l.run_id AND c.layer_metric_id = l.id"
#define OUTSIDE_LAYERS(key)                                                                  \
    "component_metrics c ON c.run_id = t.run_id AND " key " AND c.layer_metric_id IS NULL"

/* For one step, with t one of its tokens. */
#define SUM_OF_STEP(what, table, rest) \
    "(SELECT total(" what ") FROM " table " WHERE " rest ")"
#define PARTS_OF(id, column)                                                                 \
    SUM_OF_STEP("s.self_energy_mj", "pipeline_sections s",                                   \
                "s.run_id = t.run_id AND s." column " = " id) " + "                          \
    SUM_OF_STEP("l.energy_mj", "layer_metrics l",                                            \
                "l.run_id = t.run_id AND l." column " = " id) " + "                          \
    SUM_OF_STEP("c.energy_mj", "component_metrics c",                                        \
                "c.run_id = t.run_id AND c." column " = " id " AND c.layer_metric_id IS NULL")
#define CONTEXT_OF_STEP                                                                      \
    "(SELECT total(coalesce(c.net_energy_mj, c.energy_mj)) FROM layer_metrics l JOIN"        \
    " component_metrics c ON c.run_id = l.run_id AND c.layer_metric_id = l.id WHERE"         \
    " l.run_id = t.run_id AND l.step_id = t.step_id AND c.component_name = 'attention') + "  \
    SUM_OF_STEP("coalesce(c.net_energy_mj, c.energy_mj)", "component_metrics c",             \
                "c.run_id = t.run_id AND c.step_id = t.step_id AND c.layer_metric_id IS NULL" \
                " AND c.component_name = 'attention'")

#define ROWS_OF_RUNS                                                                         \
    "SELECT t.run_id, t.phase, t.position,"                                                  \
    " CASE WHEN t.step_id IS NULL THEN t.sequence END AS sequence,"                          \
    " CASE WHEN t.step_id IS NULL THEN t.id END AS token_id, t.id AS step_id, l.layer_index,"
#define OF_COMPONENTS                                                                        \
    " FROM component_metrics c LEFT JOIN layer_metrics l ON l.run_id = c.run_id AND"         \
    " l.id = c.layer_metric_id JOIN tokens t ON t.run_id = c.run_id AND"                     \
    " t.id = coalesce(l.token_id, l.step_id, c.token_id, c.step_id)"
#define OPERATIONS_OF_COMPONENT                                                              \
    " JOIN deep_operation_metrics o ON o.run_id = c.run_id AND o.id BETWEEN"                 \
    " c.first_operation_id AND c.first_operation_id + c.operation_count - 1"

#define VIEWS                                                                                \
    "CREATE VIEW run_efficiency AS SELECT id AS run_id, created_at, status, model_name,"     \
    " engine, dtype, batch_size, threads, machine, energy_source, input_tokens,"             \
    " output_tokens, total_duration_ms / 1000 AS seconds,"                                   \
    " request_duration_ms / 1000 AS request_seconds, total_energy_mj / 1000 AS joules,"      \
    " net_energy_mj / 1000 AS net_joules, request_energy_mj / 1000 AS request_joules,"       \
    " model_load_energy_mj / 1000 AS model_load_joules, tokens_per_second,"                  \
    " joules_per_token, joules_per_token_sd, typical_token_energy_mj / 1000 AS"              \
    " joules_per_token_typical, disturbed_tokens, disturbed_share,"                          \
    " 1 / nullif(joules_per_token, 0) AS tokens_per_joule, request_energy_mj *"              \
    " request_duration_ms / 1e6 AS energy_delay_product, request_energy_mj /"                \
    " nullif(parameters / 1e6, 0) AS mj_per_million_parameters, request_energy_mj /"         \
    " nullif(active_parameters / 1e6, 0) AS mj_per_million_active_parameters,"               \
    " total_energy_mj / 3.6e9 AS kwh, tags, experiment_name FROM profiling_runs;"            \
    "CREATE VIEW energy_by_phase AS SELECT run_id, phase, duration_ms, energy_mj,"           \
    " energy_mj - 1.96 * energy_sd_mj AS energy_lo_mj, energy_mj + 1.96 * energy_sd_mj AS"   \
    " energy_hi_mj, net_energy_mj, energy_mj * 1000 / nullif(duration_ms, 0) AS power_mw"    \
    " FROM run_phases;"                                                                      \
    "CREATE VIEW steps AS SELECT coalesce(t.step_id, t.id) AS step_id, t.run_id,"            \
    " min(t.phase_id) AS phase_id, min(t.phase) AS phase, min(t.position) AS position,"      \
    " count(*) AS tokens, min(t.start_ms) AS start_ms, max(t.duration_ms) AS duration_ms,"   \
    " sum(t.energy_mj) AS energy_mj, sum(t.net_energy_mj) AS net_energy_mj,"                 \
    " sum(t.self_energy_mj) AS self_energy_mj, max(t.power_snapshot_mw) AS power_mw,"        \
    " max(t.disturbed) AS disturbed FROM tokens t GROUP BY t.run_id,"                        \
    " coalesce(t.step_id, t.id);"                                                            \
    "CREATE VIEW layers_of_tokens AS "                                                       \
    LAYERS_OF_TOKENS("l.token_id = t.id") " UNION ALL "                                      \
    LAYERS_OF_TOKENS("l.step_id = t.step_id") ";"                                            \
    "CREATE VIEW components_of_tokens AS "                                                   \
    COMPONENTS_OF_TOKENS("l.layer_index", IN_LAYER("l.token_id = t.id")) " UNION ALL "       \
    COMPONENTS_OF_TOKENS("l.layer_index", IN_LAYER("l.step_id = t.step_id")) " UNION ALL "   \
    COMPONENTS_OF_TOKENS("NULL", OUTSIDE_LAYERS("c.token_id = t.id")) " UNION ALL "          \
    COMPONENTS_OF_TOKENS("NULL", OUTSIDE_LAYERS("c.step_id = t.step_id")) ";"                \
    "CREATE VIEW operations_of_tokens AS SELECT c.run_id, c.token_id, c.phase, c.position,"  \
    " c.sequence, c.layer_index, c.component_metric_id, c.component_name, o.id AS"           \
    " operation_id, o.operation_name, o.time_ms, "                                           \
    PART_OF_TOKEN("o.energy_mj", CONTEXT_OF_OPERATION) " AS energy_mj, "                     \
    PART_OF_TOKEN("o.net_energy_mj", NET_CONTEXT_OF_OPERATION) " AS net_energy_mj,"          \
    " c.method, o.flops_estimate, o.bytes_estimate FROM components_of_tokens c JOIN tokens"  \
    " t ON t.run_id = c.run_id AND t.id = c.token_id" OPERATIONS_OF_COMPONENT ";"            \
    "CREATE VIEW energy_by_sequence AS SELECT run_id, sequence, count(*) FILTER (WHERE"      \
    " phase = 'prefill') AS prompts, max(CASE WHEN phase = 'prefill' THEN context_tokens"    \
    " END) AS prompt_tokens, count(*) AS output_tokens, sum(energy_mj) AS energy_mj,"        \
    " sum(net_energy_mj) AS net_energy_mj, sum(CASE WHEN phase = 'prefill' THEN energy_mj"   \
    " END) AS prefill_energy_mj, sum(CASE WHEN phase = 'decode' THEN energy_mj END) AS"      \
    " decode_energy_mj FROM tokens GROUP BY run_id, sequence;"                               \
    "CREATE VIEW components_of_runs AS " ROWS_OF_RUNS                                        \
    " c.id AS component_metric_id, c.component_name, c.time_ms, c.energy_mj,"                \
    " c.net_energy_mj, c.energy_sd_mj, c.method, c.flops_estimate, c.bytes_estimate,"        \
    " c.activation_mean, c.activation_std, c.activation_max, c.activation_sparsity"          \
    OF_COMPONENTS ";"                                                                        \
    "CREATE VIEW operations_of_runs AS " ROWS_OF_RUNS                                        \
    " c.component_name, c.id AS component_metric_id, o.operation_name, o.time_ms,"           \
    " o.energy_mj, o.net_energy_mj, o.energy_sd_mj, c.method, o.flops_estimate,"             \
    " o.bytes_estimate, o.tensor_mean, o.tensor_std, o.tensor_max, o.extra_metrics"          \
    OF_COMPONENTS OPERATIONS_OF_COMPONENT ";"                                                \
    "CREATE VIEW energy_by_component AS SELECT run_id, phase, component_name, count(*) AS"   \
    " count, sum(time_ms) AS time_ms, sum(energy_mj) AS energy_mj, sum(flops_estimate) AS"   \
    " flops, sum(bytes_estimate) AS bytes FROM components_of_runs"                           \
    " GROUP BY run_id, phase, component_name;"                                               \
    "CREATE VIEW energy_by_layer AS SELECT t.run_id, t.phase, l.layer_index,"                \
    " sum(l.total_time_ms) AS time_ms, sum(l.attention_time_ms) AS attention_time_ms,"       \
    " sum(l.mlp_time_ms) AS mlp_time_ms, sum(l.energy_mj) AS energy_mj FROM tokens t JOIN"   \
    " layer_metrics l ON l.run_id = t.run_id AND coalesce(l.token_id, l.step_id) = t.id"     \
    " GROUP BY t.run_id, t.phase, l.layer_index;"                                            \
    "CREATE VIEW energy_of_token_parts AS SELECT t.id AS token_id, t.phase_id, t.position,"  \
    " t.energy_mj, t.self_energy_mj + CASE WHEN t.step_id IS NULL THEN "                     \
    PARTS_OF("t.id", "token_id")                                                             \
    " ELSE t.share * (" PARTS_OF("t.step_id", "step_id") ") + (t.context_share - t.share)"   \
    " * (" CONTEXT_OF_STEP ") END AS parts_mj, t.run_id"                                     \
    " FROM tokens t WHERE t.energy_mj IS NOT NULL;"                                          \
    "CREATE VIEW energy_of_section_parts AS SELECT s.id AS section_id, s.phase_id,"          \
    " coalesce(s.self_energy_mj, 0) + (SELECT total(c.energy_mj) FROM component_metrics c"   \
    "  WHERE c.run_id = s.run_id AND c.section_id = s.id AND c.token_id IS NULL AND"         \
    "  c.step_id IS NULL AND c.layer_metric_id IS NULL) AS parts_mj, s.run_id"               \
    " FROM pipeline_sections s WHERE s.token_id IS NULL AND s.step_id IS NULL;"              \
    "CREATE VIEW conservation AS"                                                            \
    " SELECT 'component' AS level, c.id AS row_id, c.energy_mj AS whole_mj,"                 \
    "  c.self_energy_mj + total(o.energy_mj) AS parts_mj, c.run_id"                          \
    "  FROM component_metrics c" OPERATIONS_OF_COMPONENT                                     \
    "  WHERE c.energy_mj IS NOT NULL GROUP BY c.run_id, c.id, c.energy_mj, c.self_energy_mj" \
    " UNION ALL SELECT 'layer', l.id, l.energy_mj, l.self_energy_mj + total(c.energy_mj),"   \
    "  l.run_id FROM layer_metrics l JOIN component_metrics c ON c.run_id = l.run_id AND"    \
    "  c.layer_metric_id = l.id WHERE l.energy_mj IS NOT NULL"                               \
    "  GROUP BY l.run_id, l.id, l.energy_mj, l.self_energy_mj"                               \
    " UNION ALL SELECT 'token', token_id, energy_mj, parts_mj, run_id"                       \
    "  FROM energy_of_token_parts"                                                           \
    " UNION ALL SELECT 'step', t.id, (SELECT sum(energy_mj) FROM tokens s WHERE"             \
    "   s.run_id = t.run_id AND s.step_id = t.id AND s.phase_id = t.phase_id),"              \
    "  (SELECT sum(self_energy_mj) FROM tokens s WHERE s.run_id = t.run_id AND"              \
    "   s.step_id = t.id AND s.phase_id = t.phase_id) + " PARTS_OF("t.id", "step_id")        \
    "  , t.run_id FROM tokens t WHERE t.step_id = t.id AND t.energy_mj IS NOT NULL"          \
    " UNION ALL SELECT 'phase', p.id, p.energy_mj, p.self_energy_mj"                         \
    "  + (SELECT total(parts_mj) FROM energy_of_token_parts t WHERE t.run_id = p.run_id"     \
    "   AND t.phase_id = p.id) + (SELECT total(parts_mj) FROM energy_of_section_parts s"     \
    "   WHERE s.run_id = p.run_id AND s.phase_id = p.id), p.run_id"                          \
    "  FROM run_phases p WHERE p.energy_mj IS NOT NULL"                                      \
    " UNION ALL SELECT 'run', r.rowid, r.total_energy_mj, total(p.energy_mj), r.id"          \
    "  FROM profiling_runs r JOIN run_phases p ON p.run_id = r.id"                           \
    "  WHERE r.total_energy_mj IS NOT NULL GROUP BY r.id, r.rowid, r.total_energy_mj;"


#define INDICES                                                                              \
    "CREATE UNIQUE INDEX runs_by_id ON profiling_runs(id);"                                  \
    "CREATE INDEX runs_by_date ON profiling_runs(created_ns);"                               \
    "CREATE INDEX runs_by_duration ON profiling_runs(total_duration_ms);"                    \
    "CREATE INDEX runs_by_energy ON profiling_runs(total_energy_mj);"                        \
    "CREATE INDEX runs_by_speed ON profiling_runs(tokens_per_second);"                       \
    "CREATE INDEX runs_by_cost ON profiling_runs(joules_per_token);"                         \
    "CREATE INDEX runs_by_model ON profiling_runs(model_name, created_ns);"                  \
    "CREATE INDEX runs_by_machine ON profiling_runs(machine_id, created_ns);"                \
    "CREATE INDEX runs_by_experiment ON profiling_runs(experiment_name, created_ns)"         \
    " WHERE experiment_name IS NOT NULL;"                                                    \
    "CREATE INDEX runs_by_group ON profiling_runs(repeat_group)"                             \
    " WHERE repeat_group IS NOT NULL;"                                                       \
    "CREATE INDEX tags_by_run ON run_tags(run_id);"                                          \
    "CREATE UNIQUE INDEX charts_by_run ON run_charts(run_id, chart);"                        \
    "CREATE INDEX rails_by_run ON run_rails(run_id);"                                        \
    "CREATE INDEX rail_energy_by_run ON run_rail_energy(run_id);"                            \
    "CREATE INDEX phases_by_run ON run_phases(run_id);"                                      \
    "CREATE INDEX classes_by_run ON run_classes(run_id);"                                    \
    "CREATE INDEX warnings_by_run ON run_warnings(run_id);"                                  \
    "CREATE INDEX conditions_by_run ON run_conditions(run_id);"                              \
    "CREATE INDEX tokens_by_run ON tokens(run_id);"                                          \
    "CREATE INDEX tokens_by_phase ON tokens(phase_id);"                                      \
    "CREATE INDEX tokens_by_step ON tokens(step_id) WHERE step_id IS NOT NULL;"              \
    "CREATE INDEX sections_by_run ON pipeline_sections(run_id);"                             \
    "CREATE INDEX sections_by_phase ON pipeline_sections(phase_id);"                         \
    "CREATE INDEX sections_by_token ON pipeline_sections(token_id)"                          \
    " WHERE token_id IS NOT NULL;"                                                           \
    "CREATE INDEX sections_by_step ON pipeline_sections(step_id)"                            \
    " WHERE step_id IS NOT NULL;"                                                            \
    "CREATE INDEX layers_by_token ON layer_metrics(token_id);"                               \
    "CREATE INDEX layers_by_step ON layer_metrics(step_id) WHERE step_id IS NOT NULL;"       \
    "CREATE INDEX components_by_layer ON component_metrics(layer_metric_id)"                 \
    " WHERE layer_metric_id IS NOT NULL;"                                                    \
    "CREATE INDEX components_outside ON component_metrics(token_id)"                         \
    " WHERE layer_metric_id IS NULL;"                                                        \
    "CREATE INDEX components_of_sections ON component_metrics(section_id)"                   \
    " WHERE layer_metric_id IS NULL AND token_id IS NULL AND step_id IS NULL;"               \
    "CREATE INDEX components_of_steps ON component_metrics(step_id)"                         \
    " WHERE layer_metric_id IS NULL AND step_id IS NOT NULL;"                                \
    /* The largest tables are appended to in the order of runs: an index of block ranges. */ \
    "CREATE INDEX samples_by_run ON power_samples USING brin (run_id);"                      \
    "CREATE INDEX layers_by_run ON layer_metrics USING brin (run_id);"                       \
    "CREATE INDEX components_by_run ON component_metrics USING brin (run_id);"               \
    "CREATE INDEX operations_by_run ON deep_operation_metrics USING brin (run_id);"          \
    /* Packed numbers are stored uncompressed: compression costs more than it saves. */      \
    "ALTER TABLE run_charts ALTER COLUMN data SET STORAGE EXTERNAL;"                         \
    "ALTER TABLE run_rails ALTER COLUMN power_mw SET STORAGE EXTERNAL;"

#define RUN_TABLES                                                                           \
    "ARRAY['profiling_runs', 'run_texts', 'run_tags', 'run_rows', 'run_charts',"             \
    " 'run_rails', 'power_samples', 'run_rail_energy', 'run_phases', 'run_classes',"         \
    " 'tokens', 'pipeline_sections', 'layer_metrics', 'component_metrics',"                  \
    " 'deep_operation_metrics', 'run_warnings', 'run_conditions']"

/* SECURITY DEFINER, so that writers need no privilege to create tables. */
#define AS_OWNER " LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS "

static const char version_1[] =
    "CREATE SEQUENCE run_charts_id;"
    TABLES
    "CREATE TABLE run_queue (" NN_TEXT("id") NN_INTEGER("queued_ns") NN_TEXT("request")
    OF_MACHINE " PRIMARY KEY (id));"
    "CREATE TABLE experiments (" NN_TEXT("name") NN_INTEGER("created_ns") NN_TEXT("plan")
    TEXT("losses") TEXT("state") TEXT("error") INTEGER("queued_ns") " PRIMARY KEY (name));"
    "CREATE TABLE perjoule_schema (application text PRIMARY KEY, version bigint NOT NULL);"
    INDICES

    /* SQLite's functions that statements and views use. */
    "CREATE AGGREGATE total(double precision)"
    " (sfunc = float8pl, stype = double precision, initcond = '0', parallel = safe,"
    "  combinefunc = float8pl);"
    "CREATE FUNCTION instr(text, text) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE"
    " AS 'SELECT strpos($1, $2)';"

    /* The lowest UUIDv7 of a month. */
    "CREATE FUNCTION perjoule_first_id(month date) RETURNS text LANGUAGE sql IMMUTABLE AS"
    " $$SELECT substr(h, 1, 8) || '-' || substr(h, 9) FROM (SELECT lpad(to_hex("
    "  (extract(epoch FROM month::timestamp) * 1000)::bigint), 12, '0') AS h) AS hex$$;"
    /* The partitions that hold a range of ids; without a default one, attaching locks nothing
     * that others read or write. */
    "CREATE FUNCTION perjoule_attach(name text, of text, low text, high text) RETURNS void"
    " LANGUAGE plpgsql AS $$BEGIN IF to_regclass(quote_ident(name)) IS NULL THEN"
    "  EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING STORAGE)', name, of);"
    "  EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', of,"
    "   name, low, high); END IF; END$$;"
    "CREATE FUNCTION perjoule_make_partitions(month date) RETURNS void" AS_OWNER
    " $$DECLARE name text; first date := date_trunc('month', month); BEGIN"
    "  PERFORM pg_advisory_xact_lock(5785247, 2);"
    "  FOREACH name IN ARRAY " RUN_TABLES " LOOP"
    "   PERFORM perjoule_attach(name || to_char(first, '_YYYY_MM'), name,"
    "    quote_literal(perjoule_first_id(first)),"
    "    quote_literal(perjoule_first_id((first + interval '1 month')::date)));"
    "  END LOOP; END$$;"
    /* For ids outside the range of months, which other programs may have made. */
    "DO $$DECLARE name text; BEGIN FOREACH name IN ARRAY " RUN_TABLES " LOOP"
    "  PERFORM perjoule_attach(name || '_before', name, 'MINVALUE',"
    "   quote_literal(perjoule_first_id('2020-01-01')));"
    "  PERFORM perjoule_attach(name || '_after', name,"
    "   quote_literal(perjoule_first_id('2100-01-01')), 'MAXVALUE');"
    "  EXECUTE format('CREATE SEQUENCE %I', name || '_rows'); END LOOP; END$$;"
    /* Reserves the ids of a run's rows; they are used up even if the run is not stored. */
    "CREATE FUNCTION perjoule_reserve(tables text[], counts bigint[]) RETURNS bigint[]" AS_OWNER
    " $$DECLARE firsts bigint[]; first bigint; BEGIN"
    "  PERFORM pg_advisory_lock(5785247, 3);"
    "  FOR i IN 1 .. array_length(tables, 1) LOOP"
    "   first := nextval(quote_ident(tables[i] || '_rows'));"
    "   PERFORM setval(quote_ident(tables[i] || '_rows'), first + greatest(counts[i] - 1, 0),"
    "    counts[i] > 0);"
    "   firsts[i] := first;"
    "  END LOOP;"
    "  PERFORM pg_advisory_unlock(5785247, 3);"
    "  RETURN firsts; END$$;"
    "REVOKE ALL ON FUNCTION perjoule_make_partitions(date) FROM PUBLIC;"
    "REVOKE ALL ON FUNCTION perjoule_reserve(text[], bigint[]) FROM PUBLIC;"
    VIEWS;

/* Heartbeats (store/machines.h). If the roles of `perjoule setup --postgres` exist already, they
 * get their grants here. */
static const char version_2[] =
    "CREATE TABLE machine_states (" NN_TEXT("name") NN_INTEGER("seen_ns") TEXT("version")
    TEXT("sensors") TEXT("energy_source") TEXT("day") REAL("energy_mj") TEXT("throttle")
    REAL("clock_offset_ms") REAL("clock_uncertainty_ms") " PRIMARY KEY (name));"
    "DO $$BEGIN IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'perjoule_writer') THEN"
    "  GRANT SELECT, INSERT, UPDATE, DELETE ON machine_states TO perjoule_writer; END IF;"
    " IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'perjoule_reader') THEN"
    "  GRANT SELECT ON machine_states TO perjoule_reader; END IF; END$$;";

/* Lists sort descending with NULLs last, for which an ascending index read backwards has the NULLs
 * at the wrong end. */
static const char version_3[] =
    "CREATE INDEX runs_by_duration_down ON profiling_runs(total_duration_ms DESC NULLS LAST);"
    "CREATE INDEX runs_by_energy_down ON profiling_runs(total_energy_mj DESC NULLS LAST);"
    "CREATE INDEX runs_by_speed_down ON profiling_runs(tokens_per_second DESC NULLS LAST);"
    "CREATE INDEX runs_by_cost_down ON profiling_runs(joules_per_token DESC NULLS LAST);";

/* Which machine's server is to run a queued one. */
static const char version_4[] =
    "ALTER TABLE experiments ADD COLUMN machine text" SORTED_BY_BYTES ";";

/* Searches of prompts by any three characters, where the server has the extension and the role may
 * use it; elsewhere a search reads all prompts. */
static const char version_5[] =
    "DO $$BEGIN BEGIN CREATE EXTENSION IF NOT EXISTS pg_trgm; EXCEPTION WHEN OTHERS THEN NULL; END;"
    " IF EXISTS (SELECT 1 FROM pg_opclass WHERE opcname = 'gin_trgm_ops' AND"
    "  pg_opclass_is_visible(oid)) THEN"
    "  CREATE INDEX runs_by_prompt ON profiling_runs USING gin (lower(prompt) gin_trgm_ops);"
    " END IF; END$$;";

/* A B-tree takes no key of more than a third of a page, so that a run with a longer tag or name could
 * never be stored: hashes take any. */
static const char version_6[] =
    "DROP INDEX runs_by_model; DROP INDEX runs_by_experiment; DROP INDEX runs_by_group;"
    "CREATE INDEX runs_by_model ON profiling_runs USING hash (model_name);"
    "CREATE INDEX runs_by_experiment ON profiling_runs USING hash (experiment_name)"
    " WHERE experiment_name IS NOT NULL;"
    "CREATE INDEX runs_by_group ON profiling_runs USING hash (repeat_group)"
    " WHERE repeat_group IS NOT NULL;"
    "ALTER TABLE run_tags DROP CONSTRAINT run_tags_pkey;"
    "CREATE UNIQUE INDEX tags_once ON run_tags (md5(tag), run_id, machine_id);"
    "CREATE INDEX runs_by_tag ON run_tags USING hash (tag);";
/* Lists: an index with what they are filtered and sorted by, a tenth as large as the runs (which have
 * their prompts, models and settings with them). A B-tree's entry is at most a third of a page, so
 * that it leaves out runs with very long names; the index of their length finds these, and gives the
 * planner its statistics of how few they are. The ids in the others let the engine pass over fifty
 * thousand runs without reading them. */
#define SORTED(name, column)                                                                 \
    "DROP INDEX " name "; DROP INDEX " name "_down;"                                         \
    "CREATE INDEX " name " ON profiling_runs(" column ", created_ns DESC) INCLUDE (id);"     \
    "CREATE INDEX " name "_down ON profiling_runs(" column " DESC NULLS LAST,"               \
    " created_ns DESC) INCLUDE (id);"
static const char version_7[] =
    "DROP INDEX runs_by_date; CREATE INDEX runs_by_date ON profiling_runs(created_ns, id);"
    SORTED("runs_by_duration", "total_duration_ms") SORTED("runs_by_energy", "total_energy_mj")
    SORTED("runs_by_speed", "tokens_per_second") SORTED("runs_by_cost", "joules_per_token")
    "CREATE INDEX runs_listed ON profiling_runs(created_ns) INCLUDE (id, machine, model_name,"
    " engine, dtype, experiment_name, status, energy_source, scope, level, total_duration_ms,"
    " total_energy_mj, tokens_per_second, joules_per_token) WHERE " PJ_PG_LISTED_RUNS ";"
    "CREATE INDEX runs_by_names ON profiling_runs ((" PJ_PG_BYTES_OF_NAMES "));";
/* clang-format on */

const char *const postgres_history[] = {version_1, version_2, version_3, version_4,
                                        version_5, version_6, version_7, NULL};
