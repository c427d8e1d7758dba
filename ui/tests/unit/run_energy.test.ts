import { expect, test } from 'vitest';
import {
  absentEnergy,
  disturbed,
  disturbedHelp,
  energyPerToken,
  energyPerTokenHelp,
  listedEnergy,
  listedToken,
  modelLoad,
  partialText,
  primaryHelp,
  primaryJoules,
  primaryToken,
  runEnergy,
  sharedGain,
  thinkingLine,
  thinkingShare,
  typicalToken,
} from '../../src/core/run_energy.ts';
import { makeRun } from '../fixture/generate.ts';

const whole = makeRun({ seed: 4, tokens: 20 }).summary;
const partial = (has: string[], lacks: string[]) => ({
  ...whole,
  total_is_partial: true,
  total_rails: has,
  partial_rails: lacks,
});

test('a partial total names its rails and the missing ones', () => {
  expect(partialText(partial(['cpu'], ['gpu']))).toBe('partial: CPU only, GPU missing');
  expect(partialText(partial(['cpu', 'dram'], ['gpu0', 'gpu1']))).toBe(
    'partial: CPU and DRAM only, GPU0 and GPU1 missing',
  );
  expect(partialText(partial(['wall socket'], ['cpu']))).toBe(
    'partial: wall socket only, CPU missing',
  );
  expect(partialText(partial([], ['gpu']))).toBe('partial: nothing only, GPU missing');
});

test('a total that is whole or unavailable is not partial', () => {
  expect(partialText(whole)).toBeNull();
  expect(partialText({ ...partial(['cpu'], ['gpu']), total_energy_mj: null })).toBeNull();
  // A queued run has no lists yet.
  expect(partialText({ ...whole, total_rails: [], partial_rails: [] })).toBeNull();
});

test('an energy below the resolution says so, with its bound where there is one', () => {
  const below = {
    ...whole,
    total_energy_mj: null,
    total_energy_sd_mj: null,
    energy_upper_mj: 12_500,
    unavailable_reason: 'below_resolution' as const,
  };
  expect(runEnergy(below)).toBe("unavailable (below the sensor's resolution, at most 12.5 J)");
  expect(runEnergy(below, 'mJ')).toContain('at most 12,500 mJ');
  expect(absentEnergy({ ...below, energy_upper_mj: null })).toBe(
    "unavailable (below the sensor's resolution)",
  );
  expect(runEnergy({ ...below, unavailable_reason: 'no_sensor' })).toBe('unavailable');
  expect(runEnergy({ ...below, unavailable_reason: null })).toBe('unavailable');
});

test('an energy that is known is shown with its own interval', () => {
  expect(runEnergy({ ...whole, total_energy_mj: 24_100, total_energy_sd_mj: 210 })).toBe(
    '24.1 ± 0.4 J',
  );
});

test('the mean per token has its own deviation, not that of the run', () => {
  const run = {
    ...whole,
    total_energy_mj: 1000,
    total_energy_sd_mj: 500,
    joules_per_token: 0.229,
    joules_per_token_sd: 0.002,
  };
  expect(energyPerToken(run)).toBe('229 ± 4 mJ');
  expect(energyPerTokenHelp(run)).toContain('1.96 standard deviations of 2.00 mJ');
  const without = { ...run, joules_per_token_sd: null };
  expect(energyPerToken(without)).toBe('229 mJ');
  expect(energyPerTokenHelp(without)).not.toContain('deviation');
  expect(energyPerToken({ ...run, joules_per_token: null })).toBe('unavailable');
});

test('the typical token is not the mean, and decides where it is known', () => {
  const run = {
    ...whole,
    joules_per_token: 9,
    joules_per_token_sd: 0.1,
    joules_per_token_typical: 0.209,
    joules_per_token_typical_sd: 0.003,
    joules_per_token_typical_lo: 0.203,
    joules_per_token_typical_hi: 0.215,
  };
  expect(typicalToken(run)).toBe('209 ± 6 mJ');
  expect(primaryToken(run)).toBe('209 ± 6 mJ');
  expect(primaryJoules(run)).toBe(0.209);
  expect(primaryHelp(run)).toContain('The mean is 9.0 ± 0.2 J');
  const none = { ...run, joules_per_token_typical: null };
  expect(typicalToken(none)).toBe('unavailable');
  expect(primaryToken(none)).toBe('9.0 ± 0.2 J on average');
  expect(primaryJoules(none)).toBe(9);
});

test('no model loaded and an unknown energy are distinguished', () => {
  expect(modelLoad({ ...whole, model_load_energy_mj: 1200, model_load_energy_sd_mj: 10 })).toBe(
    '1.20 ± 0.02 J',
  );
  expect(modelLoad({ ...whole, model_load_energy_mj: null, request_energy_mj: 22_900 })).toBe(
    'none',
  );
  expect(modelLoad({ ...whole, model_load_energy_mj: null, request_energy_mj: null })).toBe(
    'unavailable',
  );
});

test('a disturbed share is shown above 0 only', () => {
  expect(disturbed({ ...whole, disturbed_share: 0.031 })).toBe('3.10 %');
  expect(disturbed({ ...whole, disturbed_share: 0 })).toBeNull();
  expect(disturbed({ ...whole, disturbed_share: null })).toBeNull();
  expect(disturbedHelp({ ...whole, disturbed_tokens: 1 })).toContain('in 1 token that');
  expect(disturbedHelp({ ...whole, disturbed_tokens: 12 })).toContain('in 12 tokens that');
});

test('thinking is a share of the request, and absent where no mark was seen', () => {
  const thought = {
    ...whole,
    output_tokens: 60,
    thinking_tokens: 40,
    thinking_energy_mj: 30,
    thinking_energy_sd_mj: 1,
    thinking_duration_ms: 12,
    request_energy_mj: 100,
  };
  expect(thinkingShare(thought)).toBeCloseTo(0.3, 9);
  expect(thinkingLine(thought)).toBe(
    '30 ± 2 mJ in 40 of 60 tokens, 12.0 ms, 30.0 % of the request',
  );
  expect(thinkingLine({ ...thought, thinking_energy_mj: null })).toBe(
    'unavailable in 40 of 60 tokens, 12.0 ms',
  );
  expect(thinkingLine({ ...thought, thinking_tokens: null })).toBeNull();
});

test('rows of a list are without the calibration that they share, which is said once', () => {
  const run = {
    ...whole,
    total_energy_mj: 1000,
    total_energy_sd_random_mj: 3,
    total_energy_sd_bias_mj: 4,
    total_energy_sd_gain_mj: 80,
    joules_per_token_typical: 0.2,
    typical_token_energy_sd_random_mj: 0.6,
    typical_token_energy_sd_bias_mj: 0.8,
    typical_token_energy_sd_gain_mj: 16,
  };
  expect(listedEnergy(run)).toBe('1.000 ± 0.010 J');
  expect(listedToken(run)).toBe('200 ± 2 mJ');
  expect(sharedGain([whole, run])).toBeCloseTo(0.157, 3);
  expect(sharedGain([{ ...run, total_energy_sd_gain_mj: 0.1 }])).toBeNull();
});
