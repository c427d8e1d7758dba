// URLs of the API, relative to the page, so that it works below any prefix. Separate from the client, so that
// the entry script can request a run before the rest of the page is loaded.
export type Query = Record<string, string | number | null | undefined | string[]>;

export const base = (): string => new URL('.', document.baseURI).href;

export function address(path: string, query: Query = {}): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) {
    if (Array.isArray(v)) for (const item of v) q.append(k, item);
    else if (v !== null && v !== undefined && v !== '') q.set(k, String(v));
  }
  const tail = q.size ? `?${q}` : '';
  return `${base()}${path}${tail}`;
}

export const runPath = (id: string): string => `api/profiling/run/${encodeURIComponent(id)}`;

/** Minimum and maximum per pixel of the widest chart on this screen. */
export const chartPoints = (): number => Math.max(1000, 2 * Math.round(innerWidth));

/** Requests for the first paint of a run's analysis; must equal those of the client. */
export const FIRST: Record<
  'summary' | 'pipeline' | 'power' | 'tokens',
  (id: string, rates?: Query) => string
> = {
  summary: (id, rates) => address(`${runPath(id)}/summary`, rates),
  pipeline: (id) => address(`${runPath(id)}/pipeline`, { limit: 1 }),
  power: (id) => address(`${runPath(id)}/power`, { points: chartPoints() }),
  tokens: (id) => address(`${runPath(id)}/tokens`),
};
