// One card per compared run: its settings and the actions on it.
import { REPORT } from '../../api/inlined';
import type { RunSummary } from '../../api/types';
import { clip, dateTime, shortId } from '../../core/format';
import { PartialBadge, SourceBadge, StatusBadge } from '../../parts/badge';
import { Icon } from '../../parts/icon';
import { titleOf } from '../../state/names';
import { at, follow, href, select } from '../../state/selection';
import { LETTERS, Letter } from './letters';

export function Cards({ runs }: { runs: RunSummary[] }) {
  const ids = at.ids.value;
  return (
    <ul class="cards">
      {runs.map((r, i) => (
        <li key={r.id} class="panel">
          <div class="row">
            <Letter i={i} />
            <strong>
              {r.model_name} {r.dtype}
            </strong>
            <span class="spacer" />
            {i === 0 && <span class="badge">baseline</span>}
            {i > 0 && !REPORT && (
              <button
                type="button"
                class="tool"
                onClick={() =>
                  select({ ids: [r.id, ...runs.filter((x) => x.id !== r.id).map((x) => x.id)] })
                }
              >
                Make baseline
              </button>
            )}
            {!REPORT && (
              <button
                type="button"
                class="tool"
                aria-label={`Remove ${LETTERS[i]} from the comparison`}
                onClick={() => select({ ids: ids.filter((_, k) => k !== i) })}
              >
                <Icon name="close" />
              </button>
            )}
          </div>
          {REPORT ? (
            <span>{clip(titleOf(r) || shortId(r.id), 70)}</span>
          ) : (
            <a
              href={href({ view: 'analysis', run: r.id })}
              onClick={(e) => follow(e, 'analysis', { run: r.id })}
            >
              {clip(titleOf(r) || shortId(r.id), 70)}
            </a>
          )}
          <div class="row">
            <SourceBadge source={r.energy_source} />
            <PartialBadge run={r} />
            {r.status !== 'completed' && <StatusBadge status={r.status} />}
            <span class="note">{dateTime(r.created_at)}</span>
          </div>
        </li>
      ))}
    </ul>
  );
}
