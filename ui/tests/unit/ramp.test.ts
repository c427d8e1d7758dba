// Text on the energy trees: readable on every colour of a part or phase, at every opacity, in both themes.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { MOST, OF_PHASES, strengths, USUAL } from '../../src/charts/strength';
import { blend, inkOn } from '../../src/core/ramp';

// Imported styles are empty in tests.
const css = readFileSync('src/style/tokens.css', 'utf8');

const themes = css.split(/--surface:/).slice(1); // each begins with its surface

const channel = (c: number) =>
  c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4;
const luminance = (r: number, g: number, b: number) =>
  0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);

test('a blend lies between its colours', () => {
  expect(blend('#ff8000', 1, '#000000')).toBe(0xff0080ff);
  expect(blend('#ff8000', 0, '#123456')).toBe(0xff563412);
  expect(blend('#fff', 0.5, '#000') & 255).toBe(128);
});

test('ink on parts and phases has a contrast of 4.5 or more', () => {
  expect(themes).toHaveLength(2);
  for (const theme of themes) {
    const surface = /#[0-9a-f]{6}/.exec(theme)?.[0] ?? '';
    const colours = [...theme.matchAll(/--(?:part|phase)-[a-z-]+: (#[0-9a-f]{6})/g)].map(
      (m) => m[1],
    );
    expect(colours.length).toBeGreaterThan(8);
    for (const colour of colours)
      for (const alpha of [USUAL, 0.6, OF_PHASES, 0.85, 0.88, MOST]) {
        const p = blend(colour, alpha, surface);
        const y = luminance(p & 255, (p >> 8) & 255, (p >> 16) & 255);
        const ink = inkOn(p) === '#000' ? 0 : 1;
        const [light, dark] = [Math.max(y, ink), Math.min(y, ink)];
        expect(
          (light + 0.05) / (dark + 0.05),
          `${colour} at ${alpha} on ${surface}`,
        ).toBeGreaterThan(4.5);
      }
  }
});

test('slices are coloured by what is more than usual, not by their order', () => {
  const decode = (label: string, energy: number | null) => ({
    kind: 'token' as const,
    phase: 'decode',
    label,
    energy,
  });
  const slices = [
    { ...decode('Prompt', 900), phase: 'prefill' },
    ...[10, 10.3, 9.7, 10.1, 60].map((mj, i) => decode(`${i}`, mj)),
    decode('?', null),
  ];
  const [prompt, a, b, c, d, stall, unknown] = strengths(slices);
  expect(prompt).toBeCloseTo(USUAL);
  for (const usual of [a, b, c, d]) expect(Math.abs(usual - USUAL)).toBeLessThan(0.02);
  expect(stall).toBeCloseTo(MOST);
  expect(unknown).toBeNaN();
});
