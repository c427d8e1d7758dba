// Histogram. The bins end at a fence beyond the quartiles, and the last bin holds everything above
// it, so that one outlier does not compress all other values into a single bin.
import { fenceOf, ticks } from '../core/stats';
import { type Arrow, CanvasChart, type Rect, step } from './canvas';
import type { Colours } from './theme';
import type { Tip } from './tip';

export interface HistogramModel {
  values: number[];
  odd: boolean[];
  picked: number | null;
  show: (v: number) => string;
}

const LEFT = 34;
const BOTTOM = 22;
const TOP = 8;
const BARS = 28;

export class Histogram extends CanvasChart<number> {
  private model: HistogramModel | null = null;
  private values: number[] | null = null;
  private bins: number[][] = [];
  private lo = 0;
  private hi = 1;
  private most = 1;
  private beyond = false;

  set(model: HistogramModel): void {
    this.model = model;
    if (model.values !== this.values) this.sort(model.values);
    this.invalidate();
  }

  private sort(values: number[]): void {
    this.values = values;
    const f = fenceOf(values);
    this.lo = f?.lo ?? 0;
    this.hi = f && f.hi > f.lo ? f.hi : this.lo + Math.max(1e-9, Math.abs(this.lo) * 0.1);
    this.beyond = f?.clipped ?? false;
    const bars = Math.min(BARS, Math.max(6, Math.ceil(Math.sqrt(values.length) * 1.5)));
    this.bins = Array.from({ length: bars + (this.beyond ? 1 : 0) }, () => []);
    values.forEach((v, i) => {
      if (Number.isNaN(v)) return;
      const k = v > this.hi ? bars : Math.floor(((v - this.lo) / (this.hi - this.lo)) * bars);
      this.bins[
        Math.max(0, Math.min(this.bins.length - 1, v > this.hi ? k : Math.min(bars - 1, k)))
      ].push(i);
    });
    this.most = Math.max(1, ...this.bins.map((b) => b.length));
    this.hovered = this.focused = null;
  }

  get count(): number {
    return this.bins.reduce((a, b) => a + b.length, 0);
  }

  /** Index of the highest bar. */
  dearest(bar: number): number | null {
    const v = this.values;
    const list = this.bins[bar];
    if (!v || !list?.length) return null;
    return list.reduce((a, i) => (v[i] > v[a] ? i : a), list[0]);
  }

  private rect(bar: number): Rect {
    const w = (this.width - LEFT - 6) / Math.max(1, this.bins.length);
    const h = (this.bins[bar].length / this.most) * (this.height - TOP - BOTTOM);
    return { x: LEFT + bar * w, y: this.height - BOTTOM - h, w: Math.max(1, w - 1), h };
  }

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    const m = this.model;
    if (!m || !this.bins.length) return;
    g.textAlign = 'right';
    for (const n of ticks(0, this.most, 4)) {
      if (!Number.isInteger(n)) continue;
      const y = this.height - BOTTOM - (n / this.most) * (this.height - TOP - BOTTOM);
      g.fillStyle = c.grid;
      g.fillRect(LEFT, Math.round(y), this.width - LEFT - 6, 1);
      g.fillStyle = c.text3;
      g.fillText(String(n), LEFT - 6, y);
    }
    this.bins.forEach((list, i) => {
      const r = this.rect(i);
      const last = this.beyond && i === this.bins.length - 1;
      g.fillStyle = last || list.some((k) => m.odd[k]) ? c.danger : c.phase.decode;
      g.fillRect(r.x, r.y, r.w, r.h);
      if (m.picked !== null && list.includes(m.picked)) {
        g.strokeStyle = c.text;
        g.lineWidth = 2;
        g.strokeRect(r.x + 1, r.y + 1, r.w - 2, Math.max(2, r.h - 1));
      }
    });
    g.fillStyle = c.text3;
    g.textAlign = 'left';
    g.fillText(m.show(this.lo), LEFT, this.height - 9);
    g.textAlign = 'right';
    g.fillText(`${this.beyond ? '> ' : ''}${m.show(this.hi)}`, this.width - 6, this.height - 9);
    g.textAlign = 'left';
  }

  protected override hit(x: number, y: number): number | null {
    if (x < LEFT || y > this.height - BOTTOM) return null;
    const i = Math.floor(((x - LEFT) / (this.width - LEFT - 6)) * this.bins.length);
    return i >= 0 && i < this.bins.length ? i : null;
  }

  protected override outline(bar: number): Rect | null {
    return this.bins[bar] ? this.rect(bar) : null;
  }

  protected override next(bar: number | null, key: Arrow): number | null {
    return step(bar, key, this.bins.length);
  }

  protected override tip(bar: number): Tip | null {
    const m = this.model;
    const list = this.bins[bar];
    if (!m || !list) return null;
    const bars = this.bins.length - (this.beyond ? 1 : 0);
    const width = (this.hi - this.lo) / bars;
    const last = this.beyond && bar === bars;
    const title = last
      ? `Above ${m.show(this.hi)}`
      : `${m.show(this.lo + bar * width)} to ${m.show(this.lo + (bar + 1) * width)}`;
    return { title, rows: [['Tokens', String(list.length)]] };
  }
}
