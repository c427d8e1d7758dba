// A value with its unit and its source (measured, modelled, unavailable). All energies and powers
// that the page shows are created here, never from a bare number: a quantity cannot exist without
// a source, and an unavailable one has no numeric value.
import type { EnergySource } from '../api/types';
import {
  type EnergyUnit,
  energyInterval,
  energySigned,
  known,
  type Num,
  power,
  time,
  UNAVAILABLE,
} from './format';

export type Unit = 'mJ' | 'mW' | 'ms';

export interface Known<U extends Unit> {
  readonly unit: U;
  readonly source: 'measured' | 'modelled';
  readonly value: number;
  /** One standard deviation; null where none was given. */
  readonly sd: number | null;
  /** Rails that belong to the figure but are missing from it, so that it is partial. */
  readonly missing: readonly string[];
  /** It may be negative, as net energy may, and so may its interval. */
  readonly signed?: boolean;
}

export interface Absent<U extends Unit> {
  readonly unit: U;
  readonly source: 'unavailable';
  readonly reason: string | null;
}

export type Quantity<U extends Unit> = Known<U> | Absent<U>;

export const absent = <U extends Unit>(unit: U, reason: string | null = null): Absent<U> => ({
  unit,
  source: 'unavailable',
  reason,
});

/** A value without a source is unavailable. */
export function quantity<U extends Unit>(
  unit: U,
  value: Num,
  source: EnergySource | null | undefined,
  more: {
    sd?: Num;
    missing?: readonly string[] | null;
    reason?: string | null;
    signed?: boolean;
  } = {},
): Quantity<U> {
  if (!known(value) || (source !== 'measured' && source !== 'modelled'))
    return absent(unit, more.reason ?? null);
  const sd = known(more.sd) && more.sd >= 0 ? more.sd : null;
  const signed = more.signed ? { signed: true } : {};
  return { unit, source, value, sd, missing: more.missing ?? [], ...signed };
}

export const isKnown = <U extends Unit>(q: Quantity<U>): q is Known<U> =>
  q.source !== 'unavailable';

export const amountOf = (q: Quantity<Unit>): number | null => (isKnown(q) ? q.value : null);

/** Times come from the run's clock and are always measured. */
export const duration = (ms: Num): Quantity<'ms'> => quantity('ms', ms, 'measured');

/** The weaker of two sources, which is that of a sum. */
export function weaker(a: EnergySource, b: EnergySource): EnergySource {
  if (a === 'unavailable' || b === 'unavailable') return 'unavailable';
  return a === 'modelled' || b === 'modelled' ? 'modelled' : 'measured';
}

/** The sum; unavailable if any part is. Standard deviations are added linearly, an upper bound. */
export function sum<U extends Unit>(unit: U, parts: readonly Quantity<U>[]): Quantity<U> {
  let value = 0;
  let sd = 0;
  let source: EnergySource = 'measured';
  const missing = new Set<string>();
  if (!parts.length) return absent(unit);
  for (const p of parts) {
    if (!isKnown(p)) return absent(unit, p.reason);
    value += p.value;
    sd += p.sd ?? 0;
    source = weaker(source, p.source);
    for (const rail of p.missing) missing.add(rail);
  }
  return quantity(unit, value, source, { sd, missing: [...missing] });
}

/** As text with its interval and unit. */
export function text(q: Quantity<Unit>, unit: EnergyUnit = 'auto'): string {
  if (!isKnown(q)) return UNAVAILABLE;
  if (q.unit === 'mJ') return (q.signed ? energySigned : energyInterval)(q.value, q.sd, unit);
  return q.unit === 'mW' ? power(q.value) : time(q.value);
}
