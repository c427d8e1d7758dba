// The entry: small, so that the first requests are on their way before the page itself is loaded.
import 'uplot/dist/uPlot.min.css';
import './style/index.css';
import { askEarly } from './api/early';
import { startSettings } from './state/settings';

askEarly(location.search);
startSettings(); // the theme, before anything is painted
void import('./start');
