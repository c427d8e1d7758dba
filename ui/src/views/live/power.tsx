// Live power: a sliding window, redrawn at most thirty times per second from a decimated view of
// the ring buffer.
import { computed, signal, useSignalEffect } from '@preact/signals';
import { useMemo, useRef } from 'preact/hooks';
import type { EnergySource } from '../../api/types';
import { Canvas, Panel, RailLegend } from '../../charts/panel';
import { PowerChart } from '../../charts/power';
import { phaseLabel, RAILS, type Rail } from '../../charts/theme';
import { bucketSize, Thinner } from '../../core/decimate';
import { power, time } from '../../core/format';
import { paced } from '../../core/frame';
import { lowerBound } from '../../core/ring';
import type { Table } from '../../core/table';
import { SourceBadge } from '../../parts/badge';
import { Segmented } from '../../parts/segmented';
import { run, samples, samplesVersion, sensors, settled, source, spans } from '../../state/live';
import { at, select, selection } from '../../state/selection';
import { dark } from '../../state/settings';

type Span = '10' | '60' | '300';
const SPANS = [
  ['10', '10 s'],
  ['60', '60 s'],
  ['300', '5 min'],
] as const;

const shown = signal<Record<Rail, boolean>>({
  cpu: true,
  gpu: true,
  ane: true,
  dram: true,
  total: true,
});
const GAP_MS = 33;
const RAIL_COLUMN = 2;

const thinner = new Thinner();

/** The last seconds of the ring buffer, decimated to the pixels; NaN becomes null, a gap in uPlot. */
function view(pixels: number) {
  const t = samples.view(0);
  const end = samples.length ? samples.last(0) : 0;
  const width = selection.peek().window * 1000;
  const ended = run.peek()?.state === 'ended';
  const from = Math.max(0, end - width);
  const i = lowerBound(t, from);
  const thin = thinner.step(
    t.subarray(i),
    RAILS.map((_, k) => samples.view(RAIL_COLUMN + k).subarray(i)),
    samples.first + i,
    bucketSize(t.length - i, Math.max(100, pixels)),
  );
  const column = (a: Float64Array): (number | null)[] => {
    const out = new Array<number | null>(thin.length);
    let any = false;
    for (let k = 0; k < thin.length; k++) {
      const v = a[k];
      out[k] = !Number.isNaN(v) ? v : null;
      any ||= !Number.isNaN(v);
    }
    return any ? out : new Array<number | null>(thin.length).fill(null);
  };
  const x = Array.from(thin.x.subarray(0, thin.length));
  const to = ended ? Math.max(end, from + 1) : Math.max(end, Math.min(width, 5000));
  return {
    data: [x, ...thin.y.map(column)] as [number[], ...(number | null)[][]],
    range: [from, to] as [number, number],
  };
}

function table(): Table {
  const t = samples.view(0);
  const columns = RAILS.map((_, k) => samples.view(RAIL_COLUMN + k));
  return {
    columns: ['timestamp_ms', ...RAILS.map((r) => `${r}_power_mw`)],
    rows: Array.from(t, (v, i) => [v, ...columns.map((c) => (!Number.isNaN(c[i]) ? c[i] : null))]),
  };
}

/** Rails with values, joined into a string, so that the legend rerenders only when it changes. */
const known = computed(() => {
  samplesVersion.value;
  return RAILS.filter((_, k) => !Number.isNaN(samples.last(RAIL_COLUMN + k))).join(' ');
});

/** Describes the power sources before the first sample. */
function announcement(): string {
  const used = sensors.value?.sources.filter((s) => s.in_use) ?? [];
  if (sensors.value && !used.length)
    return 'Power is unavailable on this server: see the remedy above.';
  const what = used.map((s) => `${s.rails.map((r) => r.name).join(', ')} from ${s.name}`);
  return `Power appears here as soon as a run starts${what.length ? `: ${what.join('; ')}` : ''}.`;
}

/** The energy source of the sources in use, for the badge until a run reports it. */
function expected(): EnergySource | null {
  const rails = sensors.value?.sources.filter((s) => s.in_use).flatMap((s) => s.rails) ?? [];
  return rails.some((r) => r.quality === 'modelled') ? 'modelled' : null;
}

export function LivePower() {
  const chart = useRef<PowerChart | null>(null);
  const draw = useMemo(
    () =>
      paced(GAP_MS, () => {
        const c = chart.current;
        if (!c?.host.clientWidth) return;
        const { data, range } = view(c.host.clientWidth);
        c.set(data, range, spans.peek(), shown.peek(), { live: true });
      }),
    [],
  );
  useSignalEffect(() => {
    samplesVersion.value;
    at.window.value;
    shown.value;
    run.value;
    draw();
  });
  dark.value;
  const none = source.value === 'unavailable';
  const rails = known.value;
  const started = rails !== '';
  return (
    <Panel
      title="Power"
      note={`Watts by rail; phases shaded.${settled.value ? '' : ' Provisional until the run is stored.'}`}
      badge={<SourceBadge source={source.value ?? expected()} />}
      state={
        none
          ? { kind: 'empty', text: 'Power is unavailable in this run: see the remedy above.' }
          : started || run.value?.state === 'running'
            ? { kind: 'ready' }
            : { kind: 'empty', text: announcement() }
      }
      actions={
        <Segmented
          label="Length of the window"
          value={String(at.window.value) as Span}
          options={SPANS}
          onChange={(v) => {
            select({ window: Number(v) });
          }}
        />
      }
      legend={
        <RailLegend
          there={(r) => !started || rails.split(' ').includes(r)}
          shown={shown.value}
          onToggle={(r) => {
            shown.value = { ...shown.value, [r]: !shown.value[r] };
          }}
        />
      }
      table={table}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <Canvas
        class="h-power"
        name="livePower"
        label={summaryText()}
        make={(host) => new PowerChart(host)}
        handle={chart}
        update={() => draw()}
      />
    </Panel>
  );
}

function summaryText(): string {
  const r = run.peek();
  const total = samples.length ? samples.last(RAIL_COLUMN + 4) : Number.NaN;
  const phases = spans.peek().map((s) => phaseLabel(s.phase));
  return `Power over time of the run of ${r?.model ?? 'no model'}: ${samples.length} samples over ${time(samples.length ? samples.last(0) : 0)}, total now ${power(total)}. Phases: ${[...new Set(phases)].join(', ') || 'none yet'}.`;
}
