// Why a token took what it took: its difference from a typical one, by the spans that make it.
import { api } from '../../api/client';
import { REPORT } from '../../api/inlined';
import type { Spans, Summary, TokenRow } from '../../api/types';
import { energySigned, known, plain, time } from '../../core/format';
import { useResource } from '../../state/resource';
import { select, selection } from '../../state/selection';
import { unit } from '../../state/settings';
import type { RunData } from './data';
import { useUsual } from './span_table';
import { type Usual, usualKey } from './spans';

/** With its sign, also where it is positive. */
const more = (mj: number): string => `${mj > 0 ? '+' : ''}${energySigned(mj, null, unit.value)}`;

export interface Excess {
  name: string;
  layer: number | null;
  mj: number | null;
  ms: number;
  usualMs: number;
  range: [number, number];
}

/** Steps, and spans of one, that differ by less than this share of the step are not named. */
const LEAST = 0.02;
const NAMED = 3;

/** The spans of a step that differ most from typical ones of their names, largest first: operations, or components
 * of which no operations were recorded. */
export function excesses(answer: Spans, phase: string, usual: Usual, stepMs: number): Excess[] {
  const leaf = [...answer.levels].reverse().find((l) => l.start_ms.length && l.level !== 'layer');
  if (!leaf) return [];
  const list = leaf.start_ms.flatMap((start, i): Excess[] => {
    const [index, parent, ms] = [leaf.name[i], leaf.component[i], leaf.duration_ms[i]];
    if (index === null || ms === null) return [];
    const component = parent === null ? null : answer.names[parent];
    const own = answer.names[index];
    const typical = usual.get(usualKey(phase, own, component));
    if (!known(typical?.ms)) return [];
    const mj = leaf.energy_mj[i];
    return [
      {
        name: component === null ? own : `${component} › ${own}`,
        layer: leaf.layer[i],
        mj: known(mj) && known(typical.mj) ? mj - typical.mj : null,
        ms,
        usualMs: typical.ms,
        range: [start, start + ms],
      },
    ];
  });
  return list
    .filter((e) => Math.abs(e.ms - e.usualMs) >= LEAST * stepMs)
    .sort((a, b) => Math.abs(b.mj ?? b.ms - b.usualMs) - Math.abs(a.mj ?? a.ms - a.usualMs))
    .slice(0, NAMED);
}

function against(t: TokenRow, s: Summary): string | null {
  if (t.phase !== 'decode') return null;
  const typical = known(s.joules_per_token_typical) ? s.joules_per_token_typical * 1000 : null;
  const ms = s.token_statistics?.duration_ms.median ?? null;
  const parts = [
    known(typical) && known(t.energy_mj) && !selection.value.calm
      ? `${more(t.energy_mj - typical)} against the typical token`
      : null,
    known(ms) ? `${time(t.duration_ms)} instead of ${time(ms)}` : null,
  ].filter((x) => x !== null);
  return parts.length ? parts.join(', ') : null;
}

/** Of the chosen token. */
export function WhyToken({ data }: { data: RunData }) {
  const { token, layer, component } = selection.value;
  const rows = data.tokens.value.data ?? [];
  const t = token === null ? undefined : rows.find((x) => x.token === token);
  const s = data.summary.value.data;
  const recorded = (s?.counts.components ?? 0) > 0 && !REPORT;
  const spans = useResource(t && recorded ? `why ${data.id} ${t.token}` : null, (x) =>
    api.spans(
      data.id,
      { from_ms: t?.start_ms, to_ms: (t?.start_ms ?? 0) + (t?.duration_ms ?? 0), limit: 20_000 },
      x,
    ),
  );
  const usual = useUsual(data, t ? [t.phase] : [], spans.value.data !== null);
  if (!t || !s) return null;
  const head = against(t, s);
  const list =
    spans.value.data && spans.value.key.endsWith(` ${t.token}`) && t.phase === 'decode'
      ? excesses(spans.value.data, t.phase, usual, t.duration_ms)
      : [];
  if (!head && !list.length) return null;
  // Beside the figures of a part, those of its token need their name.
  const whole = layer === null && component === null ? '' : `Token ${t.token} as a whole: `;
  return (
    <div class="note why" data-testid="why-token">
      {head && <p>{`${whole}${head}.`}</p>}
      {list.length > 0 && (
        <ul>
          {list.map((e) => (
            <li key={`${e.name} ${e.layer} ${e.range[0]}`}>
              <button
                type="button"
                class="link"
                title="Show it on the timeline"
                onClick={() => select({ between: e.range, range: about(e.range) })}
              >
                {e.name}
                {e.layer === null ? '' : ` in layer ${e.layer}`}
              </button>
              {`: ${time(e.ms)} instead of ${time(e.usualMs)}${known(e.mj) ? `, ${more(e.mj)}` : ''}${e.usualMs > 0 ? ` (× ${plain(e.ms / e.usualMs, 2)})` : ''}`}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function about([a, b]: [number, number]): [number, number] {
  const air = 2 * Math.max(0.005, b - a);
  return [Math.max(0, a - air), b + air];
}
