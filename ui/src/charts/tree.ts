// The energy tree (phase, layer, component, operation) as a treemap or an icicle chart, with the
// same data, colours and zoom. Area or width is the value; energy that belongs to no child is
// hatched.
import {
  type HierarchyRectangularNode,
  hierarchy,
  partition,
  treemap,
  treemapSquarify,
} from 'd3-hierarchy';
import type { TreeNode } from '../api/types';
import { known } from '../core/format';
import { blend, inkOn } from '../core/ramp';
import { type Arrow, CanvasChart, fitText, type Rect } from './canvas';
import { nodePart, partColour } from './parts';
import { type Colours, hatch, phaseLabel } from './theme';
import type { Tip } from './tip';

export interface Datum {
  node: TreeNode;
  /** Self energy of this node, as a synthetic child. */
  rest: boolean;
  children?: Datum[];
}

export type Placed = HierarchyRectangularNode<Datum>;

const SMALLEST_REST = 0.002;

/** Whether the energy of a node that belongs to no child is drawn. */
export const isRest = (self: TreeNode['self'], whole: TreeNode['value']): boolean =>
  known(self) && self > (whole ?? 0) * SMALLEST_REST;

function datum(node: TreeNode, whole: number): Datum {
  const kids = (node.children ?? [])
    .filter((c) => known(c.value) && c.value > 0)
    .map((c) => datum(c, whole));
  if (kids.length && isRest(node.self, whole)) kids.push({ node, rest: true });
  return kids.length ? { node, rest: false, children: kids } : { node, rest: false };
}

const weight = (d: Datum): number =>
  d.rest ? (d.node.self ?? 0) : d.children ? 0 : Math.max(0, d.node.value ?? 0);

/** Net of idle more than its area, and less, as parts below zero have none. */
export const worthOf = (d: Datum): number => (d.rest ? d.node.self : d.node.value) ?? 0;

export const labelOf = (d: Datum): string => {
  if (d.rest) return 'unattributed';
  if (d.node.kind === 'phase') return phaseLabel(d.node.name);
  return d.node.kind === 'layer' && known(d.node.layer) ? `Layer ${d.node.layer}` : d.node.name;
};

/** The path of names from the run to a node, which preserves the zoom across reloads of the data. */
export const pathOf = (n: Placed): string[] =>
  n
    .ancestors()
    .reverse()
    .slice(1)
    .map((a) => a.data.node.name);

export abstract class TreeChart extends CanvasChart<Placed> {
  protected root: Placed | null = null;
  protected top: Placed | null = null;
  private source: TreeNode | null = null;
  private path: string[] = [];
  show: (value: number) => string = String;

  set(source: TreeNode, path: string[], show: (value: number) => string): void {
    this.show = show;
    if (source !== this.source) {
      this.source = source;
      const h = hierarchy(datum(source, source.value ?? 0), (d) => d.children)
        .sum(weight)
        .sort((a, b) => this.compare(a.data, b.data, a.value ?? 0, b.value ?? 0));
      this.root = h as Placed;
      this.hovered = this.focused = null;
    }
    this.path = path;
    this.top = this.find(path);
    this.arrange();
    this.invalidate();
  }

  private compare(a: Datum, b: Datum, va: number, vb: number): number {
    if (a.node.kind === 'layer' && b.node.kind === 'layer')
      return (a.node.layer ?? 0) - (b.node.layer ?? 0);
    return vb - va;
  }

  private find(path: string[]): Placed | null {
    let at = this.root;
    for (const name of path) {
      const next: Placed | undefined = at?.children?.find(
        (c) => c.data.node.name === name && !c.data.rest,
      );
      if (!next) break;
      at = next;
    }
    return at;
  }

  protected override resized(): void {
    this.arrange();
  }

  protected abstract arrange(): void;

  protected colour(n: Placed, c: Colours): string {
    const parents = n
      .ancestors()
      .slice(1)
      .map((a) => a.data.node)
      .reverse();
    const part = nodePart(n.data.node, parents);
    if (part) return partColour(part);
    if (n.data.node.kind === 'disturbed') return c.danger;
    if (n.data.node.kind === 'section')
      return c.phase[parents.find((p) => p.kind === 'phase')?.name ?? ''] ?? c.text3;
    if (n.data.node.kind === 'phase') return c.phase[n.data.node.name] ?? c.text3;
    return c.line;
  }

  protected override outline(n: Placed): Rect | null {
    return { x: n.x0, y: n.y0, w: n.x1 - n.x0, h: n.y1 - n.y0 };
  }

