// Sums over the selected scope (range, phase, token, sequence, layer, component) of a run.
// Everything that the workspace shows is a sum over token rows, weighted by the fraction of each
// row inside the scope. Disturbances are a block of their own in each phase: the cubes are without them, and the
// rows state them. Two cubes (energy and time by token, layer and component; in a batch each
// sequence's share of the step) and the rows of tokens and phases suffice to sum any part of a run
// within milliseconds.
import type { Cube } from '../../api/binary';
import type { DisturbedFields, EnergySource, PhaseRow, TokenRow, TreeNode } from '../../api/types';
import { known } from '../../core/format';
import { type Quantity, quantity } from '../../core/quantity';
import { quantile } from '../../core/stats';
import type { Range } from '../../state/selection';

export interface Scope {
  range: Range | null;
  phase: string | null;
  token: number | null;
  sequence: number | null;
  layer: number | null;
  component: string | null;
}

export interface Cubes {
  energy: Cube | null;
  time: Cube;
  /** Dimensions of the cubes; the last layer index is outside the layers. */
  components: string[];
}

export interface RunRows {
  tokens: TokenRow[];
  phases: PhaseRow[];
  source: EnergySource;
  missing: readonly string[];
}

export const OUTSIDE = -1;

/** Whether the scope restricts time, so that sums of the whole run do not apply. */
export const isTimed = (s: Scope): boolean =>
  s.range !== null || s.token !== null || s.sequence !== null;

const overlap = (from: number, length: number, r: Range | null): number => {
  if (!r) return 1;
  if (length <= 0) return from >= r[0] && from <= r[1] ? 1 : 0;
  return Math.max(0, Math.min(r[1], from + length) - Math.max(r[0], from)) / length;
};

/** The numbers of the tokens to step through: those of the chosen sequence, else of all. */
export const tokensOf = (tokens: readonly TokenRow[], sequence: number | null): number[] =>
  tokens.filter((t) => sequence === null || t.sequence === sequence).map((t) => t.token);

/** The token `by` steps from `now` in such a list, which it does not leave; with none chosen, its first or last. */
export function stepFrom(list: readonly number[], now: number | null, by: number): number | null {
  if (list.length === 0) return null;
  const at = now === null ? -1 : list.indexOf(now);
  if (at < 0) return by > 0 ? list[0] : list[list.length - 1];
  return list[Math.max(0, Math.min(list.length - 1, at + by))];
}

/** The share of each token row that lies in the scope, 0 to 1. */
export function weigh(rows: RunRows, s: Scope): Float64Array {
  return Float64Array.from(rows.tokens, (t) => {
    if (s.token !== null && t.token !== s.token) return 0;
    if (s.phase !== null && t.phase !== s.phase) return 0;
    if (s.sequence !== null && t.sequence !== s.sequence) return 0;
    return overlap(t.start_ms, t.duration_ms, s.range);
  });
}

/** Phases without tokens; they are excluded from a scope with a token or a sequence. */
function bare(rows: RunRows, s: Scope): { phase: PhaseRow; weight: number }[] {
  if (s.token !== null || s.sequence !== null) return [];
  const covered = new Set(rows.tokens.map((t) => t.phase));
  return rows.phases
    .filter((p) => !covered.has(p.phase) && (s.phase === null || s.phase === p.phase))
    .map((phase) => ({ phase, weight: overlap(phase.start_ms, phase.duration_ms, s.range) }))
    .filter((x) => x.weight > 0);
}

export interface Figures {
  energy: Quantity<'mJ'>;
  net: Quantity<'mJ'>;
  ms: number;
  tokens: number;
  /** Mean gross energy of the tokens in the scope, without phases that have none (such as loading). */
  mean: number | null;
  /** Energies of the decode tokens in the scope, ascending. */
  perToken: Float64Array;
}

interface EnergyRow {
  energy_mj: number | null;
  net_energy_mj: number | null;
  energy_sd_mj: number | null;
  net_energy_sd_mj: number | null;
}

/** Figures of a scope without layer or component, directly from the rows. Time between tokens within a token
 * phase counts as the phase's. */
