// Base class of the canvas charts. It owns two stacked canvases (the chart, and an overlay that follows the
// pointer), their resolution, scheduling of repaints, pointer and keyboard events, and the tooltip. A chart
// defines how to paint, which mark is at a point, which mark an
// arrow key moves to, and the text of a mark's tooltip.
//
// `M` is the chart's type of a mark (a cell, a bar, a slice): usually its index.
import { effect } from '@preact/signals';
import { cancelFrame, nextFrame } from '../core/frame';
import { dark, rampName, unit } from '../state/settings';
import { type Colours, colours } from './theme';
import { hideTip, showTip, type Tip } from './tip';

export type Arrow = 'ArrowLeft' | 'ArrowRight' | 'ArrowUp' | 'ArrowDown' | 'Home' | 'End';
const ARROWS = new Set(['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown', 'Home', 'End']);

export interface Rect {
  x: number;
  y: number;
  w: number;
  h: number;
}

export abstract class CanvasChart<M = number> {
  protected readonly g: CanvasRenderingContext2D;
  /** Created lazily, because most charts never need an overlay. */
  protected o: CanvasRenderingContext2D | null = null;
  /** CSS pixels. */
  width = 0;
  height = 0;
  protected dpr = 1;
  protected hovered: M | null = null;
  protected focused: M | null = null;
  /** Time of the last paint in ms, for the performance tests. */
  paintMs = 0;
  paints = 0;
  /** Called on click or Enter on a mark (null: on the background). */
  onPick: (mark: M | null, event: MouseEvent | KeyboardEvent) => void = () => {};
  onHover: (mark: M | null) => void = () => {};
  onError: (error: unknown) => void = () => {};
  private readonly observer: ResizeObserver;
  private readonly stops: (() => void)[] = [];
  private dirty = false;
  private overlayDirty = false;

  constructor(readonly host: HTMLElement) {
    this.g = this.addCanvas();
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(host);
    this.listen('pointermove', (e) => this.pointerMove(e));
    this.listen('pointerleave', () => this.leave());
    this.listen('click', (e) => this.onPick(this.markAt(e), e));
    this.listen('keydown', (e) => this.key(e));
    this.listen('focus', () => this.invalidateOverlay());
    this.listen('blur', () => {
      hideTip(this);
      this.invalidateOverlay();
    });
    this.stops.push(
      effect(() => {
        dark.value;
        rampName.value;
        unit.value;
        this.invalidate();
      }),
    );
    for (const event of ['beforeprint', 'afterprint']) {
      addEventListener(event, this.reprint);
      this.stops.push(() => removeEventListener(event, this.reprint));
    }
    this.resize();
  }

  // ---- overridden by charts

  protected abstract paint(g: CanvasRenderingContext2D, c: Colours): void;
  protected paintOverlay(g: CanvasRenderingContext2D, c: Colours): void {
    const focus = document.activeElement === this.host ? this.focused : null;
    for (const mark of [this.hovered, focus]) {
      const r = mark === null ? null : this.outline(mark);
      if (r) ring(g, r, c);
    }
  }
  /** Whether paintOverlay would draw anything. */
  protected get overlaid(): boolean {
    return this.hovered !== null || this.focused !== null;
  }
  protected hit(_x: number, _y: number): M | null {
    return null;
  }
  protected outline(_mark: M): Rect | null {
    return null;
  }
  protected next(_mark: M | null, _key: Arrow): M | null {
    return null;
  }
  protected tip(_mark: M): Tip | null {
    return null;
  }

  // ---- for charts and their owners

  invalidate(): void {
    this.dirty = true;
    this.invalidateOverlay();
  }

  invalidateOverlay(): void {
    this.overlayDirty = true;
    nextFrame(this.frame);
  }

  protected listen<K extends keyof HTMLElementEventMap>(
    type: K,
    on: (e: HTMLElementEventMap[K]) => void,
    options?: AddEventListenerOptions,
  ): void {
    this.host.addEventListener(type, on, options);
    this.stops.push(() => this.host.removeEventListener(type, on, options));
  }

  protected own(stop: () => void): void {
    this.stops.push(stop);
  }

  protected point(e: MouseEvent): [number, number] {
    const r = this.host.getBoundingClientRect();
    return [e.clientX - r.left, e.clientY - r.top];
  }

  /** The chart with its background, for the PNG button. */
  async png(): Promise<Blob | null> {
    const out = document.createElement('canvas');
    out.width = this.g.canvas.width;
    out.height = this.g.canvas.height;
    const g = out.getContext('2d');
    if (!g) return null;
    g.fillStyle = colours().surface;
    g.fillRect(0, 0, out.width, out.height);
    g.drawImage(this.g.canvas, 0, 0);
    return new Promise((done) => out.toBlob(done, 'image/png'));
  }

  dispose(): void {
    cancelFrame(this.frame);
    this.observer.disconnect();
    for (const stop of this.stops) stop();
    hideTip(this);
    this.host.replaceChildren();
  }

  // ---- internals

