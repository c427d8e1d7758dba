// The time canvas of a run: aligned tracks over one time axis. First power by rail with its idle
// line, then a track per rail where there is room, then lanes of slices (phases, sections, tokens, and nested in
// them layers, components and operations), conditions of the devices, then anomalies. Width is duration, colour
// the phase, and its strength energy against what is usual for slices of that name; of several slices within one
// pixel the one with the highest value is drawn.

import { effect } from '@preact/signals';
import { energy, energyInterval, energySigned, known, plain, power, time } from '../core/format';
import { lowerBound } from '../core/ring';
import { pan, zoom } from '../state/range';
import { at, cursor, flag, type Range, select } from '../state/selection';
import { unit } from '../state/settings';
import { type Arrow, fitText, type Rect } from './canvas';
import { drawGauge, GAUGE, type Gauge, gaugeRows, readingAt } from './gauges';
import {
  drawPower,
  drawRail,
  type Frame,
  type PowerTrack,
  powerRows,
  type RailTrack,
} from './power_track';
import { type Fill, SlicePaint } from './slice_paint';
import { strengths } from './strength';
import { type Colours, phaseLabel } from './theme';
import { LEFT, RIGHT, TimeChart } from './time_chart';
import type { Tip } from './tip';

export type SliceKind = 'phase' | 'section' | 'token' | 'layer' | 'component' | 'operation';

export interface Slice {
  lane: number;
  start: number;
  duration: number;
  label: string;
  energy: number | null;
  sd: number | null;
  kind: SliceKind;
  phase: string;
  token: number | null;
  /** Its energy is net of idle. */
  net?: boolean;
  /** Energy of a span of this name in a typical token, where it is known. */
  usual?: number | null;
  rows?: () => [string, string][];
}

export interface Mark {
  t: number;
  text: string;
  token: number | null;
}

export interface Lane {
  key: string;
  name: string;
  /** Text in an empty lane. */
  hint: string | null;
}

export interface TrackModel {
  full: Range;
  power: PowerTrack | null;
  rails: RailTrack[];
  lanes: Lane[];
  pinned: ReadonlySet<string>;
  slices: Slice[];
  marks: Mark[];
  gauges: Gauge[];
  picked: (s: Slice) => boolean;
  /** What the search is for; null: nothing, and no slice is dimmed. */
  found: ((s: Slice) => boolean) | null;
  /** Height of the power chart. */
  powerHeight: number;
  phases: { phase: string; start: number; end: number }[];
}

export const POWER = 168;
export const RAIL = 46;
const LANE = 24;
const GAP = 4;
const MARKS = 18;
const AXIS = 20;
/** Mark numbers reserved per gauge: a week of readings at one per second. */
const READINGS = 1_000_000;

/** The keyboard's place is kept while spans arrive. */
export function sameSlice(was: Slice | undefined, slices: readonly Slice[]): number | null {
  if (!was) return null;
  const found = slices.findIndex(
    (s) =>
      s.start === was.start &&
      s.kind === was.kind &&
      s.label === was.label &&
      s.token === was.token,
  );
  return found < 0 ? null : found;
}

export class Tracks extends TimeChart<number> {
  private model: TrackModel | null = null;
  private byLane: number[][] = [];
  /** Begins of the lanes' slices, and the longest slice of each: what is visible is found by halving. */
  private begins: Float64Array[] = [];
  private longest: number[] = [];
  private strength: Float32Array = new Float32Array();
  private readonly look = new SlicePaint();
  private slices: Slice[] | null = null;

  constructor(host: HTMLElement) {
    super(host);
    this.listen('wheel', (e) => this.turn(e), { passive: false });
    this.listen('click', (e) => this.pinAt(...this.point(e)));
    this.listen('keydown', (e) => this.letter(e));
    this.own(
      effect(() => {
        at.between.value;
        flag.value;
        this.invalidateOverlay();
      }),
    );
  }

  /** Without the power chart. */
  static height(lanes: number, rails: number, marked: boolean, gauges: number): number {
    const tracks = lanes * (LANE + GAP) + gauges * (GAUGE + GAP) + rails * (RAIL + GAP);
    return tracks + (marked ? MARKS : 0) + AXIS + GAP;
  }

