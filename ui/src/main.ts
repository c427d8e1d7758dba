// The entry script: small, so that the first requests are sent before the page itself is loaded.
import 'uplot/dist/uPlot.min.css';
import './style/index.css';
import { askEarly } from './api/early';
import { startSettings } from './state/settings';

askEarly(location.search);
startSettings(); // set the theme before the first paint
void import('./start');
