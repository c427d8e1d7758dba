// Made by tools/statistics.py from src/trace/statistics.h: change it there.

/** Statistics of outputs that charts show, in the table's order. */
export const STATISTICS = [
  { name: 'activation_mean', label: 'mean |x|', unit: '' },
  { name: 'activation_std', label: 'standard deviation', unit: '' },
  { name: 'activation_max', label: 'max |x|', unit: '' },
  { name: 'activation_sparsity', label: 'sparsity', unit: 'share' },
] as const;

export type Statistic = (typeof STATISTICS)[number];
export type StatisticName = Statistic['name'];

export const STATISTIC_NAMES: readonly StatisticName[] = STATISTICS.map((s) => s.name);
