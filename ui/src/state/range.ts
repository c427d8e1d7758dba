// Moves and zooms the visible time range within the run.
import { at, cursor, flag, type Range, select } from './selection';

const SMALLEST_MS = 0.01;

/** Scales the visible range about a point in time. */
export function zoom(full: Range, by: number, about?: number): void {
  const [a, b] = at.range.peek() ?? full;
  const middle = about ?? cursor.peek() ?? (a + b) / 2;
  const lo = Math.max(full[0], middle - (middle - a) * by);
  const hi = Math.min(full[1], middle + (b - middle) * by);
  if (hi - lo < SMALLEST_MS) return;
  const whole = lo <= full[0] + 1e-9 && hi >= full[1] - 1e-9;
  select({ range: whole ? null : [lo, hi] });
}

/** Shifts the visible range by a share of its width. */
export function pan(full: Range, by: number): void {
  const now = at.range.peek();
  if (!now) return;
  const width = now[1] - now[0];
  const lo = Math.max(full[0], Math.min(full[1] - width, now[0] + by * width));
  select({ range: [lo, lo + width] });
}

/** Sets the first flag where the crosshair stands, then the second; then the energy between them is read. */
export function plant(full: Range): void {
  const [a, b] = at.range.peek() ?? full;
  const t = cursor.peek() ?? (a + b) / 2;
  const first = flag.peek();
  if (first === null) {
    flag.value = t;
    select({ between: null });
  } else if (t !== first) {
    flag.value = null;
    select({ between: [Math.min(first, t), Math.max(first, t)] });
  }
}
