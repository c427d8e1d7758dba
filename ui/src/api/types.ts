// Types of the API's responses, as documented in docs/api.md. null means "unavailable" and stays
// null.

import type { RunColumns } from './columns';
import type { StatisticName } from './statistics';

type N = number | null;
/** An operation's statistics are named after its tensor. */
type OfTensor<S> = S extends `activation_${infer Rest}` ? `tensor_${Rest}` : S;

export type EnergySource = 'measured' | 'modelled' | 'unavailable';
export type Status = 'queued' | 'running' | 'completed' | 'failed' | 'cancelled' | 'interrupted';

/** What the API derives from a run's columns. */
export interface RunSummary extends RunColumns {
  id: string;
  run_id: string;
  created_at: string;
  tags: string[];
  tokens_per_second: N;
  prefill_tokens_per_second: N;
  joules_per_token: N;
  joules_per_token_sd: N;
  joules_per_token_net: N;
  joules_per_token_net_sd: N;
  joules_per_token_typical: N;
  joules_per_token_typical_sd: N;
  joules_per_token_typical_lo: N;
  joules_per_token_typical_hi: N;
  joules_per_input_token: N;
  joules_per_output_token: N;
  tokens_per_joule: N;
  energy_delay_product: N;
  mean_power_mw: N;
  prefill_decode_ratio: N;
  cost_usd: N;
  co2_grams: N;
}

export interface Spread {
  n: number;
  mean: N;
  sd: N;
  min: N;
  p5: N;
  q1: N;
  median: N;
  q3: N;
  p95: N;
  max: N;
}

export interface EnergyFields {
  energy_mj: N;
  net_energy_mj: N;
  self_energy_mj: N;
  energy_sd_mj: N;
  net_energy_sd_mj: N;
  energy_lo_mj: N;
  energy_hi_mj: N;
  planted_mj: N;
  method: string | null;
}

/** What of a row is disturbance; null: nothing, or not judged. */
export interface DisturbedFields {
  disturbed_ms?: N;
  disturbed_energy_mj?: N;
  disturbed_net_energy_mj?: N;
}

export interface Section extends EnergyFields {
  section_name: string;
  token: N;
  start_ms: number;
  end_ms: number;
  duration_ms: number;
  power_mw: N;
  /** Its number in the run's `devices`; null and 0: the host. */
  device?: N;
}

export interface PhaseRow extends EnergyFields, DisturbedFields {
  phase: string;
  start_ms: number;
  end_ms: number;
  duration_ms: number;
  power_mw: N;
  section_totals?: {
    section_name: string;
    count: number;
    duration_ms: number;
    energy_mj: N;
    /** Without disturbances, of a section that consists of no components; null: it does. */
    own_ms?: N;
    own_energy_mj?: N;
    own_net_energy_mj?: N;
  }[];
  section_count?: number;
  sections?: Section[];
}

export interface Pipeline {
  run_id: string;
  total_duration_ms: N;
  energy_source: EnergySource;
  phases: PhaseRow[];
}

export interface RailInfo {
  name: string;
  class: string;
  source: string;
  quality: EnergySource;
  baseline_mw: N;
  power_mw?: N[];
}

export interface PowerSeries {
  run_id: string;
  energy_source: EnergySource;
  samples_total: number;
  samples_in_range: number;
  bucket_samples: number;
  phase_names: string[];
  t_ms: number[];
  phase: number[];
  phase_confidence: N[];
  cpu_power_mw: N[] | null;
  gpu_power_mw: N[] | null;
  ane_power_mw: N[] | null;
  dram_power_mw: N[] | null;
  total_power_mw: N[] | null;
  /** The mean of each bucket (two rows) by column; only of a downsampled series. */
  means?: Partial<Record<`${'cpu' | 'gpu' | 'ane' | 'dram' | 'total'}_power_mw`, N[]>>;
  rails: RailInfo[];
  phases: { phase: string; start_ms: number; end_ms: number }[];
}

export interface TokenRow extends EnergyFields, DisturbedFields {
  token: number;
  position: number;
  sequence: number;
  token_id: N;
  text: string | null;
  phase: string;
  start_ms: number;
  duration_ms: number;
  power_snapshot_mw: N;
  cumulative_energy_mj: N;
  /** The step was slowed by other load; null: not judged. */
  disturbed: boolean | null;
  /** In a batch: the token row that has the step's layers and components. */
  step: N;
  /** This sequence's share of the step's energy. */
  share: N;
}

