// Texts about the energies of a run: missing rails of a partial total, why a total is unavailable, and the
// figures per token. Figures per token are based on the request: the run without model loading and
// idle gaps.
import type { RunSummary, Summary } from '../api/types';
import {
  count,
  type EnergyUnit,
  energy,
  energyInterval,
  known,
  type Num,
  percent,
  time,
  UNAVAILABLE,
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

export const typicalToken = (run: RunSummary, unit: EnergyUnit = 'auto'): string =>
  energy(millijoules(run.joules_per_token_typical), unit);

/** The API has null both for a run that loaded no model and for one without energy. */
export function modelLoad(run: RunSummary, unit: EnergyUnit = 'auto'): string {
  const loaded = known(run.model_load_energy_mj);
  return !loaded && known(run.request_energy_mj) ? 'none' : energy(run.model_load_energy_mj, unit);
}

/** Disturbances' share of the request's energy, or null if there are none. */
export const disturbed = (run: RunSummary): string | null =>
  known(run.disturbed_share) && run.disturbed_share > 0 ? percent(run.disturbed_share) : null;

export function disturbedHelp(run: RunSummary): string {
  const n = run.disturbed_tokens;
  const which = known(n) ? `${count(n)} ${n === 1 ? 'token' : 'tokens'}` : 'tokens';
  return `Share of the request's energy beyond what is expected, in ${which} that took more than 3x of that and in gaps: the machine was busy with something else, throttled or waiting. It counts in the mean, and hardly moves the typical token.`;
}

export const FIGURE_HELP = {
  energy: 'Gross energy of the whole run, from its start to its end, with its 95 % interval.',
  partial: 'The total lacks rails that count: the machine used more than is shown.',
  typical: 'Median energy of the decode tokens; disturbed tokens hardly move it.',
  load: 'Energy of loading the model. It is in the energy of the run, and not in the figures per token; none where the model was already loaded.',
  request: 'Gross energy of the run without loading the model and idle gaps between its phases.',
} as const;
