// Layers × components for the chosen metric over the tokens in the scope, and the operations of a component.
import { signal } from '@preact/signals';
import { useMemo, useRef } from 'preact/hooks';
import type { Cube } from '../../api/binary';
import { api } from '../../api/client';
import { STATISTICS, type Statistic } from '../../api/statistics';
import type { HeatmapAnswer, OperationSum, Summary } from '../../api/types';
import { type Grid, Heatmap } from '../../charts/heatmap';
import { Canvas, Panel, type PanelState } from '../../charts/panel';
import {
  count,
  energy,
  energyInterval,
  energySigned,
  known,
  percent,
  plain,
  power,
  time,
} from '../../core/format';
import { extent, scaleOf } from '../../core/stats';
import { RampKey } from '../../parts/ramp_key';
import { Segmented } from '../../parts/segmented';
import { stateOf, useResource } from '../../state/resource';
import {
  at,
  METRICS,
  type Metric,
  type Scale,
  select,
  selection,
  without,
} from '../../state/selection';
import { unit } from '../../state/settings';
import { fetchCube, type RunData, scopeOf } from './data';
import { isTimed, matrix, medians, OUTSIDE, type RunRows, type Scope, weigh } from './scope';

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
/** Rows of the list of operations; the table and the CSV have all. */
const OPERATIONS = 7;
const OPERATIONS_OF_ONE = 24;

type Ends = { lo: number; hi: number; clipped: boolean };

/** The limits of the colour scale. "Auto" is logarithmic if values span decades, otherwise clipped at the
 * bulk of the values. */
export function endsOf(values: Float32Array, scale: Scale): Ends & { log: boolean } {
  const robust = scaleOf(values) ?? { lo: 0, hi: 1, clipped: false };
  const all = extent(values) ?? [0, 1];
  const least = smallestAbove(values, 0);
  const decades = least !== null && all[1] / least > 300;
  if ((scale === 'log' || (scale === 'auto' && decades)) && least !== null && all[1] > least)
    return { lo: least, hi: all[1], clipped: false, log: true };
  if (scale === 'linear')
    return { lo: Math.min(0, all[0]), hi: all[1], clipped: false, log: false };
  return { ...robust, log: false };
}

function smallestAbove(values: Float32Array, floor: number): number | null {
  let least = Number.POSITIVE_INFINITY;
  for (const v of values) if (v > floor && v < least) least = v;
  return Number.isFinite(least) ? least : null;
}

interface Cells {
  layers: number[];
  components: string[];
  values: Float32Array;
  outside: { component: string; value: number }[];
  unit: string;
}

function cellsOfAnswer(h: HeatmapAnswer): Cells {
  const values = new Float32Array(h.layers.length * h.components.length).fill(Number.NaN);
  h.values.forEach((row, i) => {
    row.forEach((v, j) => {
      if (v !== null) values[i * h.components.length + j] = v;
    });
  });
  const outside = h.outside.flatMap((o) =>
    o.value === null ? [] : [{ component: o.component, value: o.value }],
  );
  return { layers: h.layers, components: h.components, values, outside, unit: h.unit };
}

/** Converts a matrix whose last row is outside the layers. */
function cellsOfMatrix(m: Float64Array, components: string[], layers: number, unit: string): Cells {
  const n = components.length;
  const inside = components.map((_, c) => {
    for (let l = 0; l < layers; l++) if (!Number.isNaN(m[l * n + c])) return true;
    return false;
  });
  const columns = components.flatMap((_, c) => (inside[c] ? [c] : []));
  const values = new Float32Array(layers * columns.length);
  for (let l = 0; l < layers; l++)
    columns.forEach((c, j) => {
      values[l * columns.length + j] = m[l * n + c];
    });
  const outside = components.flatMap((component, c) => {
    const value = m[layers * n + c];
    return !Number.isNaN(value) ? [{ component, value }] : [];
  });
  return {
    layers: Array.from({ length: layers }, (_, l) => l),
    components: columns.map((c) => components[c]),
    values,
    outside,
    unit,
  };
}

