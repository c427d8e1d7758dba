// HTTP requests to the API. URLs are relative to the page, so that it works below any prefix. A
// failure is an ApiError with the message that the server returned.
import { signal } from '@preact/signals';
import { address, base, type Query, runPath as run } from './address';
import { takeEarly } from './early';
import { bytesOf, inlinedAnswer, REPORT } from './inlined';
import type * as T from './types';

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

async function problem(r: Response): Promise<ApiError> {
  let text = `The server answered ${r.status} ${r.statusText}.`;
  try {
    const p = (await r.json()) as { detail?: string; title?: string };
    text = p.detail ?? p.title ?? text;
  } catch {
    // Not a problem document; the status says enough.
  }
  return new ApiError(r.status, text);
}

const request = (path: string, query?: Query, init: RequestInit = {}): Promise<Response> =>
  ask(address(path, query), init);

async function ask(url: string, init: RequestInit): Promise<Response> {
  let r: Response;
  try {
    const early = init.method ? null : takeEarly(url);
    r = await (early ?? fetch(url, { credentials: 'same-origin', ...init }));
  } catch (e) {
    if (e instanceof DOMException && e.name === 'AbortError') throw e;
    throw new ApiError(0, 'The server cannot be reached. Is `perjoule serve` running?');
  }
  if (r.status === 401) signedOut.value = true;
  if (!r.ok) throw await problem(r);
  return r;
}

/** The server demands its token, and this browser has no session. */
export const signedOut = signal(false);

/** Exchanges the token for a session cookie; throws an error if it is wrong. */
export async function signIn(token: string): Promise<void> {
  await request('session', {}, { method: 'POST', body: token });
  signedOut.value = false;
}

const get = async <R>(path: string, query?: Query, signal?: AbortSignal): Promise<R> =>
  (REPORT
    ? inlinedAnswer(path, query)
    : await (await request(path, query, { signal })).json()) as R;

const NO_LISTS = {
  phases: [],
  power_statistics: [],
  layers: [],
  components: [],
  rail_energy: [],
  warnings: [],
  anomalies: [],
};

const POST = { method: 'POST' };
const asJson = (body: unknown) => ({
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify(body),
});

/** The most recent list of each length asked for: a page of History, the runs of its chart, the newest one. */
const listed = new Map<unknown, { text: string; runs: T.RunSummary[] }>();

/** Keeps the identity of an unchanged list, so that its views are not rendered again. */
function sameRuns(text: string, limit: unknown): T.RunSummary[] {
  const last = listed.get(limit);
  if (text === last?.text) return last.runs;
  const runs = JSON.parse(text) as T.RunSummary[];
  listed.set(limit, { text, runs });
  return runs;
}

