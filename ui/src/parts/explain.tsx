// A term with an explanation: its definition, its unit and where it is documented, shown on hover
// and on focus and read by screen readers.
import type { ComponentChildren } from 'preact';
import { hideTip, showTip } from '../charts/tip';

/** Where a definition is written, under docs/. */
const WHERE: Record<string, string> = {
  uncertainty: 'measurement.md, Uncertainty',
  request: 'measurement.md, The request',
  disturbed: 'measurement.md, Disturbed tokens',
  sources: 'power-sources.md',
  attribution: 'measurement.md, Attribution',
};

export interface Explanation {
  title: string;
  text: string;
  unit?: string;
  where?: keyof typeof WHERE;
}

export function Explain(props: { of: Explanation; children: ComponentChildren }) {
  const e = props.of;
  const rows: [string, string][] = [
    ['What', e.text],
    ...(e.unit ? ([['Unit', e.unit]] as [string, string][]) : []),
    ...(e.where ? ([['Definition', `docs/${WHERE[e.where]}`]] as [string, string][]) : []),
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
      onClick={(x) => show(x.currentTarget, true)}
    >
      {props.children}
    </button>
  );
}
