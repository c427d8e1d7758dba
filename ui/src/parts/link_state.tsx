import { link } from '../state/live';

const TEXT = { open: 'Connected', connecting: 'Connecting…', lost: 'Reconnecting…' } as const;

/** The connection state of the live stream, which reconnects automatically. */
export function LinkState() {
  return (
    <span class={`link-state ${link.value}`} role="status">
      <span class="link-text">{TEXT[link.value]}</span>
    </span>
  );
}
