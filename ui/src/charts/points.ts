// Named points on two axes, linear or logarithmic, with lines: the roofline and the Pareto front.
import { extent, logTicks, ticks } from '../core/stats';
import { type Arrow, CanvasChart, type Rect, step } from './canvas';
import type { Colours } from './theme';
import type { Tip } from './tip';

export interface Dot {
  x: number;
  y: number;
  /** The ends of the 95 % intervals, which need not lie symmetrically. */
  yEnds?: readonly [number, number] | null;
  xEnds?: readonly [number, number] | null;
  label: string;
  colour: string;
  /** Relative area; 1 is the default. */
  size?: number;
  strong?: boolean;
  /** Drawn as a ring rather than filled. */
  ring?: boolean;
  tip: Tip;
}

export interface Line {
  points: [number, number][];
  label: string;
  colour: string;
  dash?: boolean;
}

export interface Axis {
  label: string;
  log: boolean;
  show: (v: number) => string;
  /** Tick labels instead of round numbers: the levels of a setting. */
  ticks?: number[];
}

export interface PointsModel {
  x: Axis;
  y: Axis;
  dots: Dot[];
  lines: Line[];
}

/** Above this number of dots, those that do not stand out are drawn as squares, many times as fast. */
const CROWD = 2000;
const LEFT = 72;
const RIGHT = 16;
const TOP = 16;
const BOTTOM = 38;

export class Points extends CanvasChart<number> {
  private m: PointsModel | null = null;
  private dx: [number, number] = [0, 1];
  private dy: [number, number] = [0, 1];

  set(model: PointsModel): void {
    this.m = model;
    // An interval that reaches zero has no lower end on a logarithmic axis.
    const ys = model.dots.flatMap((d) => [d.y, ...(d.yEnds ?? [])]);
    this.dx = domain(
      [
        ...model.dots.flatMap((d) => [d.x, ...(d.xEnds ?? [])]),
        ...model.lines.flatMap((l) => l.points.map((p) => p[0])),
      ],
      model.x.log,
      !!model.x.ticks,
    );
    this.dy = domain(
      [...ys, ...model.lines.flatMap((l) => l.points.map((p) => p[1]))],
      model.y.log,
    );
    this.invalidate();
  }

  get count(): number {
    return this.m?.dots.length ?? 0;
  }

  private x(v: number): number {
    return LEFT + place(v, this.dx, this.m!.x.log) * (this.width - LEFT - RIGHT);
  }

