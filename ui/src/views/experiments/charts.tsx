// Joules per token over the settings of an experiment, and the cells by energy and speed.
import { useRef } from 'preact/hooks';
import type { Experiment, ExperimentCell } from '../../api/types';
import { Canvas, Legend, type LegendItem, Panel, type PanelState, READY } from '../../charts/panel';
import { type Dot, type Line, Points } from '../../charts/points';
import { colours } from '../../charts/theme';
import { energy, known, percent, plain, time } from '../../core/format';
import { css, ramp } from '../../core/ramp';
import { go, select, selection } from '../../state/selection';
import { dark, rampName, unit } from '../../state/settings';
import {
  against,
  boundsOf,
  FACTOR_LABEL,
  type Factor,
  halfWidth,
  isTypical,
  isWideIn,
  joulesOf,
  lineName,
  lines,
  positions,
  varying,
} from './grid';

const joules = (v: number): string => energy(v * 1000, unit.peek());

/** One colour per line: the usual four, or samples of a ramp if there are more. */
export function lineColours(n: number): string[] {
  dark.value;
  const series = colours().series;
  if (n <= series.length) return series.slice(0, n);
  const lut = ramp(rampName.value);
  return Array.from({ length: n }, (_, i) => css(lut[Math.round(20 + (i / (n - 1)) * 200)]));
}

/** The setting along the axis: the chosen one, else the one with the most numeric levels. */
export function alongOf(cells: ExperimentCell[], chosen: string): Factor {
  const list = varying(cells);
  if (list.includes(chosen as Factor)) return chosen as Factor;
  const numeric = list.filter((f) => typeof cells[0]?.[f] === 'number');
  return numeric[0] ?? list[0] ?? 'batch';
}

/** "45 of 70 (53 % to 74 %)" */
export function solved(c: ExperimentCell): string {
  if (!known(c.score)) return 'unavailable';
  return `${c.tasks_solved} of ${c.tasks} (${percent(c.score_lo)} to ${percent(c.score_hi)})`;
}

function tipOf(d: Experiment, c: ExperimentCell): Dot['tip'] {
  const x = against(d, c.cell);
  const half = halfWidth(d, c);
  const value = joulesOf(d, c);
  return {
    title: c.name,
    rows: [
      [
        'Per token',
        known(half) && known(value)
          ? `${joules(value)} ± ${percent(half / value)}`
          : joules(value ?? Number.NaN),
      ],
      ...(x && known(x.ratio)
        ? ([[`To ${d.cells[0].name}`, `×${plain(x.ratio)}`]] as [string, string][])
        : []),
      ['Throughput', `${plain(c.tokens_per_second)} tok/s`],
      ['A token every', time(c.token_latency_ms)],
      ...(known(c.score) ? ([['Tasks solved', solved(c)]] as [string, string][]) : []),
      ['Runs', String(c.runs)],
    ],
  };
}

const readyIf = (any: boolean): PanelState =>
  any ? READY : { kind: 'empty', text: 'No cell has an energy yet.' };

