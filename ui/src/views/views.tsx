import type { View } from '../state/selection';
import { AnalysisView } from './analysis/analysis';
import { CompareView } from './compare/compare';
import { ExperimentsView } from './experiments/experiments';
import { HistoryView } from './history/history';
import { LiveView } from './live/live';
import { MachinesView } from './machines/machines';

export function Views({ view }: { view: View }) {
  switch (view) {
    case 'live':
      return <LiveView />;
    case 'analysis':
      return <AnalysisView />;
    case 'history':
      return <HistoryView />;
    case 'compare':
      return <CompareView />;
    case 'experiments':
      return <ExperimentsView />;
    case 'machines':
      return <MachinesView />;
  }
}
