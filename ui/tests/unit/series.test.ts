import { expect, test } from 'vitest';
import { bucketSize, envelope, minMax, Thinner } from '../../src/core/decimate.ts';
import { lowerBound, Ring } from '../../src/core/ring.ts';
import {
  box,
  extent,
  fenceOf,
  logTicks,
  paretoFront,
  quantile,
  scaleOf,
  ticks,
} from '../../src/core/stats.ts';
import { ratioMarks } from '../../src/views/compare/ratios.tsx';

test('a ring buffer keeps the last rows in order across many wraps', () => {
  const r = new Ring(5, 2);
  for (let i = 0; i < 23; i++) {
    r.push([i, 2 * i]);
    const from = Math.max(0, i - 4);
    const want = Array.from({ length: i - from + 1 }, (_, k) => from + k);
    expect(Array.from(r.view(0))).toEqual(want);
    expect(Array.from(r.view(1))).toEqual(want.map((v) => 2 * v));
    expect(r.first).toBe(from);
  }
  expect(r.last(0)).toBe(22);
  r.clear();
  expect(r.length).toBe(0);
  expect(r.last(0)).toBeNaN();
});

test('lowerBound is the first index with a value not below', () => {
  const a = [1, 3, 3, 7];
  expect([0, 1, 2, 3, 4, 7, 8].map((x) => lowerBound(a, x))).toEqual([0, 0, 1, 1, 3, 3, 4]);
});

const wave = (n: number): Float64Array =>
  Float64Array.from({ length: n }, (_, i) => Math.sin(i * 0.7) * i);

test('decimation keeps every extreme', () => {
  const n = 10_000;
  const x = Float64Array.from({ length: n }, (_, i) => i);
  const y = wave(n);
  y[4321] = 99_999;
  y[8000] = -99_999;
  const thin = minMax(x, [y], 0, 100);
  expect(thin.length).toBeLessThanOrEqual(200);
  const kept = Array.from(thin.y[0].subarray(0, thin.length));
  expect(Math.max(...kept)).toBe(99_999);
  expect(Math.min(...kept)).toBe(-99_999);
  for (let i = 1; i < thin.length; i++) expect(thin.x[i]).toBeGreaterThan(thin.x[i - 1]);
});

test('an envelope holds mean and extremes, of samples and of pairs of extremes alike', () => {
  const t = Float64Array.from({ length: 12 }, (_, i) => i);
  const y = Float64Array.from([
    1,
    2,
    3,
    9,
    5,
    4,
    Number.NaN,
    7,
    8,
    Number.NaN,
    Number.NaN,
    Number.NaN,
  ]);
  const plain = envelope(t, [y], null, [0, 12], 4);
  expect(Array.from(plain.lo[0])).toEqual([1, 4, 7, Number.NaN]);
  expect(Array.from(plain.hi[0])).toEqual([3, 9, 8, Number.NaN]);
  expect(Array.from(plain.mean[0])).toEqual([2, 6, 7.5, Number.NaN]);
  const pairs = Float64Array.from([1, 9, 2, 4, 8, 3, 5, 5]);
  const means = Float64Array.from([6, 3, 4, 5]);
  const thin = envelope(t.subarray(0, 8), [pairs], [means], [0, 8], 2);
  expect(Array.from(thin.lo[0])).toEqual([1, 3]);
  expect(Array.from(thin.hi[0])).toEqual([9, 8]);
  expect(Array.from(thin.mean[0])).toEqual([4.5, 4.5]);
  // A part of it, which begins within a bucket: the whole bucket is taken.
  expect(Array.from(envelope(t.subarray(0, 8), [pairs], [means], [5, 8], 1).mean[0])).toEqual([
    4.5,
  ]);
});

test('buckets are anchored to the absolute index: a sliding window does not flicker', () => {
  const n = 4000;
  const y = wave(n);
  const x = Float64Array.from({ length: n }, (_, i) => i);
  const view = (first: number) => {
    const t = minMax(
      x.subarray(first, first + 2000),
      [y.subarray(first, first + 2000)],
      first,
      100,
    );
    return new Map(Array.from(t.x.subarray(0, t.length), (v, i) => [v, t.y[0][i]]));
  };
  const a = view(100);
  const b = view(120);
  let shared = 0;
  for (const [at, value] of b) {
    if (at >= 140 && at < 2080 && a.has(at)) {
      shared++;
      expect(a.get(at)).toBe(value);
    }
  }
  expect(shared).toBeGreaterThan(150);
});

test('a bucket of gaps is a gap, a gap in a bucket is not', () => {
  const x = Float64Array.from({ length: 40 }, (_, i) => i);
  const y = Float64Array.from(x, (v) => (v < 20 || v === 25 ? Number.NaN : v));
  const thin = minMax(x, [y], 0, 4);
  const kept = Array.from(thin.y[0].subarray(0, thin.length));
  expect(kept.slice(0, 4).every(Number.isNaN)).toBe(true);
  expect(kept.slice(4).every(Number.isFinite)).toBe(true);
});

test('few points are left unchanged', () => {
  const x = Float64Array.of(1, 2, 3);
  const y = [Float64Array.of(3, Number.NaN, 5)];
  expect(minMax(x, y, 0, 500)).toEqual({ x, y, length: 3 });
});

