import type { View } from '../state/selection';
import { AnalysisView } from './analysis/analysis';
import { LiveView } from './live/live';

export function Views({ view }: { view: View }) {
  switch (view) {
    case 'live':
      return <LiveView />;
    case 'analysis':
      return <AnalysisView />;
    default:
      return <h1>{view}</h1>;
  }
}
