import { expect, test } from 'vitest';
import {
  clip,
  count,
  digits,
  dollars,
  energy,
  energyBetween,
  energyInterval,
  energySigned,
  pair,
  percent,
  power,
  promptOf,
  spread,
  time,
} from '../../src/core/format.ts';

test('a figure that is unavailable is never a number', () => {
  for (const show of [energy, power, time, count, percent]) {
    for (const nothing of [null, undefined, Number.NaN]) expect(show(nothing)).toBe('unavailable');
  }
  expect(energyInterval(null, 3)).toBe('unavailable');
});

test('zero is a value with a unit', () => {
  expect(energy(0)).toBe('0 mJ');
  expect(power(0)).toBe('0 W');
  expect(time(0)).toBe('0 ms');
});

test('energies get a suitable SI prefix', () => {
  expect(energy(24_100)).toBe('24.1 J');
  expect(energy(0.0125)).toBe('12.5 µJ');
  expect(energy(2.5e6)).toBe('2.50 kJ');
  expect(energy(3.6e9)).toBe('1,000 Wh');
  expect(energy(12.6, 'Wh')).toBe('3.50 µWh');
  expect(energy(36_000, 'Wh')).toBe('10.0 mWh');
  expect(energy(3.6e9, 'Wh')).toBe('1.00 kWh');
  expect(energy(24_100, 'mJ')).toBe('24,100 mJ');
});

test('power and time', () => {
  expect(power(29_661)).toBe('29.7 W');
  expect(time(0.0157)).toBe('15.7 µs');
  expect(time(812.5)).toBe('813 ms');
  expect(time(61_000)).toBe('61.0 s');
});

test('an interval is 1.96 deviations wide, in the unit of the figure', () => {
  expect(energyInterval(24_100, 210)).toBe('24.1 ± 0.4 J');
  expect(energyInterval(100, 0)).toBe('100 ± 0 mJ');
  // Unknown deviation: the figure alone, not ± 0.
  expect(energyInterval(100, null)).toBe('100 mJ');
});

test('value and half width share their last digit', () => {
  expect(pair(251.37, 27.2)).toBe('250 ± 30');
  expect(pair(4507, 1788)).toBe('4,500 ± 1,800');
  expect(pair(7.244, 0.703)).toBe('7.2 ± 0.7');
  expect([spread(0.21), spread(0.00002), spread(0), spread(null)]).toEqual([
    '±21.0 %',
    'within 0.01 %',
    '±0 %',
    'unavailable',
  ]);
  expect(pair(1.36121, 0.00031)).toBe('1.3612 ± 0.0003');
  expect(pair(1.36121, 0.00014)).toBe('1.36121 ± 0.00014');
});

test('wide intervals of positive energies are asymmetric and positive', () => {
  expect(energyInterval(480, 240)).toBe('500 (200 to 1,100) mJ');
  expect(energyInterval(4, 40)).toBe('4 (0.10 to 160) mJ');
  expect(energySigned(4, 40)).toBe('0 ± 80 mJ');
  expect(energySigned(-28_300, 2450)).toBe('-28 ± 5 J');
  expect(energyBetween(4.71, 4.66, 4.76)).toBe('4.71 ± 0.05 mJ');
  expect(energyBetween(4.71, null, null)).toBe('4.71 mJ');
});

test('the unit is that of the value as it is shown', () => {
  expect(energyBetween(970, 740, 1260)).toBe('1.0 (0.74 to 1.3) J');
  expect(energyBetween(999.97, 999.77, 1000.17)).toBe('1.0000 ± 0.0002 J');
  expect(energyBetween(970, 740, 1260, 'mJ')).toBe('1,000 (740 to 1,300) mJ');
  expect(energyBetween(0.5, 0.4, 0.6)).toBe('500 ± 100 µJ');
});

test('digits keeps three significant digits', () => {
  expect(digits(1234.5)).toBe('1,235');
  expect(digits(0.012345)).toBe('0.0123');
  expect(digits(1.5e12)).toBe('1.50e12');
  expect(count(1_235_814_400)).toBe('1.24 G');
  expect(count(42)).toBe('42');
});

test('clip removes line breaks and marks truncation', () => {
  expect(clip('a\n b', 10)).toBe('a b');
  expect(clip('abcdefgh', 5)).toBe('abcd…');
});

test('a private prompt is shown as private, a missing one as empty', () => {
  expect(promptOf({ prompt: 'Once', prompt_private: null })).toBe('Once');
  expect(promptOf({ prompt: null, prompt_private: { words: 2 } })).toBe('(private)');
  expect(promptOf({ prompt: null })).toBe('');
  expect(promptOf({ prompt: '5,6,7,8' })).toBe('4 token ids: 5,6,7,8');
  expect(promptOf({ prompt: '5,6,7,8\n6,7,8,9' })).toMatch(/^8 token ids in 2 prompts: 5,6,7,8/);
  expect(promptOf({ prompt: '5,6,7,8\nand text' })).toBe('5,6,7,8\nand text');
});

test('a share has no more digits than useful', () => {
  expect(percent(0.1234)).toBe('12.3 %');
  expect(percent(0.00123)).toBe('0.12 %');
  expect(percent(0.0000259)).toBe('<0.01 %');
  expect(percent(-0.0000259)).toBe('>-0.01 %');
  expect(energySigned(-2, 20)).toBe('0 ± 40 mJ');
  expect(percent(0)).toBe('0 %');
});

test('a value that rounds to a thousand gets the next unit', () => {
  expect(power(999.99)).toBe('1.00 W');
  expect(energy(999.7)).toBe('1.00 J');
  expect(time(999.3)).toBe('999 ms');
});

test('money has no exponent', () => {
  expect(dollars(0.00000104)).toBe('1.0 µUSD');
  expect(dollars(0.000000072)).toBe('72 nUSD');
  expect(dollars(0.0123)).toBe('0.012 USD');
  expect(dollars(1.234)).toBe('1.2 USD');
  expect(dollars(null)).toBe('unavailable');
});
