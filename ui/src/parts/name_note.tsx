// The name and the note of a run, edited where they stand.
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { REPORT } from '../api/inlined';
import type { RunSummary } from '../api/types';
import { clip, promptOf } from '../core/format';
import { describe, described, titleOf } from '../state/names';
import { Icon } from './icon';

/** The heading of a run, with its note; `level` 2 inside a view that has a heading of its own. */
export function NameAndNote({ run, level = 1 }: { run: RunSummary; level?: 1 | 2 }) {
  const editing = useSignal(false);
  const { name, note } = described(run);
  const Heading = level === 1 ? 'h1' : 'h2';
  if (editing.value) return <Edit run={run} done={() => (editing.value = false)} />;
  return (
    <div class="described">
      <Heading>
        {clip(titleOf(run), 160) || 'Run without a prompt'}
        {!REPORT && (
          <button
            type="button"
            class="tool"
            title="Name and note"
            aria-label="Edit the name and the note"
            onClick={() => (editing.value = true)}
          >
            <Icon name="edit" />
          </button>
        )}
      </Heading>
      {name && level === 1 && <p class="muted">{clip(promptOf(run), 160)}</p>}
      {note && <p class="run-note">{note}</p>}
    </div>
  );
}

function Edit({ run, done }: { run: RunSummary; done: () => void }) {
  const now = described(run);
  const form = useRef<HTMLFormElement>(null);
  const error = useSignal<string | null>(null);
  useEffect(() => form.current?.querySelector('input')?.focus(), []);
  const save = async () => {
    const data = new FormData(form.current ?? undefined);
    try {
      await describe(run, { name: String(data.get('name')), note: String(data.get('note')) });
      done();
    } catch (e) {
      error.value = e instanceof Error ? e.message : String(e);
    }
  };
  return (
    <form
      ref={form}
      class="describe"
      aria-label="Name and note"
      onSubmit={(e) => {
        e.preventDefault();
        void save();
      }}
      onKeyDown={(e) => {
        if (e.key !== 'Escape') return;
        e.stopPropagation();
        done();
      }}
    >
      <label>
        Name
        <input class="input" name="name" maxLength={200} value={now.name ?? ''} />
      </label>
      <label>
        Note
        <input class="input" name="note" maxLength={2000} value={now.note ?? ''} />
      </label>
      <button type="submit" class="btn primary">
        Save
      </button>
      <button type="button" class="btn" onClick={done}>
        Cancel
      </button>
      {error.value && (
        <span class="bad" role="alert">
          {error.value}
        </span>
      )}
    </form>
  );
}