export function FactorialPanel({ d }: { d: Experiment }) {
  const chart = useRef<Points | null>(null);
  const along = alongOf(d.cells, selection.value.along);
  const factors = varying(d.cells);
  const place = positions(d.cells, along);
  const series = lines(d.cells, along).map((l) => l.filter((x) => known(joulesOf(d, x))));
  const ink = lineColours(series.length);
  const wide = isWideIn(d.cells, (x) => joulesOf(d, x));
  // Whiskers of several lines at the same level are offset horizontally.
  const shift = (x: number, k: number) => {
    const by = (k - (series.length - 1) / 2) * (place.log ? 0.05 : 0.04);
    return place.log ? x * 2 ** by : x + by * (place.ticks.length > 1 ? spanOf(place.ticks) : 1);
  };
  const items: LegendItem[] = series.flatMap((l, i) => {
    const label = l[0] && lineName(d.cells, l[0], along);
    return label ? [{ label, colour: ink[i], kind: 'line' as const }] : [];
  });
  return (
    <Panel
      class="span-7"
      title="Energy per token by setting"
      note="Each point is a cell, its whisker the 95 % interval over its runs; a line joins cells that differ in nothing else."
      state={readyIf(series.some((l) => l.length > 0))}
      actions={
        factors.length > 1 && (
          <label class="check">
            Along
            <select
              class="input small"
              aria-label="Setting along the axis"
              value={along}
              onChange={(e) => select({ along: e.currentTarget.value })}
            >
              {factors.map((f) => (
                <option key={f} value={f}>
                  {FACTOR_LABEL[f].toLowerCase()}
                </option>
              ))}
            </select>
          </label>
        )
      }
      legend={items.length > 0 && <Legend items={items} />}
      table={() => tableOf(d)}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <Canvas
        class="h-factorial"
        name="factorial"
        label={`Energy per token by ${FACTOR_LABEL[along].toLowerCase()}: ${d.cells
          .filter((x) => known(joulesOf(d, x)))
          .map((x) => `${x.name} ${joules(joulesOf(d, x) ?? 0)}`)
          .join('; ')}.`}
        make={(host) => new Points(host)}
        handle={chart}
        update={(p) => {
          const shown = series.flatMap((l, k) => l.map((x) => [x, k] as const));
          p.set({
            x: {
              label: FACTOR_LABEL[along].toLowerCase(),
              log: place.log,
              show: place.name,
              ticks: place.ticks,
            },
            y: {
              label: isTypical(d) ? 'energy per typical token' : 'energy per token',
              log: wide,
              show: joules,
            },
            dots: shown.map(([x, k]) => ({
              x: shift(place.at(x), k),
              y: joulesOf(d, x) ?? 0,
              yEnds: boundsOf(d, x),
              label: x.cell === d.optimum?.cell ? 'least' : '',
              colour: ink[k],
              size: x.cell === d.optimum?.cell ? 1.5 : 0.7,
              tip: tipOf(d, x),
            })),
            lines: series.map(
              (l, k): Line => ({
                label: '',
                colour: ink[k],
                points: l.map((x) => [shift(place.at(x), k), joulesOf(d, x) ?? 0]),
              }),
            ),
          });
          p.onPick = (i) => {
            const run = i === null ? undefined : shown[i][0].ids[0];
            if (run) go({ view: 'analysis', run });
          };
        }}
      />
      {d.cells.every((x) => x.runs < 2) && (
        <p class="note">
          Single runs: intervals are those of the measurement alone, and say nothing about repeats.
        </p>
      )}
    </Panel>
  );
}

const spanOf = (ticks: number[]): number =>
  (Math.max(...ticks) - Math.min(...ticks)) / Math.max(1, ticks.length - 1);

/** The other cost of a Pareto front besides energy per token. */
const FRONTS = {
  seconds_per_token: {
    title: 'Throughput against energy',
    axis: 'tokens per second',
    column: 'tokens_per_second',
    note: 'Cells by tokens per second and energy per token; down and to the right is better. The line is the Pareto front, its knee the best trade.',
    x: (c: ExperimentCell) => c.tokens_per_second,
  },
  loss: {
    title: 'Loss against energy',
    axis: 'loss',
    column: 'loss',
    note: 'Cells by loss on the text and energy per token; down and to the left is better. The line is the Pareto front, its knee the best trade.',
    x: (c: ExperimentCell) => c.loss,
  },
  score: {
    title: 'Answers against energy',
    axis: 'tasks solved',
    column: 'score',
    note: 'Cells by the share of tasks solved and energy per token, with 95 % intervals; down and to the right is better. The line is the Pareto front, its knee the best trade.',
    x: (c: ExperimentCell) => c.score ?? null,
  },
} as const;

/** The interval of the other cost, where it has one. */
const endsOf = (over: keyof typeof FRONTS, c: ExperimentCell): [number, number] | null =>
  over === 'score' && known(c.score_lo) && known(c.score_hi) ? [c.score_lo, c.score_hi] : null;

