// The main figures of a run at the top of its analysis.
import type { Summary } from '../../api/types';
import { energy, known, plain, power, time } from '../../core/format';
import {
  disturbed,
  disturbedHelp,
  energyPerToken,
  energyPerTokenHelp,
  FIGURE_HELP,
  modelLoad,
  runEnergy,
  typicalToken,
} from '../../core/run_energy';
import { Figure } from '../../parts/badge';
import { unit } from '../../state/settings';

/** Shows every figure from the start, so that little moves when their values come. */
export function Headline({ s }: { s: Summary | null }) {
  const u = unit.value;
  const figure = (label: string, value: (s: Summary) => string, title?: string, sub?: string) => (
    <Figure label={label} value={s ? value(s) : '…'} title={title} sub={sub} />
  );
  const share = s && disturbed(s);
  return (
    <dl class="figures headline panel" aria-busy={!s}>
      {figure(
        'Energy',
        (x) => runEnergy(x, u),
        FIGURE_HELP.energy,
        s?.total_is_partial ? 'partial' : 'gross',
      )}
      {figure('Net of idle', (x) => energy(x.net_energy_mj, u))}
      {figure(
        'Per output token',
        (x) => energyPerToken(x, u),
        s ? energyPerTokenHelp(s, u) : undefined,
        'mean',
      )}
      {figure('Typical token', (x) => typicalToken(x, u), FIGURE_HELP.typical, 'median')}
      {figure('Model load', (x) => modelLoad(x, u), FIGURE_HELP.load)}
      {s && share && figure('Disturbed', () => share, disturbedHelp(s), 'of the request')}
      {figure('Mean power', (x) => power(x.mean_power_mw))}
      {figure('Duration', (x) => time(x.total_duration_ms))}
      {figure('Decode', (x) =>
        known(x.tokens_per_second) ? `${plain(x.tokens_per_second)} tok/s` : 'unavailable',
      )}
      {figure('Tokens', (x) => `${x.input_tokens ?? '–'} in, ${x.output_tokens ?? '–'} out`)}
    </dl>
  );
}
