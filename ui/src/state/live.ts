// State of the current run, from the live stream. Samples and heatmaps are stored in typed arrays
// outside of components; panels that draw them read the `version` signals once per frame, not per
// sample.
import { batch, effect, signal } from '@preact/signals';
import { decodeFrame } from '../api/binary';
import { api } from '../api/client';
import { type LinkState, LiveSocket } from '../api/socket';
import type { EnergySource, RunSummary, Sensors, Warning } from '../api/types';
import { PHASES } from '../charts/theme';
import { nextFrame } from '../core/frame';
import { absent, isKnown, type Quantity, quantity, weaker } from '../core/quantity';
import { lowerBound, Ring } from '../core/ring';

/** t, phase, cpu, gpu, ane, dram, total. 300,000 rows are five minutes at 1 kHz. */
export const COLUMNS = 7;
export const KEPT_SAMPLES = 300_000;
/** The token stream shows at most this many tokens; the rest is in the stored run. */
export const KEPT_TOKENS = 4096;

export interface LiveRun {
  id: string;
  model: string;
  prompt: string;
  depth: string;
  layers: number;
  state: 'queued' | 'running' | 'ended';
  status: string;
  error: string | null;
}

export interface LiveToken {
  position: number;
  sequence: number;
  text: string;
  phase: string;
  duration: number | null;
  energy: Quantity<'mJ'>;
  power: Quantity<'mW'>;
}

export interface LiveGrid {
  layers: number;
  components: string[];
  values: Float32Array;
  token: number;
  /** Set where the values are one sequence's share of a step that a batch shares. */
  sequence?: number;
  /** The source that the server reported for exactly these values. */
  what: GridUnit;
}

/** A heatmap shows either energy with its source, or time. */
export type GridUnit =
  | { metric: 'energy'; unit: 'mJ'; source: 'measured' | 'modelled' }
  | { metric: 'time'; unit: 'ms' };

/** null: unknown; nothing is shown. */
function gridUnit(m: Record<string, unknown>): GridUnit | null {
  const source = m.energy_source;
  if (m.metric === 'time' && m.unit === 'ms') return { metric: 'time', unit: 'ms' };
  if (m.metric === 'energy' && m.unit === 'mJ' && (source === 'measured' || source === 'modelled'))
    return { metric: 'energy', unit: 'mJ', source };
  return null;
}

export const link = signal<LinkState>('connecting');
export const run = signal<LiveRun | null>(null);
/** `prompt`: undefined until it was asked for; the live stream does not carry it. */
export const queue = signal<{ id: string; position: number; prompt?: string }[]>([]);
export const summary = signal<RunSummary | null>(null);
export const warnings = signal<(Warning & { run: string })[]>([]);
export interface Place {
  phase: string;
  section: string;
  token: number;
  /** As sampled by the server; -1: outside the layers, or unknown. */
  layer: number;
  t: number;
  /** Layers of the model that have been loaded; undefined: unknown. */
  load?: { done: number; total: number };
}
export const now = signal<Place>({
  phase: 'idle',
  section: '',
  token: -1,
  layer: -1,
  t: 0,
});
export const source = signal<EnergySource | null>(null);
/** The server's sensors; null until known. */
export const sensors = signal<Sensors | null>(null);
export const lost = signal(0);
/** The run that was asked to stop, until its end is reported. */
export const stopping = signal<string | null>(null);
export interface Ended {
  id: string;
  prompt: string;
  status: string;
  error: string | null;
  stored: boolean;
}
/** The run that ended last and those before it that were stopped or failed, newest first. */
export const ended = signal<Ended[]>([]);
const KEPT_ENDED = 4;
/** Runs whose begin this page knows: what still comes from one that is not the current run is late. */
let begun: string[] = [];
const KEPT_BEGUN = 64;
export const hasBegun = (id: string): boolean => begun.includes(id);
/** The page's clock at time 0 of the run. */
let zero = Number.NaN;

