import type { View } from '../state/selection';

export function Views({ view }: { view: View }) {
  return <h1>{view}</h1>;
}
