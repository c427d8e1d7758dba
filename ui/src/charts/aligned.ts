// Two runs aligned by token: a track of each, in which every token is as wide as the other's, and a third with the
// difference of their energies. Of several tokens within one pixel the one that differs most is drawn.
import { energy, energyScale, energySigned, known, time, Z95 } from '../core/format';
import { fenceOf, ticks } from '../core/stats';
import { unit } from '../state/settings';
import { type Arrow, CanvasChart, fitText, type Rect, step } from './canvas';
import type { Colours } from './theme';
import type { Tip } from './tip';

export interface AlignedToken {
  position: number;
  text: string;
  ms: number;
  mj: number | null;
  sd: number | null;
}

export interface AlignedModel {
  names: [string, string];
  colours: [string, string];
  /** By position; null where only the other run has a token. */
  pairs: [AlignedToken | null, AlignedToken | null][];
  picked: number | null;
}

const LEFT = 64;
const RIGHT = 12;
const TRACK = 84;
const GAP = 8;
const AXIS = 20;
/** Fewer values do not say what is usual. */
const FEW = 6;

export const differenceOf = ([a, b]: AlignedModel['pairs'][number]): number | null =>
  known(a?.mj) && known(b?.mj) ? b.mj - a.mj : null;

const sdOf = ([a, b]: AlignedModel['pairs'][number]): number | null =>
  known(a?.sd) && known(b?.sd) ? Math.hypot(a.sd, b.sd) : null;

/** The end of a scale that a stall does not stretch. */
function end(values: number[]): number {
  const most = Math.max(1e-9, ...values);
  const fence = (values.length >= FEW ? fenceOf(values)?.hi : null) ?? most;
  return most > 3 * fence && fence > 0 ? fence : most;
}

export class Aligned extends CanvasChart<number> {
  static readonly HEIGHT = 3 * (TRACK + GAP) + AXIS;
  private m: AlignedModel | null = null;
  private tops: [number, number] = [1, 1];
  /** The visible positions. */
  private range: [number, number] | null = null;
  private drag: { from: number; to: number } | null = null;

  constructor(host: HTMLElement) {
    super(host);
    this.listen('pointerdown', (e) => {
      if (e.button === 0) this.drag = { from: this.point(e)[0], to: this.point(e)[0] };
    });
    this.listen('pointermove', (e) => {
      if (this.drag) this.drag.to = this.point(e)[0];
      if (this.drag) this.invalidateOverlay();
    });
    this.listen('pointerup', () => this.zoomTo());
    this.listen('dblclick', () => this.show(null));
  }

  set(model: AlignedModel): void {
    if (model.pairs !== this.m?.pairs) {
      this.range = null;
      const each = model.pairs.flatMap((p) => p.flatMap((t) => (known(t?.mj) ? [t.mj] : [])));
      const apart = model.pairs.flatMap((p) => Math.abs(differenceOf(p) ?? 0));
      this.tops = [end(each), end(apart)];
    }
    this.m = model;
    this.invalidate();
  }

  get count(): number {
    return this.m?.pairs.length ?? 0;
  }

  /** Zooms to a range of positions; null: all. */
  show(range: [number, number] | null): void {
    this.range = range;
    this.invalidate();
  }

  private get view(): [number, number] {
    return this.range ?? [0, Math.max(1, this.count)];
  }

  private x(i: number): number {
    const [a, b] = this.view;
    return LEFT + ((i - a) / (b - a)) * (this.width - LEFT - RIGHT);
  }

  private at(x: number): number {
    const [a, b] = this.view;
    return a + ((x - LEFT) / Math.max(1, this.width - LEFT - RIGHT)) * (b - a);
  }

  private zoomTo(): void {
    const d = this.drag;
    this.drag = null;
    this.invalidateOverlay();
    if (!d || Math.abs(d.to - d.from) < 6) return;
    const [a, b] = [this.at(d.from), this.at(d.to)].sort((p, q) => p - q);
    this.show([Math.max(0, Math.floor(a)), Math.min(this.count, Math.ceil(b))]);
    this.host.addEventListener('click', (c) => c.stopImmediatePropagation(), {
      capture: true,
      once: true,
    });
  }

