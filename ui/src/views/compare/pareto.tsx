// The compared runs among the newest others of the history, by energy and speed.
import { useMemo } from 'preact/hooks';
import { api } from '../../api/client';
import { REPORT } from '../../api/inlined';
import type { RunSummary } from '../../api/types';
import { colours } from '../../charts/theme';
import { ParetoPanel } from '../../parts/pareto';
import { useResource } from '../../state/resource';
import { dark } from '../../state/settings';
import { LETTERS, useColours } from './letters';

export function Pareto({ runs }: { runs: RunSummary[] }) {
  const series = useColours();
  const others = useResource(REPORT ? null : 'pareto context', (s) => api.runs({ limit: 200 }, s));
  const mine = new Map(runs.map((r, i) => [r.id, i]));
  const all = useMemo(
    // Compared runs come last, so that they are drawn on top.
    () => [...(others.value.data?.runs ?? []).filter((r) => !mine.has(r.id)), ...runs],
    [runs, others.value.data],
  );
  dark.value;
  const grey = colours().text3;
  return (
    <ParetoPanel
      runs={all}
      note={`The compared runs${REPORT ? '' : ' in colour, the latest others in grey'}; down and to the right is better. The line is the Pareto front.`}
      colourOf={(r) => (mine.has(r.id) ? series[mine.get(r.id)!] : grey)}
      labelOf={(r) => (mine.has(r.id) ? LETTERS[mine.get(r.id)!] : '')}
      strong={(r) => mine.has(r.id)}
    />
  );
}