export interface Tokens {
  run_id: string;
  energy_source: EnergySource;
  total: number;
  offset: number;
  tokens: TokenRow[];
}

export type SpanLevel = 'layer' | 'component' | 'operation';

/** Single spans of one level as columns; `name` and `component` are indices of the answer's names. */
export interface SpanColumns {
  level: SpanLevel;
  /** In the window; the columns may hold fewer. */
  total: number;
  name: N[];
  start_ms: number[];
  duration_ms: N[];
  energy_mj: N[];
  net_energy_mj: N[];
  self_energy_mj: N[];
  energy_sd_mj: N[];
  net_energy_sd_mj: N[];
  token: N[];
  layer: N[];
  component: N[];
  device: N[];
}

/** All spans of a name in the window, each with its part inside. */
export interface SpanGroup {
  level: SpanLevel;
  name: string | null;
  component: string | null;
  layer: N;
  count: number;
  time_ms: N;
  energy_mj: N;
  net_energy_mj: N;
  self_energy_mj: N;
  energy_sd_mj: N;
  net_energy_sd_mj: N;
}

export interface Spans {
  run_id: string;
  energy_source: EnergySource;
  names: string[];
  levels: SpanColumns[];
  groups: SpanGroup[];
}

/** Device conditions as columns over `t_ms`; null: never reported. */
export interface Conditions {
  run_id: string;
  devices: {
    device: string;
    t_ms: number[];
    temperature_c: N[] | null;
    clock_mhz: N[] | null;
    memory_clock_mhz: N[] | null;
    utilisation: N[] | null;
    power_limit_mw: N[] | null;
    throttle: (string | null)[];
  }[];
}

export interface HeatmapAnswer {
  run_id: string;
  metric: string;
  unit: string;
  aggregate: string;
  token: N;
  phase: string | null;
  energy_source: EnergySource;
  method: string | null;
  tokens: number;
  layers: number[];
  components: string[];
  /** Columns of the cube with `outside=1`. */
  all_components: string[];
  values: N[][];
  outside: { component: string; value: N }[];
  min: N;
  max: N;
}

export interface TreeNode {
  kind: 'run' | 'phase' | 'layer' | 'component' | 'section' | 'operation' | 'disturbed';
  name: string;
  value: N;
  time_ms: N;
  energy_mj: N;
  self: N;
  layer?: N;
  count?: number;
  children?: TreeNode[];
}

export interface Tree {
  run_id: string;
  metric: string;
  unit: string;
  energy_source: EnergySource;
  method: string | null;
  root: TreeNode;
}

export type Extras = Record<string, number | number[] | null>;

export interface ComponentSum extends Record<StatisticName, N> {
  component_name: string;
  /** With a token; null: outside the layers. */
  layer_index?: N;
  count: number;
  time_ms: N;
  energy_mj: N;
  net_energy_mj: N;
  net_energy_sd_mj: N;
  self_energy_mj: N;
  energy_sd_mj: N;
  planted_mj: N;
  flops: N;
  bytes: N;
  extra_metrics: Extras | null;
}

export interface OperationSum extends Record<OfTensor<StatisticName>, N> {
  component_name: string;
  operation_name: string;
  /** With a token; null: outside the layers. */
  layer_index?: N;
  count: number;
  time_ms: N;
  energy_mj: N;
  net_energy_mj: N;
  energy_sd_mj: N;
  net_energy_sd_mj: N;
  flops: N;
  bytes: N;
  extra_metrics: Extras | null;
}

export interface Operations {
  run_id: string;
  layer: N;
  component: string | null;
  token: N;
  phase: string | null;
  energy_source: EnergySource;
  method: string | null;
  components: ComponentSum[];
  operations: OperationSum[];
}

export interface ComponentStat {
  component_name: string;
  count: number;
  time_ms: N;
  energy_mj: N;
  energy_sd_mj: N;
  share: N;
  power_mw: N;
  flops: N;
  bytes: N;
  intensity: N;
  gflops_per_s: N;
  gbytes_per_s: N;
  pj_per_flop: N;
  pj_per_byte: N;
  part: 'attention' | 'mlp' | 'other';
}

