// Tokens of the scope: distribution of their energy, individual tokens, and token × layer.
import { useMemo, useRef } from 'preact/hooks';
import type { Anomaly } from '../../api/types';
import { Heatmap } from '../../charts/heatmap';
import { Histogram } from '../../charts/histogram';
import { Canvas, Legend, Panel } from '../../charts/panel';
import { colours, phaseLabel } from '../../charts/theme';
import { scaleEnd, type TokenBar, Waterfall } from '../../charts/waterfall';
import { energy, known, plain, power, time } from '../../core/format';
import { fenceOf } from '../../core/stats';
import { RampKey } from '../../parts/ramp_key';
import { stateOf } from '../../state/resource';
import { at, select, selection } from '../../state/selection';
import { dark, unit } from '../../state/settings';
import { nameOf, whyOdd, whyToken } from './anomalies';
import { type RunData, scopeOf } from './data';
import { cubesState } from './heatmap';
import { tokenLayers, weigh } from './scope';

export function TokensPane({ data }: { data: RunData }) {
  return (
    <div class="grid">
      <div class="span-4">
        <HistogramPanel data={data} />
      </div>
      <div class="span-8">
        <WaterfallPanel data={data} />
      </div>
    </div>
  );
}

function HistogramPanel({ data }: { data: RunData }) {
  const chart = useRef<Histogram | null>(null);
  const rows = data.rows.value;
  const s = selection.value;
  const inside = useMemo(() => {
    if (!rows) return [];
    const w = weigh(rows, { ...scopeOf(s), token: null });
    return rows.tokens.filter((t, i) => w[i] > 0 && t.phase === 'decode');
  }, [rows, s.range, s.phase, s.sequence]);
  const timed = !inside.some((t) => known(t.energy_mj));
  const values = useMemo(
    () => inside.map((t) => (timed ? t.duration_ms : t.energy_mj) ?? Number.NaN),
    [inside, timed],
  );
  const show = (v: number) => (timed ? time(v) : energy(v, unit.peek()));
  const picked = inside.findIndex((t) => t.token === s.token);
  return (
    <Panel
      class="bare"
      title="Token histogram"
      of={{
        title: 'Token histogram',
        text: 'How many decode tokens took how much: a long tail to the right is tokens that were disturbed or had more work.',
        term: 'typical',
      }}
      note={`${timed ? 'Time' : 'Energy'} of the decode tokens in the scope; the last bar holds what lies beyond. Click a bar for its ${timed ? 'slowest' : 'most expensive'} token.`}
      state={stateOf(data.tokens, () =>
        inside.length ? null : 'No decode token lies in the scope.',
      )}
      table={() => ({
        columns: ['token', timed ? 'duration_ms' : 'energy_mj', 'disturbed'],
        rows: inside.map((t, i) => [t.token, values[i], t.disturbed ? 'yes' : 'no']),
      })}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <Canvas
        class="h-waterfall"
        name="histogram"
        label={`Histogram of ${inside.length} decode tokens.`}
        make={(host) => new Histogram(host)}
        handle={chart}
        update={(h) => {
          h.set({
            values,
            odd: inside.map((t) => t.disturbed === true),
            picked: picked < 0 ? null : picked,
            show,
          });
          h.onPick = (bar) => {
            const i = bar === null ? null : h.dearest(bar);
            if (i !== null) select({ token: inside[i].token });
          };
        }}
      />
    </Panel>
  );
}

function runningSum(values: number[]): number[] {
  const out: number[] = [];
  for (const v of values) out.push((out.at(-1) ?? 0) + v);
  return out;
}

