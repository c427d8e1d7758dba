import { Legend, Panel } from '../../charts/panel';
import { PART_LABEL, type Part, partColour, partOfStat } from '../../charts/parts';
import { energyInterval, known, percent, power, time } from '../../core/format';
import { Explain } from '../../parts/explain';
import { stateOf } from '../../state/resource';
import { select, selection } from '../../state/selection';
import { dark, unit } from '../../state/settings';
import type { RunData } from './data';
import { Bar } from './heatmap';

const ROWS = 12;

export function ComponentsPanel({ data }: { data: RunData }) {
  const list = data.summary.value.data?.components ?? [];
  const timed = !list.some((c) => known(c.energy_mj));
  const whole = list.reduce((a, c) => a + ((timed ? c.time_ms : c.energy_mj) ?? 0), 0);
  const most = Math.max(1e-12, ...list.map((c) => (timed ? c.time_ms : c.energy_mj) ?? 0));
  dark.value;
  const picked = selection.value.component;
  return (
    <Panel
      class="bare"
      title="Components"
      note={
        timed
          ? 'Energy is unavailable; ordered by time over all layers and tokens.'
          : 'Gross energy over all layers and tokens, with the 95 % interval.'
      }
      state={stateOf(data.summary, (s) =>
        s.components.length ? null : 'This run recorded no components.',
      )}
      legend={
        <Legend
          items={(Object.keys(PART_LABEL) as Part[]).map((p) => ({
            label: PART_LABEL[p],
            colour: partColour(p),
          }))}
        />
      }
      table={() => ({
        columns: [
          'component_name',
          'part',
          'count',
          'time_ms',
          'energy_mj',
          'energy_sd_mj',
          'share',
          'power_mw',
          'flops',
          'bytes',
          'pj_per_flop',
          'pj_per_byte',
        ],
        rows: list.map((c) => [
          c.component_name,
          c.part,
          c.count,
          c.time_ms,
          c.energy_mj,
          c.energy_sd_mj,
          c.share,
          c.power_mw,
          c.flops,
          c.bytes,
          c.pj_per_flop,
          c.pj_per_byte,
        ]),
      })}
    >
      <table class="ops hottest">
        <thead>
          <tr>
            <th scope="col">
              <Explain of="attribution">Component</Explain>
            </th>
            <th scope="col" class="num">
              <Explain of="energy">Energy</Explain>
            </th>
            <th scope="col" class="num">
              <Explain of="share">Share</Explain>
            </th>
            <th scope="col" class="num wide">
              <Explain of="power">Power</Explain>
            </th>
            <th scope="col" class="num">
              <Explain of="duration">Time</Explain>
            </th>
          </tr>
        </thead>
        <tbody>
          {list.slice(0, ROWS).map((c) => {
            const v = (timed ? c.time_ms : c.energy_mj) ?? 0;
            return (
              <tr key={c.component_name} class={picked === c.component_name ? 'picked' : ''}>
                <td>
                  <button
                    type="button"
                    class="link"
                    onClick={() =>
                      select({
                        component: picked === c.component_name ? null : c.component_name,
                        layer: null,
                      })
                    }
                  >
                    {c.component_name}
                  </button>
                  <Bar share={v / most} colour={partColour(partOfStat(c))} />
                </td>
                <td class={`num ${known(c.energy_mj) ? '' : 'na hatched'}`}>
                  {energyInterval(c.energy_mj, c.energy_sd_mj, unit.value)}
                </td>
                <td class="num">{percent(c.share ?? (whole > 0 ? v / whole : null))}</td>
                <td class="num wide">{power(c.power_mw)}</td>
                <td class="num">{time(c.time_ms)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {list.length > ROWS && <p class="note">{list.length - ROWS} more in the table.</p>}
    </Panel>
  );
}
