// The list of stored runs. Searching, filtering, sorting and paging are done by the server; the
// page holds only the rows that it shows.
import { signal } from '@preact/signals';
import type { VNode } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ApiError, api, type Query } from '../../api/client';
import type { RunSummary } from '../../api/types';
import { clip, dateTime, percent } from '../../core/format';
import { sharedGain } from '../../core/run_energy';
import { Confirm } from '../../parts/confirm';
import { Explain, explaining, termed } from '../../parts/explain';
import { Icon } from '../../parts/icon';
import { Notice, Sentence } from '../../parts/notice';
import { ParetoPanel } from '../../parts/pareto';
import { WithoutDisturbances } from '../../parts/without';
import { finished } from '../../state/live';
import { titleOf } from '../../state/names';
import { stateOf, useResource } from '../../state/resource';
import {
  at,
  CHOSEN,
  EMPTY,
  go,
  type Selection,
  select,
  selection,
  without,
} from '../../state/selection';
import { FIELDS } from '../compare/groups';
import { Bulk } from './bulk';
import { RunDetailPanel } from './detail';
import { GroupedList, GroupRows } from './grouped';
import { COLUMNS, type Column, Row } from './row';
import { SessionsPanels } from './sessions';

const PAGE = 50;
const NONE: RunSummary[] = [];
/** Counts deletions, to reload the list. */
const changed = signal(0);

const number = (text: string): number | null =>
  text.trim() !== '' && Number.isFinite(Number(text)) ? Number(text) : null;

/** Maximum number of newest matching runs in the Pareto chart, and how many are fetched at once, so that no answer
 * occupies the page for longer than a keystroke may take. */
const PARETO = 20_000;
const PARETO_PAGE = 1000;

const FILTERS = [
  'search',
  'model',
  'tag',
  'status',
  'experiment',
  'engine',
  'dtype',
  'machine',
  'least',
  'most',
  'from',
  'to',
] as const;
const CLEAR = Object.fromEntries(FILTERS.map((f) => [f, ''])) as Partial<Selection>;
const isFiltered = (s: Selection): boolean => FILTERS.some((f) => s[f] !== '');

function query(s: Selection): Query {
  return {
    search: s.search,
    model: s.model,
    tag: s.tag ? [s.tag] : [],
    status: s.status,
    experiment: s.experiment,
    engine: s.engine,
    dtype: s.dtype,
    machine: s.machine,
    min_joules_per_token_typical: number(s.least),
    max_joules_per_token_typical: number(s.most),
    from: s.from,
    to: s.to,
    sort: s.sort,
    order: s.order,
    limit: PAGE,
    offset: (s.page - 1) * PAGE,
  };
}

