// Sums of a scope, from which all views of the workspace are drawn.
import { expect, test } from 'vitest';
import type { Cube } from '../../src/api/binary.ts';
import type { Summary, TreeNode } from '../../src/api/types.ts';
import { amountOf, isKnown } from '../../src/core/quantity.ts';
import { medianInterval, repeat, segments } from '../../src/views/analysis/findings.ts';
import {
  type Cubes,
  figures,
  hottest,
  hottestCalm,
  matrix,
  medians,
  mergeLayers,
  type RunRows,
  type Scope,
  stepFrom,
  sums,
  tokenLayers,
  tokensOf,
  tree,
  weigh,
  within,
} from '../../src/views/analysis/scope.ts';
import {
  COMPONENTS,
  cell,
  type FixtureRun,
  makeRun,
  tree as wholeTree,
} from '../fixture/generate.ts';

const NONE: Scope = {
  range: null,
  phase: null,
  token: null,
  sequence: null,
  layer: null,
  component: null,
};
const run = makeRun({ seed: 5, tokens: 30, layers: 6 });
const rowsOf = (r: FixtureRun): RunRows => ({
  tokens: r.tokens,
  phases: r.phases,
  source: r.summary.energy_source,
  missing: [],
});
const rows = rowsOf(run);
const summary = run.summary as Summary;

function cubeOf(r: FixtureRun, metric: string): Cube {
  const [t, l, c] = [r.tokens.length, r.options.layers + 1, COMPONENTS.length + 1];
  const values = new Float32Array(t * l * c).fill(Number.NaN);
  for (let i = 0; i < t; i++)
    for (let j = 0; j < l - 1; j++)
      for (let k = 0; k < c - 1; k++) values[(i * l + j) * c + k] = cell(r, metric, i, j, k);
  for (let i = 0; i < t; i++)
    values[(i * l + l - 1) * c + c - 1] =
      0.05 * ((metric === 'time' ? r.tokens[i].duration_ms : r.tokens[i].energy_mj) ?? Number.NaN);
  return { tokens: t, layers: l, components: c, values };
}
const energyCube = cubeOf(run, 'energy');
const cubes: Cubes = {
  energy: energyCube,
  time: cubeOf(run, 'time'),
  components: [...COMPONENTS, 'lm_head'],
};
const energyOf = (s: Partial<Scope>) =>
  amountOf(figures(rows, { ...NONE, ...s }).energy) ?? Number.NaN;
const held = (x: ReturnType<typeof sums>) => hottest(x).reduce((a, p) => a + (p.energy ?? 0), 0);

test('disturbed tokens are no hotspots: they are excluded on request', () => {
  const odd = rows.tokens.map((t, i) => ({ ...t, disturbed: i === 3 || i === 7 }));
  const total = (r: RunRows, calm: boolean) =>
    hottest(sums(r, cubes, NONE, 'energy', false, calm)).reduce((a, p) => a + (p.energy ?? 0), 0);
  const only = (token: number) =>
    hottest(sums(rows, cubes, { ...NONE, token }, 'energy')).reduce(
      (a, p) => a + (p.energy ?? 0),
      0,
    );
  const [a, b] = [rows.tokens[3].token, rows.tokens[7].token];
  const marked = { ...rows, tokens: odd };
  expect(total(marked, true)).toBeCloseTo(total(marked, false) - only(a) - only(b), 3);
  const quiet = { ...rows, tokens: rows.tokens.map((t) => ({ ...t, disturbed: false })) };
  expect(total(quiet, true)).toBe(total(quiet, false));
  // Where every token of the scope was slowed, they are all there is to show.
  const listed = (scope: Scope) =>
    hottestCalm(marked, cubes, scope, sums(marked, cubes, scope, 'energy'), false);
  expect(listed(NONE).calm).toBe(true);
  const [from, length] = [rows.tokens[3].start_ms, rows.tokens[3].duration_ms];
  const slowed = listed({ ...NONE, range: [from, from + length] });
  expect(slowed.calm).toBe(false);
  expect(slowed.parts.length).toBeGreaterThan(0);
});

