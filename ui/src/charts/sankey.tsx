// A Sankey diagram as SVG: some sixty nodes, each with a title that screen readers can read. Arrow keys
// walk the nodes: up and down within a column, left and right along the widest flow; Enter picks.
import {
  type SankeyLink,
  type SankeyNode,
  sankey,
  sankeyLeft,
  sankeyLinkHorizontal,
} from 'd3-sankey';
import { useEffect, useRef, useState } from 'preact/hooks';
import { dark } from '../state/settings';
import type { Flows } from '../views/analysis/flows';
import { colours } from './theme';
import { hideTip, showTip } from './tip';

interface N {
  id: string;
  label: string;
  colour: string;
}
interface L {
  value: number;
}

const HEIGHT = 400;
/** Lines of the tooltip of a node. */
const ROWS = 10;

interface Props {
  flows: Flows;
  show: (v: number) => string;
  /** A node was clicked, or Enter pressed on it. */
  onPick?: (id: string) => void;
}

export function Sankey({ flows, show, onPick }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const o = new ResizeObserver(() => setWidth(el.clientWidth));
    o.observe(el);
    return () => {
      o.disconnect();
      hideTip(Sankey);
    };
  }, []);
  return (
    <div ref={box} class="sankey-box">
      {width > 0 && <Drawing flows={flows} show={show} onPick={onPick} width={width} />}
    </div>
  );
}

type Node = SankeyNode<N, L>;
type Link = SankeyLink<N, L>;
const end = (n: unknown): Node => n as Node;
const widest = (links: Link[] = []): Link | undefined =>
  links.reduce((a: Link | undefined, l) => (a && a.value >= l.value ? a : l), undefined);

/** The node that an arrow key leads to from another; from none, the first. */
function walk(nodes: Node[], from: Node | undefined, key: string): Node | undefined {
  const order = [...nodes].sort((a, b) => (a.x0 ?? 0) - (b.x0 ?? 0) || (a.y0 ?? 0) - (b.y0 ?? 0));
  if (!from || key === 'Home') return order[0];
  if (key === 'End') return order[order.length - 1];
  if (key === 'ArrowLeft') return end(widest(from.targetLinks)?.source) ?? from;
  if (key === 'ArrowRight') return end(widest(from.sourceLinks)?.target) ?? from;
  const column = order.filter((n) => n.x0 === from.x0);
  const i = column.indexOf(from) + (key === 'ArrowDown' ? 1 : -1);
  return column[Math.max(0, Math.min(column.length - 1, i))];
}

const LABEL_HEIGHT = 11;

/** The nodes whose labels have room, those with the largest values first. */
function withLabels(nodes: Node[]): Set<Node> {
  const middle = (n: Node) => ((n.y0 ?? 0) + (n.y1 ?? 0)) / 2;
  const shown = new Set<Node>();
  for (const n of [...nodes].sort((a, b) => (b.value ?? 0) - (a.value ?? 0))) {
    const isFree = [...shown].every(
      (o) => o.x0 !== n.x0 || Math.abs(middle(o) - middle(n)) >= LABEL_HEIGHT,
    );
    if (isFree) shown.add(n);
  }
  return shown;
}

const KEYS = new Set(['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown', 'Home', 'End']);

