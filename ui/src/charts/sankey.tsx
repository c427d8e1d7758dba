// A Sankey diagram as SVG: some sixty nodes, each with a title that screen readers can read.
import { type SankeyLink, type SankeyNode, sankey, sankeyLinkHorizontal } from 'd3-sankey';
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

export function Sankey({ flows, show }: { flows: Flows; show: (v: number) => string }) {
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
      {width > 0 && <Drawing flows={flows} show={show} width={width} />}
    </div>
  );
}

function Drawing({
  flows,
  show,
  width,
}: {
  flows: Flows;
  show: (v: number) => string;
  width: number;
}) {
  dark.value;
  const c = colours();
  const narrow = width < 420;
  const layout = sankey<N, L>()
    .nodeId((n) => n.id)
    .nodeWidth(8)
    .nodePadding(7)
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
  const end = (n: unknown): SankeyNode<N, L> => n as SankeyNode<N, L>;
  const name = (l: SankeyLink<N, L>) => `${end(l.source).label} → ${end(l.target).label}`;
  return (
    <svg
      class="sankey"
      width={width}
      height={HEIGHT}
      viewBox={`0 0 ${width} ${HEIGHT}`}
      role="img"
      aria-label={`Sankey diagram: ${nodes
        .filter((n) => n.id.startsWith('part '))
        .map((n) => `${n.label} ${share(n.value ?? 0)}`)
        .join(', ')}.`}
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
        const room = h >= 9;
        return (
          <g key={n.id} onPointerMove={(e) => over(e, n.label, n.value ?? 0)}>
            <rect
              x={n.x0}
              y={n.y0}
              width={(n.x1 ?? 0) - (n.x0 ?? 0)}
              height={h}
              rx="1.5"
              fill={n.colour}
            >
              <title>{`${n.label}: ${show(n.value ?? 0)}`}</title>
            </rect>
            {room && (
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