export function figures(rows: RunRows, s: Scope): Figures {
  const w = weigh(rows, s);
  let [mj, net, sd, netSd, ms, n] = [0, 0, 0, 0, 0, 0];
  let ok = true;
  let netOk = true;
  const add = (row: EnergyRow, share: number) => {
    ok &&= known(row.energy_mj);
    netOk &&= known(row.net_energy_mj);
    mj += share * (row.energy_mj ?? 0);
    net += share * (row.net_energy_mj ?? 0);
    sd += share * (row.energy_sd_mj ?? 0);
    netSd += share * (row.net_energy_sd_mj ?? 0);
  };
  const seen = new Set<number>();
  const each: number[] = [];
  let [tokensMj, weight] = [0, 0];
  rows.tokens.forEach((t, i) => {
    if (w[i] <= 0) return;
    n++;
    const step = t.step ?? i;
    if (!seen.has(step)) ms += w[i] * t.duration_ms;
    seen.add(step);
    if (t.phase === 'decode' && w[i] > 0.5 && known(t.energy_mj)) each.push(t.energy_mj);
    if (s.phase === null || s.range || isTimed(s)) add(t, w[i]);
    tokensMj += known(t.energy_mj) ? w[i] * t.energy_mj : Number.NaN;
    weight += w[i];
  });
  const whole = s.phase !== null && !isTimed(s);
  if (whole) {
    ms = 0;
    for (const p of rows.phases.filter((x) => x.phase === s.phase)) {
      add(p, 1);
      ms += p.duration_ms;
    }
  } else
    for (const { phase, weight } of bare(rows, s)) {
      add(phase, weight);
      ms += weight * phase.duration_ms;
    }
  const any = n > 0 || ms > 0;
  const { source, missing } = rows;
  return {
    energy: quantity('mJ', ok && any ? mj : null, source, { sd, missing }),
    net: quantity('mJ', netOk && any ? net : null, source, { sd: netSd, missing, signed: true }),
    ms,
    tokens: n,
    mean: n > 0 && !Number.isNaN(tokensMj) ? tokensMj / weight : null,
    perToken: Float64Array.from(each).sort(),
  };
}

export type Aggregate = 'sum' | 'mean' | 'median';
export type CellMetric = 'energy' | 'time' | 'power';

/** Sums of layers × components per phase: the data of all views of the structure. */
export interface Sums {
  metric: 'energy' | 'time';
  /** The scope holds only some layers or components: its phases are worth what these are worth. */
  partial: boolean;
  phases: {
    name: string;
    value: number | null;
    ms: number;
    energy: number | null;
    /** The part of the value that is disturbance, and its time and energy; components are without it. */
    disturbed: { value: number; ms: number; energy: number };
  }[];
  components: string[];
  /** The number of layers, without the row outside the layers. */
  layers: number;
  /** One matrix per phase, (layers + 1) × components; NaN: that layer has no such component. */
  energy: Float64Array[];
  time: Float64Array[];
}

const inPart = (s: Scope, layer: number, layers: number, component: string): boolean =>
  (s.layer === null || (s.layer === OUTSIDE ? layer === layers : layer === s.layer)) &&
  (s.component === null || s.component === component);

const idleOf = (p: PhaseRow[]): number => {
  const ms = p.reduce((a, x) => a + x.duration_ms, 0);
  const idle = p.reduce(
    (a, x) =>
      a +
      (x.energy_mj !== null && x.net_energy_mj !== null
        ? x.energy_mj - x.net_energy_mj
        : Number.NaN),
    0,
  );
  return ms > 0 ? idle / ms : Number.NaN;
};

const noDisturbance = { value: 0, ms: 0, energy: 0 };

/** What of a phase in the scope is disturbance. */
function disturbedOf(rows: RunRows, s: Scope, phase: string, timed: boolean, net: boolean) {
  if (s.layer !== null || s.component !== null) return noDisturbance;
  let [ms, mj] = [0, 0];
  const add = (x: DisturbedFields, share: number) => {
    ms += share * (x.disturbed_ms ?? 0);
    mj += share * ((net ? x.disturbed_net_energy_mj : x.disturbed_energy_mj) ?? 0);
  };
  if (!isTimed(s)) for (const p of rows.phases.filter((x) => x.phase === phase)) add(p, 1);
  else {
    const w = weigh(rows, { ...s, phase });
    const seen = new Set<number>();
    rows.tokens.forEach((t, i) => {
      if (w[i] <= 0) return;
      const step = t.step ?? i;
      add(seen.has(step) ? { ...t, disturbed_ms: 0 } : t, w[i]);
      seen.add(step);
    });
    for (const { phase: p, weight } of bare(rows, { ...s, phase })) add(p, weight);
  }
  return { value: timed ? ms : mj, ms, energy: mj };
}