test('the hottest components are shares of the scope, not of each other', () => {
  const share = (r: RunRows, scope: Scope, net = false) => {
    const h = hottestCalm(r, cubes, scope, sums(r, cubes, scope, 'energy', net), net);
    return { whole: h.whole, parts: h.parts.reduce((a, p) => a + (p.energy ?? 0), 0) };
  };
  const calm = { ...rows, tokens: run.tokens.map((t) => ({ ...t, disturbed: false })) };
  const all = share(calm, NONE);
  expect(all.whole).toBeCloseTo(summary.total_energy_mj ?? 0, 4);
  expect(all.parts).toBeLessThan(all.whole ?? 0); // loading belongs to no component
  const odd = { ...rows, tokens: run.tokens.map((t, i) => ({ ...t, disturbed: i === 9 })) };
  expect(share(odd, NONE).whole).toBeCloseTo(
    (summary.total_energy_mj ?? 0) - (run.tokens[9].energy_mj ?? 0),
    4,
  );
  expect(share(calm, { ...NONE, token: 7 }).whole).toBeCloseTo(run.tokens[7].energy_mj ?? 0, 4);
  const net = figures(calm, NONE).net;
  expect(share(calm, NONE, true).whole).toBeCloseTo(amountOf(net) ?? 0, 4);
  const layer = share(calm, { ...NONE, layer: 2 });
  expect(layer.whole).toBeCloseTo(layer.parts, 6);
});

const cellsIn = (s: Partial<Scope>) => held(sums(rows, cubes, { ...NONE, ...s }, 'energy'));

test('the sums of the whole run, its phases, tokens and halves agree', () => {
  const total = summary.total_energy_mj ?? 0;
  const end = summary.total_duration_ms ?? 0;
  expect(energyOf({ range: [0, end] })).toBeCloseTo(total, 4);
  const phases = [...new Set(rows.phases.map((p) => p.phase))];
  expect(phases.reduce((a, phase) => a + energyOf({ phase }), 0)).toBeCloseTo(total, 4);
  for (const at of [0.2, 0.5, 0.9])
    expect(energyOf({ range: [0, end * at] }) + energyOf({ range: [end * at, end] })).toBeCloseTo(
      total,
      4,
    );
  const t = run.tokens[7];
  const half: [number, number] = [t.start_ms, t.start_ms + t.duration_ms / 2];
  expect(energyOf({ token: 7 })).toBeCloseTo(t.energy_mj ?? 0, 6);
  expect(energyOf({ range: half })).toBeCloseTo((t.energy_mj ?? 0) / 2, 4);
});

test('a token, a layer and a component together are the one cell, and not the first that matches', () => {
  const j = COMPONENTS.indexOf('attention');
  const s = { token: 10, layer: 3, component: 'attention' };
  expect(cellsIn(s)).toBeCloseTo(cell(run, 'energy', 10, 3, j), 4);
  expect(cellsIn({ token: 10, layer: 3 })).toBeGreaterThan(cellsIn(s));
  expect(cellsIn({ token: 10 })).toBeGreaterThan(cellsIn({ token: 10, layer: 3 }));
  let want = 0;
  for (let t = 1; t < 30; t++)
    for (let c = 0; c < COMPONENTS.length; c++) want += cell(run, 'energy', t, 5, c);
  expect(cellsIn({ phase: 'decode', layer: 5 })).toBeCloseTo(want, 2);
});

test('a token and another phase have an empty intersection', () => {
  expect(cellsIn({ phase: 'prefill', token: 10 })).toBe(0);
  expect(isKnown(figures(rows, { ...NONE, phase: 'prefill', token: 10 }).energy)).toBe(false);
});

test('an energy without a source is unavailable, never zero', () => {
  const blind = makeRun({ seed: 5, tokens: 30, energy: 'unavailable' });
  expect(figures(rowsOf(blind), { ...NONE, range: [0, 100] }).energy.source).toBe('unavailable');
  const time = sums(
    rowsOf(blind),
    { ...cubes, energy: null, time: cubeOf(blind, 'time') },
    NONE,
    'time',
  );
  expect(matrix(time, 'energy').every(Number.isNaN)).toBe(true);
  expect(hottest(time).every((p) => p.energy === null && p.ms > 0)).toBe(true);
});

test('net energy subtracts idle power in proportion to time', () => {
  const scope = { ...NONE, phase: 'decode' };
  const gross = sums(rows, cubes, scope, 'energy');
  const net = sums(rows, cubes, scope, 'energy', true);
  const ms = hottest(gross).reduce((a, p) => a + p.ms, 0);
  const decode = rows.phases.find((p) => p.phase === 'decode');
  const idle = (decode?.energy_mj ?? 0) - (decode?.net_energy_mj ?? 0);
  expect(idle).toBeGreaterThan(0);
  expect(held(gross) - held(net)).toBeCloseTo((idle / (decode?.duration_ms ?? 1)) * ms, 2);
});

