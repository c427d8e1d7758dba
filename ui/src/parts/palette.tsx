// The command palette (Ctrl+K): every view, pane, switch and recent run by a few letters.
import { type Signal, useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { api } from '../api/client';
import { dateTime } from '../core/format';
import { titleOf } from '../state/names';
import { useResource } from '../state/resource';
import { go, PANES, type Selection, select, selection, VIEWS } from '../state/selection';
import { openGlossary } from './glossary';

interface Command {
  name: string;
  hint: string;
  run: () => void;
}

const VIEW_NAME = (v: string): string => v[0].toUpperCase() + v.slice(1);

const PANE_NAME: Partial<Record<(typeof PANES)[number], string>> = {
  map: 'token × layer',
  samples: 'power samples',
  figures: 'all figures',
};

function fixed(s: Selection, help: () => void): Command[] {
  const of = (name: string, hint: string, run: () => void): Command => ({ name, hint, run });
  const views = VIEWS.map((view, i) => of(VIEW_NAME(view), String(i + 1), () => go({ view })));
  const analysis = s.view === 'analysis';
  const panes = PANES.map((pane) =>
    of(`Show ${PANE_NAME[pane] ?? pane}`, 'Analysis', () =>
      analysis ? select({ pane }) : go({ view: 'analysis', pane }),
    ),
  );
  const find = () => document.querySelector<HTMLInputElement>('#find-span')?.focus();
  return [
    ...views,
    ...(analysis
      ? [
          of('Find a span', '/', () => setTimeout(find)),
          of(s.tall ? 'Timeline: usual height' : 'Timeline: tall', 't', () =>
            select({ tall: !s.tall }),
          ),
        ]
      : []),
    ...panes,
    of(s.calm ? 'With disturbances' : 'Without disturbances', 'switch', () =>
      select({ calm: !s.calm }),
    ),
    of(s.net ? 'Gross energy' : 'Energy net of idle', 'switch', () => select({ net: !s.net })),
    of('Glossary', 'words', () => openGlossary()),
    of('Keys', '?', help),
  ];
}

/** Whether all letters of the query stand in the text in their order, words first. */
export function fits(text: string, query: string): boolean {
  const t = text.toLowerCase();
  return query
    .toLowerCase()
    .split(/\s+/)
    .every((word) => t.includes(word));
}

const RUNS = 40;
const SHOWN = 12;

export function Palette({ open, help }: { open: Signal<boolean>; help: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const query = useSignal('');
  const at = useSignal(0);
  const wanted = open.value;
  useEffect(() => {
    const d = dialog.current;
    if (wanted && d && !d.open) {
      query.value = '';
      at.value = 0;
      d.showModal();
    }
    if (!wanted && d?.open) d.close();
  }, [wanted]);
  const runs = useResource(wanted ? 'runs of the palette' : null, (s) =>
    api.runs({ limit: RUNS }, s),
  ).value.data?.runs;
  const s = selection.value;
  const all = useMemo(
    (): Command[] => [
      ...fixed(s, help),
      ...(runs ?? []).map((r) => ({
        name: `${r.model_name ?? 'run'} ${r.dtype ?? ''}: ${titleOf(r).slice(0, 60)}`,
        hint: `${dateTime(r.created_at)} ${r.tags.join(' ')}`,
        run: () => go({ view: 'analysis', run: r.id }),
      })),
    ],
    [runs, s, help],
  );
  const list = all.filter((c) => fits(`${c.name} ${c.hint}`, query.value)).slice(0, SHOWN);
  const chosen = Math.min(at.value, list.length - 1);
  const take = (c: Command | undefined) => {
    open.value = false;
    c?.run();
  };
  return (
    <dialog
      ref={dialog}
      class="palette"
      aria-label="Commands"
      onClose={() => {
        // told after it has closed, and may have been opened again
        if (!dialog.current?.open) open.value = false;
      }}
    >
      {wanted && (
        <>
          <input
            class="input"
            type="search"
            role="combobox"
            aria-expanded="true"
            aria-controls="commands"
            aria-activedescendant={list.length ? `command-${chosen}` : undefined}
            aria-label="Command"
            placeholder="View, pane, switch or run"
            value={query.value}
            onInput={(e) => {
              query.value = e.currentTarget.value;
              at.value = 0;
            }}
            onKeyDown={(e) => {
              if (e.key === 'ArrowDown') at.value = Math.min(list.length - 1, chosen + 1);
              else if (e.key === 'ArrowUp') at.value = Math.max(0, chosen - 1);
              else if (e.key === 'Enter') take(list[chosen]);
              // of itself a search box would be emptied first
              else if (e.key === 'Escape') open.value = false;
              else return;
              e.preventDefault();
            }}
          />
          <div id="commands" role="listbox" aria-label="Commands">
            {list.map((c, i) => (
              // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are the input's
              <div
                key={`${c.name} ${c.hint}`}
                id={`command-${i}`}
                role="option"
                tabIndex={-1}
                aria-selected={i === chosen}
                onClick={() => take(c)}
              >
                <span>{c.name}</span>
                <span class="muted">{c.hint}</span>
              </div>
            ))}
          </div>
          {!list.length && <p class="note">Nothing is called that.</p>}
        </>
      )}
    </dialog>
  );
}
