import { render } from 'preact';
import 'uplot/dist/uPlot.min.css';
import './style/index.css';
import { App } from './app';
import { startLive } from './state/live';
import { startSelection } from './state/selection';
import { startSettings } from './state/settings';

if (/[?&]test=1\b/.test(location.search)) window.__test = {};
startSettings();
startSelection();
startLive();
const root = document.getElementById('app');
if (root) render(<App />, root);
