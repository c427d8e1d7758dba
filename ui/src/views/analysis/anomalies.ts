// Descriptions of anomalous tokens and samples.
import type { Anomaly, TokenRow } from '../../api/types';

/** Descriptions of the causes reported by the server; none for an unknown cause. */
const CAUSES: Record<string, string> = {
  disturbed: 'the machine was busy with something else',
  throttled: 'the clock was throttled',
  faults: 'the step waited for page faults',
  'first of its kind': 'the first step of its kind: caches were cold',
  real: 'a property of the token itself',
};

export const whyOdd = (a: Anomaly): string => {
  const cause = a.cause ? CAUSES[a.cause] : undefined;
  return cause ? `${a.reason}; likely cause: ${cause}` : a.reason;
};

/** Why a token is marked; null if it is not. */
export function whyToken(token: TokenRow | undefined, anomalies: Anomaly[]): string | null {
  const a = anomalies.find((x) => x.kind === 'token' && x.token === token?.token);
  if (a) return whyOdd(a);
  return token?.disturbed ? `disturbed: ${CAUSES.disturbed}` : null;
}
