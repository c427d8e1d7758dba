// The spans of the selection by name: total, self, count, and against what they take in a typical token. The
// selection is what lies between the flags, else the token, the visible range or the phase, else the whole run.
import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { api } from '../../api/client';
import type { SpanGroup } from '../../api/types';
import { Panel } from '../../charts/panel';
import { phaseLabel } from '../../charts/theme';
import { count, energy, known, plain, time, UNAVAILABLE } from '../../core/format';
import { Icon } from '../../parts/icon';
import { stateOf, useResource } from '../../state/resource';
import { type Range, type Selection, select, selection } from '../../state/selection';
import { unit } from '../../state/settings';
import type { RunData } from './data';
import { type Usual, usualKey, usualOf } from './spans';

/** Rows shown at first. */
const SHOWN = 60;
/** A window with more phases than this is not compared with what is typical. */
const MOST_PARTS = 8;

interface Part {
  phase: string | null;
  range: Range;
}

export interface SpanLine {
  key: string;
  level: string;
  name: string;
  phase: string | null;
  count: number;
  ms: number | null;
  total: number | null;
  self: number | null;
  /** Total against as many spans of a typical token; null: there are none to compare with. */
  times: number | null;
}

type Column = 'name' | 'count' | 'ms' | 'total' | 'self' | 'mean' | 'times';

/** The selection in time. */
function chosenRange(s: Selection, data: RunData, full: Range): Range {
  if (s.between) return s.between;
  const token = s.token === null ? null : data.tokens.value.data?.find((t) => t.token === s.token);
  if (token) return [token.start_ms, token.start_ms + token.duration_ms];
  return s.range ?? full;
}

/** The window cut by phases, since a name takes other energies in the prompt than in a step. */
function partsOf(data: RunData, s: Selection, [a, b]: Range): Part[] {
  const rows = (data.pipeline.value.data?.phases ?? []).filter(
    (p) => p.phase !== 'idle' && (s.phase === null || p.phase === s.phase),
  );
  const parts = rows
    .map(
      (p): Part => ({
        phase: p.phase,
        range: [Math.max(a, p.start_ms), Math.min(b, p.end_ms)],
      }),
    )
    .filter((p) => p.range[1] > p.range[0]);
  return parts.length <= MOST_PARTS ? parts : [{ phase: s.phase, range: [a, b] }];
}

/** Groups of the parts as lines; those of one name and phase are one. */
export function linesOf(
  answers: { phase: string | null; groups: SpanGroup[] }[],
  usual: Usual,
  net: boolean,
): SpanLine[] {
  const lines = new Map<string, SpanLine & { usual: number | null }>();
  const plus = (a: number | null, b: number | null) => (known(a) && known(b) ? a + b : null);
  for (const { phase, groups } of answers)
    for (const g of groups) {
      const own = g.level === 'layer' ? `Layer ${g.layer ?? '?'}` : (g.name ?? '?');
      const name = g.component === null ? own : `${g.component} › ${own}`;
      const key = `${g.level} ${phase} ${name}`;
      const total = net ? g.net_energy_mj : g.energy_mj;
      const one = phase ? usual.get(usualKey(phase, g.name ?? '', g.component))?.mj : null;
      const typical = !net && known(one) ? one * g.count : null;
      const at = lines.get(key);
      if (!at)
        lines.set(key, {
          key,
          level: g.level,
          name,
          phase,
          count: g.count,
          ms: g.time_ms,
          total,
          self: net ? null : g.self_energy_mj,
          times: null,
          usual: typical,
        });
      else {
        at.count += g.count;
        at.ms = plus(at.ms, g.time_ms);
        at.total = plus(at.total, total);
        at.self = plus(at.self, net ? null : g.self_energy_mj);
        at.usual = plus(at.usual, typical);
      }
    }
  return [...lines.values()].map(({ usual: expected, ...line }) => ({
    ...line,
    times: known(expected) && expected > 0 && known(line.total) ? line.total / expected : null,
  }));
}

const figureOf = (l: SpanLine, by: Column): number | string | null =>
  by === 'name' ? l.name : by === 'mean' ? (known(l.total) ? l.total / l.count : null) : l[by];

export function sorted(lines: SpanLine[], by: Column, up: boolean): SpanLine[] {
  const sign = up ? 1 : -1;
  return [...lines].sort((a, b) => {
    const [x, y] = [figureOf(a, by), figureOf(b, by)];
    if (x === null || y === null) return Number(x === null) - Number(y === null);
    return typeof x === 'string' ? sign * x.localeCompare(String(y)) : sign * (x - Number(y));
  });
}

const LEVELS = ['all', 'layer', 'component', 'operation'] as const;