/** Statistics over the tokens of a narrow scope: the largest of maxima, the mean of the rest. */
function statisticCells(cube: Cube, rows: RunRows, s: Scope, metric: string): Float64Array {
  const w = weigh(rows, s);
  const size = cube.layers * cube.components;
  const out = new Float64Array(size).fill(Number.NaN);
  const weight = new Float64Array(size);
  const largest = metric === 'activation_max';
  for (let i = 0; i < Math.min(w.length, cube.tokens); i++) {
    if (w[i] <= 0) continue;
    for (let k = 0; k < size; k++) {
      const v = cube.values[i * size + k];
      if (Number.isNaN(v)) continue;
      if (largest) out[k] = out[k] > v ? out[k] : v;
      else out[k] = (!Number.isNaN(out[k]) ? out[k] : 0) + w[i] * v;
      weight[k] += w[i];
    }
  }
  if (!largest) for (let k = 0; k < size; k++) out[k] /= weight[k];
  return out;
}

const ADDITIVE = new Set<string>(['energy', 'time', 'power']);
const UNIT_OF: Record<string, string> = { energy: 'mJ', time: 'ms', power: 'mW' };

function useCells(data: RunData, metric: Metric): { cells: Cells | null; state: PanelState } {
  const s = selection.value;
  const rows = data.rows.value;
  const cubes = data.cubes.value.data;
  const scope = scopeOf(s);
  const additive = ADDITIVE.has(metric);
  const here = additive && cubes !== null;
  const narrow = isTimed(scope);
  // A single token is available from the server; a range of tokens needs the cube.
  const cubed = !additive && narrow && cubes !== null;
  const cube = useResource(cubed ? `cube ${data.id} ${metric}` : null, (x) =>
    fetchCube(data.id, metric, x),
  );
  const ask = { metric, phase: s.token === null ? s.phase : null, token: s.token };
  const res = useResource(
    !here && !cubed && data.summary.value.data ? `heatmap ${data.id} ${JSON.stringify(ask)}` : null,
    (x) => api.heatmap(data.id, ask, x),
  );
  const held = data.inScope.value;
  const cells = useMemo((): Cells | null => {
    if (here && held && rows && cubes) {
      const layers = cubes.time.layers - 1;
      const wanted = metric as 'energy' | 'time' | 'power';
      let m = matrix(held, wanted);
      if (s.aggregate === 'median' && metric !== 'power') {
        const from = metric === 'energy' ? cubes.energy : cubes.time;
        if (from) m = medians(rows, from, scope);
      } else if (s.aggregate === 'mean' && metric !== 'power') {
        const n = weigh(rows, scope).reduce((a, w) => a + w, 0) || 1;
        m = m.map((v) => v / n);
      }
      return cellsOfMatrix(m, cubes.components, layers, UNIT_OF[metric]);
    }
    if (cubed && cube.value.data && rows) {
      const m = statisticCells(cube.value.data, rows, scope, metric);
      return cellsOfMatrix(m, cubes.components, cube.value.data.layers - 1, '');
    }
    return res.value.data && cellsOfAnswer(res.value.data);
  }, [here, held, cubed, cube.value.data, res.value.data, s.aggregate, metric]);
  return { cells, state: here ? { kind: 'ready' } : cubed ? stateOf(cube) : stateOf(res) };
}

