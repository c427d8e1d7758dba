// The glossary as a dialog, opened at the term that was clicked.
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { type Entry, GLOSSARY, type Term } from '../core/glossary';

/** The term at which it is open; null: closed. */
const wanted = signal<Term | null>(null);

export const openGlossary = (term: Term = 'energy'): void => {
  wanted.value = term;
};

const ENTRIES = Object.entries(GLOSSARY) as [Term, Entry][];

export function Glossary() {
  const dialog = useRef<HTMLDialogElement>(null);
  const term = wanted.value;
  useEffect(() => {
    const d = dialog.current;
    if (!d || term === null) return;
    if (!d.open) d.showModal();
    const entry = d.querySelector<HTMLElement>(`#word-${term}`);
    entry?.focus();
    entry?.scrollIntoView?.({ block: 'start' });
  }, [term]);
  if (term === null) return null;
  return (
    <dialog
      ref={dialog}
      class="glossary"
      aria-labelledby="glossary-title"
      onClose={() => {
        // told after it has closed, and may have been opened again
        if (!dialog.current?.open) wanted.value = null;
      }}
    >
      <h2 id="glossary-title">Glossary</h2>
      <dl>
        {ENTRIES.map(([id, e]) => (
          <div key={id} class={id === term ? 'picked' : ''}>
            <dt id={`word-${id}`} tabIndex={-1}>
              {e.title} {e.unit && <small>{e.unit}</small>}
            </dt>
            <dd>
              {e.text} <span class="note">docs/{e.where}</span>
            </dd>
          </div>
        ))}
      </dl>
      <form method="dialog" class="dialog-actions">
        <button type="submit" class="btn">
          Close
        </button>
      </form>
    </dialog>
  );
}
