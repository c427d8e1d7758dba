// Energy per token with its 95 % interval as a whisker, anomalies marked, and the cumulative
// energy as a line on the right-hand axis. The scale is that of the decode tokens: the prompt, or a token
// that the machine held up, can take a thousand times as much, and its bar is cut.
import { energy, energyInterval, energyScale, known, time, timeScale, Z95 } from '../core/format';
import { fenceOf, ticks } from '../core/stats';
import { type Arrow, CanvasChart, type Rect, step } from './canvas';
import { type Colours, hatch } from './theme';
import type { Tip } from './tip';

export interface TokenBar {
  token: number;
  text: string;
  phase: string;
  start: number;
  duration: number;
  /** mJ, null is unavailable. */
  value: number | null;
  sd: number | null;
  cumulative: number | null;
  anomaly: string | null;
}

/** Fewer decode tokens do not say what is usual. */
const FEW = 6;
/** How far beyond the usual a bar must reach for the scale to end before it. */
const FAR = 3;

/** The end of the scale, and whether bars reach beyond it. */
export function scaleEnd(bars: readonly TokenBar[]): { top: number; cut: boolean } {
  const reach = (b: TokenBar) => (b.value ?? 0) + Z95 * Math.max(0, b.sd ?? 0);
  const most = Math.max(1e-9, ...bars.map(reach));
  const decode = bars.flatMap((b) => (b.phase === 'decode' && known(b.value) ? [b.value] : []));
  const fence = decode.length >= FEW ? fenceOf(decode) : null;
  return fence && fence.hi > 0 && most > FAR * fence.hi
    ? { top: fence.hi, cut: true }
    : { top: most, cut: false };
}

const LEFT = 64;
const RIGHT = 58;
const TOP = 12;
const BOTTOM = 22;

export class Waterfall extends CanvasChart<number> {
  private bars: TokenBar[] = [];
  private picked: number | null = null;
  private top = 1;
  private sum = 0;
  private inRange: (b: TokenBar) => boolean = () => true;
  /** Values are milliseconds: the run has no energy. */
  private timed = false;

  set(
    bars: TokenBar[],
    picked: number | null,
    inRange: (b: TokenBar) => boolean,
    timed = false,
  ): void {
    this.timed = timed;
    this.bars = bars;
    this.picked = picked;
    this.inRange = inRange;
    this.top = scaleEnd(bars).top;
    this.sum = 0;
    for (const b of bars) if (known(b.cumulative)) this.sum = Math.max(this.sum, b.cumulative);
    this.invalidate();
  }

  get count(): number {
    return this.bars.length;
  }

  bar(i: number): TokenBar {
    return this.bars[i];
  }

  private get plotWidth(): number {
    return Math.max(1, this.width - LEFT - RIGHT);
  }

  private x(i: number): number {
    return LEFT + (i / Math.max(1, this.bars.length)) * this.plotWidth;
  }

  private y(mj: number): number {
    return TOP + (1 - Math.min(1, mj / (this.top * 1.05))) * (this.height - TOP - BOTTOM);
  }

  private isCut(b: TokenBar): boolean {
    return (b.value ?? 0) > this.top * 1.05;
  }

