// A term with an explanation: what it is, its unit and where it is defined, shown on hover and focus
// and read by screen readers. Pressing it opens the glossary at the term.
import type { ComponentChildren } from 'preact';
import { hideTip, showTip } from '../charts/tip';
import { type Entry, GLOSSARY, type Term } from '../core/glossary';
import { openGlossary } from './glossary';

export interface Explanation {
  title: string;
  text: string;
  unit?: string;
  /** The entry of the glossary that it belongs to. */
  term: Term;
}

/** What the glossary says of a term, as it stands. */
export const termed = (term: Term): Explanation => ({ ...(GLOSSARY[term] as Entry), term });

export function Explain(props: { of: Explanation | Term; children: ComponentChildren }) {
  const e = typeof props.of === 'string' ? termed(props.of) : props.of;
  const entry: Entry = GLOSSARY[e.term];
  const unit = e.unit ?? entry.unit;
  const rows: [string, string][] = [
    ['What', e.text],
    ...(unit ? ([['Unit', unit]] as [string, string][]) : []),
    ['Definition', `docs/${entry.where}`],
    ['', 'Press for the glossary.'],
  ];
  const show = (el: HTMLElement, speak: boolean) => {
    const r = el.getBoundingClientRect();
    showTip(Explain, { title: e.title, rows, wide: true }, r.left, r.bottom, speak);
  };
  return (
    <button
      type="button"
      class="explain"
      onPointerEnter={(x) => show(x.currentTarget, false)}
      onPointerLeave={() => hideTip(Explain)}
      onFocus={(x) => {
        if (x.currentTarget.matches(':focus-visible')) show(x.currentTarget, true);
      }}
      onBlur={() => hideTip(Explain)}
      onClick={() => {
        hideTip(Explain);
        openGlossary(e.term);
      }}
    >
      {props.children}
    </button>
  );
}