  private addCanvas(): CanvasRenderingContext2D {
    const canvas = document.createElement('canvas');
    canvas.className = 'layer';
    this.host.append(canvas);
    const g = canvas.getContext('2d');
    if (!g) throw new Error('This browser offers no 2D canvas.');
    return g;
  }

  private resize(): void {
    const { clientWidth, clientHeight } = this.host;
    const dpr = Math.min(3, window.devicePixelRatio || 1);
    if (clientWidth === this.width && clientHeight === this.height && dpr === this.dpr) return;
    this.width = clientWidth;
    this.height = clientHeight;
    this.dpr = dpr;
    this.fit(this.g);
    if (this.o) this.fit(this.o);
    this.resized();
    this.invalidate();
    // Painted at once: a resized canvas is empty, and waiting a frame would flicker.
    if (this.paints) this.frame();
  }

  /** For paper, and then for the screen again: the browser makes no frames around printing. */
  private readonly reprint = (): void => {
    this.resize();
    this.frame();
  };

  private addOverlay(): CanvasRenderingContext2D {
    this.o = this.addCanvas();
    this.fit(this.o);
    return this.o;
  }

  private fit({ canvas }: CanvasRenderingContext2D): void {
    canvas.width = Math.max(1, Math.round(this.width * this.dpr));
    canvas.height = Math.max(1, Math.round(this.height * this.dpr));
  }

  protected resized(): void {}

  private readonly frame = (): void => {
    if (this.width === 0 || this.height === 0) return;
    try {
      if (this.dirty) {
        const t0 = performance.now();
        this.clear(this.g);
        this.paint(this.g, colours());
        this.paintMs = performance.now() - t0;
        this.paints++;
      }
      if (this.overlayDirty && (this.o || this.overlaid)) {
        const o = this.o ?? this.addOverlay();
        this.clear(o);
        this.paintOverlay(o, colours());
      }
    } catch (error) {
      this.onError(error);
    }
    this.dirty = this.overlayDirty = false;
  };

  private clear(g: CanvasRenderingContext2D): void {
    g.setTransform(this.dpr, 0, 0, this.dpr, 0, 0);
    g.clearRect(0, 0, this.width, this.height);
    g.globalAlpha = 1;
    g.setLineDash([]);
    g.font = `11px ${colours().font}`;
    g.textBaseline = 'middle';
    g.textAlign = 'left';
  }

  private markAt(e: MouseEvent): M | null {
    return this.hit(...this.point(e));
  }

  private pointerMove(e: PointerEvent): void {
    const mark = this.markAt(e);
    const changed = mark !== this.hovered;
    this.hovered = mark;
    const tip = mark === null ? null : this.tip(mark);
    if (tip) showTip(this, tip, e.clientX, e.clientY);
    else hideTip(this);
    if (changed) {
      this.onHover(mark);
      this.invalidateOverlay();
    }
  }

  private leave(): void {
    hideTip(this);
    if (this.hovered === null) return;
    this.hovered = null;
    this.onHover(null);
    this.invalidateOverlay();
  }

  private key(e: KeyboardEvent): void {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === 'Enter' && this.focused !== null) {
      e.preventDefault();
      this.onPick(this.focused, e);
      return;
    }
    if (!ARROWS.has(e.key)) return;
    const mark = this.next(this.focused, e.key as Arrow);
    if (mark === null) return;
    e.preventDefault();
    e.stopPropagation();
    this.focused = mark;
    this.onHover(mark);
    this.invalidateOverlay();
    const tip = this.tip(mark);
    const r = this.outline(mark);
    const box = this.host.getBoundingClientRect();
    if (tip && r) showTip(this, tip, box.left + r.x + r.w / 2, box.top + r.y + r.h / 2, true);
  }
}

/** A ring visible on any colour: dark inside light. */
export function ring(g: CanvasRenderingContext2D, r: Rect, c: Colours): void {
  g.lineWidth = 3;
  g.strokeStyle = c.surface;
  g.strokeRect(r.x, r.y, r.w, r.h);
  g.lineWidth = 1.5;
  g.strokeStyle = c.text;
  g.strokeRect(r.x, r.y, r.w, r.h);
}

/** Text truncated to a width with an ellipsis; empty if fewer than three letters fit. */
export function fitText(g: CanvasRenderingContext2D, text: string, width: number): string {
  if (g.measureText(text).width <= width) return text;
  let lo = 0;
  let hi = text.length;
  while (lo < hi) {
    const mid = (lo + hi + 1) >> 1;
    if (g.measureText(`${text.slice(0, mid)}…`).width <= width) lo = mid;
    else hi = mid - 1;
  }
  return lo < 3 ? '' : `${text.slice(0, lo)}…`;
}

/** Moves an index among n marks with the arrow keys. */
export function step(mark: number | null, key: Arrow, n: number): number | null {
  if (n === 0) return null;
  if (mark === null) return key === 'End' ? n - 1 : 0;
  if (key === 'Home') return 0;
  if (key === 'End') return n - 1;
  const by = key === 'ArrowRight' || key === 'ArrowDown' ? 1 : -1;
  return Math.max(0, Math.min(n - 1, mark + by));
}
