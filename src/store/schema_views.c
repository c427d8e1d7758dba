/*
 * The views of a database, in the common subset of SQL. In a comment, "RUN l=t" says that rows of l
 * are of the run that t is of, and "RUN c" stands for c's run_id among columns, where every table
 * has it (driver.h).
 */
#include "store/schema.h"

#include <stddef.h>

/* clang-format off */
/* A token's part of a row in its step: `e` is the row's energy, `k` the part of its net energy that
 * is split by context. */
#define PART_OF_TOKEN(e, k)                                                                  \
    "CASE WHEN t.step_id IS NULL THEN " e " ELSE " e " * t.share + (" k ") *"                \
    " (t.context_share - t.share) END"
#define CONTEXT_OF(energy) "CASE WHEN c.component_name = 'attention' THEN " energy " ELSE 0 END"
#define GROSS_OR_NET(row) "coalesce(" row ".net_energy_mj, " row ".energy_mj)"
#define ATTENTION_OF_LAYERS                                                                  \
    "SELECT total(" GROSS_OR_NET("c") ") FROM component_metrics c WHERE"                     \
    " c.component_name = 'attention'"

#define LAYERS_OF_TOKENS(key)                                                                \
    "SELECT t.run_id, t.id AS token_id, t.phase, t.position, t.sequence, l.id AS"            \
    " layer_metric_id, l.layer_index, l.total_time_ms, l.attention_time_ms, l.mlp_time_ms, " \
    PART_OF_TOKEN("l.energy_mj", "(" ATTENTION_OF_LAYERS                                     \
                  " AND c.layer_metric_id = l.id/*RUN c=l*/)") " AS energy_mj, l.method,"    \
    " l.activation_mean, l.activation_std, l.activation_max, l.activation_sparsity"          \
    " FROM tokens t JOIN layer_metrics l ON " key "/*RUN l=t*/"
#define COMPONENTS_OF_TOKENS(layer, join)                                                    \
    "SELECT t.run_id, t.id AS token_id, t.phase, t.position, t.sequence, " layer             \
    " AS layer_index, c.id AS component_metric_id, c.component_name, c.time_ms, "            \
    PART_OF_TOKEN("c.energy_mj", CONTEXT_OF(GROSS_OR_NET("c"))) " AS energy_mj, "            \
    PART_OF_TOKEN("c.net_energy_mj", CONTEXT_OF("c.net_energy_mj")) " AS net_energy_mj,"     \
    " c.method, c.flops_estimate, c.bytes_estimate, c.activation_mean, c.activation_std,"    \
    " c.activation_max, c.activation_sparsity, c.first_operation_id, c.operation_count"      \
    " FROM tokens t JOIN " join
#define IN_LAYERS(key)                                                                       \
    COMPONENTS_OF_TOKENS("l.layer_index", "layer_metrics l ON " key "/*RUN l=t*/ JOIN"       \
                         " component_metrics c ON c.layer_metric_id = l.id/*RUN c=l*/")
#define OUTSIDE_LAYERS(key)                                                                  \
    COMPONENTS_OF_TOKENS("NULL", "component_metrics c ON " key                               \
                         " AND c.layer_metric_id IS NULL/*RUN c=t*/")
#define OPERATIONS_OF_COMPONENTS                                                             \
    " deep_operation_metrics o ON o.id BETWEEN c.first_operation_id AND"                     \
    " c.first_operation_id + c.operation_count - 1/*RUN o=c*/"

/* For one step, with t one of its tokens. */
#define SUM_OF_STEP(row, energy, table, rest)                                                \
    "(SELECT total(" energy ") FROM " table " " row " WHERE " rest "/*RUN " row "=t*/)"
#define PARTS_OF(id, column)                                                                 \
    SUM_OF_STEP("s", "s.self_energy_mj", "pipeline_sections", "s." column " = " id) " + "    \
    SUM_OF_STEP("l", "l.energy_mj", "layer_metrics", "l." column " = " id) " + "             \
    SUM_OF_STEP("c", "c.energy_mj", "component_metrics",                                     \
                "c." column " = " id " AND c.layer_metric_id IS NULL")
