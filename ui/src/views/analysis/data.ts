// Data of the analysis of one run. Each part is fetched once and shared by the panels.

import { type Signal, useComputed, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { chartPoints, runPath } from '../../api/address';
import { type Cube, decodeCube } from '../../api/binary';
import { api } from '../../api/client';
import { isStored } from '../../api/early';
import { holds } from '../../api/inlined';
import type { PowerSeries } from '../../api/types';
import { nextFrame } from '../../core/frame';
import { type Loaded, useResource } from '../../state/resource';
import { at, rates, selection, without } from '../../state/selection';
import { type Cubes, type RunRows, type Scope, type Sums, sums } from './scope';

export type Resource<T> = Signal<Loaded<T>> & { retry: () => void };

/** Samples for scatter and box plot, loaded later because they are further down the page. */
const SCATTER_POINTS = 40_000;
/** Maximum number of cells of one request (f32, thus 64 MB). */
export const CUBE_CELLS = 16_000_000;

export function useRun(id: string) {
  const r = rates.value;
  const summary = useResource(`summary ${id} ${JSON.stringify(r)}`, (s) => api.summary(id, s, r));
  const head = summary.value.data;
  const of = head && isStored(head) ? id : null;
  const d = without.value;
  const part = (name: string) => (of ? `${name} ${of} ${d.disturbances ?? ''}` : null);
  const pipeline = useResource(
    part('pipeline'),
    (s) => api.pipeline(id, { limit: 1, ...d }, s),
    'drop',
  );
  const power = useResource(
    of && `power ${of}`,
    (s) => api.power(id, { points: chartPoints() }, s),
    'drop',
  );
  const tokens = useResource(
    part('tokens'),
    async (s) => (await api.allTokens(id, s, d)).tokens,
    'drop',
  );
  /** The data for the first screen has been loaded; everything else is requested afterwards. */
  const calm = useComputed(
    () => !summary.value.loading && isSettled(pipeline) && isSettled(power) && isSettled(tokens),
  );
  const rows = useComputed((): RunRows | null => {
    const [s, p, t] = [summary.value.data, pipeline.value.data, tokens.value.data];
    if (!s || !p || !t) return null;
    const missing = s.total_is_partial ? (s.partial_rails ?? []) : [];
    return { tokens: t, phases: p.phases, source: s.energy_source, missing };
  });
  const s = summary.value.data;
  const cells =
    ((s?.layers.length ?? 0) + 1) * (s?.components.length ?? 0) * (tokens.value.data?.length ?? 0);
  /** Why there are no cubes and will be none; null: they are there, or to come. */
  const uncubed =
    calm.value && s
      ? cells <= 0 || !s.layers.length
        ? 'none'
        : cells > CUBE_CELLS ||
            !holds(`${runPath(id)}/heatmap`, { metric: 'time', outside: 1, format: 'f32' })
          ? 'large'
          : null
      : null;
  const cubes = useResource(
    calm.value && s && !uncubed ? `cubes ${id}` : null,
    (x) => fetchCubes(id, s?.energy_source !== 'unavailable', x),
    'drop',
  );
  /** The sums of the current scope, from which all views of the structure are drawn. */
  const inScope = useComputed((): Sums | null => {
    const [r, c] = [rows.value, cubes.value.data];
    if (!r || !c) return null;
    const { size, net } = selection.value;
    return sums(r, c, scopeOf(selection.value), c.energy ? size : 'time', net && !!c.energy);
  });
  return { id, summary, pipeline, power, tokens, calm, rows, cubes, uncubed, inScope };
}

export const scopeOf = (s: Scope): Scope => ({
  range: s.range,
  phase: s.phase,
  token: s.token,
  sequence: s.sequence,
  layer: s.layer,
  component: s.component,
});

const isSettled = <T>({ value }: Resource<T>): boolean =>
  value.data !== null || value.error !== null;

export type RunData = ReturnType<typeof useRun>;

/** Becomes true once the charts at the top are painted; the content below is created afterwards. */
export function useDrawn(calm: Signal<boolean>): boolean {
  const drawn = useSignal(false);
  const now = calm.value;
  useEffect(() => {
    if (now) nextFrame(() => setTimeout(() => (drawn.value = true)));
  }, [now]);
  return drawn.value;
}

async function fetchCubes(id: string, energy: boolean, s: AbortSignal): Promise<Cubes> {
  const [head, time, mj] = await Promise.all([
    api.heatmap(id, { metric: 'time' }, s),
    fetchCube(id, 'time', s),
    energy ? fetchCube(id, 'energy', s) : null,
  ]);
  return { time, energy: mj, components: head.all_components };
}

export async function fetchCube(id: string, metric: string, s: AbortSignal): Promise<Cube> {
  return decodeCube(await api.cube(id, { metric, outside: 1 }, s));
}

/** Higher resolution than the power chart's, if the run has it. */
export function useSamples(data: RunData): Resource<PowerSeries> {
  const whole = data.power;
  const thinned = (whole.value.data?.bucket_samples ?? 1) > 1;
  const more = useResource(thinned ? `samples ${data.id}` : null, (s) =>
    api.power(data.id, { points: SCATTER_POINTS }, s),
  );
  return thinned ? more : whole;
}

/** The zoomed part of the power series in full resolution, if the whole series is decimated. */
export function useZoomedPower(id: string, whole: PowerSeries | null): Resource<PowerSeries> {
  const r = at.range.value;
  const wanted = r && whole && whole.bucket_samples > 1;
  return useResource(wanted ? `${id} ${r[0].toFixed(2)} ${r[1].toFixed(2)}` : null, async (s) => {
    await pause(150, s);
    return api.power(id, { points: chartPoints(), from_ms: r![0], to_ms: r![1] }, s);
  });
}

export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done, fail) => {
    const t = setTimeout(done, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(t);
      fail(new DOMException('aborted', 'AbortError'));
    });
  });
}
