// How strongly slices of the time axis are coloured: by their energy against the usual one of their name.
import { known } from '../core/format';
import { quantile } from '../core/stats';

/** Opacity of a slice of usual energy, and of one that took AT_MOST times as much. */
export const USUAL = 0.45;
export const MOST = 0.95;
const AT_MOST = 4;

interface Named {
  kind: string;
  phase: string;
  label: string;
  energy: number | null;
  /** Known from the whole run; else it is the median of those given. */
  usual?: number | null;
}

/** The opacity of phases, which have nothing to be compared with. */
export const OF_PHASES = 0.75;

const nameOf = (s: Named): string =>
  s.kind === 'token' || s.kind === 'layer' ? s.phase : `${s.phase} ${s.label}`;

/** The opacity of each slice; NaN where its energy is unknown. Phases have one of their own. */
export function strengths(slices: Named[]): Float32Array {
  const energies = new Map<string, number[]>();
  for (const s of slices) {
    if (s.kind === 'phase' || !known(s.energy) || known(s.usual)) continue;
    const key = `${s.kind} ${nameOf(s)}`;
    const list = energies.get(key);
    if (list) list.push(s.energy);
    else energies.set(key, [s.energy]);
  }
  const usual = new Map(
    [...energies].map(([key, list]) => [
      key,
      quantile(
        list.sort((a, b) => a - b),
        0.5,
      ),
    ]),
  );
  return Float32Array.from(slices, (s) => {
    if (s.kind === 'phase') return OF_PHASES;
    const of = s.usual ?? usual.get(`${s.kind} ${nameOf(s)}`) ?? 0;
    if (!known(s.energy)) return Number.NaN;
    const times = of > 0 ? Math.log(Math.max(1, s.energy / of)) / Math.log(AT_MOST) : 0;
    return USUAL + (MOST - USUAL) * Math.min(1, times);
  });
}