export function HeatmapPane({ data }: { data: RunData }) {
  const chart = useRef<Heatmap | null>(null);
  const s = selection.value;
  const summary = data.summary.value.data;
  const energyless = summary?.energy_source === 'unavailable';
  // The default metric is unavailable for this run, so time is shown.
  const metric: Metric = energyless && s.metric === 'energy' ? 'time' : s.metric;
  const { cells, state: loading } = useCells(data, metric);
  const grid = useMemo((): Grid | null => {
    if (!cells) return null;
    return {
      layers: cells.layers,
      components: cells.components,
      values: cells.values,
      ...endsOf(cells.values, s.scale),
      show: (v) => showMetric(metric, v),
      unit: METRIC_LABEL[metric],
    };
  }, [cells, s.scale, metric, unit.value]);
  const picked = { layer: s.layer, component: s.component };
  const additive = ADDITIVE.has(metric) && metric !== 'power';
  const empty = (c: Cells): string | null => {
    if (!c.layers.length) return noLayers(summary);
    return c.values.some((v) => !Number.isNaN(v))
      ? null
      : `${METRIC_LABEL[metric]} is unavailable in this run${energyless ? '; choose time or an activation metric' : ''}.`;
  };
  const none = cells && empty(cells);
  const state: PanelState = none
    ? { kind: 'empty', text: none }
    : grid
      ? { kind: 'ready' }
      : loading;
  return (
    <Panel
      class="bare"
      title="Heatmap"
      note={`${METRIC_LABEL[metric]}, ${additive ? AGGREGATE_LABEL[s.aggregate] : 'over'} ${s.token === null ? 'the tokens in the scope' : `token ${s.token}`}. Arrow keys walk, Enter or a click narrows to a cell.`}
      actions={
        <>
          {additive && (
            <Segmented
              label="Over the tokens"
              value={s.aggregate}
              options={[
                ['sum', 'Sum'],
                ['mean', 'Mean'],
                ['median', 'Median'],
              ]}
              onChange={(v) => select({ aggregate: v })}
            />
          )}
          <select
            class="input small"
            aria-label="Colours"
            value={s.scale}
            onChange={(e) => select({ scale: e.currentTarget.value as Scale })}
          >
            <option value="auto">Colours: auto</option>
            <option value="linear">linear</option>
            <option value="log">log</option>
            <option value="robust">robust</option>
          </select>
          <select
            class="input small"
            value={metric}
            aria-label="Metric"
            onChange={(e) => select({ metric: e.currentTarget.value as Metric })}
          >
            {METRICS.map((m) => (
              <option key={m} value={m} disabled={energyless && (m === 'energy' || m === 'power')}>
                {METRIC_LABEL[m]}
              </option>
            ))}
          </select>
        </>
      }
      state={state}
      legend={
        grid && (
          <RampKey
            label={`${METRIC_LABEL[metric]}${grid.log ? ', logarithmic' : ''}`}
            lo={grid.show(grid.lo)}
            hi={`${grid.clipped ? '≥ ' : ''}${grid.show(grid.hi)}`}
          />
        )
      }
      table={() => ({
        columns: [
          'layer',
          ...(grid?.components ?? []).map((c) => (cells?.unit ? `${c} (${cells.unit})` : c)),
        ],
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
            ? `Heatmap of ${METRIC_LABEL[metric]}: ${grid.layers.length} layers by ${grid.components.length} components, from ${grid.show(grid.lo)} to ${grid.show(grid.hi)}.`
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
      {!!cells?.outside.length && (
        <p class="outside">
          <span class="muted">Outside the layers</span>
          {cells.outside.map((o) => (
            <button
              type="button"
              key={o.component}
              class="tag"
              aria-pressed={picked.layer === OUTSIDE && picked.component === o.component}
              onClick={() => select({ layer: null, component: o.component })}
            >
              {o.component} {showMetric(metric, o.value)}
            </button>
          ))}
        </p>
      )}
    </Panel>
  );
}

const AGGREGATE_LABEL = { sum: 'sum over', mean: 'mean of', median: 'median of' } as const;

/** Why there are no layers: the run may have failed before the first token, or have depth off. */
export function noLayers(s: Summary | null): string {
  if (s?.level && s.engine !== 'perjoule')
    return `${s.engine ?? 'This engine'} reported no layers.`;
  if (s && s.profiling_depth !== 'off')
    return `This run recorded no layers: it ${s.status === 'completed' ? 'made no token' : `${s.status === 'failed' ? 'failed' : 'ended'} before its first token`}.`;
  return 'This run recorded no layers (depth off).';
}

/** Of what is summed from the cubes, which a run without layers does not have. */
export function cubesState(data: RunData, empty: () => string | null = () => null): PanelState {
  if (data.uncubed === 'none') return { kind: 'empty', text: noLayers(data.summary.value.data) };
  if (data.uncubed === 'large')
    return {
      kind: 'empty',
      text: 'This run has too many tokens to be narrowed here; without a scope its whole is shown.',
    };
  return stateOf(data.cubes, empty);
}

/** Why there are no operations; another engine's runs have them only if it reports them. */
export function noOperations(s: Summary | null): string {
  if (s?.level && s.engine !== 'perjoule')
    return `${s.engine === 'exec' ? 'The program' : (s.engine ?? 'This engine')} reported no single operations.`;
  if (s?.profiling_depth === 'deep') return 'This run recorded no operations.';
  return 'Single operations are recorded at depth deep.';
}

const partOfModel = (layer: number | null): string =>
  layer === null
    ? 'Of all layers and components'
    : layer < 0
      ? 'Of all components outside the layers'
      : `Of all components of layer ${layer}`;

export function togglePlay(): void {
  if (!playing.value && at.token.value === null && at.sequence.value === null) select({ token: 0 }); // of a sequence, the player begins with its own first token
  playing.value = !playing.value;
}

export function OperationsPanel({ data }: { data: RunData }) {
  const { layer, component, token, phase, range, sequence } = selection.value;
  const whole = range !== null || sequence !== null;
  const calm = without.value;
  const key = `ops ${data.id} ${layer} ${component} ${token} ${phase} ${calm.disturbances ?? ''}`;
  const where = {
    ...(layer === null ? {} : { layer }),
    ...(component === null ? {} : { component }),
  };
  const res = useResource(key, (s) =>
    api.operations(data.id, { ...where, ...calm, token, phase: token === null ? phase : null }, s),
  );
  const d = res.value.data;
  const head = component === null ? null : d?.components[0];
  // As the components above are, net of idle or gross: a part is never more than its whole.
  const { net } = selection.value;
  const joules = (o: OperationSum) => (net ? o.net_energy_mj : o.energy_mj);
  const weight = (o: OperationSum) => joules(o) ?? o.time_ms ?? 0;
  const operations = useMemo(() => {
    const list = d?.operations ?? [];
    return component === null ? [...list].sort((a, b) => weight(b) - weight(a)) : list;
  }, [d, component, net]);
  const most = Math.max(0, ...operations.map(weight));
  const shown = component === null ? OPERATIONS : OPERATIONS_OF_ONE;
  const over =
    token !== null
      ? `at token ${token}`
      : `over ${phase ? `all of ${phase}` : 'all tokens'}${whole ? ' (whole run: operations are not kept by range)' : ''}`;
  return (
    <Panel
      class="bare"
      title={
        component
          ? `${layer !== null && layer >= 0 ? `Layer ${layer}, ` : ''}${component}`
          : 'Operations'
      }
      note={
        component ? `What this component is made of, ${over}.` : `${partOfModel(layer)}, ${over}.`
      }
      state={stateOf(res, (x) => {
        if (component !== null)
          return x.components.length || x.operations.length
            ? null
            : 'Nothing was recorded for this component.';
        return x.operations.length ? null : noOperations(data.summary.value.data);
      })}
      table={() => ({
        columns: [
          'layer',
          'component_name',
          'operation_name',
          'count',
          'time_ms',
          'energy_mj',
          'energy_sd_mj',
          'net_energy_mj',
          'net_energy_sd_mj',
          'flops',
          'bytes',
          'tensor_mean',
          'tensor_std',
          'tensor_max',
          'tensor_sparsity',
        ],
        rows: operations.map((o) => [
          o.layer_index === undefined ? null : (o.layer_index ?? 'outside'),
          o.component_name,
          o.operation_name,
          o.count,
          o.time_ms,
          o.energy_mj,
          o.energy_sd_mj,
          o.net_energy_mj,
          o.net_energy_sd_mj,
          o.flops,
          o.bytes,
          o.tensor_mean,
          o.tensor_std,
          o.tensor_max,
          o.tensor_sparsity,
        ]),
      })}
    >
      {head && (
        <dl class="facts">
          <Fact
            label="Energy"
            value={energyInterval(head.energy_mj, head.energy_sd_mj, unit.value)}
          />
          <Fact
            label="Net of idle"
            value={energySigned(head.net_energy_mj, head.net_energy_sd_mj, unit.value)}
          />
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
                {net ? 'Above idle' : 'Energy'}
              </th>
            </tr>
          </thead>
          <tbody>
            {operations.slice(0, shown).map((o) => (
              <tr
                key={`${o.layer_index} ${o.component_name} ${o.operation_name}`}
                data-mj={joules(o)}
              >
                <td>
                  {layer === null && known(o.layer_index) && (
                    <span class="muted">L{o.layer_index} › </span>
                  )}
                  {component === null && <span class="muted">{o.component_name} › </span>}
                  {o.operation_name}
                  <Bar share={most ? weight(o) / most : 0} />
                </td>
                <td class="num">{time(o.time_ms)}</td>
                <td class={`num ${joules(o) === null ? 'na hatched' : ''}`}>
                  {net
                    ? energySigned(o.net_energy_mj, o.net_energy_sd_mj, unit.value)
                    : energyInterval(o.energy_mj, o.energy_sd_mj, unit.value)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {operations.length > shown && (
        <p class="note">{operations.length - shown} more in the table.</p>
      )}
      {component !== null && d && operations.length === 0 && (
        <p class="note">{noOperations(data.summary.value.data)}</p>
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

/** A share as a thin bar below its name. */
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
