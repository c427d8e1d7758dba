// Layers, components and operations on the timeline: which of them a view can show, the window that is fetched for
// it, and the answer as slices. Pure functions of the API's responses.
import type { Operations, SpanLevel, Spans, TokenRow } from '../../api/types';
import type { Slice, SliceKind } from '../../charts/tracks';
import { known } from '../../core/format';
import { lowerBound } from '../../core/ring';
import type { Range } from '../../state/selection';

export const SPAN_LEVELS: readonly SpanLevel[] = ['layer', 'component', 'operation'];

/** The most spans of a level that are drawn at once; also the `limit` of the request. */
export const MOST_SPANS = 6000;

/** A window that stays the same while the view moves a little, and holds all of it: its ends lie on a grid of an
 * eighth to a quarter of the view. */
export function windowAround([a, b]: Range): Range {
  const grid = 2 ** (Math.ceil(Math.log2(b - a)) - 3);
  return [Math.floor(a / grid) * grid, Math.ceil(b / grid) * grid];
}

/** Steps that touch a window; where there are no tokens, the share of the run. */
function stepsIn(tokens: TokenRow[], [a, b]: Range): number {
  const begins = Float64Array.from(tokens, (t) => t.start_ms);
  let n = 0;
  for (let i = Math.max(0, lowerBound(begins, a) - 1); i < tokens.length; i++) {
    const t = tokens[i];
    if (t.start_ms > b) break;
    if (t.start_ms + t.duration_ms >= a && (t.step === null || t.step === t.token)) n++;
  }
  return n;
}

/** Number of spans of each level that a window can be expected to hold. */
export function expected(
  counts: Record<string, number>,
  tokens: TokenRow[],
  full: Range,
  window: Range,
): Record<SpanLevel, number> {
  const steps = tokens.reduce((n, t) => n + Number(t.step === null || t.step === t.token), 0);
  const share =
    steps > 0
      ? stepsIn(tokens, window) / steps
      : Math.min(1, (window[1] - window[0]) / (full[1] - full[0]));
  const of = (name: string) => (counts[name] ?? 0) * share;
  return { layer: of('layers'), component: of('components'), operation: of('operations') };
}

/** The deepest level of which, as of those above it, the window holds few enough; null: not even layers. */
export function deepest(n: Record<SpanLevel, number>): SpanLevel | null {
  const many = SPAN_LEVELS.findIndex((l) => n[l] > MOST_SPANS);
  const few = SPAN_LEVELS.slice(0, many < 0 ? undefined : many);
  return few.findLast((l) => n[l] > 0) ?? null;
}

/** Mean energy and time of a span by name in one phase, without disturbances: what is typical of it. */
export type Usual = Map<string, { mj: number | null; ms: number | null }>;

export function usualOf(of: Operations, phase: string): Usual {
  const out: Usual = new Map();
  const add = (
    name: string,
    x: { count: number; energy_mj: number | null; time_ms: number | null },
  ) =>
    out.set(`${phase} ${name}`, {
      mj: known(x.energy_mj) && x.count ? x.energy_mj / x.count : null,
      ms: known(x.time_ms) && x.count ? x.time_ms / x.count : null,
    });
  for (const c of of.components) add(c.component_name, c);
  for (const o of of.operations) add(`${o.component_name} ${o.operation_name}`, o);
  return out;
}

export const usualKey = (phase: string, name: string, component: string | null): string =>
  component === null ? `${phase} ${name}` : `${phase} ${component} ${name}`;

const KIND: Record<SpanLevel, SliceKind> = {
  layer: 'layer',
  component: 'component',
  operation: 'operation',
};

/** The answer's spans as slices; `laneOf` gives the lane of a level on a device, or -1. */
export function slicesOf(
  answer: Spans,
  tokens: TokenRow[],
  phaseAt: (t: number) => string,
  usual: Usual,
  net: boolean,
  laneOf: (level: SpanLevel, device: number) => number,
): Slice[] {
  const out: Slice[] = [];
  // A level that did not fit would be a lane that ends in the middle.
  for (const l of answer.levels.filter((x) => x.total === x.start_ms.length))
    l.start_ms.forEach((start, i) => {
      const lane = laneOf(l.level, l.device[i] ?? 0);
      if (lane < 0) return;
      const index = l.name[i];
      const name = index === null ? `Layer ${l.layer[i] ?? '?'}` : answer.names[index];
      const parent = l.component[i];
      const component = parent === null ? null : answer.names[parent];
      const token = l.token[i];
      const phase = (token !== null && tokens[token]?.phase) || phaseAt(start);
      const typical = usual.get(usualKey(phase, name, component));
      out.push({
        lane,
        start,
        duration: l.duration_ms[i] ?? 0,
        label: name,
        energy: net ? l.net_energy_mj[i] : l.energy_mj[i],
        sd: net ? l.net_energy_sd_mj[i] : l.energy_sd_mj[i],
        net,
        kind: KIND[l.level],
        phase,
        token,
        usual: net ? null : (typical?.mj ?? null),
        rows: () => {
          const rows: [string, string][] = [];
          if (component !== null) rows.push(['Component', component]);
          if (l.layer[i] !== null && index !== null) rows.push(['Layer', String(l.layer[i])]);
          if (token !== null) rows.push(['Token', String(token)]);
          return rows;
        },
      });
    });
  return out;
}