/** An event: neighbours are one. */
export interface Anomaly {
  kind: 'token' | 'power' | 'disturbance';
  /** The first token row, and how many there are; null and 0: in no token. */
  token: N;
  tokens: number;
  begin_ms: number;
  end_ms: number;
  /** Of tokens an energy (a duration, if unknown), of power a power, of disturbances a duration. */
  value: N;
  expected: N;
  /** value / expected. */
  times: N;
  extra_energy_mj: N;
  reason: string;
  /** The likely cause: `busy`, `waited`, `throttled`, `faults`, `real`, `unknown`. */
  cause?: string | null;
}

/** The prediction from earlier runs and the actual figures, in joules and seconds. */
export interface Predicted {
  runs: number;
  refusal: string | null;
  joules: N;
  joules_lo: N;
  joules_hi: N;
  actual_joules: N;
  seconds: N;
  seconds_lo: N;
  seconds_hi: N;
  actual_seconds: N;
  within: boolean | null;
}

/** Energy and time of a request before it runs; null, with a refusal, if unpredictable. */
export interface Prediction {
  model: string;
  dtype: string | null;
  input: number;
  output: number;
  batch: number;
  refusal: string | null;
  rests_on: EnergySource;
  /** What that energy lacks: "CPU only, GPU missing". */
  partial: string | null;
  runs: number;
  /** Relative, leave-one-out. */
  median_error: N;
  joules: N;
  joules_lo: N;
  joules_hi: N;
  joules_per_token: N;
  seconds: N;
  seconds_lo: N;
  seconds_hi: N;
  map?: {
    inputs: number[];
    outputs: number[];
    joules_per_token: N[][];
    least: { input: number; output: number; joules_per_token: number } | null;
  } | null;
}

/** A published figure of a similar model. */
export interface Published {
  model: string;
  dtype: string | null;
  hardware: string;
  batch: N;
  scope: string;
  joules_per_token: N;
  joules_per_token_hi: N;
  source: string;
  address: string | null;
  /** Ratio of this run's figure to the published one; null if their scopes differ. */
  ratio: N;
  /** All differences from this run. */
  caveats: string[];
}

export interface Warning {
  t_ms: N;
  code: string;
  text: string;
}

export interface LayerStat {
  layer: number;
  time_ms: N;
  attention_ms: N;
  mlp_ms: N;
  energy_mj: N;
  energy_sd_mj: N;
  attention_energy_mj: N;
  attention_energy_sd_mj: N;
  mlp_energy_mj: N;
  mlp_energy_sd_mj: N;
  other_energy_mj: N;
}

export interface RailEnergy {
  phase: string;
  rail: string;
  gross_mj: N;
  idle_mj: N;
  net_mj: N;
  sd_mj: N;
}

/** What a run used of its model. */
export interface ModelUse {
  experts: {
    experts: number;
    per_token: N;
    per_step: N;
    per_step_even: N;
    per_prefill: N;
    routing_entropy_normalised: N;
    load_balance: N;
    /** Per layer, each expert's share of the routing choices; an empty list: the layer has no router. */
    load: N[][];
    load_variation: N;
    unused_share: N;
  } | null;
  context: {
    limit: number;
    longest: N;
    share: N;
    kv_megabytes: N;
    kv_bytes_per_token: N;
    nearly_full: boolean;
  } | null;
}

/** A kind of work in a phase: a component, or "component/operation". */
export interface ClassRow {
  name: string;
  phase: string;
  net_energy_sd_mj: N;
}

export interface Summary extends RunSummary {
  model_use?: ModelUse;
  phases: PhaseRow[];
  classes: ClassRow[];
  token_statistics: { duration_ms: Spread; energy_mj: Spread; power_mw: Spread } | null;
  power_statistics: (Spread & { phase: string; column: string })[];
  layers: LayerStat[];
  components: ComponentStat[];
  rail_energy: RailEnergy[];
  warnings: Warning[];
  counts: Record<string, number>;
  energy_per_million_parameters_mj: N;
  energy_per_million_active_parameters_mj?: N;
  predicted?: Predicted | null;
  published?: Published[];
  anomalies: Anomaly[];
  output_text?: string | null;
}

