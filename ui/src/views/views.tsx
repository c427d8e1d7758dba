import type { View } from '../state/selection';
import { LiveView } from './live/live';

export function Views({ view }: { view: View }) {
  switch (view) {
    case 'live':
      return <LiveView />;
    default:
      return <h1>{view}</h1>;
  }
}
