import { describe, expect, test } from 'vitest';
import type { Operations, SpanGroup, Spans, TokenRow } from '../../src/api/types.ts';
import { beginOf, integral, windowOf } from '../../src/charts/power_track.ts';
import { edgesOf } from '../../src/views/analysis/between.tsx';
import { hitsOf, viewOf } from '../../src/views/analysis/find.tsx';
import { linesOf, sorted } from '../../src/views/analysis/span_table.tsx';
import {
  deepest,
  expected,
  MOST_SPANS,
  slicesOf,
  usualOf,
  windowAround,
} from '../../src/views/analysis/spans.ts';
import { excesses } from '../../src/views/analysis/why.tsx';

const token = (n: number, start: number, ms: number, step: number | null = null) =>
  ({
    token: n,
    start_ms: start,
    duration_ms: ms,
    phase: 'decode',
    text: `t${n}`,
    step,
  }) as TokenRow;
const tokens = [0, 1, 2, 3].map((n) => token(n, 10 * n, 10));
const answer: Spans = {
  run_id: 'r',
  energy_source: 'measured',
  names: ['attention', 'softmax'],
  groups: [],
  levels: [
    {
      level: 'operation',
      total: 2,
      name: [1, 1],
      start_ms: [12, 17],
      duration_ms: [0.5, 2],
      energy_mj: [5, 40],
      net_energy_mj: [4, 30],
      self_energy_mj: [5, 40],
      energy_sd_mj: [1, 1],
      net_energy_sd_mj: [2, 3],
      token: [1, 1],
      layer: [0, 1],
      component: [0, 0],
      device: [null, null],
    },
  ],
};
const usual = usualOf(
  {
    components: [],
    operations: [
      {
        component_name: 'attention',
        operation_name: 'softmax',
        count: 4,
        energy_mj: 20,
        time_ms: 2,
      },
    ],
  } as unknown as Operations,
  'decode',
);

describe('spans on the timeline', () => {
  test('the window holds the view, and stays while the view moves a little', () => {
    for (const view of [
      [0, 100],
      [70, 133.5],
      [1e5, 1e5 + 0.3],
    ] as [number, number][]) {
      const w = windowAround(view);
      expect(w[0]).toBeLessThanOrEqual(view[0]);
      expect(w[1]).toBeGreaterThanOrEqual(view[1]);
      expect(w[1] - w[0]).toBeLessThanOrEqual(1.5 * (view[1] - view[0]));
    }
    expect(windowAround([70, 100.1])).toEqual(windowAround([71, 101.1]));
  });

  test('only levels that can be drawn whole are asked for', () => {
    const counts = { layers: 40, components: 4 * MOST_SPANS, operations: 0 };
    const all = expected(counts, tokens, [0, 40], [0, 40]);
    expect(deepest(all)).toBe('layer');
    expect(deepest(expected(counts, tokens, [0, 40], [12, 13]))).toBe('component');
    expect(deepest({ layer: MOST_SPANS + 1, component: 1, operation: 1 })).toBe(null);
  });

  test('a slice knows what is typical of its name; a level that did not fit is no lane', () => {
    const make = (a: Spans, net = false) =>
      slicesOf(
        a,
        tokens,
        () => 'idle',
        usual,
        net,
        () => 5,
      );
    expect(make(answer).map((s) => [s.label, s.energy, s.usual, s.phase])).toEqual([
      ['softmax', 5, 5, 'decode'],
      ['softmax', 40, 5, 'decode'],
    ]);
    expect(make({ ...answer, levels: [{ ...answer.levels[0], total: 3 }] })).toEqual([]);
    expect(make(answer).map((s) => s.sd)).toEqual([1, 1]);
    expect(make(answer, true).map((s) => [s.energy, s.sd])).toEqual([
      [4, 2],
      [30, 3],
    ]);
  });

  test('the spans by which a step differs are named, those as usual are not', () => {
    expect(excesses(answer, 'decode', usual, 10)).toEqual([
      { name: 'attention › softmax', layer: 1, mj: 35, ms: 2, usualMs: 0.5, range: [17, 19] },
    ]);
  });

  test('sums by name against as many typical spans', () => {
    const group = (energy_mj: number, count: number): SpanGroup => ({
      level: 'operation',
      name: 'softmax',
      component: 'attention',
      layer: null,
      count,
      time_ms: 1,
      energy_mj,
      net_energy_mj: 1,
      self_energy_mj: energy_mj,
      energy_sd_mj: 1,
      net_energy_sd_mj: 1,
    });
    const lines = linesOf(
      [
        { phase: 'decode', groups: [group(30, 2)] },
        { phase: 'prefill', groups: [group(7, 1)] },
      ],
      usual,
      false,
    );
    expect(lines.map((l) => [l.phase, l.total, l.times])).toEqual([
      ['decode', 30, 3],
      ['prefill', 7, null],
    ]);
    expect(sorted(lines, 'times', false).map((l) => l.phase)).toEqual(['decode', 'prefill']);
    expect(sorted(lines, 'times', true).map((l) => l.phase)).toEqual(['decode', 'prefill']);
    expect(sorted(lines, 'total', true).map((l) => l.phase)).toEqual(['prefill', 'decode']);
  });

  test('found spans are in the order of time, and a view shows one', () => {
    const hits = hitsOf('t2', [], tokens, answer);
    expect(hits.map((h) => h.start)).toEqual([12, 17, 20]);
    const [a, b] = viewOf(hits[0], [0, 40], [0, 40]);
    expect(a).toBeLessThanOrEqual(12);
    expect(b).toBeGreaterThanOrEqual(12.5);
    expect(b - a).toBeLessThan(40);
  });

  test('flags cut steps, and a batch has one step for its tokens', () => {
    expect(edgesOf(tokens, [10, 30])).toEqual([]);
    expect(edgesOf(tokens, [12, 25]).map((e) => e.inside)).toEqual([
      [12, 20],
      [20, 25],
    ]);
    const batch = [token(0, 0, 10, 0), token(1, 0, 10, 0)];
    expect(edgesOf(batch, [2, 4])).toHaveLength(1);
  });
});

describe('readings are windows', () => {
  const t = Float64Array.from([1, 2, 3, 10, 11]);
  test('a long time without a reading is a gap', () => {
    expect(windowOf(t)).toBe(1);
    expect([0, 1, 3].map((i) => beginOf(t, i, 1))).toEqual([0, 1, 9]);
  });
  test('energy between two times is known only where all of it was read', () => {
    const y = Float64Array.from([1000, 2000, 4000, 1000, 1000]);
    expect(integral(t, y, 1, [0.5, 2.5])).toBeCloseTo(0.5 + 2 + 2, 9);
    expect(integral(t, y, 1, [2, 10])).toBe(null);
    expect(integral(t, Float64Array.from([1, Number.NaN, 1, 1, 1]), 1, [0, 3])).toBe(null);
  });
});
