// A report: the dashboard's view of a run, a comparison or an experiment in one file, without a server.
import 'uplot/dist/uPlot.min.css';
import './style/index.css';
import './style/report.css';
import { useSignal } from '@preact/signals';
import { render } from 'preact';
import { useEffect } from 'preact/hooks';
import { inlined } from './api/inlined';
import { Trouble } from './charts/panel';
import { dateTime } from './core/format';
import { Glossary } from './parts/glossary';
import { Help } from './parts/help';
import { Icon } from './parts/icon';
import { Mark, Switches } from './parts/top';
import { startKeys } from './state/keys';
import { printPage, startPrinting } from './state/printing';
import { at, selection, startSelection } from './state/selection';
import { startSettings } from './state/settings';
import { AnalysisView } from './views/analysis/analysis';
import { CompareView } from './views/compare/compare';
import { One } from './views/experiments/experiments';

function View() {
  switch (at.view.value) {
    case 'compare':
      return <CompareView />;
    case 'experiments':
      return <One name={selection.value.experiment} />;
    default:
      return <AnalysisView />;
  }
}

const TITLE = { compare: 'Comparison', experiments: 'Experiment' } as Record<string, string>;

function Report() {
  const help = useSignal(false);
  useEffect(
    () =>
      startKeys({
        help: () => {
          help.value = !help.value;
        },
      }),
    [help],
  );
  if (!inlined) return <Trouble text="This file holds no data: it was not written completely." />;
  return (
    <>
      <header class="top">
        <span class="brand">
          <Mark />
          <span>perjoule</span>
        </span>
        <span class="report-kind">{TITLE[at.view.value] ?? 'Run'}</span>
        <div class="spacer" />
        <Switches />
        <button
          type="button"
          class="tool"
          title="Keys (?)"
          aria-label="Keyboard keys"
          onClick={() => {
            help.value = true;
          }}
        >
          <Icon name="keys" />
        </button>
        <button type="button" class="btn" onClick={printPage}>
          Print
        </button>
      </header>
      <main tabIndex={-1}>
        <View />
        <section class="panel section" aria-label="How to repeat">
          <h3>How to repeat</h3>
          <pre>{inlined.repeat}</pre>
        </section>
        <footer class="made">
          {inlined.left_out.map((text) => (
            <p key={text}>{text}</p>
          ))}
          <p>
            Made by perjoule {inlined.version} on {dateTime(inlined.created_at)}. This file holds
            all of its data and asks no server.
          </p>
        </footer>
      </main>
      <Help open={help} />
      <Glossary />
    </>
  );
}

if (/[?&]test=1\b/.test(location.search)) window.__test = {};
startSettings();
startSelection();
startPrinting();
const root = document.getElementById('app');
if (root) render(<Report />, root);
