// The application shell: navigation, the current view, and whether the server is reachable.
import { useSignal } from '@preact/signals';
import { useCallback, useEffect, useRef } from 'preact/hooks';
import { Glossary } from './parts/glossary';
import { Help } from './parts/help';
import { Icon } from './parts/icon';
import { LinkState } from './parts/link_state';
import { Palette } from './parts/palette';
import { SignIn } from './parts/sign_in';
import { Mark, Switches } from './parts/top';
import { Waiting } from './parts/waiting';
import { startKeys } from './state/keys';
import { at, follow, href, type View } from './state/selection';
import { Views } from './views/views';

const NAV: [View, string][] = [
  ['live', 'Live'],
  ['analysis', 'Analysis'],
  ['history', 'History'],
  ['compare', 'Compare'],
  ['experiments', 'Experiments'],
  ['machines', 'Machines'],
];

export function App() {
  const help = useSignal(false);
  const palette = useSignal(false);
  const showHelp = useCallback(() => {
    help.value = true;
  }, [help]);
  const main = useRef<HTMLElement>(null);
  const view = at.view.value;
  useEffect(
    () =>
      startKeys({
        help: () => {
          help.value = !help.value;
        },
        palette: () => {
          palette.value = !palette.value;
        },
      }),
    [help, palette],
  );
  useEffect(() => {
    const name = NAV.find(([v]) => v === view)?.[1];
    document.title = `${name} · perjoule`;
  }, [view]);
  return (
    <>
      <button type="button" class="skip" onClick={() => main.current?.focus()}>
        Skip to the content
      </button>
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
        <Switches />
        <button
          type="button"
          class="tool"
          title="Commands (Ctrl+K)"
          aria-label="Commands"
          onClick={() => {
            palette.value = true;
          }}
        >
          <Icon name="search" />
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
      <main ref={main} id="main" tabIndex={-1}>
        <Views view={view} />
      </main>
      <Help open={help} />
      <Palette open={palette} help={showHelp} />
      <Glossary />
      <SignIn />
    </>
  );
}