  protected override tip(n: Placed): Tip | null {
    const value = n.data.rest ? n.data.node.self : n.data.node.value;
    const parent = n.parent;
    const whole = this.root?.value ?? 0;
    const share = (v: number, of: number) =>
      of > 0 ? `${((100 * v) / of).toPrecision(3)} %` : '–';
    const names = pathOf(n);
    if (n.data.rest) names.push('unattributed');
    return {
      title: names.join(' › ') || 'Run',
      rows: [
        ['Value', known(value) ? this.show(value) : 'unavailable'],
        ...(parent
          ? ([[`Of ${labelOf(parent.data)}`, share(n.value ?? 0, parent.value ?? 0)]] as [
              string,
              string,
            ][])
          : []),
        [`Of the ${this.root?.data.node.name ?? 'run'}`, share(n.value ?? 0, whole)],
        ...(known(n.data.node.count) && !n.data.rest
          ? ([['Times', String(n.data.node.count)]] as [string, string][])
          : []),
      ],
    };
  }

  protected override next(n: Placed | null, key: Arrow): Placed | null {
    if (!n) return this.top?.children?.[0] ?? this.top;
    const row = n.parent?.children ?? [n];
    const i = row.indexOf(n);
    switch (key) {
      case 'ArrowLeft':
        return row[Math.max(0, i - 1)];
      case 'ArrowRight':
        return row[Math.min(row.length - 1, i + 1)];
      case 'ArrowDown':
        return n.children?.[0] ?? n;
      case 'ArrowUp':
        return n.parent && n !== this.top ? n.parent : n;
      case 'Home':
        return row[0];
      default:
        return row[row.length - 1];
    }
  }

  /** State for tests. */
  get shown(): string[] {
    return (this.top?.descendants() ?? [])
      .filter((n) => n.x1 - n.x0 > 0.5)
      .map((n) => labelOf(n.data));
  }

  get zoom(): string[] {
    return this.path;
  }
}

const HEAD = 18;

/** Levels drawn with a header, and the level whose nodes are drawn filled. */
const LEVELS = 3;

export class Treemap extends TreeChart {
  protected override arrange(): void {
    if (!this.top || !this.width || !this.height) return;
    // Laid out on a copy of the zoomed subtree, so that it fills the whole area.
    const copy = this.top.copy() as Placed;
    treemap<Datum>()
      .tile(treemapSquarify.ratio(1.4))
      .size([this.width, this.height])
      .paddingOuter((d) => (d.depth === 0 || d.depth >= LEVELS ? 0 : 2))
      // After paddingOuter, which would set it too.
      .paddingTop((d) => (d.children && d.depth > 0 && d.depth < LEVELS ? HEAD : 0))
      .paddingInner((d) => (d.depth === 0 ? 4 : 1))
      .round(true)(copy);
    const original = this.top.descendants();
    copy.descendants().forEach((n, i) => {
      const o = original[i];
      [o.x0, o.y0, o.x1, o.y1] = [n.x0, n.y0, n.x1, n.y1];
    });
  }

