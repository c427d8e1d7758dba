// Power over time with uPlot: the five rails as lines, phases as a shaded background, markers for
// anomalies and the peak. Only this wrapper depends on uPlot.
import { effect } from '@preact/signals';
import uPlot from 'uplot';
import { power, powerScale, time, timeScale } from '../core/format';
import { nextFrame } from '../core/frame';
import { cursor, type Range } from '../state/selection';
import { dark } from '../state/settings';
import { colours, hatch, phaseLabel, RAIL_LABEL, RAILS, type Rail } from './theme';
import { LEFT, RIGHT } from './time_chart';
import { hideTip, showTip } from './tip';

export interface PhaseSpan {
  phase: string;
  start: number;
  end: number;
}

export interface PowerMark {
  t: number;
  mw: number;
  text: string;
}

export interface PowerOptions {
  /** A brush was drawn: the new visible range. */
  onRange?: (r: Range | null) => void;
  /** Idle power of the total, drawn dashed. */
  baseline?: number | null;
  marks?: PowerMark[];
  /** A sliding window: no brush, no linked crosshair. */
  live?: boolean;
  names?: Record<Rail, string>;
}

/** Above this number of points, lines are drawn as hairlines: software rasterising of a thick jagged line
 * takes a hundred milliseconds, of a hairline two. */
const DENSE = 700;
const DENSE_WIDTH = 1;

const steps = uPlot.paths.stepped?.({ align: -1 });

export class PowerChart {
  private plot: uPlot | null = null;
  private data: uPlot.AlignedData = [[], [], [], [], [], []];
  private shown: Record<Rail, boolean> = {
    cpu: true,
    gpu: true,
    ane: true,
    dram: true,
    total: true,
  };
  private phases: PhaseSpan[] = [];
  private range: Range = [0, 1];
  private options: PowerOptions = {};
  private readonly observer: ResizeObserver;
  private readonly stops: (() => void)[];
  paints = 0;
  onError: (error: unknown) => void = () => {};

  constructor(readonly host: HTMLElement) {
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(host);
    this.stops = [
      effect(() => {
        dark.value;
        this.rebuild();
      }),
      effect(() => {
        const t = cursor.value;
        nextFrame(() => this.follow(t));
      }),
    ];
  }

  /** Columns: time and the rails in the order of RAILS. NaN and null are gaps. */
  set(
    data: uPlot.AlignedData,
    range: Range,
    phases: PhaseSpan[],
    shown: Record<Rail, boolean>,
    options: PowerOptions = {},
  ): void {
    this.phases = phases;
    this.range = range;
    this.options = options;
    this.data = data;
    if (!this.plot) this.rebuild();
    const u = this.plot;
    if (!u) return;
    RAILS.forEach((r, i) => {
      if (this.shown[r] !== shown[r]) u.setSeries(i + 1, { show: shown[r] });
    });
    this.shown = { ...shown };
    const width = data[0].length > DENSE ? DENSE_WIDTH : 1.5;
    for (let i = 1; i < u.series.length; i++) u.series[i].width = width;
    u.setData(data, true);
  }

  get points(): number {
    return this.data[0].length;
  }