/** Duration of the current run by the page's clock, which advances between messages. */
export function elapsed(): number {
  if (run.peek()?.state !== 'running' || Number.isNaN(zero)) return here.t;
  return link.peek() === 'open' ? Math.max(here.t, performance.now() - zero) : here.t;
}
export const spans = signal<{ phase: string; start: number; end: number }[]>([]);

export const samples = new Ring(KEPT_SAMPLES, COLUMNS);
export const samplesVersion = signal(0);
export let tokens: LiveToken[] = [];
/** The same tokens by sequence; a run without a batch has one. */
export let lanes: LiveToken[][] = [];
export const tokensVersion = signal(0);
export const totals = {
  energy: absent('mJ') as Quantity<'mJ'>,
  known: 0,
  time: 0,
  decode: 0,
  decodeTime: 0,
};
export const grid = signal<LiveGrid | null>(null);

/** The value of `now` for the next frame, because sections change thousands of times per second. */
let here = now.peek();
let dirtySamples = false;
let dirtyTokens = false;
let freshGrid: LiveGrid | null = null;
let layout: string[] = [];
let layoutLayers = 0;
let layoutUnit: GridUnit | null = null;

const flush = (): void => {
  batch(() => {
    if (dirtySamples) samplesVersion.value++;
    if (dirtyTokens) tokensVersion.value++;
    if (freshGrid) grid.value = freshGrid;
    if (here !== now.peek()) now.value = here;
  });
  dirtySamples = dirtyTokens = false;
  freshGrid = null;
};

const mark = (): void => nextFrame(flush);

/** A version number updated at most eight times per second: text that changes faster cannot be read, and
 * every change causes a layout. */
export const glance = signal(0);
const GLANCE_MS = 125;
let glancing = false;
effect(() => {
  samplesVersion.value;
  tokensVersion.value;
  grid.value;
  now.value;
  if (glancing) return;
  glancing = true;
  setTimeout(() => {
    glancing = false;
    glance.value++;
  }, GLANCE_MS);
});

const num = (v: unknown): number | null => (typeof v === 'number' && Number.isFinite(v) ? v : null);
const str = (v: unknown): string => (typeof v === 'string' ? v : '');

function begin(id: string, m: Record<string, unknown>, state: LiveRun['state']): void {
  const same = run.value?.id === id;
  if (same && run.value?.state === state) return;
  if (!same) {
    const last = run.value;
    if (last && last.state !== 'ended') void missedEnd(last);
    begun = [id, ...begun].slice(0, KEPT_BEGUN);
    // Warnings that precede the run's start (such as no power) belong to it.
    const early = warnings.peek().filter((w) => w.run === id);
    const unpowered = early.some((w) => w.code === 'power_unavailable');
    reset();
    warnings.value = early;
    if (unpowered) source.value = 'unavailable';
  }
  run.value = {
    id,
    model: str(m.model_name) || (same ? run.value!.model : ''),
    prompt: str(m.prompt) || (same ? run.value!.prompt : ''),
    depth: str(m.profiling_depth),
    layers: num(m.layer_count) ?? 0,
    state,
    status: state,
    error: null,
  };
  if (!same) zero = performance.now() - (num(m.t_ms) ?? 0);
  queue.value = queue.value.filter((q) => q.id !== id);
}

export function reset(): void {
  samples.clear();
  tokens = [];
  lanes = [];
  Object.assign(totals, { energy: absent('mJ'), known: 0, time: 0, decode: 0, decodeTime: 0 });
  batch(() => {
    summary.value = null;
    warnings.value = [];
    spans.value = [];
    grid.value = null;
    source.value = null;
    lost.value = 0;
    settled.value = false;
    here = now.value = { phase: 'idle', section: '', token: -1, layer: -1, t: 0 };
    samplesVersion.value++;
    tokensVersion.value++;
  });
}

/** Updates the phase shading of the power chart: one span until the phase changes. Phases come from the
 * samples or, without any, from the sections. */
