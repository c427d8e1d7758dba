// The page's only animation loop (requestAnimationFrame). Repaints are requested for the next
// frame and coalesced; the loop stops while nothing changes.

type Draw = (now: number) => void;

let waiting = new Set<Draw>();
let asked = false;

function tick(now: number): void {
  asked = false;
  const batch = waiting;
  waiting = new Set();
  for (const draw of batch) draw(now);
}

export function nextFrame(draw: Draw): void {
  waiting.add(draw);
  if (!asked) {
    asked = true;
    requestAnimationFrame(tick);
  }
}

export function cancelFrame(draw: Draw): void {
  waiting.delete(draw);
}

/** A draw request that runs at most once in `gapMs`; the last request is never lost. */
export function paced(gapMs: number, draw: () => void): () => void {
  let last = Number.NEGATIVE_INFINITY;
  const attempt = (now: number) => {
    if (now - last < gapMs - 1) nextFrame(attempt);
    else {
      last = now;
      draw();
    }
  };
  return () => nextFrame(attempt);
}
