// The energy tree as flows for the Sankey diagram: phase, group of layers, kind of work,
// component. Self energy flows into a synthetic node, so that all levels have the same sum.
import type { TreeNode } from '../../api/types';
import { PART_LABEL, type Part, partColour, partOf } from '../../charts/parts';
import { colours, phaseLabel } from '../../charts/theme';

export interface Flow {
  from: string;
  to: string;
  value: number;
}

export interface Flows {
  nodes: { id: string; label: string; colour: string }[];
  links: Flow[];
}

/** What happens before the prompt, as far as its sections are known. */
const setUp = (phase: TreeNode): string =>
  phase.children?.length && !phase.children.some((n) => n.name === 'model_load')
    ? 'Set-up'
    : 'Model load and set-up';

/** Many layers are grouped into bands, because a diagram with eighty ribbons is unreadable. */
const BANDS = 6;

export function flows(root: TreeNode): Flows {
  const c = colours();
  const nodes = new Map<string, { id: string; label: string; colour: string }>();
  const links = new Map<string, Flow>();
  const node = (id: string, label: string, colour: string): string => {
    if (!nodes.has(id)) nodes.set(id, { id, label, colour });
    return id;
  };
  const add = (from: string, to: string, value: number | null): void => {
    if (value === null || !(value > 0)) return;
    const key = `${from}>${to}`;
    const at = links.get(key);
    if (at) at.value += value;
    else links.set(key, { from, to, value });
  };
  const layers =
    1 +
    Math.max(
      -1,
      ...(root.children ?? []).flatMap((p) => (p.children ?? []).map((l) => l.layer ?? -1)),
    );
  const size = Math.max(1, Math.ceil(layers / BANDS));
  const merged = layers === 0;
  const band = (layer: number): string => {
    const a = Math.floor(layer / size) * size;
    const b = Math.min(layers - 1, a + size - 1);
    return node(`band ${a}`, a === b ? `Layer ${a}` : `Layers ${a} to ${b}`, c.text3);
  };
  const work = (component: TreeNode, from: string): void => {
    const part: Part = partOf(component.name);
    const kind = node(`part ${part}`, PART_LABEL[part], partColour(part));
    add(from, kind, component.value);
    add(kind, node(`comp ${component.name}`, component.name, partColour(part)), component.value);
  };
  const rest = (from: string, value: number | null): void =>
    add(from, node('rest', 'Unattributed', c.text3), value);
  for (const phase of root.children ?? []) {
    const p = node(`phase ${phase.name}`, phaseLabel(phase.name), c.phase[phase.name] ?? c.text3);
    if (!phase.children?.some((x) => x.kind !== 'section')) {
      if (phase.name === 'pre_inference')
        add(p, node('load', setUp(phase), c.phase.pre_inference), phase.value);
      else rest(p, phase.value);
      continue;
    }
    for (const child of phase.children) {
      if (child.kind === 'disturbed') add(p, node('disturbed', 'Disturbed', c.danger), child.value);
      else if (child.kind === 'section')
        add(p, node(`section ${child.name}`, child.name, c.text3), child.value);
      else if (child.kind === 'layer') {
        const b = band(child.layer ?? 0);
        add(p, b, child.value);
        for (const component of child.children ?? []) work(component, b);
        rest(b, child.children?.length ? child.self : child.value);
      } else if (merged) work(child, p);
      else {
        const o = node('outside', 'Outside layers', c.text3);
        add(p, o, child.value);
        work(child, o);
      }
    }
    rest(p, phase.self);
  }
  const used = new Set([...links.values()].flatMap((l) => [l.from, l.to]));
  const all = [...nodes.values()].filter((n) => used.has(n.id));
  return { nodes: inOrder(all, [...links.values()]), links: [...links.values()] };
}

const PART_ORDER = Object.keys(PART_LABEL);

/** Vertical order, chosen to minimise crossings: phases and layers in their own order, kinds of work in a
 * fixed order, components by kind and then by value, unattributed energy last, and the model load, which no kind of work
 * passes, beside its phase at the top. */
function inOrder(nodes: Flows['nodes'], links: Flow[]): Flows['nodes'] {
  const value = (id: string) => links.reduce((a, l) => a + (l.to === id ? l.value : 0), 0);
  const rank = (id: string): number => {
    const [kind, name] = [id.slice(0, id.indexOf(' ')), id.slice(id.indexOf(' ') + 1)];
    if (id === 'rest') return 1e6;
    if (id === 'disturbed') return 1e6 - 1;
    if (kind === 'section') return 1e6 - 2;
    if (id === 'load') return -1;
    if (kind === 'band') return Number(name);
    if (kind === 'part') return PART_ORDER.indexOf(name);
    if (kind === 'comp') return PART_ORDER.indexOf(partOf(name));
    return 1e4;
  };
  return nodes
    .map((n, i) => ({ n, r: rank(n.id), v: value(n.id), i }))
    .sort((a, b) => a.r - b.r || b.v - a.v || a.i - b.i)
    .map((x) => x.n);
}

export const sankeyRows = (root: TreeNode): (string | number)[][] => {
  const f = flows(root);
  const label = new Map(f.nodes.map((n) => [n.id, n.label]));
  return f.links.map((l) => [label.get(l.from) ?? l.from, label.get(l.to) ?? l.to, l.value]);
};

/** Exports a PNG: the SVG with inlined colours is drawn on a canvas. */
export async function sankeyPng(): Promise<Blob | null> {
  const svg = document.querySelector<SVGSVGElement>('svg.sankey');
  if (!svg) return null;
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const { width, height } = svg.getBoundingClientRect();
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  copy.setAttribute('width', String(width));
  copy.setAttribute('height', String(height));
  const image = new Image();
  const url = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await new Promise<void>((done, fail) => {
    image.onload = () => done();
    image.onerror = () => fail(new Error('The picture could not be made.'));
    image.src = url;
  });
  const out = document.createElement('canvas');
  const k = Math.min(3, devicePixelRatio || 1);
  out.width = width * k;
  out.height = height * k;
  const g = out.getContext('2d');
  if (!g) return null;
  g.scale(k, k);
  g.fillStyle = colours().surface;
  g.fillRect(0, 0, width, height);
  g.drawImage(image, 0, 0, width, height);
  return new Promise((done) => out.toBlob(done, 'image/png'));
}