function Drawing({ flows, show, onPick, width }: Props & { width: number }) {
  const [focused, setFocused] = useState<string | null>(null);
  const svg = useRef<SVGSVGElement>(null);
  dark.value;
  const c = colours();
  const narrow = width < 420;
  const layout = sankey<N, L>()
    .nodeId((n) => n.id)
    .nodeWidth(8)
    .nodePadding(7)
    // What has no parts (the model load) ends beside the parts of the rest, and crosses none of their flows.
    .nodeAlign(sankeyLeft)
    // null keeps the order in which the nodes are given.
    .nodeSort(null as never)
    .extent([
      [1, 4],
      [width - (narrow ? 74 : 148), HEIGHT - 4],
    ]);
  const { nodes, links } = layout({
    nodes: flows.nodes.map((n) => ({ ...n })),
    links: flows.links.map((l) => ({ source: l.from, target: l.to, value: l.value })),
  });
  const line = sankeyLinkHorizontal<N, L>();
  const labelled = withLabels(nodes);
  const total = nodes.filter((n) => !n.targetLinks?.length).reduce((a, n) => a + (n.value ?? 0), 0);
  const share = (v: number) => `${((100 * v) / total).toPrecision(3)} %`;
  const over = (e: PointerEvent, title: string, v: number) =>
    showTip(
      Sankey,
      {
        title,
        rows: [
          ['Value', show(v)],
          ['Of the run', share(v)],
        ],
      },
      e.clientX,
      e.clientY,
    );
  const name = (l: Link) => `${end(l.source).label} → ${end(l.target).label}`;
  /** Text alternative of the ribbons for screen readers: where the energy comes from and goes to. */
  const around = (n: Node): [string, string][] => [
    ...(n.targetLinks ?? []).map((l): [string, string] => [
      `From ${end(l.source).label}`,
      show(l.value),
    ]),
    ...(n.sourceLinks ?? []).map((l): [string, string] => [
      `To ${end(l.target).label}`,
      show(l.value),
    ]),
  ];
  const key = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === 'Enter' && focused !== null) {
      e.preventDefault();
      onPick?.(focused);
      return;
    }
    if (!KEYS.has(e.key)) return;
    const to = walk(
      nodes,
      nodes.find((n) => n.id === focused),
      e.key,
    );
    const box = svg.current?.getBoundingClientRect();
    if (!to || !box) return;
    e.preventDefault();
    e.stopPropagation();
    setFocused(to.id);
    const v = to.value ?? 0;
    const rows: [string, string][] = [['Value', show(v)], ['Of the run', share(v)], ...around(to)];
    showTip(
      Sankey,
      { title: to.label, rows: rows.slice(0, ROWS) },
      box.left + (to.x1 ?? 0),
      box.top + ((to.y0 ?? 0) + (to.y1 ?? 0)) / 2,
      true,
    );
  };
  return (
    <svg
      ref={svg}
      class="sankey"
      width={width}
      height={HEIGHT}
      viewBox={`0 0 ${width} ${HEIGHT}`}
      role="img"
      aria-label={`Sankey diagram: ${nodes
        .filter((n) => n.id.startsWith('part '))
        .map((n) => `${n.label} ${share(n.value ?? 0)}`)
        .join(', ')}.`}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: its nodes are walked with the arrow keys
      tabIndex={0}
      onKeyDown={key}
      onBlur={() => {
        setFocused(null);
        hideTip(Sankey);
      }}
      onPointerLeave={() => hideTip(Sankey)}
    >
      <g fill="none">
        {links.map((l) => (
          <path
            key={name(l)}
            class="flow"
            d={line(l) ?? ''}
            stroke={end(l.target).id === 'rest' ? c.text3 : end(l.target).colour}
            stroke-opacity="0.32"
            stroke-width={Math.max(0.5, l.width ?? 0)}
            onPointerMove={(e) => over(e, name(l), l.value)}
          >
            <title>{`${name(l)}: ${show(l.value)}`}</title>
          </path>
        ))}
      </g>
      {nodes.map((n) => {
        const h = Math.max(1, (n.y1 ?? 0) - (n.y0 ?? 0));
        return (
          // biome-ignore lint/a11y/noStaticElementInteractions: the diagram handles the keys, including Enter
          <g
            key={n.id}
            class="sankey-node"
            onPointerMove={(e) => over(e, n.label, n.value ?? 0)}
            onClick={() => onPick?.(n.id)}
          >
            <rect
              x={n.x0}
              y={n.y0}
              width={(n.x1 ?? 0) - (n.x0 ?? 0)}
              height={h}
              rx="1.5"
              fill={n.colour}
              stroke={n.id === focused ? c.text : undefined}
              stroke-width={n.id === focused ? 2 : undefined}
            >
              <title>{`${n.label}: ${show(n.value ?? 0)}`}</title>
            </rect>
            {labelled.has(n) && (
              <text
                x={(n.x1 ?? 0) + 5}
                y={((n.y0 ?? 0) + (n.y1 ?? 0)) / 2}
                dy="0.34em"
                font-size="11"
                font-family={c.font}
                fill={c.text}
                stroke={c.surface}
                stroke-width="3"
                paint-order="stroke"
              >
                {narrow && n.label.length > 11 ? `${n.label.slice(0, 10)}…` : n.label}
              </text>
            )}
          </g>
        );
      })}
    </svg>
  );
}
