// Prefetching: the entry script sends the first requests while the rest of the page is loading. The client
// takes each response once. A run that does not exist is asked for once, not for each of its parts.
import { FIRST } from './address';

const asked = new Map<string, Promise<Response>>();
/** To be asked once the summary is here, unless the page is faster. */
const later = new Set<string>();

/** Prefetches what the page at this address shows first: the run's summary and, if it is stored, its parts. */
export function askEarly(search: string): void {
  const q = new URLSearchParams(search);
  const id = q.get('run');
  if (q.get('view') !== 'analysis' || !id) return;
  const { summary, ...parts } = FIRST;
  const head = keep(summary(id, { usd_per_kwh: q.get('usd'), g_per_kwh: q.get('co2') }));
  for (const of of Object.values(parts)) later.add(of(id));
  void head
    .then(async (r) => {
      if (!r.ok || !isStored((await r.clone().json()) as { status: string })) later.clear();
      for (const url of later) keep(url);
      later.clear();
    })
    .catch(() => later.clear()); // the error is reported to whoever takes the response
}

function keep(url: string): Promise<Response> {
  const answer = fetch(url, { credentials: 'same-origin' });
  answer.catch(() => {});
  asked.set(url, answer);
  return answer;
}

/** Whether the parts of a run can be asked for: those of a queued or running one are stored at its end. */
export const isStored = (run: { status: string }): boolean =>
  run.status !== 'queued' && run.status !== 'running';

/** The response of a prefetched request; null: not prefetched, or already taken. */
export function takeEarly(url: string): Promise<Response> | null {
  const answer = asked.get(url) ?? null;
  asked.delete(url);
  later.delete(url);
  return answer;
}