export interface RunDetail extends RunSummary {
  output_text: string | null;
  machine_info: Record<string, unknown> | null;
  warnings: Warning[];
  counts: Record<string, number>;
  rails: (RailInfo & {
    kind: string;
    scope: string;
    device: string;
    period_ms: N;
    resolution: N;
  })[];
}

export interface CompareTest {
  metric: string;
  unit: string;
  /** The metric that verdicts rest on. */
  primary: boolean;
  a: number;
  b: number;
  sample: 'token' | 'run';
  n_a: number;
  n_b: number;
  mean_a: N;
  mean_b: N;
  sd_a: N;
  sd_b: N;
  difference: N;
  difference_lo: N;
  difference_hi: N;
  ratio: N;
  ratio_lo: N;
  ratio_hi: N;
  welch_p: N;
  mann_whitney_p: N;
  hedges_g: N;
  rank_biserial: N;
  p: N;
  p_adjusted: N;
  /** The test that decides. */
  method: 'welch_log' | 'permutation' | 'none';
  significant: boolean;
}

/** What explains the difference of two sides, by part; runs without output tokens are compared as they are. */
export interface Why {
  unit: 'mJ/token' | 'mJ/run';
  mj_per_token_a: N;
  mj_per_token_b: N;
  difference_mj: N;
  explained_mj: N;
  disturbed_mj_a: N;
  disturbed_mj_b: N;
  /** Why nothing is named; null: it is. */
  refusal: string | null;
  /** How the models differ: each phase is compared as a whole then. Null: they do not. */
  unlike?: string | null;
  /** A change of a phase's power that no part in particular explains. */
  unplaced?: string | null;
  findings: {
    kind: string;
    /** null: of all parts. */
    phase: string | null;
    part: string | null;
    /** Its name on the second side, where it differs. */
    part_b: string | null;
    mj: N;
    mj_lo: N;
    mj_hi: N;
    /** Of the first side's energy. */
    share: N;
    text: string;
  }[];
}

export interface Compare {
  runs: RunSummary[];
  /** The units of comparison: runs, repeats of each run, or groups. */
  sides: {
    name: string;
    runs: number;
    left_out: number;
    energy_source?: string;
    partial?: string | null;
    ids: string[];
  }[];
  differences: { setting: string; values: (string | number | boolean | null)[] }[];
  caveats: { code: string; text: string }[];
  verdicts: {
    a: number;
    b: number;
    metric: string;
    outcome: 'different' | 'not_distinguishable' | 'single_runs' | 'refused' | 'none';
    text: string;
    n_a: number;
    n_b: number;
    ratio: N;
    ratio_lo: N;
    ratio_hi: N;
    p: N;
    detectable_percent: N;
  }[];
  /** `verdict`: its index, or null for all pairs that are not distinguishable. */
  conclusions: {
    outcome: 'different' | 'not_distinguishable' | 'single_runs' | 'refused' | 'none';
    text: string;
    verdict: N;
  }[];
  best: {
    title: string;
    metric: string;
    side: number;
    value: N;
    tied_with: number[];
    untested: number[];
  }[];
  decomposition: {
    a: number;
    b: number;
    unit: string;
    mj_per_token_a: number;
    mj_per_token_b: number;
    difference_mj: number;
    terms: {
      phase: string | null;
      component: string | null;
      mj_a: N;
      mj_b: N;
      difference_mj: number;
      by_time_mj: N;
      by_power_mj: N;
      sd_mj: N;
    }[];
  }[];
  metrics: {
    metric: string;
    unit: string;
    better: 'lower' | 'higher' | null;
    values: N[];
    normalised: N[];
    lo?: N[];
    hi?: N[];
    n?: number[];
    difference: N[];
    difference_percent: N[];
  }[];
  tests: CompareTest[];
  phases: { phase: string; duration_ms: N[]; energy_mj: N[] }[];
  components: { component_name: string; time_ms: N[]; energy_mj: N[] }[];
}

export interface Advice {
  /** Why there is no advice on this run; null: there may be. */
  refusal: string | null;
  findings: {
    rule: string;
    title: string;
    text: string;
    kind: 'trust' | 'saving';
    evidence: { name: string; value: N; unit: string; text: string }[];
    saving: {
      of: string;
      basis: 'observed' | 'predicted';
      share: N;
      share_lo: N;
      share_hi: N;
      energy_mj: N;
    } | null;
    cost: { quality: string; latency: string; memory: string };
    test: string | null;
  }[];
  /** Why every other rule gives none. */
  silent?: { rule: string; reason: string }[];
}

