// Made by tools/columns.py from src/store/rows.c: change it there. Descriptions come from src/net/openapi.json.

/** The columns of a run, as its summary shows them. null means "unavailable" and stays null. */
export interface RunColumns {
  status: 'queued' | 'running' | 'completed' | 'failed' | 'cancelled' | 'interrupted';
  profiling_depth: 'off' | 'module' | 'deep';
  model_name: string | null;
  model_path: string | null;
  engine: string | null;
  /** what the energy covers */
  scope: 'machine' | 'process' | 'request' | null;
  /** level of detail at which an attached engine was profiled; null: perjoule's own engine */
  level: 'coarse' | 'fine' | null;
  dtype: string | null;
  isa: string | null;
  threads: number | null;
  batch_size: number;
  experiment_name: string | null;
  machine: string | null;
  repeat_group: string | null;
  repeat_index: number;
  input_tokens: number | null;
  output_tokens: number;
  total_duration_ms: number | null;
  prefill_duration_ms: number | null;
  decode_duration_ms: number | null;
  energy_source: 'unavailable' | 'modelled' | 'measured';
  power_sources: string | null;
  method: string;
  total_energy_mj: number | null;
  total_energy_sd_mj: number | null;
  total_energy_sd_random_mj: number | null;
  total_energy_sd_bias_mj: number | null;
  total_energy_sd_gain_mj: number | null;
  idle_energy_mj: number | null;
  net_energy_mj: number | null;
  net_energy_sd_mj: number | null;
  net_energy_sd_random_mj: number | null;
  net_energy_sd_bias_mj: number | null;
  net_energy_sd_gain_mj: number | null;
  energy_upper_mj: number | null;
  unavailable_reason: null | 'no_sensor' | 'sensor_gap' | 'below_resolution';
  total_is_partial: boolean;
  /** rails whose sum is the total */
  total_rails: string[];
  /** rails that should be part of the total but are missing; empty: the total is complete */
  partial_rails: string[];
  /** by device: temperature, clocks, utilisation, power limit, throttling, TDP and its share */
  conditions: Record<string, unknown> | null;
  devices: Record<string, unknown> | null;
  prefill_energy_mj: number | null;
  decode_energy_mj: number | null;
  prefill_energy_net_mj: number | null;
  decode_energy_net_mj: number | null;
  baseline_cold_mw: number | null;
  baseline_resident_mw: number | null;
  /** reason of the failure of a failed run */
  failure: string | null;
  /** total without model loading and idle gaps */
  request_energy_mj: number | null;
  request_energy_sd_mj: number | null;
  request_energy_sd_random_mj: number | null;
  request_energy_sd_bias_mj: number | null;
  request_energy_sd_gain_mj: number | null;
  request_energy_net_mj: number | null;
  request_energy_net_sd_mj: number | null;
  request_energy_net_sd_random_mj: number | null;
  request_energy_net_sd_bias_mj: number | null;
  request_energy_net_sd_gain_mj: number | null;
  request_duration_ms: number | null;
  /** null when the run loaded no model */
  model_load_energy_mj: number | null;
  model_load_energy_sd_mj: number | null;
  model_load_energy_sd_random_mj: number | null;
  model_load_energy_sd_bias_mj: number | null;
  model_load_energy_sd_gain_mj: number | null;
  typical_token_energy_sd_mj: number | null;
  typical_token_energy_sd_random_mj: number | null;
  typical_token_energy_sd_bias_mj: number | null;
  typical_token_energy_sd_gain_mj: number | null;
  thinking_tokens: number | null;
  thinking_energy_mj: number | null;
  thinking_energy_sd_mj: number | null;
  thinking_duration_ms: number | null;
  tool_calls: number | null;
  disturbed_tokens: number | null;
  /** share of the request's energy in disturbed steps */
  disturbed_share: number | null;
  /** rule that split the energy of shared steps between the sequences of a batch; null: no shared steps */
  batch_rule: 'bytes' | 'tokens' | 'equal' | null;
  /** input tokens that the server had cached; null: unknown */
  cached_tokens: number | null;
  /** rule that divided the server's energy between concurrent requests, of which this run is one; null: the energy belongs to this run alone */
  allocation: 'bytes' | 'tokens' | 'equal' | null;
  memory_read_bytes: number | null;
  memory_written_bytes: number | null;
  process_energy_mj: number | null;
  settings: Record<string, unknown> | null;
  model: Record<string, unknown> | null;
  prompt_private: Record<string, unknown> | null;
  output_private: Record<string, unknown> | null;
  /** null for private runs */
  prompt: string | null;
  name: string | null;
  note: string | null;
  attribution: {
    condition_number: number | null;
    pj_per_flop: number | null;
    pj_per_flop_sd: number | null;
    pj_per_byte: number | null;
    pj_per_byte_sd: number | null;
    interval: number | null;
    interval_calibrated: number | null;
    calibration_gap: number | null;
  };
  overhead: {
    time_ms: number | null;
    share: number | null;
    statistics_ms: number | null;
    sampler_cpu_share: number | null;
    sampler_jitter_us: number | null;
    samples_missed: number;
    spans_lost: number;
  };
  disturbance: {
    energy_mj: number | null;
    net_energy_mj: number | null;
    duration_ms: number | null;
    request_energy_mj: number | null;
    request_net_energy_mj: number | null;
    request_duration_ms: number | null;
    prefill_energy_mj: number | null;
    prefill_net_energy_mj: number | null;
    prefill_duration_ms: number | null;
    decode_energy_mj: number | null;
    decode_net_energy_mj: number | null;
    decode_duration_ms: number | null;
    model_load_energy_mj: number | null;
  };
}