function phaseAt(phase: string, t: number): void {
  const list = spans.value;
  const last = list[list.length - 1];
  if (last && t < last.end) return;
  if (last?.phase === phase) {
    last.end = t;
    return;
  }
  if (last) last.end = t;
  spans.value = [...list, { phase, start: t, end: t }];
}

const row = new Float64Array(COLUMNS);

function sample(t: number, phase: string, rails: (number | null)[]): void {
  // After a reconnect the server may repeat tokens that this page already has.
  if (samples.length && t <= samples.last(0)) return;
  row[0] = t;
  row[1] = Math.max(0, (PHASES as readonly string[]).indexOf(phase));
  for (let i = 0; i < 5; i++) row[2 + i] = rails[i] ?? Number.NaN;
  samples.push(row);
  phaseAt(phase, t);
  dirtySamples = true;
}

function token(m: Record<string, unknown>): void {
  const t: LiveToken = {
    position: num(m.position) ?? tokens.length,
    sequence: num(m.sequence) ?? 0,
    text: str(m.text),
    phase: str(m.phase),
    duration: num(m.duration_ms),
    energy: quantity('mJ', num(m.energy_mj), sourceOf(m)),
    power: quantity('mW', num(m.power_mw), sourceOf(m)),
  };
  const lane = laneOf(t.sequence);
  const last = lane[lane.length - 1];
  if (last && t.position <= last.position) return;
  // The sequences of a batch share the steps, which count once.
  const before = tokens[tokens.length - 1];
  const step = !before || before.position !== t.position || before.phase !== t.phase;
  tokens.push(t);
  lane.push(t);
  addUp(t.energy);
  if (step) totals.time += t.duration ?? 0;
  if (t.phase === 'decode') {
    totals.decode++;
    if (step) totals.decodeTime += t.duration ?? 0;
  }
  dirtyTokens = true;
  here = { ...here, token: t.position, t: num(m.t_ms) ?? here.t };
}

function laneOf(sequence: number): LiveToken[] {
  while (lanes.length <= sequence) lanes.push([]);
  return lanes[sequence];
}

/** The source of a message's energies; without one they are not shown. */
const sourceOf = (m: Record<string, unknown>): EnergySource | null => {
  const s = m.energy_source;
  return s === 'measured' || s === 'modelled' || s === 'unavailable' ? s : null;
};

function addUp(q: Quantity<'mJ'>): void {
  if (!isKnown(q)) return;
  const t = totals.energy;
  totals.energy = isKnown(t) ? quantity('mJ', t.value + q.value, weaker(t.source, q.source)) : q;
  totals.known++;
}

interface PartMessage {
  layer_index: number | null;
  component_name: string;
  time_ms: number | null;
  energy_mj: number | null;
}

/** If binary frames are unavailable: the heatmap of one token from its component list. */
function components(m: Record<string, unknown>): void {
  const list = (Array.isArray(m.components) ? m.components : []) as PartMessage[];
  const inside = list.filter((c) => c.layer_index !== null && c.layer_index >= 0);
  const names = [...new Set(inside.map((c) => c.component_name))];
  const layers = 1 + Math.max(-1, ...inside.map((c) => c.layer_index as number));
  const source = sourceOf(m);
  const known = source === 'measured' || source === 'modelled';
  const timed = !known || !inside.some((c) => num(c.energy_mj) !== null);
  const values = new Float32Array(layers * names.length).fill(Number.NaN);
  for (const c of inside) {
    const v = timed ? num(c.time_ms) : num(c.energy_mj);
    if (v !== null)
      values[(c.layer_index as number) * names.length + names.indexOf(c.component_name)] = v;
  }
  freshGrid = {
    layers,
    components: names,
    values,
    token: num(m.position) ?? 0,
    what:
      timed || !known ? { metric: 'time', unit: 'ms' } : { metric: 'energy', unit: 'mJ', source },
  };
}

