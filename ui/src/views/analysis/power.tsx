import { computed, signal } from '@preact/signals';
import { useMemo, useRef } from 'preact/hooks';
import type { PowerSeries } from '../../api/types';
import { BoxPlot } from '../../charts/boxplot';
import { Canvas, Legend, Panel } from '../../charts/panel';
import { type Samples, Scatter } from '../../charts/scatter';
import { colours, PHASES, phaseLabel, RAIL_LABEL, RAILS, type Rail } from '../../charts/theme';
import { power, time } from '../../core/format';
import { box, boxOf } from '../../core/stats';
import { stateOf } from '../../state/resource';
import { at, type Range, select, selection } from '../../state/selection';
import { dark } from '../../state/settings';
import { type RunData, useSamples } from './data';

export const column = (p: PowerSeries, r: Rail): (number | null)[] | null => p[`${r}_power_mw`];

export function numbers(values: (number | null)[] | null, n: number, less: number): Float64Array {
  const out = new Float64Array(n).fill(Number.NaN);
  if (values)
    for (let i = 0; i < n; i++) if (values[i] !== null) out[i] = (values[i] as number) - less;
  return out;
}

const COUNTED = new Set(['cpu', 'gpu', 'ane', 'dram']);

/** Idle power of a rail class, summed over its rails; null without a baseline. A total that no rail
 * measures is the sum of the rails that count in it. */
export function baseline(p: PowerSeries, r: Rail, totalRails?: string[] | null): number | null {
  let rails = p.rails.filter((x) => x.class === r || x.name === r);
  if (r === 'total' && !rails.length)
    rails = p.rails.filter((x) =>
      totalRails?.length ? totalRails.includes(x.name) : COUNTED.has(x.class),
    );
  if (!rails.length || rails.some((x) => x.baseline_mw === null)) return null;
  return rails.reduce((a, x) => a + (x.baseline_mw ?? 0), 0);
}

/** Peak of a rail, with its time; none if the readings missed so much that the run's mean lies above them. */
export function peakOf(
  t: number[],
  values: (number | null)[] | null | undefined,
  mean: number | null,
): { t: number; mw: number } | null {
  let best: { t: number; mw: number } | null = null;
  for (const [i, v] of (values ?? []).entries())
    if (v !== null && (!best || v > best.mw)) best = { t: t[i], mw: v };
  return best && mean !== null && mean > 1.001 * best.mw ? null : best;
}

export const peak = (p: PowerSeries, mean: number | null): { t: number; mw: number } | null =>
  peakOf(p.t_ms, p.total_power_mw, mean);

export function describePower(p: PowerSeries, mean: number | null): string {
  const top = peak(p, mean);
  const rails = RAILS.filter((r) => column(p, r)).map((r) => RAIL_LABEL[r]);
  return `Power over ${time(p.t_ms[p.t_ms.length - 1])} on ${rails.join(', ') || 'no rail'}: ${p.samples_total} samples, peak ${top ? `${power(top.mw)} at ${time(top.t)}` : 'unavailable'}.`;
}

// ---- scatter and box plot share their filters

const off = signal<ReadonlySet<string>>(new Set());
const confidence = computed(() => selection.value.confidence / 100);

