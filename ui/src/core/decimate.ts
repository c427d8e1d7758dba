// Thins a series to what the pixels can show and keeps every peak: the smallest and the largest
// value of each bucket, in the order in which they came. Bucket edges are multiples of the bucket
// size counted from the absolute sample index; edges that moved with the window would make the line
// shimmer while it scrolls.

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
