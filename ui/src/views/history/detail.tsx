// Details of one run beside the list: its prompt, output, machine and cost.
import { api } from '../../api/client';
import type { RunDetail, RunSummary } from '../../api/types';
import { Trouble } from '../../charts/panel';
import { type Device, devicesOf } from '../../core/devices';
import {
  count,
  dateTime,
  digits,
  dollars,
  energy,
  energySigned,
  known,
  percent,
  plain,
  power,
  promptOf,
  time,
  UNAVAILABLE,
} from '../../core/format';
import type { Term } from '../../core/glossary';
import {
  disturbed,
  energyPerToken,
  modelLoad,
  runEnergy,
  thinkingLine,
  typicalToken,
} from '../../core/run_energy';
import { OriginBadges, PartialBadge, SourceBadge, StatusBadge } from '../../parts/badge';
import { Explain, type Explanation } from '../../parts/explain';
import { ExportMenu } from '../../parts/export';
import { Icon } from '../../parts/icon';
import { NameAndNote } from '../../parts/name_note';
import { Rates } from '../../parts/rates';
import { Remarks } from '../../parts/remarks';
import { stateOf, useResource } from '../../state/resource';
import { follow, href, rates, select } from '../../state/selection';
import { unit } from '../../state/settings';

export function RunDetailPanel({
  id,
  onDelete,
}: {
  id: string;
  onDelete: (r: RunSummary) => void;
}) {
  const r = rates.value;
  const res = useResource(`detail ${id} ${JSON.stringify(r)}`, (s) => api.detail(id, s, r));
  const d = res.value.data;
  const state = stateOf(res);
  return (
    <aside class="panel detail" aria-label="Run detail">
      <div class="row">
        {d && <StatusBadge status={d.status} />}
        {d && <SourceBadge source={d.energy_source} />}
        {d && <PartialBadge run={d} />}
        {d && <OriginBadges run={d} />}
        <span class="spacer" />
        <button
          type="button"
          class="tool"
          aria-label="Close the detail"
          onClick={() => select({ run: null })}
        >
          <Icon name="close" />
        </button>
      </div>
      {state.kind === 'error' && <Trouble text={state.text} retry={state.retry} />}
      {state.kind === 'loading' && <div class="state skeleton">Loading…</div>}
      {d && (
        <>
          <div class="row">
            <a
              class="btn primary"
              href={href({ view: 'analysis', run: d.id })}
              onClick={(e) => follow(e, 'analysis', { run: d.id })}
            >
              Open in Analysis
            </a>
            <ExportMenu id={d.id} />
            <button type="button" class="btn danger" onClick={() => onDelete(d)}>
              <Icon name="trash" /> Delete
            </button>
          </div>
          <NameAndNote run={d} level={2} />
          <Remarks s={d} />
          <h2>Prompt</h2>
          <p class="text-block">{promptOf(d) || 'No prompt was recorded.'}</p>
          {d.output_text && (
            <>
              <h2>Output</h2>
              <p class="text-block">{d.output_text}</p>
            </>
          )}
          <h2>Figures</h2>
          <Facts rows={figures(d)} />
          <Rates />
          <h2>Settings</h2>
          <Facts rows={settings(d)} />
          {d.machine_info && (
            <>
              <h2>Machine</h2>
              <Facts rows={Object.entries(d.machine_info).flatMap(([k, v]) => fact(k, v))} />
            </>
          )}
        </>
      )}
    </aside>
  );
}

type FactRow = [label: string, value: string, of?: Term | Explanation];

function fact(key: string, value: unknown): FactRow[] {
  if (value === null || value === undefined || value === '') return [];
  const label = key.replaceAll('_', ' ');
  if (typeof value === 'object')
    return Object.entries(value).flatMap(([k, v]) => fact(`${label} ${k}`, v));
  if (typeof value === 'number' && key.endsWith('_bytes'))
    return [[label.replace(/ bytes$/, ''), count(value, 'B')]];
  return [[label, String(value)]];
}

function Facts({ rows }: { rows: FactRow[] }) {
  return (
    <dl class="facts">
      {rows.map(([label, value, of]) => (
        <>
          <dt>{of ? <Explain of={of}>{label}</Explain> : label}</dt>
          <dd class={value.startsWith('unavailable') ? 'na' : ''}>{value}</dd>
        </>
      ))}
    </dl>
  );
}

const PREFILL = 'Time of reading the prompt, up to the first output token.';
const DECODE = 'Time of the output tokens after the first.';

function figures(d: RunDetail): FactRow[] {
  const j = (v: number | null) => energy(known(v) ? v * 1000 : null, unit.value);
  const share = disturbed(d);
  const thinking = thinkingLine(d, unit.value);
  const more = (title: string, text: string, term: Term): Explanation => ({ title, text, term });
  return [
    ['Energy', runEnergy(d, unit.value), 'energy'],
    ['Net of idle', energySigned(d.net_energy_mj, d.net_energy_sd_mj, unit.value), 'net'],
    ['Mean token', energyPerToken(d, unit.value), 'per_token'],
    ['Typical token', typicalToken(d, unit.value), 'typical'],
    ...(thinking ? ([['Thinking', thinking, 'thinking']] as FactRow[]) : []),
    ['Model load', modelLoad(d, unit.value), 'load'],
    ...(share ? ([['Disturbed, of the request', share, 'disturbed']] as FactRow[]) : []),
    [
      'Per input token (prefill)',
      j(d.joules_per_input_token),
      more(
        'Energy per input token',
        'Energy of prefill over the tokens of the prompt.',
        'per_token',
      ),
    ],
    ['Mean power', power(d.mean_power_mw), 'power'],
    ['Duration', time(d.total_duration_ms), 'duration'],
    ['Prefill', time(d.prefill_duration_ms), more('Prefill', PREFILL, 'duration')],
    ['Decode', time(d.decode_duration_ms), more('Decode', DECODE, 'duration')],
    ['Tokens per second', plain(d.tokens_per_second), 'speed'],
    ['Tokens', `${d.input_tokens ?? '–'} in, ${d.output_tokens ?? '–'} out`, 'phase'],
    ['Cost of the energy', dollars(d.cost_usd), 'cost'],
    ['CO₂', known(d.co2_grams) ? `${digits(d.co2_grams, 2)} g` : UNAVAILABLE, 'cost'],
    ['Cost of profiling', percent(d.overhead?.share), 'recording'],
  ];
}

const measuredBy = (d: Device): string => (d.rails ? `measured by ${d.rails}` : 'not measured');

function settings(d: RunDetail): FactRow[] {
  return [
    ['Run', d.id],
    ['Started', dateTime(d.created_at)],
    ['Model', d.model_name ?? '–'],
    ['Weights', d.dtype ?? '–'],
    ...devicesOf(d).map((x): FactRow => ['Device', `${x.name}, ${measuredBy(x)}`]),
    ['Depth', d.profiling_depth],
    ['Threads', d.threads ? String(d.threads) : '–'],
    ['Instruction set', d.isa ?? '–'],
    ['Power sources', d.power_sources ?? 'none'],
    ['Method', d.method ?? '–'],
    ...(d.experiment_name ? ([['Experiment', d.experiment_name]] as FactRow[]) : []),
    ...Object.entries(d.settings ?? {}).flatMap(([k, v]) => fact(k, v)),
  ];
}
