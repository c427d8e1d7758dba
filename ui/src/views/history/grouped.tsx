// The history in groups: one row per value of a setting with a summary of its runs, which are listed below it
// when expanded.
import { useMemo } from 'preact/hooks';
import { api, type Query } from '../../api/client';
import type { RunSummary } from '../../api/types';
import { energy, known, type Num, percent, plain, threadCount, time } from '../../core/format';
import { primaryJoules, thinkingShare } from '../../core/run_energy';
import { quantile } from '../../core/stats';
import { SourceBadge } from '../../parts/badge';
import { Icon } from '../../parts/icon';
import { useResource } from '../../state/resource';
import { at, CHOSEN, select, selection } from '../../state/selection';
import { unit } from '../../state/settings';
import { COLUMNS, Row } from './row';

/** Number of newest matching runs that are grouped. */
const NEWEST = 1000;
/** Rows shown in an expanded group. */
const SHOWN = 50;

const partsOf = (r: RunSummary): string[] =>
  [
    r.model_name,
    r.dtype,
    r.batch_size > 1 ? `batch ${r.batch_size}` : '',
    known(r.threads) ? threadCount(r.threads) : '',
    `depth ${r.profiling_depth}`,
    `${r.output_tokens ?? '–'} tokens`,
  ].filter((x): x is string => !!x);

const setting = (r: RunSummary): string => partsOf(r).join(', ');

/** What tells the groups by settings apart: without what all of them share. */
export function labels(groups: readonly Group[]): Map<string, string> {
  const parts = groups.map((g) => partsOf(g.runs[0]));
  const shared = (p: string) => groups.length > 1 && parts.every((list) => list.includes(p));
  return new Map(
    groups.map((g, i) => [
      g.name,
      parts[i].filter((p) => !shared(p)).join(', ') || 'other settings',
    ]),
  );
}

/** Fields to group by, and a run's groups for each. */
const BY: [key: string, label: string, of: (r: RunSummary) => string[]][] = [
  ['experiment', 'Experiment', (r) => [r.experiment_name ?? '']],
  ['settings', 'All settings', (r) => [setting(r)]],
  ['model', 'Model', (r) => [r.model_name ?? '']],
  ['dtype', 'Weights', (r) => [r.dtype ?? '']],
  ['batch', 'Batch', (r) => [String(r.batch_size)]],
  ['tag', 'Tag', (r) => (r.tags.length ? r.tags : [''])],
  ['engine', 'Engine', (r) => [r.engine ?? '']],
  ['machine', 'Machine', (r) => [r.machine ?? '']],
];

export interface Group {
  name: string;
  runs: RunSummary[];
}

/** Groups of runs, newest first; a run with two tags is in both groups. */
export function grouped(runs: RunSummary[], by: string): Group[] {
  const of = BY.find(([k]) => k === by)?.[2] ?? (() => ['']);
  const groups = new Map<string, Group>();
  for (const r of runs)
    for (const name of of(r)) {
      const g = groups.get(name) ?? { name, runs: [] };
      g.runs.push(r);
      groups.set(name, g);
    }
  return [...groups.values()];
}

/** Median, minimum and maximum of the known values; null if there are none. */
export function spread(values: Num[]): { mid: number; lo: number; hi: number } | null {
  const list = Float64Array.from(values.filter(known)).sort();
  if (!list.length) return null;
  return { mid: quantile(list, 0.5), lo: list[0], hi: list[list.length - 1] };
}

export function GroupRows() {
  return (
    <select
      class="input small"
      aria-label="Group the rows by"
      value={selection.value.group}
      onChange={(e) => select({ group: e.currentTarget.value, unfold: [] })}
    >
      <option value="">Rows: one by one</option>
      {BY.map(([k, label]) => (
        <option key={k} value={k}>
          Rows by {label.toLowerCase()}
        </option>
      ))}
    </select>
  );
}

export function GroupedList(props: {
  q: Query;
  total: number;
  onDelete: (run: RunSummary) => void;
}) {
  const { group, unfold } = selection.value;
  const ask = { ...props.q, limit: NEWEST, offset: 0 };
  const res = useResource(JSON.stringify(ask), (s) => api.runs(ask, s));
  const groups = useMemo(() => grouped(res.value.data?.runs ?? [], group), [res.value.data, group]);
  const short = useMemo(
    () => (group === 'settings' ? labels(groups) : new Map<string, string>()),
    [groups, group],
  );
  if (!res.value.data)
    return (
      <tbody>
        <tr>
          <td colSpan={COLUMNS.length + 2}>{res.value.error ?? 'Loading…'}</td>
        </tr>
      </tbody>
    );
  return (
    <>
      {groups.map((g) => (
        <tbody key={g.name} class="group">
          <GroupHead g={g} label={short.get(g.name)} open={unfold.includes(g.name)} />
          {unfold.includes(g.name) &&
            g.runs.slice(0, SHOWN).map((r) => <Row key={r.id} run={r} onDelete={props.onDelete} />)}
          {unfold.includes(g.name) && g.runs.length > SHOWN && (
            <tr>
              <td />
              <td colSpan={COLUMNS.length + 1} class="note">
                {g.runs.length - SHOWN} more runs; filter the list to see them.
              </td>
            </tr>
          )}
        </tbody>
      ))}
      {props.total > NEWEST && (
        <tbody>
          <tr>
            <td colSpan={COLUMNS.length + 2} class="note">
              Groups of the first {NEWEST.toLocaleString('en-US')} of{' '}
              {props.total.toLocaleString('en-US')} matching runs.
            </td>
          </tr>
        </tbody>
      )}
    </>
  );
}

