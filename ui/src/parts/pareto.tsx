// Throughput against energy per token: each run a point with its interval, the Pareto front a line.
import { useMemo, useRef } from 'preact/hooks';
import type { RunSummary } from '../api/types';
import { Canvas, Legend, Panel, type PanelState, READY } from '../charts/panel';
import { Points } from '../charts/points';
import { colours } from '../charts/theme';
import type { Tip } from '../charts/tip';
import { bounds, clip, known, plain, shortId, Z95 } from '../core/format';
import { energyPerToken, partialText, runEnergy, typicalToken } from '../core/run_energy';
import { isWide, kneeOf, paretoFront } from '../core/stats';
import { go } from '../state/selection';
import { dark, unit } from '../state/settings';

/** Above this number of runs, whiskers are left out because they would hide the points. */
const CROWD = 60;

const nameOf = (name: string, knee: boolean): string =>
  knee ? (name ? `knee: ${name}` : 'knee') : name;

export function ParetoPanel(props: {
  runs: RunSummary[];
  colourOf?: (run: RunSummary, i: number) => string;
  labelOf?: (run: RunSummary, i: number) => string;
  /** Highlighted runs; by default those on the front. */
  strong?: (run: RunSummary) => boolean;
  state?: PanelState;
  note?: string;
}) {
  const chart = useRef<Points | null>(null);
  dark.value;
  const c = colours();
  // One axis has one quantity: the typical token's, without runs that have none, unless most have none.
  const lacking = props.runs.filter(
    (r) =>
      known(r.tokens_per_second) && known(r.joules_per_token) && !known(r.joules_per_token_typical),
  ).length;
  const typical = 2 * lacking <= props.runs.length;
  const column = typical ? 'joules_per_token_typical' : 'joules_per_token';
  const joules = (r: RunSummary): number | null => r[column];
  const ends = (r: RunSummary): [number, number] | null => {
    const [lo, hi] = [r.joules_per_token_typical_lo, r.joules_per_token_typical_hi];
    if (typical) return known(lo) && known(hi) ? [lo, hi] : null;
    const [value, sd] = [r.joules_per_token, r.joules_per_token_sd];
    return known(value) && known(sd) && value > 0 && sd > 0 ? bounds(value, Z95 * sd) : null;
  };
  const show = (r: RunSummary): string =>
    typical ? typicalToken(r, unit.peek()) : energyPerToken(r, unit.peek());
  const list = useMemo(
    () => props.runs.filter((r) => known(r.tokens_per_second) && known(r[column])),
    [props.runs, column],
  );
  const front = useMemo(
    () => paretoFront(list.map((r) => ({ x: r.tokens_per_second ?? 0, y: r[column] ?? 0 }))),
    [list, column],
  );
  const on = new Set(front);
  // Small and large models side by side span decades; on a linear axis all but the largest are 0.
  const wide = {
    x: isWide(list.map((r) => r.tokens_per_second ?? 0)),
    y: isWide(list.map((r) => joules(r) ?? 0)),
  };
  const bend = kneeOf(
    front.map((i) => ({ x: list[i].tokens_per_second ?? 0, y: joules(list[i]) ?? 0 })),
    wide,
  );
  const knee = bend === null ? null : front[bend];
  const state = props.state ?? READY;
  return (
    <Panel
      title="Throughput against energy"
      note={
        props.note ??
        `Tokens per second against joules per ${typical ? 'typical token' : 'token on average'}; down and to the right is better. The line is the Pareto front, its knee where more speed begins to cost much more energy.${typical && lacking ? ` ${lacking} without the energy of a decode token ${lacking === 1 ? 'is' : 'are'} left out.` : ''}`
      }
      state={
        state.kind === 'ready' && list.length === 0
          ? { kind: 'empty', text: 'None of these runs has both energy and throughput.' }
          : state
      }
      legend={
        <Legend
          items={[
            { label: 'On the Pareto front', colour: c.accent, kind: 'line' },
            { label: 'Run', colour: props.colourOf ? c.text2 : c.text3 },
          ]}
        />
      }
      table={() => ({
        columns: [
          'run_id',
          'model_name',
          'dtype',
          'prompt',
          'tokens_per_second',
          column,
          'pareto',
          'knee',
        ],
        rows: list.map((r, i) => [
          r.id,
          r.model_name,
          r.dtype,
          r.prompt,
          r.tokens_per_second,
          joules(r),
          on.has(i) ? 'yes' : 'no',
          i === knee ? 'yes' : 'no',
        ]),
      })}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <Canvas
        class="h-pareto"
        name="pareto"
        label={`Scatter of ${list.length} runs by throughput and energy per token; ${front.length} on the Pareto front${knee === null ? '' : `, its knee at ${plain(list[knee].tokens_per_second)} tokens per second and ${show(list[knee])} per token`}.`}
        make={(host) => new Points(host)}
        handle={chart}
        update={(p) => {
          p.set({
            x: {
              label: 'tokens per second',
              log: wide.x,
              show: (v) => Number(v.toPrecision(4)).toLocaleString('en-US'),
            },
            y: {
              label: typical ? 'J per typical token' : 'J per token, mean',
              log: wide.y,
              show: (v) => String(Number(v.toPrecision(3))),
            },
            dots: list.map((r, i) => ({
              x: r.tokens_per_second ?? 0,
              y: joules(r) ?? 0,
              yEnds: list.length > CROWD && !props.strong?.(r) ? null : ends(r),
              label: nameOf(
                on.has(i) || props.labelOf
                  ? (props.labelOf?.(r, i) ?? `${r.model_name ?? ''} ${r.dtype ?? ''}`.trim())
                  : '',
                i === knee,
              ),
              colour: props.colourOf?.(r, i) ?? (on.has(i) ? c.accent : c.text3),
              strong: props.strong?.(r) ?? on.has(i),
              size: props.strong?.(r) || i === knee ? 1.6 : list.length > CROWD ? 0.3 : 0.9,
              // Made when it is pointed at: there may be thousands.
              get tip(): Tip {
                return {
                  title: clip(r.prompt ?? shortId(r.id), 60),
                  rows: [
                    ['Model', `${r.model_name ?? '–'} ${r.dtype ?? ''}`],
                    [typical ? 'Typical token' : 'Mean token', show(r)],
                    ['Throughput', `${plain(r.tokens_per_second)} tok/s`],
                    ['Energy', runEnergy(r, unit.peek())],
                    ['Source', [r.energy_source, partialText(r)].filter(Boolean).join(', ')],
                  ],
                };
              },
            })),
            lines:
              front.length > 1
                ? [
                    {
                      label: 'Pareto front',
                      colour: c.accent,
                      points: front.map((i) => [
                        list[i].tokens_per_second ?? 0,
                        joules(list[i]) ?? 0,
                      ]),
                    },
                  ]
                : [],
          });
          p.onPick = (i) => {
            if (i !== null) go({ view: 'analysis', run: list[i].id });
          };
        }}
      />
    </Panel>
  );
}
