// Sums of a scope, from which all views of the workspace are drawn.
import { expect, test } from 'vitest';
import type { Cube } from '../../src/api/binary.ts';
import type { Summary, TreeNode } from '../../src/api/types.ts';
import { worthOf } from '../../src/charts/tree.ts';
import { amountOf, isKnown, text } from '../../src/core/quantity.ts';
import { medianInterval, segments } from '../../src/views/analysis/findings.ts';
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
  withoutLoad,
  withSections,
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

/** The same run with stalls in the prompt, a decode step and loading: rows as measured, cubes without. */
function stalled(): { rows: RunRows; calm: RunRows; extra: number } {
  const lost = new Map([
    [0, 400],
    [7, 90],
  ]);
  const tokens = run.tokens.map((t, i) => {
    const mj = lost.get(i);
    if (mj === undefined) return t;
    return {
      ...t,
      energy_mj: (t.energy_mj ?? 0) + mj,
      net_energy_mj: (t.net_energy_mj ?? 0) + mj / 2,
      duration_ms: t.duration_ms + mj / 10,
      disturbed: true,
      disturbed_ms: mj / 10,
      disturbed_energy_mj: mj,
      disturbed_net_energy_mj: mj / 2,
    };
  });
  const extraOf = (phase: string) =>
    phase === 'prefill' ? 400 : phase === 'decode' ? 90 : phase === 'pre_inference' ? 55 : 0;
  const phases = run.phases.map((p) => {
    const mj = extraOf(p.phase);
    return {
      ...p,
      energy_mj: (p.energy_mj ?? 0) + mj,
      net_energy_mj: (p.net_energy_mj ?? 0) + mj / 2,
      duration_ms: p.duration_ms + mj / 10,
      disturbed_ms: mj / 10,
      disturbed_energy_mj: mj,
      disturbed_net_energy_mj: mj / 2,
    };
  });
  return { rows: { ...rows, tokens, phases }, calm: rows, extra: 545 };
}

const worth = (n: TreeNode) => n.value ?? 0;

/** No child is more than its parent, and children and self add up to it. */
function holds(n: TreeNode): void {
  if (!n.children?.length) return;
  const parts = n.children.reduce((a, c) => a + worth(c), 0);
  for (const c of n.children) {
    expect(worth(c)).toBeLessThanOrEqual(worth(n) + 1e-6);
    holds(c);
  }
  expect(parts + (n.kind === 'run' ? 0 : (n.self ?? 0))).toBeCloseTo(worth(n), 4);
}

test('with and without disturbances, gross and net: parts never exceed their whole, and all panels agree', () => {
  const s = stalled();
  for (const net of [false, true])
    for (const r of [s.rows, s.calm]) {
      const m = sums(r, cubes, NONE, 'energy', net);
      for (const merged of [true, false]) holds(tree(m, merged));
      const root = tree(m, true);
      const whole = amountOf(net ? figures(r, NONE).net : figures(r, NONE).energy) ?? 0;
      expect(worth(root)).toBeCloseTo(whole, 3);
      const total = { ...summary, total_energy_mj: whole, net_energy_mj: whole } as Summary;
      const bar = segments(total, r, cubes, net) ?? [];
      expect(bar.reduce((a, x) => a + x.mj, 0)).toBeCloseTo(whole, 3);
      const block = bar.find((x) => x.key === 'disturbed')?.mj ?? 0;
      const lost = r === s.calm ? 0 : net ? s.extra / 2 : s.extra;
      expect(block).toBeCloseTo(lost, 6);
      const red = (root.children ?? [])
        .flatMap((p) => p.children ?? [])
        .filter((c) => c.kind === 'disturbed');
      expect(red.reduce((a, c) => a + worth(c), 0)).toBeCloseTo(
        // Loading has no components below it, but its block.
        lost,
        6,
      );
    }
});

test('what a device without a sensor computed is no gap, and no disturbance of it counts', () => {
  const inside = (p: RunRows['phases'][number]) => p.phase === 'prefill' || p.phase === 'decode';
  const none = { energy_mj: null, net_energy_mj: null };
  const lost = { disturbed_ms: 3, disturbed_energy_mj: 155, disturbed_net_energy_mj: 100 };
  const phases = rows.phases.map((p) => (inside(p) ? { ...p, ...none, ...lost } : p));
  for (const net of [false, true]) {
    const bar = segments(summary, { ...rows, phases }, null, net) ?? [];
    expect(bar.map((x) => x.key)).not.toContain('decode');
    expect(bar.map((x) => x.key)).not.toContain('disturbed');
    expect(bar.find((x) => x.key === 'gaps')?.label).toBe('In no phase');
    expect(bar.every((x) => x.mj >= 0)).toBe(true);
    expect(bar.reduce((a, x) => a + x.mj, 0)).toBeCloseTo(summary.total_energy_mj ?? 0, 3);
  }
});

