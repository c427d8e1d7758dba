// How the view names its runs: a letter and a colour each, in the order of the selection.
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
