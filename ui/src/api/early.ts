// Requests that the entry script sends while the rest of the page is still being loaded: the server
// then works on the answers meanwhile. The client takes each answer once.
import { FIRST } from './address';

const asked = new Map<string, Promise<Response>>();

/** Asks for what the page at this address shows first. */
export function askEarly(search: string): void {
  const q = new URLSearchParams(search);
  const id = q.get('run');
  if (q.get('view') !== 'analysis' || !id) return;
  for (const of of Object.values(FIRST)) {
    const url = of(id, { usd_per_kwh: q.get('usd'), g_per_kwh: q.get('co2') });
    const answer = fetch(url, { credentials: 'same-origin' });
    answer.catch(() => {}); // whoever takes it is told
    asked.set(url, answer);
  }
}

/** The answer to a request that was sent early; null: it was not, or has been taken. */
export function takeEarly(url: string): Promise<Response> | null {
  const answer = asked.get(url) ?? null;
  asked.delete(url);
  return answer;
}
