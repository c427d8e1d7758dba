import { expect, test } from 'vitest';
import type { Anomaly } from '../../src/api/types.ts';
import { whyOdd, whyToken } from '../../src/views/analysis/anomalies.ts';
import { makeRun } from '../fixture/generate.ts';

const odd = (over: Partial<Anomaly>): Anomaly => ({
  kind: 'token',
  token: 2,
  t_ms: 1,
  value: 4,
  expected: 3,
  score: 8,
  reason: 'energy 8.0 robust deviations from the tokens around it',
  ...over,
});
const token = makeRun({ seed: 2, tokens: 4 }).tokens[2];

test('a likely cause is shown, an unknown one is not invented', () => {
  expect(whyOdd(odd({ cause: 'faults' }))).toMatch(/around it; likely cause: .*page faults/);
  for (const cause of ['unknown', null, undefined, 'of another version'])
    expect(whyOdd(odd({ cause }))).toBe(odd({}).reason);
});

test('of a token that took many times as much the factor is told', () => {
  expect(whyOdd(odd({ value: 4200, cause: 'disturbed' }))).toMatch(
    /^1,400 times what the tokens around it took; likely cause: the machine was busy/,
  );
  expect(whyOdd(odd({ value: 1 }))).toBe(odd({}).reason);
  expect(whyOdd(odd({ value: 4200, expected: null }))).toBe(odd({}).reason);
});

test('a marked token shows the reason, from its own anomaly only', () => {
  const quiet = { ...token, token: 2, disturbed: false };
  expect(whyToken(quiet, [odd({ token: 1 }), odd({ kind: 'power' })])).toBeNull();
  expect(whyToken(quiet, [odd({ cause: 'real' })])).toMatch(/property of the token/);
  expect(whyToken({ ...quiet, disturbed: true }, [])).toMatch(/^disturbed: /);
  expect(whyToken(undefined, [])).toBeNull();
});
