// Two to four runs side by side: normalised metrics, curves laid over each other, differences with
// their statistics. The first run is the baseline; another can be made it.
import { useMemo, useRef } from 'preact/hooks';
import { api } from '../../api/client';
import type { Compare, CompareTest, RunSummary } from '../../api/types';
import { follow } from '../../app';
import { GroupedBars } from '../../charts/bars';
import { Lines, type Series } from '../../charts/lines';
import { Canvas, Legend, Panel, Trouble } from '../../charts/panel';
import { colours, PHASE_LABEL } from '../../charts/theme';
import {
  clip,
  dateTime,
  digits,
  energy,
  energyScale,
  known,
  pair,
  plain,
  power,
  powerScale,
  shortId,
  time,
  timeScale,
} from '../../core/format';
import { SourceBadge, StatusBadge } from '../../parts/badge';
import { Icon } from '../../parts/icon';
import { ParetoPanel } from '../../parts/pareto';
import { stateOf, useResource } from '../../state/resource';
import { at, href, select, selection } from '../../state/selection';
import { dark, unit } from '../../state/settings';

const LETTERS = 'ABCD';

export function CompareView() {
  const ids = at.ids.value;
  if (ids.length < 2) {
    return (
      <div class="stack">
        <h1>Compare</h1>
        <div class="panel">
          <div class="state">
            <p>
              Select two to four runs in the history to see them side by side
              {ids.length === 1 ? '; one is selected' : ''}.
            </p>
            <a
              class="btn primary"
              href={href({ view: 'history' })}
              onClick={(e) => follow(e, 'history')}
            >
              Open the history
            </a>
          </div>
        </div>
      </div>
    );
  }
  return <Comparison key={ids.join()} ids={ids} />;
}

function Comparison({ ids }: { ids: string[] }) {
  const res = useResource(`compare ${ids.join()}`, (s) => api.compare(ids, s));
  const d = res.value.data;
  const state = stateOf(res);
  return (
    <div class="stack">
      <div class="row">
        <h1>Compare</h1>
        <span class="spacer" />
        <label class="check">
          <input
            type="checkbox"
            checked={selection.value.diff}
            onChange={(e) => select({ diff: e.currentTarget.checked })}
          />
          Only differences
        </label>
        <a class="btn" href={href({ view: 'history' })} onClick={(e) => follow(e, 'history')}>
          Choose runs
        </a>
      </div>
      {state.kind === 'error' && <Trouble text={state.text} retry={state.retry} />}
      {state.kind === 'loading' && <div class="panel state skeleton">Loading…</div>}
      {d && (
        <>
          <Cards runs={d.runs} />
          <div class="grid">
            <MetricsPanel d={d} />
            <BarsPanel d={d} />
          </div>
          <TestsPanel d={d} />
          <Overlays d={d} />
          <div class="grid">
            <PartsPanel
              title="Phases"
              rows={d.phases.map((p) => ({
                name: PHASE_LABEL[p.phase] ?? p.phase,
                time: p.duration_ms,
                energy: p.energy_mj,
              }))}
              d={d}
            />
            <PartsPanel
              title="Components"
              rows={d.components.map((c) => ({
                name: c.component_name,
                time: c.time_ms,
                energy: c.energy_mj,
              }))}
              d={d}
            />
          </div>
          <Pareto runs={d.runs} />
        </>
      )}
    </div>
  );
}

const useColours = () => {
  dark.value;
  return colours().series;
};

function Letter({ i }: { i: number }) {
  return <span class={`letter series-${i + 1}`}>{LETTERS[i]}</span>;
}

