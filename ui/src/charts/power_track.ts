// Power over time as it was read: a reading is the mean of its window, so it is a step over that window, and no
// line between readings shows a ramp that no sensor saw.
import { power, powerScale, time } from '../core/format';
import { lowerBound } from '../core/ring';
import { ticks } from '../core/stats';
import type { Colours, Rail } from './theme';
import { RAIL_LABEL, RAILS } from './theme';

export interface PowerTrack {
  t: Float64Array;
  /** In the order of RAILS; NaN is a gap. Means, where several samples share a pixel. */
  y: Float64Array[];
  /** The smallest and largest of these samples; null where each is drawn. */
  band: { lo: Float64Array[]; hi: Float64Array[] } | null;
  /** Length of the first reading's window, ms. */
  window: number;
  idle: number | null;
  shown: Record<Rail, boolean>;
}

/** One rail on a track of its own. */
export interface RailTrack {
  name: string;
  rail: Rail | null;
  t: Float64Array;
  y: Float64Array;
  window: number;
  idle: number | null;
  note: string;
}

/** Where and how a track is drawn. */
export interface Frame {
  left: number;
  right: number;
  top: number;
  height: number;
  range: [number, number];
  x: (t: number) => number;
}

/** A longer time without a reading is a gap, not a window. */
const GAP_WINDOWS = 4;

/** Median distance of readings, which is the length of a window; the first one has no other. */
export function windowOf(t: Float64Array): number {
  if (t.length < 2) return t.length ? t[0] : 0;
  const d = Float64Array.from({ length: t.length - 1 }, (_, i) => t[i + 1] - t[i]).sort();
  return d[d.length >> 1];
}

/** Begin of the window of reading i, which ends at t[i]. */
export function beginOf(t: Float64Array, i: number, window: number): number {
  if (i === 0) return Math.max(0, t[0] - window);
  return t[i] - t[i - 1] > GAP_WINDOWS * window ? t[i] - window : t[i - 1];
}

/** Energy of the readings in a range, mJ; null where a part of it has none. */
export function integral(
  t: Float64Array,
  y: Float64Array,
  window: number,
  [a, b]: [number, number],
): number | null {
  let [mj, covered] = [0, 0];
  for (let i = lowerBound(t, a); i < t.length; i++) {
    const from = Math.max(a, beginOf(t, i, window));
    const to = Math.min(b, t[i]);
    if (from >= b) break;
    if (to <= from || Number.isNaN(y[i])) continue;
    mj += (y[i] * (to - from)) / 1000;
    covered += to - from;
  }
  return covered >= 0.999 * (b - a) ? mj : null;
}

const visible = (t: Float64Array, [a, b]: [number, number]): [number, number] => [
  Math.max(0, lowerBound(t, a) - 1),
  Math.min(t.length, lowerBound(t, b) + 2),
];

function strokeSteps(
  g: CanvasRenderingContext2D,
  f: Frame,
  t: Float64Array,
  y: Float64Array,
  window: number,
  at: (mw: number) => number,
): void {
  const [from, to] = visible(t, f.range);
  let joined = false;
  g.beginPath();
  for (let i = from; i < to; i++) {
    if (Number.isNaN(y[i])) {
      joined = false;
      continue;
    }
    const begin = beginOf(t, i, window);
    if (joined && begin <= t[i - 1]) g.lineTo(f.x(begin), at(y[i]));
    else g.moveTo(f.x(begin), at(y[i]));
    g.lineTo(f.x(t[i]), at(y[i]));
    joined = true;
  }
  g.stroke();
}

function strokeMeans(
  g: CanvasRenderingContext2D,
  f: Frame,
  t: Float64Array,
  y: Float64Array,
  at: (mw: number) => number,
): void {
  const [from, to] = visible(t, f.range);
  let joined = false;
  g.beginPath();
  for (let i = from; i < to; i++) {
    const gap = Number.isNaN(y[i]);
    if (!gap && joined) g.lineTo(f.x(t[i]), at(y[i]));
    else if (!gap) g.moveTo(f.x(t[i]), at(y[i]));
    joined = !gap;
  }
  g.stroke();
}

/** From the smallest to the largest sample, in columns of whole pixels, which leave no seams. */
function fillBand(
  g: CanvasRenderingContext2D,
  f: Frame,
  p: PowerTrack,
  k: number,
  at: (mw: number) => number,
): void {
  const { t, band } = p;
  if (!band) return;
  const [from, to] = visible(t, f.range);
  const [lo, hi] = [band.lo[k], band.hi[k]];
  g.globalAlpha = 0.22;
  let x = Math.round(f.x(t[from]));
  for (let i = from; i < to; i++) {
    const end = Math.round(f.x(i + 1 < to ? (t[i] + t[i + 1]) / 2 : t[i]));
    if (!Number.isNaN(hi[i])) g.fillRect(x, at(hi[i]), end - x, at(lo[i]) - at(hi[i]));
    x = end;
  }
  g.globalAlpha = 1;
}