export function HistoryView() {
  const s = selection.value;
  const q = { ...query(s), ...without.value };
  const res = useResource(`${JSON.stringify(q)} ${finished.value} ${changed.value}`, (x) =>
    api.runs(q, x),
  );
  const runs = res.value.data?.runs ?? NONE;
  const [doomed, setDoomed] = useState<RunSummary | null>(null);
  const total = res.value.data?.total ?? 0;
  const gain = sharedGain(runs);
  const rows = useRows(runs, setDoomed);
  const pareto = (
    <AllRuns key={finished.value} q={q} total={total} calm={!res.value.loading && total > 0} />
  );
  const [error, setError] = useState<string | null>(null);
  const filtered = isFiltered(s);
  const state = stateOf(res, () =>
    total
      ? null
      : filtered
        ? 'No run matches these filters.'
        : 'No runs are stored yet. Start one in Live, or with `perjoule run` in a terminal.',
  );
  const remove = async () => {
    if (!doomed) return;
    try {
      await api.remove(doomed.id);
      if (s.run === doomed.id) select({ run: null });
      select({ ids: selection.value.ids.filter((i) => i !== doomed.id) });
      setDoomed(null);
      setError(null);
      changed.value++;
    } catch (e) {
      setError(e instanceof ApiError ? e.message : String(e));
    }
  };
  return (
    <div class={`history ${s.run ? 'with-detail' : ''}`}>
      <div class="stack">
        <div class="row">
          <h1>History</h1>
          <span class="muted" role="status">
            {res.value.data
              ? `${total.toLocaleString('en-US')} ${total === 1 ? 'run' : 'runs'}`
              : ''}
          </span>
          <span class="spacer" />
          <button
            type="button"
            class="btn"
            onClick={() => document.querySelector('.pareto-jump')?.scrollIntoView()}
          >
            Pareto front
          </button>
          <Columns />
          <GroupRows />
          <Grouped />
          <Bulk q={q} total={total} changed={() => changed.value++} />
        </div>
        <Filters />
        <section class="panel list" aria-label="Runs" aria-busy={res.value.loading}>
          {state.kind === 'error' && (
            <Notice bad>
              {state.text}{' '}
              <button type="button" class="btn small" onClick={state.retry}>
                Try again
              </button>
            </Notice>
          )}
          {state.kind === 'empty' && (
            <div class="state">
              <Sentence text={state.text} />
            </div>
          )}
          {state.kind === 'loading' && <div class="state skeleton">Loading…</div>}
          {state.kind === 'ready' && (
            <table class={`runs ${s.hide.map((k) => `no-${k}`).join(' ')}`}>
              <thead>
                <tr>
                  <th scope="col">
                    <TickAll runs={runs} />
                  </th>
                  {COLUMNS.map((c) => (
                    <Head key={c.key} column={c} />
                  ))}
                  <th scope="col">
                    <span class="sr-only">Actions</span>
                  </th>
                </tr>
              </thead>
              {s.group ? (
                <GroupedList q={q} total={total} onDelete={setDoomed} />
              ) : (
                <tbody>{rows}</tbody>
              )}
            </table>
          )}
          {gain !== null && (
            <p class="note">
              Intervals leave out the error of a sensor's calibration, which its rows share: up to ±
              {percent(gain)}.
            </p>
          )}
          {!s.group && <Pager total={total} />}
        </section>
        <SessionsPanels stamp={`${finished.value} ${changed.value} ${s.calm}`} />
        <div class="pareto-jump">{pareto}</div>
      </div>
      {s.run && <RunDetailPanel key={s.run} id={s.run} onDelete={setDoomed} />}
      <Confirm
        open={doomed !== null}
        title="Delete this run?"
        text={
          doomed
            ? `“${clip(titleOf(doomed), 80)}” of ${dateTime(doomed.created_at)} and everything recorded in it will be gone.`
            : ''
        }
        action="Delete"
        error={error}
        onYes={() => void remove()}
        onNo={() => {
          setDoomed(null);
          setError(null);
        }}
      />
    </div>
  );
}

/** Rows of a large screen, which are rendered immediately; the others follow. */
const SCREENFUL = 24;

/** Groups of repeats whose runs are all shown. */
const openRepeats = signal<ReadonlySet<string>>(new Set());

function turnRepeats(group: string): void {
  const next = new Set(openRepeats.peek());
  if (!next.delete(group)) next.add(group);
  openRepeats.value = next;
}

/** Neighbours that repeat each other are one row, with the number of those folded into it; negative: they stand
 * below it. */
export function folded(
  runs: RunSummary[],
  open: ReadonlySet<string>,
): { run: RunSummary; repeats: number }[] {
  const out: { run: RunSummary; repeats: number }[] = [];
  let [group, head]: [string | null, number] = [null, -1];
  for (const run of runs) {
    if (run.repeat_group === null || run.repeat_group !== group) {
      [group, head] = [run.repeat_group, out.length];
      out.push({ run, repeats: 0 });
    } else if (open.has(run.repeat_group)) {
      out[head].repeats--;
      out.push({ run, repeats: 0 });
    } else out[head].repeats++;
  }
  return out;
}

/** The rows of the list. A new response reuses the existing row elements, so that a keystroke changes only
 * texts; rows with unchanged runs are not rendered again. Rows below the screen are rendered after the first
 * paint. */
