// Conditions of a device over time, as lanes of the time canvas: temperature, clock and utilisation, each
// scaled to its own range, red where the device was throttled. A reading is held until the next one.
import type { Conditions } from '../api/types';
import { known, plain, power } from '../core/format';
import { lowerBound } from '../core/ring';
import type { Colours } from './theme';

type Device = Conditions['devices'][number];
type FigureKey = 'temperature_c' | 'clock_mhz' | 'utilisation';

const FIGURES: { key: FigureKey; label: string; show: (v: number) => string }[] = [
  { key: 'temperature_c', label: 'temperature', show: (v) => `${plain(v)} °C` },
  { key: 'clock_mhz', label: 'clock', show: (v) => `${plain(v, 4)} MHz` },
  { key: 'utilisation', label: 'utilisation', show: (v) => `${plain(v * 100)} %` },
];

export const GAUGE = 30;
/** Further devices are shown only in the table. */
export const GAUGES = 4;

interface Line {
  label: string;
  y: (number | null)[];
  lo: number;
  hi: number;
  show: (v: number) => string;
}

export interface Gauge {
  device: string;
  t: Float64Array;
  lines: Line[];
  throttle: (string | null)[];
  of: Device;
}

const colourOf = (c: Colours, label: string): string =>
  label === 'temperature' ? c.rail.ane : label === 'clock' ? c.rail.cpu : c.text3;

export function gaugesOf(d: Conditions | null): Gauge[] {
  return (d?.devices ?? []).flatMap((of) => {
    const lines = FIGURES.flatMap(({ key, label, show }): Line[] => {
      const y = of[key];
      const values = (y ?? []).filter(known);
      if (!y || !values.length) return [];
      const [lo, hi] = key === 'utilisation' ? [0, 1] : [Math.min(...values), Math.max(...values)];
      return [{ label, y, lo, hi, show }];
    });
    const t = Float64Array.from(of.t_ms);
    return lines.length && t.length
      ? [{ device: of.device, t, lines, throttle: of.throttle, of }]
      : [];
  });
}

/** "temperature 51 to 63 °C, clock 3,400 MHz": the ranges, for a legend. */
export function gaugeText(g: Gauge): string {
  const parts = g.lines.map((l) => {
    const values = l.y.filter(known);
    const [lo, hi] = [Math.min(...values), Math.max(...values)];
    const [a, b] = [l.show(lo), l.show(hi)];
    return `${l.label} ${a === b ? a : `${a.replace(/ \S+$/, '')} to ${b}`}`;
  });
  const hot = g.throttle.filter(Boolean).length;
  if (hot) parts.push(`throttled in ${hot} of ${g.t.length} readings`);
  return `${g.device}: ${parts.join(', ')}`;
}

/** The latest reading at a time; -1 before the first. */
export function readingAt(g: Gauge, t: number): number {
  const i = lowerBound(g.t, t);
  return i < g.t.length && g.t[i] === t ? i : Math.max(0, i - 1);
}

export function gaugeRows(g: Gauge, i: number): [string, string][] {
  const rows = g.lines.flatMap((l): [string, string][] => {
    const v = l.y[i];
    return known(v) ? [[capital(l.label), l.show(v)]] : [];
  });
  const memory = g.of.memory_clock_mhz?.[i];
  if (known(memory)) rows.push(['Memory clock', `${plain(memory, 4)} MHz`]);
  const limit = g.of.power_limit_mw?.[i];
  if (known(limit)) rows.push(['Power limit', power(limit)]);
  const why = g.throttle[i];
  if (why) rows.push(['Throttled', why.replaceAll(',', ', ')]);
  return rows;
}

const capital = (s: string): string => s[0].toUpperCase() + s.slice(1);

/** Draws one lane between two times; `x` places a time, `end` is the end of the run. */
export function drawGauge(
  g: CanvasRenderingContext2D,
  c: Colours,
  gauge: Gauge,
  place: { y: number; x: (t: number) => number; end: number },
): void {
  const { x, y, end } = place;
  const until = (i: number) =>
    x(i + 1 < gauge.t.length ? gauge.t[i + 1] : Math.max(end, gauge.t[i]));
  g.fillStyle = c.danger;
  g.globalAlpha = 0.28;
  gauge.throttle.forEach((why, i) => {
    if (why) g.fillRect(x(gauge.t[i]), y, Math.max(1, until(i) - x(gauge.t[i])), GAUGE);
  });
  g.globalAlpha = 1;
  for (const l of gauge.lines) {
    const at = (v: number) =>
      y + 3 + (l.hi > l.lo ? 1 - (v - l.lo) / (l.hi - l.lo) : 0.5) * (GAUGE - 6);
    g.strokeStyle = colourOf(c, l.label);
    g.lineWidth = 1.25;
    g.beginPath();
    let open = false;
    l.y.forEach((v, i) => {
      if (!known(v)) {
        open = false;
        return;
      }
      if (open) g.lineTo(x(gauge.t[i]), at(v));
      else g.moveTo(x(gauge.t[i]), at(v));
      g.lineTo(until(i), at(v));
      open = true;
    });
    g.stroke();
  }
}
