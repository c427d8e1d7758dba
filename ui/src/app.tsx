// The application shell: navigation, the current view, and whether the server is reachable.
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { Glossary } from './parts/glossary';
import { ENERGY_UNITS, Help } from './parts/help';
import { Icon } from './parts/icon';
import { LinkState } from './parts/link_state';
import { SignIn } from './parts/sign_in';
import { Waiting } from './parts/waiting';
import { startKeys } from './state/keys';
import { at, go, href, select, type View } from './state/selection';
import { theme, unit } from './state/settings';
import { Views } from './views/views';

const NAV: [View, string][] = [
  ['live', 'Live'],
  ['analysis', 'Analysis'],
  ['history', 'History'],
  ['compare', 'Compare'],
  ['experiments', 'Experiments'],
  ['machines', 'Machines'],
];

const NEXT_THEME = { auto: 'light', light: 'dark', dark: 'auto' } as const;
const THEME_ICON = { auto: 'auto', light: 'sun', dark: 'moon' } as const;

export function App() {
  const help = useSignal(false);
  const main = useRef<HTMLElement>(null);
  const view = at.view.value;
  useEffect(
    () =>
      startKeys({
        help: () => {
          help.value = !help.value;
        },
      }),
    [help],
  );
  useEffect(() => {
    const name = NAV.find(([v]) => v === view)?.[1];
    document.title = `${name} · perjoule`;
  }, [view]);
  return (
    <>
      <header class="top">
        <a class="brand" href={href({ view: 'live' })} onClick={(e) => follow(e, 'live')}>
          <Mark />
          <span>perjoule</span>
        </a>
        <nav class="nav" aria-label="Views">
          {NAV.map(([v, label]) => (
            <a
              key={v}
              href={href({ view: v })}
              aria-current={v === view ? 'page' : undefined}
              onClick={(e) => follow(e, v)}
            >
              {label}
              {v === 'compare' && at.ids.value.length > 0 && (
                <span class="count">{at.ids.value.length}</span>
              )}
            </a>
          ))}
        </nav>
        <div class="spacer" />
        <Waiting />
        <LinkState />
        <label class="unit-switch">
          <span class="sr-only">Energy unit</span>
          <select
            class="input"
            value={unit.value}
            onChange={(e) => {
              select({ unit: e.currentTarget.value as typeof unit.value });
            }}
          >
            {ENERGY_UNITS.map(([v, label]) => (
              <option key={v} value={v}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <button
          type="button"
          class="tool"
          title={`Theme: ${theme.value}`}
          aria-label={`Theme: ${theme.value}. Change`}
          onClick={() => {
            theme.value = NEXT_THEME[theme.value];
          }}
        >
          <Icon name={THEME_ICON[theme.value]} />
        </button>
        <button
          type="button"
          class="tool"
          title="Keys (?)"
          aria-label="Keyboard keys"
          onClick={() => {
            help.value = true;
          }}
        >
          <Icon name="keys" />
        </button>
      </header>
      <main ref={main} tabIndex={-1}>
        <Views view={view} />
      </main>
      <Help open={help} />
      <Glossary />
      <SignIn />
    </>
  );
}

/** Handles plain clicks; clicks for a new tab or window are left to the browser. */
export function follow(e: MouseEvent, view: View, change = {}): void {
  if (e.metaKey || e.ctrlKey || e.shiftKey || e.button !== 0) return;
  e.preventDefault();
  go({ view, ...change });
}

function Mark() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="var(--accent)" />
      <path d="M18.2 5 8.5 18h6.1L13 27l10.4-13.6h-6.5z" fill="var(--accent-ink)" />
    </svg>
  );
}
