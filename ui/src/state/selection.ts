// The selection that all panels read and write, and its encoding in the URL. It holds everything
// that a user can navigate to, so that any view can be shared as a link.
//
// State is encoded in the query (`?view=analysis&run=…`), never in the path, so that the page
// works from any folder, below any prefix, on any server.
import { batch, computed, effect, signal } from '@preact/signals';
import { inlined, REPORT } from '../api/inlined';
import { STATISTIC_NAMES, type StatisticName } from '../api/statistics';
import type { EnergyUnit } from '../core/format';
import { unit } from './settings';

export const VIEWS = ['live', 'analysis', 'history', 'compare', 'experiments', 'machines'] as const;
export type View = (typeof VIEWS)[number];

/** What the structure pane shows. */
export const PANES = [
  'icicle',
  'treemap',
  'sankey',
  'heatmap',
  'tokens',
  'map',
  'spans',
  'roofline',
  'rails',
  'samples',
  'experts',
  'figures',
] as const;
export type Pane = (typeof PANES)[number];
export const AGGREGATES = ['sum', 'mean', 'median'] as const;
export type Aggregate = (typeof AGGREGATES)[number];
export const SCALES = ['auto', 'linear', 'log', 'robust'] as const;
export type Scale = (typeof SCALES)[number];
export const SIZES = ['energy', 'time'] as const;
export type Size = (typeof SIZES)[number];

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

/** A hypothetical request; it has a list of batch sizes, which are shown side by side. */
export interface WhatIf {
  input: string;
  output: string;
  batches: string;
  dtype: string;
  model: string;
}

export interface Selection {
  view: View;
  run: string | null;
  range: Range | null;
  /** Analysis: the two flags on the timeline between which energy is read. */
  between: Range | null;
  /** Analysis: the timeline takes the height of the window. */
  tall: boolean;
  /** Analysis: the name that is searched for on the timeline, and the tracks pinned to its top. */
  find: string;
  pins: string[];
  phase: string | null;
  token: number | null;
  layer: number | null;
  component: string | null;
  sequence: number | null;
  metric: Metric;
  pane: Pane;
  aggregate: Aggregate;
  scale: Scale;
  size: Size;
  /** Energy above the idle power of the machine. */
  net: boolean;
  /** Every figure without disturbances. */
  calm: boolean;
  /** Separate layers in the trees, instead of merged ones. */
  apart: boolean;
  /** The model load in the trees, instead of the request alone. */
  loading: boolean;
  unit: EnergyUnit;
  /** Price per kilowatt-hour in USD, and grams of CO₂ per kilowatt-hour; strings, '' for the server's
   * settings. */
  usd: string;
  co2: string;
  /** Minimum confidence of a sample's phase, in percent. */
  confidence: number;
  /** Seconds of power that Live shows. */
  window: number;
  /** Runs ticked in History; up to four of them are shown in Compare. */
  ids: string[];
  /** History: the query to the server. */
  search: string;
  model: string;
  tag: string;
  status: string;
  experiment: string;
  engine: string;
  dtype: string;
  machine: string;
  /** Minimum and maximum joules per token; strings, so that a half-typed number is kept. */
  least: string;
  most: string;
  /** History: field to group by, and expanded groups. */
  group: string;
  unfold: string[];
  /** History: hidden columns. */
  hide: string[];
  from: string;
  to: string;
  sort: string;
  order: 'asc' | 'desc';
  page: number;
  /** Compare: groups by this field instead of chosen runs. */
  by: string;
  /** Compare: hide rows without a difference. */
  diff: boolean;
  /** Experiments: the request to predict; null: none. */
  whatIf: WhatIf | null;
  /** What the form of Live would ask for, other than by default: a query of its own. */
  ask: string;
  /** Experiments: the setting on the chart's x axis. */
  along: string;
  /** Machines: the joined machine whose live stream is shown; '': none. */
  watch: string;
}

/** Maximum number of runs shown in Compare, and of runs ticked at once. */
export const COMPARED = 4;
export const CHOSEN = 200;