function end(m: Record<string, unknown>, status: string): void {
  const r = run.value;
  const stored = m.summary !== null && m.summary !== undefined;
  if (!r || r.id !== m.run_id) {
    // A run that was cancelled or failed before it began.
    const id = str(m.run_id);
    const prompt = queue.value.find((q) => q.id === id)?.prompt ?? '';
    queue.value = queue.value.filter((q) => q.id !== id);
    if (status === 'failed') noteEnd({ id, prompt, status, error: str(m.error) || null, stored });
    return;
  }
  noteEnd({ ...r, status, error: str(m.error) || null, stored });
  if (stopping.value === r.id) stopping.value = null;
  batch(() => {
    summary.value = (m.summary as RunSummary | undefined) ?? null;
    run.value = { ...r, state: 'ended', status, error: str(m.error) || null };
    here = { ...here, phase: 'idle', section: '', layer: -1 };
    finished.value++;
  });
  void atEnd(r.id);
}

function noteEnd({ id, prompt, status, error, stored }: Ended): void {
  const before = ended.value.filter((x) => x.id !== id && x.status !== 'completed');
  ended.value = [{ id, prompt, status, error, stored }, ...before].slice(0, KEPT_ENDED);
}

/** A run of a queue that begins so soon after is not disturbed by requests for the one before. */
const SETTLE_MS = 150;

/** What was provisional or lost on the live stream is replaced by what is stored. */
async function atEnd(id: string): Promise<void> {
  await new Promise((done) => setTimeout(done, SETTLE_MS));
  if (run.peek()?.id !== id || !summary.peek()) return;
  const made = num(summary.peek()?.output_tokens) ?? tokens.length;
  await Promise.all([refetch(id, made), storedPower(id)]);
  await finalGrid(id, made - 1);
}

/** More samples than these stay as they came: the stored ones would be thinned. */
const STORED_SAMPLES = 20_000;
/** The power shown is that of the stored run. */
export const settled = signal(false);

async function storedPower(id: string): Promise<void> {
  try {
    const p = await api.power(id, { points: STORED_SAMPLES });
    if (run.value?.id !== id || p.bucket_samples > 1) return;
    const rails = [
      p.cpu_power_mw,
      p.gpu_power_mw,
      p.ane_power_mw,
      p.dram_power_mw,
      p.total_power_mw,
    ];
    const t = samples.view(0);
    const last = p.t_ms[p.t_ms.length - 1] ?? Number.POSITIVE_INFINITY;
    const after: number[][] = [];
    for (let i = lowerBound(t, last); i < t.length; i++)
      if (t[i] > last) after.push(samples.columns.map((_, k) => samples.view(k)[i]));
    if (p.t_ms.length) samples.clear();
    p.t_ms.forEach((at, i) => {
      samples.push([at, p.phase[i], ...rails.map((r) => r?.[i] ?? Number.NaN)]);
    });
    for (const late of after) samples.push(late);
    batch(() => {
      spans.value = p.phases.map((x) => ({ phase: x.phase, start: x.start_ms, end: x.end_ms }));
      settled.value = true;
      samplesVersion.value++;
    });
  } catch {
    // The live data stays on screen.
  }
}

/** The final heatmap of the last token: live heatmaps come at most 20 times per second, and before all sensor
 * readings. */
async function finalGrid(id: string, token: number): Promise<void> {
  const r = run.peek();
  if (token < 0 || r?.id !== id || r.depth === 'off' || !summary.peek()) return;
  try {
    const metric = summary.peek()?.energy_source === 'unavailable' ? 'time' : 'energy';
    const h = await api.heatmap(id, { metric, token });
    if (run.value?.id !== id || run.value.state !== 'ended' || !h.layers.length) return;
    const what = gridUnit({ ...h });
    const values = Float32Array.from(h.values.flat(), (v) => v ?? Number.NaN);
    if (!what) return;
    const last = tokens[tokens.length - 1];
    const sequence = lanes.length > 1 ? last.sequence : undefined;
    const at = sequence === undefined ? token : last.position;
    const [layers, components] = [h.layers.length, h.components];
    grid.value = { layers, components, values, token: at, sequence, what };
  } catch {
    // The live data stays on screen.
  }
}