  private visible(n: Placed): boolean {
    return n.x1 - n.x0 >= 1 && n.y1 - n.y0 >= 1;
  }

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    const top = this.top;
    if (!top) return;
    const stripes = hatch(g, this.dpr);
    const walk = (n: Placed): void => {
      if (!this.visible(n)) return;
      const depth = n.depth - top.depth;
      const w = n.x1 - n.x0;
      const h = n.y1 - n.y0;
      const open = this.open(n, depth);
      if (n.data.rest) {
        g.fillStyle = stripes;
        g.fillRect(n.x0, n.y0, w, h);
      } else if (open) {
        g.fillStyle = depth === 0 ? c.surface : c.sunken;
        g.fillRect(n.x0, n.y0, w, h);
        if (n.data.node.kind === 'phase' && depth > 0) {
          g.fillStyle = this.colour(n, c);
          g.fillRect(n.x0, n.y0, w, 2);
        }
      } else {
        g.globalAlpha = BOX;
        g.fillStyle = this.colour(n, c);
        g.fillRect(n.x0, n.y0, w, h);
        g.globalAlpha = 1;
      }
      if (open) for (const k of n.children ?? []) walk(k);
      if (depth > 0 || !open) this.label(g, c, n, open);
    };
    walk(top);
  }

  private open(n: Placed, depth: number): boolean {
    return n.children !== undefined && depth < LEVELS;
  }

  private label(g: CanvasRenderingContext2D, c: Colours, n: Placed, head: boolean): void {
    const w = n.x1 - n.x0;
    const h = n.y1 - n.y0;
    if (w < 34 || h < 15) return;
    const text = fitText(g, labelOf(n.data), w - 10);
    if (!text) return;
    const plain = head || n.data.rest;
    g.fillStyle = plain ? c.text2 : inkOn(blend(this.colour(n, c), BOX, c.surface));
    g.fillText(text, n.x0 + 5, n.y0 + 10);
    const value = this.show(worthOf(n.data));
    if (head) {
      if (g.measureText(value).width > w - g.measureText(text).width - 20) return;
      g.textAlign = 'right';
      g.fillStyle = c.text3;
      g.fillText(value, n.x1 - 5, n.y0 + 10);
      g.textAlign = 'left';
    } else if (h > 32 && w > 52) {
      g.fillText(fitText(g, value, w - 10), n.x0 + 5, n.y0 + 24);
    }
  }

  protected override hit(x: number, y: number): Placed | null {
    const inside = (n: Placed) => x >= n.x0 && x < n.x1 && y >= n.y0 && y < n.y1;
    const top = this.top;
    let at: Placed | null = top && inside(top) ? top : null;
    while (at && top && this.open(at, at.depth - top.depth)) {
      const next: Placed | undefined = at.children?.find(inside);
      if (!next) break;
      at = next;
    }
    return at;
  }
}

/** Opacity of the treemap's boxes, and of the icicle's by kind. */
const BOX = 0.88;
const opacity = (kind: string): number =>
  kind === 'operation' ? 0.6 : kind === 'component' ? 0.85 : 0.75;

/** Row height grows if there are few levels, so that a shallow run fills its pane. */
const ROW = 40;
const TALL = 80;
const PANE = 330;

export class Icicle extends TreeChart {
  private row = ROW;

  static height(levels: number): number {
    return Math.max(levels * (ROW + 2), Math.min(PANE, levels * (TALL + 2)));
  }

  protected override arrange(): void {
    const root = this.root;
    const top = this.top;
    if (!root || !top || !this.width) return;
    partition<Datum>().size([1, root.height + 1])(root as never);
    this.row = Math.max(ROW, this.height / (root.height + 1) - 2);
    // The zoomed node takes the full width; its ancestors stay above it as a trail.
    const [a, b] = [top.x0, top.x1];
    for (const n of root.descendants()) {
      const depth = n.depth;
      n.x0 = Math.max(0, Math.min(1, (n.x0 - a) / (b - a))) * this.width;
      n.x1 = Math.max(0, Math.min(1, (n.x1 - a) / (b - a))) * this.width;
      n.y0 = depth * (this.row + 2);
      n.y1 = n.y0 + this.row;
    }
  }

  protected override paint(g: CanvasRenderingContext2D, c: Colours): void {
    const stripes = hatch(g, this.dpr);
    for (const n of this.root?.descendants() ?? []) {
      const w = n.x1 - n.x0;
      if (w < 0.6) continue;
      const colour = this.colour(n, c);
      const alpha = opacity(n.data.node.kind);
      g.fillStyle = n.data.rest ? stripes : colour;
      g.globalAlpha = n.data.rest ? 1 : alpha;
      g.fillRect(n.x0, n.y0, Math.max(0.6, w - (w > 3 ? 1 : 0)), this.row);
      g.globalAlpha = 1;
      if (w < 40) continue;
      g.fillStyle = n.data.rest ? c.text : inkOn(blend(colour, alpha, c.surface));
      const value = this.show(worthOf(n.data));
      const text = fitText(g, labelOf(n.data), w - 12);
      g.fillText(text, n.x0 + 6, n.y0 + this.row / 2 + 0.5);
      const used = g.measureText(text).width + 20;
      if (text && g.measureText(value).width < w - used) {
        g.textAlign = 'right';
        g.globalAlpha = 0.8;
        g.fillText(value, n.x1 - 7, n.y0 + this.row / 2 + 0.5);
        g.globalAlpha = 1;
        g.textAlign = 'left';
      }
    }
  }

  protected override hit(x: number, y: number): Placed | null {
    for (const n of this.root?.descendants() ?? []) {
      if (x >= n.x0 && x < n.x1 && y >= n.y0 && y < n.y1 && n.x1 - n.x0 > 0.5) return n;
    }
    return null;
  }
}
