// From an advice to its proof: the experiment that its command describes, and what the result says about the
// advice. Pure functions.
import type { Advice, Experiment, ExperimentCell, Plan, Summary } from '../../api/types';
import { known, percent } from '../../core/format';
import { type Factor, joulesOf, varying } from '../experiments/grid';

type Finding = Advice['findings'][number];

const LISTS: Record<string, 'batches' | 'inputs' | 'outputs' | 'threads'> = {
  '--batches': 'batches',
  '--inputs': 'inputs',
  '--outputs': 'outputs',
  '--threads': 'threads',
};

/** One name for the test of an advice on a run, so that its result is found again. */
export const testName = (rule: string, run: string): string => `test-${rule}-${run.slice(0, 13)}`;

/** The rule that a test of the run is of; null: it is no test, or of another run. */
export function ruleTested(name: string, run: string): string | null {
  const m = /^test-(.+)-[0-9a-f]{8}-[0-9a-f]{4}$/.exec(name);
  return m && name === testName(m[1], run) ? m[1] : null;
}

/** The plan of a command `perjoule experiment …`; null for any other command, which needs a terminal. */
export function planOfCommand(command: string | null, name: string): Plan | null {
  const words = (command ?? '').trim().split(/\s+/);
  if (words[0] !== 'perjoule' || words[1] !== 'experiment' || words.length % 2) return null;
  const plan: Plan = { name };
  for (let i = 2; i < words.length; i += 2) {
    const [option, value] = [words[i], words[i + 1]];
    const list = LISTS[option];
    if (list) plan[list] = value.split(',').map(Number);
    else if (option === '--models') plan.models = [value];
    else if (option === '--dtypes') plan.dtypes = value.split(',');
    else if (option === '--repeat') plan.repeat = Number(value);
    else return null;
  }
  const numbers = [plan.batches, plan.inputs, plan.outputs, plan.threads].flatMap((l) => l ?? []);
  return numbers.every((n) => Number.isInteger(n) && n > 0) ? plan : null;
}

/** Whether a cell has the run's own setting of a factor. */
function isOwn(c: ExperimentCell, f: Factor, s: Summary): boolean {
  if (f === 'dtype') return c.dtype === s.dtype;
  if (f === 'batch') return c.batch === (s.batch_size ?? 1);
  return f === 'threads' && c.threads === s.threads;
}

interface Ratio {
  ratio: number;
  lo: number;
  hi: number;
  different: boolean;
}

/** Joules per token of one cell over those of another, in whichever direction they were compared. */
function ratioOf(d: Experiment, of: number, to: number): Ratio | null {
  for (const x of d.comparisons) {
    if (!known(x.ratio) || !known(x.ratio_lo) || !known(x.ratio_hi)) continue;
    const { different } = x;
    if (x.a === to && x.b === of)
      return { ratio: x.ratio, lo: x.ratio_lo, hi: x.ratio_hi, different };
    if (x.a === of && x.b === to)
      return { ratio: 1 / x.ratio, lo: 1 / x.ratio_hi, hi: 1 / x.ratio_lo, different };
  }
  return null;
}

export interface Proof {
  outcome: 'running' | 'confirmed' | 'refuted' | 'open' | 'failed';
  text: string;
}

const share = (v: number): string => percent(Math.abs(v));

/** What the experiment says about the advice. */
export function proofOf(d: Experiment, finding: Finding | null, s: Summary): Proof {
  if (d.state === 'running' || d.state === 'queued')
    return { outcome: 'running', text: `${d.done} of ${d.total} runs` };
  if (d.state === 'failed')
    return { outcome: 'failed', text: `the test failed: ${d.error ?? 'no reason is known'}` };
  const factor = varying(d.cells)[0];
  const own = factor && d.cells.find((c) => isOwn(c, factor, s));
  const others = d.cells.filter((c) => c !== own && known(joulesOf(d, c)));
  if (!own || !others.length || d.refusal)
    return { outcome: 'open', text: d.refusal ?? 'the test has no result yet' };
  const best = others.reduce((a, c) =>
    (joulesOf(d, c) ?? Number.POSITIVE_INFINITY) < (joulesOf(d, a) ?? Number.POSITIVE_INFINITY)
      ? c
      : a,
  );
  const r = ratioOf(d, best.cell, own.cell);
  if (!r) return { outcome: 'open', text: 'too few runs to compare' };
  const [least, most] = [1 - r.hi, 1 - r.lo];
  const range = `${percent(least)} to ${percent(most)}`;
  if (r.different && r.ratio < 1)
    return {
      outcome: 'confirmed',
      text: `confirmed: ${best.name} saves ${share(1 - r.ratio)} (${range})`,
    };
  if (r.different)
    return { outcome: 'refuted', text: `refuted: ${best.name} takes ${share(r.ratio - 1)} more` };
  const promised = finding?.saving?.share_lo;
  if (known(promised) && most < promised)
    return { outcome: 'refuted', text: `refuted: saves ${share(most)} at most, if anything` };
  return { outcome: 'open', text: `not settled: between ${range} saved; more runs would tell` };
}
