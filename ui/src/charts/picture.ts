// A picture of a panel whose charts are drawn in HTML and SVG: what is laid out is painted again on a canvas.
import { colours } from './theme';

const SKIPPED = '.panel-tools, .panel-actions, .sr-only, button.tool, input, select';
const NONE = /^(none|transparent|rgba\(0, 0, 0, 0\))$/;

function shape(g: CanvasRenderingContext2D, el: SVGGeometryElement, style: CSSStyleDeclaration) {
  const m = el.getScreenCTM();
  if (!m) return;
  const path = new Path2D();
  const number = (name: string) => Number(el.getAttribute(name) ?? 0);
  const at = (x: number, y: number) => new DOMPoint(x, y).matrixTransform(m);
  if (el instanceof SVGLineElement) {
    const [a, b] = [at(number('x1'), number('y1')), at(number('x2'), number('y2'))];
    path.moveTo(a.x, a.y);
    path.lineTo(b.x, b.y);
  } else if (el instanceof SVGPathElement) {
    path.addPath(new Path2D(el.getAttribute('d') ?? ''), m);
  } else {
    const r = el.getBoundingClientRect();
    if (el instanceof SVGRectElement) path.rect(r.x, r.y, r.width, r.height);
    else path.ellipse(r.x + r.width / 2, r.y + r.height / 2, r.width / 2, r.height / 2, 0, 0, 7);
  }
  const opacity = Number(style.opacity);
  if (!NONE.test(style.fill) && !style.fill.startsWith('url') && !(el instanceof SVGLineElement)) {
    g.globalAlpha = opacity * Number(style.fillOpacity);
    g.fillStyle = style.fill;
    g.fill(path);
  }
  if (!NONE.test(style.stroke)) {
    g.globalAlpha = opacity * Number(style.strokeOpacity);
    g.strokeStyle = style.stroke;
    g.lineWidth = Number.parseFloat(style.strokeWidth);
    g.stroke(path);
  }
  g.globalAlpha = 1;
}

/** Word by word, so that lines break as on the page. */
function words(g: CanvasRenderingContext2D, node: Text, style: CSSStyleDeclaration) {
  const range = document.createRange();
  g.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  g.fillStyle = node.parentElement instanceof SVGElement ? style.fill : style.color;
  g.textBaseline = 'middle';
  for (const m of node.data.matchAll(/\S+/g)) {
    range.setStart(node, m.index);
    range.setEnd(node, m.index + m[0].length);
    const r = range.getBoundingClientRect();
    if (r.width > 0) g.fillText(m[0], r.left, r.top + r.height / 2);
  }
}

function paint(g: CanvasRenderingContext2D, el: Element) {
  if (el.matches(SKIPPED)) return;
  const style = getComputedStyle(el);
  if (style.display === 'none' || style.visibility === 'hidden') return;
  const r = el.getBoundingClientRect();
  if (el instanceof HTMLCanvasElement) g.drawImage(el, r.x, r.y, r.width, r.height);
  else if (el instanceof SVGGeometryElement) shape(g, el, style);
  else if (!NONE.test(style.backgroundColor)) {
    g.fillStyle = style.backgroundColor;
    g.fillRect(r.x, r.y, r.width, r.height);
  }
  for (const child of el.childNodes)
    if (child instanceof Text) words(g, child, style);
    else if (child instanceof Element) paint(g, child);
}

/** The whole of `panel`, also what is scrolled out of sight of the page. */
export function picture(panel: Element): Promise<Blob | null> {
  const out = document.createElement('canvas');
  const { x, y, width, height } = panel.getBoundingClientRect();
  const k = Math.min(3, devicePixelRatio || 1);
  out.width = width * k;
  out.height = height * k;
  const g = out.getContext('2d');
  if (!g) return Promise.resolve(null);
  g.scale(k, k);
  g.fillStyle = colours().surface;
  g.fillRect(0, 0, width, height);
  g.translate(-x, -y);
  paint(g, panel);
  return new Promise((done) => out.toBlob(done, 'image/png'));
}
