// The grid of an experiment: which settings vary, and a cell's position along one of them. Pure functions.
import type { Experiment, ExperimentCell, Plan } from '../../api/types';
import { known, threadCount } from '../../core/format';
import { isWide } from '../../core/stats';

export const FACTORS = ['model', 'dtype', 'batch', 'input', 'output', 'threads'] as const;
export type Factor = (typeof FACTORS)[number];

export const FACTOR_LABEL: Record<Factor, string> = {
  model: 'Model',
  dtype: 'Weights',
  batch: 'Batch size',
  input: 'Prompt tokens',
  output: 'New tokens',
  threads: 'Threads',
};

const lastName = (text: string): string => text.split('/').filter(Boolean).pop() ?? text;

/** Text of a level of a factor. */
export function levelName(factor: Factor, value: string | number | null): string {
  if (factor === 'model') return value === null ? 'demo' : lastName(String(value));
  if (factor === 'dtype') return value === null ? 'as stored' : String(value);
  if (factor === 'threads' && value === 0) return 'all';
  return String(value);
}

/** The levels of a factor in the order of the plan. */
export function levels(cells: ExperimentCell[], factor: Factor): (string | number | null)[] {
  return [...new Set(cells.map((c) => c[factor]))];
}

export const varying = (cells: ExperimentCell[]): Factor[] =>
  FACTORS.filter((f) => levels(cells, f).length > 1);

/** Axis positions of the levels: numbers on a log2 scale, names evenly spaced. */
export interface Positions {
  log: boolean;
  at: (cell: ExperimentCell) => number;
  ticks: number[];
  name: (position: number) => string;
}

export function positions(cells: ExperimentCell[], factor: Factor): Positions {
  const all = levels(cells, factor);
  const numeric = all.every((v) => typeof v === 'number' && v > 0);
  if (numeric) {
    const ticks = (all as number[]).slice().sort((a, b) => a - b);
    return {
      log: ticks[ticks.length - 1] >= 4 * ticks[0],
      at: (c) => c[factor] as number,
      ticks,
      name: String,
    };
  }
  return {
    log: false,
    at: (c) => all.indexOf(c[factor]),
    ticks: all.map((_, i) => i),
    name: (i) => (all[i] === undefined ? '' : levelName(factor, all[i])),
  };
}

/** Cells that differ only in `factor`, in the order of its levels: one line of a chart. */
export function lines(cells: ExperimentCell[], factor: Factor): ExperimentCell[][] {
  const groups = new Map<string, ExperimentCell[]>();
  for (const c of cells) {
    const key = FACTORS.filter((f) => f !== factor)
      .map((f) => c[f])
      .join('\n');
    groups.set(key, [...(groups.get(key) ?? []), c]);
  }
  const { at } = positions(cells, factor);
  return [...groups.values()].map((g) => g.sort((a, b) => at(a) - at(b)));
}

/** The settings of a line except its factor: "q8_0, 64 new tokens". */
export function lineName(cells: ExperimentCell[], line: ExperimentCell, along: Factor): string {
  return varying(cells)
    .filter((f) => f !== along)
    .map((f) => nameIn(line, f))
    .join(', ');
}

const WITH_UNIT: Partial<Record<Factor, (v: string) => string>> = {
  batch: (v) => `batch ${v}`,
  input: (v) => `${v} prompt tokens`,
  output: (v) => `${v} new tokens`,
  threads: threadCount,
};
const nameIn = (c: ExperimentCell, f: Factor): string => {
  const v = levelName(f, c[f]);
  return WITH_UNIT[f]?.(v) ?? v;
};

/** "3 weights × 4 batch sizes, 5 repeats". */
export function planText(plan: Plan): string {
  const of: [keyof Plan, string][] = [
    ['models', 'models'],
    ['dtypes', 'types of weights'],
    ['batches', 'batch sizes'],
    ['inputs', 'prompt lengths'],
    ['outputs', 'output lengths'],
    ['threads', 'thread counts'],
  ];
  const grid = of.flatMap(([k, label]) => {
    const n = (plan[k] as unknown[] | undefined)?.length ?? 1;
    return n > 1 ? [`${n} ${label}`] : [];
  });
  const least = plan.precision ? `up to ${plan.repeat}` : String(plan.repeat);
  return `${grid.join(' × ') || 'one cell'}, ${least} ${plan.repeat === 1 ? 'run' : 'runs'} each`;
}

/** Whether the typical token decides: as the server says, which needs it of all runs. */
export const isTypical = (d: Experiment): boolean => d.metric === 'joules_per_token_typical';

/** Joules per token of a cell by the figure that decides. */
export const joulesOf = (d: Experiment, c: ExperimentCell): number | null =>
  isTypical(d) ? c.joules_per_token_typical : c.joules_per_token;

/** Its 95 % interval; null with fewer than two runs. */
export function boundsOf(d: Experiment, c: ExperimentCell): [number, number] | null {
  const lo = isTypical(d) ? c.joules_per_token_typical_lo : c.joules_per_token_lo;
  const hi = isTypical(d) ? c.joules_per_token_typical_hi : c.joules_per_token_hi;
  return known(lo) && known(hi) ? [lo, hi] : null;
}

/** Half the width of that interval. */
export function halfWidth(d: Experiment, c: ExperimentCell): number | null {
  const ends = boundsOf(d, c);
  return ends ? (ends[1] - ends[0]) / 2 : null;
}

export const isWideIn = (cells: ExperimentCell[], of: (c: ExperimentCell) => number | null) =>
  isWide(cells.flatMap((c) => of(c) ?? []));

/** The comparison of a cell with the first one. */
export const against = (d: Experiment, cell: number) =>
  d.comparisons.find((x) => x.b === cell) ?? null;

export const isActive = (d: Experiment): boolean => d.state === 'running' || d.state === 'queued';
