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
  /** Further rows. */
  more?: [string, string][];
  /** Its glossary entry. */
  term: Term;
}

/** The glossary's text for a term. */
export const termed = (term: Term): Explanation => ({ ...(GLOSSARY[term] as Entry), term });

/** Handlers that show the explanation while an element is pointed at or focused. `press`: what pressing it does. */
export function explaining(e: Explanation, press: string) {
  const show = (el: HTMLElement, speak: boolean) => {
    const entry: Entry = GLOSSARY[e.term];
    const unit = e.unit ?? entry.unit;
    const rows: [string, string][] = [
      ['What', e.text],
      ...(unit ? ([['Unit', unit]] as [string, string][]) : []),
      ...(e.more ?? []),
      ['Definition', `docs/${entry.where}`],
      ['', press],
    ];
    const r = el.getBoundingClientRect();
    showTip(Explain, { title: e.title, rows, wide: true }, r.left, r.bottom, speak);
  };
  type On = { currentTarget: HTMLElement };
  return {
    onPointerEnter: (x: On) => show(x.currentTarget, false),
    onPointerLeave: () => hideTip(Explain),
    onFocus: (x: On) => {
      if (x.currentTarget.matches(':focus-visible')) show(x.currentTarget, true);
    },
    onBlur: () => hideTip(Explain),
  };
}

export function Explain(props: { of: Explanation | Term; children: ComponentChildren }) {
  const e = typeof props.of === 'string' ? termed(props.of) : props.of;
  return (
    <button
      type="button"
      class="explain"
      {...explaining(e, 'Press for the glossary.')}
      onClick={() => {
        hideTip(Explain);
        openGlossary(e.term);
      }}
    >
      {props.children}
    </button>
  );
}