#define CONTEXT_OF_STEP                                                                      \
    "(SELECT total(" GROSS_OR_NET("c") ") FROM layer_metrics l JOIN component_metrics c ON"  \
    " c.layer_metric_id = l.id/*RUN c=l*/ WHERE l.step_id = t.step_id AND"                   \
    " c.component_name = 'attention'/*RUN l=t*/) + "                                         \
    SUM_OF_STEP("c", GROSS_OR_NET("c"), "component_metrics", "c.step_id = t.step_id AND"     \
                " c.layer_metric_id IS NULL AND c.component_name = 'attention'")

#define ROWS_OF_RUNS                                                                         \
    "SELECT t.run_id, t.phase, t.position,"                                                  \
    " CASE WHEN t.step_id IS NULL THEN t.sequence END AS sequence,"                          \
    " CASE WHEN t.step_id IS NULL THEN t.id END AS token_id, t.id AS step_id, l.layer_index,"
#define OF_COMPONENTS                                                                        \
    " FROM component_metrics c LEFT JOIN layer_metrics l ON l.id = c.layer_metric_id"        \
    "/*RUN l=c*/ JOIN tokens t ON t.id = coalesce(l.token_id, l.step_id, c.token_id,"        \
    " c.step_id)/*RUN t=c*/"
#define ENERGY_OF_LAYERS(key)                                                                \
    "SELECT t.run_id, t.phase, l.layer_index, l.total_time_ms, l.attention_time_ms,"         \
    " l.mlp_time_ms, l.energy_mj FROM tokens t JOIN layer_metrics l ON " key "/*RUN l=t*/"

/* An end of an energy's interval, as by pj_bounds_of: symmetric in logarithms where it is positive,
 * so that it stays positive. */
#define HALF "(1.96 * energy_sd_mj)"
#define BOUND(sign)                                                                        \
    "CASE WHEN energy_mj > 0 THEN sqrt(energy_mj * energy_mj + " HALF " * " HALF ")" sign  \
    " " HALF " ELSE energy_mj " sign " " HALF " END"