export function FrontPanel({ d, over }: { d: Experiment; over: keyof typeof FRONTS }) {
  const chart = useRef<Points | null>(null);
  dark.value;
  const c = colours();
  const by = FRONTS[over];
  const list = d.cells.filter((x) => known(by.x(x)) && known(joulesOf(d, x)));
  const points = list.map((x) => ({ x: by.x(x) ?? 0, y: joulesOf(d, x) ?? 0 }));
  const told = d.fronts?.find((f) => f.over === over);
  const place = new Map(list.map((x, i) => [x.cell, i]));
  const front = (told?.cells ?? []).flatMap((x) => place.get(x) ?? []);
  const on = new Set(front);
  const knee = (told?.knee != null ? place.get(told.knee) : null) ?? -1;
  const log = { x: isWideIn(list, by.x), y: isWideIn(list, (x) => joulesOf(d, x)) };
  return (
    <Panel
      class="span-5"
      title={by.title}
      note={by.note}
      state={readyIf(list.length > 0)}
      legend={
        <Legend
          items={[
            { label: 'On the Pareto front', colour: c.accent, kind: 'line' },
            { label: 'Beaten in both', colour: c.text3 },
          ]}
        />
      }
      table={() => ({
        columns: ['cell', by.column, d.metric ?? 'joules_per_token', 'pareto', 'knee'],
        rows: list.map((x, i) => [
          x.name,
          by.x(x),
          joulesOf(d, x),
          on.has(i) ? 'yes' : 'no',
          i === knee ? 'yes' : 'no',
        ]),
      })}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <Canvas
        class="h-factorial"
        name={over === 'seconds_per_token' ? 'front' : `front-${over}`}
        label={`Scatter of ${list.length} cells; on the Pareto front: ${front.map((i) => list[i].name).join('; ')}${knee < 0 ? '' : `; knee at ${list[knee].name}`}.`}
        make={(host) => new Points(host)}
        handle={chart}
        update={(p) => {
          p.set({
            x: {
              label: by.axis,
              log: log.x,
              show: (v) => (over === 'score' ? percent(v) : plain(v)),
            },
            y: {
              label: isTypical(d) ? 'energy per typical token' : 'energy per token',
              log: log.y,
              show: joules,
            },
            dots: list.map((x, i) => ({
              x: points[i].x,
              y: points[i].y,
              yEnds: on.has(i) ? boundsOf(d, x) : null,
              xEnds: on.has(i) ? endsOf(over, x) : null,
              label: i === knee ? `knee: ${x.name}` : on.has(i) ? x.name : '',
              colour: on.has(i) ? c.accent : c.text3,
              strong: on.has(i),
              size: i === knee ? 1.6 : 0.8,
              tip: tipOf(d, x),
            })),
            lines:
              front.length > 1
                ? [
                    {
                      label: '',
                      colour: c.accent,
                      points: front.map((i) => [points[i].x, points[i].y]),
                    },
                  ]
                : [],
          });
          p.onPick = (i) => {
            const run = i === null ? undefined : list[i].ids[0];
            if (run) go({ view: 'analysis', run });
          };
        }}
      />
    </Panel>
  );
}

export function tableOf(d: Experiment) {
  return {
    columns: [
      'cell',
      'model',
      'dtype',
      'batch',
      'input',
      'output',
      'threads',
      'runs',
      'disturbed_runs',
      'energy_source',
      'joules_per_token',
      'joules_per_token_lo',
      'joules_per_token_hi',
      'joules_per_token_typical',
      'joules_per_token_typical_lo',
      'joules_per_token_typical_hi',
      'ratio_to_first',
      'ratio_lo',
      'ratio_hi',
      'tokens_per_second',
      'ttft_ms',
      'token_latency_ms',
      'mean_power_mw',
      'loss',
      'tasks',
      'tasks_solved',
      'score',
      'score_lo',
      'score_hi',
      'energy_per_million_active_parameters_mj',
      'decode_weight_bytes',
      'kv_megabytes',
      'context_share',
      'experts_per_step',
      'load_balance',
    ],
    rows: d.cells.map((x) => {
      const r = against(d, x.cell);
      return [
        x.name,
        x.model,
        x.dtype,
        x.batch,
        x.input,
        x.output,
        x.threads,
        x.runs,
        x.disturbed_runs,
        x.energy_source,
        x.joules_per_token,
        x.joules_per_token_lo,
        x.joules_per_token_hi,
        x.joules_per_token_typical,
        x.joules_per_token_typical_lo,
        x.joules_per_token_typical_hi,
        r?.ratio ?? null,
        r?.ratio_lo ?? null,
        r?.ratio_hi ?? null,
        x.tokens_per_second,
        x.ttft_ms,
        x.token_latency_ms,
        x.mean_power_mw,
        x.loss,
        x.tasks ?? null,
        x.tasks_solved ?? null,
        x.score ?? null,
        x.score_lo ?? null,
        x.score_hi ?? null,
        x.energy_per_million_active_parameters_mj ?? null,
        x.decode_weight_bytes ?? null,
        x.kv_megabytes ?? null,
        x.context_share ?? null,
        x.experts_per_step ?? null,
        x.load_balance ?? null,
      ];
    }),
  };
}