const joules = (j: Num): string => energy(known(j) ? j * 1000 : null, unit.value);

/** The group's median, and its range if there is one. */
function Middle(props: {
  of: Num[];
  show: (v: number) => string;
  col: string;
  label: string;
  range?: boolean;
}) {
  const s = spread(props.of);
  const wide = COLUMNS.find((c) => c.key === props.col)?.class ?? '';
  if (!s)
    return (
      <td class={`num na hatched ${wide}`} data-col={props.col} data-label={props.label}>
        unavailable
      </td>
    );
  return (
    <td
      class={`num ${wide}`}
      data-col={props.col}
      data-label={props.label}
      title={`Median; ${props.show(s.lo)} to ${props.show(s.hi)}`}
    >
      {props.show(s.mid)}
      {props.range && s.hi > s.lo && (
        <>
          <br />
          <span class="note">
            {props.show(s.lo)} to {props.show(s.hi)}
          </span>
        </>
      )}
    </td>
  );
}

/** Settings that are shown where the runs of a group share them. */
const OTHERS: [string, string, (r: RunSummary) => string | null][] = [
  ['batch', 'Batch', (r) => String(r.batch_size ?? 1)],
  ['threads', 'Threads', (r) => (r.threads ? String(r.threads) : null)],
  ['engine', 'Engine', (r) => r.engine],
];

function GroupHead({ g, label, open }: { g: Group; label?: string; open: boolean }) {
  const { unfold } = selection.value;
  const ids = at.ids.value;
  const mine = g.runs.map((r) => r.id);
  const here = mine.filter((i) => ids.includes(i)).length;
  const name = g.name || 'not stated';
  const one = (values: (string | null)[], many: string): string => {
    const all = [...new Set(values.filter(Boolean))];
    return all.length > 1 ? `${all.length} ${many}` : (all[0] ?? '');
  };
  return (
    <tr class="group-head">
      <td>
        <input
          type="checkbox"
          aria-label={`Select the runs of ${name}`}
          checked={here > 0 && here === mine.length}
          onChange={() => {
            const others = ids.filter((i) => !mine.includes(i));
            select({ ids: here ? others : [...others, ...mine].slice(0, CHOSEN) });
          }}
        />
      </td>
      <td colSpan={2} class="group-name">
        <button
          type="button"
          class="link"
          aria-expanded={open}
          onClick={() =>
            select({ unfold: open ? unfold.filter((n) => n !== g.name) : [...unfold, g.name] })
          }
        >
          <Icon name={open ? 'down' : 'chevron'} /> {label ?? name}
        </button>{' '}
        <span class="muted num">
          {g.runs.length} {g.runs.length === 1 ? 'run' : 'runs'}
        </span>
      </td>
      <td data-col="model" class="nowrap model muted" data-label="Model">
        {[
          one(
            g.runs.map((r) => r.model_name),
            'models',
          ),
          one(
            g.runs.map((r) => r.dtype),
            'types',
          ),
        ]
          .filter(Boolean)
          .join(' ')}
      </td>
      <td class="num wider blank" data-col="tokens" />
      <Middle
        of={g.runs.map((r) => r.total_duration_ms)}
        show={time}
        col="duration"
        label="Duration"
      />
      <Middle
        of={g.runs.map((r) => r.total_energy_mj)}
        show={(v) => energy(v, unit.value)}
        col="energy"
        label="Energy"
      />
      <Middle of={g.runs.map(primaryJoules)} show={joules} col="jpt" range label="Typical token" />
      <Middle
        of={g.runs.map((r) => r.joules_per_token)}
        show={joules}
        col="mean"
        label="Mean token"
      />
      <Middle
        of={g.runs.map((r) => r.net_energy_mj)}
        show={(v) => energy(v, unit.value)}
        col="net"
        label="Net"
      />
      <Middle of={g.runs.map((r) => r.tokens_per_second)} show={plain} col="tps" label="Tokens/s" />
      {OTHERS.map(([col, label, of]) => (
        <td key={col} class="muted" data-col={col} data-label={label}>
          {one(g.runs.map(of), 'values')}
        </td>
      ))}
      <Middle of={g.runs.map(thinkingShare)} show={percent} col="thinking" label="Thinking" />
      <Middle
        of={g.runs.map((r) => r.disturbed_share)}
        show={percent}
        col="disturbed"
        label="Disturbed"
      />
      <td data-col="state" class="state-cell wide" data-label="State">
        <span class="note">medians</span>{' '}
        {g.runs.some((r) => r.energy_source === 'modelled') && <SourceBadge source="modelled" />}
      </td>
      <td class="blank" />
    </tr>
  );
}