test('net energy has an interval of its own, that may reach below zero', () => {
  const doubtful = rows.phases.map((p) => ({ ...p, net_energy_mj: 12, net_energy_sd_mj: 10 }));
  for (const scope of [NONE, { ...NONE, phase: 'decode' }, { ...NONE, token: 3 }]) {
    const { energy, net } = figures(rows, scope);
    if (!isKnown(energy) || !isKnown(net)) throw new Error('energy is known');
    expect(net.sd).toBeCloseTo(1.5 * (energy.sd ?? 0), 6);
  }
  const { net } = figures({ ...rows, phases: doubtful }, { ...NONE, phase: 'decode' });
  expect(text(net)).toBe('10 ± 20 mJ');
});

test('a node is worth what it is, not what is drawn of it', () => {
  const node = { ...wholeTree(run, 'energy'), value: -95, self: 7 };
  expect([false, true].map((rest) => worthOf({ node, rest }))).toEqual([-95, 7]);
});

test('idle pieces whose net energies cancel are no less than what of them is disturbed', () => {
  const piece = (start_ms: number, net_energy_mj: number, disturbed: boolean) => ({
    ...run.phases[0],
    phase: 'idle',
    start_ms,
    duration_ms: 10,
    energy_mj: 100,
    net_energy_mj,
    ...(disturbed && {
      disturbed_ms: 10,
      disturbed_energy_mj: 100,
      disturbed_net_energy_mj: net_energy_mj,
    }),
  });
  const phases = [...run.phases, piece(9000, 0.032, true), piece(9010, -0.006, false)];
  const idle = tree(sums({ ...rows, phases }, cubes, NONE, 'energy', true), true).children?.find(
    (p) => p.name === 'idle',
  );
  expect(worth(idle!)).toBeCloseTo(0.026, 9);
  expect(idle!.children?.map(worth)).toEqual([worth(idle!)]);
});

test('loading is no more than its section, gross and net', () => {
  const gross = summary.model_load_energy_mj ?? 0;
  const pre = rows.phases.find((p) => p.phase === 'pre_inference');
  expect(gross).toBeLessThan(0.9 * (pre?.energy_mj ?? 0)); // the phase holds more
  const held = { ...summary, disturbance: { model_load_energy_mj: gross / 4 } } as Summary;
  for (const net of [false, true]) {
    const load = (of: Summary) => segments(of, rows, cubes, net)?.find((x) => x.key === 'load')?.mj;
    expect(load(summary)).toBeCloseTo(gross * (net ? 0.62 : 1), 3);
    expect(load(held)).toBeCloseTo(0.75 * gross * (net ? 0.62 : 1), 3);
  }
});

test('gaps between phases belong to every panel, gross and net', () => {
  const gap = { ...run.phases[0], phase: 'idle', duration_ms: 2, energy_mj: 7, net_energy_mj: -1 };
  const r = { ...rows, phases: [...run.phases, gap] };
  for (const net of [false, true]) {
    const whole = worth(tree(sums(r, cubes, NONE, 'energy', net), true));
    const total = { ...summary, total_energy_mj: amountOf(figures(r, NONE).energy) } as Summary;
    const bar = segments(total, r, cubes, net) ?? [];
    expect(bar.find((x) => x.key === 'gaps')?.mj).toBeCloseTo(net ? -1 : 7, 4);
    const shown = bar.filter((x) => x.key !== 'idle').reduce((a, x) => a + x.mj, 0);
    expect(shown).toBeCloseTo(whole, 3);
  }
});

test('sections without components fill what would be unattributed, and no more', () => {
  const s = stalled();
  const own = (name: string, mj: number, more = {}) => ({
    section_name: name,
    count: 3,
    duration_ms: mj / 10,
    energy_mj: mj,
    own_ms: mj / 10,
    own_energy_mj: mj,
    own_net_energy_mj: mj / 2,
    ...more,
  });
  for (const net of [false, true])
    for (const r of [s.rows, s.calm])
      for (const metric of ['energy', 'time'] as const) {
        const bare = tree(sums(r, cubes, NONE, metric, net), true);
        const decode = (x: TreeNode) => x.children?.find((p) => p.name === 'decode');
        const spare = decode(bare)?.self ?? 0;
        expect(spare).toBeGreaterThan(0);
        const factor = metric === 'time' ? 10 : net ? 2 : 1;
        const phases = r.phases.map((p) => ({
          ...p,
          section_totals:
            p.phase === 'decode'
              ? [
                  own('layers', 1e9, {
                    own_ms: null,
                    own_energy_mj: null,
                    own_net_energy_mj: null,
                  }),
                  own('sampling', spare * 0.7 * factor),
                  own('too much', spare * 0.5 * factor),
                ]
              : [],
        }));
        const root = withSections(bare, phases, metric, net);
        holds(root);
        expect(worth(root)).toBe(worth(bare));
        const names = decode(root)?.children?.filter((c) => c.kind === 'section');
        expect(names?.map((c) => c.name)).toEqual(['sampling']);
        expect(decode(root)?.self).toBeCloseTo(spare * 0.3, 6);
        // Chosen layers or components are not the sections beside them.
        const cut = within(root, { phase: null, layer: null, component: COMPONENTS[1] });
        const kinds = (n: TreeNode): string[] => [n.kind, ...(n.children ?? []).flatMap(kinds)];
        expect(kinds(cut)).not.toContain('section');
      }
});