/** The energies of the stored tokens; if some were lost on the live stream, also those: the last ones, if there are
 * very many. */
async function refetch(id: string, made: number): Promise<void> {
  if (made > KEPT_TOKENS && tokens.length >= made) return;
  try {
    const { tokens: rows, energy_source: source } = await api.tokens(id, {
      offset: Math.max(0, made - KEPT_TOKENS),
      limit: KEPT_TOKENS,
    });
    if (run.value?.id !== id) return;
    const had = new Map(tokens.map((t) => [`${t.sequence} ${t.position}`, t]));
    const stored = rows.map((r): LiveToken => {
      const t = had.get(`${r.sequence} ${r.position}`);
      return Object.assign(t ?? { phase: r.phase, duration: r.duration_ms }, {
        position: r.position,
        sequence: r.sequence,
        text: r.text ?? t?.text ?? '',
        energy: quantity('mJ', r.energy_mj, source),
        power: quantity('mW', r.power_snapshot_mw, source),
      });
    });
    if (tokens.length < made) {
      tokens = stored;
      lanes = [];
      for (const t of tokens) laneOf(t.sequence).push(t);
    }
    tokensVersion.value++;
  } catch {
    // The live data stays on screen.
  }
}

/** Progress of the running experiment; null: none was reported. */
export interface ExperimentNews {
  name: string;
  state: string;
  done: number;
  total: number;
  cell: string;
  left: number | null;
  /** Time of the report by the page's clock. */
  at: number;
}
export const experiment = signal<ExperimentNews | null>(null);

/** Counts finished runs; lists of stored runs reload when it changes. */
export const finished = signal(0);

/** Messages about the inside of a run. */
const INSIDE = new Set([
  'run_model',
  'power_sample',
  'section_start',
  'section_end',
  'layer_running',
  'load_progress',
  'token_complete',
  'component_metrics',
  'heatmap_layout',
]);

/** A slow reader loses messages, among them the begin of a run: then its first message begins it here. */
function adopt(id: string, m: Record<string, unknown>): void {
  begin(id, { t_ms: m.t_ms }, 'running');
  void (async () => {
    const s = await api.summary(id).catch(() => null);
    const r = run.value;
    if (!s || r?.id !== id) return;
    const [model, prompt] = [r.model || (s.model_name ?? ''), r.prompt || (s.prompt ?? '')];
    run.value = { ...r, model, prompt, depth: r.depth || s.profiling_depth };
  })();
}

