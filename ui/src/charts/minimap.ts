// The minimap: the whole run as an outline of its power (or of its energy per token) with the
// visible range. Dragging the range moves it; dragging outside it selects another.

import { effect } from '@preact/signals';
import { lowerBound } from '../core/ring';
import { at, type Range, select } from '../state/selection';
import { CanvasChart } from './canvas';
import type { Colours } from './theme';
import { LEFT, RIGHT } from './time_chart';

export interface MinimapModel {
  full: Range;
  t: Float64Array;
  y: Float64Array;
  phases: { phase: string; start: number; end: number }[];
}

export class Minimap extends CanvasChart<number> {
  private model: MinimapModel | null = null;
  private drag: { t: number; range: Range; moves: boolean } | null = null;

  constructor(host: HTMLElement) {
    super(host);
    host.classList.add('minimap');
    this.own(
      effect(() => {
        at.range.value;
        this.invalidate();
      }),
    );
    this.listen('pointerdown', (e) => this.press(e));
    this.listen('pointermove', (e) => this.move(e));
    this.listen('pointerup', () => {
      this.drag = null;
    });
    this.listen('dblclick', () => select({ range: null }));
  }

  set(model: MinimapModel): void {
    this.model = model;
    this.invalidate();
  }

  private x(t: number): number {
    const [a, b] = this.model?.full ?? [0, 1];
    return LEFT + ((t - a) / (b - a)) * (this.width - LEFT - RIGHT);
  }

  private t(x: number): number {
    const [a, b] = this.model?.full ?? [0, 1];
    const share = (x - LEFT) / Math.max(1, this.width - LEFT - RIGHT);
    return a + Math.max(0, Math.min(1, share)) * (b - a);
  }

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    const m = this.model;
    if (!m) return;
    const h = this.height;
    for (const p of m.phases) {
      g.globalAlpha = 0.3;
      g.fillStyle = c.phase[p.phase] ?? c.text3;
      g.fillRect(this.x(p.start), h - 3, Math.max(0.5, this.x(p.end) - this.x(p.start)), 3);
    }
    g.globalAlpha = 1;
    let top = 1e-9;
    for (const v of m.y) if (v > top) top = v;
    g.fillStyle = c.text3;
    g.globalAlpha = 0.55;
    for (let x = LEFT; x < this.width - RIGHT; x++) {
      const from = lowerBound(m.t, this.t(x));
      const to = Math.max(from + 1, lowerBound(m.t, this.t(x + 1)));
      let v = 0;
      for (let i = from; i < to && i < m.y.length; i++) if (m.y[i] > v) v = m.y[i];
      const tall = (v / top) * (h - 6);
      g.fillRect(x, h - 3 - tall, 1, tall);
    }
    g.globalAlpha = 1;
    const r = at.range.peek();
    if (!r) return;
    const [x0, x1] = [this.x(r[0]), Math.max(this.x(r[0]) + 3, this.x(r[1]))];
    g.fillStyle = c.surface;
    g.globalAlpha = 0.7;
    g.fillRect(LEFT, 0, x0 - LEFT, h);
    g.fillRect(x1, 0, this.width - RIGHT - x1, h);
    g.globalAlpha = 1;
    g.strokeStyle = c.accent;
    g.lineWidth = 1.5;
    g.strokeRect(x0, 0.75, x1 - x0, h - 1.5);
  }

  private press(e: PointerEvent): void {
    const m = this.model;
    if (!m || e.button !== 0) return;
    const t = this.t(this.point(e)[0]);
    const r = at.range.peek();
    const moves = r !== null && t >= r[0] && t <= r[1];
    this.drag = { t, range: moves ? r : [t, t], moves };
    this.host.setPointerCapture(e.pointerId);
  }

  private move(e: PointerEvent): void {
    const d = this.drag;
    const m = this.model;
    if (!d || !m) return;
    const t = this.t(this.point(e)[0]);
    if (d.moves) {
      const width = d.range[1] - d.range[0];
      const lo = Math.max(m.full[0], Math.min(m.full[1] - width, d.range[0] + t - d.t));
      select({ range: [lo, lo + width] });
    } else if (Math.abs(this.x(t) - this.x(d.t)) > 4)
      select({ range: [Math.min(t, d.t), Math.max(t, d.t)] });
  }
}