function Cards({ runs }: { runs: RunSummary[] }) {
  const ids = at.ids.value;
  return (
    <ul class="cards">
      {runs.map((r, i) => (
        <li key={r.id} class="panel">
          <div class="row">
            <Letter i={i} />
            <strong>
              {r.model_name} {r.dtype}
            </strong>
            <span class="spacer" />
            {i > 0 ? (
              <button
                type="button"
                class="tool"
                onClick={() =>
                  select({ ids: [r.id, ...runs.filter((x) => x.id !== r.id).map((x) => x.id)] })
                }
              >
                Make baseline
              </button>
            ) : (
              <span class="badge">baseline</span>
            )}
            <button
              type="button"
              class="tool"
              aria-label={`Remove ${LETTERS[i]} from the comparison`}
              onClick={() => select({ ids: ids.filter((_, k) => k !== i) })}
            >
              <Icon name="close" />
            </button>
          </div>
          <a
            href={href({ view: 'analysis', run: r.id })}
            onClick={(e) => follow(e, 'analysis', { run: r.id })}
          >
            {clip(r.prompt ?? shortId(r.id), 70)}
          </a>
          <div class="row">
            <SourceBadge source={r.energy_source} />
            {r.status !== 'completed' && <StatusBadge status={r.status} />}
            <span class="note">{dateTime(r.created_at)}</span>
          </div>
        </li>
      ))}
    </ul>
  );
}

const NAMES: Record<string, string> = {
  joules_per_token: 'Energy per token',
  joules_per_token_net: 'Energy per token, net',
  joules_per_output_token: 'Energy per output token (decode)',
  joules_per_input_token: 'Energy per input token (prefill)',
  total_energy_mj: 'Energy',
  net_energy_mj: 'Energy, net of idle',
  total_duration_ms: 'Duration',
  prefill_duration_ms: 'Prefill time',
  decode_duration_ms: 'Decode time',
  tokens_per_second: 'Tokens per second',
  prefill_tokens_per_second: 'Prefill tokens per second',
  mean_power_mw: 'Mean power',
  energy_delay_product: 'Energy-delay product',
  tokens_per_joule: 'Tokens per joule',
  token_energy_mj: 'Energy of a decode token',
  token_duration_ms: 'Time of a decode token',
  token_power_mw: 'Power of a decode token',
};

const nameOf = (metric: string): string => {
  const known = NAMES[metric];
  if (known) return known;
  const words = metric.replace(/_(mj|ms|mw|usd|bytes)$/, '').replaceAll('_', ' ');
  return words[0].toUpperCase() + words.slice(1);
};

/** Units that the metric's own name says, or that read better otherwise. */
const UNIT: Record<string, string> = { '1/s': '', '1/J': '', 'J s': 'J·s' };

function show(v: number | null, u: string): string {
  if (!known(v)) return 'unavailable';
  switch (u) {
    case 'J':
      return energy(v * 1000, unit.value);
    case 'mJ':
      return energy(v, unit.value);
    case 'ms':
      return time(v);
    case 'mW':
      return power(v);
  }
  const text = Number.isInteger(v) ? v.toLocaleString('en-US') : plain(v);
  return `${text} ${UNIT[u] ?? u}`.trimEnd();
}

/** A difference counts from a tenth of a percent on; below it is rounding. */
const differs = (percentages: (number | null)[]): boolean =>
  percentages.some((p) => p === null || Math.abs(p) >= 0.1);

function Percent({ p, better }: { p: number | null; better: 'lower' | 'higher' | null }) {
  if (!known(p)) return <span class="na">unavailable</span>;
  const good =
    better === null || Math.abs(p) < 0.1 ? '' : p < 0 === (better === 'lower') ? 'good' : 'poor';
  return (
    <span class={`delta ${good}`}>
      {p > 0 ? '+' : p < 0 ? '−' : ''}
      {digits(Math.abs(p))} %
      {good && <span class="sr-only">{good === 'good' ? ' (better)' : ' (worse)'}</span>}
    </span>
  );
}

