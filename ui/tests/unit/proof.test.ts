import { describe, expect, test } from 'vitest';
import type { Advice, Experiment, ExperimentCell, Summary } from '../../src/api/types.ts';
import { planOfCommand, proofOf, testName } from '../../src/views/analysis/test_plan.ts';

const finding = (lo: number | null): Advice['findings'][number] => ({
  rule: 'dtype',
  title: '',
  text: '',
  kind: 'saving',
  evidence: [],
  saving: {
    of: 'request',
    basis: 'predicted',
    share: 0.3,
    share_lo: lo,
    share_hi: 0.5,
    energy_mj: 1,
  },
  cost: { quality: '', latency: '', memory: '' },
  test: null,
});
const run = { dtype: 'bf16', batch_size: 1, threads: 2 } as Summary;
const cell = (n: number, dtype: string, joules: number) =>
  ({
    cell: n,
    name: dtype,
    dtype,
    batch: 1,
    joules_per_token: joules,
    model: null,
    input: 8,
    output: 8,
    threads: 2,
  }) as ExperimentCell;
const result = (
  cells: ExperimentCell[],
  ratio: [number, number, number] | null,
  different: boolean,
) =>
  ({
    state: 'completed',
    metric: 'joules_per_token',
    cells,
    comparisons: ratio
      ? [
          {
            a: 0,
            b: 1,
            ratio: ratio[0],
            ratio_lo: ratio[1],
            ratio_hi: ratio[2],
            different,
            method: '',
            p_adjusted: 0,
          },
        ]
      : [],
  }) as unknown as Experiment;
const [own, other] = [cell(0, 'bf16', 1), cell(1, 'q8_0', 0.77)];

describe('the test of an advice', () => {
  test('a command of an experiment is its plan, and no other command is', () => {
    expect(
      planOfCommand(
        'perjoule experiment --models demo --inputs 9 --outputs 64 --repeat 5 --dtypes bf16,q8_0',
        'x',
      ),
    ).toEqual({
      name: 'x',
      models: ['demo'],
      inputs: [9],
      outputs: [64],
      repeat: 5,
      dtypes: ['bf16', 'q8_0'],
    });
    for (const other of [
      null,
      'perjoule calibrate demo',
      'perjoule experiment --what 1',
      'perjoule experiment --batches 1,x',
    ])
      expect(planOfCommand(other, 'x')).toBe(null);
    expect(testName('dtype', '0198aaaa-bbbb-7000-8000-000000000000')).toBe(
      'test-dtype-0198aaaa-bbbb',
    );
  });

  test('the comparison decides, in whichever order the cells stand', () => {
    expect(proofOf(result([own, other], [0.77, 0.73, 0.81], true), finding(0.1), run)).toEqual({
      outcome: 'confirmed',
      text: 'confirmed: q8_0 saves 23.0 % (19.0 % to 27.0 %)',
    });
    const swapped = [cell(0, 'q8_0', 0.8), cell(1, 'bf16', 1)];
    expect(proofOf(result(swapped, [1.25, 1.2, 1.3], true), finding(0.1), run).text).toMatch(
      /^confirmed: q8_0 saves 20.0 % \(16.7 % to 23.1 %\)/,
    );
    expect(
      proofOf(result([own, cell(1, 'q8_0', 1.1)], [1.1, 1.05, 1.15], true), finding(0.1), run)
        .outcome,
    ).toBe('refuted');
  });

  test('without a difference it is refuted only if what was promised is excluded', () => {
    expect(
      proofOf(result([own, other], [0.99, 0.95, 1.03], false), finding(0.1), run).outcome,
    ).toBe('refuted');
    expect(proofOf(result([own, other], [0.9, 0.7, 1.1], false), finding(0.1), run).outcome).toBe(
      'open',
    );
    expect(proofOf(result([own, other], null, false), finding(0.1), run).outcome).toBe('open');
    expect(
      proofOf(
        { ...result([], null, false), state: 'running', done: 2, total: 10 },
        finding(null),
        run,
      ).text,
    ).toBe('2 of 10 runs');
  });
});
