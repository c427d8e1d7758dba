// Layers × components under the chosen metric, of one token or of all; a token slider that plays; and
// beside it what a cell is made of.
import { signal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { Cube } from '../../api/binary';
import { api } from '../../api/client';
import { STATISTICS, type Statistic } from '../../api/statistics';
import type { HeatmapAnswer } from '../../api/types';
import { type Grid, Heatmap } from '../../charts/heatmap';
import { Canvas, Panel } from '../../charts/panel';
import {
  count,
  energy,
  energyInterval,
  known,
  percent,
  plain,
  power,
  time,
} from '../../core/format';
import { scaleOf } from '../../core/stats';
import { Icon } from '../../parts/icon';
import { RampKey } from '../../parts/ramp_key';
import { stateOf, useResource } from '../../state/resource';
import { at, METRICS, type Metric, select, selection } from '../../state/selection';
import { still, unit } from '../../state/settings';
import { CUBE_CELLS, fetchCube, type RunData } from './data';

const statisticOf = (metric: string): Statistic | undefined =>
  STATISTICS.find((s) => s.name === metric);

export const METRIC_LABEL = {
  time: 'Time',
  energy: 'Energy',
  power: 'Power',
  ...Object.fromEntries(STATISTICS.map((s) => [s.name, `Activation ${s.label}`])),
  attention_entropy: 'Attention entropy',
} as Record<Metric, string>;

const showStatistic = (s: Statistic, v: number | null): string =>
  s.unit === 'share' ? percent(v) : plain(v);
const capital = (text: string): string => text.slice(0, 1).toUpperCase() + text.slice(1);

export function showMetric(metric: string, v: number): string {
  switch (metric) {
    case 'time':
      return time(v);
    case 'energy':
      return energy(v, unit.peek());
    case 'power':
      return power(v);
    case 'attention_entropy':
      return Number.isFinite(v) ? `${plain(v)} nat` : plain(v);
  }
  const statistic = statisticOf(metric);
  return statistic ? showStatistic(statistic, v) : plain(v);
}

export const playing = signal(false);
const STEP_MS = 120;
/** Rows of the list of operations; the table and the CSV have all. */
const OPERATIONS = 12;

function gridOfAnswer(h: HeatmapAnswer): Grid {
  const values = new Float32Array(h.layers.length * h.components.length).fill(Number.NaN);
  h.values.forEach((row, i) => {
    row.forEach((v, j) => {
      if (v !== null) values[i * h.components.length + j] = v;
    });
  });
  const scale = scaleOf(values);
  return { ...base(h, values, scale?.lo ?? 0, scale?.hi ?? 1), clipped: scale?.clipped };
}

function base(h: HeatmapAnswer, values: Float32Array, lo: number, hi: number): Grid {
  const metric = h.metric;
  return {
    layers: h.layers,
    components: h.components,
    values,
    lo,
    hi,
    show: (v) => showMetric(metric, v),
    unit: METRIC_LABEL[metric as Metric] ?? metric,
  };
}

/** One scale for all tokens of decode, so that playing shows change; the prompt has its own. */
function scales(cube: Cube): { prompt: [number, number]; rest: [number, number] } {
  const size = cube.layers * cube.components;
  const ends = (v: Float32Array): [number, number] | null => {
    const s = scaleOf(v);
    return s && [s.lo, s.hi];
  };
  const prompt = ends(cube.values.subarray(0, size)) ?? [0, 1];
  return { prompt, rest: ends(cube.values.subarray(size)) ?? prompt };
}

export function HeatmapPanels({ data }: { data: RunData }) {
  const chart = useRef<Heatmap | null>(null);
  const token = at.token.value;
  const phase = at.phase.value;
  const rows = data.tokens.value.data;
  const energyless = data.summary.value.data?.energy_source === 'unavailable';
  // What every other run opens with is not there: time is.
  const metric = energyless && at.metric.value === 'energy' ? 'time' : at.metric.value;
  const whole = useResource(`heatmap ${data.id} ${metric} ${phase}`, (s) =>
    api.heatmap(data.id, { metric, phase }, s),
  );
  const h = whole.value.data;
  const cells = (rows?.length ?? 0) * (h?.layers.length ?? 0) * (h?.components.length ?? 0);
  const wantCube = (token !== null || playing.value) && cells > 0 && cells <= CUBE_CELLS;
  const cubeRes = useResource(wantCube ? `cube ${data.id} ${metric}` : null, (s) =>
    fetchCube(data.id, metric, s),
  );
  const single = useResource(
    token !== null && cells > CUBE_CELLS ? `one ${data.id} ${metric} ${token}` : null,
    (s) => api.heatmap(data.id, { metric, token }, s),
  );
  const cube = cubeRes.value.data;
  const scale = useMemo(() => (cube ? scales(cube) : null), [cube]);
  const grid = useMemo((): Grid | null => {
    if (!h) return null;
    if (token === null) return gridOfAnswer(h);
    if (
      cube &&
      scale &&
      cube.layers === h.layers.length &&
      cube.components === h.components.length &&
      token < cube.tokens
    ) {
      const size = cube.layers * cube.components;
      const [lo, hi] = token === 0 ? scale.prompt : scale.rest;
      return base(h, cube.values.subarray(token * size, (token + 1) * size), lo, hi);
    }
    return single.value.data ? gridOfAnswer(single.value.data) : gridOfAnswer(h);
  }, [h, token, cube, scale, single.value.data]);

  const n = rows?.length ?? 0;
  useEffect(() => {
    if (!playing.value || n === 0) return;
    const timer = setInterval(
      () => {
        const now = at.token.peek() ?? -1;
        if (now + 1 >= n) playing.value = false;
        else select({ token: now + 1 });
      },
      still.value ? STEP_MS * 4 : STEP_MS,
    );
    return () => clearInterval(timer);
  }, [playing.value, n]);
  useEffect(
    () => () => {
      playing.value = false;
    },
    [],
  );

  const picked = { layer: at.layer.value, component: at.component.value };
  const row = token !== null ? rows?.find((t) => t.token === token) : null;
  const scope =
    token === null
      ? `${h?.aggregate === 'sum' ? 'sum of' : 'mean over'} all ${phase ? `${phase} ` : ''}tokens`
      : `token ${token}`;
  return (
    <>
      <Panel
        class="span-8"
        title="Layers and components"
        note={`${METRIC_LABEL[metric]}, ${scope}. Click a cell for its operations.`}
        actions={
          <label class="check">
            <span class="sr-only">Metric</span>
            <select
              class="input"
              value={metric}
              aria-label="Metric"
              onChange={(e) => select({ metric: e.currentTarget.value as Metric })}
            >
              {METRICS.map((m) => (
                <option
                  key={m}
                  value={m}
                  disabled={energyless && (m === 'energy' || m === 'power')}
                >
                  {METRIC_LABEL[m]}
                </option>
              ))}
            </select>
          </label>
        }
        state={stateOf(whole, (d) =>
          d.layers.length
            ? d.values.some((r) => r.some((v) => v !== null))
              ? null
              : `${METRIC_LABEL[metric]} is unavailable in this run${energyless ? '; choose time or an activation metric' : ''}.`
            : 'This run recorded no layers (depth off).',
        )}
        legend={
          grid && (
            <RampKey
              label={METRIC_LABEL[metric]}
              lo={grid.show(grid.lo)}
              hi={`${grid.clipped ? '≥ ' : ''}${grid.show(grid.hi)}`}
            />
          )
        }
        table={() => ({
          columns: ['layer', ...(grid?.components ?? [])],
          rows: (grid?.layers ?? []).map((l, i) => [
            l,
            ...(grid?.components ?? []).map((_, j) => {
              const v = grid!.values[i * grid!.components.length + j];
              return Number.isFinite(v) ? v : null;
            }),
          ]),
        })}
        png={async () => (await chart.current?.png()) ?? null}
      >
        <Canvas
          class="h-map"
          name="heatmap"
          label={
            grid
              ? `Heatmap of ${METRIC_LABEL[metric]}: ${grid.layers.length} layers by ${grid.components.length} components, ${scope}, from ${grid.show(grid.lo)} to ${grid.show(grid.hi)}.`
              : 'Heatmap'
          }
          make={(host) => {
            const made = new Heatmap(host);
            made.onPick = (cell) => {
              if (cell === null) select({ layer: null, component: null });
              else select({ layer: made.layerOf(cell), component: made.componentOf(cell) });
            };
            return made;
          }}
          handle={chart}
          update={(c) => {
            if (grid) c.set(grid, picked);
          }}
        />
        {h?.outside.some((o) => o.value !== null) && (
          <p class="outside">
            <span class="muted">Outside the layers</span>
            {h.outside.map((o) => (
              <button
                type="button"
                key={o.component}
                class="tag"
                aria-pressed={picked.layer === null && picked.component === o.component}
                onClick={() => select({ layer: null, component: o.component })}
              >
                {o.component} {known(o.value) ? showMetric(metric, o.value) : 'unavailable'}
              </button>
            ))}
          </p>
        )}
        <div class="slider">
          <button
            type="button"
            class="btn small"
            aria-label={playing.value ? 'Pause' : 'Play the tokens'}
            disabled={n === 0}
            onClick={togglePlay}
          >
            <Icon name={playing.value ? 'pause' : 'play'} />
          </button>
          <input
            type="range"
            min={0}
            max={Math.max(0, n - 1)}
            value={token ?? 0}
            disabled={n === 0}
            aria-label="Token"
            aria-valuetext={token === null ? 'all tokens' : `token ${token}`}
            onInput={(e) => select({ token: Number(e.currentTarget.value) })}
          />
          <span class="slider-text mono">
            {token === null
              ? `all ${n} tokens`
              : `${token}/${n - 1} ${JSON.stringify(row?.text ?? '')}`}
          </span>
          <button
            type="button"
            class="btn small"
            disabled={token === null}
            onClick={() => select({ token: null })}
          >
            All
          </button>
        </div>
      </Panel>
      <OperationsPanel data={data} />
    </>
  );
}

export function togglePlay(): void {
  if (!playing.value && at.token.value === null) select({ token: 0 });
  playing.value = !playing.value;
}

function OperationsPanel({ data }: { data: RunData }) {
  const { layer, component, token, phase } = selection.value;
  const key = `ops ${data.id} ${layer} ${component} ${token} ${phase}`;
  const where = component === null ? {} : { layer: layer ?? -1, component };
  const res = useResource(key, (s) =>
    api.operations(data.id, { ...where, token, phase: token === null ? phase : null }, s),
  );
  const d = res.value.data;
  const head = component === null ? null : d?.components[0];
  const weight = (o: { energy_mj: number | null; time_ms: number | null }) =>
    o.energy_mj ?? o.time_ms ?? 0;
  const operations = useMemo(() => {
    const list = d?.operations ?? [];
    return component === null ? [...list].sort((a, b) => weight(b) - weight(a)) : list;
  }, [d, component]);
  const most = Math.max(0, ...operations.map(weight));
  const over = token === null ? 'over all tokens' : `at token ${token}`;
  return (
    <Panel
      class="span-4"
      title={
        component
          ? `${layer !== null && layer >= 0 ? `Layer ${layer}, ` : ''}${component}`
          : 'Operations'
      }
      note={
        component
          ? `What this component is made of, ${over}.`
          : `Of all layers and components, ${over}. Choose a cell of the heatmap for its own.`
      }
      state={stateOf(res, (x) => {
        if (component !== null)
          return x.components.length || x.operations.length
            ? null
            : 'Nothing was recorded for this component.';
        return x.operations.length ? null : 'Single operations are recorded at depth deep.';
      })}
      table={() => ({
        columns: [
          'component_name',
          'operation_name',
          'count',
          'time_ms',
          'energy_mj',
          'energy_sd_mj',
          'flops',
          'bytes',
          'tensor_mean',
          'tensor_std',
          'tensor_max',
        ],
        rows: operations.map((o) => [
          o.component_name,
          o.operation_name,
          o.count,
          o.time_ms,
          o.energy_mj,
          o.energy_sd_mj,
          o.flops,
          o.bytes,
          o.tensor_mean,
          o.tensor_std,
          o.tensor_max,
        ]),
      })}
    >
      {head && (
        <dl class="facts">
          <Fact
            label="Energy"
            value={energyInterval(head.energy_mj, head.energy_sd_mj, unit.value)}
          />
          <Fact label="Net of idle" value={energy(head.net_energy_mj, unit.value)} />
          <Fact label="Time" value={time(head.time_ms)} />
          <Fact label="FLOPs" value={count(head.flops)} />
          <Fact label="Bytes" value={count(head.bytes, 'B')} />
          {STATISTICS.map((s) => (
            <Fact key={s.name} label={capital(s.label)} value={showStatistic(s, head[s.name])} />
          ))}
          {head.planted_mj !== null && (
            <Fact label="Planted (truth)" value={energy(head.planted_mj, unit.value)} />
          )}
          {Object.entries(head.extra_metrics ?? {}).map(([k, v]) =>
            typeof v === 'number' ? (
              <Fact key={k} label={k.replaceAll('_', ' ')} value={plain(v)} />
            ) : null,
          )}
        </dl>
      )}
      {operations.length > 0 && (
        <table class="ops">
          <thead>
            <tr>
              <th scope="col">Operation</th>
              <th scope="col" class="num">
                Time
              </th>
              <th scope="col" class="num">
                Energy
              </th>
            </tr>
          </thead>
          <tbody>
            {operations.slice(0, OPERATIONS).map((o) => (
              <tr key={`${o.component_name} ${o.operation_name}`}>
                <td>
                  {component === null && <span class="muted">{o.component_name} › </span>}
                  {o.operation_name}
                  <Bar share={most ? weight(o) / most : 0} />
                </td>
                <td class="num">{time(o.time_ms)}</td>
                <td class={`num ${o.energy_mj === null ? 'na hatched' : ''}`}>
                  {energyInterval(o.energy_mj, o.energy_sd_mj, unit.value)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {operations.length > OPERATIONS && (
        <p class="note">{operations.length - OPERATIONS} more in the table.</p>
      )}
      {component !== null && d && operations.length === 0 && (
        <p class="note">Single operations are recorded at depth deep.</p>
      )}
    </Panel>
  );
}

function Fact({ label, value }: { label: string; value: string }) {
  return (
    <>
      <dt>{label}</dt>
      <dd class={value === 'unavailable' ? 'na' : ''}>{value}</dd>
    </>
  );
}

/** A share as a thin bar under its name. */
export function Bar({ share, colour }: { share: number; colour?: string }) {
  return (
    <svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
      <rect
        width={Math.max(0, Math.min(100, share * 100))}
        height="4"
        fill={colour ?? 'var(--accent)'}
      />
    </svg>
  );
}
