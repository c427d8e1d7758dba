// Sentences and figures as the page words them.
import { expect, test } from 'vitest';
import type { Summary } from '../../src/api/types.ts';
import { remarksOf } from '../../src/parts/remarks.tsx';
import { unit } from '../../src/state/settings.ts';
import { showWithin } from '../../src/views/compare/metric_text.tsx';
import { freeName } from '../../src/views/experiments/form.tsx';
import { makeRun } from '../fixture/generate.ts';

test("a group's figure has the digits that its interval deserves", () => {
  unit.value = 'auto';
  expect(showWithin(10_400, 4490, 'mJ')).toBe('10 ± 4 J');
  expect(showWithin(0.0611, 0.0162, 'J')).toBe('61 ± 16 mJ');
  expect(showWithin(224.3, 103, 'ms')).toBe('224 ± 103 ms');
  expect(showWithin(46_300, 2140, 'mW')).toBe('46 ± 2 W');
  expect(showWithin(626.1, 326, '1/s')).toBe('626 ± 326');
  expect(showWithin(626.1, null, '1/s')).toBe('626');
  expect(showWithin(null, 3, 'mJ')).toBe('unavailable');
});

test('a new experiment gets a name of its own', () => {
  expect(freeName('sweep', [])).toBe('sweep');
  expect(freeName('sweep', ['sweep', 'sweep-2'])).toBe('sweep-3');
  expect(freeName('sweep-2', ['sweep', 'sweep-2'])).toBe('sweep-3');
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
