// A dialog with the keyboard shortcuts and a link to the glossary.
import type { Signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { EnergyUnit } from '../core/format';
import { openGlossary } from './glossary';

export const ENERGY_UNITS: [EnergyUnit, string][] = [
  ['auto', 'Auto'],
  ['mJ', 'mJ'],
  ['J', 'J'],
  ['Wh', 'Wh'],
];

const KEYS: [string[], string][] = [
  [['W', 'S'], 'Zoom the time range in, out'],
  [['A', 'D'], 'Move the time range left, right'],
  [['f'], 'Focus: fit the range to what is selected'],
  [['m'], 'Set a flag at the crosshair, then the other: the energy between them'],
  [['t'], 'Timeline as tall as the window'],
  [['Esc'], 'Clear the selection, one step at a time'],
  [['Space'], 'Play or pause the token slider'],
  [['.', ','], 'Next, previous token'],
  [['←', '→', '↑', '↓'], 'Walk through the marks of a focused chart; Enter selects'],
  [['[', ']'], 'Previous, next pane of the structure'],
  [['p'], 'Pin the track of the mark that the arrow keys have reached'],
  [['1', '2', '3', '4', '5', '6'], 'Live, Analysis, History, Compare, Experiments, Machines'],
  [['/'], 'Find a span on the timeline, or search the history'],
  [['Ctrl+K'], 'Commands: views, panes, switches, runs'],
  [['?'], 'This list'],
];

export function Help({ open }: { open: Signal<boolean> }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const wanted = open.value;
  useEffect(() => {
    const d = dialog.current;
    if (wanted && d && !d.open) d.showModal();
    if (!wanted && d?.open) d.close();
  }, [wanted]);
  return (
    <dialog
      ref={dialog}
      aria-labelledby="help-title"
      onClose={() => {
        // told after it has closed, and may have been opened again
        if (!dialog.current?.open) open.value = false;
      }}
    >
      <h2 id="help-title">Keys</h2>
      <dl class="keys">
        {KEYS.map(([keys, what]) => (
          <>
            <dt>
              {keys.map((k) => (
                <>
                  <kbd key={k}>{k}</kbd>{' '}
                </>
              ))}
            </dt>
            <dd>{what}</dd>
          </>
        ))}
      </dl>
      <p class="note help-note">
        Drag over any chart with a time axis to zoom all of them; double-click shows the whole run.
        With Shift, dragging reads the energy of the range. A click on the name of a track pins it.
      </p>
      <p class="note help-note">
        <a href="/licenses.txt" target="_blank" rel="noreferrer">
          Licences of the software in this page
        </a>
      </p>
      <form method="dialog" class="dialog-actions">
        <button type="submit" class="btn" onClick={() => openGlossary()}>
          Glossary
        </button>
        <button type="submit" class="btn" autofocus>
          Close
        </button>
      </form>
    </dialog>
  );
}
