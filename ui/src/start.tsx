// Starts the page: restores the state from the URL, opens the live stream, and renders.
import { render } from 'preact';
import { App } from './app';
import { startLive } from './state/live';
import { startSelection } from './state/selection';

const root = document.getElementById('app');
const show = (): void => {
  if (root) render(<App />, root);
};
const test = /[?&]test=1\b/.test(location.search);
if (test) window.__test = {};
startSelection();
let stopLive = startLive();
show();

if (test && root) {
  /** Takes down what is shown, with its requests and its stream. */
  const rest = (): void => {
    render(null, root);
    stopLive();
    window.__test = { rest, again };
  };
  /** Shows an address as a new page does, but that the scripts are there. */
  const again = (query: string): void => {
    rest();
    history.pushState(null, '', query);
    dispatchEvent(new PopStateEvent('popstate'));
    scrollTo(0, 0);
    stopLive = startLive();
    show();
  };
  Object.assign(window.__test ?? {}, { rest, again });
}
