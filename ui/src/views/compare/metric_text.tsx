// Names, values and differences of metrics as the tables of the view write them.
import {
  digits,
  energy,
  energyBetween,
  estimate,
  known,
  plain,
  power,
  powerScale,
  time,
  timeScale,
} from '../../core/format';
import type { Term } from '../../core/glossary';
import { Explain } from '../../parts/explain';
import { unit } from '../../state/settings';

/** Name of each metric, its glossary entry, and an explanation if the entry covers several metrics. */
const METRICS: Record<string, [name: string, of: Term, text?: string]> = {
  joules_per_token: ['Energy per token, mean', 'per_token'],
  joules_per_token_typical: ['Energy of the typical token', 'typical'],
  joules_per_token_net: [
    'Energy per token, net',
    'net',
    'Energy of the request less that of the idle machine, over the output tokens.',
  ],
  joules_per_output_token: [
    'Energy per output token (decode)',
    'per_token',
    'Energy of decode over the tokens that it made.',
  ],
  joules_per_input_token: [
    'Energy per input token (prefill)',
    'per_token',
    'Energy of prefill over the tokens of the prompt.',
  ],
  total_energy_mj: ['Energy', 'energy'],
  request_energy_mj: ['Energy of the request', 'request'],
  net_energy_mj: ['Energy, net of idle', 'net'],
  energy_per_million_parameters_mj: [
    'Energy per million parameters',
    'ratio',
    'Energy of the run over the parameters of the model.',
  ],
  energy_per_million_active_parameters_mj: [
    'Energy per million active parameters',
    'ratio',
    'Energy of the run over the parameters that a token uses: of a mixture of experts, those of the chosen ones.',
  ],
  total_duration_ms: ['Duration', 'duration'],
  prefill_duration_ms: [
    'Prefill time',
    'duration',
    'Reading the prompt, up to the first output token.',
  ],
  decode_duration_ms: ['Decode time', 'duration', 'The output tokens after the first.'],
  tokens_per_second: [
    'Tokens per second',
    'speed',
    'Output tokens after the first, over the time of decode.',
  ],
  prefill_tokens_per_second: [
    'Prefill tokens per second',
    'speed',
    'Prompt tokens over the time of prefill.',
  ],
  input_tokens: ['Input tokens', 'phase', 'Tokens of the prompt, which prefill reads.'],
  output_tokens: ['Output tokens', 'phase', 'Tokens that the run made.'],
  mean_power_mw: ['Mean power', 'power', 'Energy of the run over its duration.'],
  energy_delay_product: ['Energy-delay product', 'delay'],
  tokens_per_joule: ['Tokens per joule', 'ratio', 'Output tokens over the energy of the request.'],
  token_energy_mj: [
    'Energy of a decode token',
    'per_token',
    'All decode tokens of one run against all of the other.',
  ],
  token_duration_ms: [
    'Time of a decode token',
    'duration',
    'All decode tokens of one run against all of the other.',
  ],
  token_power_mw: [
    'Power of a decode token',
    'power',
    'All decode tokens of one run against all of the other.',
  ],
};

export const nameOf = (metric: string): string => {
  const known = METRICS[metric];
  if (known) return known[0];
  const words = metric.replace(/_(mj|ms|mw|usd|bytes)$/, '').replaceAll('_', ' ');
  return words[0].toUpperCase() + words.slice(1);
};

/** The name of a metric with an explanation on hover and focus; plain for metrics of newer servers. */
export function Metric({ of }: { of: string }) {
  const known = METRICS[of];
  if (!known) return <>{nameOf(of)}</>;
  const [title, term, text] = known;
  return <Explain of={text ? { title, text, term } : term}>{title}</Explain>;
}

/** Exceptions: units that the metric's name already contains, or that read better in another form. */
const UNIT: Record<string, string> = { '1/s': '', '1/J': '', 'J s': 'J·s' };

export function show(v: number | null, u: string): string {
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

/** A figure with its 95 % interval, with the digits that the interval supports. */
export function showBetween(v: number | null, lo: number | null, hi: number | null, u: string) {
  if (!known(v) || !known(lo) || !known(hi) || lo === hi) return show(v, u);
  if (u === 'J' || u === 'mJ') {
    const mj = u === 'J' ? 1000 : 1;
    return energyBetween(v * mj, lo * mj, hi * mj, unit.value);
  }
  const { factor, unit: name } =
    u === 'ms' ? timeScale(v) : u === 'mW' ? powerScale(v) : { factor: 1, unit: UNIT[u] ?? u };
  return `${estimate(v * factor, lo * factor, hi * factor)} ${name}`.trimEnd();
}

export const signed = (v: number, u: string): string =>
  `${v > 0 ? '+' : v < 0 ? '-' : ''}${show(Math.abs(v), u)}`;

/** Differences below a tenth of a percent are regarded as rounding. */
export const differs = (percentages: (number | null)[]): boolean =>
  percentages.some((p) => p === null || Math.abs(p) >= 0.1);

export function Percent({ p, better }: { p: number | null; better: 'lower' | 'higher' | null }) {
  if (!known(p)) return <span class="na">unavailable</span>;
  const good =
    better === null || Math.abs(p) < 0.1 ? '' : p < 0 === (better === 'lower') ? 'good' : 'poor';
  return (
    <span class={`delta ${good}`}>
      {p > 0 ? '+' : p < 0 ? '-' : ''}
      {digits(Math.abs(p))} %
      {good && <span class="sr-only">{good === 'good' ? ' (better)' : ' (worse)'}</span>}
    </span>
  );
}
