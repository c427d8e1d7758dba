// A report (`perjoule report`) is this page in one file, with the answers of the API that its view asks for inlined
// instead of a server. Built by `vite build --mode report`; in the dashboard's own bundle all of this is dropped.
import type { Query } from './address';

export const REPORT = import.meta.env.MODE === 'report';

export interface Inlined {
  view: 'analysis' | 'compare' | 'experiments';
  /** One run, or those compared. */
  ids: string[];
  experiment: string | null;
  version: string;
  created_at: string;
  /** What the file does not contain, in sentences. */
  left_out: string[];
  /** Commands that record the same again. */
  repeat: string;
  /** By path, with the parameters that select another answer in alphabetical order. */
  answers: Record<string, unknown>;
}

/** Parameters that ask for more or less of the same answer, or for its prices: a report has one answer for all. */
const FREE = new Set([
  'points',
  'limit',
  'from_ms',
  'to_ms',
  'ids',
  'a',
  'b',
  'usd_per_kwh',
  'g_per_kwh',
]);

export const inlined: Inlined | null = REPORT
  ? (JSON.parse(document.getElementById('perjoule-data')?.textContent ?? 'null') as Inlined | null)
  : null;

export function answerKey(path: string, query: Query = {}): string {
  const chosen = Object.entries(query)
    .filter(([k, v]) => !FREE.has(k) && v !== null && v !== undefined && v !== '')
    .map(([k, v]) => `${k}=${v}`)
    .sort();
  return decodeURIComponent(path) + (chosen.length ? `?${chosen.join('&')}` : '');
}

/** A report of a long run lacks what would make the file too large. */
export const holds = (path: string, query?: Query): boolean =>
  !REPORT || inlined?.answers[answerKey(path, query)] !== undefined;

/** The inlined answer to a request; throws an error with the message that a panel shows instead. */
export function inlinedAnswer(path: string, query?: Query): unknown {
  const answer = inlined?.answers[answerKey(path, query)];
  if (answer === undefined)
    throw new Error('This report has no such detail; the dashboard of `perjoule serve` does.');
  return answer;
}

/** The bytes of a binary answer, inlined as base64. */
export const bytesOf = (base64: unknown): ArrayBuffer =>
  Uint8Array.from(atob(String(base64)), (c) => c.charCodeAt(0)).buffer;