export const EMPTY: Selection = {
  view: 'live',
  run: null,
  range: null,
  between: null,
  tall: false,
  find: '',
  pins: [],
  phase: null,
  token: null,
  layer: null,
  component: null,
  sequence: null,
  metric: 'energy',
  pane: 'icicle',
  aggregate: 'sum',
  scale: 'auto',
  size: 'energy',
  net: false,
  calm: false,
  apart: false,
  loading: false,
  unit: 'auto',
  usd: '',
  co2: '',
  confidence: 0,
  window: 60,
  ids: [],
  search: '',
  model: '',
  tag: '',
  status: '',
  experiment: '',
  engine: '',
  dtype: '',
  machine: '',
  least: '',
  most: '',
  group: '',
  unfold: [],
  hide: ['mean', 'net', 'batch', 'threads', 'engine', 'thinking', 'disturbed'],
  from: '',
  to: '',
  sort: 'date',
  order: 'desc',
  page: 1,
  by: '',
  diff: false,
  whatIf: null,
  ask: '',
  along: '',
  watch: '',
};

const one = <T extends string>(text: string | null, of: readonly T[], otherwise: T): T =>
  of.includes(text as T) ? (text as T) : otherwise;

const whole = (text: string | null): number | null =>
  text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null;

/** Parses a price or an intensity; invalid numbers are dropped. */
export const amount = (text: string | null): string =>
  text !== null && /^\d{1,4}(\.\d{0,6})?$/.test(text.trim()) ? text.trim() : '';

function readWhatIf(text: string): WhatIf {
  const [input = '', output = '', batches = '', dtype = '', ...model] = text.split('~');
  return { input, output, batches, dtype, model: model.join('~') };
}

function readRange(text: string | null): Range | null {
  const m = /^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/.exec(text ?? '');
  return m && Number(m[2]) > Number(m[1]) ? [Number(m[1]), Number(m[2])] : null;
}

