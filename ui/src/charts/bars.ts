// Groups of horizontal bars, one bar a run: the normalised metrics of a comparison.
import { type Arrow, CanvasChart, fitText, type Rect, step } from './canvas';
import { type Colours, colours, hatch } from './theme';
import type { Tip } from './tip';

export interface BarGroup {
  label: string;
  bars: { value: number | null; colour: string; text: string; name: string }[];
}

const BAR = 12;
const PAD = 12;

export class GroupedBars extends CanvasChart<number> {
  private groups: BarGroup[] = [];
  private max = 1;
  private widest = 0;

  static height(groups: number, bars: number): number {
    return groups * (bars * (BAR + 2) + PAD) + 8;
  }

  set(groups: BarGroup[]): void {
    this.groups = groups;
    this.g.font = `11px ${colours().font}`;
    this.widest = Math.max(0, ...groups.map((g) => this.g.measureText(g.label).width));
    this.max = Math.max(1, ...groups.flatMap((g) => g.bars.map((b) => b.value ?? 0)));
    this.invalidate();
  }

  /** Room for the longest label, at most two fifths. */
  private get left(): number {
    return Math.min(this.widest + 14, this.width * 0.42);
  }

  private x(v: number): number {
    return this.left + (v / this.max) * Math.max(1, this.width - this.left - 84);
  }

  private place(i: number): { group: number; bar: number; y: number } | null {
    let k = i;
    let y = 4;
    for (let g = 0; g < this.groups.length; g++) {
      const n = this.groups[g].bars.length;
      if (k < n) return { group: g, bar: k, y: y + k * (BAR + 2) };
      k -= n;
      y += n * (BAR + 2) + PAD;
    }
    return null;
  }

  private get total(): number {
    return this.groups.reduce((s, g) => s + g.bars.length, 0);
  }

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    const one = Math.round(this.x(1)) + 0.5;
    g.strokeStyle = c.line;
    g.setLineDash([3, 3]);
    g.beginPath();
    g.moveTo(one, 0);
    g.lineTo(one, this.height);
    g.stroke();
    g.setLineDash([]);
    const stripes = hatch(g, this.dpr);
    let y = 4;
    for (const group of this.groups) {
      const h = group.bars.length * (BAR + 2);
      g.textAlign = 'right';
      g.fillStyle = c.text2;
      g.fillText(fitText(g, group.label, this.left - 14), this.left - 10, y + h / 2);
      g.textAlign = 'left';
      for (const b of group.bars) {
        const w = b.value === null ? 40 : Math.max(1, this.x(b.value) - this.left);
        g.fillStyle = b.value === null ? stripes : b.colour;
        g.fillRect(this.left, y, w, BAR);
        g.fillStyle = c.text2;
        g.fillText(b.text, this.left + w + 6, y + BAR / 2 + 0.5);
        y += BAR + 2;
      }
      y += PAD;
    }
  }

  protected override hit(_x: number, y: number): number | null {
    for (let i = 0; i < this.total; i++) {
      const p = this.place(i);
      if (p && y >= p.y - 1 && y < p.y + BAR + 1) return i;
    }
    return null;
  }

  protected override outline(i: number): Rect | null {
    const p = this.place(i);
    if (!p) return null;
    const b = this.groups[p.group].bars[p.bar];
    const w = b.value === null ? 40 : Math.max(2, this.x(b.value) - this.left);
    return { x: this.left, y: p.y, w, h: BAR };
  }

  protected override next(i: number | null, key: Arrow): number | null {
    return step(i, key, this.total);
  }

  protected override tip(i: number): Tip | null {
    const p = this.place(i);
    if (!p) return null;
    const g = this.groups[p.group];
    const b = g.bars[p.bar];
    return { title: g.label, rows: [[b.name, b.text]] };
  }
}
