// What the two flags on the timeline read: time, energy with its interval, power, and the energy of each rail.
import { api } from '../../api/client';
import { REPORT } from '../../api/inlined';
import type { PowerSeries, TokenRow } from '../../api/types';
import { integral, windowOf } from '../../charts/power_track';
import { RAIL_LABEL, RAILS } from '../../charts/theme';
import { energy, power, time } from '../../core/format';
import { isKnown, quantity } from '../../core/quantity';
import { Amount } from '../../parts/badge';
import { Icon } from '../../parts/icon';
import { useResource } from '../../state/resource';
import { at, flag, type Range, select, selection } from '../../state/selection';
import { unit } from '../../state/settings';
import { type RunData, scopeOf } from './data';
import { column, numbers } from './power';
import { figures } from './scope';

/** By rail, where every reading is there: extremes of several cannot be integrated. */
function railsOf(p: PowerSeries | null, range: Range): [string, number][] {
  if (!p || p.bucket_samples > 1) return [];
  const t = Float64Array.from(p.t_ms);
  const window = windowOf(t);
  return RAILS.flatMap((r): [string, number][] => {
    const mj = integral(t, numbers(column(p, r), t.length, 0), window, range);
    return r === 'total' || mj === null ? [] : [[RAIL_LABEL[r], mj]];
  });
}

interface Edge {
  token: TokenRow;
  inside: Range;
}

/** The steps that a flag cuts. */
export function edgesOf(tokens: TokenRow[], [a, b]: Range): Edge[] {
  return tokens.flatMap((token): Edge[] => {
    const [from, to] = [token.start_ms, token.start_ms + token.duration_ms];
    const cut = (from < a && to > a) || (from < b && to > b);
    if (!cut || (token.step !== null && token.step !== token.token)) return [];
    return [{ token, inside: [Math.max(a, from), Math.min(b, to)] }];
  });
}

interface EdgeEnergy {
  mj: number;
  sd: number;
}

/** Energy of the part of a step: its components', and of what no component holds in proportion to time. */
async function energyOfEdge(
  id: string,
  { token, inside }: Edge,
  step: EdgeEnergy,
  net: boolean,
  signal: AbortSignal,
): Promise<EdgeEnergy | null> {
  const sum = async ([from_ms, to_ms]: Range) => {
    const q = { from_ms, to_ms, group: 'name', level: 'component' };
    const { groups } = await api.spans(id, q, signal);
    let [mj, sd, ms] = [0, 0, 0];
    for (const g of groups) {
      if (g.level !== 'component') continue;
      mj += (net ? g.net_energy_mj : g.energy_mj) ?? Number.NaN;
      sd += (net ? g.net_energy_sd_mj : g.energy_sd_mj) ?? 0;
      ms += g.time_ms ?? 0;
    }
    return { mj, sd, ms };
  };
  const end = token.start_ms + token.duration_ms;
  const [part, all] = await Promise.all([sum(inside), sum([token.start_ms, end])]);
  if (Number.isNaN(all.mj)) return null;
  const left = (x: number, of: number) => Math.max(0, x - of);
  const gap = left(token.duration_ms, all.ms);
  const share = gap > 0 ? Math.min(1, left(inside[1] - inside[0], part.ms) / gap) : 0;
  return { mj: part.mj + share * (step.mj - all.mj), sd: part.sd + share * left(step.sd, all.sd) };
}

/** By how much the energy between the flags differs from what whole steps in proportion to time would give; null
 * while that is being asked for. */
function useEdges(data: RunData, range: Range | null, net: boolean): EdgeEnergy | null {
  const tokens = data.tokens.value.data ?? [];
  const edges = range ? edgesOf(tokens, range) : [];
  const spans = (data.summary.value.data?.counts.components ?? 0) > 0 && !REPORT;
  const res = useResource(
    range && edges.length && spans ? `edges ${data.id} ${range} ${net}` : null,
    (x) =>
      Promise.all(
        edges.map(async (edge) => {
          const step = { mj: 0, sd: 0 };
          for (const t of tokens)
            if ((t.step ?? t.token) === edge.token.token) {
              step.mj += (net ? t.net_energy_mj : t.energy_mj) ?? 0;
              step.sd += (net ? t.net_energy_sd_mj : t.energy_sd_mj) ?? 0;
            }
          const share = (edge.inside[1] - edge.inside[0]) / edge.token.duration_ms;
          const own = await energyOfEdge(data.id, edge, step, net, x);
          return own
            ? { mj: own.mj - share * step.mj, sd: own.sd - share * step.sd }
            : { mj: 0, sd: 0 };
        }),
      ),
    'drop',
  );
  if (!edges.length || !spans || res.value.error) return { mj: 0, sd: 0 };
  return (
    res.value.data?.reduce((a, e) => ({ mj: a.mj + e.mj, sd: a.sd + e.sd }), { mj: 0, sd: 0 }) ??
    null
  );
}

export function Between({ data, power: p }: { data: RunData; power: PowerSeries | null }) {
  const range = at.between.value;
  const rows = data.rows.value;
  const { net } = selection.value;
  const more = useEdges(data, range, net);
  if (flag.value !== null && !range)
    return (
      <p class="between" role="status">
        A at {time(flag.value)}. Point at the other place and press m.
      </p>
    );
  if (!range || !rows) return null;
  const scope = { ...scopeOf(selection.value), range, token: null, phase: null };
  const f = figures(rows, { ...scope, layer: null, component: null });
  const whole = net ? f.net : f.energy;
  const q =
    isKnown(whole) && more
      ? quantity('mJ', whole.value + more.mj, whole.source, {
          sd: (whole.sd ?? 0) + Math.max(0, more.sd),
          missing: whole.missing,
          signed: net,
        })
      : whole;
  const u = unit.value;
  const ms = range[1] - range[0];
  return (
    <div class="between row" role="status">
      <strong>A to B</strong>
      <span class="num">{time(ms)}</span>
      <span class="num" data-figure="between" aria-busy={!more}>
        {more ? <Amount q={q} /> : '…'}
        {net ? ' above idle' : ''}
      </span>
      {more && isKnown(q) && <span class="num muted">{power((q.value / ms) * 1000)}</span>}
      {!net &&
        railsOf(p, range).map(([name, mj]) => (
          <span class="num muted" key={name}>
            {name} {energy(mj, u)}
          </span>
        ))}
      <button type="button" class="btn small" onClick={() => select({ pane: 'spans' })}>
        What ran in it
      </button>
      <button type="button" class="btn small" onClick={() => select({ range, between: null })}>
        Zoom to it
      </button>
      <button
        type="button"
        class="tool"
        aria-label="Remove the flags"
        onClick={() => select({ between: null })}
      >
        <Icon name="close" />
      </button>
    </div>
  );
}
