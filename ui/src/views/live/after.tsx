// What a finished run offers: its analysis, the same again, and the comparison with the run before it.
import { useSignal } from '@preact/signals';
import { ApiError, api } from '../../api/client';
import type { GenerateRequest, RunSummary } from '../../api/types';
import { Icon } from '../../parts/icon';
import * as live from '../../state/live';
import { useResource } from '../../state/resource';
import { follow, href } from '../../state/selection';
import { lastRequest } from './form';

/** The settings of a stored run as a request; null where its prompt is not kept as text. */
export function requestOf(s: RunSummary): GenerateRequest | null {
  if (!s.prompt || s.engine !== 'perjoule') return null;
  const batch = s.batch_size ?? 1;
  return {
    prompt: s.prompt,
    profiling_depth: s.profiling_depth ?? 'module',
    max_length: Math.max(1, Math.round((s.output_tokens ?? 1) / batch)),
    tags: s.tags,
    wait: false,
    ...(s.model_path && { model_name: s.model_path }),
    ...(s.dtype && { dtype: s.dtype }),
    ...(batch > 1 && { batch_size: batch }),
  };
}

function RunAgain({ s }: { s: RunSummary }) {
  const error = useSignal<string | null>(null);
  const last = lastRequest.value;
  const body = last?.prompt === s.prompt ? last : requestOf(s);
  if (!body) return null;
  const again = async () => {
    error.value = null;
    try {
      await api.generate(body);
    } catch (e) {
      error.value = e instanceof ApiError ? e.message : String(e);
    }
  };
  return (
    <>
      <button type="button" class="btn small" onClick={() => void again()}>
        <Icon name="play" /> Run again
      </button>
      {error.value && (
        <span class="bad" role="alert">
          {error.value}
        </span>
      )}
    </>
  );
}

/** The newest completed run of the same model before this one. */
function CompareWithLast({ s }: { s: RunSummary }) {
  const q = { model: s.model_name, status: 'completed', limit: 5, to: s.created_at };
  const before = useResource(`before ${s.id}`, (x) => api.runs(q, x)).value.data?.runs.find(
    (r) => r.id !== s.id && r.created_at < s.created_at,
  );
  if (!before) return null;
  const to = { view: 'compare' as const, ids: [before.id, s.id], by: '' };
  return (
    <a class="btn small" href={href(to)} onClick={(e) => follow(e, 'compare', to)}>
      <Icon name="compare" /> Compare with the last
    </a>
  );
}

export function AfterRun() {
  const s = live.summary.value;
  if (s?.status !== 'completed') return null;
  return (
    <>
      <RunAgain s={s} />
      <CompareWithLast key={s.id} s={s} />
    </>
  );
}
