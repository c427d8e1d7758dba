/* Maps the columns of every table to members of rows in memory, for reading and writing. */
#include "store/rows.h"

#include "trace/request.h"
#include "trace/statistics.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* One column; tools/columns.py reads these lines, too. */
#define MEMBER(row, member) .offset = offsetof(row, member), .bytes = sizeof(((row *)0)->member)
#define COLUMN(label, kept_as, row, member)                             \
    {                                                                   \
        .name = label, .type = PJ_COLUMN_##kept_as, MEMBER(row, member) \
    }
#define NEEDED(path, label, kept_as, of_kind, row, member)                                \
    {                                                                                     \
        .name = label, .type = PJ_COLUMN_##kept_as, .kind = of_kind, MEMBER(row, member), \
        .required = true, .shown = path                                                   \
    }
/* A figure of the run that its summary shows elsewhere than under its own name. */
#define SHOWN(path, label, kept_as, row, member)                                       \
    {                                                                                  \
        .name = label, .type = PJ_COLUMN_##kept_as, MEMBER(row, member), .shown = path \
    }
#define DISTURBED_SUM(path, label, member) \
    SHOWN("disturbance." path, label, DOUBLE, pj_run_info, member)
#define NAMED(label, names, row, member)                                                     \
    {                                                                                        \
        .name = label, .type = PJ_COLUMN_NAME, .kind = PJ_NAMES_##names, MEMBER(row, member) \
    }
#define REFERENCE(label, table, row, member)                                                      \
    {                                                                                             \
        .name = label, .type = PJ_COLUMN_REFERENCE, .kind = PJ_TABLE_##table, MEMBER(row, member) \
    }
/* A reference to the row that this one is deleted with. */
#define OWNER(label, table, row, member)                                                           \
    {                                                                                              \
        .name = label, .type = PJ_COLUMN_REFERENCE, .kind = PJ_TABLE_##table, MEMBER(row, member), \
        .is_owner = true                                                                           \
    }
#define ARRAY(label, row, member) COLUMN(label, ARRAY_NAME, row, member)

#define ENERGY(row, member)                                \
    COLUMN("energy_mj", NJ, row, member.gross_nj),         \
        COLUMN("net_energy_mj", NJ, row, member.net_nj),   \
        COLUMN("self_energy_mj", NJ, row, member.self_nj), \
        COLUMN("energy_sd_mj", FLOAT, row, member.sd_mj),  \
        COLUMN("planted_mj", NJ, row, member.planted_nj),  \
        NAMED("method", METHOD, row, member.method)

/* Components of a standard deviation. */
#define SD_COLUMNS(name, row, member)                        \
    COLUMN(name "_random_mj", FLOAT, row, member.random_mj), \
        COLUMN(name "_bias_mj", FLOAT, row, member.bias_mj), \
        COLUMN(name "_gain_mj", FLOAT, row, member.gain_mj)

/* The random part of net energy's is that of gross. */
#define UNCERTAINTY(row, member)                                            \
    COLUMN("net_energy_sd_mj", FLOAT, row, member.net_sd_mj),               \
        SD_COLUMNS("energy_sd", row, member.sd),                            \
        COLUMN("net_energy_sd_bias_mj", FLOAT, row, member.net_sd.bias_mj), \
        COLUMN("net_energy_sd_gain_mj", FLOAT, row, member.net_sd.gain_mj)

/* For figures that may be unavailable on their own. */
#define BOUND(row, member)                                  \
    COLUMN("energy_upper_mj", FLOAT, row, member.upper_mj), \
        NAMED("unavailable_reason", ABSENCE, row, member.absence)

/* What of the row is disturbance. */
#define DISTURBED(row, member)                                          \
    COLUMN("disturbed_ms", SOME, row, member.ms),                       \
        COLUMN("disturbed_energy_mj", SOME_NJ, row, member.gross_nj),   \
        COLUMN("disturbed_net_energy_mj", SOME_NJ, row, member.net_nj), \
        COLUMN("disturbed_self_energy_mj", SOME_NJ, row, member.self_nj)