/** Sums every cell over the tokens in the scope. `net` subtracts idle power in proportion to time. */
export function sums(
  rows: RunRows,
  cubes: Cubes,
  s: Scope,
  metric: 'energy' | 'time',
  net = false,
): Sums {
  const w = weigh(rows, s);
  const [layers, columns] = [cubes.time.layers - 1, cubes.time.components];
  const size = (layers + 1) * columns;
  const names = [...new Set(rows.phases.map((p) => p.phase))].filter(
    (p) => s.phase === null || s.phase === p,
  );
  const slot = new Map(names.map((n, i) => [n, i]));
  const make = () => names.map(() => new Float64Array(size).fill(Number.NaN));
  const [energy, time] = [make(), make()];
  const idle = names.map((n) => idleOf(rows.phases.filter((p) => p.phase === n)));
  const addInto = (out: Float64Array, from: Float32Array, at: number, share: number) => {
    for (let k = 0; k < size; k++) {
      const v = from[at + k];
      if (!Number.isNaN(v)) out[k] = (!Number.isNaN(out[k]) ? out[k] : 0) + share * v;
    }
  };
  rows.tokens.forEach((t, i) => {
    const share = w[i];
    const p = slot.get(t.phase);
    if (share <= 0 || p === undefined || i >= cubes.time.tokens) return;
    // A step's energy is stored as each sequence's share, its time in full.
    const ofStep = t.step === null ? 1 : (t.share ?? 1);
    addInto(time[p], cubes.time.values, i * size, share * ofStep);
    if (cubes.energy) addInto(energy[p], cubes.energy.values, i * size, share);
  });
  if (net)
    energy.forEach((e, p) => {
      for (let k = 0; k < size; k++) e[k] -= idle[p] * time[p][k];
    });
  for (let l = 0; l <= layers; l++)
    for (let c = 0; c < columns; c++)
      if (!inPart(s, l, layers, cubes.components[c]))
        for (let p = 0; p < names.length; p++)
          energy[p][l * columns + c] = time[p][l * columns + c] = Number.NaN;
  const phases = names.map((name) => {
    const f = figures(rows, { ...s, phase: name, layer: null, component: null });
    const q = net ? f.net : f.energy;
    const mj = q.source === 'unavailable' ? null : q.value;
    const value = metric === 'time' ? f.ms : mj;
    const lost = disturbedOf(rows, s, name, metric === 'time', net);
    // Net of idle, pieces of idle time may be above and below zero: their sum may be less than the disturbed one.
    const disturbed = {
      value: Math.min(lost.value, Math.max(0, value ?? lost.value)),
      ms: lost.ms,
      energy: Math.min(lost.energy, Math.max(0, mj ?? lost.energy)),
    };
    return { name, ms: f.ms, energy: mj, value, disturbed };
  });
  const partial = s.layer !== null || s.component !== null;
  return { metric, partial, phases, components: cubes.components, layers, energy, time };
}

/** Layers × components of one metric over all phases of the sums. */
export function matrix(m: Sums, metric: CellMetric): Float64Array {
  const size = (m.layers + 1) * m.components.length;
  const out = new Float64Array(size).fill(Number.NaN);
  const add = (list: Float64Array[], k: number): number => {
    let v = Number.NaN;
    for (const a of list) if (!Number.isNaN(a[k])) v = (!Number.isNaN(v) ? v : 0) + a[k];
    return v;
  };
  for (let k = 0; k < size; k++) {
    const t = metric === 'energy' ? 1 : add(m.time, k);
    const e = metric === 'time' ? 1 : add(m.energy, k);
    out[k] = metric === 'time' ? t : metric === 'energy' ? e : t > 0 ? (e * 1000) / t : Number.NaN;
  }
  return out;
}

