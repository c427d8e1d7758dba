// Why one run needs more energy per token than another: the causes that the parts of both show, largest first.
import { api } from '../../api/client';
import { holds } from '../../api/inlined';
import type { Why } from '../../api/types';
import { Panel } from '../../charts/panel';
import { partColour, partOf } from '../../charts/parts';
import { phaseLabel } from '../../charts/theme';
import { capital, energy, known, percent } from '../../core/format';
import { Sentence } from '../../parts/notice';
import { stateOf, useResource } from '../../state/resource';
import { without } from '../../state/selection';
import { dark, unit } from '../../state/settings';
import { Bar } from '../analysis/heatmap';
import { signed } from './metric_text';

const PATH = 'api/profiling/compare/why';

/** From this share of the first side's energy on, a difference in disturbances is worth a sentence. */
const WORTH = 0.01;

export function WhyPanel({ a, b }: { a: string; b: string }) {
  const q = without.value;
  const res = useResource(
    holds(PATH, { a, b, ...q }) ? `why ${a} ${b} ${q.disturbances ?? ''}` : null,
    (s) => api.why(a, b, s, q),
  );
  dark.value;
  const w = res.value.data;
  // Runs without energies or parts have no causes; the verdict says so.
  if (!w && !res.value.loading) return null;
  const findings = w?.findings ?? [];
  const most = Math.max(1e-12, ...findings.map((f) => Math.abs(f.mj ?? 0)));
  return (
    <Panel
      title="Why B differs from A"
      note={w ? summaryOf(w) : ''}
      state={stateOf(res, nothingOf)}
      table={() => ({
        columns: ['kind', 'phase', 'part', 'part_b', 'mj', 'mj_lo', 'mj_hi', 'share', 'text'],
        rows: findings.map((f) => [
          f.kind,
          f.phase,
          f.part,
          f.part_b,
          f.mj,
          f.mj_lo,
          f.mj_hi,
          f.share,
          f.text,
        ]),
      })}
    >
      <table class="ops why reflow">
        <thead>
          <tr>
            <th scope="col">Part</th>
            <th scope="col">Cause</th>
            <th scope="col" class="num">
              {capital(per(w))}
            </th>
            <th scope="col" class="num">
              Of A
            </th>
          </tr>
        </thead>
        <tbody>
          {findings.map((f) => (
            <tr key={`${f.kind} ${f.phase} ${f.part}`}>
              <th scope="row">
                {f.part ? `${phaseBefore(w, f.phase)}${f.part}` : 'All parts'}
                {f.part_b && f.part_b !== f.part && <span class="muted"> (in B {f.part_b})</span>}
                <Bar
                  share={Math.abs(f.mj ?? 0) / most}
                  colour={partColour(f.part ? partOf(f.part) : 'other')}
                />
              </th>
              <td data-label="Cause">
                <Sentence text={capital(f.text)} />
              </td>
              <td class="num" data-label={capital(per(w))}>
                {known(f.mj) ? signed(f.mj, 'mJ') : 'unavailable'}
                {known(f.mj_lo) && known(f.mj_hi) && (
                  <>
                    <br />
                    <span class="note">
                      {energy(f.mj_lo, unit.value)} to {energy(f.mj_hi, unit.value)}
                    </span>
                  </>
                )}
              </td>
              <td class="num" data-label="Of A">
                {percent(f.share)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {w?.unlike && (
        <p class="note">
          The models differ ({w.unlike}): their parts do other work, so that each phase is compared
          as a whole.
        </p>
      )}
      {w?.unplaced && <p class="note">{capital(w.unplaced)}.</p>}
      {w && disturbances(w) && <p class="note">{disturbances(w)}</p>}
    </Panel>
  );
}

/** Runs without output tokens, such as imported traces, are compared as they are. */
const per = (w: Why | undefined | null) => (w?.unit === 'mJ/run' ? 'per run' : 'per token');

/** A trace without tokens has no phases. */
const phaseBefore = (w: Why | undefined | null, phase: string | null) =>
  !phase || (w?.unit === 'mJ/run' && phase === 'pre_inference') ? '' : `${phaseLabel(phase)}: `;

const nothingOf = (w: Why): string | null => {
  if (w.refusal) return capital(`${w.refusal}.`);
  if (w.findings.length) return null;
  const nothing =
    'No cause is named: no part differs by 1 % of the energy of A and beyond its interval.';
  const unplaced = w.unplaced ? capital(`${w.unplaced}.`) : null;
  return [nothing, unplaced, disturbances(w)].filter(Boolean).join(' ');
};

function summaryOf(w: Why): string {
  if (!known(w.difference_mj) || !known(w.mj_per_token_a) || w.mj_per_token_a <= 0) return '';
  const whole = `${percent(w.difference_mj / w.mj_per_token_a)} ${w.unit === 'mJ/run' ? 'per run' : 'per output token'} from A to B`;
  return known(w.explained_mj) && !w.refusal && w.findings.length
    ? `${whole}, of which these causes explain ${percent(w.explained_mj / w.mj_per_token_a)}. Parts are without disturbances.`
    : `${whole}.`;
}

function disturbances(w: Why): string | null {
  const [a, b] = [w.disturbed_mj_a, w.disturbed_mj_b];
  if (!known(a) || !known(b) || Math.abs(b - a) <= WORTH * (w.mj_per_token_a ?? 0)) return null;
  return `Disturbances took ${energy(a, unit.value)} ${per(w)} of A and ${energy(b, unit.value)} of B; they are in no part.`;
}
