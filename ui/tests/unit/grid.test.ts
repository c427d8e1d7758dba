import { describe, expect, test } from 'vitest';
import type { Experiment, ExperimentCell } from '../../src/api/types';
import { kneeOf } from '../../src/core/stats';
import { alongOf } from '../../src/views/experiments/charts';
import { verdict } from '../../src/views/experiments/experiments';
import {
  levelName,
  lineName,
  lines,
  planText,
  positions,
  varying,
} from '../../src/views/experiments/grid';

const cell = (i: number, of: Partial<ExperimentCell>): ExperimentCell => ({
  cell: i,
  name: `cell ${i}`,
  model: null,
  dtype: null,
  batch: 1,
  input: 32,
  output: 32,
  threads: 0,
  runs: 3,
  disturbed_runs: 0,
  energy_source: 'measured',
  partial: null,
  joules_per_token: 0.1 * (i + 1),
  joules_per_token_lo: 0.09 * (i + 1),
  joules_per_token_hi: 0.11 * (i + 1),
  joules_per_token_typical: null,
  joules_per_token_typical_lo: null,
  joules_per_token_typical_hi: null,
  tokens_per_second: 10,
  ttft_ms: 1,
  token_latency_ms: 2,
  mean_power_mw: 3,
  loss: null,
  ids: [],
  ...of,
});
const cells = ['bf16', 'q8_0'].flatMap((dtype, i) =>
  [8, 1, 4].map((batch, k) => cell(i * 3 + k, { dtype, batch })),
);
const experiment = (of: Partial<Experiment>): Experiment => ({
  name: 'sweep',
  state: 'completed',
  round: 0,
  done: 18,
  total: 18,
  plan: { repeat: 3 },
  cells,
  optimum: { cell: 0, name: 'cell 0', joules_per_token: 0.1, token_latency_ms: 2 },
  knees: [],
  comparisons: [],
  against_former: [],
  ...of,
});

describe('the grid of an experiment', () => {
  test('factors that vary are those with several levels', () => {
    expect(varying(cells)).toEqual(['dtype', 'batch']);
    expect(varying(cells.slice(0, 1))).toEqual([]);
  });
  test('lines join cells that differ in one setting only, in its order', () => {
    const l = lines(cells, 'batch');
    expect(l).toHaveLength(2);
    expect(l[0].map((c) => c.batch)).toEqual([1, 4, 8]);
    expect(l.map((x) => lineName(cells, x[0], 'batch'))).toEqual(['bf16', 'q8_0']);
    expect(lines(cells, 'dtype')).toHaveLength(3);
  });
  test('numbers are placed at their value, names evenly', () => {
    const batch = positions(cells, 'batch');
    expect(batch).toMatchObject({ log: true, ticks: [1, 4, 8] });
    const dtype = positions(cells, 'dtype');
    expect(dtype).toMatchObject({ log: false, ticks: [0, 1] });
    expect(dtype.name(1)).toBe('q8_0');
    expect(dtype.name(7)).toBe('');
    // 0 threads means all, so it has no position on a numeric axis.
    const threads = positions([cell(0, { threads: 0 }), cell(1, { threads: 2 })], 'threads');
    expect(threads.ticks.map(threads.name)).toEqual(['all', '2']);
  });
  test('levels and plans have readable names', () => {
    expect(levelName('model', '/models/demo')).toBe('demo');
    expect(levelName('dtype', null)).toBe('as stored');
    expect(planText({ repeat: 5, dtypes: ['a', 'b'], batches: [1, 2, 4] })).toBe(
      '2 types of weights × 3 batch sizes, 5 runs each',
    );
    expect(planText({ repeat: 1 })).toBe('one cell, 1 run each');
  });
  test('the axis is the chosen setting, or a numeric one by default', () => {
    expect(alongOf(cells, '')).toBe('batch');
    expect(alongOf(cells, 'dtype')).toBe('dtype');
    expect(alongOf(cells, 'output')).toBe('batch');
  });
});

describe('the verdict of an experiment', () => {
  test('says an unproven optimum is unproven', () => {
    const text = verdict(
      experiment({
        optimum: { cell: 1, name: 'cell 1', joules_per_token: 0.2, token_latency_ms: 2 },
        comparisons: [
          {
            a: 0,
            b: 1,
            ratio: 0.9,
            ratio_lo: 0.7,
            ratio_hi: 1.1,
            method: 'paired_log',
            p_adjusted: 0.4,
            different: false,
          },
        ],
      }),
    ).join(' ');
    expect(text).toContain('200 ± 20 mJ');
    expect(text).toContain('not distinguishable');
  });
  test('an interval without 1 is not called indistinguishable, but what chance makes of many cells', () => {
    const text = verdict(
      experiment({
        optimum: { cell: 1, name: 'cell 1', joules_per_token: 0.2, token_latency_ms: 2 },
        comparisons: [
          {
            a: 0,
            b: 1,
            ratio: 0.35,
            ratio_lo: 0.2,
            ratio_hi: 0.6,
            method: 'paired_log',
            p_adjusted: 0.052,
            different: false,
          },
        ],
      }),
    ).join(' ');
    expect(text).toMatch(/0\.350 times .* could be chance .*p 0\.052 after correction/);
    expect(text).not.toContain('not distinguishable');
  });
  test('without energy there is no optimum and no figure', () => {
    const text = verdict(
      experiment({ optimum: null, cells: cells.map((c) => ({ ...c, joules_per_token: null })) }),
    ).join(' ');
    expect(text).toMatch(/no optimum/);
    expect(text).not.toMatch(/\d [mk]?J/);
  });
  test('distinguishes a latency limit that no cell meets from unfinished runs', () => {
    expect(verdict(experiment({ optimum: null }))[0]).toMatch(/latency limit/);
    expect(verdict(experiment({ optimum: null, done: 0 }))[0]).toMatch(/No run has ended/);
  });
});

describe('the knee of a Pareto front', () => {
  test('is where the line bends', () => {
    const front = [
      { x: 10, y: 1 },
      { x: 90, y: 1.5 },
      { x: 100, y: 10 },
    ];
    expect(kneeOf(front)).toBe(1);
  });
  test('is nowhere on a straight line, nor between two points', () => {
    expect(kneeOf([0, 1, 2].map((x) => ({ x, y: x })))).toBe(null);
    expect(
      kneeOf([
        { x: 1, y: 1 },
        { x: 2, y: 5 },
      ]),
    ).toBe(null);
  });
  test('depends on the scale of the axes', () => {
    const front = [1, 10, 100].map((x) => ({ x, y: x }));
    expect(kneeOf(front, { x: true, y: true })).toBe(null);
    expect(
      kneeOf(
        [
          { x: 1, y: 1 },
          { x: 10, y: 2 },
          { x: 100, y: 100 },
        ],
        { x: true, y: true },
      ),
    ).toBe(1);
  });
});