  private y(v: number): number {
    return TOP + (1 - place(v, this.dy, this.m!.y.log)) * (this.height - TOP - BOTTOM);
  }

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    const m = this.m;
    if (!m) return;
    this.axes(g, c, m);
    for (const l of m.lines) this.line(g, l);
    const plain = (d: Dot) => m.dots.length > CROWD && !d.strong;
    g.globalAlpha = 0.6;
    for (const d of m.dots) {
      if (!plain(d)) continue;
      g.fillStyle = d.colour;
      g.fillRect(Math.round(this.x(d.x)) - 1, Math.round(this.y(d.y)) - 1, 3, 3);
    }
    g.globalAlpha = 1;
    for (const d of m.dots) if (!plain(d)) this.dot(g, c, d);
    this.names(g, c, m.dots);
  }

  private axes(g: CanvasRenderingContext2D, c: Colours, m: PointsModel): void {
    const bottom = this.height - BOTTOM;
    const xs = m.x.ticks
      ? m.x.ticks
      : m.x.log
        ? logTicks(...this.dx)
        : ticks(...this.dx, Math.max(2, this.width / 110));
    const ys = m.y.log ? logTicks(...this.dy) : ticks(...this.dy, Math.max(2, this.height / 55));
    g.strokeStyle = c.grid;
    g.lineWidth = 1;
    g.fillStyle = c.text3;
    g.textAlign = 'center';
    for (const t of xs) {
      const x = Math.round(this.x(t)) + 0.5;
      stroke(g, x, TOP, x, bottom);
      const label = m.x.show(t);
      const half = g.measureText(label).width / 2;
      g.fillText(label, Math.min(x, this.width - half), bottom + 10);
    }
    g.textAlign = 'right';
    for (const t of ys) {
      const y = Math.round(this.y(t)) + 0.5;
      stroke(g, LEFT, y, this.width - RIGHT, y);
      g.fillText(m.y.show(t), LEFT - 8, y);
    }
    g.fillStyle = c.text2;
    g.fillText(m.x.label, this.width - RIGHT, this.height - 8);
    g.textAlign = 'left';
    g.fillText(m.y.label, 0, 6);
  }

  private line(g: CanvasRenderingContext2D, l: Line): void {
    g.strokeStyle = l.colour;
    g.lineWidth = 1.5;
    g.setLineDash(l.dash ? [5, 4] : []);
    g.beginPath();
    l.points.forEach(([x, y], i) => {
      if (i) g.lineTo(this.x(x), this.y(y));
      else g.moveTo(this.x(x), this.y(y));
    });
    g.stroke();
    g.setLineDash([]);
  }

  /** The whisker of the interval of x. */
  private across(g: CanvasRenderingContext2D, d: Dot, y: number): void {
    if (!d.xEnds) return;
    const [lo, hi] = d.xEnds.map((v) => this.x(v));
    if (hi - lo < 2 * this.radius(d)) return;
    g.strokeStyle = d.colour;
    g.globalAlpha = 0.65;
    g.lineWidth = 1;
    stroke(g, lo, y, hi, y);
    for (const end of [lo, hi]) stroke(g, end, y - 3, end, y + 3);
    g.globalAlpha = 1;
  }

  private dot(g: CanvasRenderingContext2D, c: Colours, d: Dot): void {
    const x = this.x(d.x);
    const y = this.y(d.y);
    const reach = d.yEnds ? Math.max(...d.yEnds.map((v) => Math.abs(this.y(v) - y))) : 0;
    // No whisker for an interval smaller than the dot.
    if (d.yEnds && reach > this.radius(d)) {
      g.strokeStyle = d.colour;
      g.globalAlpha = 0.65;
      g.lineWidth = 1;
      const hi = this.y(d.yEnds[1]);
      // An end below the axis is cut off there, and drawn without a cap.
      const floor = this.height - BOTTOM;
      const lo = this.y(d.yEnds[0]);
      stroke(g, x, hi, x, Math.min(lo, floor));
      stroke(g, x - 3, hi, x + 3, hi);
      if (lo <= floor) stroke(g, x - 3, lo, x + 3, lo);
      g.globalAlpha = 1;
    }
    this.across(g, d, y);
    g.beginPath();
    g.arc(x, y, this.radius(d), 0, 7);
    g.fillStyle = d.ring ? c.surface : d.colour;
    g.globalAlpha = d.strong === false ? 0.45 : 0.9;
    g.fill();
    g.globalAlpha = 1;
    g.strokeStyle = d.ring ? d.colour : c.surface;
    g.lineWidth = d.ring ? 2 : 1;
    g.stroke();
  }

  private radius(d: Dot): number {
    return Math.max(3, Math.min(16, 6 * Math.sqrt(d.size ?? 1)));
  }

  /** Labels beside the dots, placed without overlapping each other or the frame. */
  private names(g: CanvasRenderingContext2D, c: Colours, dots: Dot[]): void {
    const taken: Rect[] = dots.map((d) => {
      const r = this.radius(d);
      return { x: this.x(d.x) - r, y: this.y(d.y) - r, w: 2 * r, h: 2 * r };
    });
    const order = dots.map((_, i) => i).sort((a, b) => (dots[b].size ?? 1) - (dots[a].size ?? 1));
    g.fillStyle = c.text2;
    for (const i of order) {
      const d = dots[i];
      if (!d.label) continue;
      const w = g.measureText(d.label).width;
      const r = this.radius(d) + 4;
      const above = this.y(d.y) - 17;
      const spots: [number, number][] = [
        // Not on the whisker of x.
        ...(d.xEnds
          ? ([
              [this.x(d.x) + r, above],
              [this.x(d.x) - r - w, above],
            ] as [number, number][])
          : []),
        [this.x(d.x) + r, this.y(d.y) - 6],
        [this.x(d.x) - r - w, this.y(d.y) - 6],
        [this.x(d.x) - w / 2, this.y(d.y) - r - 12],
        [this.x(d.x) - w / 2, this.y(d.y) + r],
      ];
      for (const [x, y] of spots) {
        const box = { x, y, w, h: 12 };
        if (x < LEFT || x + w > this.width || y < 0 || y + 12 > this.height - BOTTOM) continue;
        if (taken.some((t, k) => k !== i && overlap(t, box))) continue;
        g.strokeStyle = c.surface;
        g.lineWidth = 3;
        g.lineJoin = 'round';
        g.strokeText(d.label, x, y + 6);
        g.fillText(d.label, x, y + 6);
        taken.push(box);
        break;
      }
    }
  }

  protected override hit(x: number, y: number): number | null {
    let best: number | null = null;
    let gap = 20 * 20;
    this.m?.dots.forEach((d, i) => {
      const q = (this.x(d.x) - x) ** 2 + (this.y(d.y) - y) ** 2;
      if (q < gap) {
        gap = q;
        best = i;
      }
    });
    return best;
  }

  protected override outline(i: number): Rect | null {
    const d = this.m?.dots[i];
    if (!d) return null;
    const r = this.radius(d) + 2;
    return { x: this.x(d.x) - r, y: this.y(d.y) - r, w: 2 * r, h: 2 * r };
  }

  protected override next(i: number | null, key: Arrow): number | null {
    return step(i, key, this.count);
  }

  protected override tip(i: number): Tip | null {
    return this.m?.dots[i]?.tip ?? null;
  }
}

function stroke(g: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  g.beginPath();
  g.moveTo(x0, y0);
  g.lineTo(x1, y1);
  g.stroke();
}

/** `free`: label positions, which may be left of 0. */
function domain(values: number[], log: boolean, free = false): [number, number] {
  const ok = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
  const ends = extent(ok);
  if (!ends) return log ? [1, 10] : [0, 1];
  const [lo, hi] = ends;
  if (log) return [lo / 1.8, hi * 1.8];
  const pad = (hi - lo || Math.abs(hi) || 1) * 0.12;
  return [free ? lo - pad : Math.max(0, lo - pad), hi + pad];
}

function place(v: number, [lo, hi]: [number, number], log: boolean): number {
  return log ? Math.log(Math.max(v, lo * 1e-3) / lo) / Math.log(hi / lo) : (v - lo) / (hi - lo);
}

const overlap = (a: Rect, b: Rect): boolean =>
  a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