export function SamplePanels({ data, full }: { data: RunData; full: Range }) {
  const scatter = useRef<Scatter | null>(null);
  const boxes = useRef<BoxPlot | null>(null);
  const source = useSamples(data);
  const p = source.value.data;
  const range = at.range.value;
  const picked = at.phase.value;
  dark.value;
  const c = colours();
  const samples = useMemo((): Samples | null => {
    if (!p) return null;
    const n = p.t_ms.length;
    return {
      t: Float64Array.from(p.t_ms),
      y: numbers(p.total_power_mw, n, 0),
      phase: Uint8Array.from(p.phase, (k) =>
        Math.max(0, (PHASES as readonly string[]).indexOf(p.phase_names[k])),
      ),
      confidence: Float32Array.from(p.phase_confidence, (v) => v ?? 0),
    };
  }, [p]);
  const phases = PHASES.map((x) => !off.value.has(x) && (picked === null || picked === x));
  const present = PHASES.filter((_, i) => samples?.phase.includes(i));
  // Decimated samples keep only the extremes; the server computes quartiles from all samples.
  const exact = !!p && p.bucket_samples > 1 && confidence.value === 0 && !range;
  const statistics = data.summary.value.data?.power_statistics;
  const rows = useMemo(() => {
    if (!samples) return [];
    return PHASES.flatMap((phase, k) => {
      if (!phases[k]) return [];
      const all = statistics?.find((s) => s.phase === phase && s.column === 'total_power_mw');
      const values = () =>
        samples.y.filter(
          (_, i) =>
            samples.phase[i] === k &&
            samples.confidence[i] >= confidence.value &&
            (!range || (samples.t[i] >= range[0] && samples.t[i] <= range[1])),
        );
      const b = exact && all ? boxOf(all) : box(values());
      return b ? [{ label: phaseLabel(phase), colour: c.phase[phase], box: b }] : [];
    });
  }, [samples, statistics, off.value, picked, confidence.value, range, c]);
  const state = stateOf(source, (d) =>
    d.samples_total && d.total_power_mw ? null : 'Total power is unavailable in this run.',
  );
  const filters = (
    <>
      <Legend
        items={present.map((x) => ({
          label: phaseLabel(x),
          colour: c.phase[x],
          off: off.value.has(x) || (picked !== null && picked !== x),
          onToggle: () => {
            const next = new Set(off.value);
            if (!next.delete(x)) next.add(x);
            off.value = next;
            if (picked) select({ phase: null });
          },
        }))}
      />
      <label class="check">
        Confidence at least
        <input
          type="range"
          min="0"
          max="1"
          step="0.05"
          value={confidence.value}
          aria-label="Smallest phase confidence"
          onInput={(e) => {
            select({ confidence: Math.round(Number(e.currentTarget.value) * 100) });
          }}
        />
        <span class="num">{Math.round(confidence.value * 100)} %</span>
      </label>
    </>
  );
  const visible =
    samples?.y.reduce(
      (a, _, i) =>
        a + (phases[samples.phase[i]] && samples.confidence[i] >= confidence.value ? 1 : 0),
      0,
    ) ?? 0;
  return (
    <>
      <Panel
        class="bare"
        title="Samples by phase"
        body="h-scatter"
        note={`Total power of each sample over time, coloured by phase${p && p.bucket_samples > 1 ? ` (extremes of every ${p.bucket_samples})` : ''}.`}
        state={state}
        legend={filters}
        table={() => ({
          columns: ['timestamp_ms', 'total_power_mw', 'phase', 'phase_confidence'],
          rows: samples
            ? Array.from(samples.t, (t, i) => [
                t,
                Number.isFinite(samples.y[i]) ? samples.y[i] : null,
                PHASES[samples.phase[i]],
                samples.confidence[i],
              ])
            : [],
        })}
        png={async () => (await scatter.current?.png()) ?? null}
      >
        <Canvas
          class="h-scatter"
          name="scatter"
          label={`Scatter of total power over time: ${visible} samples in ${present.map((x) => phaseLabel(x)).join(', ')}.`}
          make={(host) => new Scatter(host)}
          handle={scatter}
          update={(s) => {
            if (samples) s.set(full, samples, { phases, confidence: confidence.value });
          }}
        />
      </Panel>
      <Panel
        class="bare"
        title="Power by phase"
        body="h-scatter"
        note={`Quartiles, median, whiskers at 1.5 IQR, mean as a dot; ${exact ? 'all samples' : 'same filters'}.`}
        state={
          rows.length || state.kind !== 'ready'
            ? state
            : { kind: 'empty', text: 'No sample passes the filters.' }
        }
        table={() => ({
          columns: ['phase', 'n', 'min', 'q1', 'median', 'mean', 'q3', 'max'],
          rows: rows.map((r) => [
            r.label,
            r.box.n,
            r.box.min,
            r.box.q1,
            r.box.median,
            r.box.mean,
            r.box.q3,
            r.box.max,
          ]),
        })}
        png={async () => (await boxes.current?.png()) ?? null}
      >
        <Canvas
          class="h-scatter"
          name="boxplot"
          label={`Box plot of total power by phase. ${rows.map((r) => `${r.label}: median ${power(r.box.median)}, quartiles ${power(r.box.q1)} to ${power(r.box.q3)}`).join('; ')}.`}
          make={(host) => new BoxPlot(host)}
          handle={boxes}
          update={(b) => b.set(rows)}
        />
      </Panel>
    </>
  );
}