#define STATISTIC(ID, member, type, name, aggregate, unit, label, row, prefix) \
    COLUMN(PJ_STATISTIC_NAME_##type(prefix, name), STAT_##type, row, stats.member),
#define STATS(row, prefix) PJ_STATISTICS(STATISTIC, row, prefix)

static const pj_column run_columns[] = {
    NEEDED("", "created_ns", I64, 0, pj_run_info, created_wall_ns),
    NEEDED(NULL, "status", NAME, PJ_NAMES_STATUS, pj_run_info, status),
    NAMED("profiling_depth", DEPTH, pj_run_info, depth),
    COLUMN("model_name", TEXT, pj_run_info, model_name),
    COLUMN("model_path", TEXT, pj_run_info, model_path),
    COLUMN("engine", TEXT, pj_run_info, engine),
    COLUMN("scope", TEXT, pj_run_info, scope),
    COLUMN("level", TEXT, pj_run_info, level),
    COLUMN("dtype", TEXT, pj_run_info, dtype),
    COLUMN("isa", TEXT, pj_run_info, isa),
    COLUMN("threads", COUNT, pj_run_info, threads),
    COLUMN("batch_size", U32, pj_run_info, batch_size),
    COLUMN("experiment_name", TEXT, pj_run_info, experiment_name),
    COLUMN("machine", TEXT, pj_run_info, machine),
    COLUMN("repeat_group", TEXT, pj_run_info, repeat_group),
    COLUMN("repeat_index", U32, pj_run_info, repeat_index),
    COLUMN("input_tokens", COUNT64, pj_run_info, input_tokens),
    COLUMN("output_tokens", U64, pj_run_info, output_tokens),
    COLUMN("total_duration_ms", DOUBLE, pj_run_info, total_ms),
    COLUMN("prefill_duration_ms", DOUBLE, pj_run_info, prefill_ms),
    COLUMN("decode_duration_ms", DOUBLE, pj_run_info, decode_ms),
    NAMED("energy_source", QUALITY, pj_run_info, quality),
    COLUMN("power_sources", TEXT, pj_run_info, power_sources),
    NAMED("method", METHOD, pj_run_info, method),
    COLUMN("total_energy_mj", DOUBLE, pj_run_info, total_mj),
    COLUMN("total_energy_sd_mj", DOUBLE, pj_run_info, total_sd_mj),
    SD_COLUMNS("total_energy_sd", pj_run_info, total_sd),
    COLUMN("idle_energy_mj", DOUBLE, pj_run_info, idle_mj),
    COLUMN("net_energy_mj", DOUBLE, pj_run_info, net_mj),
    COLUMN("net_energy_sd_mj", DOUBLE, pj_run_info, net_sd_mj),
    SD_COLUMNS("net_energy_sd", pj_run_info, net_sd),
    COLUMN("energy_upper_mj", DOUBLE, pj_run_info, upper_mj),
    NAMED("unavailable_reason", ABSENCE, pj_run_info, absence),
    COLUMN("total_is_partial", BOOL, pj_run_info, total_is_partial),
    COLUMN("total_rails", LIST, pj_run_info, total_rails),
    COLUMN("partial_rails", LIST, pj_run_info, partial_rails),
    COLUMN("conditions", JSON, pj_run_info, conditions_json),
    COLUMN("devices", JSON, pj_run_info, devices_json),
    COLUMN("prefill_energy_mj", DOUBLE, pj_run_info, prefill_mj),
    COLUMN("decode_energy_mj", DOUBLE, pj_run_info, decode_mj),
    COLUMN("prefill_energy_net_mj", DOUBLE, pj_run_info, prefill_net_mj),
    COLUMN("decode_energy_net_mj", DOUBLE, pj_run_info, decode_net_mj),
    COLUMN("baseline_cold_mw", DOUBLE, pj_run_info, baseline_cold_mw),
    COLUMN("baseline_resident_mw", DOUBLE, pj_run_info, baseline_resident_mw),
    SHOWN("attribution.condition_number", "condition_number", DOUBLE, pj_run_info,
          condition_number),
    SHOWN("attribution.pj_per_flop", "pj_per_flop", DOUBLE, pj_run_info, pj_per_flop),
    SHOWN("attribution.pj_per_flop_sd", "pj_per_flop_sd", DOUBLE, pj_run_info, pj_per_flop_sd),
    SHOWN("attribution.pj_per_byte", "pj_per_byte", DOUBLE, pj_run_info, pj_per_byte),
    SHOWN("attribution.pj_per_byte_sd", "pj_per_byte_sd", DOUBLE, pj_run_info, pj_per_byte_sd),
    SHOWN("attribution.interval", "attribution_interval", DOUBLE, pj_run_info,
          attribution_interval),
    SHOWN("attribution.interval_calibrated", "attribution_interval_calibrated", DOUBLE, pj_run_info,
          attribution_interval_calibrated),
    SHOWN("attribution.calibration_gap", "calibration_gap", DOUBLE, pj_run_info, calibration_gap),
    SHOWN("overhead.time_ms", "overhead_ms", DOUBLE, pj_run_info, overhead_ms),
    SHOWN("overhead.share", "overhead_share", DOUBLE, pj_run_info, overhead_share),
    SHOWN("overhead.statistics_ms", "statistics_ms", DOUBLE, pj_run_info, statistics_ms),
    SHOWN("overhead.sampler_cpu_share", "sampler_cpu_share", DOUBLE, pj_run_info,
          sampler_cpu_share),
    SHOWN("overhead.sampler_jitter_us", "sampler_jitter_us", DOUBLE, pj_run_info,
          sampler_jitter_us),
    SHOWN("overhead.samples_missed", "samples_missed", U64, pj_run_info, samples_missed),
    SHOWN("overhead.spans_lost", "spans_lost", U64, pj_run_info, spans_lost),
    COLUMN("failure", TEXT, pj_run_info, failure),
    COLUMN("request_energy_mj", DOUBLE, pj_run_info, request_mj),
    COLUMN("request_energy_sd_mj", DOUBLE, pj_run_info, request_sd_mj),
    SD_COLUMNS("request_energy_sd", pj_run_info, request_sd),
    COLUMN("request_energy_net_mj", DOUBLE, pj_run_info, request_net_mj),
    COLUMN("request_energy_net_sd_mj", DOUBLE, pj_run_info, request_net_sd_mj),
    SD_COLUMNS("request_energy_net_sd", pj_run_info, request_net_sd),
    COLUMN("request_duration_ms", DOUBLE, pj_run_info, request_ms),
    COLUMN("model_load_energy_mj", DOUBLE, pj_run_info, model_load_mj),
    COLUMN("model_load_energy_sd_mj", DOUBLE, pj_run_info, model_load_sd_mj),
    SD_COLUMNS("model_load_energy_sd", pj_run_info, model_load_sd),
    SHOWN("", "typical_token_energy_mj", DOUBLE, pj_run_info, typical_token_mj),
    COLUMN("typical_token_energy_sd_mj", DOUBLE, pj_run_info, typical_sd_mj),
    SD_COLUMNS("typical_token_energy_sd", pj_run_info, typical_sd),
    COLUMN("thinking_tokens", DOUBLE, pj_run_info, thinking_tokens),
    COLUMN("thinking_energy_mj", DOUBLE, pj_run_info, thinking_mj),
    COLUMN("thinking_energy_sd_mj", DOUBLE, pj_run_info, thinking_sd_mj),
    COLUMN("thinking_duration_ms", DOUBLE, pj_run_info, thinking_ms),
    COLUMN("tool_calls", DOUBLE, pj_run_info, tool_calls),
    COLUMN("disturbed_tokens", I32, pj_run_info, disturbed_tokens),
    COLUMN("disturbed_share", DOUBLE, pj_run_info, disturbed_share),
    DISTURBED_SUM("energy_mj", "disturbed_energy_mj", disturbed.mj),
    DISTURBED_SUM("net_energy_mj", "disturbed_net_energy_mj", disturbed.net_mj),
    DISTURBED_SUM("duration_ms", "disturbed_duration_ms", disturbed.ms),
    DISTURBED_SUM("request_energy_mj", "request_disturbed_energy_mj", request_disturbed.mj),
    DISTURBED_SUM("request_net_energy_mj", "request_disturbed_net_energy_mj",
                  request_disturbed.net_mj),
    DISTURBED_SUM("request_duration_ms", "request_disturbed_duration_ms", request_disturbed.ms),
    DISTURBED_SUM("prefill_energy_mj", "prefill_disturbed_energy_mj", prefill_disturbed.mj),
    DISTURBED_SUM("prefill_net_energy_mj", "prefill_disturbed_net_energy_mj",
                  prefill_disturbed.net_mj),
    DISTURBED_SUM("prefill_duration_ms", "prefill_disturbed_duration_ms", prefill_disturbed.ms),
    DISTURBED_SUM("decode_energy_mj", "decode_disturbed_energy_mj", decode_disturbed.mj),
    DISTURBED_SUM("decode_net_energy_mj", "decode_disturbed_net_energy_mj",
                  decode_disturbed.net_mj),
    DISTURBED_SUM("decode_duration_ms", "decode_disturbed_duration_ms", decode_disturbed.ms),
    DISTURBED_SUM("model_load_energy_mj", "model_load_disturbed_energy_mj",
                  model_load_disturbed_mj),
    COLUMN("batch_rule", TEXT, pj_run_info, batch_rule),
    COLUMN("cached_tokens", DOUBLE, pj_run_info, cached_tokens),
    COLUMN("allocation", TEXT, pj_run_info, allocation),
    SHOWN("", "monotonic_ms", DOUBLE, pj_run_info, monotonic_ms),
    SHOWN("", "parameters", DOUBLE, pj_run_info, parameters),
    SHOWN("", "active_parameters", DOUBLE, pj_run_info, active_parameters),
    SHOWN("", "disturbances", JSON, pj_run_info, disturbances_json),
    COLUMN("memory_read_bytes", DOUBLE, pj_run_info, memory_read_bytes),
    COLUMN("memory_written_bytes", DOUBLE, pj_run_info, memory_written_bytes),
    COLUMN("process_energy_mj", DOUBLE, pj_run_info, process_mj),
    COLUMN("settings", JSON, pj_run_info, settings_json),
    COLUMN("model", JSON, pj_run_info, model_json),
    COLUMN("prompt_private", JSON, pj_run_info, prompt_private),
    COLUMN("output_private", JSON, pj_run_info, output_private),
    COLUMN("prompt", TEXT, pj_run_info, prompt),
    COLUMN("name", TEXT, pj_run_info, name),
    COLUMN("note", TEXT, pj_run_info, note),
};

static const pj_column rail_columns[] = {
    NEEDED(NULL, "rail_index", U32, 0, pj_rail_view, index),
    ARRAY("rail_name", pj_rail_view, rail.name),
    ARRAY("source", pj_rail_view, rail.source),
    ARRAY("device", pj_rail_view, rail.device),
    ARRAY("field", pj_rail_view, rail.field),
    NAMED("rail_class", RAIL_CLASS, pj_rail_view, rail.rail_class),
    NAMED("kind", RAIL_KIND, pj_rail_view, rail.kind),
    NAMED("scope", RAIL_SCOPE, pj_rail_view, rail.scope),
    NAMED("quality", QUALITY, pj_rail_view, rail.quality),
    COLUMN("parent_index", I32, pj_rail_view, rail.parent),
    COLUMN("period_ms", NS, pj_rail_view, rail.period_ns),
    COLUMN("window_ms", NS, pj_rail_view, rail.window_ns),
    COLUMN("delay_ms", NS, pj_rail_view, rail.delay_ns),
    COLUMN("resolution", DOUBLE, pj_rail_view, rail.resolution),
    COLUMN("modulus_uj", DOUBLE, pj_rail_view, rail.modulus_uj),
    COLUMN("max_power_mw", DOUBLE, pj_rail_view, rail.max_mw),
    COLUMN("gain_sd", DOUBLE, pj_rail_view, rail.gain_sd),
    COLUMN("baseline_mw", DOUBLE, pj_rail_view, baseline_mw),
    COLUMN("baseline_sd_mw", DOUBLE, pj_rail_view, baseline_sd_mw),
};

static const pj_column sample_columns[] = {
    COLUMN("timestamp_ms", DOUBLE, pj_sample_view, t_ms),
    COLUMN("cpu_power_mw", DOUBLE, pj_sample_view, columns[PJ_RAIL_CPU]),
    COLUMN("gpu_power_mw", DOUBLE, pj_sample_view, columns[PJ_RAIL_GPU]),
    COLUMN("ane_power_mw", DOUBLE, pj_sample_view, columns[PJ_RAIL_ANE]),
    COLUMN("dram_power_mw", DOUBLE, pj_sample_view, columns[PJ_RAIL_DRAM]),
    COLUMN("total_power_mw", DOUBLE, pj_sample_view, columns[PJ_RAIL_TOTAL]),
    NAMED("phase", PHASE, pj_sample_view, phase),
    COLUMN("phase_confidence", FLOAT, pj_sample_view, phase_confidence),
};

static const pj_column rail_energy_columns[] = {
    NAMED("phase", PHASE, pj_rail_energy, phase),
    COLUMN("rail_index", U16, pj_rail_energy, rail),
    COLUMN("gross_mj", DOUBLE, pj_rail_energy, gross_mj),
    COLUMN("idle_mj", DOUBLE, pj_rail_energy, idle_mj),
    COLUMN("net_mj", DOUBLE, pj_rail_energy, net_mj),
    COLUMN("sd_mj", DOUBLE, pj_rail_energy, sd_mj),
    SD_COLUMNS("sd", pj_rail_energy, sd),
    COLUMN("net_sd_mj", DOUBLE, pj_rail_energy, net_sd_mj),
    SD_COLUMNS("net_sd", pj_rail_energy, net_sd),
    COLUMN("disturbed_mj", SOME, pj_rail_energy, disturbed_mj),
    COLUMN("disturbed_net_mj", SOME, pj_rail_energy, disturbed_net_mj),
};

static const pj_column phase_columns[] = {
    NAMED("phase", PHASE, pj_phase_row, phase),
    COLUMN("start_ms", DOUBLE, pj_phase_row, start_ms),
    COLUMN("duration_ms", DOUBLE, pj_phase_row, duration_ms),
    ENERGY(pj_phase_row, energy),
    UNCERTAINTY(pj_phase_row, energy),
    BOUND(pj_phase_row, energy),
    DISTURBED(pj_phase_row, disturbed_part),
};

static const pj_column class_columns[] = {
    COLUMN("class_name", TEXT, pj_class_row, name),
    NAMED("phase", PHASE, pj_class_row, phase),
    COLUMN("time_ms", DOUBLE, pj_class_row, time_ms),
    COLUMN("flops", DOUBLE, pj_class_row, flops),
    COLUMN("bytes", DOUBLE, pj_class_row, bytes),
    COLUMN("power_mw", DOUBLE, pj_class_row, power_mw),
    COLUMN("power_sd_mw", DOUBLE, pj_class_row, power_sd_mw),
    COLUMN("energy_mj", DOUBLE, pj_class_row, energy_mj),
    COLUMN("energy_sd_mj", DOUBLE, pj_class_row, energy_sd_mj),
    SD_COLUMNS("energy_sd", pj_class_row, energy_sd),
    COLUMN("net_energy_mj", DOUBLE, pj_class_row, net_energy_mj),
    COLUMN("net_energy_sd_mj", DOUBLE, pj_class_row, net_energy_sd_mj),
    SD_COLUMNS("net_energy_sd", pj_class_row, net_energy_sd),
    COLUMN("data_share", DOUBLE, pj_class_row, data_share),
    COLUMN("truncated", BOOL, pj_class_row, truncated),
    COLUMN("device", COUNT, pj_class_row, device),
    COLUMN("disturbed_ms", SOME, pj_class_row, disturbed_ms),
    COLUMN("disturbed_energy_mj", SOME, pj_class_row, disturbed_mj),
    COLUMN("disturbed_net_energy_mj", SOME, pj_class_row, disturbed_net_mj),
};

static const pj_column token_columns[] = {
    COLUMN("position", U32, pj_token_view, row.position),
    COLUMN("text", TEXT, pj_token_view, row.text),
    NAMED("phase", PHASE, pj_token_view, phase),
    COLUMN("duration_ms", DOUBLE, pj_token_view, row.duration_ms),
    ENERGY(pj_token_view, row.energy),
    COLUMN("power_snapshot_mw", DOUBLE, pj_token_view, row.power_mw),
    COLUMN("start_ms", DOUBLE, pj_token_view, row.start_ms),
    COLUMN("sequence", U32, pj_token_view, row.sequence),
    COLUMN("vocabulary_id", I32, pj_token_view, row.token_id),
    OWNER("phase_id", PHASES, pj_token_view, row.phase),
    UNCERTAINTY(pj_token_view, row.energy),
    BOUND(pj_token_view, row.energy),
    COLUMN("disturbed", I32, pj_token_view, row.disturbed),
    REFERENCE("step_id", TOKENS, pj_token_view, row.step),
    COLUMN("context_tokens", COUNT, pj_token_view, row.context_tokens),
    COLUMN("share", DOUBLE, pj_token_view, row.share),
    COLUMN("context_share", DOUBLE, pj_token_view, row.context_share),
    DISTURBED(pj_token_view, row.disturbed_part),
};

static const pj_column section_columns[] = {
    NAMED("phase", PHASE, pj_section_view, phase),
    COLUMN("section_name", TEXT, pj_section_view, row.name),
    COLUMN("start_ms", DOUBLE, pj_section_view, row.start_ms),
    COLUMN("end_ms", DOUBLE, pj_section_view, end_ms),
    COLUMN("duration_ms", DOUBLE, pj_section_view, row.duration_ms),
    ENERGY(pj_section_view, row.energy),
    OWNER("phase_id", PHASES, pj_section_view, row.phase),
    OWNER("token_id", TOKENS, pj_section_view, row.token),
    REFERENCE("step_id", TOKENS, pj_section_view, row.step),
    UNCERTAINTY(pj_section_view, row.energy),
    BOUND(pj_section_view, row.energy),
    COLUMN("device", COUNT, pj_section_view, row.device),
    DISTURBED(pj_section_view, row.disturbed_part),
};

static const pj_column layer_columns[] = {
    OWNER("token_id", TOKENS, pj_layer_row, token),
    REFERENCE("step_id", TOKENS, pj_layer_row, step),
    COLUMN("layer_index", U32, pj_layer_row, layer_index),
    COLUMN("total_time_ms", DOUBLE, pj_layer_row, duration_ms),
    COLUMN("attention_time_ms", DOUBLE, pj_layer_row, attention_ms),
    COLUMN("mlp_time_ms", DOUBLE, pj_layer_row, mlp_ms),
    ENERGY(pj_layer_row, energy),
    STATS(pj_layer_row, PJ_ACTIVATION) COLUMN("start_ms", DOUBLE, pj_layer_row, start_ms),
    UNCERTAINTY(pj_layer_row, energy),
    COLUMN("device", COUNT, pj_layer_row, device),
    DISTURBED(pj_layer_row, disturbed_part),
};

static const pj_column component_columns[] = {
    OWNER("layer_metric_id", LAYERS, pj_component_row, layer),
    COLUMN("component_name", TEXT, pj_component_row, name),
    COLUMN("time_ms", DOUBLE, pj_component_row, duration_ms),
    ENERGY(pj_component_row, energy),
    STATS(pj_component_row, PJ_ACTIVATION) COLUMN("start_ms", DOUBLE, pj_component_row, start_ms),
    COLUMN("flops_estimate", DOUBLE, pj_component_row, flops),
    COLUMN("bytes_estimate", DOUBLE, pj_component_row, bytes),
    REFERENCE("token_id", TOKENS, pj_component_row, token),
    REFERENCE("step_id", TOKENS, pj_component_row, step),
    REFERENCE("section_id", SECTIONS, pj_component_row, section),
    REFERENCE("class_id", CLASSES, pj_component_row, class_),
    COLUMN("extra_metrics", EXTRAS, pj_component_row, extra_begin),
    UNCERTAINTY(pj_component_row, energy),
    COLUMN("device", COUNT, pj_component_row, device),
    COLUMN("disturbed_ms", SOME, pj_component_row, disturbed_ms),
};

/* An operation has no children, so all its energy is its own, and its method is that of its
 * component: neither is stored a million times. */
static const pj_column operation_columns[] = {
    REFERENCE("component_metric_id", COMPONENTS, pj_operation_row, component),
    COLUMN("operation_name", TEXT, pj_operation_row, name),
    COLUMN("time_ms", DOUBLE, pj_operation_row, duration_ms),
    COLUMN("energy_mj", NJ, pj_operation_row, energy.gross_nj),
    COLUMN("flops_estimate", DOUBLE, pj_operation_row, flops),
    STATS(pj_operation_row, PJ_TENSOR)
        COLUMN("extra_metrics", EXTRAS, pj_operation_row, extra_begin),
    COLUMN("bytes_estimate", DOUBLE, pj_operation_row, bytes),
    COLUMN("start_ms", DOUBLE, pj_operation_row, start_ms),
    COLUMN("net_energy_mj", NJ, pj_operation_row, energy.net_nj),
    COLUMN("energy_sd_mj", FLOAT, pj_operation_row, energy.sd_mj),
    COLUMN("net_energy_sd_mj", FLOAT, pj_operation_row, energy.net_sd_mj),
    COLUMN("energy_sd_bias_mj", FLOAT, pj_operation_row, energy.sd.bias_mj),
    COLUMN("energy_sd_gain_mj", FLOAT, pj_operation_row, energy.sd.gain_mj),
    COLUMN("planted_mj", NJ, pj_operation_row, energy.planted_nj),
    REFERENCE("class_id", CLASSES, pj_operation_row, class_),
    COLUMN("device", COUNT, pj_operation_row, device),
};

static const pj_column warning_columns[] = {
    COLUMN("t_ms", DOUBLE, pj_warning_row, t_ms),
    COLUMN("code", TEXT, pj_warning_row, code),
    COLUMN("text", TEXT, pj_warning_row, text),
};

static const pj_column condition_columns[] = {
    COLUMN("t_ms", DOUBLE, pj_condition_row, t_ms),
    COLUMN("device", TEXT, pj_condition_row, device),
    COLUMN("temperature_c", DOUBLE, pj_condition_row, temperature_c),
    COLUMN("clock_mhz", DOUBLE, pj_condition_row, clock_mhz),
    COLUMN("memory_clock_mhz", DOUBLE, pj_condition_row, memory_clock_mhz),
    COLUMN("utilisation", DOUBLE, pj_condition_row, utilisation),
    COLUMN("power_limit_mw", DOUBLE, pj_condition_row, power_limit_mw),
    COLUMN("throttle", TEXT, pj_condition_row, throttle),
};

/* Where the run keeps the rows: an array of `stored` (the beginning of `row`), and their number. */
#define TABLE(label, of, row, array, counter, stored)                                       \
    {                                                                                       \
        .name = label, .columns = of, .column_count = sizeof of / sizeof *of,               \
        .row_bytes = sizeof(row), .has_run_id = true, .rows = offsetof(pj_run_data, array), \
        .count = offsetof(pj_run_data, counter), .stored_bytes = sizeof(stored)             \
    }
#define TABLE_STATS(label, of, row, array, counter, extra)                             \
    {                                                                                  \
        .name = label, .packed = label "_packed", .columns = of,                       \
        .column_count = sizeof of / sizeof *of, .row_bytes = sizeof(row),              \
        .stats_flag = offsetof(row, has_stats), .extras = extra,                       \
        .rows = offsetof(pj_run_data, array), .count = offsetof(pj_run_data, counter), \
        .stored_bytes = sizeof(row)                                                    \
    }

const pj_row_table pj_tables[PJ_TABLE_COUNT] = {
    [PJ_TABLE_RAILS] = TABLE("run_rails", rail_columns, pj_rail_view, rails, rail_count, pj_rail),
    [PJ_TABLE_SAMPLES] =
        TABLE("power_samples", sample_columns, pj_sample_view, samples, samples.count, double),
    [PJ_TABLE_RAIL_ENERGY] = TABLE("run_rail_energy", rail_energy_columns, pj_rail_energy,
                                   rail_energy, rail_energy_count, pj_rail_energy),
    [PJ_TABLE_PHASES] =
        TABLE("run_phases", phase_columns, pj_phase_row, phases, phase_count, pj_phase_row),
    [PJ_TABLE_CLASSES] =
        TABLE("run_classes", class_columns, pj_class_row, classes, class_count, pj_class_row),
    [PJ_TABLE_TOKENS] =
        TABLE("tokens", token_columns, pj_token_view, tokens, token_count, pj_token_row),
    [PJ_TABLE_SECTIONS] = TABLE("pipeline_sections", section_columns, pj_section_view, sections,
                                section_count, pj_section_row),
    [PJ_TABLE_LAYERS] =
        TABLE_STATS("layer_metrics", layer_columns, pj_layer_row, layers, layer_count, 0),
    [PJ_TABLE_COMPONENTS] =
        TABLE_STATS("component_metrics", component_columns, pj_component_row, components,
                    component_count, offsetof(pj_component_row, extra_begin)),
    [PJ_TABLE_OPERATIONS] =
        TABLE_STATS("deep_operation_metrics", operation_columns, pj_operation_row, operations,
                    operation_count, offsetof(pj_operation_row, extra_begin)),
    [PJ_TABLE_WARNINGS] = TABLE("run_warnings", warning_columns, pj_warning_row, warnings,
                                warning_count, pj_warning_row),
    [PJ_TABLE_CONDITIONS] = TABLE("run_conditions", condition_columns, pj_condition_row, conditions,
                                  condition_count, pj_condition_row),
};

const pj_row_table pj_run_table = {.name = "profiling_runs",
                                   .columns = run_columns,
                                   .column_count = sizeof run_columns / sizeof *run_columns,
                                   .row_bytes = sizeof(pj_run_info)};

_Static_assert(offsetof(pj_token_view, row) == 0 && offsetof(pj_section_view, row) == 0,
               "a stored row is the beginning of its view");
_Static_assert(sizeof(pj_rail_view) <= PJ_ROW_SCRATCH_BYTES, "scratch is too small");

size_t pj_table_list_columns(const pj_row_table *table, const char *before, char *text,
                             size_t bytes)
{
    int n = snprintf(text, bytes, "%s", before);
    for (int c = 0; c < table->column_count; c++)
        n += snprintf(text + n, bytes - (size_t)n, ", %s", table->columns[c].name);
    return (size_t)n;
}

/* ---- rows ---------------------------------------------------------------------------------- */

static uint32_t *count_of(pj_run_data *data, pj_table_id table)
{
    return (uint32_t *)(void *)((char *)data + pj_tables[table].count);
}

uint32_t pj_table_rows(const pj_run_data *data, pj_table_id table)
{
    uint32_t count;
    memcpy(&count, (const char *)data + pj_tables[table].count, sizeof count);
    return count;
}

/* The row where the run keeps it; not for rails and samples. */
static char *stored_row(const pj_run_data *data, pj_table_id table, uint32_t i)
{
    char *rows;
    memcpy(&rows, (const char *)data + pj_tables[table].rows, sizeof rows);
    return rows + (size_t)i * pj_tables[table].stored_bytes;
}

static uint8_t rows_phase_of(const pj_run_data *data, uint32_t phase)
{
    return phase < data->phase_count ? data->phases[phase].phase : PJ_PHASE_COUNT;
}

static const void *rail_row(const pj_run_data *data, uint32_t i, pj_rail_view *view)
{
    *view = (pj_rail_view){data->rails[i], i, data->baseline_mw[i], data->baseline_sd_mw[i]};
    return view;
}

static const void *sample_row(const pj_run_data *data, uint32_t i, pj_sample_view *view)
{
    const pj_sample_table *samples = &data->samples;
    view->t_ms = samples->t_ms[i];
    view->phase = samples->phase ? samples->phase[i] : PJ_PHASE_IDLE;
    view->phase_confidence = samples->phase_confidence ? samples->phase_confidence[i] : NAN;
    for (int c = 0; c <= PJ_RAIL_TOTAL; c++)
        view->columns[c] = samples->columns[c] ? samples->columns[c][i] : NAN;
    return view;
}

static const void *section_row(const pj_run_data *data, uint32_t i, pj_section_view *view)
{
    const pj_section_row *row = &data->sections[i];
    *view =
        (pj_section_view){*row, rows_phase_of(data, row->phase), row->start_ms + row->duration_ms};
    return view;
}

static const void *token_row(const pj_run_data *data, uint32_t i, pj_token_view *view)
{
    *view = (pj_token_view){data->tokens[i], rows_phase_of(data, data->tokens[i].phase)};
    return view;
}

const void *pj_table_row(const pj_run_data *data, pj_table_id table, uint32_t i, void *scratch)
{
    switch (table) {
    case PJ_TABLE_RAILS: return rail_row(data, i, scratch);
    case PJ_TABLE_SAMPLES: return sample_row(data, i, scratch);
    case PJ_TABLE_SECTIONS: return section_row(data, i, scratch);
    case PJ_TABLE_TOKENS: return token_row(data, i, scratch);
    default: return stored_row(data, table, i);
    }
}

/* ---- filling ------------------------------------------------------------------------------- */

static bool rows_grow(pj_arena *arena, void *array, uint32_t used, uint32_t count, size_t size)
{
    void *old, *new = pj_arena_alloc(arena, count, size);
    if (!new) return false;
    memcpy(&old, array, sizeof old);
    if (old && used) memcpy(new, old, used * size);
    memcpy(array, &new, sizeof new);
    return true;
}

static bool grow_samples(pj_run_data *data, uint32_t count)
{
    pj_sample_table *s = &data->samples;
    pj_arena *arena = &data->arena;
    bool good =
        rows_grow(arena, &s->t_ms, s->count, count, sizeof *s->t_ms) &&
        rows_grow(arena, &s->phase, s->count, count, sizeof *s->phase) &&
        rows_grow(arena, &s->phase_confidence, s->count, count, sizeof *s->phase_confidence);
    for (int c = 0; c <= PJ_RAIL_TOTAL && good; c++)
        good = rows_grow(arena, &s->columns[c], s->count, count, sizeof *s->columns[c]);
    return good;
}

bool pj_rows_make_room(pj_run_data *data, pj_table_id table, uint32_t count)
{
    if (table == PJ_TABLE_RAILS) return count <= PJ_MAX_RAILS;
    if (table == PJ_TABLE_SAMPLES) return grow_samples(data, count);
    return rows_grow(&data->arena, (char *)data + pj_tables[table].rows, pj_table_rows(data, table),
                     count, pj_tables[table].stored_bytes);
}

static bool put_rail(pj_run_data *data, uint32_t i, const pj_rail_view *view)
{
    if (view->index != i || i >= PJ_MAX_RAILS) return false;
    data->rails[i] = view->rail;
    data->baseline_mw[i] = view->baseline_mw;
    data->baseline_sd_mw[i] = view->baseline_sd_mw;
    return true;
}

static void put_sample(pj_sample_table *s, uint32_t i, const pj_sample_view *view)
{
    s->t_ms[i] = view->t_ms;
    s->phase[i] = view->phase;
    s->phase_confidence[i] = view->phase_confidence;
    for (int c = 0; c <= PJ_RAIL_TOTAL; c++) s->columns[c][i] = view->columns[c];
}

bool pj_rows_put(pj_run_data *data, pj_table_id table, uint32_t i, const void *row)
{
    *count_of(data, table) = i + 1;
    if (table == PJ_TABLE_RAILS) return put_rail(data, i, row);
    if (table == PJ_TABLE_SAMPLES)
        put_sample(&data->samples, i, row);
    else
        memcpy(stored_row(data, table, i), row, pj_tables[table].stored_bytes);
    return true;
}

static bool column_is_empty(const double *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!isnan(values[i])) return false;
    return true;
}