  private trackY(k: number): number {
    return k * (TRACK + GAP);
  }

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    const m = this.m;
    if (!m) return;
    const names = [...m.names, `${m.names[1]} less ${m.names[0]}`];
    names.forEach((name, k) => {
      g.fillStyle = c.text2;
      g.fillText(fitText(g, name, LEFT - 8), 0, this.trackY(k) + 8);
      g.fillStyle = c.grid;
      g.fillRect(LEFT, this.baseY(k), this.width - LEFT - RIGHT, 1);
      const top = this.tops[k < 2 ? 0 : 1];
      const { factor, unit: u } = energyScale(top, unit.peek());
      g.fillStyle = c.text3;
      g.fillText(`${Number((top * factor).toPrecision(2))} ${u}`, 0, this.trackY(k) + 24);
    });
    g.save();
    g.beginPath();
    g.rect(LEFT, 0, this.width - LEFT - RIGHT, this.height);
    g.clip();
    for (const i of this.drawn()) this.bars(g, c, m, i);
    g.restore();
    this.axis(g, c);
  }

  /** Positions in view, at most one a pixel: the one that differs most. */
  private drawn(): number[] {
    const [a, b] = this.view;
    const pairs = this.m?.pairs ?? [];
    const [from, to] = [Math.floor(a), Math.min(pairs.length, Math.ceil(b))];
    if (to - from <= this.width) return Array.from({ length: to - from }, (_, i) => from + i);
    const best = new Map<number, number>();
    const size = (i: number) => Math.abs(differenceOf(pairs[i]) ?? 0);
    for (let i = from; i < to; i++) {
      const x = Math.floor(this.x(i));
      const other = best.get(x);
      if (other === undefined || size(i) > size(other)) best.set(x, i);
    }
    return [...best.values()];
  }

  private baseY(k: number): number {
    return this.trackY(k) + (k < 2 ? TRACK : TRACK / 2);
  }

  private bars(g: CanvasRenderingContext2D, c: Colours, m: AlignedModel, i: number): void {
    const x = this.x(i);
    const w = Math.max(1, this.x(i + 1) - x - (this.x(i + 1) - x > 3 ? 1 : 0));
    const pair = m.pairs[i];
    pair.forEach((t, k) => {
      if (!known(t?.mj)) return;
      const h = Math.min(1, t.mj / this.tops[0]) * (TRACK - 2);
      g.fillStyle = m.colours[k];
      g.globalAlpha = m.picked === i ? 1 : 0.75;
      g.fillRect(x, this.baseY(k) - h, w, h);
      g.globalAlpha = 1;
      // Cut: higher than the scale.
      if (t.mj > this.tops[0]) {
        g.fillStyle = c.surface;
        g.fillRect(x, this.baseY(k) - TRACK + 6, w, 2);
      }
    });
    const d = differenceOf(pair);
    if (d === null) return;
    const h = Math.min(1, Math.abs(d) / this.tops[1]) * (TRACK / 2 - 1);
    const base = this.baseY(2);
    const sd = sdOf(pair);
    // Pale where the two intervals leave the sign open.
    g.globalAlpha = sd !== null && Math.abs(d) < Z95 * sd ? 0.35 : 0.9;
    g.fillStyle = d > 0 ? c.danger : c.accent;
    g.fillRect(x, d > 0 ? base - h : base + 1, w, Math.max(1, h));
    g.globalAlpha = 1;
  }

  private axis(g: CanvasRenderingContext2D, c: Colours): void {
    const [a, b] = this.view;
    g.fillStyle = c.text3;
    g.textAlign = 'center';
    for (const v of ticks(a, b, Math.max(2, this.width / 110)).filter(Number.isInteger)) {
      const position = this.m?.pairs[v]?.find((t) => t)?.position;
      if (position !== undefined) g.fillText(String(position), this.x(v + 0.5), this.trackY(3) + 8);
    }
    g.textAlign = 'left';
  }

  protected override get overlaid(): boolean {
    return super.overlaid || this.drag !== null;
  }

  protected override paintOverlay(g: CanvasRenderingContext2D, c: Colours): void {
    if (this.drag) {
      const [x0, x1] = [this.drag.from, this.drag.to].sort((p, q) => p - q);
      g.fillStyle = c.accent;
      g.globalAlpha = 0.16;
      g.fillRect(x0, 0, x1 - x0, this.trackY(3));
      g.globalAlpha = 1;
    }
    super.paintOverlay(g, c);
  }

  protected override hit(x: number, y: number): number | null {
    if (x < LEFT || x > this.width - RIGHT || y > this.trackY(3)) return null;
    const i = Math.floor(this.at(x));
    return i >= 0 && i < this.count ? i : null;
  }

  protected override outline(i: number): Rect | null {
    const x = Math.max(LEFT, this.x(i));
    return { x, y: 0, w: Math.max(2, this.x(i + 1) - x), h: this.trackY(3) - GAP };
  }

  protected override next(i: number | null, key: Arrow): number | null {
    return step(i, key, this.count);
  }

  protected override tip(i: number): Tip | null {
    const m = this.m;
    const pair = m?.pairs[i];
    if (!m || !pair) return null;
    const u = unit.peek();
    const rows = pair.map((t, k): [string, string] => [
      m.names[k],
      t ? `${energy(t.mj, u)}, ${time(t.ms)}, ${JSON.stringify(t.text)}` : 'has no such token',
    ]);
    const d = differenceOf(pair);
    return {
      title: `Token ${pair.find((t) => t)?.position ?? i}`,
      rows: [...rows, ['Difference', d === null ? 'unavailable' : energySigned(d, sdOf(pair), u)]],
    };
  }
}
