// Sentences and figures as the page words them.
import { expect, test } from 'vitest';
import type { Summary } from '../../src/api/types.ts';
import { remarksOf } from '../../src/parts/remarks.tsx';
import { titleOf } from '../../src/state/names.ts';
import { unit } from '../../src/state/settings.ts';
import { showBetween } from '../../src/views/compare/metric_text.tsx';
import { freeName } from '../../src/views/experiments/form.tsx';
import { makeRun } from '../fixture/generate.ts';

test("a group's figure has the digits that its interval deserves", () => {
  unit.value = 'auto';
  expect(showBetween(10_400, 6800, 16_000, 'mJ')).toBe('10 (6.8 to 16) J');
  expect(showBetween(0.0611, 0.0502, 0.0721, 'J')).toBe('61 ± 11 mJ');
  expect(showBetween(224.3, 142, 354, 'ms')).toBe('220 (140 to 350) ms');
  expect(showBetween(46_300, 44_200, 48_500, 'mW')).toBe('46 ± 2 W');
  expect(showBetween(626.1, 373, 1050, '1/s')).toBe('600 (370 to 1,100)');
  expect(showBetween(-12, -20, -4, 'mJ')).toBe('-12 ± 8 mJ');
  expect(showBetween(626.1, null, null, '1/s')).toBe('626');
  expect(showBetween(null, 3, 4, 'mJ')).toBe('unavailable');
});

test('a new experiment gets a name of its own', () => {
  expect(freeName('sweep', [])).toBe('sweep');
  expect(freeName('sweep', ['sweep', 'sweep-2'])).toBe('sweep-3');
  expect(freeName('sweep-2', ['sweep', 'sweep-2'])).toBe('sweep-3');
});

test('a run of an experiment is called by what tells it from the others, which a narrow column shows', () => {
  const { summary } = makeRun({ seed: 4, tokens: 20 });
  const run = { ...summary, prompt: '0,499,472,325', experiment_name: 'sweep', batch_size: 4 };
  expect(titleOf(run)).toMatch(/^sweep: batch 4, \w+, \d+ → \d+ tokens$/);
  expect(titleOf({ ...run, experiment_name: null })).toBe('4 token ids');
});

test('what became of a run comes before the remarks of its sensors, each once', () => {
  const s = makeRun({ seed: 4, tokens: 20 }).summary as Summary;
  const warning = (code: string, text: string) => ({ code, text, t_ms: 0 });
  const told = remarksOf({
    ...s,
    status: 'failed',
    failure: 'exit code 1',
    warnings: [
      warning('run_failed', 'exit code 1'),
      warning('sensor_frozen', 'the sensor of cpu stood still.'),
      warning('sensor_frozen', 'the sensor of cpu stood still.'),
    ],
  });
  expect(told).toEqual([
    'This run failed: exit code 1. What had been recorded up to then is shown.',
    'The sensor of cpu stood still.',
  ]);
  expect(remarksOf({ ...s, warnings: [] })).toEqual([]);
});
