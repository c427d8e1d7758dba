// Heatmap: layers on the x axis, components on the y axis, one colour per cell. Each cell is
// written as one pixel into an ImageData, which is scaled up without smoothing, so that 80 × 12
// cells take a tenth of a millisecond. Cells without a value are hatched.
import { css, level, ramp } from '../core/ramp';
import { rampName } from '../state/settings';
import { type Arrow, CanvasChart, fitText, type Rect } from './canvas';
import { type Colours, hatch } from './theme';
import type { Tip } from './tip';

export interface Grid {
  /** Layer indices in order; -1: outside the layers. */
  layers: number[];
  components: string[];
  /** layers × components, row-major by layer; NaN is unavailable. */
  values: Float32Array;
  lo: number;
  hi: number;
  /** Values above `hi` exist and are clamped to its colour. */
  clipped?: boolean;
  /** Logarithmic colour scale: `lo` and `hi` are above 0. */
  log?: boolean;
  show: (value: number) => string;
  unit: string;
  /** Axis names, if not layers and components. */
  axes?: { x: string; column: (index: number) => string };
}

/** Position of a value on the grid's colour ramp. */
const gridLevel = (g: Grid, v: number): number =>
  g.log ? level(Math.log(Math.max(v, g.lo)), Math.log(g.lo), Math.log(g.hi)) : level(v, g.lo, g.hi);

const TOP = 4;
const BOTTOM = 18;

export class Heatmap extends CanvasChart<number> {
  private grid: Grid | null = null;
  private pixels: ImageData | null = null;
  private readonly small = document.createElement('canvas');
  private picked = -1;
  extraTip: (layer: number, component: string) => [string, string][] = () => [];

  set(grid: Grid, picked: { layer: number | null; component: string | null } | null = null): void {
    this.grid = grid;
    const l = picked?.layer == null ? -1 : grid.layers.indexOf(picked.layer);
    const c = picked?.component == null ? -1 : grid.components.indexOf(picked.component);
    this.picked = l >= 0 && c >= 0 ? l * grid.components.length + c : -1;
    this.invalidate();
  }

  layerOf(cell: number): number {
    const g = this.grid!;
    return g.layers[Math.floor(cell / g.components.length)];
  }

  componentOf(cell: number): string {
    const g = this.grid!;
    return g.components[cell % g.components.length];
  }

  private get left(): number {
    return this.width < 480 ? 84 : 150;
  }