test('quantiles interpolate between order statistics', () => {
  expect(quantile([1, 2, 3, 4], 0.5)).toBe(2.5);
  expect(quantile([10], 0.9)).toBe(10);
  expect(quantile([], 0.5)).toBeNaN();
});

test('box plot figures, with an outlier beyond the whisker', () => {
  const b = box(Float64Array.of(1, 2, 3, 4, 5, 100, Number.NaN));
  expect(b).toMatchObject({
    n: 6,
    min: 1,
    max: 100,
    median: 3.5,
    q1: 2.25,
    q3: 4.75,
    highWhisker: 5,
    lowWhisker: 1,
  });
  expect(box(Float64Array.of(Number.NaN))).toBeNull();
});

test('extent ignores what is unavailable', () => {
  expect(extent([null, 3, Number.NaN, -1])).toEqual([-1, 3]);
  expect(extent([null, Number.NaN])).toBeNull();
});

test('the Pareto front equals brute force', () => {
  let seed = 7;
  const rnd = () => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return seed / 2147483648;
  };
  for (let round = 0; round < 50; round++) {
    const points = Array.from({ length: 30 }, () => ({
      x: Math.round(rnd() * 20),
      y: Math.round(rnd() * 20),
    }));
    const beaten = (i: number) =>
      points.some(
        (p) => p.x >= points[i].x && p.y <= points[i].y && (p.x > points[i].x || p.y < points[i].y),
      );
    const want = new Set(
      points
        .map((_, i) => i)
        .filter((i) => !beaten(i))
        .map((i) => `${points[i].x},${points[i].y}`),
    );
    const got = new Set(paretoFront(points).map((i) => `${points[i].x},${points[i].y}`));
    expect(got).toEqual(want);
  }
});

test('ticks are round and within the range', () => {
  expect(ticks(0, 50, 5)).toEqual([0, 10, 20, 30, 40, 50]);
  expect(ticks(0.2, 0.9, 4).map((t) => Math.round(t * 10))).toEqual([2, 4, 6, 8]);
  expect(logTicks(0.5, 2000)).toEqual([1, 10, 100, 1000]);
  expect(logTicks(0.4, 12)).toEqual([0.5, 1, 2, 5, 10]);
  for (let reach = 1.35; reach < 1e6; reach *= 1.05) {
    const marks = ratioMarks(reach);
    expect(
      marks.some((r) => r > 1) && marks.includes(1) && marks.some((r) => r < 1),
      `${reach}`,
    ).toBe(true);
  }
});

test('incremental decimation equals decimation from scratch', () => {
  const n = 6000;
  const x = Float64Array.from({ length: n }, (_, i) => i * 0.5);
  const y = [wave(n), Float64Array.from(x, (v) => (Math.floor(v) % 90 < 40 ? Number.NaN : v))];
  const moving = new Thinner();
  let size = 0;
  for (let end = 1; end <= n; end += 1 + ((end * 7) % 90)) {
    const first = Math.max(0, end - 2500);
    const cut = (a: Float64Array) => a.subarray(first, end);
    size = bucketSize(end - first, 100);
    const got = moving.step(cut(x), y.map(cut), first, size);
    const want = new Thinner().step(cut(x), y.map(cut), first, size);
    expect(got.length).toBe(want.length);
    expect(Array.from(got.x.subarray(0, got.length))).toEqual(
      Array.from(want.x.subarray(0, want.length)),
    );
    got.y.forEach((a, k) => {
      expect(Array.from(a.subarray(0, got.length))).toEqual(
        Array.from(want.y[k].subarray(0, want.length)),
      );
    });
  }
  expect(size).toBe(32);
});

test('a colour scale is robust to an outlier', () => {
  const even = Array.from({ length: 60 }, (_, i) => i);
  expect(scaleOf(even)).toEqual({ lo: 0, hi: 59, clipped: false });
  const odd = scaleOf([...even, 9000]);
  expect(odd?.clipped).toBe(true);
  expect(odd?.hi).toBeLessThan(100);
  expect(scaleOf([Number.NaN])).toBeNull();
});

test('outlier tokens do not darken the others', () => {
  const tokens = [
    ...Array.from({ length: 90 }, (_, i) => 10 + (i % 10) / 10),
    ...Array.from({ length: 10 }, () => 900),
  ];
  const f = fenceOf(tokens);
  expect(f?.clipped).toBe(true);
  expect(f?.hi).toBeLessThan(20);
  expect(f?.lo).toBe(10);
  expect(fenceOf([5, 5, 5])).toEqual({ lo: 5, hi: 5, clipped: false });
});

test('scales of different lists do not disturb each other', () => {
  const wide = Float32Array.from({ length: 3000 }, (_, i) => i);
  expect(scaleOf([5, Number.NaN, 2])).toEqual({ lo: 2, hi: 5, clipped: false });
  expect(scaleOf(wide)).toEqual({ lo: 0, hi: 2999, clipped: false });
  expect(scaleOf([1])).toEqual({ lo: 1, hi: 1, clipped: false });
  expect(scaleOf([Number.NaN])).toBeNull();
});
