import { expect, test } from 'vitest';
import { decodeCube, decodeFrame } from '../../src/api/binary.ts';
import { inkOn, level, ramp } from '../../src/core/ramp.ts';
import { fileName, toCsv } from '../../src/core/table.ts';
import { flows } from '../../src/views/analysis/flows.ts';
import { makeRun, tree } from '../fixture/generate.ts';
import { frame } from '../fixture/live.ts';

test('CSV: quoting, doubled quotes, empty if unavailable, escaped formulas', () => {
  const csv = toCsv({
    columns: ['a', 'b "c"'],
    rows: [
      [1.5, 'x,y'],
      [null, 'line\nbreak'],
      [Number.NaN, '=SUM(A1)'],
    ],
  });
  expect(csv).toBe('a,"b ""c"""\r\n1.5,"x,y"\r\n,"line\nbreak"\r\n,\'=SUM(A1)\r\n');
  expect(fileName('Power over time', 'csv')).toBe('perjoule-power-over-time.csv');
});

test('a power frame decodes to its columns', () => {
  const columns = Array.from({ length: 7 }, (_, c) => Float32Array.of(c, c + 0.5, Number.NaN));
  const f = decodeFrame(frame(1, 9, 1234.5, 3, 0, columns).buffer as ArrayBuffer);
  expect(f).toMatchObject({ kind: 'power', sequence: 9, tMs: 1234.5, rows: 3 });
  if (f?.kind !== 'power') throw new Error('not power');
  expect(Array.from(f.columns[6])).toEqual([6, 6.5, Number.NaN]);
});

test('a heatmap frame decodes to layers × components', () => {
  const f = decodeFrame(
    frame(2, 1, 0, 2, 41, [Float32Array.of(1, 2, 3, 4, 5, 6)]).buffer as ArrayBuffer,
  );
  expect(f).toMatchObject({ kind: 'heatmap', layers: 2, components: 3, token: 41 });
});

test('frames that are short, lie about their size, or are of another version are refused', () => {
  const good = frame(1, 1, 0, 2, 0, [Float32Array.of(1, 2)]);
  expect(decodeFrame(good.slice(0, 20).buffer)).toBeNull();
  expect(decodeFrame(good.slice(0, 28).buffer)).toBeNull();
  const other = good.slice();
  other[1] = 2;
  expect(decodeFrame(other.buffer)).toBeNull();
  const unknown = good.slice();
  unknown[0] = 77;
  expect(decodeFrame(unknown.buffer)).toBeNull();
});

test('the cube checks its magic and its length', () => {
  const b = new ArrayBuffer(24 + 4 * 6);
  new Uint8Array(b).set(new TextEncoder().encode('PJCUBE1\0'));
  new Uint32Array(b, 8, 3).set([1, 2, 3]);
  new Float32Array(b, 24).set([1, 2, 3, 4, 5, Number.NaN]);
  expect(decodeCube(b)).toMatchObject({ tokens: 1, layers: 2, components: 3 });
  expect(() => decodeCube(b.slice(0, 40))).toThrow('cut short');
  expect(() => decodeCube(new ArrayBuffer(64))).toThrow('no heatmap cube');
});

test('ramps have monotonic lightness', () => {
  for (const name of ['viridis', 'cividis'] as const) {
    const lut = ramp(name);
    const light = Array.from(
      lut,
      (p) => 0.2126 * (p & 255) + 0.7152 * ((p >> 8) & 255) + 0.0722 * ((p >> 16) & 255),
    );
    for (let i = 1; i < 256; i++) expect(light[i]).toBeGreaterThanOrEqual(light[i - 1] - 0.75);
    expect(inkOn(lut[0])).toBe('#fff');
    expect(inkOn(lut[255])).toBe('#000');
  }
  expect(level(5, 0, 10)).toBe(128);
  expect(level(-5, 0, 10)).toBe(0);
  expect(level(3, 3, 3)).toBe(128);
});

test('flows conserve energy: the input of a node equals its output, except for components', () => {
  const root = tree(makeRun({ seed: 3, layers: 9, tokens: 20 }), 'energy');
  const { nodes, links } = flows(root);
  const sum = (side: 'from' | 'to', id: string) =>
    links.filter((l) => l[side] === id).reduce((a, l) => a + l.value, 0);
  const inner = nodes.filter((n) => /^(band|part) |^outside$/.test(n.id));
  expect(inner.length).toBeGreaterThan(5);
  for (const n of inner) expect(sum('from', n.id)).toBeCloseTo(sum('to', n.id), 6);
  const sources = nodes.filter((n) => n.id.startsWith('phase '));
  const sinks = nodes.filter((n) => n.id.startsWith('comp ') || n.id === 'rest' || n.id === 'load');
  const out = sources.reduce((a, n) => a + sum('from', n.id), 0);
  expect(sinks.reduce((a, n) => a + sum('to', n.id), 0)).toBeCloseTo(out, 6);
});
