// The table of metrics: each run's value, and its difference from the baseline.
import type { Compare } from '../../api/types';
import { Panel } from '../../charts/panel';
import { known } from '../../core/format';
import { absentEnergy } from '../../core/run_energy';
import { PartialBadge } from '../../parts/badge';
import { selection } from '../../state/selection';
import { unit } from '../../state/settings';
import { LETTERS, Letter } from './letters';
import { differs, Metric, Percent, show } from './metric_text';

export function MetricsPanel({ d }: { d: Compare }) {
  const only = selection.value.diff;
  const rows = d.metrics.filter((m) => !only || differs(m.difference_percent.slice(1)));
  return (
    <Panel
      class="span-6"
      title="Metrics"
      note="Each run, and its difference from the baseline A."
      state={
        rows.length
          ? { kind: 'ready' }
          : { kind: 'empty', text: 'These runs do not differ in any metric.' }
      }
      table={() => ({
        columns: [
          'metric',
          'unit',
          ...d.runs.flatMap((_, i) => [LETTERS[i], ...(i ? [`${LETTERS[i]} difference %`] : [])]),
        ],
        rows: rows.map((m) => [
          m.metric,
          m.unit,
          ...m.values.flatMap((v, i) => [v, ...(i ? [m.difference_percent[i]] : [])]),
        ]),
      })}
    >
      <div class="scroll-x">
        <table class="ops compare-table">
          <thead>
            <tr>
              <th scope="col">Metric</th>
              {d.runs.map((r, i) => (
                <th scope="col" class="num" key={r.id}>
                  <Letter i={i} /> <PartialBadge run={r} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((m) => (
              <tr key={m.metric}>
                <th scope="row">
                  <Metric of={m.metric} />
                </th>
                {m.values.map((v, i) => (
                  <td class={`num ${known(v) ? '' : 'na hatched'}`} key={d.runs[i].id}>
                    {m.metric === 'total_energy_mj' && !known(v)
                      ? absentEnergy(d.runs[i], unit.value)
                      : show(v, m.unit)}
                    {i > 0 && known(v) && (
                      <>
                        <br />
                        <Percent p={m.difference_percent[i]} better={m.better} />
                      </>
                    )}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