function message(m: Record<string, unknown> & { type: string }): void {
  const id = str(m.run_id);
  const t = num(m.t_ms) ?? here.t;
  if (id && id !== run.value?.id && INSIDE.has(m.type)) {
    if (hasBegun(id)) return;
    adopt(id, m);
  }
  if (run.value?.id === id && num(m.t_ms) !== null) {
    // Clock synchronisation: the message with the smallest delay determines the offset.
    const at = performance.now() - t;
    if (!(zero <= at)) zero = at;
  }
  switch (m.type) {
    case 'hello': {
      const r = m.running as Record<string, unknown> | null | undefined;
      // The server replays what it still has of the current run; messages already received are skipped.
      if (r && typeof r === 'object' && str(r.run_id)) begin(str(r.run_id), r, 'running');
      else if (run.value && run.value.state !== 'ended') void missedEnd(run.value);
      break;
    }
    case 'run_queued':
      queue.value = [
        ...queue.value.filter((q) => q.id !== id),
        { ...queue.value.find((q) => q.id === id), id, position: num(m.position) ?? 0 },
      ].sort((a, b) => a.position - b.position);
      break;
    case 'run_started':
      begin(id, m, 'running');
      break;
    case 'run_model':
      if (run.value?.id === id)
        run.value = {
          ...run.value,
          model: str(m.model_name) || run.value.model,
          layers: num(m.layer_count) ?? 0,
        };
      break;
    case 'power_sample':
      source.value = str(m.energy_source) as EnergySource;
      sample(t, str(m.phase), [
        num(m.cpu_power_mw),
        num(m.gpu_power_mw),
        num(m.ane_power_mw),
        num(m.dram_power_mw),
        num(m.total_power_mw),
      ]);
      break;
    case 'section_start':
      here = { ...here, phase: str(m.phase), section: str(m.section_name), layer: -1, t };
      if (source.value === 'unavailable') phaseAt(str(m.phase), t);
      break;
    case 'section_end':
      here = { ...here, phase: str(m.phase), t };
      break;
    case 'layer_running':
      here = {
        ...here,
        phase: str(m.phase),
        section: 'layers',
        token: num(m.position) ?? here.token,
        layer: num(m.layer_index) ?? -1,
        t,
      };
      break;
    case 'load_progress':
      here = {
        ...here,
        t,
        load: { done: num(m.layers_done) ?? 0, total: num(m.layers_total) ?? 0 },
      };
      break;
    case 'token_complete':
      token(m);
      break;
    case 'component_metrics':
      components(m);
      break;
    case 'heatmap_layout':
      layout = Array.isArray(m.components) ? m.components.map(String) : [];
      layoutLayers = num(m.layers) ?? 0;
      layoutUnit = gridUnit(m);
      break;
    case 'inference_complete':
      end(m, str(m.status) || 'completed');
      break;
    case 'run_failed':
      end(m, str(m.status) || 'failed');
      break;
    case 'warning':
      if (m.code === 'power_unavailable' && (run.value?.id === id || !run.value))
        source.value = 'unavailable';
      if (!warnings.value.some((w) => w.code === m.code && w.text === m.text)) {
        warnings.value = [
          ...warnings.value,
          { run: id, t_ms: t, code: str(m.code), text: str(m.text) },
        ];
      }
      break;
    case 'experiment_progress':
      experiment.value = {
        name: str(m.experiment),
        state: str(m.state),
        done: num(m.done) ?? 0,
        total: num(m.total) ?? 0,
        cell: str(m.cell_name),
        left: num(m.left_s),
        at: performance.now(),
      };
      break;
    case 'gap':
      lost.value += Math.max(1, (num(m.to) ?? 0) - (num(m.from) ?? 0) + 1);
      break;
  }
  mark();
}

function binary(buffer: ArrayBuffer): void {
  const f = decodeFrame(buffer);
  if (!f) return;
  if (f.kind === 'power') {
    const [dt, phase, ...rails] = f.columns;
    for (let i = 0; i < f.rows; i++) {
      const t = f.tMs + dt[i];
      if (samples.length && t <= samples.last(0)) continue;
      row[0] = t;
      row[1] = phase[i];
      for (let k = 0; k < 5; k++) row[2 + k] = rails[k][i];
      samples.push(row);
      if (phase[i] !== phase[i - 1] || i === f.rows - 1) phaseAt(PHASES[phase[i]] ?? 'idle', t);
    }
    dirtySamples = true;
  } else if (layoutUnit && f.layers === layoutLayers && f.components === layout.length) {
    freshGrid = {
      layers: f.layers,
      components: layout,
      values: f.values,
      token: f.token,
      what: layoutUnit,
    };
  }
  mark();
}

/** The run ended while the connection was down, or this page fell too far behind to be told. */
async function missedEnd(r: LiveRun): Promise<void> {
  const s = await api.summary(r.id).catch(() => null);
  if (run.value?.id === r.id) {
    if (s) end({ run_id: r.id, summary: s, error: s.failure }, s.status);
    else run.value = { ...r, state: 'ended', status: 'interrupted' };
  } else if (s) {
    noteEnd({ ...r, status: s.status, error: s.failure ?? null, stored: true });
    finished.value++;
  }
}

let socket: LiveSocket | null = null;

export function startLive(): () => void {
  socket = new LiveSocket({
    state: (s) => {
      link.value = s;
    },
    message,
    binary,
  });
  return () => socket?.close();
}

/** For tests: feeds a message as if the server had sent it. */
export const feed = { message, binary };
