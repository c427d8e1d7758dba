// Descriptions of anomalous tokens and samples.
import type { Anomaly, TokenRow } from '../../api/types';
import { digits } from '../../core/format';

/** Descriptions of the causes reported by the server; none for an unknown cause. */
const CAUSES: Record<string, string> = {
  disturbed: 'the machine was busy with something else',
  throttled: 'the clock was throttled',
  faults: 'the step waited for page faults',
  'first of its kind': 'the first step of its kind: caches were cold',
  real: 'a property of the token itself',
};

/** From here on a factor tells more than a number of deviations. */
const PLAINLY = 2;

export const whyOdd = (a: Anomaly): string => {
  const cause = a.cause ? CAUSES[a.cause] : undefined;
  const factor = a.kind === 'token' && a.expected ? (a.value ?? 0) / a.expected : 0;
  const reason =
    factor >= PLAINLY ? `${digits(factor, 2)} times what the tokens around it took` : a.reason;
  return cause ? `${reason}; likely cause: ${cause}` : reason;
};

/** Why a token is marked; null if it is not. */
export function whyToken(token: TokenRow | undefined, anomalies: Anomaly[]): string | null {
  const a = anomalies.find((x) => x.kind === 'token' && x.token === token?.token);
  if (a) return whyOdd(a);
  return token?.disturbed ? `disturbed: ${CAUSES.disturbed}` : null;
}
