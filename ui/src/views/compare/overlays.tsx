// Curves of the runs on shared axes: power over time, and energy by token.
import { useMemo, useRef } from 'preact/hooks';
import { api } from '../../api/client';
import type { Compare, PowerSeries } from '../../api/types';
import { Lines, type Series } from '../../charts/lines';
import { Canvas, Legend, Panel } from '../../charts/panel';
import { energy, energyScale, power, powerScale, time, timeScale } from '../../core/format';
import { isWide } from '../../core/stats';
import { stateOf, useResource } from '../../state/resource';
import { without } from '../../state/selection';
import { unit } from '../../state/settings';
import { LETTERS, useColours } from './letters';

const POINTS = 2000;

/** Every sample, or the means of the buckets of a long run. */
function totalOf(p: PowerSeries): { x: Float64Array; y: Float64Array } {
  const means = p.means?.total_power_mw;
  const y = means ?? p.total_power_mw ?? p.t_ms.map(() => null);
  return {
    x: Float64Array.from(y, (_, i) => p.t_ms[means ? 2 * i : i]),
    y: Float64Array.from(y, (v) => v ?? Number.NaN),
  };
}

export function Overlays({ d }: { d: Compare }) {
  const ids = d.runs.map((r) => r.id);
  const powers = useResource(`overlay power ${ids.join()}`, (s) =>
    Promise.all(ids.map((id) => api.power(id, { points: POINTS }, s))),
  );
  const q = without.value;
  const tokens = useResource(`overlay tokens ${ids.join()} ${q.disturbances ?? ''}`, (s) =>
    Promise.all(ids.map((id) => api.allTokens(id, s, q))),
  );
  const series = useColours();
  const name = (i: number) =>
    `${LETTERS[i]} ${d.runs[i].model_name ?? ''} ${d.runs[i].dtype ?? ''}`;
  const powerSeries = useMemo(
    () =>
      (powers.value.data ?? []).map(
        (p, i): Series => ({
          label: name(i),
          colour: series[i],
          ...totalOf(p),
        }),
      ),
    [powers.value.data, series],
  );
  const tokenSeries = useMemo(
    () =>
      (tokens.value.data ?? []).map((t, i): Series => {
        const decode = t.tokens.filter((x) => x.phase === 'decode');
        return {
          label: name(i),
          colour: series[i],
          x: Float64Array.from(decode, (x) => x.position),
          y: Float64Array.from(decode, (x) => x.energy_mj ?? Number.NaN),
        };
      }),
    [tokens.value.data, series],
  );
  const highest = (list: Series[]) =>
    list.reduce((a, s) => s.y.reduce((b, v) => (v > b ? v : b), a), 1e-9);
  const wide = useMemo(() => isWide(tokenSeries.flatMap((s) => Array.from(s.y))), [tokenSeries]);
  const longest = Math.max(1e-9, ...powerSeries.map((s) => s.x[s.x.length - 1] ?? 0));
  return (
    <div class="grid">
      <Overlay
        title="Power over time"
        note={`Total power of each run from its start${powers.value.data?.some((p) => p.means) ? '; of long runs the mean of neighbouring samples' : ''}.`}
        state={stateOf(powers, (x) =>
          x.some((p) => p.total_power_mw) ? null : 'Power is unavailable in these runs.',
        )}
        series={powerSeries}
        name="overlayPower"
        x={{ show: time, tick: timeScale(longest), column: 'timestamp_ms' }}
        y={{ show: power, tick: powerScale(highest(powerSeries)), column: 'total_power_mw' }}
      />
      <Overlay
        title="Energy by token"
        note={`Energy of each decode token, by position${wide ? '; logarithmic axis' : ''}.`}
        log={wide}
        state={stateOf(tokens, (x) =>
          x.some((t) => t.tokens.some((y) => y.energy_mj !== null))
            ? null
            : 'Token energy is unavailable in these runs.',
        )}
        series={tokenSeries}
        name="overlayTokens"
        x={{
          show: (v) => `Token ${Math.round(v)}`,
          tick: { factor: 1, unit: '' },
          column: 'position',
        }}
        y={{
          show: (v) => energy(v, unit.peek()),
          tick: energyScale(highest(tokenSeries)),
          column: 'energy_mj',
        }}
      />
    </div>
  );
}

interface OverlayAxis {
  show: (v: number) => string;
  tick: { factor: number; unit: string };
  column: string;
}

function Overlay(props: {
  title: string;
  note: string;
  state: ReturnType<typeof stateOf>;
  series: Series[];
  name: string;
  log?: boolean;
  x: OverlayAxis;
  y: OverlayAxis;
}) {
  const chart = useRef<Lines | null>(null);
  return (
    <Panel
      class="span-6"
      title={props.title}
      note={props.note}
      state={props.state}
      legend={
        <Legend
          items={props.series.map((s) => ({ label: s.label, colour: s.colour, kind: 'line' }))}
        />
      }
      table={() => ({
        columns: ['run', props.x.column, props.y.column],
        rows: props.series.flatMap((s) =>
          Array.from(s.x, (x, i) => [s.label, x, !Number.isNaN(s.y[i]) ? s.y[i] : null]),
        ),
      })}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <Canvas
        class="h-scatter"
        name={props.name}
        label={`${props.title} of ${props.series.length} runs laid over each other.`}
        make={(host) => new Lines(host)}
        handle={chart}
        update={(c) =>
          c.set({
            series: props.series,
            showX: props.x.show,
            showY: props.y.show,
            xTick: props.x.tick,
            yTick: props.y.tick,
            log: props.log,
          })
        }
      />
    </Panel>
  );
}