function WaterfallPanel({ data }: { data: RunData }) {
  const chart = useRef<Waterfall | null>(null);
  const rows = data.tokens.value.data;
  const anomalies = data.summary.value.data?.anomalies;
  const timed = !!rows && !rows.some((t) => known(t.energy_mj));
  const show = (v: number | null) => (timed ? time(v) : energy(v, unit.value));
  const bars = useMemo((): TokenBar[] => {
    const sofar = timed ? runningSum((rows ?? []).map((t) => t.duration_ms)) : null;
    return (rows ?? []).map((t, i) => ({
      token: t.token,
      text: t.text ?? '',
      phase: t.phase,
      start: t.start_ms,
      duration: t.duration_ms,
      value: timed ? t.duration_ms : t.energy_mj,
      sd: timed ? null : t.energy_sd_mj,
      cumulative: sofar ? sofar[i] : t.cumulative_energy_mj,
      anomaly: whyToken(t, anomalies ?? []),
    }));
  }, [rows, anomalies, timed]);
  const { value: range } = at.range;
  const phase = at.phase.value;
  const token = at.token.value;
  const sequence = at.sequence.value;
  dark.value;
  const c = colours();
  const decode = bars.filter(
    (b, i) =>
      b.phase === 'decode' &&
      known(b.value) &&
      (sequence === null || rows?.[i]?.sequence === sequence),
  );
  const cut = useMemo(() => scaleEnd(bars).cut, [bars]);
  const dearest = decode.reduce<TokenBar | null>(
    (a, b) => (!a || (b.value ?? 0) > (a.value ?? 0) ? b : a),
    null,
  );
  return (
    <Panel
      class="bare"
      title="Token waterfall"
      of={{
        title: 'Token waterfall',
        text: 'A bar for each token, as tall as its energy, with its 95 % interval; the line is their running sum. Click a bar to narrow the page to that token.',
        unit: timed ? 'ms' : 'mJ',
        term: 'per_token',
      }}
      note={`${timed ? 'Time of each token, as energy is unavailable' : 'Energy of each token with its 95 % interval'}; the line is the sum so far (right scale).${cut ? ' Bars with a gap go on beyond the scale.' : ''}`}
      state={stateOf(data.tokens, (t) => (t.length === 0 ? 'This run made no tokens.' : null))}
      legend={
        <>
          <Legend
            items={[
              ...['prefill', 'decode'].map((p) => ({ label: phaseLabel(p), colour: c.phase[p] })),
              { label: 'Sum so far', colour: c.text, kind: 'line' as const },
              { label: 'Anomaly', colour: c.danger },
            ]}
          />
          {dearest && (
            <button type="button" class="link" onClick={() => select({ token: dearest.token })}>
              {timed ? 'Slowest' : 'Most expensive'}: token {dearest.token}, {show(dearest.value)}
            </button>
          )}
        </>
      }
      table={() => ({
        columns: [
          'token',
          'text',
          'phase',
          'start_ms',
          'duration_ms',
          'energy_mj',
          'energy_sd_mj',
          'cumulative_energy_mj',
          'anomaly',
        ],
        rows: bars.map((b) => [
          b.token,
          b.text,
          b.phase,
          b.start,
          b.duration,
          ...(timed ? [null, null, null] : [b.value, b.sd, b.cumulative]),
          b.anomaly ?? '',
        ]),
      })}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <Canvas
        class="h-waterfall"
        name="waterfall"
        label={`${timed ? 'Time' : 'Energy'} of ${bars.length} tokens, ${bars.filter((b) => b.anomaly).length} marked as anomalies; ${show(bars[bars.length - 1]?.cumulative ?? null)} in all.`}
        make={(host) => {
          const made = new Waterfall(host);
          made.onPick = (i) => {
            if (i === null) return;
            const t = made.bar(i).token;
            select({ token: at.token.peek() === t ? null : t });
          };
          return made;
        }}
        handle={chart}
        update={(w) => {
          const i = bars.findIndex((b) => b.token === token);
          const sequences = rows ?? [];
          w.set(
            bars,
            i < 0 ? null : i,
            (b) =>
              (!phase || b.phase === phase) &&
              (sequence === null || sequences[b.token]?.sequence === sequence) &&
              (!range || (b.start < range[1] && b.start + b.duration > range[0])),
            timed,
          );
        }}
      />
    </Panel>
  );
}