  private rebuild(): void {
    this.plot?.destroy();
    this.plot = null;
    const { clientWidth: width, clientHeight: height } = this.host;
    if (!width || !height) return;
    const c = colours();
    const axis = { stroke: c.text3, font: `11px ${c.font}`, ticks: { show: false } };
    const u = new uPlot(
      {
        width,
        height,
        padding: [8, RIGHT, 0, 0],
        legend: { show: false },
        cursor: {
          x: true,
          y: false,
          drag: { x: !this.options.live, y: false, setScale: false, dist: 4 },
          points: { size: 6 },
        },
        scales: {
          x: { time: false, range: () => this.range },
          y: { range: (_u, _lo, hi) => [0, (hi || 1) * 1.08] },
        },
        series: [
          {},
          ...RAILS.map((r) => ({
            label: RAIL_LABEL[r],
            stroke: c.rail[r],
            width: DENSE_WIDTH,
            show: this.shown[r],
            spanGaps: false,
            // A reading is the mean of the window that ends with it.
            paths: steps,
            points: { show: (p: uPlot) => (p.data[0]?.length ?? 0) < 80 },
          })),
        ],
        axes: [
          {
            ...axis,
            size: 22,
            gap: 4,
            grid: { stroke: c.grid, width: 1 },
            values: (_u, splits) => timeLabels(splits),
          },
          {
            ...axis,
            size: LEFT,
            gap: 8,
            grid: { stroke: c.grid, width: 1 },
            values: (_u, splits) => powerLabels(splits),
          },
        ],
        hooks: {
          drawClear: [(p) => this.shade(p)],
          draw: [(p) => this.overdraw(p)],
          setSelect: [(p) => this.brushed(p)],
          setCursor: [(p) => this.pointed(p)],
        },
      },
      this.data,
      this.host,
    );
    u.over.addEventListener('mouseleave', () => {
      hideTip(this);
      if (!this.options.live) cursor.value = null;
    });
    u.over.addEventListener('dblclick', () => this.options.onRange?.(null));
    u.root.querySelectorAll('canvas').forEach((e) => {
      e.setAttribute('aria-hidden', 'true');
    });
    this.plot = u;
  }

  private fit(): void {
    const { clientWidth: width, clientHeight: height } = this.host;
    if (!width || !height) return;
    if (!this.plot) this.rebuild();
    else if (this.plot.width !== width || this.plot.height !== height)
      this.plot.setSize({ width, height });
  }

  /** Phases as shaded backgrounds. */
  private shade(u: uPlot): void {
    const c = colours();
    const { ctx } = u;
    const { left, top, width, height } = u.bbox;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    if (this.data.slice(1).every((s) => s.length === 0) || this.points === 0) {
      ctx.fillStyle = hatch(ctx, 1);
      ctx.fillRect(left, top, width, height);
    }
    for (const p of this.phases) {
      const x0 = Math.max(left, u.valToPos(p.start, 'x', true));
      const x1 = Math.min(left + width, u.valToPos(p.end, 'x', true));
      if (x1 <= x0 || p.phase === 'idle') continue;
      ctx.fillStyle = c.phase[p.phase] ?? c.text3;
      ctx.globalAlpha = 0.1;
      ctx.fillRect(x0, top, x1 - x0, height);
    }
    ctx.restore();
  }

  /** Phase names and a strip of their colours above the grid. */
  private nameShades(u: uPlot): void {
    const c = colours();
    const { ctx } = u;
    const k = devicePixelRatio;
    const { left, top, width } = u.bbox;
    ctx.save();
    ctx.font = `${10.5 * k}px ${c.font}`;
    ctx.textBaseline = 'top';
    ctx.textAlign = 'left';
    for (const p of this.phases) {
      const x0 = Math.max(left, u.valToPos(p.start, 'x', true));
      const x1 = Math.min(left + width, u.valToPos(p.end, 'x', true));
      if (x1 <= x0 || p.phase === 'idle') continue;
      ctx.fillStyle = c.phase[p.phase] ?? c.text3;
      ctx.fillRect(x0, top, x1 - x0, 2 * k);
      const label = phaseLabel(p.phase);
      if (ctx.measureText(label).width + 10 * k < x1 - x0) {
        ctx.fillStyle = c.text3;
        ctx.fillText(label, x0 + 5 * k, top + 6 * k);
      }
    }
    ctx.restore();
  }