/** The median of each cell over the tokens in the scope. */
export function medians(rows: RunRows, cube: Cube, s: Scope): Float64Array {
  const w = weigh(rows, s);
  const size = cube.layers * cube.components;
  const inside = Array.from(w.keys()).filter((i) => w[i] > 0 && i < cube.tokens);
  const out = new Float64Array(size).fill(Number.NaN);
  const one = new Float64Array(inside.length);
  for (let k = 0; k < size; k++) {
    let n = 0;
    for (const i of inside) {
      const v = cube.values[i * size + k];
      if (!Number.isNaN(v)) one[n++] = v;
    }
    if (n) out[k] = quantile(one.subarray(0, n).sort(), 0.5);
  }
  return out;
}

/** Energy or time by layer and token: a map of the run's rhythm. Layers × tokens, row-major by token. */
export function tokenLayers(rows: RunRows, cube: Cube, s: Scope, components: string[]) {
  const w = weigh(rows, s);
  const tokens = Array.from(w.keys()).filter((i) => w[i] > 0 && i < cube.tokens);
  const layers = cube.layers - 1;
  const columns = cube.components;
  const values = new Float32Array(tokens.length * layers).fill(Number.NaN);
  tokens.forEach((t, x) => {
    for (let l = 0; l < layers; l++) {
      let v = Number.NaN;
      for (let c = 0; c < columns; c++) {
        if (s.component !== null && components[c] !== s.component) continue;
        const cell = cube.values[(t * (layers + 1) + l) * columns + c];
        if (!Number.isNaN(cell)) v = (!Number.isNaN(v) ? v : 0) + cell;
      }
      values[x * layers + l] = v;
    }
  });
  return { tokens: tokens.map((i) => rows.tokens[i].token), layers, values };
}

export interface PartSum {
  component: string;
  energy: number | null;
  ms: number;
}

/** The components in the scope, over all its layers, hottest first. */
export function hottest(m: Sums): PartSum[] {
  const [e, t] = [matrix(m, 'energy'), matrix(m, 'time')];
  const n = m.components.length;
  const total = (a: Float64Array, c: number): number | null => {
    let v = Number.NaN;
    for (let l = 0; l <= m.layers; l++)
      if (!Number.isNaN(a[l * n + c])) v = (!Number.isNaN(v) ? v : 0) + a[l * n + c];
    return !Number.isNaN(v) ? v : null;
  };
  return m.components
    .map((component, c) => ({ component, energy: total(e, c), ms: total(t, c) ?? 0 }))
    .filter((p) => p.energy !== null || p.ms > 0)
    .sort((a, b) => (b.energy ?? b.ms) - (a.energy ?? a.ms));
}

const ADDS = 1e-9;

export interface Hottest {
  parts: PartSum[];
  /** The scope holds disturbances, which the parts and `whole` leave out. */
  calm: boolean;
  /** What the scope holds (mJ; ms without energy), of which the parts are shares: more than their sum, because
   * loading and what no component did belong to it too. */
  whole: number | null;
}

/** The hottest components of the scope, whose sums are without disturbances. */
export function hottestCalm(m: Sums): Hottest {
  const parts = hottest(m);
  const timed = !parts.some((p) => p.energy !== null);
  const lost = m.phases.reduce((a, p) => a + (timed ? p.disturbed.ms : p.disturbed.energy), 0);
  const calm = lost > 0;
  // A phase outside the scope has no energy, as opposed to an unavailable one.
  const held = m.phases.flatMap((p) => (p.ms > 0 ? [timed ? p.ms : p.energy] : []));
  if (m.partial || held.some((v) => v === null)) {
    const sum = parts.reduce((a, p) => a + Math.max(0, timed ? p.ms : (p.energy ?? 0)), 0);
    return { parts, calm, whole: sum > 0 ? sum : null };
  }
  const whole = held.reduce<number>((a, v) => a + (v ?? 0), 0) - lost;
  return { parts, calm, whole: whole > 0 ? whole : null };
}

/** The sums as a tree: run, phase, (layer,) component. With `merged`, components are summed over all layers,
 * because energy differs by component rather than by layer. */