function MetricsPanel({ d }: { d: Compare }) {
  const only = selection.value.diff;
  const rows = d.metrics.filter((m) => !only || differs(m.difference_percent.slice(1)));
  return (
    <Panel
      class="span-7"
      title="Metrics"
      note="Each run, and its difference from the baseline A."
      state={
        rows.length
          ? { kind: 'ready' }
          : { kind: 'empty', text: 'These runs do not differ in any metric.' }
      }
      table={() => ({
        columns: [
          'metric',
          'unit',
          ...d.runs.flatMap((_, i) => [LETTERS[i], ...(i ? [`${LETTERS[i]} difference %`] : [])]),
        ],
        rows: rows.map((m) => [
          m.metric,
          m.unit,
          ...m.values.flatMap((v, i) => [v, ...(i ? [m.difference_percent[i]] : [])]),
        ]),
      })}
    >
      <div class="scroll-x">
        <table class="ops compare-table">
          <thead>
            <tr>
              <th scope="col">Metric</th>
              {d.runs.map((r, i) => (
                <th scope="col" class="num" key={r.id}>
                  <Letter i={i} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((m) => (
              <tr key={m.metric}>
                <th scope="row">{nameOf(m.metric)}</th>
                {m.values.map((v, i) => (
                  <td class={`num ${known(v) ? '' : 'na hatched'}`} key={d.runs[i].id}>
                    {show(v, m.unit)}
                    {i > 0 && known(v) && (
                      <>
                        <br />
                        <Percent p={m.difference_percent[i]} better={m.better} />
                      </>
                    )}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function BarsPanel({ d }: { d: Compare }) {
  const chart = useRef<GroupedBars | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const series = useColours();
  const only = selection.value.diff;
  const list = d.metrics.filter(
    (m) =>
      m.better !== null &&
      m.normalised.some(known) &&
      (!only || differs(m.difference_percent.slice(1))),
  );
  const height = GroupedBars.height(list.length, d.runs.length);
  box.current?.style.setProperty('--h', `${height}px`);
  return (
    <Panel
      class="span-5"
      title="Normalised"
      note="Each metric as a multiple of the baseline A (dashed line at 1)."
      state={
        list.length ? { kind: 'ready' } : { kind: 'empty', text: 'There is nothing to normalise.' }
      }
      legend={
        <Legend
          items={d.runs.map((r, i) => ({
            label: `${LETTERS[i]} ${r.model_name ?? ''} ${r.dtype ?? ''}`,
            colour: series[i],
          }))}
        />
      }
      table={() => ({
        columns: ['metric', ...d.runs.map((_, i) => LETTERS[i])],
        rows: list.map((m) => [m.metric, ...m.normalised]),
      })}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <div
        ref={(el) => {
          el?.style.setProperty('--h', `${height}px`);
          (box as { current: HTMLDivElement | null }).current = el;
        }}
        class="h-var"
      >
        <Canvas
          class="fill"
          name="bars"
          label={`Normalised metrics. ${list.map((m) => `${nameOf(m.metric)}: ${m.normalised.map((v, i) => `${LETTERS[i]} ${plain(v)}`).join(', ')}`).join('; ')}.`}
          make={(host) => new GroupedBars(host)}
          handle={chart}
          update={(c) =>
            c.set(
              list.map((m) => ({
                label: nameOf(m.metric),
                bars: m.normalised.map((v, i) => ({
                  value: v,
                  colour: series[i],
                  name: LETTERS[i],
                  text: known(v) ? `${digits(v)}×` : 'unavailable',
                })),
              })),
            )
          }
        />
      </div>
    </Panel>
  );
}

const pText = (p: number | null): string =>
  !known(p) ? 'unavailable' : p < 1e-4 ? '< 0.0001' : digits(p, 2);

function TestsPanel({ d }: { d: Compare }) {
  const only = selection.value.diff;
  const list = d.tests.filter((t) => !only || t.significant);
  return (
    <Panel
      title="Differences"
      note="Means with standard deviations, the difference with its 95 % interval, Welch's and Mann-Whitney's p; corrected for the number of tests (Holm)."
      state={
        list.length
          ? { kind: 'ready' }
          : {
              kind: 'empty',
              text: only
                ? 'No difference is significant after correction.'
                : 'There is nothing to test.',
            }
      }
      table={() => ({
        columns: [
          'metric',
          'unit',
          'a',
          'b',
          'sample',
          'n_a',
          'n_b',
          'mean_a',
          'sd_a',
          'mean_b',
          'sd_b',
          'difference',
          'difference_lo',
          'difference_hi',
          'welch_p',
          'mann_whitney_p',
          'hedges_g',
          'p_adjusted',
          'significant',
        ],
        rows: list.map((t) => [
          t.metric,
          t.unit,
          LETTERS[t.a],
          LETTERS[t.b],
          t.sample,
          t.n_a,
          t.n_b,
          t.mean_a,
          t.sd_a,
          t.mean_b,
          t.sd_b,
          t.difference,
          t.difference_lo,
          t.difference_hi,
          t.welch_p,
          t.mann_whitney_p,
          t.hedges_g,
          t.p_adjusted,
          t.significant ? 'yes' : 'no',
        ]),
      })}
    >
      <div class="scroll-x">
        <table class="ops compare-table">
          <thead>
            <tr>
              <th scope="col">Metric</th>
              <th scope="col">Runs</th>
              <th scope="col" class="num">
                First, mean ± sd
              </th>
              <th scope="col" class="num">
                Second, mean ± sd
              </th>
              <th scope="col" class="num">
                Difference (95 %)
              </th>
              <th scope="col" class="num">
                Welch p
              </th>
              <th scope="col" class="num">
                Mann-Whitney p
              </th>
              <th scope="col" class="num">
                p corrected
              </th>
              <th scope="col" class="num">
                Hedges g
              </th>
              <th scope="col">Verdict</th>
            </tr>
          </thead>
          <tbody>
            {list.map((t) => (
              <TestRow key={`${t.metric}${t.a}${t.b}`} t={t} />
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function TestRow({ t }: { t: CompareTest }) {
  const meanSd = (m: number | null, s: number | null) => {
    if (!known(m)) return 'unavailable';
    const scale =
      t.unit === 'mJ'
        ? energyScale(m, unit.value)
        : t.unit === 'ms'
          ? timeScale(m)
          : t.unit === 'mW'
            ? powerScale(m)
            : { factor: 1, unit: t.unit };
    return `${known(s) ? pair(m * scale.factor, s * scale.factor) : digits(m * scale.factor)} ${scale.unit}`;
  };
  return (
    <tr>
      <th scope="row">
        {nameOf(t.metric)}
        <br />
        <span class="note">
          {t.n_a} and {t.n_b} {t.sample}s
        </span>
      </th>
      <td>
        <Letter i={t.a} /> <Letter i={t.b} />
      </td>
      <td class="num">{meanSd(t.mean_a, t.sd_a)}</td>
      <td class="num">{meanSd(t.mean_b, t.sd_b)}</td>
      <td class={`num ${known(t.difference) ? '' : 'na'}`}>
        {known(t.difference) ? `${signed(t.difference, t.unit)}` : 'unavailable'}
        {known(t.difference_lo) && known(t.difference_hi) && (
          <>
            <br />
            <span class="note">
              {signed(t.difference_lo, t.unit)} to {signed(t.difference_hi, t.unit)}
            </span>
          </>
        )}
      </td>
      <td class="num">{pText(t.welch_p)}</td>
      <td class="num">{pText(t.mann_whitney_p)}</td>
      <td class="num">{pText(t.p_adjusted)}</td>
      <td class="num">{known(t.hedges_g) ? digits(t.hedges_g, 2) : '–'}</td>
      <td>
        <span class={`badge ${t.significant ? 'running' : ''}`}>
          {!known(t.p_adjusted)
            ? 'unavailable'
            : t.significant
              ? 'different'
              : 'not distinguishable'}
        </span>
      </td>
    </tr>
  );
}

const signed = (v: number, u: string): string =>
  `${v > 0 ? '+' : v < 0 ? '−' : ''}${show(Math.abs(v), u)}`;

// ---- curves laid over each other

const POINTS = 2000;

function Overlays({ d }: { d: Compare }) {
  const ids = d.runs.map((r) => r.id);
  const powers = useResource(`overlay power ${ids.join()}`, (s) =>
    Promise.all(ids.map((id) => api.power(id, { points: POINTS }, s))),
  );
  const tokens = useResource(`overlay tokens ${ids.join()}`, (s) =>
    Promise.all(ids.map((id) => api.tokens(id, {}, s))),
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
          x: Float64Array.from(p.t_ms),
          y: Float64Array.from(p.total_power_mw ?? p.t_ms.map(() => null), (v) => v ?? Number.NaN),
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
    Math.max(1e-9, ...list.flatMap((s) => Array.from(s.y, (v) => (!Number.isNaN(v) ? v : 0))));
  const longest = Math.max(1e-9, ...powerSeries.map((s) => s.x[s.x.length - 1] ?? 0));
  return (
    <div class="grid">
      <Overlay
        title="Power over time"
        note="Total power of each run from its start."
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
        note="Energy of each decode token, by position."
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
          })
        }
      />
    </Panel>
  );
}

const PARTS_SHOWN = 8;

interface PartRow {
  name: string;
  time: (number | null)[];
  energy: (number | null)[];
}

function PartsPanel({ title, rows, d }: { title: string; rows: PartRow[]; d: Compare }) {
  const only = selection.value.diff;
  const change = (list: (number | null)[], i: number): number | null =>
    known(list[0]) && known(list[i]) && list[0] !== 0
      ? 100 * ((list[i] as number) / list[0] - 1)
      : null;
  const shown = rows.filter(
    (r) =>
      !only ||
      d.runs.some(
        (_, i) => i > 0 && [r.time, r.energy].some((l) => Math.abs(change(l, i) ?? 0) >= 0.1),
      ),
  );
  return (
    <Panel
      class="span-6"
      title={title}
      note="Energy and time of each run; change against A."
      state={
        shown.length
          ? { kind: 'ready' }
          : {
              kind: 'empty',
              text: `There are no ${only ? 'differing ' : ''}${title.toLowerCase()} in these runs.`,
            }
      }
      table={() => ({
        columns: [
          'name',
          ...d.runs.flatMap((_, i) => [`${LETTERS[i]} energy_mj`, `${LETTERS[i]} time_ms`]),
        ],
        rows: shown.map((r) => [
          r.name,
          ...d.runs.flatMap((_, i) => [r.energy[i] ?? null, r.time[i] ?? null]),
        ]),
      })}
    >
      <div class="scroll-x">
        <table class="ops compare-table">
          <thead>
            <tr>
              <th scope="col">Name</th>
              {d.runs.map((r, i) => (
                <th scope="col" class="num" key={r.id}>
                  <Letter i={i} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.slice(0, PARTS_SHOWN).map((r) => (
              <tr key={r.name}>
                <th scope="row">{r.name}</th>
                {d.runs.map((run, i) => (
                  <td class="num" key={run.id}>
                    <span class={known(r.energy[i]) ? '' : 'na hatched'}>
                      {energy(r.energy[i], unit.value)}
                    </span>{' '}
                    {i > 0 && known(change(r.energy, i)) && (
                      <Percent p={change(r.energy, i)} better="lower" />
                    )}
                    <br />
                    <span class="note">{time(r.time[i])}</span>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {shown.length > PARTS_SHOWN && (
        <p class="note">{shown.length - PARTS_SHOWN} more in the table.</p>
      )}
    </Panel>
  );
}

/** The compared runs among the newest others of the history. */
function Pareto({ runs }: { runs: RunSummary[] }) {
  const series = useColours();
  const others = useResource('pareto context', (s) => api.runs({ limit: 200 }, s));
  const mine = new Map(runs.map((r, i) => [r.id, i]));
  const all = useMemo(
    // The compared runs last, so that they are drawn over the others.
    () => [...(others.value.data?.runs ?? []).filter((r) => !mine.has(r.id)), ...runs],
    [runs, others.value.data],
  );
  dark.value;
  const grey = colours().text3;
  return (
    <ParetoPanel
      runs={all}
      note="The compared runs in colour, the latest others in grey; down and to the right is better. The line is the Pareto front."
      colourOf={(r) => (mine.has(r.id) ? series[mine.get(r.id)!] : grey)}
      labelOf={(r) => (mine.has(r.id) ? LETTERS[mine.get(r.id)!] : '')}
      strong={(r) => mine.has(r.id)}
    />
  );
}
