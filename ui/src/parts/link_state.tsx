import { link } from '../state/live';

const TEXT = { open: 'Connected', connecting: 'Connecting…', lost: 'Reconnecting…' } as const;

/** Whether the live stream is there; the page reconnects by itself. */
export function LinkState() {
  return (
    <span class={`link-state ${link.value}`} role="status">
      <span class="link-text">{TEXT[link.value]}</span>
    </span>
  );
}