test('trees without the model load hold the rest, and no less', () => {
  const node = (kind: TreeNode['kind'], name: string, value: number, children?: TreeNode[]) =>
    ({
      kind,
      name,
      count: 1,
      value,
      self: children ? 0 : value,
      time_ms: value * 2,
      energy_mj: value,
      ...(children && { children }),
    }) as TreeNode;
  const load = node('section', 'model_load', 60);
  const pre = node('phase', 'pre_inference', 65, [load, node('section', 'tokenization', 5)]);
  const decode = node('phase', 'decode', 35, [node('component', 'q_proj', 35)]);
  const root = node('run' as TreeNode['kind'], 'run', 100, [pre, decode]);
  const rest = withoutLoad(root);
  expect([rest?.value, rest?.time_ms, rest?.energy_mj]).toEqual([40, 80, 40]);
  expect(rest?.children?.map((p) => [p.name, p.value])).toEqual([
    ['pre_inference', 5],
    ['decode', 35],
  ]);
  expect(rest?.children?.[0].children?.map((n) => n.name)).toEqual(['tokenization']);
  expect([root.value, pre.children?.length]).toEqual([100, 2]); // what it was made from is as it was
  // Programs, and runs of a loaded model, have no load; a run that only loaded has nothing else.
  expect(withoutLoad(node('phase', 'run', 35, [decode]))).toBeNull();
  expect(withoutLoad(node('phase', 'run', 65, [pre]))).toBeNull();
});

test('the hottest components are the same with a stall and without it', () => {
  const s = stalled();
  const listed = (r: RunRows) => hottestCalm(sums(r, cubes, NONE, 'energy'));
  expect(listed(s.rows).parts).toEqual(listed(s.calm).parts);
  expect(listed(s.rows).whole).toBeCloseTo(listed(s.calm).whole ?? 0, 4);
  expect([listed(s.rows).calm, listed(s.calm).calm]).toEqual([true, false]);
});

test('a scope of parts holds no disturbance, a token its own', () => {
  const s = stalled();
  const block = (scope: Partial<Scope>) =>
    sums(s.rows, cubes, { ...NONE, ...scope }, 'energy').phases.reduce(
      (a, p) => a + p.disturbed.value,
      0,
    );
  expect(block({ layer: 2 })).toBe(0);
  expect(block({ component: 'q_proj' })).toBe(0);
  expect(block({ token: 7 })).toBe(90);
  expect(block({ token: 8 })).toBe(0);
  expect(block({ phase: 'prefill' })).toBe(400);
});

test('the hottest components are shares of the scope, not of each other', () => {
  const share = (scope: Scope, net = false) => {
    const h = hottestCalm(sums(rows, cubes, scope, 'energy', net));
    return { whole: h.whole, parts: h.parts.reduce((a, p) => a + (p.energy ?? 0), 0) };
  };
  const all = share(NONE);
  expect(all.whole).toBeCloseTo(summary.total_energy_mj ?? 0, 4);
  expect(all.parts).toBeLessThan(all.whole ?? 0); // loading belongs to no component
  expect(share({ ...NONE, token: 7 }).whole).toBeCloseTo(run.tokens[7].energy_mj ?? 0, 4);
  const net = figures(rows, NONE).net;
  expect(share(NONE, true).whole).toBeCloseTo(amountOf(net) ?? 0, 4);
  const layer = share({ ...NONE, layer: 2 });
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

test('what another engine did around its tokens is not called tokenization', () => {
  const label = (engine: string, tokens: typeof rows.tokens) =>
    segments({ ...summary, engine }, { ...rows, tokens }, null, false)?.find(
      (x) => x.key === 'other' || x.key === 'program',
    )?.label;
  expect(label('perjoule', rows.tokens)).toBe('Other');
  expect(label('llama.cpp', rows.tokens)).toBe('Around the tokens');
  expect(label('exec', [])).toBe('Program');
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