/** A run of which nothing is known. */
export const NO_COLUMNS: RunColumns = {
  status: 'queued',
  profiling_depth: 'off',
  model_name: null,
  model_path: null,
  engine: null,
  scope: null,
  level: null,
  dtype: null,
  isa: null,
  threads: null,
  batch_size: 0,
  experiment_name: null,
  machine: null,
  repeat_group: null,
  repeat_index: 0,
  input_tokens: null,
  output_tokens: 0,
  total_duration_ms: null,
  prefill_duration_ms: null,
  decode_duration_ms: null,
  energy_source: 'unavailable',
  power_sources: null,
  method: '',
  total_energy_mj: null,
  total_energy_sd_mj: null,
  total_energy_sd_random_mj: null,
  total_energy_sd_bias_mj: null,
  total_energy_sd_gain_mj: null,
  idle_energy_mj: null,
  net_energy_mj: null,
  net_energy_sd_mj: null,
  net_energy_sd_random_mj: null,
  net_energy_sd_bias_mj: null,
  net_energy_sd_gain_mj: null,
  energy_upper_mj: null,
  unavailable_reason: null,
  total_is_partial: false,
  total_rails: [],
  partial_rails: [],
  conditions: null,
  devices: null,
  prefill_energy_mj: null,
  decode_energy_mj: null,
  prefill_energy_net_mj: null,
  decode_energy_net_mj: null,
  baseline_cold_mw: null,
  baseline_resident_mw: null,
  failure: null,
  request_energy_mj: null,
  request_energy_sd_mj: null,
  request_energy_sd_random_mj: null,
  request_energy_sd_bias_mj: null,
  request_energy_sd_gain_mj: null,
  request_energy_net_mj: null,
  request_energy_net_sd_mj: null,
  request_energy_net_sd_random_mj: null,
  request_energy_net_sd_bias_mj: null,
  request_energy_net_sd_gain_mj: null,
  request_duration_ms: null,
  model_load_energy_mj: null,
  model_load_energy_sd_mj: null,
  model_load_energy_sd_random_mj: null,
  model_load_energy_sd_bias_mj: null,
  model_load_energy_sd_gain_mj: null,
  typical_token_energy_sd_mj: null,
  typical_token_energy_sd_random_mj: null,
  typical_token_energy_sd_bias_mj: null,
  typical_token_energy_sd_gain_mj: null,
  thinking_tokens: null,
  thinking_energy_mj: null,
  thinking_energy_sd_mj: null,
  thinking_duration_ms: null,
  tool_calls: null,
  disturbed_tokens: null,
  disturbed_share: null,
  batch_rule: null,
  cached_tokens: null,
  allocation: null,
  memory_read_bytes: null,
  memory_written_bytes: null,
  process_energy_mj: null,
  settings: null,
  model: null,
  prompt_private: null,
  output_private: null,
  prompt: null,
  name: null,
  note: null,
  attribution: {
    condition_number: null,
    pj_per_flop: null,
    pj_per_flop_sd: null,
    pj_per_byte: null,
    pj_per_byte_sd: null,
    interval: null,
    interval_calibrated: null,
    calibration_gap: null,
  },
  overhead: {
    time_ms: null,
    share: null,
    statistics_ms: null,
    sampler_cpu_share: null,
    sampler_jitter_us: null,
    samples_missed: 0,
    spans_lost: 0,
  },
  disturbance: {
    energy_mj: null,
    net_energy_mj: null,
    duration_ms: null,
    request_energy_mj: null,
    request_net_energy_mj: null,
    request_duration_ms: null,
    prefill_energy_mj: null,
    prefill_net_energy_mj: null,
    prefill_duration_ms: null,
    decode_energy_mj: null,
    decode_net_energy_mj: null,
    decode_duration_ms: null,
    model_load_energy_mj: null,
  },
};
