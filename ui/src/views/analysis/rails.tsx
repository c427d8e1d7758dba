// Energy of each rail in each phase: stacked, as a share, with the peak of each rail and its time.
import { api } from '../../api/client';
import { Legend, Panel } from '../../charts/panel';
import { colours, phaseLabel, RAILS, type Rail } from '../../charts/theme';
import { energy, energyInterval, known, percent, power, time } from '../../core/format';
import { Explain } from '../../parts/explain';
import { stateOf, useResource } from '../../state/resource';
import { select, selection } from '../../state/selection';
import { dark, unit } from '../../state/settings';
import type { RunData } from './data';
import { peakOf } from './power';

/** Rails of a class share its colour; unknown ones are grey. */
function colourOf(rail: string): string {
  const c = colours();
  const known = RAILS.find((r) => rail === r || rail.replace(/\d+$/, '') === r);
  return known ? c.rail[known as Rail] : c.text3;
}

export function RailsPane({ data }: { data: RunData }) {
  dark.value;
  const s = data.summary.value.data;
  const net = selection.value.net;
  const power_ = useResource(data.calm.value ? `rails ${data.id}` : null, (x) =>
    api.power(data.id, { points: 4000, rails: 1 }, x),
  );
  const counted = new Set(s?.total_rails ?? []);
  const all = (s?.rail_energy ?? []).filter((r) => counted.size === 0 || counted.has(r.rail));
  const phases = [...new Set(all.map((r) => r.phase))].filter((p) => p !== 'run');
  const rails = [...new Set(all.map((r) => r.rail))];
  const value = (phase: string, rail: string): number | null => {
    const r = all.find((x) => x.phase === phase && x.rail === rail);
    return r ? (net ? r.net_mj : r.gross_mj) : null;
  };
  const total = (phase: string) => rails.reduce((a, r) => a + Math.max(0, value(phase, r) ?? 0), 0);
  const most = Math.max(1e-12, ...phases.map(total));
  const mean = (rail: string): number | null => {
    const of = all.filter((r) => r.rail === rail && r.phase !== 'run');
    const ms = s?.total_duration_ms;
    if (!of.length || !ms || of.some((r) => r.gross_mj === null)) return null;
    return (of.reduce((a, r) => a + (r.gross_mj ?? 0), 0) / ms) * 1000;
  };
  const series = power_.value.data;
  const peaks = (series?.rails ?? []).flatMap((r) => {
    const best = peakOf(series!.t_ms, r.power_mw, mean(r.name));
    return best ? [{ rail: r.name, source: r.source, ...best }] : [];
  });
  return (
    <Panel
      class="bare"
      title="Rails by phase"
      note={`${net ? 'Energy above idle' : 'Energy'} of each rail that counts in the total, by phase of the whole run.`}
      state={stateOf(data.summary, () =>
        all.length ? null : 'No rail was measured in this run: its energy is unavailable.',
      )}
      legend={
        <Legend items={rails.map((r) => ({ label: r.toUpperCase(), colour: colourOf(r) }))} />
      }
      table={() => ({
        columns: ['phase', 'rail', 'gross_mj', 'idle_mj', 'net_mj', 'sd_mj'],
        rows: (s?.rail_energy ?? []).map((r) => [
          r.phase,
          r.rail,
          r.gross_mj,
          r.idle_mj,
          r.net_mj,
          r.sd_mj,
        ]),
      })}
    >
      <div class="scroll-x">
        <table class="ops rails">
          <thead>
            <tr>
              <th scope="col">
                <Explain of="phase">Phase</Explain>
              </th>
              <th scope="col" class="wide">
                Stacked
              </th>
              {rails.map((r) => (
                <th scope="col" class="num" key={r}>
                  {r.toUpperCase()}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {phases.map((p) => {
              let x = 0;
              return (
                <tr key={p} class={selection.value.phase === p ? 'picked' : ''}>
                  <td>
                    <button
                      type="button"
                      class="link"
                      onClick={() => select({ phase: selection.value.phase === p ? null : p })}
                    >
                      {phaseLabel(p)}
                    </button>
                  </td>
                  <td class="wide">
                    <svg
                      class="rail-bar"
                      viewBox="0 0 200 10"
                      preserveAspectRatio="none"
                      aria-hidden="true"
                    >
                      {rails.map((r) => {
                        const w = (Math.max(0, value(p, r) ?? 0) / most) * 200;
                        const at = x;
                        x += w;
                        return <rect key={r} x={at} width={w} height="10" fill={colourOf(r)} />;
                      })}
                    </svg>
                  </td>
                  {rails.map((r) => {
                    const v = value(p, r);
                    return (
                      <td key={r} class={`num ${known(v) ? '' : 'na hatched'}`}>
                        {energy(v, unit.value)}
                        {known(v) && total(p) > 0 && (
                          <small class="muted"> {percent(v / total(p))}</small>
                        )}
                      </td>
                    );
                  })}
                </tr>
              );
            })}
            <tr>
              <th scope="row">Run</th>
              <td class="wide" />
              {rails.map((r) => {
                const x = all.find((e) => e.phase === 'run' && e.rail === r);
                const v = x ? (net ? x.net_mj : x.gross_mj) : null;
                return (
                  <td key={r} class={`num ${known(v) ? '' : 'na hatched'}`}>
                    {energyInterval(v, x?.sd_mj, unit.value)}
                  </td>
                );
              })}
            </tr>
          </tbody>
        </table>
      </div>
      {peaks.length > 0 && (
        <p class="note">
          Peaks:{' '}
          {peaks.map((p, i) => (
            <span key={p.rail}>
              {i > 0 && '; '}
              {p.rail} {power(p.mw)} at {time(p.t)} ({p.source})
            </span>
          ))}
        </p>
      )}
    </Panel>
  );
}
