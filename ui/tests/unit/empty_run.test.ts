// Why a run shows no layers or operations: depth, its end, or its engine; never a wrong one of these.
import { expect, test } from 'vitest';
import type { Summary } from '../../src/api/types.ts';
import { noLayers, noOperations } from '../../src/views/analysis/heatmap.tsx';
import { makeRun } from '../fixture/generate.ts';

const run = (change: Partial<Summary>): Summary =>
  ({ ...makeRun({ seed: 3, tokens: 4 }).summary, ...change }) as Summary;

test('only a run of depth off is said to have depth off', () => {
  expect(noLayers(run({ profiling_depth: 'off' }))).toMatch(/depth off/);
  for (const status of ['failed', 'cancelled', 'interrupted', 'completed'] as const) {
    const said = noLayers(run({ profiling_depth: 'module', status }));
    expect(said).not.toMatch(/depth off/);
    expect(said).toMatch(status === 'failed' ? /it failed before/ : /it (ended before|made no)/);
  }
});

test('of another engine it is not said that it made no token', () => {
  expect(noLayers(run({ engine: 'toy', level: 'coarse' }))).toBe('toy reported no layers.');
});

test('depth deep is recommended only where it would help', () => {
  expect(noOperations(run({ profiling_depth: 'module', engine: 'perjoule', level: null }))).toMatch(
    /at depth deep/,
  );
  expect(noOperations(run({ profiling_depth: 'deep', engine: 'perjoule', level: null }))).toBe(
    'This run recorded no operations.',
  );
  expect(noOperations(run({ profiling_depth: 'off', engine: 'llama.cpp', level: 'coarse' }))).toBe(
    'llama.cpp reported no single operations.',
  );
  expect(noOperations(run({ profiling_depth: 'module', engine: 'exec', level: 'coarse' }))).toBe(
    'The program reported no single operations.',
  );
});