const highest = (f: Frame, t: Float64Array, y: Float64Array, least: number): number => {
  const [from, to] = visible(t, f.range);
  let top = least;
  for (let i = from; i < to; i++) if (y[i] > top) top = y[i];
  return top;
};

function axis(g: CanvasRenderingContext2D, c: Colours, f: Frame, top: number, n: number): void {
  const { factor, unit } = powerScale(top);
  const at = scaleOf(f, top);
  g.textAlign = 'right';
  for (const v of ticks(0, top * factor, n)) {
    const y = Math.round(at(v / factor)) + 0.5;
    g.strokeStyle = c.grid;
    g.lineWidth = 1;
    g.beginPath();
    g.moveTo(f.left, y);
    g.lineTo(f.right, y);
    g.stroke();
    g.fillStyle = c.text3;
    g.fillText(`${Number(v.toPrecision(4))} ${unit}`, f.left - 6, Math.max(f.top + 6, y));
  }
  g.textAlign = 'left';
}

const scaleOf =
  (f: Frame, top: number) =>
  (mw: number): number =>
    f.top + 8 + (1 - mw / top) * (f.height - 14);

function idleLine(g: CanvasRenderingContext2D, c: Colours, f: Frame, y: number): void {
  g.strokeStyle = c.text2;
  g.lineWidth = 1;
  g.setLineDash([5, 4]);
  g.beginPath();
  g.moveTo(f.left, y);
  g.lineTo(f.right, y);
  g.stroke();
  g.setLineDash([]);
}

/** All rails in one chart. */
export function drawPower(
  g: CanvasRenderingContext2D,
  c: Colours,
  f: Frame,
  p: PowerTrack,
  clip: () => void,
): void {
  let most = p.idle ?? 0;
  RAILS.forEach((r, k) => {
    if (p.shown[r]) most = highest(f, p.t, p.band?.hi[k] ?? p.y[k], most);
  });
  const top = Math.max(1e-6, most * 1.06);
  const at = scaleOf(f, top);
  axis(g, c, f, top, 4);
  g.save();
  clip();
  RAILS.forEach((r, k) => {
    g.fillStyle = c.rail[r];
    if (p.shown[r]) fillBand(g, f, p, k, at);
  });
  RAILS.forEach((r, k) => {
    if (!p.shown[r]) return;
    g.strokeStyle = c.rail[r];
    g.lineWidth = r === 'total' && p.t.length < 700 ? 1.5 : 1;
    if (p.band) strokeMeans(g, f, p.t, p.y[k], at);
    else strokeSteps(g, f, p.t, p.y[k], p.window, at);
  });
  if (p.idle !== null) {
    const y = Math.round(at(p.idle)) + 0.5;
    idleLine(g, c, f, y);
    // Outlined in the background colour, because the total may end at the same place.
    g.strokeStyle = c.surface;
    g.lineWidth = 4;
    g.lineJoin = 'round';
    g.strokeText('idle', f.right - 26, y - 8);
    g.fillStyle = c.text2;
    g.fillText('idle', f.right - 26, y - 8);
  }
  g.restore();
}

export function drawRail(
  g: CanvasRenderingContext2D,
  c: Colours,
  f: Frame,
  r: RailTrack,
  clip: () => void,
): void {
  const top = Math.max(1e-6, highest(f, r.t, r.y, r.idle ?? 0) * 1.06);
  const at = scaleOf(f, top);
  axis(g, c, f, top, 1);
  g.save();
  clip();
  g.strokeStyle = r.rail ? c.rail[r.rail] : c.text2;
  g.lineWidth = 1.25;
  strokeSteps(g, f, r.t, r.y, r.window, at);
  if (r.idle !== null) idleLine(g, c, f, Math.round(at(r.idle)) + 0.5);
  g.restore();
}

/** Rows of the tip over reading i. */
export function powerRows(p: PowerTrack, i: number): [string, string][] {
  const window = p.t[i] - beginOf(p.t, i, p.window);
  const rows = RAILS.flatMap((r, k): [string, string][] =>
    p.shown[r] && !Number.isNaN(p.y[k][i])
      ? [
          [
            RAIL_LABEL[r],
            p.band
              ? `${power(p.y[k][i])} (${power(p.band.lo[k][i])} to ${power(p.band.hi[k][i])})`
              : power(p.y[k][i]),
          ],
        ]
      : [],
  );
  return p.band ? rows : [...rows, ['Window', time(window)]];
}
