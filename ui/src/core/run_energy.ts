// Texts about the energies of a run: missing rails of a partial total, why a total is unavailable, and the
// figures per token. Figures per token are based on the request: the run without model loading and
// idle gaps.
import type { RunSummary, Summary } from '../api/types';
import {
  count,
  type EnergyUnit,
  energy,
  energyBetween,
  energyInterval,
  known,
  type Num,
  percent,
  time,
  UNAVAILABLE,
  Z95,
} from './format';

const RAIL_CLASS = /^(cpu|gpu|ane|dram)\d*$/;

/** "CPU and DRAM"; names that are not a rail class are left as the source spells them. */
const railNames = (rails: string[] | null): string =>
  (rails ?? []).map((r) => (RAIL_CLASS.test(r) ? r.toUpperCase() : r)).join(' and ');

/** A run of a program that reported no tokens. */
export const isProgram = (run: RunSummary): boolean => run.engine === 'exec' && !run.output_tokens;

/** Processor time of the profiler: a share of the run's, or by itself for a program that ran in a process of its
 * own, whose time is not the profiler's; null if unknown. */
export function profilingCost(run: Summary): string | null {
  const o = run.overhead;
  if (!known(o?.share) || !known(o.time_ms)) return null;
  return run.engine === 'exec'
    ? `${time(o.time_ms)} of processor time`
    : `${percent(o.share)} of the run`;
}

/** "partial: CPU only, GPU missing"; null for a total that is whole or unavailable. */
export function partialText(run: RunSummary): string | null {
  if (!run.total_is_partial || !known(run.total_energy_mj)) return null;
  const missing = railNames(run.partial_rails);
  if (!missing) return 'partial';
  return `partial: ${railNames(run.total_rails) || 'nothing'} only, ${missing} missing`;
}

/** Text in place of an unavailable energy, with the upper bound if there is one. */
export function absentEnergy(run: RunSummary, unit: EnergyUnit = 'auto'): string {
  if (run.unavailable_reason !== 'below_resolution') return UNAVAILABLE;
  const bound = known(run.energy_upper_mj) ? `, at most ${energy(run.energy_upper_mj, unit)}` : '';
  return `${UNAVAILABLE} (below the sensor's resolution${bound})`;
}

/** The gross energy of the whole run with its 95 % interval. */
export const runEnergy = (run: RunSummary, unit: EnergyUnit = 'auto'): string =>
  known(run.total_energy_mj)
    ? energyInterval(run.total_energy_mj, run.total_energy_sd_mj, unit)
    : absentEnergy(run, unit);

const millijoules = (joules: Num): Num => (known(joules) ? joules * 1000 : null);

/** The mean over the output tokens, with its 95 % interval. */
export const energyPerToken = (run: RunSummary, unit: EnergyUnit = 'auto'): string =>
  energyInterval(millijoules(run.joules_per_token), millijoules(run.joules_per_token_sd), unit);

export function energyPerTokenHelp(run: RunSummary, unit: EnergyUnit = 'auto'): string {
  const sd = millijoules(run.joules_per_token_sd);
  const width = known(sd)
    ? ` The interval holds 95 %: 1.96 standard deviations of ${energy(sd, unit)} each way.`
    : '';
  return `Mean: gross energy of the request over its output tokens. The request is the run without loading the model and idle gaps between its phases.${width}`;
}

/** The median of the undisturbed decode tokens, with the server's interval of sensor and scatter. */
export const typicalToken = (run: RunSummary, unit: EnergyUnit = 'auto'): string =>
  energyBetween(
    millijoules(run.joules_per_token_typical),
    millijoules(run.joules_per_token_typical_lo),
    millijoules(run.joules_per_token_typical_hi),
    unit,
  );

/** Joules per token by which runs are listed and compared: of the typical token or, without decode tokens, the
 * mean. */
export const primaryJoules = (run: RunSummary): number | null =>
  run.joules_per_token_typical ?? run.joules_per_token;

const hasTypical = (run: RunSummary): boolean => known(run.joules_per_token_typical);

export const primaryToken = (run: RunSummary, unit: EnergyUnit = 'auto'): string =>
  hasTypical(run) || !known(run.joules_per_token)
    ? typicalToken(run, unit)
    : `${energyPerToken(run, unit)} on average`;

const apart = (random: Num, bias: Num): Num =>
  known(random) && known(bias) ? Math.hypot(random, bias) : null;

