// Starts the page: restores the state from the URL, opens the live stream, and renders.
import { render } from 'preact';
import { App } from './app';
import { startLive } from './state/live';
import { startSelection } from './state/selection';

if (/[?&]test=1\b/.test(location.search)) window.__test = {};
startSelection();
startLive();
const root = document.getElementById('app');
if (root) render(<App />, root);