/** Heatmap of token × layer. */
export function MapPane({ data }: { data: RunData }) {
  const chart = useRef<Heatmap | null>(null);
  const rows = data.rows.value;
  const cubes = data.cubes.value.data;
  const s = selection.value;
  const timed = !cubes?.energy || s.size === 'time';
  const grid = useMemo(() => {
    if (!rows || !cubes) return null;
    const cube = timed ? cubes.time : cubes.energy;
    const scope = { ...scopeOf(s), token: null };
    return cube && tokenLayers(rows, cube, scope, cubes.components);
  }, [rows, cubes, timed, s.range, s.phase, s.sequence, s.component]);
  const fence = useMemo(() => (grid ? fenceOf(grid.values) : null), [grid]);
  const show = (v: number) => (timed ? time(v) : energy(v, unit.peek()));
  return (
    <Panel
      class="bare"
      title="Tokens and layers"
      note={`${timed ? 'Time' : 'Energy'} of each layer at each token${s.component ? `, of ${s.component}` : ''}. Click a cell to narrow to it.`}
      state={cubesState(data, () => (grid?.tokens.length ? null : 'No token lies in the scope.'))}
      legend={
        fence && (
          <RampKey
            label={timed ? 'Time' : 'Energy'}
            lo={show(fence.lo)}
            hi={`${fence.clipped ? '≥ ' : ''}${show(fence.hi)}`}
          />
        )
      }
      table={() => ({
        columns: [
          'token',
          ...Array.from(
            { length: grid?.layers ?? 0 },
            (_, l) => `layer ${l} (${timed ? 'ms' : 'mJ'})`,
          ),
        ],
        rows: (grid?.tokens ?? []).map((t, x) => [
          t,
          ...Array.from({ length: grid!.layers }, (_, l) => {
            const v = grid!.values[x * grid!.layers + l];
            return !Number.isNaN(v) ? v : null;
          }),
        ]),
      })}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <Canvas
        class="h-map"
        name="map"
        label={`Map of ${grid?.tokens.length ?? 0} tokens by ${grid?.layers ?? 0} layers.`}
        make={(host) => new Heatmap(host)}
        handle={chart}
        update={(c) => {
          if (!grid || !fence) return;
          c.set(
            {
              layers: grid.tokens,
              components: Array.from({ length: grid.layers }, (_, l) => `layer ${l}`),
              values: grid.values,
              ...fence,
              show,
              unit: timed ? 'Time' : 'Energy',
              axes: { x: 'token', column: (t) => `Token ${t}` },
            },
            { layer: s.token, component: s.layer === null ? null : `layer ${s.layer}` },
          );
          c.onPick = (cell) => {
            if (cell !== null) select({ token: c.layerOf(cell), layer: cell % grid.layers });
          };
        }}
      />
    </Panel>
  );
}

/** The highest values; the table and the CSV have all. */
const ANOMALIES = 8;

/** The figure of an event, beside what was expected. */
function amounts(a: Anomaly): string {
  const show = (v: number | null) => {
    if (a.kind === 'power') return power(v);
    return a.kind === 'disturbance' || a.extra_energy_mj === null ? time(v) : energy(v, unit.value);
  };
  return `${show(a.value)}, expected ${show(a.expected)}`;
}

const extraOf = (a: Anomaly): string =>
  a.extra_energy_mj === null
    ? `× ${plain(a.times, 2)}`
    : `${a.extra_energy_mj < 0 ? '-' : '+'}${energy(Math.abs(a.extra_energy_mj), unit.value)}`;

/** The event with half as much time on either side. */
function aroundOf(a: Anomaly): [number, number] {
  const air = Math.max(1, a.end_ms - a.begin_ms) / 2;
  return [Math.max(0, a.begin_ms - air), a.end_ms + air];
}

const COLUMNS = [
  'kind',
  'token',
  'tokens',
  'begin_ms',
  'end_ms',
  'value',
  'expected',
  'times',
  'extra_energy_mj',
  'reason',
  'cause',
] as const;

export function AnomalyPanel({ data }: { data: RunData }) {
  const list = data.summary.value.data?.anomalies ?? [];
  const prompts = new Set(
    (data.tokens.value.data ?? []).filter((t) => t.phase === 'prefill').map((t) => t.token),
  );
  return (
    <Panel
      class="bare"
      title="Anomalies"
      note="Events that stand out in the whole run, the largest first: what each took beyond what is expected, and why; click one to go there."
      state={stateOf(data.summary, (s) =>
        s.anomalies.length ? null : 'Nothing stands out in this run.',
      )}
      table={() => ({
        columns: [...COLUMNS],
        rows: list.map((a) => COLUMNS.map((c) => a[c] ?? '')),
      })}
    >
      <ul class="anomalies">
        {list.slice(0, ANOMALIES).map((a) => (
          <li key={`${a.kind}${a.token}${a.begin_ms}`}>
            <button
              type="button"
              onClick={() => {
                if (a.token !== null && a.tokens === 1) select({ token: a.token });
                else select({ range: aroundOf(a) });
              }}
            >
              <span class="anomaly-score num">{extraOf(a)}</span>
              <span>
                <strong>{nameOf(a, a.token !== null && prompts.has(a.token))}</strong>
                <span class="muted"> {amounts(a)}</span>
                <br />
                <span class="note">{whyOdd(a)}</span>
              </span>
            </button>
          </li>
        ))}
      </ul>
      {list.length > ANOMALIES && <p class="note">{list.length - ANOMALIES} more in the table.</p>}
    </Panel>
  );
}