  private cumY(mj: number): number {
    return TOP + (1 - mj / (this.sum * 1.05 || 1)) * (this.height - TOP - BOTTOM);
  }

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    this.axes(g, c);
    const bottom = this.height - BOTTOM;
    const w = this.plotWidth / Math.max(1, this.bars.length);
    const gap = w > 4 ? 1 : 0;
    const stripes = hatch(g, this.dpr);
    this.bars.forEach((b, i) => {
      const x = this.x(i);
      const wide = Math.max(0.75, w - gap);
      if (!known(b.value)) {
        g.fillStyle = stripes;
        g.fillRect(x, TOP, wide, bottom - TOP);
        return;
      }
      g.globalAlpha = this.inRange(b) ? 1 : 0.25;
      g.fillStyle = i === this.picked ? c.accent : (c.phase[b.phase] ?? c.text3);
      const y = this.y(Math.max(0, b.value));
      g.fillRect(x, y, wide, bottom - y);
      if (this.isCut(b)) this.cutMark(g, c, x, wide);
      else if (w >= 3 && known(b.sd) && b.sd > 0) {
        const m = Math.round(x + wide / 2) + 0.5;
        g.strokeStyle = c.text2;
        g.lineWidth = 1;
        g.beginPath();
        g.moveTo(m, this.y(b.value + Z95 * b.sd));
        g.lineTo(m, this.y(Math.max(0, b.value - Z95 * b.sd)));
        g.stroke();
      }
      g.globalAlpha = 1;
      if (b.anomaly) {
        const m = x + wide / 2;
        g.fillStyle = c.danger;
        g.beginPath();
        g.moveTo(m - 4, y - 10);
        g.lineTo(m + 4, y - 10);
        g.lineTo(m, y - 4);
        g.fill();
      }
    });
    this.cumulative(g, c);
  }

  /** A slanted gap near the top of a bar that goes on beyond the scale. */
  private cutMark(g: CanvasRenderingContext2D, c: Colours, x: number, wide: number): void {
    g.fillStyle = c.surface;
    g.beginPath();
    g.moveTo(x, TOP + 12);
    g.lineTo(x + wide, TOP + 8);
    g.lineTo(x + wide, TOP + 11);
    g.lineTo(x, TOP + 15);
    g.fill();
  }

  private axes(g: CanvasRenderingContext2D, c: Colours): void {
    const bottom = this.height - BOTTOM;
    const scale = (v: number) => (this.timed ? timeScale(v) : energyScale(v));
    const left = scale(this.top);
    for (const m of ticks(0, this.top * left.factor, Math.max(2, (bottom - TOP) / 40))) {
      const y = Math.round(this.y(m / left.factor)) + 0.5;
      g.strokeStyle = c.grid;
      g.lineWidth = 1;
      g.beginPath();
      g.moveTo(LEFT, y);
      g.lineTo(this.width - RIGHT, y);
      g.stroke();
      g.textAlign = 'right';
      g.fillStyle = c.text3;
      g.fillText(`${Number(m.toPrecision(6))} ${left.unit}`, LEFT - 8, Math.max(7, y));
    }
    if (this.sum > 0) {
      const right = scale(this.sum);
      g.textAlign = 'left';
      for (const m of ticks(0, this.sum * right.factor, Math.max(2, (bottom - TOP) / 40))) {
        g.fillText(
          `${Number(m.toPrecision(6))} ${right.unit}`,
          this.width - RIGHT + 8,
          Math.max(7, this.cumY(m / right.factor)),
        );
      }
    }
    g.textAlign = 'center';
    for (const t of ticks(0, this.bars.length, Math.max(2, this.width / 90))) {
      if (t !== Math.floor(t) || t >= this.bars.length) continue;
      g.fillText(String(this.bars[t].token), this.x(t + 0.5), this.height - 9);
    }
    g.textAlign = 'left';
  }

  private cumulative(g: CanvasRenderingContext2D, c: Colours): void {
    if (this.sum <= 0) return;
    g.strokeStyle = c.text;
    g.lineWidth = 1.5;
    g.beginPath();
    let open = false;
    this.bars.forEach((b, i) => {
      if (!known(b.cumulative)) {
        open = false;
        return;
      }
      const x = this.x(i + 0.5);
      const y = this.cumY(b.cumulative);
      if (open) g.lineTo(x, y);
      else g.moveTo(x, y);
      open = true;
    });
    g.stroke();
  }

  protected override hit(x: number, y: number): number | null {
    if (y > this.height - BOTTOM || x < LEFT) return null;
    const i = Math.floor(((x - LEFT) / this.plotWidth) * this.bars.length);
    return i >= 0 && i < this.bars.length ? i : null;
  }

  protected override outline(i: number): Rect | null {
    const b = this.bars[i];
    if (!b) return null;
    const y = known(b.value) ? this.y(b.value) : TOP;
    const w = Math.max(2, this.plotWidth / this.bars.length);
    return { x: this.x(i), y, w, h: this.height - BOTTOM - y };
  }

  protected override next(i: number | null, key: Arrow): number | null {
    return step(i ?? this.picked, key, this.bars.length);
  }

  protected override tip(i: number): Tip | null {
    const b = this.bars[i];
    if (!b) return null;
    return {
      title: `Token ${b.token}${b.text ? `: ${JSON.stringify(b.text)}` : ''}`,
      rows: [
        ...(this.timed ? [] : ([['Energy', energyInterval(b.value, b.sd)]] as [string, string][])),
        ['Duration', time(b.duration)],
        ['Up to here', this.timed ? time(b.cumulative) : energy(b.cumulative)],
        ...(b.anomaly ? ([['Anomaly', b.anomaly]] as [string, string][]) : []),
      ],
    };
  }
}
