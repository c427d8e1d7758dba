// What the tracks of the timeline show: its lanes, their slices, the spans of the visible range, and the rails.
import { useMemo } from 'preact/hooks';
import { chartPoints } from '../../api/address';
import { api } from '../../api/client';
import { REPORT } from '../../api/inlined';
import type { EnergyFields, PhaseRow, PowerSeries, Section, TokenRow } from '../../api/types';
import { type RailTrack, windowOf } from '../../charts/power_track';
import { phaseLabel, RAILS } from '../../charts/theme';
import type { Lane, Slice } from '../../charts/tracks';
import { type Device, shortDevice } from '../../core/devices';
import { time } from '../../core/format';
import { type Loaded, useResource } from '../../state/resource';
import type { Range } from '../../state/selection';
import { pause, type RunData } from './data';
import { numbers } from './power';
import { useUsual } from './span_table';
import { deepest, expected, MOST_SPANS, SPAN_LEVELS, windowAround } from './spans';

export const TOO_MANY = REPORT ? 'too many for a report' : 'zoom in for single sections';

export const unloaded = (r: Loaded<unknown>): string | null => (r.loading ? 'loading…' : r.error);

/** The lanes, pinned ones first. A hint stands in an empty lane; undefined: there is no such lane. */
export function lanesOf(of: {
  sections: string | null | undefined;
  devices: Device[];
  tokens: boolean;
  spans: (string | null | undefined)[];
  /** Layers and their parts are computed on devices alone. */
  hostless: boolean;
  pins: string[];
}): Lane[] {
  const lanes: Lane[] = [{ key: 'phases', name: 'Phases', hint: null }];
  const add = (key: string, name: string, hint: string | null | undefined) => {
    if (hint !== undefined) lanes.push({ key, name, hint });
  };
  add('sections', 'Sections', of.sections);
  add('tokens', 'Tokens', of.tokens ? null : undefined);
  const names = ['Layers', 'Components', 'Operations'];
  SPAN_LEVELS.forEach((l, i) => {
    add(l, names[i], of.hostless ? undefined : of.spans[i]);
  });
  for (const d of of.devices) {
    add(`sections ${d.number}`, shortDevice(d.name), of.sections);
    SPAN_LEVELS.slice(1).forEach((l, i) => {
      add(`${l} ${d.number}`, names[i + 1].toLowerCase(), of.spans[i + 1]);
    });
  }
  const pinned = (l: Lane) => of.pins.includes(l.key);
  return [...lanes.filter(pinned), ...lanes.filter((l) => !pinned(l))];
}

/** Layers, components and operations of the view, as deep as they can be drawn. */
export function useSpans(data: RunData, view: Range, full: Range) {
  const counts = data.summary.value.data?.counts;
  const tokens = data.tokens.value.data;
  const window = windowAround(view);
  const n =
    counts && tokens && data.calm.value && !REPORT ? expected(counts, tokens, full, window) : null;
  const level = n && deepest(n);
  const [from_ms, to_ms] = window;
  const key = level ? `${data.id} ${level} ${from_ms} ${to_ms}` : null;
  const res = useResource(key && `spans ${key}`, async (x) => {
    await pause(SETTLED_MS, x);
    return api.spans(data.id, { from_ms, to_ms, level, limit: MOST_SPANS }, x);
  });
  const phases = (data.pipeline.value.data?.phases ?? [])
    .filter((p) => p.start_ms < to_ms && p.end_ms > from_ms && (p.section_count ?? 1) > 0)
    .map((p) => p.phase)
    .filter((p) => p === 'prefill' || p === 'decode');
  const usual = useUsual(data, phases, res.value.data !== null);
  const cut = (l: (typeof SPAN_LEVELS)[number]) =>
    res.value.data?.levels.some((x) => x.level === l && x.total > x.start_ms.length);
  const hint = (l: (typeof SPAN_LEVELS)[number]): string | null =>
    !level || cut(l) || SPAN_LEVELS.indexOf(l) > SPAN_LEVELS.indexOf(level)
      ? REPORT
        ? 'not in a report'
        : `zoom in for single ${l}s`
      : res.value.data
        ? null
        : unloaded(res.value);
  return { data: key ? res.value.data : null, usual, hint, key: `${key} ${res.value.loading}` };
}