/** The same for a list: without the error of the sensor's calibration, which the rows share (`sharedGain`). */
export const listedToken = (run: RunSummary, unit: EnergyUnit = 'auto'): string =>
  hasTypical(run)
    ? energyInterval(
        millijoules(run.joules_per_token_typical),
        apart(run.typical_token_energy_sd_random_mj, run.typical_token_energy_sd_bias_mj),
        unit,
      )
    : primaryToken(run, unit);

export const listedEnergy = (run: RunSummary, unit: EnergyUnit = 'auto'): string =>
  known(run.total_energy_mj)
    ? energyInterval(
        run.total_energy_mj,
        apart(run.total_energy_sd_random_mj, run.total_energy_sd_bias_mj),
        unit,
      )
    : absentEnergy(run, unit);

/** What the energies of listed runs share: half of the 95 % interval of their sensor's calibration, the widest;
 * null if it is below a thousandth. */
export function sharedGain(runs: RunSummary[]): number | null {
  const most = Math.max(
    0,
    ...runs.map((r) =>
      known(r.total_energy_sd_gain_mj) && known(r.total_energy_mj) && r.total_energy_mj > 0
        ? (Z95 * r.total_energy_sd_gain_mj) / r.total_energy_mj
        : 0,
    ),
  );
  return most >= 0.001 ? most : null;
}

/** Half of the 95 % interval of `primaryJoules`. */
export function primaryHalf(run: RunSummary): number | null {
  const sd = hasTypical(run) ? run.joules_per_token_typical_sd : run.joules_per_token_sd;
  return known(sd) ? Z95 * sd : null;
}

export const primaryHelp = (run: RunSummary, unit: EnergyUnit = 'auto'): string =>
  hasTypical(run)
    ? `${FIGURE_HELP.typical} With the sensor's calibration: ${typicalToken(run, unit)}. The mean is ${energyPerToken(run, unit)}.`
    : energyPerTokenHelp(run, unit);

/** The API has null both for a run that loaded no model and for one without energy. */
export function modelLoad(run: RunSummary, unit: EnergyUnit = 'auto'): string {
  const loaded = known(run.model_load_energy_mj);
  return !loaded && known(run.request_energy_mj)
    ? 'none'
    : energyInterval(run.model_load_energy_mj, run.model_load_energy_sd_mj, unit);
}

/** Disturbances' share of the request's energy, or null if there are none. */
export const disturbed = (run: RunSummary): string | null =>
  known(run.disturbed_share) && run.disturbed_share > 0 ? percent(run.disturbed_share) : null;

/** Share of the request's energy in tokens between reasoning marks; null: no mark was seen, or no energy. */
export const thinkingShare = (run: RunSummary): number | null =>
  known(run.thinking_energy_mj) && known(run.request_energy_mj) && run.request_energy_mj > 0
    ? run.thinking_energy_mj / run.request_energy_mj
    : null;

/** "40 of 60 tokens"; null for a run in which no reasoning mark was seen. */
export const thinkingTokens = (run: RunSummary): string | null =>
  known(run.thinking_tokens)
    ? `${count(run.thinking_tokens)} of ${count(run.output_tokens)} tokens`
    : null;

/** All that is known of the reasoning of a run, in one line; null: no mark was seen. */
export function thinkingLine(run: RunSummary, unit: EnergyUnit = 'auto'): string | null {
  const tokens = thinkingTokens(run);
  if (tokens === null) return null;
  const share = thinkingShare(run);
  const mj = known(run.thinking_energy_mj)
    ? energyInterval(run.thinking_energy_mj, run.thinking_energy_sd_mj, unit)
    : UNAVAILABLE;
  return [
    `${mj} in ${tokens}`,
    time(run.thinking_duration_ms),
    share === null ? '' : `${percent(share)} of the request`,
  ]
    .filter(Boolean)
    .join(', ');
}

export function disturbedHelp(run: RunSummary): string {
  const n = run.disturbed_tokens;
  const which = known(n) ? `${count(n)} ${n === 1 ? 'token' : 'tokens'}` : 'tokens';
  return `Share of the request's energy beyond what is expected, in ${which} that took more than 3x of that and in gaps: the machine was busy with something else, throttled or waiting. It counts in the mean, and hardly moves the typical token.`;
}

export const FIGURE_HELP = {
  energy: 'Gross energy of the whole run, from its start to its end, with its 95 % interval.',
  partial: 'The total lacks rails that count: the machine used more than is shown.',
  typical:
    'Median energy of the undisturbed decode tokens. Its interval holds the errors of the sensor and the scatter of the tokens.',
  load: 'Energy of loading the model. It is in the energy of the run, and not in the figures per token; none where the model was already loaded.',
  request: 'Gross energy of the run without loading the model and idle gaps between its phases.',
} as const;
