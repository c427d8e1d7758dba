// The time canvas: aligned tracks of power, phases, sections, tokens, and zoomed in their layers, components and
// operations; conditions and anomalies; over a minimap.
import { signal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { api } from '../../api/client';
import { REPORT } from '../../api/inlined';
import type { Anomaly, Conditions, PhaseRow, PowerSeries, TokenRow } from '../../api/types';
import { GAUGES, gaugesOf, gaugeText } from '../../charts/gauges';
import { Minimap } from '../../charts/minimap';
import { Canvas, Panel, RailLegend } from '../../charts/panel';
import { windowOf } from '../../charts/power_track';
import { phaseLabel, programs, RAILS, type Rail } from '../../charts/theme';
import { type Mark, POWER, type Slice, Tracks } from '../../charts/tracks';
import { envelope } from '../../core/decimate';
import { devicesOf } from '../../core/devices';
import { energyInterval, percent, power, time } from '../../core/format';
import { SourceBadge } from '../../parts/badge';
import { Icon } from '../../parts/icon';
import { stateOf, useResource } from '../../state/resource';
import { at, type Range, select, selection } from '../../state/selection';
import { whyOdd } from './anomalies';
import { Between } from './between';
import { type RunData, useZoomedPower } from './data';
import { FindSpan } from './find';
import { baseline, column, describePower, numbers, peak } from './power';
import { SPAN_LEVELS, slicesOf } from './spans';
import { build, lanesOf, TOO_MANY, unloaded, useRails, useSpans } from './timeline_data';

/** More sections than this in the visible range are not fetched: zooming in shows them. */
const SECTIONS = 2500;

const shown = signal<Record<Rail, boolean>>({
  cpu: true,
  gpu: true,
  ane: true,
  dram: true,
  total: true,
});

/** Estimated number of sections in the range, from the duration of each phase within it. */
function sectionsIn(phases: PhaseRow[], r: Range): number {
  return phases.reduce((a, p) => {
    const share =
      p.duration_ms > 0
        ? Math.max(0, Math.min(r[1], p.end_ms) - Math.max(r[0], p.start_ms)) / p.duration_ms
        : 0;
    return a + share * (p.section_count ?? 0);
  }, 0);
}

export function TimelinePanel({ data, full }: { data: RunData; full: Range }) {
  const chart = useRef<Tracks | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const whole = data.power.value.data;
  const zoomed = useZoomedPower(data.id, whole).value.data;
  const s = selection.value;
  const range = at.range.value;
  const view = range ?? full;
  const p = range && zoomed ? zoomed : whole;
  const [rows, measured] = [data.pipeline.value.data?.phases, data.power.value.data?.phases];
  const phases = useMemo(() => onAxis(rows ?? null, measured ?? []), [rows, measured]);
  const tokens = data.tokens.value.data;
  const anomalies = data.summary.value.data?.anomalies;
  // A report has all sections or only the first ones, whatever is zoomed to.
  const few = phases !== null && sectionsIn(phases, REPORT ? full : view) <= SECTIONS;
  const sections = useResource(
    few && data.calm.value
      ? `sections ${data.id} ${view[0].toFixed(2)} ${view[1].toFixed(2)}`
      : null,
    async (x) => {
      const [from_ms, to_ms] = view;
      const answer = await api.pipeline(data.id, { limit: SECTIONS * 2, from_ms, to_ms }, x);
      return answer.phases.flatMap((f) =>
        (f.sections ?? []).map((y) => ({ ...y, phase: f.phase })),
      );
    },
  );
  const devices = useMemo(
    () => devicesOf(data.summary.value.data),
    [data.summary.value.data?.devices],
  );
  const sectioned = (phases ?? []).some((x) => (x.section_count ?? 0) > 0);
  const shownSections = few ? sections.value.data : null;
  const counts = data.summary.value.data?.counts;
  const spans = useSpans(data, view, full);
  const lanes = useMemo(
    () =>
      lanesOf({
        sections: sectioned ? (few ? unloaded(sections.value) : TOO_MANY) : undefined,
        devices,
        tokens: !!tokens?.length,
        spans: SPAN_LEVELS.map((l) => (counts?.[`${l}s`] ? spans.hint(l) : undefined)),
        hostless: devices.length > 0 && data.summary.value.data?.engine === 'perjoule',
        pins: s.pins,
      }),
    [sectioned, few, sections.value, devices, tokens, counts, spans.key, s.pins.join()],
  );
  const order = lanes.map((l) => l.key).join('\n');
  const lane = useMemo(() => {
    const at = new Map(order.split('\n').map((key, i) => [key, i]));
    return (key: string) => at.get(key) ?? -1;
  }, [order]);
  // Apart, because each step of panning brings other sections, and seldom other spans, which are many.
  const fixed = useMemo(
    () => build(phases ?? [], tokens ?? [], shownSections ?? [], devices, lane, s.net),
    [phases, tokens, shownSections, devices, lane, s.net, programs.value],
  );
  const nested = useMemo(
    () =>
      spans.data
        ? slicesOf(
            spans.data,
            tokens ?? [],
            (t) => phases?.find((x) => t >= x.start_ms && t <= x.end_ms)?.phase ?? 'idle',
            spans.usual,
            s.net,
            (level, device) => lane(device ? `${level} ${device}` : level),
          )
        : [],
    [phases, tokens, lane, spans.data, spans.usual, s.net],
  );
  const slices = useMemo(() => [...fixed, ...nested].filter((x) => x.lane >= 0), [fixed, nested]);
  const marks = useMemo(() => marksOf(anomalies ?? []), [anomalies]);
  const totalRails = data.summary.value.data?.total_rails;
  const track = useMemo(() => (p ? columnsOf(p, s.net, totalRails) : null), [p, s.net, totalRails]);
  const powered = !!whole?.samples_total;
  const conditions = useResource(data.calm.value ? `conditions ${data.id}` : null, (x) =>
    api.conditions(data.id, x),
  ).value.data;
  const gauges = useMemo(() => gaugesOf(conditions).slice(0, GAUGES), [conditions]);
  const rails = useRails(data, view, whole, s.tall, s.net);
  const rest = Tracks.height(lanes.length, rails.length, marks.length > 0, gauges.length);
  const powerHeight = !powered ? 0 : s.tall ? Math.max(POWER, innerHeight - CHROME - rest) : POWER;
  const height = rest + powerHeight;
  useEffect(() => {
    box.current?.style.setProperty('--h', `${height}px`);
    const panel = box.current?.closest<HTMLElement>('.panel');
    const stack = box.current?.closest<HTMLElement>('.analysis');
    if (!panel || !stack) return;
    // What stays visible while the page scrolls: the lanes, at most two fifths of the window.
    const tail = Math.min(lanes.length * 28 + 40, 0.4 * innerHeight);
    stack.style.setProperty('--stuck', `${Math.round(tail)}px`);
    panel.style.setProperty('--above', `${Math.round(Math.max(0, panel.offsetHeight - tail))}px`);
  }, [height, lanes.length, phases !== null]);
  useEffect(() => {
    const panel = box.current?.closest('.panel');
    if (s.tall && panel) panel.scrollIntoView({ block: 'start' });
  }, [s.tall]);
  const part = s.find.toLowerCase();
  const found = part ? (x: Slice) => x.label.toLowerCase().includes(part) : null;
  const picked = (x: Slice) =>
    (x.kind === 'token' && x.token === s.token) || (x.kind === 'phase' && s.phase === x.phase);
  const pick = (i: number | null) => {
    const c = chart.current;
    if (i === null || i < 0 || !c) return;
    const mark = c.mark(i);
    const x = c.slice(i);
    if (mark) select(mark.token === null ? { range: around(mark.t, view) } : { token: mark.token });
    else if (x?.kind === 'phase') select({ phase: s.phase === x.phase ? null : x.phase });
    else if (x && x.token !== null && (x.kind === 'token' || x.kind === 'section'))
      select({ token: s.token === x.token ? null : x.token });
    else if (x) select({ range: [x.start, x.start + x.duration] });
  };
  const mean = data.summary.value.data?.mean_power_mw ?? null;
  const top = whole ? peak(whole, mean) : null;
  const idle = whole ? baseline(whole, 'total', totalRails) : null;
  return (
    <Panel
      class="timeline"
      title="Timeline"
      body="h-timeline"
      badge={
        <SourceBadge source={whole?.energy_source === 'measured' ? null : whole?.energy_source} />
      }
      state={stateOf(data.pipeline, (x) =>
        x.phases.length ? null : 'This run recorded no phases.',
      )}
      actions={<TimelineTools data={data} full={full} />}
      legend={
        <>
          {powered ? (
            <RailLegend
              there={(r) => !!whole && column(whole, r) !== null}
              shown={shown.value}
              onToggle={(r) => {
                shown.value = { ...shown.value, [r]: !shown.value[r] };
              }}
            />
          ) : (
            data.power.value.data && (
              <span>
                {data.summary.value.data?.energy_source === 'unavailable'
                  ? 'Power is unavailable: no sensor could be read during this run.'
                  : 'No curve of power: the run is shorter than the window of a reading.'}
              </span>
            )
          )}
          {top && (
            <span>
              Peak {power(top.mw)} at {time(top.t)}
              {s.net ? ', shown above idle' : ''}
            </span>
          )}
          {gauges.map((g) => (
            <span key={g.device}>{gaugeText(g)}</span>
          ))}
          <span class="note wide">
            Drag to zoom; W A S D, wheel; Shift and drag to read joules
            {whole?.energy_source === 'unavailable'
              ? ''
              : '; the stronger the colour, the more energy than usual for its kind'}
            {p?.means ? '; power as mean and range' : ''}.
          </span>
        </>
      }
      table={() => tableOf(slices, p, conditions, s.net)}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <Between data={data} power={p} />
      <Canvas
        class="h-minimap"
        name="minimap"
        label={`The whole run, ${time(full[1])}; visible: ${time(view[0])} to ${time(view[1])}.`}
        make={(host) => new Minimap(host)}
        update={(m) => m.set(outline(full, whole, tokens ?? [], phases ?? []))}
      />
      <div ref={box} class="h-var">
        <Canvas
          name="timeline"
          class="fill"
          label={`${describePhases(phases ?? [])} ${whole ? describePower(whole, mean) : ''}`}
          make={(host) => {
            const made = new Tracks(host);
            made.onPick = pickThrough;
            return made;
          }}
          handle={chart}
          update={(c) => {
            onPick = pick;
            c.set({
              full,
              lanes,
              rails,
              pinned: new Set(s.pins),
              found,
              powerHeight,
              slices,
              marks,
              gauges,
              picked,
              phases: (phases ?? []).map((x) => ({
                phase: x.phase,
                start: x.start_ms,
                end: x.end_ms,
              })),
              power:
                powered && track
                  ? {
                      ...thin(track, view, c.host.clientWidth),
                      window: track.window,
                      idle: s.net ? null : idle,
                      shown: shown.value,
                    }
                  : null,
            });
          }}
        />
      </div>
    </Panel>
  );
}

// The chart is created once; its click handler is updated with every render.
let onPick: (i: number | null) => void = () => {};
const pickThrough = (i: number | null): void => onPick(i);

const around = (t: number, view: Range): Range => {
  const half = Math.max(20, (view[1] - view[0]) / 20);
  return [Math.max(0, t - half), t + half];
};

/** Height of what surrounds the tracks of a tall timeline: bars, head, legend and minimap. */
const CHROME = 250;

function TimelineTools({ data, full }: { data: RunData; full: Range }) {
  const r = at.range.value;
  const { tall } = selection.value;
  if (REPORT) return null;
  return (
    <span class="row">
      {r && (
        <>
          <span class="num muted">
            {time(r[1] - r[0])} of {time(full[1])}
          </span>
          <button type="button" class="btn small" onClick={() => select({ range: null })}>
            <Icon name="close" /> Whole run
          </button>
        </>
      )}
      <FindSpan data={data} full={full} />
      <button
        type="button"
        class="btn small"
        aria-pressed={tall}
        title="As tall as the window, with a track per rail (t)"
        onClick={() => select({ tall: !tall })}
      >
        Tall
      </button>
    </span>
  );
}

function columnsOf(p: PowerSeries, net: boolean, totalRails: string[] | null | undefined): Columns {
  const t = Float64Array.from(p.t_ms);
  const less = (r: Rail) => (net ? (baseline(p, r, totalRails) ?? Number.NaN) : 0);
  const y = RAILS.map((r) => numbers(column(p, r), t.length, less(r)));
  const { means } = p;
  const buckets = Math.ceil(t.length / 2);
  return {
    t,
    y,
    window: windowOf(t),
    means: means
      ? RAILS.map((r) => numbers(means[`${r}_power_mw`] ?? null, buckets, less(r)))
      : null,
  };
}

interface Columns {
  t: Float64Array;
  window: number;
  y: Float64Array[];
  /** Of a series of extremes: the means of its pairs of rows. */
  means: Float64Array[] | null;
}

/** Data of the visible range: every sample, or one mean with its extremes for each pixel. */
function thin({ t, y, means }: Columns, view: Range, pixels: number) {
  let from = 0;
  let to = t.length;
  while (from < to && t[from + 1] < view[0]) from++;
  while (to > from && t[to - 2] > view[1]) to--;
  const room = Math.max(100, pixels);
  if (!means && to - from <= room)
    return { t: t.subarray(from, to), y: y.map((v) => v.subarray(from, to)), band: null };
  const e = envelope(t, y, means, [from, to], room);
  return { t: e.t, y: e.mean, band: { lo: e.lo, hi: e.hi } };
}

function outline(full: Range, p: PowerSeries | null, tokens: TokenRow[], phases: PhaseRow[]) {
  const spans = phases.map((x) => ({ phase: x.phase, start: x.start_ms, end: x.end_ms }));
  if (p?.total_power_mw)
    return {
      full,
      t: Float64Array.from(p.t_ms),
      y: Float64Array.from(p.total_power_mw, (v) => v ?? 0),
      phases: spans,
    };
  return {
    full,
    t: Float64Array.from(tokens, (x) => x.start_ms),
    y: Float64Array.from(tokens, (x) => x.energy_mj ?? x.duration_ms),
    phases: spans,
  };
}

/** Phases where they were, also without disturbances, which shorten their durations. */
const onAxis = (
  phases: PhaseRow[] | null,
  measured: { start_ms: number; end_ms: number }[],
): PhaseRow[] | null =>
  phases?.map((p, i) =>
    measured[i]?.start_ms === p.start_ms ? { ...p, end_ms: measured[i].end_ms } : p,
  ) ?? null;

/** The server's events as marks on the time axis. */
const marksOf = (anomalies: Anomaly[]): Mark[] =>
  anomalies.map((a) => ({
    t: (a.begin_ms + a.end_ms) / 2,
    token: a.token,
    text: whyOdd(a),
  }));

const CONDITIONS = ['temperature_c', 'clock_mhz', 'utilisation'] as const;

function tableOf(
  slices: Slice[],
  p: PowerSeries | null,
  conditions: Conditions | null,
  net: boolean,
) {
  const none = (n: number) => Array.from({ length: n }, () => null);
  return {
    columns: [
      'track',
      'name',
      'token',
      'start_ms',
      'duration_ms',
      ...(net ? ['net_energy_mj', 'net_energy_sd_mj'] : ['energy_mj', 'energy_sd_mj']),
      ...RAILS.map((r) => `${r}_power_mw`),
      ...CONDITIONS,
      'throttle',
    ],
    rows: [
      ...slices.map((x) => [
        x.kind,
        x.label,
        x.token,
        x.start,
        x.duration,
        x.energy,
        x.sd,
        ...none(RAILS.length + CONDITIONS.length + 1),
      ]),
      ...(p?.t_ms ?? []).map((t, i) => [
        'power',
        null,
        null,
        t,
        ...none(3),
        ...RAILS.map((r) => column(p!, r)?.[i] ?? null),
        ...none(CONDITIONS.length + 1),
      ]),
      ...(conditions?.devices ?? []).flatMap((d) =>
        d.t_ms.map((t, i) => [
          'conditions',
          d.device,
          null,
          t,
          ...none(3 + RAILS.length),
          ...CONDITIONS.map((k) => d[k]?.[i] ?? null),
          d.throttle[i],
        ]),
      ),
    ],
  };
}

function describePhases(phases: PhaseRow[]): string {
  const total = phases.reduce((a, p) => a + p.duration_ms, 0);
  const parts = phases.map(
    (p) =>
      `${phaseLabel(p.phase)} ${time(p.duration_ms)} (${percent(p.duration_ms / total)}), ${energyInterval(p.energy_mj, p.energy_sd_mj)}`,
  );
  return `Timeline of the run. ${parts.join('; ')}.`;
}
