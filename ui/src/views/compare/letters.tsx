// Names the compared runs by a letter and a colour each, in the order of the selection.
import type { Compare } from '../../api/types';
import { colours } from '../../charts/theme';
import { dark } from '../../state/settings';

export const LETTERS = 'ABCD';

export const useColours = () => {
  dark.value;
  return colours().series;
};

export function Letter({ i }: { i: number }) {
  return <span class={`letter series-${i + 1}`}>{LETTERS[i]}</span>;
}

export const sideColour = (i: number): string => {
  const list = colours().series;
  return list[i % list.length];
};

/** A side by its letter, or by its name where sides are groups. */
export function Side({ d, i }: { d: Compare; i: number }) {
  const name = d.sides[i]?.name ?? '';
  return name.length === 1 ? <Letter i={i} /> : <strong>{name}</strong>;
}
