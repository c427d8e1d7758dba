// Base class of charts whose x axis is the time of the run. They share the visible range and the
// crosshair, so that zooming or pointing in one applies to all.
import { effect } from '@preact/signals';
import { timeScale } from '../core/format';
import { ticks } from '../core/stats';
import { zoom } from '../state/range';
import { at, cursor, type Range, select } from '../state/selection';
import { CanvasChart } from './canvas';
import type { Colours } from './theme';

export const LEFT = 76;
export const RIGHT = 22;

export abstract class TimeChart<M = number> extends CanvasChart<M> {
  /** The whole run. */
  protected full: Range = [0, 1];
  /** `measures`: with Shift, which reads the energy of the range instead of zooming to it. */
  private drag: { from: number; to: number; measures: boolean } | null = null;

  constructor(host: HTMLElement) {
    super(host);
    host.classList.add('time');
    this.own(
      effect(() => {
        at.range.value;
        this.invalidate();
      }),
    );
    this.own(
      effect(() => {
        cursor.value;
        this.invalidateOverlay();
      }),
    );
    this.listen('pointerdown', (e) => this.press(e));
    this.listen('pointermove', (e) => this.track(e));
    this.listen('pointerup', (e) => this.release(e));
    this.listen('pointercancel', () => this.drop());
    this.listen('pointerleave', () => {
      if (!this.drag) cursor.value = null;
    });
    this.listen('dblclick', () => select({ range: null }));
    this.listen('wheel', (e) => this.wheel(e), { passive: false });
  }

  protected get range(): Range {
    return at.range.peek() ?? this.full;
  }

  protected x(t: number): number {
    const [a, b] = this.range;
    return LEFT + ((t - a) / (b - a)) * (this.width - LEFT - RIGHT);
  }

  protected t(x: number): number {
    const [a, b] = this.range;
    return a + ((x - LEFT) / Math.max(1, this.width - LEFT - RIGHT)) * (b - a);
  }

  protected clipPlot(g: CanvasRenderingContext2D): void {
    g.beginPath();
    g.rect(LEFT, 0, this.width - LEFT - RIGHT, this.height);
    g.clip();
  }

  /** Tick labels below the plot and grid lines; one unit for the whole axis. */
  protected timeAxis(g: CanvasRenderingContext2D, c: Colours, top: number, bottom: number): void {
    const [a, b] = this.range;
    const { factor, unit } = timeScale(Math.max(b, 1e-6));
    const marks = ticks(a * factor, b * factor, Math.max(2, this.width / 110));
    const places =
      marks.length > 1 ? Math.max(0, -Math.floor(Math.log10(marks[1] - marks[0]) + 1e-9)) : 0;
    g.textAlign = 'center';
    for (const m of marks) {
      const x = Math.round(this.x(m / factor)) + 0.5;
      if (x < LEFT - 1 || x > this.width - RIGHT + 1) continue;
      g.strokeStyle = c.grid;
      g.lineWidth = 1;
      g.beginPath();
      g.moveTo(x, top);
      g.lineTo(x, bottom);
      g.stroke();
      g.fillStyle = c.text3;
      g.fillText(`${m.toFixed(places)} ${unit}`, Math.min(x, this.width - 22), bottom + 9);
    }
    g.textAlign = 'left';
  }

  protected override get overlaid(): boolean {
    return super.overlaid || cursor.peek() !== null || this.drag !== null;
  }

  protected override paintOverlay(g: CanvasRenderingContext2D, c: Colours): void {
    const t = cursor.peek();
    if (t !== null) {
      const x = Math.round(this.x(t)) + 0.5;
      if (x >= LEFT && x <= this.width - RIGHT) {
        g.strokeStyle = c.text3;
        g.lineWidth = 1;
        g.setLineDash([3, 3]);
        g.beginPath();
        g.moveTo(x, 0);
        g.lineTo(x, this.height - 18);
        g.stroke();
        g.setLineDash([]);
      }
    }
    if (this.drag) {
      const [x0, x1] = [this.drag.from, this.drag.to].sort((p, q) => p - q);
      g.fillStyle = c.accent;
      g.globalAlpha = 0.16;
      g.fillRect(x0, 0, x1 - x0, this.height - 18);
      g.globalAlpha = 1;
    }
    super.paintOverlay(g, c);
  }

  private press(e: PointerEvent): void {
    const [x] = this.point(e);
    if (e.button !== 0 || e.pointerType === 'touch' || x < LEFT) return;
    this.drag = { from: x, to: x, measures: e.shiftKey };
  }

  private track(e: PointerEvent): void {
    const [x] = this.point(e);
    if (this.drag) {
      if (Math.abs(x - this.drag.from) > 3) this.host.setPointerCapture(e.pointerId);
      this.drag.to = Math.max(LEFT, Math.min(this.width - RIGHT, x));
      this.invalidateOverlay();
    }
    if (x >= LEFT && x <= this.width - RIGHT) cursor.value = this.t(x);
  }

  private release(e: PointerEvent): void {
    const d = this.drag;
    this.drag = null;
    if (!d || Math.abs(d.to - d.from) < 5) return;
    const [a, b] = [this.t(d.from), this.t(d.to)].sort((p, q) => p - q);
    const range: Range = [Math.max(0, a), b];
    select(d.measures ? { between: range } : { range });
    // The click event that ends a drag must not select the mark under it.
    this.host.addEventListener('click', (c) => c.stopImmediatePropagation(), {
      capture: true,
      once: true,
    });
    setTimeout(() => this.host.dispatchEvent(new Event('dragend')), 0);
    e.preventDefault();
  }

  private drop(): void {
    this.drag = null;
    this.invalidateOverlay();
  }

  private wheel(e: WheelEvent): void {
    if (!e.ctrlKey && !e.metaKey) return;
    e.preventDefault();
    zoom(this.full, e.deltaY > 0 ? 1.25 : 0.8, this.t(this.point(e)[0]));
  }
}
