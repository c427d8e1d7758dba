import { render } from 'preact';
import './style/index.css';
import { startSelection } from './state/selection';
import { startSettings } from './state/settings';
import { App } from './app';

if (/[?&]test=1\b/.test(location.search)) window.__test = {};
startSettings();
startSelection();
const root = document.getElementById('app');
if (root) render(<App />, root);
