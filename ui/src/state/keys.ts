// Keyboard shortcuts. Panels register actions (play, focus, the length of the run); this file maps
// keys to them. Shortcuts are ignored while the user types in a field.
import { closeMenus, startMenus } from './menus';
import { pan, plant, zoom } from './range';
import {
  clearSelection,
  flag,
  go,
  hasSelection,
  PANES,
  type Range,
  select,
  selection,
  VIEWS,
} from './selection';

export interface Focusable {
  /** The whole run. */
  full: () => Range | null;
  /** The range of the selection. */
  focus: () => Range | null;
  play: () => void;
  step: (by: number) => void;
}

let target: Focusable | null = null;

/** Registers the current view's time keys; returns the function that unregisters them. */
export function takeKeys(f: Focusable): () => void {
  target = f;
  return () => {
    if (target === f) target = null;
  };
}

const typing = (e: KeyboardEvent): boolean => {
  const el = e.target;
  if (!(el instanceof HTMLElement)) return false;
  if (el.isContentEditable || el.closest('dialog[open]')) return true;
  if (el instanceof HTMLInputElement)
    return !['checkbox', 'radio', 'button', 'range'].includes(el.type);
  return el instanceof HTMLTextAreaElement || el instanceof HTMLSelectElement;
};

/** Clears the innermost part of the selection. */
function stepOut(): boolean {
  const s = selection.value;
  if (flag.value !== null) flag.value = null;
  else if (s.between) select({ between: null });
  else if (s.component !== null) select({ component: null, layer: null });
  else if (s.layer !== null) select({ layer: null });
  else if (s.token !== null) select({ token: null });
  else if (s.phase !== null) select({ phase: null });
  else if (s.range) select({ range: null });
  else return false;
  return true;
}

/** The next pane of the structure, as its tabs stand; one without a tab is passed over. */
function stepPane(by: number): void {
  const there = PANES.filter((p) => document.getElementById(`tab-${p}`));
  const at = there.indexOf(selection.value.pane);
  if (there.length) select({ pane: there[(at + by + there.length) % there.length] });
}

interface Page {
  help: () => void;
  /** A report has none. */
  palette?: () => void;
}

export function startKeys(page: Page): () => void {
  const on = (e: KeyboardEvent) => {
    if (
      page.palette &&
      (e.ctrlKey || e.metaKey) &&
      !e.shiftKey &&
      !e.altKey &&
      e.key.toLowerCase() === 'k'
    ) {
      e.preventDefault();
      page.palette();
      return;
    }
    if (e.key === 'Escape' && closeMenus()) {
      e.preventDefault();
      return;
    }
    if (e.ctrlKey || e.metaKey || e.altKey || typing(e) || e.defaultPrevented) return;
    if (handle(e, page)) e.preventDefault();
  };
  addEventListener('keydown', on);
  const stopMenus = startMenus();
  return () => {
    removeEventListener('keydown', on);
    stopMenus();
  };
}

function handle(e: KeyboardEvent, page: Page): boolean {
  const full = target?.full() ?? null;
  switch (e.key) {
    case '?':
      page.help();
      return true;
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
      go({ view: VIEWS[Number(e.key) - 1] });
      return true;
    case '/': {
      const box = document.querySelector<HTMLInputElement>('#find-span, #history-search');
      if (box) box.focus();
      else go({ view: 'history' });
      return true;
    }
    case 'Escape':
      return stepOut();
    case '0':
      if (!hasSelection.value) return false;
      clearSelection();
      return true;
  }
  if (!target || !full) return false;
  switch (e.key) {
    case 'w':
    case 'W':
      zoom(full, 0.7);
      return true;
    case 's':
    case 'S':
      zoom(full, 1 / 0.7);
      return true;
    case 'a':
    case 'A':
      pan(full, -0.2);
      return true;
    case 'd':
    case 'D':
      pan(full, 0.2);
      return true;
    case 'f':
    case 'F': {
      const r = target.focus();
      if (r) select({ range: r });
      return r !== null;
    }
    case '[':
    case ']':
      stepPane(e.key === ']' ? 1 : -1);
      return true;
    case 'm':
    case 'M':
      plant(full);
      return true;
    case 't':
    case 'T':
      select({ tall: !selection.value.tall });
      return true;
    case ' ':
      if (e.target instanceof HTMLButtonElement) return false;
      target.play();
      return true;
    case '.':
      target.step(1);
      return true;
    case ',':
      target.step(-1);
      return true;
  }
  return false;
}
