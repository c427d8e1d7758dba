// Data fetched by a key. A new key cancels the request of the old one; the old data stays on
// screen until the new data arrives, so that panels do not flicker.
import { type Signal, signal } from '@preact/signals';
import { useLayoutEffect, useMemo } from 'preact/hooks';
import { ApiError } from '../api/client';
import type { PanelState } from '../charts/panel';
import { READY } from '../charts/panel';

export interface Loaded<T> {
  data: T | null;
  error: string | null;
  loading: boolean;
  key: string;
  /** The server has it, but not yet: asking again helps. */
  soon?: boolean;
}

export function useResource<T>(
  key: string | null,
  fetcher: (signal: AbortSignal) => Promise<T>,
  keep: 'keep' | 'drop' = 'keep',
): Signal<Loaded<T>> & { retry: () => void } {
  const cell = useMemo(() => {
    const s = signal<Loaded<T>>({ data: null, error: null, loading: key !== null, key: '' });
    const again = signal(0);
    return Object.assign(s, {
      again,
      retry: () => {
        again.value++;
      },
    });
  }, []);
  const turn = cell.again.value;
  // Before the first paint, so that the request runs in parallel with the layout.
  useLayoutEffect(() => {
    if (key === null) {
      cell.value = { data: null, error: null, loading: false, key: '' };
      return;
    }
    const abort = new AbortController();
    cell.value = {
      ...cell.value,
      data: keep === 'keep' ? cell.value.data : null,
      loading: true,
      error: cell.value.soon ? cell.value.error : null,
    };
    fetcher(abort.signal).then(
      (data) => {
        if (!abort.signal.aborted) cell.value = { data, error: null, loading: false, key };
      },
      (e: unknown) => {
        if (abort.signal.aborted) return;
        const error = e instanceof Error ? e.message : String(e);
        const soon = e instanceof ApiError && e.status === 503;
        cell.value = { data: null, error, loading: false, key, soon };
      },
    );
    return () => abort.abort();
  }, [key, turn]);
  return cell;
}

/** Placeholder of a panel without a chart. `empty` returns the text for a response without marks. */
export function stateOf<T>(
  r: Signal<Loaded<T>> & { retry: () => void },
  empty: (data: T) => string | null = () => null,
): PanelState {
  const { data, error } = r.value;
  if (error !== null) return { kind: 'error', text: error, retry: r.retry };
  if (data === null) return { kind: 'loading' };
  const nothing = empty(data);
  return nothing === null ? READY : { kind: 'empty', text: nothing };
}