void pj_rows_complete(pj_run_data *data)
{
    for (uint32_t i = 0; i < data->operation_count; i++) {
        pj_operation_row *o = &data->operations[i];
        o->energy.self_nj = o->energy.gross_nj;
        if (o->component < data->component_count && o->energy.gross_nj != PJ_NJ_UNKNOWN)
            o->energy.method = data->components[o->component].energy.method;
    }
    for (int c = 0; c <= PJ_RAIL_TOTAL; c++)
        if (data->samples.columns[c] &&
            column_is_empty(data->samples.columns[c], data->samples.count))
            data->samples.columns[c] = NULL;
}

static pj_status check_references(const pj_run_data *data, pj_table_id id, pj_error *err)
{
    const pj_row_table *table = &pj_tables[id];
    char scratch[PJ_ROW_SCRATCH_BYTES] __attribute__((aligned(16)));
    uint32_t count = pj_table_rows(data, id);
    for (int c = 0; c < table->column_count; c++) {
        const pj_column *column = &table->columns[c];
        if (column->type != PJ_COLUMN_REFERENCE) continue;
        uint32_t limit = pj_table_rows(data, column->kind);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t to;
            const char *row = pj_table_row(data, id, i, scratch);
            memcpy(&to, row + column->offset, sizeof to);
            if (to >= limit && to != PJ_NO_PARENT)
                return pj_fail(err, PJ_E_INVALID, "row %u of %s: %s refers to a missing row", i,
                               table->name, column->name);
        }
    }
    return PJ_OK;
}

