/** Strokes a line with gaps where there is no point. A point between two gaps is a dot: a line of its own would be
 * invisible. */
export function polyline(
  g: CanvasRenderingContext2D,
  from: number,
  to: number,
  at: (i: number) => [number, number] | null,
): void {
  g.beginPath();
  let before: [number, number] | null = null;
  let alone = false;
  const dots: [number, number][] = [];
  for (let i = from; i < to; i++) {
    const p = at(i);
    if (!p && before && alone) dots.push(before);
    if (p && before) g.lineTo(p[0], p[1]);
    else if (p) g.moveTo(p[0], p[1]);
    alone = !!p && !before;
    before = p;
  }
  if (before && alone) dots.push(before);
  g.stroke();
  for (const [x, y] of dots) {
    g.beginPath();
    g.arc(x, y, 2.5, 0, 7);
    g.fill();
  }
}
