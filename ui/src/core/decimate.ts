// Min/max decimation: reduces a series to what the pixels can show and keeps every peak, by taking
// the minimum and the maximum of each bucket in their original order. Bucket edges are multiples
// of the bucket size counted from the absolute sample index; edges that moved with the window
// would make the line flicker while it scrolls.

import { extent } from './stats';

export interface Thinned {
  x: Float64Array;
  y: Float64Array[];
  length: number;
}

/**
 * `first` is the absolute index of x[0]. All series share x, so a bucket yields two x positions:
 * the middle of its halves; each series puts its two extremes there in their order of time.
 * NaN is a gap: a bucket without one finite value yields NaN.
 */
export function minMax(
  x: Float64Array,
  series: Float64Array[],
  first: number,
  buckets: number,
  out?: Thinned,
): Thinned {
  const n = x.length;
  const size = Math.max(1, Math.ceil(n / Math.max(1, buckets)));
  if (size <= 2) return { x, y: series, length: n };
  const b0 = Math.floor(first / size);
  const b1 = Math.ceil((first + n) / size);
  const room = 2 * (b1 - b0);
  const r =
    out && out.x.length >= room && out.y.length === series.length
      ? out
      : {
          x: new Float64Array(room),
          y: series.map(() => new Float64Array(room)),
          length: 0,
        };
  r.length = room;
  for (let b = b0; b < b1; b++) {
    const from = Math.max(0, b * size - first);
    const to = Math.min(n, (b + 1) * size - first);
    const o = 2 * (b - b0);
    r.x[o] = x[from];
    r.x[o + 1] = x[(from + to) >> 1];
    for (let s = 0; s < series.length; s++) extremes(series[s], from, to, r.y[s], o);
  }
  return r;
}

export interface Envelope {
  t: Float64Array;
  mean: Float64Array[];
  lo: Float64Array[];
  hi: Float64Array[];
}

/**
 * Smallest, largest and mean value of each bucket of rows `from` to `to`. `means`: the rows are pairs of extremes, and
 * these the means of what each pair stands for. NaN is a gap, as in minMax.
 */
export function envelope(
  t: Float64Array,
  series: Float64Array[],
  means: Float64Array[] | null,
  [from, to]: [number, number],
  buckets: number,
): Envelope {
  const per = means ? 2 : 1;
  const size = per * Math.max(1, Math.ceil((to - from) / per / buckets));
  const b0 = Math.floor(from / size);
  const n = Math.ceil(to / size) - b0;
  const columns = () => series.map(() => new Float64Array(n).fill(Number.NaN));
  const e = { t: new Float64Array(n), mean: columns(), lo: columns(), hi: columns() };
  for (let k = 0; k < n; k++) {
    const a = (b0 + k) * size;
    const b = Math.min(t.length, a + size);
    e.t[k] = (t[a] + t[b - 1]) / 2;
    series.forEach((v, s) => {
      const part = v.subarray(a, b);
      const x = extent(part);
      if (!x) return;
      [e.lo[s][k], e.hi[s][k]] = x;
      e.mean[s][k] = average(means ? means[s].subarray(a / 2, Math.ceil(b / 2)) : part);
    });
  }
  return e;
}

function average(v: Float64Array): number {
  let [sum, n] = [0, 0];
  for (const x of v)
    if (!Number.isNaN(x)) {
      sum += x;
      n++;
    }
  return sum / n;
}

/** The smallest power of two of samples a bucket may hold so that at most `buckets` are needed. Powers
 * of two keep the size, and with it all finished buckets, while a window grows. */
export function bucketSize(samples: number, buckets: number): number {
  return 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(1, samples) / Math.max(1, buckets))));
}

/**
 * Incremental minMax for a window that slides along a growing series: a bucket is final once the window has
 * passed its end, so each step processes only new samples.
 */
export class Thinner {
  private size = 0;
  private b0 = 0;
  private b1 = 0;
  private out: Thinned = { x: new Float64Array(0), y: [], length: 0 };

  step(x: Float64Array, series: Float64Array[], first: number, size: number): Thinned {
    const n = x.length;
    const b0 = Math.floor(first / size);
    const b1 = Math.ceil((first + n) / size);
    const keep = size === this.size && b0 >= this.b0 && b0 < this.b1 && b1 >= this.b1;
    this.reserve(2 * (b1 - b0), series.length);
    if (keep) {
      const from = 2 * (b0 - this.b0);
      for (const a of [this.out.x, ...this.out.y]) a.copyWithin(0, from, 2 * (this.b1 - this.b0));
    }
    const fresh = keep ? this.b1 - 1 : b0;
    const bucket = (b: number) => {
      const from = Math.max(0, b * size - first);
      const to = Math.min(n, (b + 1) * size - first);
      const o = 2 * (b - b0);
      this.out.x[o] = x[from];
      this.out.x[o + 1] = x[(from + to) >> 1];
      for (let s = 0; s < series.length; s++) extremes(series[s], from, to, this.out.y[s], o);
    };
    for (let b = fresh; b < b1; b++) bucket(b);
    // The left edge of the window cuts through its first bucket.
    if (fresh > b0) bucket(b0);
    [this.size, this.b0, this.b1] = [size, b0, b1];
    this.out.length = 2 * (b1 - b0);
    return this.out;
  }

  private reserve(room: number, width: number): void {
    if (this.out.x.length >= room && this.out.y.length === width) return;
    const grow = (old: Float64Array | undefined) => {
      const a = new Float64Array(room * 2);
      if (old) a.set(old.subarray(0, room * 2));
      return a;
    };
    this.out = {
      x: grow(this.out.x),
      y: Array.from({ length: width }, (_, i) => grow(this.out.y[i])),
      length: 0,
    };
  }
}

function extremes(v: Float64Array, from: number, to: number, out: Float64Array, o: number): void {
  let lo = Number.POSITIVE_INFINITY;
  let hi = Number.NEGATIVE_INFINITY;
  let iLo = -1;
  let iHi = -1;
  for (let i = from; i < to; i++) {
    const y = v[i];
    if (y < lo) {
      lo = y;
      iLo = i;
    }
    if (y > hi) {
      hi = y;
      iHi = i;
    }
  }
  if (iLo < 0 && iHi < 0) {
    out[o] = out[o + 1] = Number.NaN;
  } else {
    out[o] = iLo <= iHi ? lo : hi;
    out[o + 1] = iLo <= iHi ? hi : lo;
  }
}
