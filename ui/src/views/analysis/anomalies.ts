// Descriptions of anomalous tokens and samples.
import type { Anomaly, TokenRow } from '../../api/types';
import { time } from '../../core/format';

/** Descriptions of the causes reported by the server; none for an unknown cause. */
const CAUSES: Record<string, string> = {
  busy: 'the machine was busy with something else',
  waited: 'the run waited: the machine drew little power',
  throttled: 'the clock was throttled',
  faults: 'the step waited for page faults',
  real: 'a property of the token itself',
};

export const whyOdd = (a: Anomaly): string => {
  const cause = a.cause ? CAUSES[a.cause] : undefined;
  return cause ? `${a.reason}; likely cause: ${cause}` : a.reason;
};

/** "Token 14", "Tokens 14 to 16", "Prompt", "Power at 1.2 s", … */
export function nameOf(a: Anomaly, prompt: boolean): string {
  if (a.token === null)
    return a.kind === 'power' ? `Power at ${time(a.begin_ms)}` : `At ${time(a.begin_ms)}`;
  if (prompt) return 'Prompt';
  return a.tokens > 1 ? `Tokens ${a.token} to ${a.token + a.tokens - 1}` : `Token ${a.token}`;
}

/** Whether a token row lies in the event. */
const holds = (a: Anomaly, token: number): boolean =>
  a.token !== null && token >= a.token && token < a.token + a.tokens;

/** Why a token is marked; null if it is not. */
export function whyToken(token: TokenRow | undefined, anomalies: Anomaly[]): string | null {
  const a = token && anomalies.find((x) => holds(x, token.token));
  if (a) return a.kind === 'disturbance' ? `disturbed: ${whyOdd(a)}` : whyOdd(a);
  return token?.disturbed ? 'disturbed: it took more than 3 times what is expected' : null;
}
