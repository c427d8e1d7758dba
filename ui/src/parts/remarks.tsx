// Remarks about a run in one notice.
import type { RunSummary, Warning } from '../api/types';
import { capital } from '../core/format';
import { Notice, Sentence } from './notice';

/** What became of the run, then caveats about its figures. */
export function remarksOf(s: RunSummary & { warnings: Warning[] }): string[] {
  const out = s.warnings
    .filter((w) => w.code !== 'run_failed') // its text is `failure`
    .map((w) => capital(w.text));
  if (
    s.energy_source === 'unavailable' &&
    s.unavailable_reason !== 'below_resolution' &&
    !out.length
  )
    out.push(
      'Energy is unavailable in this run: no power source was read. Timing and statistics are complete. `perjoule sensors` shows what this machine has and how to allow it.',
    );
  if (s.status !== 'completed' && s.status !== 'running')
    out.unshift(
      `This run ${s.status === 'failed' ? 'failed' : `was ${s.status}`}${s.failure ? `: ${s.failure}` : ''}. What had been recorded up to then is shown.`,
    );
  return [...new Set(out)];
}

/** A sensor with troubles gives many remarks; they must not push the verdict off the screen. */
const SHOWN = 2;

export function Remarks({ s }: { s: RunSummary & { warnings: Warning[] } }) {
  const all = remarksOf(s);
  const first = all.length > SHOWN + 1 ? all.slice(0, SHOWN) : all;
  const more = all.slice(first.length);
  if (!all.length) return null;
  return (
    <Notice>
      <ul class="remarks">
        {first.map((text) => (
          <li key={text}>
            <Sentence text={text} />
          </li>
        ))}
      </ul>
      {more.length > 0 && (
        <details class="remarks">
          <summary>{more.length} more remarks about this run</summary>
          <ul>
            {more.map((text) => (
              <li key={text}>
                <Sentence text={text} />
              </li>
            ))}
          </ul>
        </details>
      )}
    </Notice>
  );
}