/** A grid of settings, as docs/formats.md describes it. */
export interface Plan {
  name?: string;
  models?: string[];
  dtypes?: string[];
  batches?: number[];
  inputs?: number[];
  outputs?: number[];
  threads?: number[];
  prompt?: string | null;
  repeat?: number;
  precision?: number;
  cool_down_s?: number;
  max_latency_ms?: number;
  seed?: number;
  eval?: string | null;
  eval_text?: string | null;
  tasks?: string | null;
  tasks_text?: string | null;
  depth?: string;
  device?: string;
  power?: string;
  interval_ms?: number;
  round?: number;
}

/** What can compute on the machine. */
export interface DeviceList {
  devices: {
    id: string;
    name: string;
    kind: string;
    usable: boolean;
    rail: string | null;
    rail_reason: string | null;
  }[];
  no_vulkan: string | null;
}

export type ExperimentState =
  | 'queued'
  | 'running'
  | 'completed'
  | 'cancelled'
  | 'failed'
  | 'unfinished';

export interface ExperimentLine {
  name: string;
  created_at: string;
  state?: ExperimentState;
  error?: string | null;
  plan: Plan;
}

export interface ExperimentCell {
  cell: number;
  name: string;
  model: string | null;
  dtype: string | null;
  batch: number;
  input: number;
  output: number;
  threads: number;
  runs: number;
  disturbed_runs: number;
  energy_source: EnergySource | null;
  /** What the energy lacks: "CPU only, GPU missing". */
  partial: string | null;
  joules_per_token: N;
  joules_per_token_lo: N;
  joules_per_token_hi: N;
  joules_per_token_typical: N;
  joules_per_token_typical_lo: N;
  joules_per_token_typical_hi: N;
  tokens_per_second: N;
  ttft_ms: N;
  token_latency_ms: N;
  mean_power_mw: N;
  loss: N;
  /** Answers to the plan's tasks; null: none were scored. */
  tasks?: N;
  tasks_solved?: N;
  score?: N;
  score_lo?: N;
  score_hi?: N;
  solved_by_best_alone?: N;
  solved_alone?: N;
  score_p?: N;
  energy_per_million_active_parameters_mj?: N;
  decode_weight_bytes?: N;
  kv_megabytes?: N;
  context_share?: N;
  experts_per_step?: N;
  load_balance?: N;
  ids: string[];
}

export interface ExperimentProgress {
  run_id: string | null;
  done: number;
  total: number;
  block: number;
  cell: number;
  cell_name: string;
  left_s: N;
}

export interface Experiment {
  name: string;
  state: ExperimentState;
  error?: string | null;
  progress?: ExperimentProgress | null;
  round: number;
  done: number;
  total: number;
  /** The figure that decides: 'joules_per_token_typical' if all runs have it, else 'joules_per_token'. */
  metric?: string;
  plan: Plan;
  cells: ExperimentCell[];
  /** Why the cells are not comparable; there is no optimum then. */
  refusal?: string | null;
  optimum: {
    cell: number;
    name: string;
    joules_per_token: N;
    token_latency_ms: N;
    ties?: number[];
  } | null;
  knees: {
    over: string;
    first_cell: number;
    cell: number;
    batch: number;
    settled: boolean;
    text: string;
  }[];
  /** Pareto fronts of energy per token and another cost, cells by ascending cost. */
  fronts?: {
    over: 'loss' | 'score' | 'seconds_per_token';
    cells: number[];
    knee: number | null;
  }[];
  answers?: {
    tasks: number;
    best: number;
    least_energy: number | null;
    text: string | null;
  } | null;
  comparisons: {
    a: number;
    b: number;
    ratio: N;
    ratio_lo: N;
    ratio_hi: N;
    method: string;
    p_adjusted: N;
    different: boolean;
  }[];
  against_former: {
    cell: number;
    ratio: N;
    ratio_lo: N;
    ratio_hi: N;
    p: N;
    different: boolean;
  }[];
  ablations?: {
    cell: number;
    whole_cell: number;
    ablate: string;
    pairs: number;
    difference: Estimate;
    attributed: Estimate;
    planted_joules_per_token: N;
    resolution_joules_per_token: N;
    outcome: 'agree' | 'disagree' | 'too_short' | 'unclear' | 'open';
    text: string;
  }[];
}

