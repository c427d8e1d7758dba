import { expect, test } from 'vitest';
import { grouped, spread } from '../../src/views/history/grouped.tsx';
import { makeRun } from '../fixture/generate.ts';

const run = (over: object) => ({ ...makeRun({ seed: 1, tokens: 4 }).summary, ...over });

test('runs are grouped by value, those without one in an unnamed group', () => {
  const runs = [
    run({ experiment_name: 'a' }),
    run({ experiment_name: null }),
    run({ experiment_name: 'a' }),
  ];
  expect(grouped(runs, 'experiment').map((g) => [g.name, g.runs.length])).toEqual([
    ['a', 2],
    ['', 1],
  ]);
});

test('a run with two tags is in both groups', () => {
  const runs = [run({ tags: ['x', 'y'] }), run({ tags: ['y'] })];
  expect(grouped(runs, 'tag').map((g) => [g.name, g.runs.length])).toEqual([
    ['x', 1],
    ['y', 2],
  ]);
});

test('runs that differ in one setting are not the same group', () => {
  const one = { model_name: 'm', dtype: 'f16', threads: 2, batch_size: 1, output_tokens: 8 };
  const runs = [run(one), run({ ...one, threads: 4 }), run(one)];
  expect(grouped(runs, 'settings').map((g) => g.runs.length)).toEqual([2, 1]);
});

test('a spread ignores unavailable values, and is null if none are known', () => {
  expect(spread([3, null, 1, 2])).toEqual({ mid: 2, lo: 1, hi: 3 });
  expect(spread([null, Number.NaN])).toBeNull();
});