function useRows(runs: RunSummary[], onDelete: (run: RunSummary) => void): VNode[] {
  const [settled, setSettled] = useState(runs);
  const made = useRef<{ run: RunSummary; repeats: number; row: VNode }[]>([]);
  useEffect(() => {
    if (settled === runs) return;
    let timer = 0;
    const frame = requestAnimationFrame(() => {
      timer = window.setTimeout(() => setSettled(runs));
    });
    return () => {
      cancelAnimationFrame(frame);
      clearTimeout(timer);
    };
  }, [runs, settled]);
  const list =
    settled === runs
      ? runs
      : [...runs.slice(0, SCREENFUL), ...settled.slice(SCREENFUL, runs.length)];
  made.current = folded(list, openRepeats.value).map(({ run, repeats }, i) => {
    const old = made.current[i];
    if (old?.run === run && old.repeats === repeats) return old;
    const row = (
      <Row key={i} run={run} repeats={repeats} onRepeats={turnRepeats} onDelete={onDelete} />
    );
    return { run, repeats, row };
  });
  return made.current.map((m) => m.row);
}

/** Every matching run in one chart, whatever page of the list is shown. */
function AllRuns({ q, total, calm }: { q: Query; total: number; calm: boolean }) {
  const ask = { ...q, limit: PARETO_PAGE, offset: 0, sort: 'date', order: 'desc' };
  const res = useResource(calm ? JSON.stringify(ask) : null, async (s) => {
    const all: RunSummary[] = [];
    for (let offset = 0; offset < PARETO; offset += PARETO_PAGE) {
      await new Promise((done) => setTimeout(done, offset ? 50 : 400));
      s.throwIfAborted();
      const { runs, total } = await api.runs({ ...ask, offset }, s);
      all.push(...runs);
      if (offset + PARETO_PAGE >= total) break;
    }
    return all;
  });
  const runs = res.value.data;
  const panel = useMemo(
    () =>
      runs && (
        <ParetoPanel
          runs={runs}
          note={`${total > PARETO ? `The newest ${PARETO.toLocaleString('en-US')} of the ${total.toLocaleString('en-US')} matching runs` : 'All matching runs'}; down and to the right is better. The line is the Pareto front. Click a run to analyse it.`}
        />
      ),
    [runs, total],
  );
  return total > 0 ? panel : null;
}

/** Ticks all runs of this page, or none. */
function TickAll({ runs }: { runs: RunSummary[] }) {
  const ids = at.ids.value;
  const here = runs.filter((r) => ids.includes(r.id)).length;
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (box.current) box.current.indeterminate = here > 0 && here < runs.length;
  });
  return (
    <input
      ref={box}
      type="checkbox"
      aria-label="Select all runs of this page"
      checked={here > 0 && here === runs.length}
      onChange={() => {
        const mine = new Set(runs.map((r) => r.id));
        const others = ids.filter((i) => !mine.has(i));
        select({ ids: here ? others : [...others, ...mine].slice(0, CHOSEN) });
      }}
    />
  );
}

