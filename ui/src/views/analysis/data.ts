// What the analysis of one run is drawn from. Each part is fetched once and shared by the panels.

import { type Signal, useComputed } from '@preact/signals';
import { type Cube, decodeCube } from '../../api/binary';
import { api } from '../../api/client';
import type { PowerSeries, TokenRow } from '../../api/types';
import { type Loaded, useResource } from '../../state/resource';
import { at } from '../../state/selection';

export type Resource<T> = Signal<Loaded<T>> & { retry: () => void };

/** Two extremes for each pixel that the widest chart of this screen has. */
const chartPoints = (): number => Math.max(1000, 2 * Math.round(innerWidth));
/** Samples for scatter and box plot, which are further down. */
const SCATTER_POINTS = 40_000;
/** More cells than this are not fetched at once (f32, so 64 MB). */
export const CUBE_CELLS = 16_000_000;

export function useRun(id: string) {
  const summary = useResource(`summary ${id}`, (s) => api.summary(id, s), 'drop');
  const pipeline = useResource(`pipeline ${id}`, (s) => api.pipeline(id, { limit: 1 }, s), 'drop');
  const power = useResource(
    `power ${id}`,
    (s) => api.power(id, { points: chartPoints() }, s),
    'drop',
  );
  const tokens = useResource(
    `tokens ${id}`,
    async (s) => (await api.tokens(id, {}, s)).tokens,
    'drop',
  );
  /** What is first looked at has come; only then is anything else asked for. */
  const calm = useComputed(
    () =>
      !summary.value.loading &&
      !pipeline.value.loading &&
      !power.value.loading &&
      !tokens.value.loading,
  );
  return { id, summary, pipeline, power, tokens, calm };
}

export type RunData = ReturnType<typeof useRun>;

/** More samples than the power chart shows, where the run has them. */
export function useSamples(data: RunData): Resource<PowerSeries> {
  const whole = data.power;
  const thinned = (whole.value.data?.bucket_samples ?? 1) > 1;
  const more = useResource(thinned ? `samples ${data.id}` : null, (s) =>
    api.power(data.id, { points: SCATTER_POINTS }, s),
  );
  return thinned ? more : whole;
}

/** The zoomed part of the power series in full resolution, where the whole one is thinned. */
export function useZoomedPower(id: string, whole: PowerSeries | null): Resource<PowerSeries> {
  const r = at.range.value;
  const wanted = r && whole && whole.bucket_samples > 1;
  return useResource(wanted ? `${id} ${r[0].toFixed(2)} ${r[1].toFixed(2)}` : null, async (s) => {
    await pause(150, s);
    return api.power(id, { points: chartPoints(), from_ms: r![0], to_ms: r![1] }, s);
  });
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done, fail) => {
    const t = setTimeout(done, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(t);
      fail(new DOMException('aborted', 'AbortError'));
    });
  });
}

export async function fetchCube(id: string, metric: string, s: AbortSignal): Promise<Cube> {
  return decodeCube(await api.cube(id, { metric }, s));
}

export interface Picked {
  what: string;
  duration: number | null;
  energy: number | null;
  sd: number | null;
  tokens: number | null;
}

/** Energy of a stretch of time from tokens (or, outside of them, phases) in proportion to overlap.
 * Errors of neighbours go together, so their deviations add up: an upper bound. */
export function energyOfRange(
  from: number,
  to: number,
  tokens: TokenRow[],
  phases: {
    phase: string;
    start_ms: number;
    duration_ms: number;
    energy_mj: number | null;
    energy_sd_mj: number | null;
  }[],
): { energy: number | null; sd: number | null; tokens: number } {
  let energy = 0;
  let sd = 0;
  let n = 0;
  let known = true;
  const covered = new Set(tokens.map((t) => t.phase));
  const parts = [...tokens, ...phases.filter((p) => !covered.has(p.phase))];
  for (const p of parts) {
    const overlap = Math.min(to, p.start_ms + p.duration_ms) - Math.max(from, p.start_ms);
    if (overlap <= 0 || p.duration_ms <= 0) continue;
    const share = overlap / p.duration_ms;
    if ('token' in p) n++;
    if (p.energy_mj === null) known = false;
    else {
      energy += share * p.energy_mj;
      sd += share * (p.energy_sd_mj ?? 0);
    }
  }
  return known ? { energy, sd, tokens: n } : { energy: null, sd: null, tokens: n };
}
