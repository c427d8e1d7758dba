// The choice of runs, while fewer than two are selected: offers the newest ones; all others are in History.
import { api } from '../../api/client';
import type { RunSummary } from '../../api/types';
import { clip, dateTime } from '../../core/format';
import { primaryToken } from '../../core/run_energy';
import { SourceBadge } from '../../parts/badge';
import { titleOf } from '../../state/names';
import { useResource } from '../../state/resource';
import { at, follow, href, select } from '../../state/selection';
import { unit } from '../../state/settings';
import { Letter } from './letters';

const OFFERED = 8;

export function ChooseRuns() {
  const ids = at.ids.value;
  const res = useResource('newest runs', async (s) => {
    const query = { status: 'completed', sort: 'date', order: 'desc', limit: OFFERED };
    return (await api.runs(query, s)).runs;
  });
  const runs = res.value.data ?? [];
  return (
    <section class="panel choose" aria-label="Choose runs" aria-busy={res.value.loading}>
      <p>
        {ids.length === 0
          ? 'Choose the baseline A, then a run to compare with it; or group all runs by one of their settings.'
          : 'A is chosen. Choose the run to compare with it.'}
      </p>
      {runs.length > 0 && (
        <ul>
          {runs.map((r) => (
            <li key={r.id}>
              <Choice run={r} chosen={ids.includes(r.id)} />
            </li>
          ))}
        </ul>
      )}
      <a class="btn" href={href({ view: 'history' })} onClick={(e) => follow(e, 'history')}>
        Choose among all runs
      </a>
    </section>
  );
}

function Choice({ run, chosen }: { run: RunSummary; chosen: boolean }) {
  const ids = at.ids.value;
  return (
    <button
      type="button"
      class="choice"
      aria-pressed={chosen}
      onClick={() => select({ ids: chosen ? ids.filter((i) => i !== run.id) : [...ids, run.id] })}
    >
      <span class="choice-prompt">
        {chosen && <Letter i={ids.indexOf(run.id)} />} {clip(titleOf(run), 80) || 'no prompt'}
      </span>
      <span class="muted">
        {[run.model_name, run.dtype, dateTime(run.created_at)].filter(Boolean).join(' · ')}
      </span>
      <span class="num">{primaryToken(run, unit.value)} per token</span>
      <SourceBadge source={run.energy_source} />
    </button>
  );
}