/** Parses any query; missing or malformed values get their default. */
export function parse(query: string): Selection {
  const q = new URLSearchParams(query);
  const text = (name: string) => q.get(name) ?? '';
  const view = q.get('view') as View;
  const metric = q.get('metric') as Metric;
  return {
    view: VIEWS.includes(view) ? view : 'live',
    run: q.get('run') || null,
    range: readRange(q.get('t')),
    between: readRange(q.get('between')),
    tall: q.get('timeline') === 'tall',
    find: text('find'),
    pins: text('pins').split(',').filter(Boolean),
    phase: q.get('phase') || null,
    token: whole(q.get('token')),
    layer: whole(q.get('layer')),
    component: q.get('component') || null,
    sequence: whole(q.get('sequence')),
    metric: METRICS.includes(metric) ? metric : EMPTY.metric,
    pane: one(q.get('pane'), PANES, EMPTY.pane),
    aggregate: one(q.get('per'), AGGREGATES, EMPTY.aggregate),
    scale: one(q.get('scale'), SCALES, EMPTY.scale),
    size: one(q.get('size'), SIZES, EMPTY.size),
    net: q.get('net') === '1',
    calm: q.get('disturbances') === 'leave',
    apart: q.get('layers') === 'apart',
    loading: q.get('load') === '1',
    unit: one(q.get('unit'), ['auto', 'mJ', 'J', 'Wh'], EMPTY.unit),
    usd: amount(q.get('usd')),
    co2: amount(q.get('co2')),
    confidence: Math.min(100, whole(q.get('confidence')) ?? 0),
    window: Number(one(q.get('window'), ['60', '10', '300'], '60')),
    ids: text('ids').split(',').filter(Boolean).slice(0, CHOSEN),
    search: text('q'),
    model: text('model'),
    tag: text('tag'),
    status: text('status'),
    experiment: text('experiment'),
    engine: text('engine'),
    dtype: text('dtype'),
    machine: text('machine'),
    least: text('least'),
    most: text('most'),
    group: text('group'),
    unfold: q.getAll('unfold'),
    hide: q.has('hide') ? text('hide').split(',').filter(Boolean) : EMPTY.hide,
    from: text('from'),
    to: text('to'),
    sort: text('sort') || EMPTY.sort,
    order: q.get('order') === 'asc' ? 'asc' : 'desc',
    page: Math.max(1, whole(q.get('page')) ?? 1),
    by: text('by'),
    diff: q.get('diff') === '1',
    whatIf: q.has('what_if') ? readWhatIf(text('what_if')) : null,
    ask: text('ask'),
    along: text('along'),
    watch: text('watch'),
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
  if (s.between) add('between', `${fixed(s.between[0])}-${fixed(s.between[1])}`);
  if (s.tall) add('timeline', 'tall');
  add('find', s.find);
  add('pins', s.pins.join(','));
  add('phase', s.phase);
  add('token', s.token);
  add('layer', s.layer);
  add('component', s.component);
  add('sequence', s.sequence);
  add('metric', s.metric, EMPTY.metric);
  add('pane', s.pane, EMPTY.pane);
  add('per', s.aggregate, EMPTY.aggregate);
  add('scale', s.scale, EMPTY.scale);
  add('size', s.size, EMPTY.size);
  if (s.net) add('net', '1');
  if (s.calm) add('disturbances', 'leave');
  if (s.apart) add('layers', 'apart');
  if (s.loading) add('load', '1');
  add('unit', s.unit, EMPTY.unit);
  add('usd', s.usd);
  add('co2', s.co2);
  add('confidence', s.confidence, EMPTY.confidence);
  add('window', s.window, EMPTY.window);
  add('ids', s.ids.join(','));
  add('q', s.search);
  add('model', s.model);
  add('tag', s.tag);
  add('status', s.status);
  add('experiment', s.experiment);
  add('engine', s.engine);
  add('dtype', s.dtype);
  add('machine', s.machine);
  add('least', s.least);
  add('most', s.most);
  add('group', s.group);
  if (s.group) for (const name of s.unfold) add('unfold', name);
  if (s.hide.join() !== EMPTY.hide.join()) q.push(['hide', s.hide.join(',')]);
  add('from', s.from);
  add('to', s.to);
  add('sort', s.sort, EMPTY.sort);
  add('order', s.order, EMPTY.order);
  add('page', s.page, 1);
  add('by', s.by);
  if (s.diff) add('diff', '1');
  if (s.whatIf) {
    const w = s.whatIf;
    q.push(['what_if', [w.input, w.output, w.batches, w.dtype, w.model].join('~')]);
  }
  if (s.view === 'live') add('ask', s.ask);
  add('along', s.along);
  add('watch', s.watch);
  return `?${q.map(([k, v]) => `${k}=${encodeURIComponent(v).replaceAll('%2C', ',')}`).join('&')}`;
}

export const selection = signal<Selection>(EMPTY);

/** The query parameter of the one switch "without disturbances", for all requests with figures of runs. */
export const without = computed((): { disturbances?: string } =>
  selection.value.calm ? { disturbances: 'leave' } : {},
);

/** Query parameters for price and carbon intensity, for all requests that return runs. */
export const rates = computed(() => ({
  usd_per_kwh: selection.value.usd,
  g_per_kwh: selection.value.co2,
  ...without.value,
}));

/** Where the crosshair stands, ms from the start of the run; not part of the address. */
export const cursor = signal<number | null>(null);
/** The first of the two flags, while the second is not set; not part of the address. */
export const flag = signal<number | null>(null);

// One computed signal per field: a component that reads `at.token` does not rerender when the range changes.
const field = <K extends keyof Selection>(k: K) => computed(() => selection.value[k]);
export const at = {
  view: field('view'),
  run: field('run'),
  range: field('range'),
  between: field('between'),
  phase: field('phase'),
  token: field('token'),
  layer: field('layer'),
  component: field('component'),
  sequence: field('sequence'),
  metric: field('metric'),
  pane: field('pane'),
  window: field('window'),
  ids: field('ids'),
  watch: field('watch'),
  ask: field('ask'),
};

/** Quick successive changes of the same fields (zooming by key, a slider, typing) are one history entry, and so are
 * those of one drag, however long it takes. */
const ONE_STEP_MS = 900;
let lastFields = '';
let lastChange = Number.NEGATIVE_INFINITY;
/** The last press of a pointer, by number, and whether it lasts. */
const press = { number: 0, held: false, ofLastChange: 0 };

/** Changes the selection and the URL; Back undoes it. */
export function select(change: Partial<Selection>): void {
  const before = selection.peek();
  const fields = (Object.keys(change) as (keyof Selection)[])
    .filter((k) => JSON.stringify(change[k]) !== JSON.stringify(before[k]))
    .sort()
    .join();
  if (!fields) return;
  const now = performance.now();
  const dragged = press.held && press.ofLastChange === press.number;
  const another = fields !== lastFields || (!dragged && now - lastChange > ONE_STEP_MS);
  // Pending changes belong to the previous history entry.
  if (another && started) {
    flush(pending);
    pending = 'push';
  }
  lastFields = fields;
  lastChange = now;
  press.ofLastChange = press.held ? press.number : 0;
  selection.value = { ...before, ...change };
}

/** Changes the URL without a history entry, for choices made by the page itself. */
export function settle(change: Partial<Selection>): void {
  selection.value = { ...selection.peek(), ...change };
}

const NOTHING_SELECTED = {
  range: null,
  between: null,
  phase: null,
  token: null,
  layer: null,
  component: null,
  sequence: null,
};

export const clearSelection = (): void => select(NOTHING_SELECTED);

export const hasSelection = computed(() => {
  const s = selection.value;
  return !!(
    s.range ||
    s.phase ||
    s.token !== null ||
    s.layer !== null ||
    s.component ||
    s.sequence !== null
  );
});

/** The experiment that is looked at in its view is no filter of the others. */
const forgotten = (s: Selection, change: Partial<Selection>): Partial<Selection> =>
  s.view === 'experiments' && change.view !== undefined && change.view !== 'experiments'
    ? { experiment: EMPTY.experiment }
    : {};

/** Navigates to another view or run with a history entry. A new run starts with nothing selected. */
export function go(change: Partial<Selection>): void {
  if (REPORT) return; // it holds this one view
  if (timer) flush(pending);
  const fresh = change.run !== undefined && change.run !== selection.value.run;
  batch(() => {
    cursor.value = flag.value = null;
    selection.value = {
      ...selection.value,
      ...(fresh ? NOTHING_SELECTED : {}),
      ...forgotten(selection.value, change),
      ...change,
    };
  });
  flush('push');
  window.scrollTo(0, 0);
}

/** Handles plain clicks; clicks for a new tab or window are left to the browser. */
export function follow(e: MouseEvent, view: View, change = {}): void {
  if (e.metaKey || e.ctrlKey || e.shiftKey || e.button !== 0) return;
  e.preventDefault();
  go({ view, ...change });
}

/** The URL to which `go` would navigate, for links that open in a new tab. */
export const href = (change: Partial<Selection>): string =>
  write({
    ...selection.value,
    ...NOTHING_SELECTED,
    ...forgotten(selection.value, change),
    ...change,
  });

/** The same without following the selection: for the many links of a list, each of which would otherwise be
 * rendered again with every keystroke in the search. Whoever uses them renews them when one is pointed at or focused. */
export const hrefNow = (change: Partial<Selection>): string =>
  write({ ...selection.peek(), ...NOTHING_SELECTED, ...change });

let timer = 0;
let started = false;
let pending: 'push' | 'replace' = 'replace';

function flush(how: 'push' | 'replace'): void {
  clearTimeout(timer);
  timer = 0;
  pending = 'replace';
  const test = !REPORT && /[?&]test=1\b/.test(location.search) ? '&test=1' : '';
  const query = write(selection.value) + test;
  if (query === addressed()) return;
  const to = REPORT ? `#${query.slice(1)}` : query;
  if (how === 'push') history.pushState(null, '', to);
  else history.replaceState(null, '', to);
}

/** Debounce time of URL updates: browsers limit replaceState, and a URL change costs as much as rendering a
 * list. */
const CALM_MS = 180;

/** The query in the address. A report keeps it in the fragment, since a file has no query of its own. */
const addressed = (): string => (REPORT ? `?${location.hash.slice(1)}` : location.search);

/** The selection in the address; a report always shows what it is about. */
function restored(): Selection {
  const found = parse(addressed());
  if (!inlined) return found;
  const { view, ids, experiment } = inlined;
  return { ...found, view, ids, run: ids[0] ?? null, experiment: experiment ?? '' };
}

/** Synchronises the selection with the address bar. */
export function startSelection(): void {
  selection.value = restored();
  if (!/[?&]unit=/.test(addressed())) settle({ unit: unit.peek() });
  addEventListener('popstate', () => {
    clearTimeout(timer);
    timer = 0;
    pending = 'replace';
    lastFields = '';
    cursor.value = flag.value = null;
    selection.value = restored();
  });
  if (started) return;
  started = true;
  const held = (is: boolean) => () => {
    press.held = is;
    if (is) press.number++;
  };
  for (const name of ['pointerdown', 'pointerup', 'pointercancel'])
    addEventListener(name, held(name === 'pointerdown'), { capture: true });
  effect(() => {
    unit.value = selection.value.unit;
  });
  effect(() => {
    selection.value;
    clearTimeout(timer);
    timer = window.setTimeout(() => flush(pending), CALM_MS);
  });
}
