import { expect, test } from 'vitest';
import type { RunSummary } from '../../src/api/types.ts';
import { grouped, labels, spread } from '../../src/views/history/grouped.tsx';
import { folded } from '../../src/views/history/history.tsx';
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

test('groups by settings are called by what tells them apart', () => {
  const one = { model_name: 'm', dtype: 'f16', threads: 2, batch_size: 1, output_tokens: 8 };
  const groups = grouped([run(one), run({ ...one, dtype: 'q8_0', batch_size: 4 })], 'settings');
  expect([...labels(groups).values()]).toEqual(['f16', 'q8_0, batch 4']);
  expect([...labels(groups.slice(0, 1)).values()][0]).toMatch(/^m, f16, 2 threads/);
  const alone = grouped([run({ ...one, threads: 1 })], 'settings');
  expect([...labels(alone).values()][0]).toMatch(/^m, f16, 1 thread,/);
});

test('a spread ignores unavailable values, and is null if none are known', () => {
  expect(spread([3, null, 1, 2])).toEqual({ mid: 2, lo: 1, hi: 3 });
  expect(spread([null, Number.NaN])).toBeNull();
});

test('neighbours that repeat each other are one row, until they are unfolded', () => {
  const of = (id: string, repeat_group: string | null) => ({ id, repeat_group }) as RunSummary;
  const runs = [of('a', 'g'), of('b', 'g'), of('c', null), of('d', null), of('e', 'g')];
  const shown = (open: string[]) =>
    folded(runs, new Set(open)).map((x) => `${x.run.id}${x.repeats}`);
  expect(shown([])).toEqual(['a1', 'c0', 'd0', 'e0']);
  expect(shown(['g'])).toEqual(['a-1', 'b0', 'c0', 'd0', 'e0']);
});