export function tree(m: Sums, merged: boolean): TreeNode {
  const n = m.components.length;
  const pick = m.metric === 'time' ? m.time : m.energy;
  const node = (
    kind: TreeNode['kind'],
    name: string,
    value: number | null,
    ms: number | null,
    mj: number | null,
    children: TreeNode[],
    layer: number | null = null,
  ): TreeNode => {
    const held = children.reduce((a, c) => a + (c.value ?? 0), 0);
    const self = value === null ? null : Math.max(0, value - held);
    return { kind, name, value, time_ms: ms, energy_mj: mj, self, layer, children };
  };
  const leaf = (
    p: number,
    cells: number[],
    component: string,
    layer: number | null,
  ): TreeNode[] => {
    let [v, ms, mj] = [Number.NaN, 0, 0];
    for (const k of cells) {
      const x = pick[p][k];
      if (!Number.isNaN(x)) v = (!Number.isNaN(v) ? v : 0) + x;
      ms += m.time[p][k] || 0;
      mj += m.energy[p][k] || 0;
    }
    return v > ADDS
      ? [{ ...node('component', component, v, ms, mj, [], layer), children: undefined }]
      : [];
  };
  const phases = m.phases.map((phase, p) => {
    let children: TreeNode[];
    if (merged)
      children = m.components.flatMap((c, j) =>
        leaf(
          p,
          Array.from({ length: m.layers + 1 }, (_, l) => l * n + j),
          c,
          null,
        ),
      );
    else {
      children = Array.from({ length: m.layers }, (_, l) => {
        const parts = m.components.flatMap((c, j) => leaf(p, [l * n + j], c, l));
        const held = (k: 'value' | 'time_ms' | 'energy_mj') =>
          parts.reduce((a, x) => a + (x[k] ?? 0), 0);
        return node(
          'layer',
          `layer ${l}`,
          held('value'),
          held('time_ms'),
          held('energy_mj'),
          parts,
          l,
        );
      }).filter((x) => x.children?.length);
      children.push(...m.components.flatMap((c, j) => leaf(p, [m.layers * n + j], c, null)));
    }
    const lost = phase.disturbed;
    if (lost.value > ADDS)
      children.push({
        ...node('disturbed', 'disturbed', lost.value, lost.ms, lost.energy, []),
        self: lost.value,
        children: undefined,
      });
    if (!m.partial) return node('phase', phase.name, phase.value, phase.ms, phase.energy, children);
    // What lies outside the chosen layers or components is not in the scope, and not unattributed.
    const held = (k: 'value' | 'time_ms' | 'energy_mj') =>
      children.reduce((a, x) => a + (x[k] ?? 0), 0);
    return node('phase', phase.name, held('value'), held('time_ms'), held('energy_mj'), children);
  });
  // A phase outside the scope has no energy, as opposed to an unavailable one.
  const total = phases
    .filter((_, p) => m.phases[p].ms > 0)
    .reduce<number | null>((a, x) => (a === null || x.value === null ? null : a + x.value), 0);
  return node(
    'run',
    'run',
    total,
    null,
    null,
    phases.filter((p) => (p.value ?? 0) > 0),
  );
}

/** A tree of whole phases with the sections that consist of no components, such as loading and sampling: they
 * are a part of what would be unattributed, and never more than that. */
export function withSections(
  root: TreeNode,
  phases: readonly PhaseRow[],
  metric: 'energy' | 'time',
  net = false,
): TreeNode {
  const of = (name: string): TreeNode[] => {
    const sums = new Map<string, TreeNode>();
    for (const p of phases.filter((x) => x.phase === name))
      for (const s of p.section_totals ?? []) {
        const mj = (net ? s.own_net_energy_mj : s.own_energy_mj) ?? null;
        const ms = s.own_ms ?? null;
        const value = metric === 'time' ? ms : mj;
        if (value === null) continue;
        const at = sums.get(s.section_name);
        sums.set(s.section_name, {
          kind: 'section',
          name: s.section_name,
          count: (at?.count ?? 0) + s.count,
          value: (at?.value ?? 0) + value,
          self: (at?.value ?? 0) + value,
          time_ms: (at?.time_ms ?? 0) + (ms ?? 0),
          energy_mj: (at?.energy_mj ?? 0) + (mj ?? 0),
        });
      }
    return [...sums.values()].sort((a, b) => (b.value ?? 0) - (a.value ?? 0));
  };
  const fill = (phase: TreeNode): TreeNode => {
    let left = phase.self ?? 0;
    const fitting = of(phase.name).filter((s) => {
      const v = s.value ?? 0;
      if (v <= ADDS || v > left * (1 + 1e-6)) return false;
      left = Math.max(0, left - v);
      return true;
    });
    if (!fitting.length) return phase;
    return { ...phase, self: left, children: [...(phase.children ?? []), ...fitting] };
  };
  return { ...root, children: root.children?.map((n) => (n.kind === 'phase' ? fill(n) : n)) };
}