  private overdraw(u: uPlot): void {
    this.paints++;
    this.nameShades(u);
    const c = colours();
    const { ctx } = u;
    const k = devicePixelRatio;
    const { left, width } = u.bbox;
    ctx.save();
    const b = this.options.baseline;
    if (typeof b === 'number') {
      const y = u.valToPos(b, 'y', true);
      ctx.strokeStyle = c.text3;
      ctx.setLineDash([4 * k, 4 * k]);
      ctx.lineWidth = k;
      ctx.beginPath();
      ctx.moveTo(left, y);
      ctx.lineTo(left + width, y);
      ctx.stroke();
      ctx.setLineDash([]);
    }
    for (const m of this.options.marks ?? []) {
      const x = u.valToPos(m.t, 'x', true);
      if (x < left || x > left + width) continue;
      const y = u.valToPos(m.mw, 'y', true);
      ctx.fillStyle = c.surface;
      ctx.strokeStyle = c.danger;
      ctx.lineWidth = 1.75 * k;
      ctx.beginPath();
      ctx.moveTo(x, y - 5 * k);
      ctx.lineTo(x + 5 * k, y);
      ctx.lineTo(x, y + 5 * k);
      ctx.lineTo(x - 5 * k, y);
      ctx.closePath();
      ctx.fill();
      ctx.stroke();
    }
    ctx.restore();
  }

  private brushed(u: uPlot): void {
    const { left, width } = u.select;
    if (width < 4) return;
    const r: Range = [u.posToVal(left, 'x'), u.posToVal(left + width, 'x')];
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.options.onRange?.([Math.max(0, r[0]), r[1]]);
  }

  private pointed(u: uPlot): void {
    const { left, top, idx } = u.cursor;
    if (left === undefined || left < 0 || idx === null || idx === undefined) return;
    if (this.mine) {
      if (!this.options.live) cursor.value = u.posToVal(left, 'x');
      const t = this.data[0][idx] as number;
      const box = u.over.getBoundingClientRect();
      const phase = this.phases.find((p) => t >= p.start && t <= p.end);
      const near = this.options.marks?.find((m) => Math.abs(u.valToPos(m.t, 'x') - left) < 8);
      showTip(
        this,
        {
          title: time(t),
          rows: [
            ...(phase ? ([['Phase', phaseLabel(phase.phase)]] as [string, string][]) : []),
            ...RAILS.filter(
              (_, i) => this.data[i + 1].length > 0 && this.data[i + 1][idx] != null,
            ).map((r): [string, string] => [
              RAIL_LABEL[r],
              power(this.data[RAILS.indexOf(r) + 1][idx] as number),
            ]),
            ...(near ? ([['Anomaly', near.text]] as [string, string][]) : []),
          ],
        },
        box.left + left,
        box.top + (top ?? 0),
      );
    }
  }

  /** The pointer is over this chart, rather than the crosshair following another one. */
  private get mine(): boolean {
    return this.plot?.over.matches(':hover') ?? false;
  }

  private follow(t: number | null): void {
    const u = this.plot;
    if (!u || this.mine || this.options.live) return;
    if (t === null) u.setCursor({ left: -10, top: -10 });
    else u.setCursor({ left: u.valToPos(t, 'x'), top: 0 });
  }

  async png(): Promise<Blob | null> {
    const from = this.plot?.ctx.canvas;
    if (!from) return null;
    const out = document.createElement('canvas');
    out.width = from.width;
    out.height = from.height;
    const g = out.getContext('2d');
    if (!g) return null;
    g.fillStyle = colours().surface;
    g.fillRect(0, 0, out.width, out.height);
    g.drawImage(from, 0, 0);
    return new Promise((done) => out.toBlob(done, 'image/png'));
  }

  dispose(): void {
    this.observer.disconnect();
    for (const stop of this.stops) stop();
    hideTip(this);
    this.plot?.destroy();
    this.plot = null;
  }
}

function timeLabels(splits: number[]): string[] {
  const { factor, unit } = timeScale(Math.max(...splits.map(Math.abs), 1e-6));
  const step = splits.length > 1 ? (splits[1] - splits[0]) * factor : 1;
  const places = Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9)));
  return splits.map((s) => `${(s * factor).toFixed(places)} ${unit}`);
}

function powerLabels(splits: number[]): string[] {
  const { factor, unit } = powerScale(Math.max(...splits, 1e-6));
  return splits.map((s) => `${Number((s * factor).toPrecision(6))} ${unit}`);
}
