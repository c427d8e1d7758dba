import { expect, test } from 'vitest';
import type { Anomaly } from '../../src/api/types.ts';
import { nameOf, whyOdd, whyToken } from '../../src/views/analysis/anomalies.ts';
import { makeRun } from '../fixture/generate.ts';

const odd = (over: Partial<Anomaly>): Anomaly => ({
  kind: 'token',
  token: 2,
  tokens: 1,
  begin_ms: 1,
  end_ms: 2,
  value: 4,
  expected: 3,
  times: 4 / 3,
  extra_energy_mj: 1,
  reason: 'energy unusual; it took 1.33 times what the tokens around it took',
  ...over,
});
const token = makeRun({ seed: 2, tokens: 4 }).tokens[2];

test('a likely cause is shown, an unknown one is not invented', () => {
  expect(whyOdd(odd({ cause: 'faults' }))).toMatch(/around it took; likely cause: .*page faults/);
  for (const cause of ['unknown', null, undefined, 'of another version'])
    expect(whyOdd(odd({ cause }))).toBe(odd({}).reason);
});

test('an event is named by its tokens, its prompt or its time', () => {
  expect(nameOf(odd({}), false)).toBe('Token 2');
  expect(nameOf(odd({ tokens: 3 }), false)).toBe('Tokens 2 to 4');
  expect(nameOf(odd({ token: 0, kind: 'disturbance' }), true)).toBe('Prompt');
  expect(nameOf(odd({ kind: 'power', token: null, tokens: 0, begin_ms: 12 }), false)).toMatch(
    /^Power at 12/,
  );
});

test('a marked token shows the reason, from its own anomaly only', () => {
  const quiet = { ...token, token: 2, disturbed: false };
  expect(
    whyToken(quiet, [odd({ token: 1 }), odd({ kind: 'power', token: null, tokens: 0 })]),
  ).toBeNull();
  expect(whyToken(quiet, [odd({ cause: 'real' })])).toMatch(/property of the token/);
  expect(whyToken({ ...quiet, disturbed: true }, [])).toMatch(/^disturbed: /);
  expect(whyToken(quiet, [odd({ token: 0, tokens: 3, cause: 'busy' })])).toMatch(
    /machine was busy/,
  );
  expect(whyToken(undefined, [])).toBeNull();
});
