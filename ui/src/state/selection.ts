// The one selection that every panel reads and writes, and its spelling in the URL. Everything a
// person can reach is in it, so that any view can be shared as an address.
//
// Addresses carry all state in the query (`?view=analysis&run=…`), never in the path: the page then
// works from any folder, behind any prefix, on any server.
import { batch, computed, effect, signal } from '@preact/signals';
import { STATISTIC_NAMES, type StatisticName } from '../api/statistics';

export type View = 'live' | 'analysis' | 'history' | 'compare';
export const VIEWS: View[] = ['live', 'analysis', 'history', 'compare'];

export type Metric = 'time' | 'energy' | 'power' | StatisticName | 'attention_entropy';
export const METRICS: readonly Metric[] = [
  'time',
  'energy',
  'power',
  ...STATISTIC_NAMES,
  'attention_entropy',
];

/** Milliseconds from the start of the run. */
export type Range = [number, number];

export interface Selection {
  view: View;
  run: string | null;
  range: Range | null;
  phase: string | null;
  token: number | null;
  layer: number | null;
  component: string | null;
  metric: Metric;
  /** Runs side by side in Compare, and ticked in History. */
  ids: string[];
  /** History: what the server is asked. */
  search: string;
  model: string;
  tag: string;
  status: string;
  experiment: string;
  from: string;
  to: string;
  sort: string;
  order: 'asc' | 'desc';
  page: number;
  /** Compare: rows without a difference are left out. */
  diff: boolean;
}

export const EMPTY: Selection = {
  view: 'live',
  run: null,
  range: null,
  phase: null,
  token: null,
  layer: null,
  component: null,
  metric: 'energy',
  ids: [],
  search: '',
  model: '',
  tag: '',
  status: '',
  experiment: '',
  from: '',
  to: '',
  sort: 'date',
  order: 'desc',
  page: 1,
  diff: false,
};

const whole = (text: string | null): number | null =>
  text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null;

function readRange(text: string | null): Range | null {
  const m = /^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/.exec(text ?? '');
  return m && Number(m[2]) > Number(m[1]) ? [Number(m[1]), Number(m[2])] : null;
}

/** Reads any query; what is missing or malformed takes its default. */
export function parse(query: string): Selection {
  const q = new URLSearchParams(query);
  const text = (name: string) => q.get(name) ?? '';
  const view = q.get('view') as View;
  const metric = q.get('metric') as Metric;
  return {
    view: VIEWS.includes(view) ? view : 'live',
    run: q.get('run') || null,
    range: readRange(q.get('t')),
    phase: q.get('phase') || null,
    token: whole(q.get('token')),
    layer: whole(q.get('layer')),
    component: q.get('component') || null,
    metric: METRICS.includes(metric) ? metric : EMPTY.metric,
    ids: text('ids').split(',').filter(Boolean).slice(0, 4),
    search: text('q'),
    model: text('model'),
    tag: text('tag'),
    status: text('status'),
    experiment: text('experiment'),
    from: text('from'),
    to: text('to'),
    sort: text('sort') || EMPTY.sort,
    order: q.get('order') === 'asc' ? 'asc' : 'desc',
    page: Math.max(1, whole(q.get('page')) ?? 1),
    diff: q.get('diff') === '1',
  };
}

const fixed = (ms: number): string => String(Math.round(ms * 1000) / 1000);

/** The shortest query that parses back to the same selection. */
export function write(s: Selection): string {
  const q: [string, string][] = [['view', s.view]];
  const add = (
    name: string,
    value: string | number | null,
    unless: string | number | null = '',
  ) => {
    if (value !== null && value !== unless && value !== '') q.push([name, String(value)]);
  };
  add('run', s.run);
  if (s.range) add('t', `${fixed(s.range[0])}-${fixed(s.range[1])}`);
  add('phase', s.phase);
  add('token', s.token);
  add('layer', s.layer);
  add('component', s.component);
  add('metric', s.metric, EMPTY.metric);
  add('ids', s.ids.join(','));
  add('q', s.search);
  add('model', s.model);
  add('tag', s.tag);
  add('status', s.status);
  add('experiment', s.experiment);
  add('from', s.from);
  add('to', s.to);
  add('sort', s.sort, EMPTY.sort);
  add('order', s.order, EMPTY.order);
  add('page', s.page, 1);
  if (s.diff) add('diff', '1');
  return `?${q.map(([k, v]) => `${k}=${encodeURIComponent(v).replaceAll('%2C', ',')}`).join('&')}`;
}

export const selection = signal<Selection>(EMPTY);

/** Where the crosshair stands, ms from the start of the run; not part of the address. */
export const cursor = signal<number | null>(null);

// One computed per field: a component that reads `at.token` does not wake when the range moves.
const field = <K extends keyof Selection>(k: K) => computed(() => selection.value[k]);
export const at = {
  view: field('view'),
  run: field('run'),
  range: field('range'),
  phase: field('phase'),
  token: field('token'),
  layer: field('layer'),
  component: field('component'),
  metric: field('metric'),
  ids: field('ids'),
};

/** Changes the selection in place: the address follows, the back button does not stop here. */
export function select(change: Partial<Selection>): void {
  selection.value = { ...selection.value, ...change };
}

const NOTHING_SELECTED = { range: null, phase: null, token: null, layer: null, component: null };

export const clearSelection = (): void => select(NOTHING_SELECTED);

export const hasSelection = computed(() => {
  const s = selection.value;
  return !!(s.range || s.phase || s.token !== null || s.layer !== null || s.component);
});

/** Goes to another view or run: a stop for the back button. A new run starts with nothing selected. */
export function go(change: Partial<Selection>): void {
  const fresh = change.run !== undefined && change.run !== selection.value.run;
  batch(() => {
    cursor.value = null;
    selection.value = { ...selection.value, ...(fresh ? NOTHING_SELECTED : {}), ...change };
  });
  flush('push');
  window.scrollTo(0, 0);
}

/** The address `go` would lead to, for links that open in a new tab. */
export const href = (change: Partial<Selection>): string =>
  write({ ...selection.value, ...NOTHING_SELECTED, ...change });

let timer = 0;
let started = false;

function flush(how: 'push' | 'replace'): void {
  clearTimeout(timer);
  timer = 0;
  const query = write(selection.value) + (/[?&]test=1\b/.test(location.search) ? '&test=1' : '');
  if (query === location.search) return;
  if (how === 'push') history.pushState(null, '', query);
  else history.replaceState(null, '', query);
}

/** Ties the selection to the address bar. Browsers limit replaceState, so changes are gathered. */
export function startSelection(): void {
  selection.value = parse(location.search);
  addEventListener('popstate', () => {
    clearTimeout(timer);
    timer = 0;
    selection.value = parse(location.search);
  });
  if (started) return;
  started = true;
  effect(() => {
    selection.value;
    if (!timer) timer = window.setTimeout(() => flush('replace'), 120);
  });
}
