// Search for spans by name on the timeline, with next and previous.
import { useComputed, useSignal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { api } from '../../api/client';
import type { PhaseRow, Spans, TokenRow } from '../../api/types';
import { phaseLabel } from '../../charts/theme';
import { count } from '../../core/format';
import { Icon } from '../../parts/icon';
import { useResource } from '../../state/resource';
import { cursor, type Range, select, selection } from '../../state/selection';
import type { RunData } from './data';

interface Hit {
  start: number;
  end: number;
}

/** The most spans of a name that are stepped through. */
const MOST_HITS = 20_000;
const TYPING_MS = 250;

const has = (name: string | null, part: string): boolean =>
  !!name && name.toLowerCase().includes(part);

/** What is found, in the order of time. */
export function hitsOf(
  part: string,
  phases: PhaseRow[],
  tokens: TokenRow[],
  spans: Spans | null,
): Hit[] {
  const hits: Hit[] = [];
  for (const p of phases)
    if (has(phaseLabel(p.phase), part)) hits.push({ start: p.start_ms, end: p.end_ms });
  for (const t of tokens)
    if ((t.step === null || t.step === t.token) && has(t.text, part))
      hits.push({ start: t.start_ms, end: t.start_ms + t.duration_ms });
  for (const l of spans?.levels ?? [])
    l.start_ms.forEach((start, i) => {
      hits.push({ start, end: start + (l.duration_ms[i] ?? 0) });
    });
  return hits.sort((a, b) => a.start - b.start);
}

/** A view in which the span is wide enough to be read, about its middle. */
export function viewOf(hit: Hit, full: Range, now: Range): Range {
  const length = Math.max(0.002, hit.end - hit.start);
  const width = Math.min(
    full[1] - full[0],
    Math.max(8 * length, Math.min(now[1] - now[0], 30 * length)),
  );
  const middle = (hit.start + hit.end) / 2;
  const from = Math.max(full[0], Math.min(full[1] - width, middle - width / 2));
  return [from, from + width];
}

export function FindSpan({ data, full }: { data: RunData; full: Range }) {
  const text = selection.value.find;
  const typed = useSignal(text);
  const spot = useSignal(-1);
  useEffect(() => {
    typed.value = text;
    spot.value = -1;
  }, [text]);
  useEffect(() => {
    if (typed.value === text) return;
    const timer = setTimeout(() => select({ find: typed.value.trim() }), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed.value]);
  const part = text.toLowerCase();
  const found = useResource(part && data.calm.value ? `find ${data.id} ${part}` : null, (s) =>
    api.spans(data.id, { name: part, limit: MOST_HITS }, s),
  );
  const [phases, tokens] = [data.pipeline.value.data?.phases, data.tokens.value.data];
  const hits = useMemo(
    () => (part ? hitsOf(part, phases ?? [], tokens ?? [], found.value.data) : []),
    [part, phases, tokens, found.value.data],
  );
  const cut = useComputed(() =>
    (found.value.data?.levels ?? []).some((l) => l.total > l.start_ms.length),
  ).value;
  const go = (by: number) => {
    if (!hits.length) return;
    const now = selection.peek().range ?? full;
    // From the crosshair or the middle of the view, the first time.
    const from =
      spot.value < 0 ? hits.findIndex((h) => h.start >= now[0]) - (by > 0 ? 1 : 0) : spot.value;
    const next = (from + by + hits.length) % hits.length;
    spot.value = next;
    const hit = hits[next];
    select({ range: viewOf(hit, full, now) });
    cursor.value = (hit.start + hit.end) / 2;
  };
  const busy = part !== '' && found.value.loading;
  return (
    <search class="find row">
      <input
        id="find-span"
        class="input small"
        type="search"
        placeholder="Find a span (/)"
        aria-label="Find spans by name"
        value={typed.value}
        onInput={(e) => {
          typed.value = e.currentTarget.value;
        }}
        onKeyDown={(e) => {
          if (e.key === 'Enter') go(e.shiftKey ? -1 : 1);
          else if (e.key === 'Escape') select({ find: '' });
          else return;
          e.preventDefault();
        }}
      />
      {part && (
        <>
          <span class="num muted" role="status">
            {busy
              ? '…'
              : spot.value >= 0
                ? `${count(spot.value + 1)} of ${count(hits.length)}`
                : `${count(hits.length)} found`}
            {cut ? ', the first of more' : ''}
          </span>
          <button type="button" class="tool" aria-label="Previous span" onClick={() => go(-1)}>
            <Icon name="up" />
          </button>
          <button type="button" class="tool" aria-label="Next span" onClick={() => go(1)}>
            <Icon name="down" />
          </button>
        </>
      )}
    </search>
  );
}
