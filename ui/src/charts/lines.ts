// Overlaid series on shared axes: power and energy per token of the compared runs.
import { minMax } from '../core/decimate';
import { lowerBound } from '../core/ring';
import { logTicks, ticks } from '../core/stats';
import { type Arrow, CanvasChart } from './canvas';
import { polyline } from './polyline';
import type { Colours } from './theme';
import type { Tip } from './tip';

export interface Series {
  label: string;
  colour: string;
  x: Float64Array;
  y: Float64Array;
}

export interface LinesModel {
  series: Series[];
  showX: (v: number) => string;
  showY: (v: number) => string;
  /** Factors and units of the tick labels. */
  xTick: { factor: number; unit: string };
  yTick: { factor: number; unit: string };
  /** A logarithmic y axis, for positive values. */
  log?: boolean;
}

const LEFT = 64;
const RIGHT = 12;
const TOP = 8;
const BOTTOM = 22;

/** The mark is a position on the x axis. */
export class Lines extends CanvasChart<number> {
  private m: LinesModel | null = null;
  private xs: [number, number] = [0, 1];
  private top = 1;
  private bottom = 0;
  /** Whether the y axis is logarithmic, and its ends; for the tests. */
  get yAxis(): { log: boolean; lo: number; hi: number } {
    return { log: !!this.m?.log, lo: this.bottom, hi: this.top };
  }

  set(model: LinesModel): void {
    this.m = model;
    let lo = Number.POSITIVE_INFINITY;
    let hi = Number.NEGATIVE_INFINITY;
    this.top = 1e-9;
    this.bottom = Number.POSITIVE_INFINITY;
    for (const s of model.series) {
      if (s.x.length) {
        lo = Math.min(lo, s.x[0]);
        hi = Math.max(hi, s.x[s.x.length - 1]);
      }
      for (const v of s.y) {
        if (v > this.top) this.top = v;
        if (v > 0 && v < this.bottom) this.bottom = v;
      }
    }
    if (!model.log || this.bottom > this.top) this.bottom = 0;
    // A single position stands in the middle.
    this.xs = hi > lo ? [lo, hi] : hi === lo && hi > 0 ? [0, 2 * hi] : [0, 1];
    this.invalidate();
  }

  private x(v: number): number {
    return LEFT + ((v - this.xs[0]) / (this.xs[1] - this.xs[0])) * (this.width - LEFT - RIGHT);
  }

  private y(v: number): number {
    return TOP + (1 - this.share(v)) * (this.height - TOP - BOTTOM);
  }

  /** Height of a value, 0 to 1 of the axis. */
  private share(v: number): number {
    if (!this.bottom) return v / (this.top * 1.06);
    const lo = this.bottom / 1.2;
    return Math.log(Math.max(v, lo) / lo) / Math.log((this.top * 1.2) / lo);
  }

  private yTicks(m: LinesModel, many: number): [number, string][] {
    if (this.bottom) return logTicks(this.bottom / 1.2, this.top * 1.2).map((v) => [v, m.showY(v)]);
    return ticks(0, this.top * m.yTick.factor, many).map((t) => [
      t / m.yTick.factor,
      `${Number(t.toPrecision(6))} ${m.yTick.unit}`,
    ]);
  }

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    const m = this.m;
    if (!m) return;
    const bottom = this.height - BOTTOM;
    g.strokeStyle = c.grid;
    g.fillStyle = c.text3;
    g.textAlign = 'right';
    for (const [v, label] of this.yTicks(m, Math.max(2, bottom / 40))) {
      const y = Math.round(this.y(v)) + 0.5;
      line(g, LEFT, y, this.width - RIGHT, y);
      g.fillText(label, LEFT - 8, Math.max(7, y));
    }
    g.textAlign = 'center';
    const f = m.xTick.factor;
    for (const t of ticks(this.xs[0] * f, this.xs[1] * f, Math.max(2, this.width / 100))) {
      const x = Math.round(this.x(t / f)) + 0.5;
      line(g, x, TOP, x, bottom);
      g.fillText(
        `${Number(t.toPrecision(6))} ${m.xTick.unit}`.trim(),
        Math.min(x, this.width - 20),
        bottom + 11,
      );
    }
    g.lineJoin = 'round';
    for (const s of m.series) this.curve(g, s);
  }

  private curve(g: CanvasRenderingContext2D, s: Series): void {
    const thin = minMax(s.x, [s.y], 0, Math.max(50, this.width));
    g.strokeStyle = s.colour;
    g.lineWidth = 1.5;
    g.fillStyle = s.colour;
    g.globalAlpha = 0.9;
    const y = thin.y[0];
    polyline(g, 0, thin.length, (i) =>
      Number.isNaN(y[i]) ? null : [this.x(thin.x[i]), this.y(y[i])],
    );
    g.globalAlpha = 1;
  }

  protected override paintOverlay(g: CanvasRenderingContext2D, c: Colours): void {
    const at = this.hovered ?? (document.activeElement === this.host ? this.focused : null);
    if (at === null || !this.m) return;
    const x = Math.round(this.x(at)) + 0.5;
    g.strokeStyle = c.text3;
    g.setLineDash([3, 3]);
    line(g, x, TOP, x, this.height - BOTTOM);
    g.setLineDash([]);
    for (const s of this.m.series) {
      const v = valueAt(s, at);
      if (v === null) continue;
      g.fillStyle = s.colour;
      g.beginPath();
      g.arc(x, this.y(v), 3.5, 0, 7);
      g.fill();
    }
  }

  protected override hit(x: number): number | null {
    if (x < LEFT || x > this.width - RIGHT) return null;
    const [a, b] = this.xs;
    return a + ((x - LEFT) / (this.width - LEFT - RIGHT)) * (b - a);
  }

  protected override outline(at: number) {
    return { x: this.x(at), y: TOP, w: 0, h: this.height - BOTTOM - TOP };
  }

  protected override next(at: number | null, key: Arrow): number | null {
    const [a, b] = this.xs;
    const stepX = (b - a) / 60;
    if (key === 'Home') return a;
    if (key === 'End') return b;
    const by = key === 'ArrowRight' || key === 'ArrowUp' ? stepX : -stepX;
    return Math.max(a, Math.min(b, (at ?? a) + by));
  }

  protected override tip(at: number): Tip | null {
    const m = this.m;
    if (!m) return null;
    return {
      title: m.showX(at),
      rows: m.series.map((s): [string, string] => {
        const v = valueAt(s, at);
        return [s.label, v === null ? 'unavailable' : m.showY(v)];
      }),
    };
  }
}

function valueAt(s: Series, at: number): number | null {
  if (!s.x.length || at > s.x[s.x.length - 1] || at < s.x[0]) return null;
  const v = s.y[Math.min(s.y.length - 1, lowerBound(s.x, at))];
  return !Number.isNaN(v) ? v : null;
}

function line(g: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  g.beginPath();
  g.moveTo(x0, y0);
  g.lineTo(x1, y1);
  g.stroke();
}
