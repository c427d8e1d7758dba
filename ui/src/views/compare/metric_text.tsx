// Names, values and differences of metrics as the tables of the view write them.
import { digits, energy, known, plain, power, time } from '../../core/format';
import { unit } from '../../state/settings';

const NAMES: Record<string, string> = {
  joules_per_token: 'Energy per token',
  joules_per_token_typical: 'Energy of the typical token',
  joules_per_token_net: 'Energy per token, net',
  joules_per_output_token: 'Energy per output token (decode)',
  joules_per_input_token: 'Energy per input token (prefill)',
  total_energy_mj: 'Energy',
  request_energy_mj: 'Energy of the request',
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

export const nameOf = (metric: string): string => {
  const known = NAMES[metric];
  if (known) return known;
  const words = metric.replace(/_(mj|ms|mw|usd|bytes)$/, '').replaceAll('_', ' ');
  return words[0].toUpperCase() + words.slice(1);
};

/** Units that the metric's own name says, or that read better otherwise. */
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

export const signed = (v: number, u: string): string =>
  `${v > 0 ? '+' : v < 0 ? '−' : ''}${show(Math.abs(v), u)}`;

/** A difference counts from a tenth of a percent on; below it is rounding. */
export const differs = (percentages: (number | null)[]): boolean =>
  percentages.some((p) => p === null || Math.abs(p) >= 0.1);

export function Percent({ p, better }: { p: number | null; better: 'lower' | 'higher' | null }) {
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
