// The head of an analysis: the run and its caveats, its efficiency, and a bar with the energy of
// the selection.
import { api } from '../../api/client';
import { REPORT } from '../../api/inlined';
import type { RunSummary, Summary } from '../../api/types';
import { Panel } from '../../charts/panel';
import { onDevices } from '../../core/devices';
import {
  clip,
  count,
  dateTime,
  digits,
  dollars,
  energy,
  energyInterval,
  energySigned,
  known,
  type Num,
  pair,
  percent,
  plain,
  power,
  shortId,
  spread,
  threadCount,
  time,
  Z95,
} from '../../core/format';
import type { Term } from '../../core/glossary';
import { energyPerToken, profilingCost, thinkingLine } from '../../core/run_energy';
import { OriginBadges, PartialBadge, SourceBadge, StatusBadge } from '../../parts/badge';
import { Explain } from '../../parts/explain';
import { ExportMenu } from '../../parts/export';
import { Icon } from '../../parts/icon';
import { NameAndNote } from '../../parts/name_note';
import { Notice } from '../../parts/notice';
import { Rates } from '../../parts/rates';
import { Remarks } from '../../parts/remarks';
import { finished } from '../../state/live';
import { titleOf } from '../../state/names';
import { stateOf, useResource } from '../../state/resource';
import {
  COMPARED,
  follow,
  go,
  href,
  type Selection,
  select,
  selection,
} from '../../state/selection';
import { unit } from '../../state/settings';
import type { RunData } from './data';
import { peak } from './power';

const optionOf = (r: RunSummary): string =>
  [dateTime(r.created_at), r.model_name ?? r.engine ?? 'unknown model', clip(titleOf(r), 36)].join(
    ' · ',
  );

