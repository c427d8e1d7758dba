// The time canvas of a run: aligned tracks over one time axis. First power by rail with its idle
// line, then lanes of slices (phases, sections, tokens), conditions of the devices, then anomalies.
// Width is duration, colour the phase, and its strength energy against what is usual for slices of that name; of
// several slices within one pixel the one with the highest value is drawn.

import { energyInterval, known, power, powerScale, time } from '../core/format';
import { blend, css, inkOn } from '../core/ramp';
import { lowerBound } from '../core/ring';
import { ticks } from '../core/stats';
import { pan, zoom } from '../state/range';
import { cursor, type Range } from '../state/selection';
import { unit } from '../state/settings';
import { type Arrow, fitText, type Rect } from './canvas';
import { drawGauge, GAUGE, type Gauge, gaugeRows, readingAt } from './gauges';
import { polyline } from './polyline';
import { strengths } from './strength';
import { type Colours, hatch, phaseLabel, RAIL_LABEL, RAILS, type Rail } from './theme';
import { LEFT, RIGHT, TimeChart } from './time_chart';
import type { Tip } from './tip';

export interface Slice {
  lane: number;
  start: number;
  duration: number;
  label: string;
  energy: number | null;
  sd: number | null;
  kind: 'phase' | 'section' | 'token';
  phase: string;
  token: number | null;
  rows?: [string, string][];
}

export interface Mark {
  t: number;
  text: string;
  token: number | null;
}

export interface PowerTrack {
  t: Float64Array;
  /** In the order of RAILS; NaN is a gap. Means, where several samples share a pixel. */
  y: Float64Array[];
  /** The smallest and largest of these samples; null where each is drawn. */
  band: { lo: Float64Array[]; hi: Float64Array[] } | null;
  idle: number | null;
  shown: Record<Rail, boolean>;
}

export interface TrackModel {
  full: Range;
  power: PowerTrack | null;
  lanes: string[];
  /** Text in an empty lane. */
  hints: (string | null)[];
  slices: Slice[];
  marks: Mark[];
  gauges: Gauge[];
  picked: (s: Slice) => boolean;
  phases: { phase: string; start: number; end: number }[];
}

const POWER = 168;
const LANE = 24;
const GAP = 4;
const MARKS = 18;
const AXIS = 20;
/** Mark numbers reserved per gauge: a week of readings at one per second. */
const READINGS = 1_000_000;

export class Tracks extends TimeChart<number> {
  private model: TrackModel | null = null;
  private byLane: number[][] = [];
  private strength: Float32Array = new Float32Array();
  private slices: Slice[] | null = null;

  constructor(host: HTMLElement) {
    super(host);
    this.listen('wheel', (e) => this.turn(e), { passive: false });
  }

  static height(lanes: number, powered: boolean, marked: boolean, gauges: number): number {
    const tracks = lanes * (LANE + GAP) + gauges * (GAUGE + GAP);
    return (powered ? POWER + GAP : 0) + tracks + (marked ? MARKS : 0) + AXIS;
  }

  set(model: TrackModel): void {
    this.model = model;
    this.full = model.full;
    if (model.slices !== this.slices) {
      this.slices = model.slices;
      this.focused = this.hovered = null;
      this.byLane = model.lanes.map((_, lane) =>
        model.slices.flatMap((s, i) => (s.lane === lane ? [i] : [])),
      );
      this.strength = strengths(model.slices);
    }
    this.invalidate();
  }

  get count(): number {
    return this.model?.slices.length ?? 0;
  }

  /** Number of loaded power samples. */
  get points(): number {
    return this.model?.power?.t.length ?? 0;
  }

  slice(i: number): Slice | null {
    return this.model?.slices[i] ?? null;
  }

  mark(i: number): Mark | null {
    return this.model?.marks[i - this.count] ?? null;
  }

  private get top(): number {
    return this.model?.power ? POWER + GAP : 0;
  }

  private get bottom(): number {
    const m = this.model;
    if (!m) return 0;
    return this.gaugeY(m.gauges.length) + (m.marks.length ? MARKS : 0);
  }

  private gaugeY(k: number): number {
    return this.top + (this.model?.lanes.length ?? 0) * (LANE + GAP) + k * (GAUGE + GAP);
  }

