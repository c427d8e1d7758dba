// Colours and labels of slices, remembered: a timeline paints thousands of them in every frame, and parsing a
// colour or measuring a text costs more than filling a rectangle.
import { blend, css, inkOn } from '../core/ramp';
import { fitText } from './canvas';
import { type Colours, hatch } from './theme';

export interface Fill {
  style: string | CanvasPattern;
  /** Of text on it. */
  ink: string;
}

/** Steps of strength that the eye tells apart. */
const STEPS = 48;
const MOST_LABELS = 4000;
const GRID = 8;

export class SlicePaint {
  private theme: Colours | null = null;
  private fills = new Map<string, Fill[]>();
  private unknown: Fill = { style: '', ink: '' };
  private labels = new Map<string, string>();

  /** Before each paint. */
  begin(g: CanvasRenderingContext2D, c: Colours, dpr: number): void {
    if (this.theme !== c) {
      this.theme = c;
      this.fills.clear();
    }
    this.unknown = { style: hatch(g, dpr), ink: c.text };
  }

  /** `strength`: NaN where the energy is unknown. */
  fill(phase: string, strength: number): Fill {
    const c = this.theme;
    if (!c || Number.isNaN(strength)) return this.unknown;
    let of = this.fills.get(phase);
    if (!of) {
      of = [];
      this.fills.set(phase, of);
    }
    const k = Math.round(strength * STEPS);
    if (!of[k]) {
      const pixel = blend(c.phase[phase] ?? c.text3, k / STEPS, c.surface);
      of[k] = { style: css(pixel), ink: inkOn(pixel) };
    }
    return of[k];
  }

  label(g: CanvasRenderingContext2D, text: string, width: number): string {
    const w = Math.floor(width / GRID) * GRID;
    const key = `${w} ${text}`;
    let fitted = this.labels.get(key);
    if (fitted === undefined) {
      if (this.labels.size > MOST_LABELS) this.labels.clear();
      fitted = fitText(g, text, w);
      this.labels.set(key, fitted);
    }
    return fitted;
  }
}