function RunPicker({ id, s, calm }: { id: string; s: Summary | null; calm: boolean }) {
  const list = useResource(calm ? `recent ${finished.value}` : null, (s) =>
    api.runs({ limit: 50 }, s),
  );
  const runs = list.value.data?.runs ?? [];
  const known = runs.some((r) => r.id === id);
  return (
    <label class="run-picker">
      <span class="sr-only">Run</span>
      <select
        class="input"
        value={id}
        onChange={(e) => go({ view: 'analysis', run: e.currentTarget.value })}
      >
        {!known && <option value={id}>{s ? optionOf(s) : shortId(id)}</option>}
        {runs.map((r) => (
          <option key={r.id} value={r.id}>
            {optionOf(r)}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Has its final height from the start, to avoid layout shift when the figures arrive. */
export function RunHead({ data }: { data: RunData }) {
  const s = data.summary.value.data;
  const state = stateOf(data.summary);
  return (
    <header class="run-head">
      {!REPORT && <RunActions data={data} />}
      {s ? <NameAndNote run={s} /> : <h1>Loading…</h1>}
      {state.kind === 'error' && <Notice bad>{state.text}</Notice>}
      <div class="row run-facts">{s && <Facts s={s} />}</div>
      {s && <Remarks s={s} />}
    </header>
  );
}

/** Other runs, and what can be done with this one. */
function RunActions({ data }: { data: RunData }) {
  const s = data.summary.value.data;
  return (
    <div class="row">
      <RunPicker id={data.id} s={s} calm={data.calm.value} />
      <span class="spacer" />
      {s?.model_name && known(s.input_tokens) && known(s.output_tokens) && (
        <a
          class="btn"
          title="Predict what other batches and lengths would cost"
          href={href(whatIf(s))}
          onClick={(e) => follow(e, 'experiments', whatIf(s))}
        >
          What if…
        </a>
      )}
      <button
        type="button"
        class="btn"
        onClick={() => {
          const ids = selection.value.ids;
          if (!ids.slice(0, COMPARED).includes(data.id))
            select({ ids: [...ids.slice(0, COMPARED), data.id].slice(-COMPARED) });
          go({ view: 'compare' });
        }}
      >
        <Icon name="compare" /> Compare
      </button>
      <ExportMenu id={data.id} />
    </div>
  );
}

/** The request of this run with batch sizes around its own. */
const whatIf = (s: Summary): Partial<Selection> => {
  const batch = Math.max(1, s.batch_size);
  return {
    view: 'experiments',
    run: null,
    whatIf: {
      input: String(Math.max(1, Math.round((s.input_tokens ?? 1) / batch))),
      output: String(Math.max(1, Math.round((s.output_tokens ?? 1) / batch))),
      batches: [...new Set([batch, 1, 2, 4, 8])].join(','),
      dtype: s.dtype ?? '',
      model: s.model_name ?? '',
    },
  };
};

function Facts({ s }: { s: Summary }) {
  return (
    <>
      <StatusBadge status={s.status} />
      <SourceBadge source={s.energy_source} />
      <PartialBadge run={s} />
      <OriginBadges run={s} />
      <span class="muted">
        {[
          s.model_name,
          s.dtype,
          onDevices(s),
          `depth ${s.profiling_depth}`,
          s.threads ? threadCount(s.threads) : '',
          s.batch_size > 1 ? `batch ${s.batch_size}` : '',
          s.machine,
          dateTime(s.created_at),
        ]
          .filter(Boolean)
          .join(' · ')}
      </span>
      {s.tags.map((t) => (
        <span class="tag" key={t}>
          {t}
        </span>
      ))}
    </>
  );
}

export function EfficiencyPanel({ data }: { data: RunData }) {
  const s = data.summary.value.data;
  const top = data.power.value.data ? peak(data.power.value.data, s?.mean_power_mw ?? null) : null;
  const rows = s ? efficiency(s, top) : [];
  return (
    <Panel
      class="bare"
      title="Figures"
      note="What the run cost, and how far the figures can be trusted."
      badge={<SourceBadge source={s?.energy_source === 'measured' ? null : s?.energy_source} />}
      state={stateOf(data.summary)}
      table={() => ({ columns: ['figure', 'value'], rows: rows.map(([a, b]) => [a, b]) })}
    >
      <dl class="facts two">
        {rows.map(([label, value, of]) => (
          <>
            <dt>
              <Explain of={of}>{label}</Explain>
            </dt>
            <dd class={value === 'unavailable' ? 'na' : ''}>{value}</dd>
          </>
        ))}
      </dl>
      {!REPORT && <Rates />}
    </Panel>
  );
}

function efficiency(
  s: Summary,
  top: { t: number; mw: number } | null,
): [label: string, value: string, of: Term][] {
  const mj = (v: number | null) => (known(v) ? v * 1000 : null);
  const j = (v: number | null) => energy(mj(v), unit.value);
  const signed = (v: number | null, sd: number | null) => energySigned(mj(v), mj(sd), unit.value);
  const a = s.attribution;
  const o = s.overhead;
  const ratio = s.prefill_decode_ratio;
  return [
    [
      'Energy of the request',
      energyInterval(s.request_energy_mj, s.request_energy_sd_mj, unit.value),
      'request',
    ],
    ['Tokens per joule', plain(s.tokens_per_joule), 'ratio'],
    ['Per input token (prefill)', j(s.joules_per_input_token), 'ratio'],
    ['Per output token (decode)', j(s.joules_per_output_token), 'ratio'],
    ['Mean token', energyPerToken(s, unit.value), 'per_token'],
    ['Mean token, net of idle', signed(s.joules_per_token_net, s.joules_per_token_net_sd), 'net'],
    ...thinkingRow(s),
    ['Prefill to decode energy', known(ratio) ? plain(ratio) : 'unavailable', 'ratio'],
    [
      'Energy-delay product',
      known(s.energy_delay_product) ? `${plain(s.energy_delay_product)} J·s` : 'unavailable',
      'delay',
    ],
    ['Per million parameters', energy(s.energy_per_million_parameters_mj, unit.value), 'ratio'],
    ...modelUse(s),
    ['Idle energy', energy(s.idle_energy_mj, unit.value), 'idle'],
    ['Peak power', top ? `${power(top.mw)} at ${time(top.t)}` : 'unavailable', 'power'],
    [
      'Prefill speed',
      known(s.prefill_tokens_per_second)
        ? `${plain(s.prefill_tokens_per_second)} tok/s`
        : 'unavailable',
      'speed',
    ],
    ['Cost', dollars(s.cost_usd), 'cost'],
    ['CO₂', known(s.co2_grams) ? `${digits(s.co2_grams, 2)} g` : 'unavailable', 'cost'],
    ['Intervals below the token', spread(a?.interval), 'uncertainty'],
    ['A calibration would give', spread(a?.interval_calibrated), 'uncertainty'],
    ['Energy per FLOP', picojoules(a?.pj_per_flop, a?.pj_per_flop_sd), 'physics'],
    ['Energy per byte', picojoules(a?.pj_per_byte, a?.pj_per_byte_sd), 'physics'],
    ['Cost of profiling', profilingCost(s) ?? 'unavailable', 'recording'],
    [
      'Lost spans, missed samples',
      known(o?.spans_lost) ? `${count(o.spans_lost)}, ${count(o?.samples_missed)}` : 'unavailable',
      'recording',
    ],
  ];
}

function thinkingRow(s: Summary): [label: string, value: string, of: Term][] {
  const line = thinkingLine(s, unit.value);
  return line === null ? [] : [['Thinking', line, 'thinking']];
}

/** Figures that only some runs have: context length, and mixture of experts. */
function modelUse(s: Summary): [label: string, value: string, of: Term][] {
  const c = s.model_use?.context;
  const e = s.model_use?.experts;
  const out: [string, string, Term][] = [];
  if (e)
    out.push([
      'Per million active parameters',
      energy(s.energy_per_million_active_parameters_mj ?? null, unit.value),
      'ratio',
    ]);
  if (c && known(c.share))
    out.push([
      'Context used',
      `${count(c.longest)} of ${count(c.limit)} tokens (${percent(c.share)})${c.nearly_full ? ', nearly full' : ''}`,
      'request',
    ]);
  if (c && known(c.kv_megabytes))
    out.push(['Keys and values', `${plain(c.kv_megabytes)} MB`, 'request']);
  if (e && known(e.per_step))
    out.push([
      'Experts read by a step',
      `${plain(e.per_step)} of ${count(e.experts)} per layer`,
      'request',
    ]);
  return out;
}

/** A coefficient with its interval; shown as not identifiable if the interval includes zero. */
function picojoules(v: Num, sd: Num): string {
  if (!known(v)) return 'unavailable';
  if (!known(sd)) return `${digits(v)} pJ`;
  return Z95 * sd >= Math.abs(v) ? 'not identifiable' : `${pair(v, Z95 * sd)} pJ`;
}