  set(model: TrackModel): void {
    this.model = model;
    this.full = model.full;
    if (model.slices !== this.slices) {
      this.focused = sameSlice(this.slices?.[this.focused ?? -1], model.slices);
      this.hovered = null;
      this.slices = model.slices;
      this.strength = strengths(model.slices);
      this.byLane = model.lanes.map(() => []);
      model.slices.forEach((s, i) => {
        this.byLane[s.lane]?.push(i);
      });
      for (const row of this.byLane)
        row.sort((a, b) => model.slices[a].start - model.slices[b].start);
      this.begins = this.byLane.map((row) => Float64Array.from(row, (i) => model.slices[i].start));
      this.longest = this.byLane.map((row) =>
        row.reduce((a, i) => Math.max(a, model.slices[i].duration), 0),
      );
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

  private get powerHeight(): number {
    return this.model?.power ? this.model.powerHeight : 0;
  }

  private get top(): number {
    const m = this.model;
    return (m?.power ? m.powerHeight + GAP : 0) + (m?.rails.length ?? 0) * (RAIL + GAP);
  }

  private frameOf(top: number, height: number): Frame {
    const x = (t: number) => this.x(t);
    return { left: LEFT, right: this.width - RIGHT, top, height, range: this.range, x };
  }

  private get bottom(): number {
    const m = this.model;
    if (!m) return 0;
    return this.gaugeY(m.gauges.length) + (m.marks.length ? MARKS : 0);
  }

  private gaugeY(k: number): number {
    return this.top + (this.model?.lanes.length ?? 0) * (LANE + GAP) + k * (GAUGE + GAP);
  }

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    const m = this.model;
    if (!m) return;
    this.shade(g, c, m);
    this.timeAxis(g, c, 0, this.bottom);
    const clip = () => this.clipPlot(g);
    this.look.begin(g, c, this.dpr);
    if (m.power) drawPower(g, c, this.frameOf(0, m.powerHeight), m.power, clip);
    m.rails.forEach((r, k) => {
      const top = this.railY(k);
      g.fillStyle = c.text2;
      g.fillText(fitText(g, r.name, LEFT - 8), 0, top + RAIL - 10);
      drawRail(g, c, this.frameOf(top, RAIL), r, clip);
    });
    m.lanes.forEach((lane, i) => {
      this.lane(g, c, m, lane, i);
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

  // ---- lanes

  private railY(k: number): number {
    return (this.model?.power ? this.powerHeight + GAP : 0) + k * (RAIL + GAP);
  }

  private laneY(lane: number): number {
    return this.top + lane * (LANE + GAP);
  }

  private lane(
    g: CanvasRenderingContext2D,
    c: Colours,
    m: TrackModel,
    { key, name, hint }: Lane,
    lane: number,
  ): void {
    const y = this.laneY(lane);
    const pinned = m.pinned.has(key);
    g.fillStyle = pinned ? c.accent : c.text2;
    g.fillText(fitText(g, pinned ? `• ${name}` : name, LEFT - 6), 0, y + LANE / 2);
    g.save();
    this.clipPlot(g);
    if (hint) {
      g.fillStyle = c.text3;
      g.fillText(hint, LEFT + 6, y + LANE / 2);
    }
    const [t0, t1] = this.range;
    const scale = (this.width - LEFT - RIGHT) / (t1 - t0);
    const right = this.width - RIGHT;
    // What adjoins in the same colour is one rectangle.
    let [from, to, alpha]: [number, number, number] = [0, 0, 1];
    let fill: Fill | null = null;
    const paint = () => {
      if (fill) {
        g.globalAlpha = alpha;
        g.fillStyle = fill.style;
        g.fillRect(from, y, to - from, LANE);
      }
      fill = null;
    };
    const draw = (i: number, x: number, w: number): Fill => {
      const s = m.slices[i];
      const next = this.look.fill(s.phase, this.strength[i]);
      const found = m.found === null || m.found(s) ? 1 : 0.25;
      if (next !== fill || found !== alpha || x !== to) {
        paint();
        [from, alpha, fill] = [x, found, next];
      }
      to = x + w;
      return next;
    };
    // Of several slices in one pixel the one with the highest value is drawn.
    let [column, best]: [number, number] = [-1, -1];
    const flush = () => {
      if (best >= 0) draw(best, column, 1);
      [column, best] = [-1, -1];
    };
    for (const i of this.inView(lane)) {
      const s = m.slices[i];
      const x0 = Math.max(LEFT - 2, LEFT + (s.start - t0) * scale);
      const x1 = Math.min(right + 2, LEFT + (s.start + s.duration - t0) * scale);
      if (x1 < LEFT || x0 > right) continue;
      if (x1 - x0 < 1.2) {
        const at = Math.floor(x0);
        if (at !== column) {
          flush();
          [column, best] = [at, i];
        } else if ((s.energy ?? -1) > (m.slices[best].energy ?? -1)) best = i;
      } else {
        flush();
        const w = Math.max(1, x1 - x0 - (x1 - x0 > 3 ? 1 : 0));
        const { ink } = draw(i, x0, w);
        if (w > 26) {
          paint();
          g.fillStyle = ink;
          const text = this.look.label(g, s.label, w - 10);
          g.fillText(text, Math.max(x0, LEFT) + 5, y + LANE / 2 + 0.5);
        }
      }
      if (m.picked(s)) {
        paint();
        g.globalAlpha = 1;
        g.strokeStyle = c.text;
        g.lineWidth = 2;
        g.strokeRect(x0 + 1, y + 1, Math.max(2, x1 - x0 - 3), LANE - 2);
      }
    }
    flush();
    paint();
    g.restore();
  }

  /** The lane's slices that may be visible, in the order of time. */
  private inView(lane: number): number[] {
    const [a, b] = this.range;
    const begins = this.begins[lane];
    return this.byLane[lane].slice(
      lowerBound(begins, a - this.longest[lane]),
      lowerBound(begins, b + 1e-9),
    );
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
    if (m.power && y < this.powerHeight) {
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
    for (const i of this.inView(lane)) {
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
        s.net
          ? ['Above idle', energySigned(s.energy, s.sd, u)]
          : ['Energy', energyInterval(s.energy, s.sd, u)],
        ...(known(s.energy) && s.duration > 0
          ? ([['Mean power', power((s.energy / s.duration) * 1000)]] as [string, string][])
          : []),
        ...(known(s.usual) && known(s.energy) && s.usual > 0
          ? ([['Typical', `${energy(s.usual, u)}, this ${plain(s.energy / s.usual, 2)} times`]] as [
              string,
              string,
            ][])
          : []),
        ...(s.rows?.() ?? []),
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
        ...powerRows(p, i),
      ],
    };
  }

  // ---- flags, pins

  protected override get overlaid(): boolean {
    return super.overlaid || at.between.peek() !== null || flag.peek() !== null;
  }

  /** The two flags between which energy is read, and the one that waits for its other. */
  protected override paintOverlay(g: CanvasRenderingContext2D, c: Colours): void {
    const between = at.between.peek();
    const waits = flag.peek();
    if (between) {
      const [x0, x1] = between.map((t) => Math.max(LEFT, Math.min(this.width - RIGHT, this.x(t))));
      g.fillStyle = c.accent;
      g.globalAlpha = 0.1;
      g.fillRect(x0, 0, x1 - x0, this.bottom);
      g.globalAlpha = 1;
      this.post(g, c, between[0], 'A');
      this.post(g, c, between[1], 'B');
    } else if (waits !== null) this.post(g, c, waits, 'A');
    super.paintOverlay(g, c);
  }

  private post(g: CanvasRenderingContext2D, c: Colours, t: number, name: string): void {
    const x = Math.round(this.x(t)) + 0.5;
    if (x < LEFT || x > this.width - RIGHT) return;
    g.strokeStyle = g.fillStyle = c.accent;
    g.lineWidth = 1.5;
    g.beginPath();
    g.moveTo(x, 0);
    g.lineTo(x, this.bottom);
    g.stroke();
    g.fillRect(x, 0, 13, 14);
    g.fillStyle = c.surface;
    g.fillText(name, x + 3, 7.5);
  }

  private pin(lane: number): void {
    const key = this.model?.lanes[lane]?.key;
    if (!this.model || !key) return;
    const pins = [...this.model.pinned];
    select({ pins: pins.includes(key) ? pins.filter((k) => k !== key) : [...pins, key] });
  }

  private pinAt(x: number, y: number): void {
    if (x < LEFT - 4 && y > this.top && y < this.gaugeY(0))
      this.pin(Math.floor((y - this.top) / (LANE + GAP)));
  }

  /** Letters for the slice that the arrow keys have reached: m puts the flags around it, p pins its track. */
  private letter(e: KeyboardEvent): void {
    const s = this.focused === null ? null : this.slice(this.focused);
    if (!s || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === 'm') select({ between: [s.start, s.start + s.duration] });
    else if (e.key === 'p') this.pin(s.lane);
    else return;
    e.preventDefault();
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
