// Simple statistics for charts; figures for decisions come from the server.

export interface Box {
  n: number;
  min: number;
  q1: number;
  median: number;
  q3: number;
  max: number;
  lowWhisker: number;
  highWhisker: number;
  mean: number;
}

/** Quantile of an ascending array by linear interpolation between order statistics. */
export function quantile(sorted: ArrayLike<number>, q: number): number {
  const n = sorted.length;
  if (n === 0) return Number.NaN;
  const at = (n - 1) * q;
  const i = Math.floor(at);
  const f = at - i;
  return i + 1 < n ? sorted[i] * (1 - f) + sorted[i + 1] * f : sorted[i];
}

/** Five-number summary, mean, and Tukey's whiskers: the outermost values within 1.5 IQR of the box. */
export function box(values: Float64Array): Box | null {
  const finite = values.filter((v) => Number.isFinite(v)).sort();
  const n = finite.length;
  if (n === 0) return null;
  const q1 = quantile(finite, 0.25);
  const q3 = quantile(finite, 0.75);
  const reach = 1.5 * (q3 - q1);
  let lo = 0;
  while (lo < n - 1 && finite[lo] < q1 - reach) lo++;
  let hi = n - 1;
  while (hi > 0 && finite[hi] > q3 + reach) hi--;
  let sum = 0;
  for (let i = 0; i < n; i++) sum += finite[i];
  return {
    n,
    min: finite[0],
    q1,
    median: quantile(finite, 0.5),
    q3,
    max: finite[n - 1],
    lowWhisker: finite[lo],
    highWhisker: finite[hi],
    mean: sum / n,
  };
}

/** A box from precomputed quartiles; whiskers reach 1.5 IQR or the extremes. */
export function boxOf(
  s: { [K in Exclude<keyof Box, `${string}Whisker`>]: number | null },
): Box | null {
  const { n, min, q1, median, q3, max, mean } = s;
  if (!n || min === null || q1 === null || median === null || q3 === null) return null;
  if (max === null || mean === null) return null;
  const reach = 1.5 * (q3 - q1);
  const lowWhisker = Math.max(min, q1 - reach);
  const highWhisker = Math.min(max, q3 + reach);
  return { n, min, q1, median, q3, max, mean, lowWhisker, highWhisker };
}

/** Smallest and largest finite value; null when there is none. */
export function extent(values: ArrayLike<number | null>): [number, number] | null {
  let lo = Number.POSITIVE_INFINITY;
  let hi = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < values.length; i++) {
    const v = values[i];
    if (v === null || !Number.isFinite(v)) continue;
    if (v < lo) lo = v;
    if (v > hi) hi = v;
  }
  return lo <= hi ? [lo, hi] : null;
}

/** The Pareto front: points that no other dominates in x (throughput, higher is better) and y (energy, lower
 * is better). */
export function paretoFront(points: { x: number; y: number }[]): number[] {
  const order = points
    .map((_, i) => i)
    .filter((i) => Number.isFinite(points[i].x) && Number.isFinite(points[i].y))
    .sort((a, b) => points[b].x - points[a].x || points[a].y - points[b].y);
  const front: number[] = [];
  let best = Number.POSITIVE_INFINITY;
  for (const i of order) {
    if (points[i].y < best) {
      front.push(i);
      best = points[i].y;
    }
  }
  return front;
}

/** Whether values span more than a decade and a half: on a linear axis all but the largest are 0. */
export function isWide(values: number[]): boolean {
  const e = extent(values.filter((v) => v > 0));
  return !!e && e[1] > 30 * e[0];
}

/** The knee of the front: the point farthest below the straight line between its ends, with both axes
 * normalised to their range (or its logarithm). null for fewer than three points. */
export function kneeOf(
  front: { x: number; y: number }[],
  log: { x: boolean; y: boolean } = { x: false, y: false },
): number | null {
  if (front.length < 3) return null;
  const scale = (values: number[], logarithmic: boolean) => {
    const v = logarithmic ? values.map(Math.log) : values;
    const [lo, hi] = [Math.min(...v), Math.max(...v)];
    return hi > lo ? v.map((x) => (x - lo) / (hi - lo)) : v.map(() => 0);
  };
  const x = scale(
    front.map((p) => p.x),
    log.x,
  );
  const y = scale(
    front.map((p) => p.y),
    log.y,
  );
  // Higher x and lower y are better: the line runs from (0, 0) to (1, 1), with the knee below it.
  let best: number | null = null;
  let most = 0.02;
  for (let i = 0; i < front.length; i++)
    if (x[i] - y[i] > most) {
      most = x[i] - y[i];
      best = i;
    }
  return best;
}

/** Round steps (1, 2, 5 × 10^k) that divide [lo, hi] into about n parts. */
export function ticks(lo: number, hi: number, n: number): number[] {
  if (!(hi > lo) || n < 1) return [lo];
  const raw = (hi - lo) / n;
  const mag = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * mag).find((s) => s >= raw) ?? 10 * mag;
  const out: number[] = [];
  for (let k = Math.ceil(lo / step - 1e-9) + 0; k * step <= hi + step * 1e-9; k++)
    out.push(k * step);
  return out;
}

/** Powers of ten inside [lo, hi]; below two decades also 2 and 5 times these. */
export function logTicks(lo: number, hi: number): number[] {
  const steps = hi / lo < 200 ? [1, 2, 5] : [1];
  const out: number[] = [];
  for (let e = Math.floor(Math.log10(lo)); 10 ** e <= hi; e++) {
    for (const m of steps) {
      const t = Number((m * 10 ** e).toPrecision(6));
      if (t >= lo * 0.999999 && t <= hi * 1.000001) out.push(t);
    }
  }
  return out;
}

/** The finite values in ascending order, in a buffer reused by the next call. */
function sorted(values: ArrayLike<number>): Float64Array {
  if (scratch.length < values.length) scratch = new Float64Array(2 * values.length);
  let n = 0;
  for (let i = 0; i < values.length; i++) if (Number.isFinite(values[i])) scratch[n++] = values[i];
  return scratch.subarray(0, n).sort();
}
let scratch = new Float64Array(1024);

/** The ends of a colour scale for many figures of one kind (tokens): the extremes, but at most four
 * interquartile ranges beyond the quartiles, so that disturbed tokens do not darken all others. */
export function fenceOf(
  values: ArrayLike<number>,
): { lo: number; hi: number; clipped: boolean } | null {
  const v = sorted(values);
  if (v.length === 0) return null;
  const q1 = quantile(v, 0.25);
  const q3 = quantile(v, 0.75);
  const reach = 4 * (q3 - q1);
  const max = v[v.length - 1];
  const hi = reach > 0 ? Math.min(max, q3 + reach) : max;
  return { lo: Math.max(v[0], q1 - reach), hi, clipped: hi < max };
}

/** The ends of a colour scale: the extremes, unless outliers would compress all other values into one colour.
 * The scale then ends at the 97th percentile. */
export function scaleOf(
  values: ArrayLike<number>,
): { lo: number; hi: number; clipped: boolean } | null {
  const v = sorted(values);
  if (v.length === 0) return null;
  const lo = v[0];
  const hi = v[v.length - 1];
  const most = quantile(v, 0.97);
  const clipped = v.length >= 20 && most > lo && hi - lo > 4 * (most - lo);
  return { lo, hi: clipped ? most : hi, clipped };
}
