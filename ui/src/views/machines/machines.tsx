// The machines of this database: last seen, today's energy, state; and the live stream of machines that have
// joined this server.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { api } from '../../api/client';
import { LiveSocket } from '../../api/socket';
import type { EnergySource, Machine } from '../../api/types';
import { ago, count, DASH, energy, known, power } from '../../core/format';
import { SourceBadge } from '../../parts/badge';
import { Explain, type Explanation } from '../../parts/explain';
import { Notice, Sentence } from '../../parts/notice';
import { link } from '../../state/live';
import { at, EMPTY, follow, href, select, selection } from '../../state/selection';
import { unit } from '../../state/settings';

const EVERY_MS = 10_000;
const SHOWN_TOKENS = 400;

export function MachinesView() {
  const machines = useSignal<Machine[] | null>(null);
  const failed = useSignal<string | null>(null);
  const watched = at.watch.value;
  const open = link.value === 'open';
  useEffect(() => {
    const abort = new AbortController();
    const ask = async () => {
      if (document.hidden) return;
      try {
        machines.value = await api.machines(abort.signal);
        failed.value = null;
      } catch (e) {
        if (!abort.signal.aborted) failed.value = e instanceof Error ? e.message : String(e);
      }
    };
    void ask();
    const timer = setInterval(() => void ask(), EVERY_MS);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [open]);
  const list = machines.value;
  return (
    <div class="stack">
      <div class="row">
        <h1>Machines</h1>
        <span class="muted" role="status">
          {list && summaryOf(list)}
        </span>
      </div>
      <section
        class="panel"
        aria-label="Machines"
        aria-busy={list === null && failed.value === null}
      >
        {failed.value && (
          <Notice bad>
            <Sentence text={failed.value} />
          </Notice>
        )}
        {list === null && failed.value === null && <div class="state skeleton">Loading…</div>}
        {list && !list.length && (
          <div class="state">
            No machine has stored a run in this database yet, and none serves with it.
          </div>
        )}
        {!!list?.length && <Table list={list} watched={watched} />}
        {!!list?.length && <Hint />}
      </section>
      {watched && <Watch key={watched} machine={watched} />}
    </div>
  );
}

/** "3 machines, 1.23 kJ today"; the energy only if it is known of each of them. */
function summaryOf(list: Machine[]): string {
  const number = `${count(list.length)} ${list.length === 1 ? 'machine' : 'machines'}`;
  const all = list.every((m) => known(m.energy_today_mj));
  const sum = list.reduce((a, m) => a + (m.energy_today_mj ?? 0), 0);
  return list.length > 1 && all ? `${number}, ${energy(sum, unit.value)} today` : number;
}

const COLUMNS: [string, Explanation | null][] = [
  ['Machine', null],
  [
    'Last seen',
    {
      title: 'Last seen',
      text: 'When its server or one of its runs last wrote here.',
      term: 'machine',
    },
  ],
  [
    'Runs',
    { title: 'Runs', text: 'Stored in this database; a click lists them.', term: 'machine' },
  ],
  [
    'Energy today (UTC)',
    {
      title: 'Energy today',
      text: 'Since midnight UTC. A running perjoule serve counts all the time; without one only the energy of the runs is known, and "runs" says so.',
      term: 'energy',
    },
  ],
  [
    'Sensors',
    {
      title: 'Sensors',
      text: 'Power sources that its last run or its server read.',
      term: 'machine',
    },
  ],
  [
    'Throttled',
    {
      title: 'Throttled',
      text: 'Devices that the hardware slowed down because of heat or power; unknown where no sensor tells.',
      term: 'machine',
    },
  ],
  [
    'Clock',
    {
      title: 'Clock',
      text: "Its clock less that of the database's server; a dash where both are one machine.",
      term: 'machine',
    },
  ],
  ['Version', { title: 'Version', text: 'Of perjoule on it.', term: 'machine' }],
  [
    'Live',
    {
      title: 'Live',
      text: 'A machine that has joined this server (perjoule serve --join) can be watched.',
      term: 'machine',
    },
  ],
];

function Table({ list, watched }: { list: Machine[]; watched: string }) {
  return (
    <table class="ops machines">
      <thead>
        <tr>
          {COLUMNS.map(([label, help]) => (
            <th scope="col" key={label} class={NUMBERS.has(label) ? 'num' : ''}>
              {help ? <Explain of={help}>{label}</Explain> : label}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {list.map((m) => (
          <Row
            key={m.name}
            m={m}
            watched={watched === m.name}
            watch={() => select({ watch: watched === m.name ? '' : m.name })}
          />
        ))}
      </tbody>
    </table>
  );
}

const NUMBERS = new Set(['Runs', 'Energy today (UTC)', 'Clock']);

/** How others get into the table. */
function Hint() {
  return (
    <p class="note machines-hint">
      Other machines appear when they store in this database (
      <code>perjoule serve --db postgresql://…</code>); with <code>--join</code> and the address of
      this server they can be watched here.
    </p>
  );
}

function Row({ m, watched, watch }: { m: Machine; watched: boolean; watch: () => void }) {
  const drawn = known(m.energy_today_mj);
  const runs = { ...EMPTY, unit: selection.value.unit, view: 'history' as const, machine: m.name };
  return (
    <tr>
      <th scope="row">{m.name}</th>
      <td data-label="Last seen" title={m.last_seen}>
        {ago(m.last_seen)}
      </td>
      <td data-label="Runs" class="num">
        {m.runs ? (
          <a
            href={href(runs)}
            aria-label={`${count(m.runs)} ${m.runs === 1 ? 'run' : 'runs'} of ${m.name}`}
            onClick={(e) => follow(e, 'history', runs)}
          >
            {count(m.runs)}
          </a>
        ) : (
          0
        )}
      </td>
      <td
        data-label="Energy today (UTC)"
        class="num"
        title={
          m.energy_today_of === 'runs'
            ? 'Of its runs only: no perjoule serve counts there all the time'
            : undefined
        }
      >
        {drawn ? energy(m.energy_today_mj, unit.value) : 'unavailable'}
        {m.energy_today_of === 'runs' && ' (runs)'}{' '}
        {drawn && m.energy_source !== 'measured' && <SourceBadge source={m.energy_source} />}
      </td>
      <td data-label="Sensors">{m.sensors ? m.sensors.join(', ') || 'none' : DASH}</td>
      <td data-label="Throttled">{m.throttle ? m.throttle.join(', ') || 'no' : 'unknown'}</td>
      <td
        data-label="Clock"
        class="num"
        title={
          known(m.clock_uncertainty_ms)
            ? `less the database server's, ± ${m.clock_uncertainty_ms.toFixed(1)} ms`
            : undefined
        }
      >
        {known(m.clock_offset_ms) ? `${m.clock_offset_ms.toFixed(1)} ms` : DASH}
      </td>
      <td data-label="Version">{m.version ?? DASH}</td>
      <td data-label="Live">
        {m.live || watched ? (
          <button
            type="button"
            class="btn small"
            aria-pressed={watched}
            aria-label={`${watched ? 'Stop watching' : 'Watch'} ${m.name}`}
            onClick={watch}
          >
            {watched ? 'Stop' : 'Watch'}
          </button>
        ) : (
          'not joined'
        )}
      </td>
    </tr>
  );
}

/** The current activity of a joined machine: its run, power and text. */
function Watch({ machine }: { machine: string }) {
  const run = useSignal('Nothing has run since this was opened.');
  const now = useSignal<number | null>(null);
  const source = useSignal<EnergySource | null>(null);
  const words = useSignal('');
  const state = useSignal('connecting');
  useEffect(() => {
    const socket = new LiveSocket(
      {
        state: (s) => {
          state.value = s;
        },
        message: (m) => {
          const text = (key: string) => (typeof m[key] === 'string' ? (m[key] as string) : '');
          if (m.type === 'run_started') {
            run.value = `${text('model_name')}: ${text('prompt')}`;
            words.value = '';
          } else if (m.type === 'power_sample') {
            now.value = typeof m.total_power_mw === 'number' ? m.total_power_mw : null;
            source.value = text('energy_source') as EnergySource;
          } else if (m.type === 'token_complete') {
            words.value = (words.value + text('text')).slice(-SHOWN_TOKENS);
          } else if (m.type === 'inference_complete' || m.type === 'run_failed') {
            run.value = `${m.type === 'run_failed' ? 'Failed' : 'Ended'}: ${run.value}`;
            now.value = null;
          } else if (m.type === 'warning') {
            run.value = text('text');
          }
        },
        binary: () => undefined,
      },
      machine,
    );
    return () => socket.close();
  }, [machine]);
  return (
    <section class="panel watch" aria-label={`Live: ${machine}`}>
      <div class="row">
        <h2>{machine}</h2>
        <span class="spacer" />
        {now.value !== null && <strong class="watts">{power(now.value)}</strong>}
        {now.value !== null && source.value !== 'measured' && <SourceBadge source={source.value} />}
      </div>
      <p role="status">{state.value === 'open' ? run.value : 'Connecting to the machine…'}</p>
      {words.value && <p class="words">{words.value}</p>}
    </section>
  );
}
