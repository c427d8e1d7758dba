// Prefetching: the entry script sends the first requests while the rest of the page is loading. The client
// takes each response once.
import { FIRST } from './address';

const asked = new Map<string, Promise<Response>>();

/** Prefetches what the page at this address shows first. */
export function askEarly(search: string): void {
  const q = new URLSearchParams(search);
  const id = q.get('run');
  if (q.get('view') !== 'analysis' || !id) return;
  for (const of of Object.values(FIRST)) {
    const url = of(id, { usd_per_kwh: q.get('usd'), g_per_kwh: q.get('co2') });
    const answer = fetch(url, { credentials: 'same-origin' });
    answer.catch(() => {}); // the error is reported to whoever takes the response
    asked.set(url, answer);
  }
}

/** The response of a prefetched request; null: not prefetched, or already taken. */
export function takeEarly(url: string): Promise<Response> | null {
  const answer = asked.get(url) ?? null;
  asked.delete(url);
  return answer;
}
