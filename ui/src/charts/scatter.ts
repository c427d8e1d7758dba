// Power of every sample over time, coloured by phase. Points are written directly into one
// ImageData: sixty thousand take a few milliseconds, so that the chart is redrawn while a filter
// is dragged.
import { power, powerScale, time } from '../core/format';
import { lowerBound } from '../core/ring';
import { ticks } from '../core/stats';
import type { Range } from '../state/selection';
import type { Rect } from './canvas';
import { type Colours, PHASES, phaseLabel } from './theme';
import { LEFT, RIGHT, TimeChart } from './time_chart';
import type { Tip } from './tip';

export interface Samples {
  t: Float64Array;
  /** mW; NaN is unavailable. */
  y: Float64Array;
  /** Index into PHASES. */
  phase: Uint8Array;
  /** Share of the sample's window that lies in its phase, 0..1. */
  confidence: Float32Array;
}

export interface SampleFilter {
  phases: boolean[];
  confidence: number;
}

const BOTTOM = 20;

export class Scatter extends TimeChart<number> {
  private data: Samples | null = null;
  private filter: SampleFilter = { phases: [], confidence: 0 };
  private top = 1;
  shown = 0;

  set(full: Range, data: Samples, filter: SampleFilter): void {
    this.full = full;
    this.filter = filter;
    if (data !== this.data) {
      this.data = data;
      this.top = 1;
      for (const v of data.y) if (v > this.top) this.top = v;
    }
    this.invalidate();
  }

  private y(mw: number): number {
    return 6 + (1 - mw / (this.top * 1.05)) * (this.height - BOTTOM - 6);
  }

  private passes(i: number): boolean {
    const d = this.data!;
    return this.filter.phases[d.phase[i]] && d.confidence[i] >= this.filter.confidence;
  }

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    const d = this.data;
    if (!d) return;
    const bottom = this.height - BOTTOM;
    const { factor, unit } = powerScale(this.top);
    g.textAlign = 'right';
    for (const m of ticks(0, this.top * factor, Math.max(2, bottom / 40))) {
      const y = Math.round(this.y(m / factor)) + 0.5;
      g.strokeStyle = c.grid;
      g.beginPath();
      g.moveTo(LEFT, y);
      g.lineTo(this.width - RIGHT, y);
      g.stroke();
      g.fillStyle = c.text3;
      g.fillText(`${Number(m.toPrecision(6))} ${unit}`, LEFT - 8, Math.max(8, y));
    }
    g.textAlign = 'left';
    this.timeAxis(g, c, 4, bottom);
    this.points(g, c, d);
  }

  private points(g: CanvasRenderingContext2D, c: Colours, d: Samples): void {
    const k = this.dpr;
    const w = Math.max(1, Math.round((this.width - LEFT - RIGHT) * k));
    const h = Math.max(1, Math.round((this.height - BOTTOM) * k));
    const image = new ImageData(w, h);
    const px = new Uint32Array(image.data.buffer);
    const lut = PHASES.map((p) => pixelOf(c.phase[p]));
    const [a, b] = this.range;
    const first = lowerBound(d.t, a);
    const crowd = (lowerBound(d.t, b) - first) / Math.max(1, this.width);
    const size = Math.max(2, Math.round((crowd > 2 ? 2 : crowd > 0.5 ? 3 : 5) * k));
    let shown = 0;
    for (let i = first; i < d.t.length && d.t[i] <= b; i++) {
      if (Number.isNaN(d.y[i]) || !this.passes(i)) continue;
      shown++;
      const x0 = Math.round(((d.t[i] - a) / (b - a)) * (w - size));
      const y0 = Math.round(this.y(d.y[i]) * k) - (size >> 1);
      const colour = lut[d.phase[i]];
      for (let y = Math.max(0, y0); y < Math.min(h, y0 + size); y++) {
        for (let x = x0; x < x0 + size; x++) px[y * w + x] = colour;
      }
    }
    this.shown = shown;
    const layer = document.createElement('canvas');
    layer.width = w;
    layer.height = h;
    layer.getContext('2d')?.putImageData(image, 0, 0);
    g.drawImage(layer, LEFT, 0, this.width - LEFT - RIGHT, this.height - BOTTOM);
  }

  protected override hit(x: number, y: number): number | null {
    const d = this.data;
    if (!d || x < LEFT || x > this.width - RIGHT) return null;
    const reach = 8;
    let best: number | null = null;
    let gap = reach * reach;
    for (let i = lowerBound(d.t, this.t(x - reach)); i < d.t.length; i++) {
      const dx = this.x(d.t[i]) - x;
      if (dx > reach) break;
      if (Number.isNaN(d.y[i]) || !this.passes(i)) continue;
      const dy = this.y(d.y[i]) - y;
      if (dx * dx + dy * dy < gap) {
        gap = dx * dx + dy * dy;
        best = i;
      }
    }
    return best;
  }

  protected override outline(i: number): Rect | null {
    const d = this.data;
    return d ? { x: this.x(d.t[i]) - 4, y: this.y(d.y[i]) - 4, w: 8, h: 8 } : null;
  }

  protected override next(i: number | null, key: string): number | null {
    const d = this.data;
    if (!d || d.t.length === 0) return null;
    const by = key === 'ArrowLeft' || key === 'ArrowUp' || key === 'End' ? -1 : 1;
    let k = key === 'Home' ? 0 : key === 'End' ? d.t.length - 1 : i === null ? 0 : i + by;
    while (k >= 0 && k < d.t.length && (!this.passes(k) || Number.isNaN(d.y[k]))) k += by;
    return k >= 0 && k < d.t.length ? k : i;
  }

  protected override tip(i: number): Tip | null {
    const d = this.data;
    if (!d) return null;
    return {
      title: phaseLabel(PHASES[d.phase[i]]),
      rows: [
        ['Time', time(d.t[i])],
        ['Power', power(d.y[i])],
        ['Phase confidence', `${Math.round(d.confidence[i] * 100)} %`],
      ],
    };
  }
}

/** A CSS colour as one little-endian RGBA pixel. */
export function pixelOf(colour: string): number {
  const hex = /^#([0-9a-f]{6})$/i.exec(colour);
  const v = hex ? Number.parseInt(hex[1], 16) : 0x888888;
  return ((255 << 24) | ((v & 255) << 16) | (v & 0xff00) | (v >> 16)) >>> 0;
}