const pj_schema_view pj_schema_views[] = {
    {"run_efficiency",
     "SELECT id AS run_id, created_at, status, model_name, engine, dtype, batch_size, threads,"
     " machine, energy_source, input_tokens, output_tokens, total_duration_ms / 1000 AS seconds,"
     " request_duration_ms / 1000 AS request_seconds, total_energy_mj / 1000 AS joules,"
     " net_energy_mj / 1000 AS net_joules, request_energy_mj / 1000 AS request_joules,"
     " model_load_energy_mj / 1000 AS model_load_joules, tokens_per_second, joules_per_token,"
     " joules_per_token_sd, typical_token_energy_mj / 1000 AS joules_per_token_typical,"
     " disturbed_tokens, disturbed_share, 1 / nullif(joules_per_token, 0) AS tokens_per_joule,"
     " request_energy_mj * request_duration_ms / 1e6 AS energy_delay_product,"
     " request_energy_mj / nullif(parameters / 1e6, 0) AS mj_per_million_parameters,"
     " request_energy_mj / nullif(active_parameters / 1e6, 0) AS"
     " mj_per_million_active_parameters, total_energy_mj / 3.6e9 AS kwh, tags, experiment_name"
     " FROM profiling_runs"},
    {"energy_by_phase",
     "SELECT run_id, phase, duration_ms, energy_mj, " BOUND("-") " AS energy_lo_mj, " BOUND("+")
     " AS energy_hi_mj, net_energy_mj, energy_mj * 1000 / nullif(duration_ms, 0) AS power_mw"
     " FROM run_phases"},
    {"steps",
     "SELECT coalesce(t.step_id, t.id) AS step_id, t.run_id, min(t.phase_id) AS phase_id,"
     " min(t.phase) AS phase, min(t.position) AS position, count(*) AS tokens, min(t.start_ms)"
     " AS start_ms, max(t.duration_ms) AS duration_ms, sum(t.energy_mj) AS energy_mj,"
     " sum(t.net_energy_mj) AS net_energy_mj, sum(t.self_energy_mj) AS self_energy_mj,"
     " max(t.power_snapshot_mw) AS power_mw, max(t.disturbed) AS disturbed FROM tokens t"
     " GROUP BY t.run_id, coalesce(t.step_id, t.id)"},
    {"layers_of_tokens",
     LAYERS_OF_TOKENS("l.token_id = t.id") " UNION ALL " LAYERS_OF_TOKENS("l.step_id = t.step_id")},
    {"components_of_tokens",
     IN_LAYERS("l.token_id = t.id") " UNION ALL " IN_LAYERS("l.step_id = t.step_id") " UNION ALL "
     OUTSIDE_LAYERS("c.token_id = t.id") " UNION ALL " OUTSIDE_LAYERS("c.step_id = t.step_id")},
    {"operations_of_tokens",
     "SELECT c.run_id, c.token_id, c.phase, c.position, c.sequence, c.layer_index,"
     " c.component_metric_id, c.component_name, o.id AS operation_id, o.operation_name, o.time_ms, "
     PART_OF_TOKEN("o.energy_mj", CONTEXT_OF(GROSS_OR_NET("o"))) " AS energy_mj, "
     PART_OF_TOKEN("o.net_energy_mj", CONTEXT_OF("o.net_energy_mj")) " AS net_energy_mj, c.method,"
     " o.flops_estimate, o.bytes_estimate FROM components_of_tokens c JOIN tokens t ON"
     " t.id = c.token_id/*RUN t=c*/ JOIN" OPERATIONS_OF_COMPONENTS},
    {"energy_by_sequence",
     "SELECT run_id, sequence, count(*) FILTER (WHERE phase = 'prefill') AS prompts,"
     " max(CASE WHEN phase = 'prefill' THEN context_tokens END) AS prompt_tokens, count(*) AS"
     " output_tokens, sum(energy_mj) AS energy_mj, sum(net_energy_mj) AS net_energy_mj,"
     " sum(CASE WHEN phase = 'prefill' THEN energy_mj END) AS prefill_energy_mj,"
     " sum(CASE WHEN phase = 'decode' THEN energy_mj END) AS decode_energy_mj"
     " FROM tokens GROUP BY run_id, sequence"},
    {"components_of_runs",
     ROWS_OF_RUNS " c.id AS component_metric_id, c.component_name, c.time_ms, c.energy_mj,"
     " c.net_energy_mj, c.energy_sd_mj, c.method, c.flops_estimate, c.bytes_estimate,"
     " c.activation_mean, c.activation_std, c.activation_max, c.activation_sparsity" OF_COMPONENTS},
    {"operations_of_runs",
     ROWS_OF_RUNS " c.component_name, c.id AS component_metric_id, o.operation_name, o.time_ms,"
     " o.energy_mj, o.net_energy_mj, o.energy_sd_mj, c.method, o.flops_estimate, o.bytes_estimate,"
     " o.tensor_mean, o.tensor_std, o.tensor_max, o.extra_metrics" OF_COMPONENTS
     " JOIN" OPERATIONS_OF_COMPONENTS},
    {"energy_by_component",
     "SELECT run_id, phase, component_name, count(*) AS count, sum(time_ms) AS time_ms,"
     " sum(energy_mj) AS energy_mj, sum(flops_estimate) AS flops, sum(bytes_estimate) AS bytes"
     " FROM components_of_runs GROUP BY run_id, phase, component_name"},
    {"energy_by_layer",
     "SELECT run_id, phase, layer_index, sum(total_time_ms) AS time_ms, sum(attention_time_ms) AS"
     " attention_time_ms, sum(mlp_time_ms) AS mlp_time_ms, sum(energy_mj) AS energy_mj FROM ("
     ENERGY_OF_LAYERS("l.token_id = t.id") " UNION ALL " ENERGY_OF_LAYERS("l.step_id = t.id")
     ") AS layers GROUP BY run_id, phase, layer_index"},
    /* Energy of each level and of its parts, equal up to rounding. A batch's step counts as one part,
     * because its tokens share the layers. */
    {"energy_of_token_parts",
     "SELECT t.id AS token_id, t.phase_id, t.position, t.energy_mj, t.self_energy_mj + CASE WHEN"
     " t.step_id IS NULL THEN " PARTS_OF("t.id", "token_id") " ELSE t.share * ("
     PARTS_OF("t.step_id", "step_id") ") + (t.context_share - t.share) * (" CONTEXT_OF_STEP
     ") END AS parts_mj, t.run_id FROM tokens t WHERE t.energy_mj IS NOT NULL"},
    {"energy_of_section_parts",
     "SELECT s.id AS section_id, s.phase_id, coalesce(s.self_energy_mj, 0) + (SELECT"
     " total(c.energy_mj) FROM component_metrics c WHERE c.section_id = s.id AND c.token_id IS NULL"
     " AND c.step_id IS NULL AND c.layer_metric_id IS NULL/*RUN c=s*/) AS parts_mj, s.run_id"
     " FROM pipeline_sections s WHERE s.token_id IS NULL AND s.step_id IS NULL"},
    {"conservation",
     "SELECT 'component' AS level, c.id AS row_id, min(c.energy_mj) AS whole_mj,"
     "  min(c.self_energy_mj) + total(o.energy_mj) AS parts_mj/*RUN c*/"
     "  FROM component_metrics c CROSS JOIN" OPERATIONS_OF_COMPONENTS
     "  WHERE c.energy_mj IS NOT NULL GROUP BY c.id/*RUN c*/"
     " UNION ALL SELECT 'layer', l.id, min(l.energy_mj), min(l.self_energy_mj) +"
     "  total(c.energy_mj)/*RUN l*/ FROM layer_metrics l JOIN component_metrics c ON"
     "  c.layer_metric_id = l.id/*RUN c=l*/ WHERE l.energy_mj IS NOT NULL GROUP BY l.id/*RUN l*/"
     " UNION ALL SELECT 'token', token_id, energy_mj, parts_mj/*RUN e*/"
     "  FROM energy_of_token_parts e"
     " UNION ALL SELECT 'step', t.id, (SELECT sum(energy_mj) FROM tokens s WHERE s.step_id = t.id"
     "   AND s.phase_id = t.phase_id/*RUN s=t*/), (SELECT sum(self_energy_mj) FROM tokens s WHERE"
     "   s.step_id = t.id AND s.phase_id = t.phase_id/*RUN s=t*/) + " PARTS_OF("t.id", "step_id")
     "  /*RUN t*/ FROM tokens t WHERE t.step_id = t.id AND t.energy_mj IS NOT NULL"
     " UNION ALL SELECT 'phase', p.id, p.energy_mj, p.self_energy_mj"
     "  + (SELECT total(parts_mj) FROM energy_of_token_parts t WHERE t.phase_id = p.id/*RUN t=p*/)"
     "  + (SELECT total(parts_mj) FROM energy_of_section_parts s WHERE s.phase_id ="
     "     p.id/*RUN s=p*/)/*RUN p*/ FROM run_phases p WHERE p.energy_mj IS NOT NULL"
     " UNION ALL SELECT 'run', min(r.rowid), min(r.total_energy_mj), total(p.energy_mj)/*RUN p*/"
     "  FROM profiling_runs r JOIN run_phases p ON p.run_id = r.id"
     /* that of a run in which a device without a rail worked has no parts */
     "  WHERE r.total_energy_mj IS NOT NULL GROUP BY r.id/*RUN p*/"
     "  HAVING count(p.energy_mj) = count(*)"},
    {NULL},
};
