import type { ComponentChildren } from 'preact';
import { Icon } from './icon';

export function Notice({ bad, children }: { bad?: boolean; children: ComponentChildren }) {
  return (
    <div class={`notice ${bad ? 'bad' : ''}`} role={bad ? 'alert' : 'status'}>
      <Icon name="warning" />
      <div>{children}</div>
    </div>
  );
}

/** A sentence with `commands` in backquotes rendered as code. */
export function Sentence({ text }: { text: string }) {
  const parts = text.split(/`([^`]+)`/);
  return <span>{parts.map((p, i) => (i % 2 ? <code key={i}>{p}</code> : p))}</span>;
}