/** What is typical of each name in the phases of the window. */
export function useUsual(data: RunData, phases: string[], wanted: boolean): Usual {
  const names = [...new Set(phases)].sort();
  const res = useResource(
    wanted && names.length ? `usual ${data.id} ${names.join()}` : null,
    async (x) => {
      const all = await Promise.all(
        names.map(async (phase) =>
          usualOf(await api.operations(data.id, { phase, disturbances: 'leave' }, x), phase),
        ),
      );
      return new Map(all.flatMap((m) => [...m]));
    },
  );
  const { data: found } = res.value;
  return useMemo(() => found ?? new Map(), [found]);
}

export function SpansPane({ data, full }: { data: RunData; full: Range }) {
  const s = selection.value;
  const by = useSignal<Column>('self');
  const up = useSignal(false);
  const level = useSignal<(typeof LEVELS)[number]>('all');
  const all = useSignal(false);
  const range = chosenRange(s, data, full);
  const parts = partsOf(data, s, range);
  const spans = useResource(
    data.calm.value ? `groups ${data.id} ${JSON.stringify(parts)} ${s.find}` : null,
    (x) =>
      Promise.all(
        parts.map(async ({ phase, range: [from_ms, to_ms] }) => ({
          phase,
          groups: (await api.spans(data.id, { from_ms, to_ms, group: 'name', name: s.find }, x))
            .groups,
        })),
      ),
  );
  const usual = useUsual(
    data,
    parts.flatMap((p) => p.phase ?? []),
    spans.value.data !== null,
  );
  const lines = useMemo(
    () => linesOf(spans.value.data ?? [], usual, s.net),
    [spans.value.data, usual, s.net],
  );
  const list = sorted(
    lines.filter((l) => level.value === 'all' || l.level === level.value),
    by.value,
    up.value,
  );
  const u = unit.value;
  const mixed = new Set(lines.map((l) => l.phase)).size > 1;
  const head = (column: Column, label: string) => (
    <th
      scope="col"
      class={column === 'name' ? '' : 'num'}
      aria-sort={by.value === column ? (up.value ? 'ascending' : 'descending') : undefined}
    >
      <button
        type="button"
        class="sort"
        onClick={() => {
          up.value = by.value === column ? !up.value : column === 'name';
          by.value = column;
        }}
      >
        {label} {by.value === column && <Icon name={up.value ? 'up' : 'down'} />}
      </button>
    </th>
  );
  return (
    <Panel
      class="bare"
      title="Spans"
      note={`${s.between ? 'Between the flags' : 'In the selection'}, ${time(range[0])} to ${time(range[1])}: ${s.net ? 'energy above idle' : 'energy'} as measured, with disturbances; a span on the edge counts with its part inside.${s.find ? ` Only names with “${s.find}”.` : ''}`}
      state={stateOf(spans, () =>
        lines.length ? null : 'No layers, components or operations were recorded here.',
      )}
      legend={
        <select
          class="input small"
          aria-label="Level"
          value={level.value}
          onChange={(e) => {
            level.value = e.currentTarget.value as (typeof LEVELS)[number];
          }}
        >
          <option value="all">All levels</option>
          <option value="layer">Layers</option>
          <option value="component">Components</option>
          <option value="operation">Operations</option>
        </select>
      }
      table={() => ({
        columns: [
          'level',
          'name',
          'phase',
          'count',
          'time_ms',
          'energy_mj',
          'self_energy_mj',
          'times_typical',
        ],
        rows: list.map((l) => [l.level, l.name, l.phase, l.count, l.ms, l.total, l.self, l.times]),
      })}
    >
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard */}
      <section class="span-table" tabIndex={0} aria-label="Spans of the selection">
        <table>
          <thead>
            <tr>
              {head('name', 'Name')}
              {head('count', 'Count')}
              {head('ms', 'Time')}
              {head('total', 'Total')}
              {head('self', 'Self')}
              {head('mean', 'Each')}
              {head('times', 'Against typical')}
            </tr>
          </thead>
          <tbody>
            {list.slice(0, all.value ? undefined : SHOWN).map((l) => (
              <tr key={l.key} data-level={l.level}>
                <th scope="row">
                  <button
                    type="button"
                    class="link"
                    title="Find on the timeline"
                    disabled={l.level === 'layer'}
                    onClick={() => select({ find: l.name.split(' › ').at(-1) ?? '' })}
                  >
                    {l.name}
                  </button>
                  {mixed && l.phase && <span class="muted"> {phaseLabel(l.phase)}</span>}
                </th>
                <td class="num">{count(l.count)}</td>
                <td class="num">{time(l.ms)}</td>
                <td class="num">{energy(l.total, u)}</td>
                <td class="num">{l.self === null ? UNAVAILABLE : energy(l.self, u)}</td>
                <td class="num">{energy(known(l.total) ? l.total / l.count : null, u)}</td>
                <td class={`num ${(l.times ?? 0) >= 1.2 ? 'dearer' : ''}`}>
                  {l.times === null ? '–' : `× ${plain(l.times)}`}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {list.length > SHOWN && !all.value && (
          <button
            type="button"
            class="btn small"
            onClick={() => {
              all.value = true;
            }}
          >
            Show all {count(list.length)}
          </button>
        )}
      </section>
    </Panel>
  );
}
