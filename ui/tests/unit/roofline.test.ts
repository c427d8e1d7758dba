// The roofline by phase: a prompt reads the weights once for all its tokens, so its components stand to the right.
import { expect, test } from 'vitest';
import type { ComponentSum } from '../../src/api/types.ts';
import {
  gflops,
  intensity,
  roofParts,
  waitsForLaunches,
} from '../../src/views/analysis/roofline.tsx';

const sum = (component_name: string, more: Partial<ComponentSum>): ComponentSum =>
  ({ component_name, flops: 2e9, bytes: 1e9, time_ms: 10, energy_mj: 50, ...more }) as ComponentSum;

test('each phase has its own intensity and speed', () => {
  const [p] = roofParts([sum('down_proj', { flops: 2e11 })], 'prefill');
  const [d] = roofParts([sum('down_proj', {})], 'decode');
  expect([intensity(p), intensity(d)]).toEqual([200, 2]);
  expect([gflops(p), gflops(d)]).toEqual([20000, 200]);
  expect([p.phase, d.phase]).toEqual(['prefill', 'decode']);
});

test('what computed nothing has no place; an unknown energy stays unknown', () => {
  const list = [
    sum('embed', { flops: 0 }),
    sum('norm', { bytes: null }),
    sum('act', { time_ms: 0 }),
    sum('head', { energy_mj: null }),
  ];
  expect(roofParts(list, null)).toEqual([
    { name: 'head', phase: null, flops: 2e9, bytes: 1e9, ms: 10, mj: null },
  ]);
});

test('times that contain waiting for launches give no rates', () => {
  const of = (settings: Record<string, unknown> | null) => waitsForLaunches({ settings });
  expect(of({ module_times: 'CUDA events, which contain waiting for launches' })).toBe(true);
  expect([of({ module_times: 'CUDA events' }), of({}), of(null), waitsForLaunches(null)]).toEqual(
    Array(4).fill(false),
  );
});