  private plot(): Rect {
    return { x: this.left, y: TOP, w: this.width - this.left - 8, h: this.height - TOP - BOTTOM };
  }

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    const grid = this.grid;
    if (!grid || grid.layers.length === 0) return;
    const p = this.plot();
    const nx = grid.layers.length;
    const ny = grid.components.length;
    if (!this.pixels || this.pixels.width !== nx || this.pixels.height !== ny) {
      this.small.width = nx;
      this.small.height = ny;
      this.pixels = new ImageData(nx, ny);
    }
    const px = new Uint32Array(this.pixels.data.buffer);
    const lut = ramp(rampName.value);
    let holes = false;
    for (let x = 0; x < nx; x++) {
      for (let y = 0; y < ny; y++) {
        const v = grid.values[x * ny + y];
        const blank = Number.isNaN(v);
        holes ||= blank;
        px[y * nx + x] = blank ? 0 : lut[gridLevel(grid, v)];
      }
    }
    if (holes) {
      g.fillStyle = hatch(g, this.dpr);
      g.fillRect(p.x, p.y, p.w, p.h);
    }
    this.small.getContext('2d')?.putImageData(this.pixels, 0, 0);
    g.imageSmoothingEnabled = false;
    g.drawImage(this.small, p.x, p.y, p.w, p.h);
    this.lines(g, c, p, nx, ny);
    this.labels(g, c, p, grid);
  }

  /** Thin gaps between cells, if these are large enough. */
  private lines(g: CanvasRenderingContext2D, c: Colours, p: Rect, nx: number, ny: number): void {
    g.fillStyle = c.surface;
    if (p.w / nx > 7)
      for (let i = 1; i < nx; i++) g.fillRect(p.x + (i * p.w) / nx - 0.5, p.y, 1, p.h);
    if (p.h / ny > 7)
      for (let i = 1; i < ny; i++) g.fillRect(p.x, p.y + (i * p.h) / ny - 0.5, p.w, 1);
    if (this.picked >= 0) {
      const r = this.outline(this.picked);
      if (!r) return;
      g.strokeStyle = c.text;
      g.lineWidth = 2;
      g.strokeRect(r.x, r.y, r.w, r.h);
    }
  }

  private labels(g: CanvasRenderingContext2D, c: Colours, p: Rect, grid: Grid): void {
    const ny = grid.components.length;
    const nx = grid.layers.length;
    const every = Math.max(1, Math.ceil(12 / (p.h / ny)));
    g.textAlign = 'right';
    g.fillStyle = c.text2;
    for (let y = 0; y < ny; y += every) {
      const text = fitText(g, grid.components[y], this.left - 12);
      g.fillText(text, p.x - 8, p.y + ((y + 0.5) * p.h) / ny);
    }
    // Tokens of a long run have four digits: the widest label decides the distance.
    const widest = g.measureText(String(grid.layers[nx - 1] ?? 0)).width + 12;
    const gap = Math.max(1, Math.ceil(Math.max(26, widest) / (p.w / nx)));
    g.textAlign = 'center';
    g.fillStyle = c.text3;
    for (let x = 0; x < nx; x += gap) {
      const name = grid.layers[x] < 0 ? 'out' : String(grid.layers[x]);
      g.fillText(name, p.x + ((x + 0.5) * p.w) / nx, this.height - 8);
    }
    g.textAlign = 'right';
    g.fillText(grid.axes?.x ?? 'layer', p.x - 8, this.height - 8);
  }

  protected override hit(x: number, y: number): number | null {
    const grid = this.grid;
    if (!grid) return null;
    const p = this.plot();
    const i = Math.floor(((x - p.x) / p.w) * grid.layers.length);
    const j = Math.floor(((y - p.y) / p.h) * grid.components.length);
    if (i < 0 || j < 0 || i >= grid.layers.length || j >= grid.components.length) return null;
    return i * grid.components.length + j;
  }

  protected override outline(cell: number): Rect | null {
    const grid = this.grid;
    if (!grid) return null;
    const p = this.plot();
    const ny = grid.components.length;
    const w = p.w / grid.layers.length;
    const h = p.h / ny;
    return { x: p.x + Math.floor(cell / ny) * w, y: p.y + (cell % ny) * h, w, h };
  }

  protected override next(cell: number | null, key: Arrow): number | null {
    const grid = this.grid;
    if (!grid || grid.values.length === 0) return null;
    if (cell === null) return 0;
    const ny = grid.components.length;
    const i = Math.floor(cell / ny);
    const j = cell % ny;
    const move: Record<Arrow, [number, number]> = {
      ArrowLeft: [i - 1, j],
      ArrowRight: [i + 1, j],
      ArrowUp: [i, j - 1],
      ArrowDown: [i, j + 1],
      Home: [0, j],
      End: [grid.layers.length - 1, j],
    };
    const x = Math.max(0, Math.min(grid.layers.length - 1, move[key][0]));
    const y = Math.max(0, Math.min(ny - 1, move[key][1]));
    return x * ny + y;
  }

  protected override tip(cell: number): Tip | null {
    const grid = this.grid;
    if (!grid) return null;
    const layer = this.layerOf(cell);
    const component = this.componentOf(cell);
    return {
      title: `${grid.axes?.column(layer) ?? (layer < 0 ? 'Outside the layers' : `Layer ${layer}`)}, ${component}`,
      rows: [[grid.unit, grid.show(grid.values[cell])], ...this.extraTip(layer, component)],
    };
  }

  /** State for tests. */
  get shape(): [number, number] {
    return [this.grid?.layers.length ?? 0, this.grid?.components.length ?? 0];
  }

  colourOf(cell: number): string {
    const v = this.grid!.values[cell];
    return css(ramp(rampName.value)[gridLevel(this.grid!, v)]);
  }
}