pj_status pj_rows_check(const pj_run_data *data, pj_error *err)
{
    pj_status status = PJ_OK;
    for (int t = 0; t < PJ_TABLE_COUNT && status == PJ_OK; t++)
        status = check_references(data, t, err);
    for (uint32_t i = 0; i < data->component_count && status == PJ_OK; i++)
        if (!data->components[i].name)
            status = pj_fail(err, PJ_E_INVALID, "row %u of component_metrics has no name", i);
    for (uint32_t i = 0; i < data->operation_count && status == PJ_OK; i++)
        if (!data->operations[i].name || data->operations[i].component == PJ_NO_PARENT)
            status = pj_fail(err, PJ_E_INVALID,
                             "row %u of deep_operation_metrics has no name or no component", i);
    for (uint32_t i = 0; i < data->rail_energy_count && status == PJ_OK; i++)
        if (data->rail_energy[i].rail >= data->rail_count)
            status = pj_fail(err, PJ_E_INVALID, "row %u of run_rail_energy names no rail", i);
    return status;
}

void pj_run_info_unknown(pj_run_info *info)
{
    for (uint16_t i = 0; i < pj_run_table.column_count; i++) {
        const pj_column *c = &pj_run_table.columns[i];
        if (c->type == PJ_COLUMN_DOUBLE)
            memcpy((char *)info + c->offset, &(double){NAN}, sizeof(double));
        if (c->type == PJ_COLUMN_FLOAT)
            memcpy((char *)info + c->offset, &(float){NAN}, sizeof(float));
    }
    pj_request_clear(info);
}