/** The tree without the model load, which a request to a loaded model does not pay; null where there is nothing to
 * leave out, or nothing else. */
export function withoutLoad(root: TreeNode): TreeNode | null {
  const phase = root.children?.find((p) => p.name === 'pre_inference');
  const load = phase?.children?.find((n) => n.kind === 'section' && n.name === 'model_load');
  if (!phase || !load || !root.children?.some((p) => p !== phase && p.children?.length))
    return null;
  const less = (n: TreeNode): TreeNode => ({
    ...n,
    value: (n.value ?? 0) - (load.value ?? 0),
    time_ms: known(n.time_ms) && known(load.time_ms) ? n.time_ms - load.time_ms : null,
    energy_mj: known(n.energy_mj) && known(load.energy_mj) ? n.energy_mj - load.energy_mj : null,
  });
  const rest = { ...less(phase), children: phase.children?.filter((n) => n !== load) };
  return {
    ...less(root),
    name: 'request',
    children: root.children.map((p) => (p === phase ? rest : p)),
  };
}

/** Filters a tree by the scope: one phase, one layer, one component, or all. Ancestors get the sum of their
 * remaining children. */
export function within(root: TreeNode, s: Pick<Scope, 'phase' | 'layer' | 'component'>): TreeNode {
  if (s.phase === null && s.layer === null && s.component === null) return root;
  const keeps = (n: TreeNode): boolean =>
    n.kind === 'phase'
      ? s.phase === null || n.name === s.phase
      : n.kind === 'disturbed' || n.kind === 'section'
        ? s.layer === null && s.component === null
        : n.kind === 'layer'
          ? s.layer === null || n.layer === s.layer
          : n.kind !== 'component' || s.component === null || n.name === s.component;
  const parts = s.layer !== null || s.component !== null;
  const cut = (n: TreeNode): TreeNode | null => {
    if (!keeps(n)) return null;
    if (n.kind === 'component' || !n.children) return parts && n.kind !== 'component' ? null : n;
    const children = n.children.flatMap((c) => cut(c) ?? []);
    if (!children.length)
      return n.kind === 'run' ? { ...n, children, value: null } : parts ? null : n;
    if (n.kind !== 'run' && !parts) return { ...n, children };
    const sum = (of: (c: TreeNode) => number | null) =>
      children.some((c) => of(c) !== null) ? children.reduce((a, c) => a + (of(c) ?? 0), 0) : null;
    return {
      ...n,
      children,
      self: 0,
      value: sum((c) => c.value),
      time_ms: sum((c) => c.time_ms),
      energy_mj: sum((c) => c.energy_mj),
    };
  };
  return cut(root) ?? { ...root, children: [], value: null };
}

/** The tree of the whole run (with operations), with one node per component over all layers. */
export function mergeLayers(root: TreeNode): TreeNode {
  const add = (a: number | null, b: number | null): number | null =>
    a === null || b === null ? null : a + b;
  const join = (into: Map<string, TreeNode>, list: TreeNode[]): void => {
    for (const n of list) {
      const at = into.get(n.name);
      if (!at) {
        into.set(n.name, { ...n, layer: null, children: n.children && [...n.children] });
        continue;
      }
      at.value = add(at.value, n.value);
      at.self = add(at.self, n.self);
      at.time_ms = add(at.time_ms, n.time_ms);
      at.energy_mj = add(at.energy_mj, n.energy_mj);
      at.count = (at.count ?? 0) + (n.count ?? 0);
      const kids = new Map((at.children ?? []).map((c) => [c.name, { ...c }]));
      join(kids, n.children ?? []);
      if (kids.size) at.children = [...kids.values()];
    }
  };
  return {
    ...root,
    children: root.children?.map((phase) => {
      const parts = new Map<string, TreeNode>();
      let loose = 0;
      for (const c of phase.children ?? []) {
        if (c.kind === 'layer') {
          join(parts, c.children ?? []);
          loose += c.children?.length ? (c.self ?? 0) : (c.value ?? 0);
        } else join(parts, [c]);
      }
      const self = phase.self === null ? null : phase.self + loose;
      return { ...phase, self, children: [...parts.values()] };
    }),
  };
}