export interface Estimate {
  joules_per_token: N;
  joules_per_token_lo: N;
  joules_per_token_hi: N;
}

export interface Health {
  status: string;
  version: string;
  queue: number;
  running: string | null;
  /** Runs not yet transferred to the database server. */
  waiting?: number;
}

export interface Machine {
  name: string;
  last_seen: string;
  last_seen_by: 'server' | 'run';
  runs: number;
  last_run: string | null;
  version: string | null;
  sensors: string[] | null;
  energy_source: EnergySource | null;
  energy_today_mj: N;
  energy_today_of: 'meter' | 'runs' | null;
  throttle: string[] | null;
  clock_offset_ms: N;
  clock_uncertainty_ms: N;
  live: boolean;
}

export interface PowerNow {
  end_unix_ms: number;
  step_ms: number;
  seconds: number;
  rails: {
    name: string;
    source: string;
    class: string;
    scope: string;
    quality: EnergySource;
    now_mw: N;
    energy_mj: N;
    power_mw: N[];
  }[];
  remedy: string | null;
}

export interface ModelInfo {
  name: string;
  place: string;
  architecture: string | null;
  parameters: N;
  active_parameters: N;
  layers: N;
  hidden_size: N;
  heads: N;
  kv_heads: N;
  attention: string | null;
  experts: N;
  dtype: string | null;
  error: string | null;
}

export interface Sensors {
  /** The value of `--power`. */
  power: string;
  sources: SensorSource[];
}

export interface SensorSource {
  name: string;
  state: 'ready' | 'optional' | 'denied' | 'absent';
  /** Used for the runs of this server. */
  in_use: boolean;
  reason: string | null;
  remedy: string | null;
  rails: SensorRail[];
}

export interface SensorRail {
  name: string;
  quality: EnergySource;
  power_mw: N;
  period_ms: N;
  /** Exact period of a counter whose ticks are on a grid. */
  grid_ms: N;
  /** How far back the driver's log reaches. */
  log_ms: N;
  /** The rail whose log shapes this counter's energy within a tick. */
  shape: string | null;
  /** What a read takes, as measured at first contact: the cheapest, the median, the 95th percentile. */
  read_ms: N;
  read_p50_ms: N;
  read_p95_ms: N;
  /** The same in words. */
  made_of: string | null;
}

/** What one task, or one commit that a gate measured, cost. */
export interface Session {
  session?: string;
  commit?: string;
  runs: number;
  runs_inside_others: number;
  runs_overlapping?: number;
  runs_without_energy?: number;
  begin: string;
  end: string;
  input_tokens: number;
  output_tokens: number;
  thinking_tokens: number | null;
  energy_mj: number | null;
  energy_sd_mj: number | null;
  energy_source: EnergySource;
  partial: boolean;
  tool_calls: number | null;
  joules_per_tool_call: number | null;
  calling_runs: number;
  calling_runs_energy_mj: number | null;
}

export interface Facets {
  engines: { name: string; runs: number }[];
  dtypes: { name: string; runs: number }[];
  machines: { name: string; runs: number }[];
  models: { name: string; runs: number }[];
  tags: { name: string; runs: number }[];
  experiments: { name: string; runs: number }[];
  statuses: { name: string; runs: number }[];
}

export interface GenerateRequest {
  model_name?: string;
  prompt?: string;
  prompt_ids?: number[];
  profiling_depth: string;
  max_length: number;
  tags: string[];
  experiment_name?: string;
  temperature?: number;
  top_k?: number;
  top_p?: number;
  min_p?: number;
  typical_p?: number;
  repetition_penalty?: number;
  frequency_penalty?: number;
  presence_penalty?: number;
  logit_bias?: Record<string, number>;
  seed?: number;
  stop?: string[];
  chat?: boolean;
  system?: string;
  ignore_eos?: boolean;
  no_mmap?: boolean;
  batch_size?: number;
  batch_rule?: string;
  statistics?: string;
  draft_model?: string;
  device?: string;
  draft_tokens?: number;
  dtype?: string;
  kv?: string;
  wait: boolean;
}
