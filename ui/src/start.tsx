// Starts the page: the state in the address, the live stream, and the first render.
import { render } from 'preact';
import { App } from './app';
import { startLive } from './state/live';
import { startSelection } from './state/selection';

if (/[?&]test=1\b/.test(location.search)) window.__test = {};
startSelection();
startLive();
const root = document.getElementById('app');
if (root) render(<App />, root);