  private highest = 1;

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    const m = this.model;
    if (!m) return;
    this.shade(g, c, m);
    this.timeAxis(g, c, 0, this.bottom);
    if (m.power) this.rails(g, c, m.power);
    m.lanes.forEach((name, lane) => {
      this.lane(g, c, m, name, lane);
    });
    m.gauges.forEach((gauge, k) => {
      this.gauge(g, c, gauge, k);
    });
    this.diamonds(g, c, m);
  }

  private gauge(g: CanvasRenderingContext2D, c: Colours, gauge: Gauge, k: number): void {
    const y = this.gaugeY(k);
    g.fillStyle = c.text2;
    g.fillText(fitText(g, gauge.device, LEFT - 8), 0, y + GAUGE / 2);
    g.save();
    this.clipPlot(g);
    drawGauge(g, c, gauge, { y, x: (t) => this.x(t), end: this.full[1] });
    g.restore();
  }

  private shade(g: CanvasRenderingContext2D, c: Colours, m: TrackModel): void {
    g.save();
    this.clipPlot(g);
    for (const p of m.phases) {
      g.globalAlpha = 0.07;
      g.fillStyle = c.phase[p.phase] ?? c.text3;
      const x = this.x(p.start);
      g.fillRect(x, 0, this.x(p.end) - x, this.bottom);
    }
    g.restore();
  }

  // ---- power

  private powerY(mw: number): number {
    return 8 + (1 - mw / this.highest) * (POWER - 14);
  }

  private rails(g: CanvasRenderingContext2D, c: Colours, p: PowerTrack): void {
    const [a, b] = this.range;
    const from = Math.max(0, lowerBound(p.t, a) - 1);
    const to = Math.min(p.t.length, lowerBound(p.t, b) + 1);
    let top = p.idle ?? 0;
    RAILS.forEach((r, k) => {
      const y = p.band?.hi[k] ?? p.y[k];
      if (p.shown[r]) for (let i = from; i < to; i++) if (y[i] > top) top = y[i];
    });
    this.highest = Math.max(1e-6, top * 1.06);
    this.powerAxis(g, c);
    g.save();
    this.clipPlot(g);
    g.lineJoin = 'round';
    RAILS.forEach((r, k) => {
      if (p.shown[r] && p.band) this.band(g, p.t, p.band.lo[k], p.band.hi[k], from, to, c.rail[r]);
    });
    RAILS.forEach((r, k) => {
      if (p.shown[r]) this.line(g, p.t, p.y[k], from, to, c.rail[r], r === 'total' ? 1.4 : 1);
    });
    if (p.idle !== null) {
      const y = Math.round(this.powerY(p.idle)) + 0.5;
      g.strokeStyle = c.text2;
      g.lineWidth = 1;
      g.setLineDash([5, 4]);
      g.beginPath();
      g.moveTo(LEFT, y);
      g.lineTo(this.width - RIGHT, y);
      g.stroke();
      g.setLineDash([]);
      // Outlined in the background colour, because the total may end at the same place.
      g.strokeStyle = c.surface;
      g.lineWidth = 4;
      g.lineJoin = 'round';
      g.strokeText('idle', this.width - RIGHT - 26, y - 8);
      g.fillStyle = c.text2;
      g.fillText('idle', this.width - RIGHT - 26, y - 8);
    }
    g.restore();
  }

  private powerAxis(g: CanvasRenderingContext2D, c: Colours): void {
    const { factor, unit: u } = powerScale(this.highest);
    g.textAlign = 'right';
    for (const v of ticks(0, this.highest * factor, 4)) {
      const y = Math.round(this.powerY(v / factor)) + 0.5;
      g.strokeStyle = c.grid;
      g.lineWidth = 1;
      g.beginPath();
      g.moveTo(LEFT, y);
      g.lineTo(this.width - RIGHT, y);
      g.stroke();
      g.fillStyle = c.text3;
      g.fillText(`${Number(v.toPrecision(4))} ${u}`, LEFT - 6, Math.max(6, y));
    }
    g.textAlign = 'left';
  }

  /** From the smallest to the largest sample, in columns of whole pixels, which leave no seams. */
  private band(
    g: CanvasRenderingContext2D,
    t: Float64Array,
    lo: Float64Array,
    hi: Float64Array,
    from: number,
    to: number,
    colour: string,
  ): void {
    g.fillStyle = colour;
    g.globalAlpha = 0.22;
    let x = Math.round(this.x(t[from]));
    for (let i = from; i < to; i++) {
      const end = Math.round(this.x(i + 1 < to ? (t[i] + t[i + 1]) / 2 : t[i]));
      const y = this.powerY(hi[i]);
      if (!Number.isNaN(y)) g.fillRect(x, y, end - x, this.powerY(lo[i]) - y);
      x = end;
    }
    g.globalAlpha = 1;
  }

  private line(
    g: CanvasRenderingContext2D,
    t: Float64Array,
    y: Float64Array,
    from: number,
    to: number,
    colour: string,
    width: number,
  ): void {
    g.strokeStyle = colour;
    g.lineWidth = to - from > 700 ? 1 : width;
    g.fillStyle = colour;
    polyline(g, from, to, (i) => (Number.isNaN(y[i]) ? null : [this.x(t[i]), this.powerY(y[i])]));
  }

  // ---- lanes

  private laneY(lane: number): number {
    return this.top + lane * (LANE + GAP);
  }

  private lane(
    g: CanvasRenderingContext2D,
    c: Colours,
    m: TrackModel,
    name: string,
    lane: number,
  ): void {
    const y = this.laneY(lane);
    g.fillStyle = c.text2;
    g.fillText(fitText(g, name, LEFT - 8), 0, y + LANE / 2);
    g.save();
    this.clipPlot(g);
    const hint = m.hints[lane];
    if (hint) {
      g.fillStyle = c.text3;
      g.fillText(hint, LEFT + 6, y + LANE / 2);
    }
    const stripes = hatch(g, this.dpr);
    const fill = (i: number, x: number, w: number) => {
      const alpha = this.strength[i];
      const pixel = Number.isNaN(alpha)
        ? null
        : blend(c.phase[m.slices[i].phase] ?? c.text3, alpha, c.surface);
      g.fillStyle = pixel === null ? stripes : css(pixel);
      g.fillRect(x, y, w, LANE);
      return pixel;
    };
    // Of several slices in one pixel the one with the highest value is drawn.
    let [column, peak]: [number, number | null] = [-1, null];
    for (const i of this.byLane[lane]) {
      const s = m.slices[i];
      const x0 = Math.max(LEFT - 2, this.x(s.start));
      const x1 = Math.min(this.width - RIGHT + 2, this.x(s.start + s.duration));
      if (x1 < LEFT || x0 > this.width - RIGHT) continue;
      if (x1 - x0 < 1.2) {
        const at = Math.floor(x0);
        const higher = at !== column || (s.energy ?? -1) > (peak ?? -1);
        if (!higher) continue;
        [column, peak] = [at, s.energy];
        fill(i, at, 1);
      } else {
        const w = Math.max(1, x1 - x0 - (x1 - x0 > 3 ? 1 : 0));
        const pixel = fill(i, x0, w);
        if (w > 26) {
          g.fillStyle = pixel === null ? c.text : inkOn(pixel);
          g.fillText(fitText(g, s.label, w - 10), Math.max(x0, LEFT) + 5, y + LANE / 2 + 0.5);
        }
      }
      if (m.picked(s)) {
        g.strokeStyle = c.text;
        g.lineWidth = 2;
        g.strokeRect(x0 + 1, y + 1, Math.max(2, x1 - x0 - 3), LANE - 2);
      }
    }
    g.restore();
  }

  private diamonds(g: CanvasRenderingContext2D, c: Colours, m: TrackModel): void {
    if (!m.marks.length) return;
    const y = this.bottom - MARKS / 2;
    g.fillStyle = c.text2;
    g.fillText('Anomalies', 0, y);
    for (const k of m.marks) {
      const x = this.x(k.t);
      if (x < LEFT || x > this.width - RIGHT) continue;
      g.fillStyle = c.danger;
      g.beginPath();
      g.moveTo(x, y - 5);
      g.lineTo(x + 4.5, y);
      g.lineTo(x, y + 5);
      g.lineTo(x - 4.5, y);
      g.fill();
    }
  }

  // ---- pointing

  protected override hit(x: number, y: number): number | null {
    const m = this.model;
    if (!m || x < LEFT || x > this.width - RIGHT) return null;
    if (m.power && y < POWER) {
      const i = Math.min(m.power.t.length - 1, lowerBound(m.power.t, this.t(x)));
      return i < 0 ? null : -1 - i;
    }
    if (m.marks.length && y >= this.bottom - MARKS && y < this.bottom) {
      let best: number | null = null;
      let near = 8;
      m.marks.forEach((k, i) => {
        const d = Math.abs(this.x(k.t) - x);
        if (d < near) [near, best] = [d, this.count + i];
      });
      return best;
    }
    const k = Math.floor((y - this.gaugeY(0)) / (GAUGE + GAP));
    if (k >= 0 && k < m.gauges.length) return this.reading(k, readingAt(m.gauges[k], this.t(x)));
    const lane = Math.floor((y - this.top) / (LANE + GAP));
    if (lane < 0 || lane >= m.lanes.length) return null;
    return this.sliceAt(m, lane, x);
  }

  /** Readings of gauges are numbered after the slices and marks. */
  private reading(k: number, i: number): number {
    return this.count + (this.model?.marks.length ?? 0) + k * READINGS + i;
  }

  private gaugeTip(m: TrackModel, i: number): Tip | null {
    const at = i - this.count - m.marks.length;
    const gauge = at >= 0 ? m.gauges[Math.floor(at / READINGS)] : undefined;
    if (!gauge) return null;
    const k = at % READINGS;
    return { title: `${gauge.device} at ${time(gauge.t[k])}`, rows: gaugeRows(gauge, k) };
  }

  /** The slice under a point; of several in one pixel the one with the highest value, which is the one drawn.
   * */
  private sliceAt(m: TrackModel, lane: number, x: number): number | null {
    const [t0, t1] = [this.t(x - 1), this.t(x + 1)];
    const t = this.t(x);
    let best: number | null = null;
    for (const i of this.byLane[lane]) {
      const s = m.slices[i];
      if (s.start > t1 || s.start + s.duration < t0) continue;
      if (t >= s.start && t <= s.start + s.duration && s.duration > t1 - t0) return i;
      if (best === null || (s.energy ?? 0) > (m.slices[best].energy ?? 0)) best = i;
    }
    return best;
  }

  protected override outline(i: number): Rect | null {
    const s = this.slice(i);
    if (s) {
      const x = Math.max(LEFT, this.x(s.start));
      const w = Math.min(this.width - RIGHT, this.x(s.start + s.duration)) - x;
      return { x, y: this.laneY(s.lane), w: Math.max(2, w), h: LANE };
    }
    const k = i >= 0 ? this.mark(i) : null;
    return k ? { x: this.x(k.t) - 6, y: this.bottom - MARKS, w: 12, h: MARKS } : null;
  }

  protected override next(i: number | null, key: Arrow): number | null {
    const m = this.model;
    if (!m?.slices.length) return null;
    if (i === null || i < 0) return 0;
    const now = m.slices[i];
    if (!now) return i;
    const row = this.byLane[now.lane];
    const at = row.indexOf(i);
    if (key === 'Home') return row[0];
    if (key === 'End') return row[row.length - 1];
    if (key === 'ArrowLeft') return row[Math.max(0, at - 1)];
    if (key === 'ArrowRight') return row[Math.min(row.length - 1, at + 1)];
    const lane = now.lane + (key === 'ArrowDown' ? 1 : -1);
    const middle = now.start + now.duration / 2;
    const away = (k: number) => Math.abs(m.slices[k].start + m.slices[k].duration / 2 - middle);
    return (this.byLane[lane] ?? []).reduce((a, k) => (a === i || away(k) < away(a) ? k : a), i);
  }

  protected override tip(i: number): Tip | null {
    const m = this.model;
    if (!m) return null;
    if (i < 0) return this.powerTip(m, -1 - i);
    const k = this.mark(i);
    if (k) return { title: `Anomaly at ${time(k.t)}`, rows: [['Why', k.text]] };
    const s = this.slice(i);
    if (!s) return this.gaugeTip(m, i);
    const u = unit.peek();
    return {
      title: s.label,
      rows: [
        ['Duration', time(s.duration)],
        ['Energy', energyInterval(s.energy, s.sd, u)],
        ...(known(s.energy) && s.duration > 0
          ? ([['Mean power', power((s.energy / s.duration) * 1000)]] as [string, string][])
          : []),
        ...(s.rows ?? []),
      ],
    };
  }

  private powerTip(m: TrackModel, i: number): Tip | null {
    const p = m.power;
    if (!p) return null;
    const phase = m.phases.find((x) => p.t[i] >= x.start && p.t[i] <= x.end)?.phase;
    return {
      title: time(p.t[i]),
      rows: [
        ...(phase ? ([['Phase', phaseLabel(phase)]] as [string, string][]) : []),
        ...RAILS.flatMap((r, k): [string, string][] =>
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
        ),
      ],
    };
  }

  /** The wheel zooms where the canvas has been clicked or Ctrl is held; sideways it pans. Otherwise
   * it scrolls the page. */
  private turn(e: WheelEvent): void {
    if (e.defaultPrevented) return;
    const mine = document.activeElement === this.host;
    if (Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey) {
      e.preventDefault();
      pan(this.full, (e.deltaX || e.deltaY) / 800);
    } else if (mine) {
      e.preventDefault();
      zoom(this.full, e.deltaY > 0 ? 1.25 : 0.8, cursor.peek() ?? undefined);
    }
  }
}
