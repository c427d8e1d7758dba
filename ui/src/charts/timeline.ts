// The run as lanes of slices: phases, the sections of the phases that are open, tokens. Width is
// duration, colour is energy within the lane; a slice without energy is hatched.
import { energyInterval, known, time } from '../core/format';
import { css, inkOn, level, ramp } from '../core/ramp';
import { extent, fenceOf } from '../core/stats';
import type { Range } from '../state/selection';
import { rampName } from '../state/settings';
import { type Arrow, fitText, type Rect } from './canvas';
import { type Colours, hatch } from './theme';
import { LEFT, RIGHT, TimeChart } from './time_chart';
import type { Tip } from './tip';

export interface Slice {
  lane: number;
  start: number;
  duration: number;
  label: string;
  energy: number | null;
  sd: number | null;
  kind: 'phase' | 'section' | 'token';
  phase: string;
  token: number | null;
  rows?: [string, string][];
}

/** The colour scale of a lane. In a long lane one slice (the prompt among the tokens) would turn all
 * others dark, so the scale then ends a fence's reach beyond the quartiles. */
function spreadOf(slices: Slice[]): [number, number] | null {
  const v = slices.flatMap((s) => (known(s.energy) ? [s.energy] : []));
  if (v.length < 12) return extent(v);
  const f = fenceOf(v);
  return f && [f.lo, f.hi];
}

const LANE = 26;
const GAP = 4;

export class Timeline extends TimeChart<number> {
  private slices: Slice[] = [];
  private lanes: string[] = [];
  private scale: ([number, number] | null)[] = [];
  private picked: (s: Slice) => boolean = () => false;

  set(full: Range, lanes: string[], slices: Slice[], picked: (s: Slice) => boolean): void {
    this.full = full;
    this.lanes = lanes;
    this.picked = picked;
    if (slices !== this.slices) {
      this.slices = slices;
      this.focused = this.hovered = null;
      this.scale = lanes.map((_, i) => spreadOf(slices.filter((s) => s.lane === i)));
    }
    this.invalidate();
  }

  get count(): number {
    return this.slices.length;
  }

  slice(i: number): Slice {
    return this.slices[i];
  }

  static height(lanes: number): number {
    return lanes * (LANE + GAP) + 22;
  }

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    const bottom = this.lanes.length * (LANE + GAP);
    this.timeAxis(g, c, 0, bottom);
    g.fillStyle = c.text2;
    this.lanes.forEach((name, i) => {
      g.fillText(name, 0, i * (LANE + GAP) + LANE / 2);
    });
    g.save();
    this.clipPlot(g);
    const lastX = new Float64Array(this.lanes.length).fill(-1);
    const lut = ramp(rampName.value);
    const stripes = hatch(g, this.dpr);
    for (const s of this.slices) {
      const x0 = Math.max(LEFT - 2, this.x(s.start));
      const x1 = Math.min(this.width - RIGHT + 2, this.x(s.start + s.duration));
      if (x1 < LEFT || x0 > this.width - RIGHT) continue;
      // Slices thinner than half a pixel would only repaint the same column.
      if (x1 < lastX[s.lane] + 0.5 && x1 - x0 < 0.5) continue;
      lastX[s.lane] = x1;
      const y = s.lane * (LANE + GAP);
      const w = Math.max(1, x1 - x0 - (x1 - x0 > 3 ? 1 : 0));
      const e = this.scale[s.lane];
      const pixel = known(s.energy) && e ? lut[level(s.energy, e[0], e[1])] : null;
      g.fillStyle = pixel === null ? stripes : css(pixel);
      g.fillRect(x0, y, w, LANE);
      if (w > 28) {
        g.fillStyle = pixel === null ? c.text : inkOn(pixel);
        g.fillText(fitText(g, s.label, w - 10), Math.max(x0, LEFT) + 5, y + LANE / 2 + 0.5);
      }
      if (this.picked(s)) {
        g.strokeStyle = c.text;
        g.lineWidth = 2;
        g.strokeRect(x0 + 1, y + 1, Math.max(1, w - 2), LANE - 2);
      }
    }
    g.restore();
  }

  protected override hit(x: number, y: number): number | null {
    if (x < LEFT || x > this.width - RIGHT) return null;
    const lane = Math.floor(y / (LANE + GAP));
    if (lane >= this.lanes.length || y - lane * (LANE + GAP) > LANE) return null;
    const t = this.t(x);
    const slack = this.t(x + 1.5) - t;
    let best: number | null = null;
    for (let i = 0; i < this.slices.length; i++) {
      const s = this.slices[i];
      if (s.lane !== lane || t < s.start - slack || t > s.start + s.duration + slack) continue;
      if (t >= s.start && t <= s.start + s.duration) return i;
      best = i;
    }
    return best;
  }

  protected override outline(i: number): Rect | null {
    const s = this.slices[i];
    if (!s) return null;
    const x = Math.max(LEFT, this.x(s.start));
    const w = Math.min(this.width - RIGHT, this.x(s.start + s.duration)) - x;
    return { x, y: s.lane * (LANE + GAP), w: Math.max(2, w), h: LANE };
  }

  protected override next(i: number | null, key: Arrow): number | null {
    const n = this.slices.length;
    if (n === 0) return null;
    if (i === null) return 0;
    const now = this.slices[i];
    if (key === 'Home') return 0;
    if (key === 'End') return n - 1;
    if (key === 'ArrowLeft' || key === 'ArrowRight') {
      const by = key === 'ArrowRight' ? 1 : -1;
      for (let k = i + by; k >= 0 && k < n; k += by) if (this.slices[k].lane === now.lane) return k;
      return i;
    }
    const lane = now.lane + (key === 'ArrowDown' ? 1 : -1);
    const middle = now.start + now.duration / 2;
    let best = i;
    let gap = Number.POSITIVE_INFINITY;
    this.slices.forEach((s, k) => {
      const d = Math.abs(s.start + s.duration / 2 - middle);
      if (s.lane === lane && d < gap) {
        gap = d;
        best = k;
      }
    });
    return best;
  }

  protected override tip(i: number): Tip | null {
    const s = this.slices[i];
    if (!s) return null;
    return {
      title: s.label,
      rows: [
        ['Duration', time(s.duration)],
        ['Energy', energyInterval(s.energy, s.sd)],
        ...(known(s.energy) && s.duration > 0
          ? ([['Mean power', `${((s.energy / s.duration) * 1).toPrecision(3)} W`]] as [
              string,
              string,
            ][])
          : []),
        ...(s.rows ?? []),
      ],
    };
  }
}
