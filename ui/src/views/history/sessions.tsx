// What tasks cost, and commits that a gate measured: sums of their runs. A click lists the runs.
import { api } from '../../api/client';
import type { Session } from '../../api/types';
import { Panel } from '../../charts/panel';
import { count, DASH, dateTime, energy, energyInterval, known, time } from '../../core/format';
import type { Table } from '../../core/table';
import { SourceBadge } from '../../parts/badge';
import { useResource } from '../../state/resource';
import { EMPTY, follow, href, selection } from '../../state/selection';
import { unit } from '../../state/settings';

type By = 'session' | 'commit';

const TEXT = {
  session: {
    title: 'Sessions',
    note: 'Runs and requests of one task (--session, PERJOULE_SESSION, X-Session-Id): their sum, each joule once.',
  },
  commit: {
    title: 'Commits',
    note: 'Runs that perjoule gate made of one commit, summed up. Compare groups by commit tests what differs.',
  },
};

/** Both lists; each only if there are any. `stamp` changes when there may be new runs. */
export function SessionsPanels({ stamp }: { stamp: string }) {
  return (
    <>
      <SessionsPanel by="session" stamp={stamp} />
      <SessionsPanel by="commit" stamp={stamp} />
    </>
  );
}

function SessionsPanel({ by, stamp }: { by: By; stamp: string }) {
  const res = useResource(`sessions ${by} ${stamp}`, (s) => api.sessions({ by }, s));
  const list = res.value.data ?? [];
  if (!list.length) return null;
  return (
    <Panel title={TEXT[by].title} note={TEXT[by].note} table={() => tableOf(list, by)}>
      <div class="data-table">
        <table>
          <thead>
            <tr>
              <th scope="col">{by === 'session' ? 'Session' : 'Commit'}</th>
              <th scope="col">Began</th>
              <th scope="col" class="num">
                Runs
              </th>
              <th scope="col" class="num">
                Output tokens
              </th>
              <th scope="col" class="num">
                Duration
              </th>
              <th scope="col" class="num">
                Energy
              </th>
              <th scope="col" class="num">
                {by === 'session' ? 'Tool calls' : 'Per run'}
              </th>
              {by === 'session' && (
                <th scope="col" class="num">
                  Per call
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {list.map((s) => (
              <Row key={s[by]} s={s} by={by} />
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

const lasted = (s: Session): number => Date.parse(s.end) - Date.parse(s.begin);

/** Of a session per call; unknown where there are no calls. */
const callEnergy = (s: Session): number | null =>
  known(s.joules_per_tool_call) ? s.joules_per_tool_call * 1000 : null;
const runEnergy = (s: Session): number | null => (known(s.energy_mj) ? s.energy_mj / s.runs : null);

function Row({ s, by }: { s: Session; by: By }) {
  const name = s[by] ?? '';
  const runs = {
    ...EMPTY,
    unit: selection.value.unit,
    view: 'history' as const,
    tag: `${by}=${name}`,
  };
  return (
    <tr>
      <th scope="row">
        <a href={href(runs)} title={name} onClick={(e) => follow(e, 'history', runs)}>
          {by === 'commit' ? name.slice(0, 12) : name}
        </a>
      </th>
      <td title={s.begin}>{dateTime(s.begin)}</td>
      <td class="num">{count(s.runs)}</td>
      <td class="num">{count(s.output_tokens)}</td>
      <td class="num">{time(lasted(s))}</td>
      <td class="num">
        {energyInterval(s.energy_mj, s.energy_sd_mj, unit.value)}{' '}
        {s.energy_source === 'modelled' && <SourceBadge source="modelled" />}{' '}
        {s.partial && <span class="badge partial">partial</span>}
      </td>
      {by === 'session' ? (
        <>
          <td class="num">{known(s.tool_calls) ? count(s.tool_calls) : DASH}</td>
          <td class="num">{known(callEnergy(s)) ? energy(callEnergy(s), unit.value) : DASH}</td>
        </>
      ) : (
        <td class="num">{energy(runEnergy(s), unit.value)}</td>
      )}
    </tr>
  );
}

function tableOf(list: Session[], by: By): Table {
  return {
    columns: [
      by,
      'begin',
      'end',
      'runs',
      'input_tokens',
      'output_tokens',
      'energy_mj',
      'energy_sd_mj',
      'energy_source',
      'tool_calls',
      'joules_per_tool_call',
    ],
    rows: list.map((s) => [
      s[by] ?? '',
      s.begin,
      s.end,
      s.runs,
      s.input_tokens,
      s.output_tokens,
      s.energy_mj,
      s.energy_sd_mj,
      s.energy_source,
      s.tool_calls,
      s.joules_per_tool_call,
    ]),
  };
}
