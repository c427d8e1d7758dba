// The machines that store in this database: when each was last seen, what it has drawn today, how it
// is; and its live stream, for those that have joined this server.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { api } from '../../api/client';
import { LiveSocket } from '../../api/socket';
import type { Machine } from '../../api/types';
import { ago, count, DASH, energy, known, power } from '../../core/format';
import { SourceBadge } from '../../parts/badge';
import { Notice, Sentence } from '../../parts/notice';
import { link } from '../../state/live';
import { unit } from '../../state/settings';

const EVERY_MS = 10_000;
const SHOWN_TOKENS = 400;

export function MachinesView() {
  const machines = useSignal<Machine[] | null>(null);
  const failed = useSignal<string | null>(null);
  const watched = useSignal<string | null>(null);
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
    <section class="panel" aria-label="Machines">
      <h1>Machines</h1>
      {failed.value && (
        <Notice>
          <Sentence text={failed.value} />
        </Notice>
      )}
      {list && !list.length && (
        <p>No machine has stored a run in this database yet, and none serves with it.</p>
      )}
      {!!list?.length && (
        <table class="ops machines">
          <thead>
            <tr>
              <th scope="col">Machine</th>
              <th scope="col">Last seen</th>
              <th scope="col">Runs</th>
              <th scope="col">Energy today (UTC)</th>
              <th scope="col">Sensors</th>
              <th scope="col">Throttled</th>
              <th scope="col">Clock</th>
              <th scope="col">Version</th>
              <th scope="col">Live</th>
            </tr>
          </thead>
          <tbody>
            {list.map((m) => (
              <Row
                key={m.name}
                m={m}
                watched={watched.value === m.name}
                watch={() => {
                  watched.value = watched.value === m.name ? null : m.name;
                }}
              />
            ))}
          </tbody>
        </table>
      )}
      {watched.value && <Watch key={watched.value} machine={watched.value} />}
    </section>
  );
}

function Row({ m, watched, watch }: { m: Machine; watched: boolean; watch: () => void }) {
  const drawn = known(m.energy_today_mj);
  return (
    <tr>
      <th scope="row">{m.name}</th>
      <td data-label="Last seen" title={m.last_seen}>
        {ago(m.last_seen)}
      </td>
      <td data-label="Runs">{count(m.runs)}</td>
      <td
        data-label="Energy today (UTC)"
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
        {m.live ? (
          <button type="button" class="btn small" aria-pressed={watched} onClick={watch}>
            {watched ? 'Stop' : 'Watch'}
          </button>
        ) : (
          DASH
        )}
      </td>
    </tr>
  );
}

/** What a joined machine is doing now: its run, its power, its words. */
function Watch({ machine }: { machine: string }) {
  const run = useSignal('nothing has run since this was opened');
  const now = useSignal<number | null>(null);
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
          } else if (m.type === 'token_complete') {
            words.value = (words.value + text('text')).slice(-SHOWN_TOKENS);
          } else if (m.type === 'inference_complete' || m.type === 'run_failed') {
            run.value = `${m.type === 'run_failed' ? 'failed' : 'ended'}: ${run.value}`;
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
    <section aria-label={`Live: ${machine}`}>
      <h2>{machine}</h2>
      <p role="status">
        {state.value === 'open' ? run.value : 'Connecting to the machine…'}
        {now.value !== null && ` · ${power(now.value)}`}
      </p>
      <p class="mono">{words.value}</p>
    </section>
  );
}