const SETTLED_MS = 90;

/** A track for every rail, where the timeline is tall. */
export function useRails(
  data: RunData,
  view: Range,
  whole: PowerSeries | null,
  tall: boolean,
  net: boolean,
): RailTrack[] {
  const wanted = tall && !REPORT && !!whole?.samples_total && (whole?.rails.length ?? 0) > 1;
  const [from_ms, to_ms] = windowAround(view);
  const cut = (whole?.bucket_samples ?? 1) > 1 ? { from_ms: Math.max(0, from_ms), to_ms } : {};
  const q = { points: 2 * chartPoints(), rails: 1, ...cut };
  const series = useResource(wanted ? `rails ${data.id} ${JSON.stringify(q)}` : null, (x) =>
    api.power(data.id, q, x),
  ).value.data;
  const about = useResource(wanted ? `about ${data.id}` : null, (x) => api.detail(data.id, x)).value
    .data;
  return useMemo(() => {
    if (!wanted || !series) return [];
    const t = Float64Array.from(series.t_ms);
    return series.rails.flatMap((r): RailTrack[] => {
      if (!r.power_mw) return [];
      const less = net ? (r.baseline_mw ?? Number.NaN) : 0;
      const period = about?.rails.find((x) => x.name === r.name)?.period_ms;
      return [
        {
          name: r.name,
          rail: RAILS.find((x) => x === r.class) ?? null,
          t,
          y: numbers(r.power_mw, t.length, less),
          window: windowOf(t),
          idle: net ? null : r.baseline_mw,
          note: period ? `${r.source}, read every ${time(period)}` : r.source,
        },
      ];
    });
  }, [series, about, wanted, net]);
}

const nameOf = (devices: Device[], number: number): string =>
  devices.find((d) => d.number === number)?.name ?? `device ${number}`;

/** Slices of phases, sections of the host and of each device, and tokens. */
export function build(
  phases: PhaseRow[],
  tokens: TokenRow[],
  sections: (Section & { phase: string })[],
  devices: Device[],
  lane: (key: string) => number,
  net: boolean,
): Slice[] {
  const energyOf = (x: EnergyFields) =>
    net
      ? { energy: x.net_energy_mj, sd: x.net_energy_sd_mj, net }
      : { energy: x.energy_mj, sd: x.energy_sd_mj };
  const slices: Slice[] = phases.map((p) => ({
    lane: lane('phases'),
    start: p.start_ms,
    duration: p.end_ms - p.start_ms,
    label: phaseLabel(p.phase),
    ...energyOf(p),
    kind: 'phase',
    phase: p.phase,
    token: null,
    rows: () =>
      (p.section_totals ?? []).slice(0, 6).map((x) => [x.section_name, time(x.duration_ms)]),
  }));
  for (const x of sections)
    slices.push({
      lane: lane(x.device ? `sections ${x.device}` : 'sections'),
      start: x.start_ms,
      duration: x.duration_ms,
      label: x.section_name,
      ...energyOf(x),
      kind: 'section',
      phase: x.phase,
      token: x.token,
      rows: () => [
        ...(x.device ? ([['Device', nameOf(devices, x.device)]] as [string, string][]) : []),
        ...(x.token === null ? [] : ([['Token', String(x.token)]] as [string, string][])),
      ],
    });
  for (const t of tokens) {
    if (t.step !== null && t.step !== t.token) continue;
    slices.push({
      lane: lane('tokens'),
      start: t.start_ms,
      duration: t.duration_ms,
      label: t.phase === 'prefill' ? 'Prompt' : (t.text ?? '').trim() || `#${t.token}`,
      ...energyOf(t),
      kind: 'token',
      phase: t.phase,
      token: t.token,
      rows: () => [
        ['Token', String(t.token)],
        ...(t.disturbed
          ? ([['Disturbed', `${time(t.disturbed_ms ?? null)} of it`]] as [string, string][])
          : []),
      ],
    });
  }
  return slices;
}