test('in a batch a sequence has its own rows, and its time is counted once per step', () => {
  const tokens = run.tokens.slice(0, 8).map((t, i) => ({
    ...t,
    token: i,
    sequence: i % 4,
    step: i < 4 ? 0 : 4,
    share: 0.25,
    start_ms: run.tokens[i < 4 ? 0 : 4].start_ms,
    duration_ms: 10,
  }));
  const batch: RunRows = { ...rows, tokens };
  expect(Array.from(weigh(batch, { ...NONE, sequence: 2 }))).toEqual([0, 0, 1, 0, 0, 0, 1, 0]);
  const one = figures(batch, { ...NONE, sequence: 2 });
  expect(amountOf(one.energy)).toBeCloseTo(
    (tokens[2].energy_mj ?? 0) + (tokens[6].energy_mj ?? 0),
    6,
  );
  expect([one.tokens, one.ms]).toEqual([2, 20]);
  // A step's time is stored in full for every sequence, and counted once over all sequences.
  const x = sums(batch, cubes, { ...NONE, layer: 0, component: COMPONENTS[0] }, 'time');
  const whole = tokens.reduce((a, _, i) => a + cell(run, 'time', i, 0, 0), 0);
  expect(hottest(x)[0].ms).toBeCloseTo(whole / 4, 4);
});

test('the trees of a scope conserve energy, merged and by layer', () => {
  for (const merged of [false, true]) {
    const root = tree(sums(rows, cubes, { ...NONE, range: [0, 150] }, 'energy'), merged);
    expect(root.children?.length).toBeGreaterThan(0);
    for (const phase of root.children ?? []) {
      const parts = (phase.children ?? []).reduce((a, c) => a + (c.value ?? 0), 0);
      expect(parts + (phase.self ?? 0)).toBeCloseTo(phase.value ?? 0, 6);
    }
  }
  const whole = wholeTree(run, 'energy');
  const merged = mergeLayers(whole);
  expect(merged.value).toBe(whole.value);
  const decode = merged.children?.find((p) => p.name === 'decode');
  const parts = (decode?.children ?? []).reduce((a, c) => a + (c.value ?? 0), 0);
  expect(parts + (decode?.self ?? 0)).toBeCloseTo(decode?.value ?? 0, 4);
  expect(new Set(decode?.children?.map((c) => c.name)).size).toBe(decode?.children?.length);
  expect(decode?.children?.some((c) => c.kind === 'layer')).toBe(false);
});

test('the median of a cell is robust to one stall', () => {
  const stalled = { ...cubes.time, values: cubes.time.values.slice() };
  stalled.values[12 * stalled.layers * stalled.components] *= 1000;
  const scope = { ...NONE, phase: 'decode' };
  const before = medians(rows, cubes.time, scope)[0];
  expect(Math.abs(medians(rows, stalled, scope)[0] / before - 1)).toBeLessThan(0.1);
});

test('the token × layer map equals the cube', () => {
  const m = tokenLayers(rows, energyCube, NONE, cubes.components);
  expect([m.tokens.length, m.layers]).toEqual([30, 6]);
  let want = 0;
  for (let c = 0; c < COMPONENTS.length; c++) want += cell(run, 'energy', 4, 2, c);
  expect(m.values[4 * 6 + 2]).toBeCloseTo(want, 3);
});

test('the parts of the verdict sum to the total, gross and net, with and without parts of the model', () => {
  for (const net of [false, true])
    for (const c of [cubes, null]) {
      const list = segments(summary, rows, c, net) ?? [];
      expect(list.length).toBeGreaterThan(2);
      expect(list.reduce((a, x) => a + x.mj, 0)).toBeCloseTo(summary.total_energy_mj ?? 0, 6);
      expect(list.some((x) => x.key === 'attention')).toBe(c !== null);
    }
  expect(segments({ ...summary, total_energy_mj: null }, rows, cubes, false)).toBeNull();
});

test('disturbed tokens are separate from decode', () => {
  const mark = (odd: number) => ({
    ...rows,
    tokens: run.tokens.map((t, i) => ({ ...t, disturbed: i === odd })),
  });
  const list = segments(summary, mark(9), cubes, false) ?? [];
  const calm = segments(summary, mark(-1), cubes, false) ?? [];
  const of = (l: typeof list, key: string) => l.find((x) => x.key === key)?.mj ?? 0;
  expect(of(list, 'disturbed')).toBeCloseTo(run.tokens[9].energy_mj ?? 0, 6);
  expect(of(calm, 'disturbed')).toBe(0);
  expect(of(list, 'attention')).toBeLessThan(of(calm, 'attention'));
});

test('what another engine did around its tokens is not called tokenization', () => {
  const label = (engine: string, tokens: typeof rows.tokens) =>
    segments({ ...summary, engine }, { ...rows, tokens }, null, false)?.find(
      (x) => x.key === 'other' || x.key === 'program',
    )?.label;
  expect(label('perjoule', rows.tokens)).toBe('Other');
  expect(label('llama.cpp', rows.tokens)).toBe('Around the tokens');
  expect(label('exec', [])).toBe('Program');
});

