// What a run is called: the name that was given to it, else its prompt. A name given on this page is shown
// everywhere at once, also by views that loaded the run before.
import { signal } from '@preact/signals';
import { api } from '../api/client';
import type { RunSummary } from '../api/types';
import { promptOf } from '../core/format';

type Given = Pick<RunSummary, 'name' | 'note'>;

const given = signal<ReadonlyMap<string, Given>>(new Map());

/** The name and the note of a run, as last given. */
export const described = (run: RunSummary): Given => given.value.get(run.id) ?? run;

export async function describe(run: RunSummary, change: { name: string; note: string }) {
  const now = await api.describe(run.id, change);
  given.value = new Map(given.value).set(run.id, now);
}

/** One line that tells the run from others. */
export function titleOf(run: RunSummary): string {
  const { name } = described(run);
  if (name) return name;
  const prompt = promptOf(run);
  const ids = /^\d+ token ids( in \d+ prompts)?(?=: )/.exec(prompt)?.[0];
  if (!ids) return prompt;
  // The numbers of tokens tell nobody anything; those of an experiment are all alike.
  return run.experiment_name ? cellOf(run, run.experiment_name) : ids;
}

/** What stands nowhere else in a row comes first, because the end may be cut; the model always stands beside it. */
function cellOf(run: RunSummary, experiment: string): string {
  const cell = [
    `batch ${run.batch_size ?? 1}`,
    run.dtype,
    `${run.input_tokens ?? '–'} → ${run.output_tokens ?? '–'} tokens`,
  ];
  return `${experiment}: ${cell.filter(Boolean).join(', ')}`;
}