export const api = {
  async runs(query: Query, signal?: AbortSignal): Promise<{ runs: T.RunSummary[]; total: number }> {
    const r = await request('api/profiling/runs', query, { signal });
    const runs = sameRuns(await r.text(), query.limit);
    return { runs, total: Number(r.headers.get('X-Total-Count') ?? runs.length) };
  },
  facets: (signal?: AbortSignal) => get<T.Facets>('api/profiling/facets', {}, signal),
  detail: (id: string, signal?: AbortSignal, rates: Query = {}) =>
    get<T.RunDetail>(run(id), { include: 'none', ...rates }, signal),
  summary: async (id: string, signal?: AbortSignal, rates: Query = {}): Promise<T.Summary> => ({
    // Lists that an older server does not send are empty.
    ...NO_LISTS,
    ...(await get<T.Summary>(`${run(id)}/summary`, rates, signal)),
  }),
  pipeline: (id: string, q: Query, signal?: AbortSignal) =>
    get<T.Pipeline>(`${run(id)}/pipeline`, q, signal),
  power: (id: string, q: Query, signal?: AbortSignal) =>
    get<T.PowerSeries>(`${run(id)}/power`, q, signal),
  spans: (id: string, q: Query, signal?: AbortSignal) =>
    get<T.Spans>(`${run(id)}/spans`, q, signal),
  tokens: (id: string, q: Query, signal?: AbortSignal) =>
    get<T.Tokens>(`${run(id)}/tokens`, q, signal),
  /** All tokens of a run, which the server sends in pages. */
  async allTokens(id: string, signal?: AbortSignal, q: Query = {}): Promise<T.Tokens> {
    const all = await api.tokens(id, q, signal);
    while (!REPORT && all.tokens.length < all.total) {
      const more = await api.tokens(
        id,
        { ...q, offset: all.tokens.length, limit: all.total - all.tokens.length },
        signal,
      );
      if (!more.tokens.length) break;
      all.tokens = all.tokens.concat(more.tokens);
    }
    return all;
  },
  heatmap: (id: string, q: Query, signal?: AbortSignal) =>
    get<T.HeatmapAnswer>(`${run(id)}/heatmap`, q, signal),
  async cube(id: string, q: Query, signal?: AbortSignal): Promise<ArrayBuffer> {
    const [path, query] = [`${run(id)}/heatmap`, { ...q, format: 'f32' }];
    if (REPORT) return bytesOf(inlinedAnswer(path, query));
    return (await request(path, query, { signal })).arrayBuffer();
  },
  tree: (id: string, q: Query, signal?: AbortSignal) => get<T.Tree>(`${run(id)}/tree`, q, signal),
  operations: (id: string, q: Query, signal?: AbortSignal) =>
    get<T.Operations>(`${run(id)}/operations`, q, signal),
  advice: (id: string, q: Query, signal?: AbortSignal) =>
    get<T.Advice>(`${run(id)}/advice`, q, signal),
  compareGroups: async (query: Query, signal?: AbortSignal): Promise<T.Compare> => ({
    ...(await get<T.Compare>('api/profiling/compare/groups', query, signal)),
    runs: [],
  }),
  compare: (ids: string[], signal?: AbortSignal, q: Query = {}) =>
    get<T.Compare>('api/profiling/compare', { ids: ids.join(','), ...q }, signal),
  why: async (a: string, b: string, signal?: AbortSignal, q: Query = {}): Promise<T.Why> =>
    (await get<{ why: T.Why }>('api/profiling/compare/why', { a, b, ...q }, signal)).why,
  predict: (q: Query, signal?: AbortSignal) =>
    get<T.Prediction>('api/profiling/predict', q, signal),
  experiments: (signal?: AbortSignal) =>
    get<T.ExperimentLine[]>('api/profiling/experiments', {}, signal),
  experiment: (name: string, signal?: AbortSignal, q: Query = {}) =>
    get<T.Experiment>(`api/profiling/experiments/${encodeURIComponent(name)}`, q, signal),
  async beginExperiment(plan: T.Plan): Promise<string> {
    const r = await request('api/profiling/experiments', {}, { method: 'POST', ...asJson(plan) });
    return ((await r.json()) as { name: string }).name;
  },
  cancelExperiment: async (name: string): Promise<void> => {
    await request(`api/profiling/experiments/${encodeURIComponent(name)}/cancel`, {}, POST);
  },
  /** Queues the remaining runs of a stored plan; `again`: another round. */
  resumeExperiment: async (name: string, again: boolean): Promise<void> => {
    await request(
      `api/profiling/experiments/${encodeURIComponent(name)}/resume`,
      { again: again ? 'true' : null },
      POST,
    );
  },
  /** A standalone report page of runs or of an experiment. */
  reportHref: (of: { ids?: string; experiment?: string; disturbances?: string }): string =>
    address('api/profiling/report', of),
  powerNow: (seconds: number, signal?: AbortSignal) =>
    get<T.PowerNow>('api/profiling/power/now', { seconds }, signal),
  health: (signal?: AbortSignal) => get<T.Health>('healthz', {}, signal),
  sessions: (q: { by: 'session' | 'commit' }, signal?: AbortSignal) =>
    get<T.Session[]>('api/profiling/sessions', q, signal),
  machines: (signal?: AbortSignal) => get<T.Machine[]>('api/profiling/machines', {}, signal),
  devices: (signal?: AbortSignal) => get<T.DeviceList>('api/profiling/devices', {}, signal),
  models: (signal?: AbortSignal) => get<T.ModelInfo[]>('api/profiling/models', {}, signal),
  sensors: (signal?: AbortSignal) => get<T.Sensors>('api/profiling/sensors', {}, signal),
  async generate(body: T.GenerateRequest): Promise<{ run_id: string; position?: number }> {
    const r = await request(
      'api/profiling/generate',
      {},
      {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
      },
    );
    return (await r.json()) as { run_id: string; position?: number };
  },
  /** "stopping" for a running one, "cancelled" for a queued one. */
  cancel: async (id: string): Promise<string> => {
    const r = await request(`${run(id)}/cancel`, {}, { method: 'POST' });
    return ((await r.json()) as { status: string }).status;
  },
  /** Adds tags to a stored run, or removes them. */
  retag: async (id: string, change: { add?: string[]; remove?: string[] }): Promise<void> => {
    await request(`${run(id)}/tags`, change, { method: 'POST' });
  },
  /** Gives a stored run a name and a note; an empty one removes it. */
  describe: async (
    id: string,
    change: { name: string; note: string },
  ): Promise<Pick<T.RunSummary, 'name' | 'note'>> =>
    // As lists, because a single empty value is left out of an address.
    (
      await request(run(id), { name: [change.name], note: [change.note] }, { method: 'PATCH' })
    ).json(),
  conditions: (id: string, signal?: AbortSignal) =>
    get<T.Conditions>(`${run(id)}/conditions`, {}, signal),
  remove: async (id: string): Promise<void> => {
    await request(run(id), {}, { method: 'DELETE' });
  },
  /** Downloads a file from the server with the session's token. */
  async export(id: string, q: Query): Promise<Blob> {
    return (await request(`api/profiling/export/${encodeURIComponent(id)}`, q)).blob();
  },
};

export { base, type Query };
