// Box plots, one per phase: quartiles, median, Tukey's whiskers, the mean as a dot, the extremes
// as ticks.
import { power, powerScale } from '../core/format';
import { type Box, ticks } from '../core/stats';
import { type Arrow, CanvasChart, type Rect, step } from './canvas';
import type { Colours } from './theme';
import type { Tip } from './tip';

export interface BoxRow {
  label: string;
  colour: string;
  box: Box;
}

const BOTTOM = 20;

export class BoxPlot extends CanvasChart<number> {
  private rows: BoxRow[] = [];
  private top = 1;

  set(rows: BoxRow[]): void {
    this.rows = rows;
    this.top = Math.max(1e-9, ...rows.map((r) => r.box.max));
    this.invalidate();
  }

  private get left(): number {
    return this.width < 420 ? 88 : 108;
  }

  private x(mw: number): number {
    return this.left + (mw / (this.top * 1.04)) * (this.width - this.left - 12);
  }

  private laneHeight(): number {
    return (this.height - BOTTOM) / Math.max(1, this.rows.length);
  }

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    const bottom = this.height - BOTTOM;
    const { factor, unit } = powerScale(this.top);
    g.textAlign = 'center';
    for (const m of ticks(0, this.top * factor, Math.max(2, this.width / 90))) {
      const x = Math.round(this.x(m / factor)) + 0.5;
      g.strokeStyle = c.grid;
      g.beginPath();
      g.moveTo(x, 0);
      g.lineTo(x, bottom);
      g.stroke();
      g.fillStyle = c.text3;
      g.fillText(`${Number(m.toPrecision(6))} ${unit}`, Math.min(x, this.width - 18), bottom + 10);
    }
    const lane = this.laneHeight();
    this.rows.forEach((row, i) => {
      const y = lane * (i + 0.5);
      g.textAlign = 'right';
      g.fillStyle = c.text2;
      g.fillText(row.label, this.left - 10, y);
      this.drawBox(g, c, row, y, Math.min(22, lane * 0.55));
    });
  }

  private drawBox(
    g: CanvasRenderingContext2D,
    c: Colours,
    { box, colour }: BoxRow,
    y: number,
    h: number,
  ): void {
    g.strokeStyle = c.text2;
    g.lineWidth = 1;
    const line = (x0: number, y0: number, x1: number, y1: number) => {
      g.beginPath();
      g.moveTo(x0, y0);
      g.lineTo(x1, y1);
      g.stroke();
    };
    line(this.x(box.lowWhisker), y, this.x(box.q1), y);
    line(this.x(box.q3), y, this.x(box.highWhisker), y);
    for (const w of [box.lowWhisker, box.highWhisker])
      line(this.x(w), y - h / 4, this.x(w), y + h / 4);
    g.globalAlpha = 0.3;
    g.fillStyle = colour;
    const w = Math.max(2, this.x(box.q3) - this.x(box.q1));
    g.fillRect(this.x(box.q1), y - h / 2, w, h);
    g.globalAlpha = 1;
    g.strokeStyle = colour;
    g.lineWidth = 1.5;
    g.strokeRect(this.x(box.q1), y - h / 2, w, h);
    g.strokeStyle = c.text;
    g.lineWidth = 2;
    line(this.x(box.median), y - h / 2, this.x(box.median), y + h / 2);
    g.fillStyle = c.text;
    g.beginPath();
    g.arc(this.x(box.mean), y, 2.5, 0, 7);
    g.fill();
    g.lineWidth = 1;
    g.strokeStyle = c.text3;
    for (const v of [box.min, box.max]) line(this.x(v), y - 2, this.x(v), y + 2);
  }

  protected override hit(_x: number, y: number): number | null {
    const i = Math.floor(y / this.laneHeight());
    return i >= 0 && i < this.rows.length ? i : null;
  }

  protected override outline(i: number): Rect | null {
    const b = this.rows[i]?.box;
    if (!b) return null;
    const lane = this.laneHeight();
    const x = this.x(b.min) - 4;
    return { x, y: lane * i + 4, w: this.x(b.max) - x + 4, h: lane - 8 };
  }

  protected override next(i: number | null, key: Arrow): number | null {
    return step(i, key, this.rows.length);
  }

  protected override tip(i: number): Tip | null {
    const row = this.rows[i];
    if (!row) return null;
    const b = row.box;
    return {
      title: row.label,
      rows: [
        ['Samples', b.n.toLocaleString('en-US')],
        ['Median', power(b.median)],
        ['Quartiles', `${power(b.q1)} to ${power(b.q3)}`],
        ['Mean', power(b.mean)],
        ['Range', `${power(b.min)} to ${power(b.max)}`],
      ],
    };
  }
}
