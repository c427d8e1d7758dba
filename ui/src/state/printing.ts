// Printing a report: in light colours and at the width of the paper, for which the charts are drawn anew.
import { printing } from './settings';

/** The browser's own command prints at once: charts repaint in their own listeners of this event. */
export function startPrinting(): void {
  addEventListener('beforeprint', () => {
    printing.value = true;
  });
  addEventListener('afterprint', () => {
    printing.value = false;
  });
}

const SETTLED_MS = 300;

/** Everything has been laid out and drawn again before the dialog opens. */
export function printPage(): void {
  printing.value = true;
  setTimeout(() => print(), SETTLED_MS);
}
