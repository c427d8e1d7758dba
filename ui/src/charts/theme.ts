// Colours of the charts, read from the style sheet once per theme: canvases cannot use variables.
import { signal } from '@preact/signals';
import { dark } from '../state/settings';

export const RAILS = ['cpu', 'gpu', 'ane', 'dram', 'total'] as const;
export type Rail = (typeof RAILS)[number];
export const RAIL_LABEL: Record<Rail, string> = {
  cpu: 'CPU',
  gpu: 'GPU',
  ane: 'ANE',
  dram: 'DRAM',
  total: 'Total',
};

export const PHASES = ['idle', 'pre_inference', 'prefill', 'decode', 'post_inference'] as const;
export type Phase = (typeof PHASES)[number];
const PHASE_LABEL: Record<string, string> = {
  idle: 'Idle',
  pre_inference: 'Pre-inference',
  prefill: 'Prefill',
  decode: 'Decode',
  post_inference: 'Post-inference',
};

/** The shown runs are of programs that infer nothing: what they did is named so, and not after an inference
 * that never came. */
export const programs = signal(false);

export const phaseLabel = (phase: string): string =>
  phase === 'pre_inference' && programs.value ? 'Program' : (PHASE_LABEL[phase] ?? phase);

export interface Colours {
  surface: string;
  sunken: string;
  line: string;
  grid: string;
  text: string;
  text2: string;
  text3: string;
  accent: string;
  warn: string;
  danger: string;
  rail: Record<Rail, string>;
  phase: Record<string, string>;
  series: string[];
  font: string;
}

let cache: Colours | null = null;
let cachedDark: boolean | null = null;

export function colours(): Colours {
  const now = dark.peek();
  if (cache && cachedDark === now) return cache;
  const style = getComputedStyle(document.documentElement);
  const v = (name: string) => style.getPropertyValue(`--${name}`).trim();
  cachedDark = now;
  cache = {
    surface: v('surface'),
    sunken: v('sunken'),
    line: v('line'),
    grid: v('grid'),
    text: v('text'),
    text2: v('text-2'),
    text3: v('text-3'),
    accent: v('accent'),
    warn: v('warn'),
    danger: v('danger'),
    rail: Object.fromEntries(RAILS.map((r) => [r, v(`rail-${r}`)])) as Record<Rail, string>,
    phase: Object.fromEntries(PHASES.map((p) => [p, v(`phase-${p.replace('_', '-')}`)])),
    series: [1, 2, 3, 4].map((i) => v(`series-${i}`)),
    font: style.fontFamily || 'sans-serif',
  };
  return cache;
}

const HATCH = new Map<string, CanvasPattern>();

/** Diagonal stripes: the mark of "unavailable" everywhere. */
export function hatch(g: CanvasRenderingContext2D, dpr: number): CanvasPattern | string {
  const c = colours();
  const key = `${c.sunken}${c.text3}${dpr}`;
  let p = HATCH.get(key);
  if (!p) {
    const size = Math.round(6 * dpr);
    const tile = document.createElement('canvas');
    tile.width = tile.height = size;
    const t = tile.getContext('2d');
    if (!t) return c.sunken;
    t.fillStyle = c.sunken;
    t.fillRect(0, 0, size, size);
    t.strokeStyle = c.text3;
    t.globalAlpha = 0.45;
    t.lineWidth = dpr;
    t.beginPath();
    for (const o of [-size, 0, size]) {
      t.moveTo(o - 1, size + 1);
      t.lineTo(o + size + 1, -1);
    }
    t.stroke();
    const made = g.createPattern(tile, 'repeat');
    if (!made) return c.sunken;
    made.setTransform(new DOMMatrix([1 / dpr, 0, 0, 1 / dpr, 0, 0]));
    HATCH.set(key, made);
    p = made;
  }
  return p;
}
