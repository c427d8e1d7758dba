// The number of runs waiting to be transferred to the database server, shown in every view.
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { api } from '../api/client';

const EVERY_MS = 15_000;

const waiting = signal(0);

export function Waiting() {
  useEffect(() => {
    const abort = new AbortController();
    const ask = async () => {
      if (document.hidden) return;
      try {
        waiting.value = (await api.health(abort.signal)).waiting ?? 0;
      } catch {
        // the connection state already shows that the server is unreachable
      }
    };
    void ask();
    const timer = setInterval(() => void ask(), EVERY_MS);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, []);
  const n = waiting.value;
  if (!n) return null;
  const text = n === 1 ? '1 run not handed over' : `${n} runs not handed over`;
  return (
    <span
      class="link-state lost"
      role="status"
      title="The database's server has not taken them yet. They are kept on this machine and handed over by themselves; `perjoule push` says what is in the way."
    >
      <span class="link-text">{text}</span>
    </span>
  );
}
