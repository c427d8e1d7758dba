import { expect, test } from 'vitest';
import { scaleEnd, type TokenBar } from '../../src/charts/waterfall.ts';

const bar = (phase: string, value: number | null, sd = 0): TokenBar => ({
  token: 0,
  text: '',
  phase,
  start: 0,
  duration: 1,
  value,
  sd,
  cumulative: null,
  anomaly: null,
});
const decode = (n: number) => Array.from({ length: n }, (_, i) => bar('decode', 100 + i));

test('a long prompt does not flatten the bars of the tokens', () => {
  const { top, cut } = scaleEnd([bar('prefill', 45_000), ...decode(20)]);
  expect(cut).toBe(true);
  expect(top).toBeLessThan(300);
  expect(top).toBeGreaterThanOrEqual(119);
});

test('bars of like height are all drawn to their end, with their intervals', () => {
  expect(scaleEnd([bar('prefill', 200), ...decode(20)])).toEqual({ top: 200, cut: false });
  expect(scaleEnd([bar('decode', 100, 50), ...decode(20)]).top).toBeCloseTo(198, 0);
});

test('few tokens say nothing about what is usual', () => {
  expect(scaleEnd([bar('prefill', 45_000), ...decode(3)]).cut).toBe(false);
  expect(scaleEnd([bar('prefill', null)]).cut).toBe(false);
});
