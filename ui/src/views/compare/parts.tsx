// Time and energy of the runs' phases or components, side by side.
import type { Compare } from '../../api/types';
import { Panel } from '../../charts/panel';
import { energy, known, time } from '../../core/format';
import { PartialBadge } from '../../parts/badge';
import { type Explanation, termed } from '../../parts/explain';
import { selection } from '../../state/selection';
import { unit } from '../../state/settings';
import { LETTERS, Letter } from './letters';
import { Percent } from './metric_text';

const PARTS_SHOWN = 8;

const HELP: Record<string, Explanation> = {
  Phases: termed('phase'),
  Components: {
    title: 'Components',
    text: 'Modules of the model, summed over all layers and tokens, by what attribution gives them.',
    unit: 'mJ, J, kJ or Wh',
    term: 'attribution',
  },
};

interface PartRow {
  name: string;
  time: (number | null)[];
  energy: (number | null)[];
}

export function PartsPanel({ title, rows, d }: { title: string; rows: PartRow[]; d: Compare }) {
  const only = selection.value.diff;
  const change = (list: (number | null)[], i: number): number | null =>
    known(list[0]) && known(list[i]) && list[0] !== 0
      ? 100 * ((list[i] as number) / list[0] - 1)
      : null;
  const shown = rows.filter(
    (r) =>
      !only ||
      d.runs.some(
        (_, i) => i > 0 && [r.time, r.energy].some((l) => Math.abs(change(l, i) ?? 0) >= 0.1),
      ),
  );
  return (
    <Panel
      class="span-6"
      title={title}
      of={HELP[title]}
      note="Energy and time of each run; change against A."
      state={
        shown.length
          ? { kind: 'ready' }
          : {
              kind: 'empty',
              text: `There are no ${only ? 'differing ' : ''}${title.toLowerCase()} in these runs.`,
            }
      }
      table={() => ({
        columns: [
          'name',
          ...d.runs.flatMap((_, i) => [`${LETTERS[i]} energy_mj`, `${LETTERS[i]} time_ms`]),
        ],
        rows: shown.map((r) => [
          r.name,
          ...d.runs.flatMap((_, i) => [r.energy[i] ?? null, r.time[i] ?? null]),
        ]),
      })}
    >
      <div class="scroll-x">
        <table class="ops compare-table">
          <thead>
            <tr>
              <th scope="col">{title === 'Phases' ? 'Phase' : 'Component'}</th>
              {d.runs.map((r, i) => (
                <th scope="col" class="num" key={r.id}>
                  <Letter i={i} /> <PartialBadge run={r} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.slice(0, PARTS_SHOWN).map((r) => (
              <tr key={r.name}>
                <th scope="row">{r.name}</th>
                {d.runs.map((run, i) => (
                  <td class="num" key={run.id}>
                    <span class={known(r.energy[i]) ? '' : 'na hatched'}>
                      {energy(r.energy[i], unit.value)}
                    </span>{' '}
                    {i > 0 && known(change(r.energy, i)) && (
                      <Percent p={change(r.energy, i)} better="lower" />
                    )}
                    <br />
                    <span class="note">{time(r.time[i])}</span>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {shown.length > PARTS_SHOWN && (
        <p class="note">{shown.length - PARTS_SHOWN} more in the table.</p>
      )}
    </Panel>
  );
}