test('the command that repeats a run has its prompt, if it can', () => {
  const of = (prompt: string | null) =>
    repeat({ ...summary, prompt, model_path: '/models/a b', batch_size: 1, output_tokens: 8 }, 3);
  expect(of("Don't stop")).toBe(
    "perjoule run -m '/models/a b' -n 8 --repeat 3 --warmup 1 -p 'Don'\\''t stop'",
  );
  expect(of('1,2,3')).toMatch(/ --ids 1,2,3$/);
  for (const other of [null, 'two\nlines', 'x'.repeat(300)])
    expect(of(other)).toMatch(/ -f prompt\.txt$/);
});

test('the interval of a median is wide for few and narrow for many', () => {
  const many = Float64Array.from({ length: 400 }, (_, i) => i);
  const [lo, hi] = medianInterval(many) ?? [0, 0];
  expect(lo).toBeGreaterThan(170);
  expect(lo).toBeLessThan(190);
  expect(hi).toBeGreaterThan(209);
  expect(hi).toBeLessThan(230);
  expect(medianInterval(Float64Array.of(1, 2, 3))).toBeNull();
});

test('the tree of one token, of one layer or component in it, holds what that token has', () => {
  for (const s of [
    { token: 10 },
    { token: 10, layer: 1 },
    { token: 10, layer: 1, component: 'attention' },
  ])
    for (const merged of [true, false]) {
      const root = tree(sums(rows, cubes, { ...NONE, ...s }, 'energy'), merged);
      expect(root.children?.map((p) => p.name)).toEqual(['decode']);
      // What is outside the chosen part is not in the scope, rather than unattributed in it.
      const part = 'layer' in s;
      expect(root.value).toBeCloseTo(part ? cellsIn(s) : energyOf({ token: 10 }), 6);
      if (part) for (const p of root.children ?? []) expect(p.self).toBeCloseTo(0, 9);
      const down = (n: typeof root): number =>
        n.kind === 'component'
          ? (n.value ?? 0)
          : (n.children ?? []).reduce((a, c) => a + down(c), 0);
      expect(down(root)).toBeCloseTo(cellsIn(s), 6);
      expect(down(root)).toBeGreaterThan(0);
    }
});

test.each([
  ['a phase', { phase: 'decode', layer: null, component: null }],
  ['a layer', { phase: null, layer: 2, component: null }],
  ['a component', { phase: null, layer: null, component: COMPONENTS[1] }],
  ['all three', { phase: 'prefill', layer: 2, component: COMPONENTS[1] }],
])('the tree within %s holds that and nothing else', (_, scope) => {
  const whole = wholeTree(run, 'energy');
  const names = (n: TreeNode, kind: TreeNode['kind']): string[] => [
    ...(n.kind === kind ? [n.name] : []),
    ...(n.children ?? []).flatMap((c) => names(c, kind)),
  ];
  const left = within(whole, scope);
  if (scope.phase) expect(new Set(names(left, 'phase'))).toEqual(new Set([scope.phase]));
  if (scope.layer !== null) expect(new Set(names(left, 'layer'))).toEqual(new Set(['layer 2']));
  if (scope.component)
    expect(new Set(names(left, 'component'))).toEqual(new Set([scope.component]));
  for (const phase of left.children ?? []) {
    const held = (phase.children ?? []).reduce((a, c) => a + (c.value ?? 0), 0);
    if (scope.layer !== null || scope.component) expect(phase.value).toBeCloseTo(held, 9);
    else expect(phase.value).toBe(whole.children?.find((x) => x.name === phase.name)?.value);
  }
});

test('the tree within a part that a run lacks is empty, and that of no scope the whole', () => {
  const whole = wholeTree(run, 'energy');
  expect(within(whole, NONE)).toBe(whole);
  expect(within(whole, { ...NONE, component: 'no such' }).children).toEqual([]);
});

test('the tokens of a sequence are stepped through alone', () => {
  const batch = rows.tokens.slice(0, 12).map((t, i) => ({ ...t, token: i, sequence: i % 4 }));
  const second = tokensOf(batch, 2);
  expect(second).toEqual([2, 6, 10]);
  expect(tokensOf(batch, null)).toHaveLength(12);
  expect(stepFrom(second, null, 1)).toBe(2);
  expect(stepFrom(second, null, -1)).toBe(10);
  expect(stepFrom(second, 2, 1)).toBe(6);
  expect(stepFrom(second, 10, 1)).toBe(10);
  expect(stepFrom(second, 3, 1)).toBe(2); // of another sequence
  expect(stepFrom([], null, 1)).toBe(null);
});