/** Chooser of the visible columns. */
function Columns() {
  const hide = selection.value.hide;
  return (
    <details class="menu">
      <summary class="btn">Columns</summary>
      <ul>
        {COLUMNS.filter((c) => c.key !== 'prompt').map((c) => (
          <li key={c.key}>
            <label class="check">
              <input
                type="checkbox"
                checked={!hide.includes(c.key)}
                onChange={() =>
                  select({
                    hide: hide.includes(c.key) ? hide.filter((k) => k !== c.key) : [...hide, c.key],
                  })
                }
              />
              {c.label}
            </label>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** Compares the matching runs grouped by a setting. */
function Grouped() {
  return (
    <select
      class="input small"
      aria-label="Compare groups"
      value=""
      onChange={(e) => go({ view: 'compare', by: e.currentTarget.value })}
    >
      <option value="">Compare groups by…</option>
      {FIELDS.map((f) => (
        <option key={f} value={f}>
          {f.replace('_', ' ')}
        </option>
      ))}
    </select>
  );
}

function Filters() {
  const s = selection.value;
  const facets = useResource(`facets ${finished.value} ${changed.value}`, (x) => api.facets(x));
  const f = facets.value.data;
  const put = (change: Partial<Selection>) => select({ ...change, page: 1 });
  const pick = (
    name: 'model' | 'tag' | 'status' | 'experiment' | 'engine' | 'dtype' | 'machine',
    label: string,
    list: { name: string; runs: number }[],
  ) => (
    <select
      class="input"
      aria-label={label}
      value={s[name]}
      onChange={(e) => put({ [name]: e.currentTarget.value })}
    >
      <option value="">{label}: all</option>
      {s[name] && !list.some((x) => x.name === s[name]) && (
        <option value={s[name]}>{s[name]}</option>
      )}
      {list.map((x) => (
        <option key={x.name} value={x.name}>
          {x.name} ({x.runs})
        </option>
      ))}
    </select>
  );
  const any = isFiltered(s);
  return (
    <search class="filters">
      <label class="search">
        <Icon name="search" />
        <span class="sr-only">Search prompts, names and notes</span>
        <input
          id="history-search"
          class="input"
          type="search"
          placeholder="Search prompts, names and notes"
          value={s.search}
          onInput={(e) => put({ search: e.currentTarget.value })}
        />
      </label>
      {pick('model', 'Model', f?.models ?? [])}
      {pick('tag', 'Tag', f?.tags ?? [])}
      {pick('status', 'Status', f?.statuses ?? [])}
      {pick('experiment', 'Experiment', f?.experiments ?? [])}
      {(f?.engines.length ?? 0) > 1 && pick('engine', 'Engine', f?.engines ?? [])}
      {(f?.dtypes.length ?? 0) > 1 && pick('dtype', 'Weights', f?.dtypes ?? [])}
      {(f?.machines.length ?? 0) > 1 && pick('machine', 'Machine', f?.machines ?? [])}
      <span class="check">
        Typical J/token
        {(['least', 'most'] as const).map((name) => (
          <input
            key={name}
            class="input narrow"
            type="number"
            min="0"
            step="any"
            placeholder={name === 'least' ? 'from' : 'to'}
            aria-label={name === 'least' ? 'Smallest joules per token' : 'Largest joules per token'}
            value={s[name]}
            onInput={(e) => put({ [name]: e.currentTarget.value })}
          />
        ))}
      </span>
      <label class="check">
        From
        <input
          class="input"
          type="date"
          value={s.from}
          onInput={(e) => put({ from: e.currentTarget.value })}
        />
      </label>
      <label class="check">
        to
        <input
          class="input"
          type="date"
          value={s.to}
          onInput={(e) => put({ to: e.currentTarget.value })}
        />
      </label>
      <WithoutDisturbances />
      {any && (
        <button type="button" class="btn small" onClick={() => put(CLEAR)}>
          Clear filters
        </button>
      )}
    </search>
  );
}

function Head({ column }: { column: Column }) {
  const s = selection.value;
  const mine = column.sort !== undefined && s.sort === column.sort;
  const sorted = mine ? (s.order === 'asc' ? 'ascending' : 'descending') : undefined;
  const turn = () => {
    const better =
      column.sort === 'joules_per_token_typical' ||
      column.sort === 'energy' ||
      column.sort === 'duration'
        ? 'asc'
        : 'desc';
    select({
      sort: column.sort ?? EMPTY.sort,
      order: mine ? (s.order === 'asc' ? 'desc' : 'asc') : better,
      page: 1,
    });
  };
  return (
    <th
      scope="col"
      class={`${column.num ? 'num' : ''} ${column.class ?? ''} c-${column.key}`}
      aria-sort={sorted}
    >
      {column.sort ? (
        <button
          type="button"
          class="sort"
          {...(column.term ? explaining(termed(column.term), 'Press to sort by it.') : {})}
          onClick={turn}
        >
          {column.label}
          <Icon name={mine && s.order === 'asc' ? 'up' : 'down'} />
        </button>
      ) : column.term ? (
        <Explain of={column.term}>{column.label}</Explain>
      ) : (
        column.label
      )}
    </th>
  );
}

function Pager({ total }: { total: number }) {
  const page = selection.value.page;
  const pages = Math.max(1, Math.ceil(total / PAGE));
  useEffect(() => {
    if (total > 0 && page > pages) select({ page: pages });
  }, [total, page, pages]);
  if (pages <= 1) return null;
  return (
    <nav class="row pager" aria-label="Pages">
      <button
        type="button"
        class="btn small"
        disabled={page <= 1}
        onClick={() => select({ page: page - 1 })}
      >
        Previous
      </button>
      <span class="num">
        {(page - 1) * PAGE + 1} to {Math.min(total, page * PAGE)} of {total.toLocaleString('en-US')}
      </span>
      <button
        type="button"
        class="btn small"
        disabled={page >= pages}
        onClick={() => select({ page: page + 1 })}
      >
        Next
      </button>
    </nav>
  );
}
