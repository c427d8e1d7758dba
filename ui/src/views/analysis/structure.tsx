// Where the energy sits: treemap and icicle of phase, layer, component, operation; Sankey of attention
// against MLP. The zoom is the selection, so that it is in the address.
import { signal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { api } from '../../api/client';
import type { TreeNode } from '../../api/types';
import { Canvas, Legend, type LegendItem, Panel } from '../../charts/panel';
import { PART_LABEL, type Part, partColour } from '../../charts/parts';
import { Sankey } from '../../charts/sankey';
import { colours, PHASE_LABEL, PHASES } from '../../charts/theme';
import { Icicle, type Placed, pathOf, type TreeChart, Treemap } from '../../charts/tree';
import { energy, time } from '../../core/format';
import type { Cell } from '../../core/table';
import { Segmented } from '../../parts/segmented';
import { stateOf, useResource } from '../../state/resource';
import { select, selection } from '../../state/selection';
import { dark, unit } from '../../state/settings';
import type { RunData } from './data';
import { flows, sankeyPng, sankeyRows } from './flows';

type TreeMetric = 'energy' | 'time';
const metric = signal<TreeMetric>('energy');

/** The selection as a path of names in the tree. */
function path(): string[] {
  const { phase, layer, component } = selection.value;
  if (!phase) return [];
  const out = [phase];
  if (layer !== null && layer >= 0) out.push(`layer ${layer}`);
  if (component !== null) out.push(component);
  return out;
}

/** A click goes one level deeper towards what was clicked; on the zoomed node itself, one back. */
function zoomTo(n: Placed | null): void {
  if (!n) return;
  const here = path();
  const to = pathOf(n.data.rest && n.parent ? n.parent : n);
  const inside = here.every((name, i) => to[i] === name);
  const next = inside
    ? to.length > here.length
      ? to.slice(0, here.length + 1)
      : here.slice(0, -1)
    : to;
  const at = n.ancestors().reverse();
  const nodes = at.slice(1, next.length + 1).map((a) => a.data.node);
  const layer = nodes.find((x) => x.kind === 'layer')?.layer ?? null;
  const component = nodes.find((x) => x.kind === 'component')?.name ?? null;
  select({ phase: next[0] ?? null, layer, component });
}

export function StructurePanels({ data }: { data: RunData }) {
  const map = useRef<Treemap | null>(null);
  const ice = useRef<Icicle | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const energyless = data.summary.value.data?.energy_source === 'unavailable';
  const m: TreeMetric = energyless ? 'time' : metric.value;
  const res = useResource(data.summary.value.data ? `tree ${data.id} ${m}` : null, (s) =>
    api.tree(data.id, { metric: m }, s),
  );
  const root = res.value.data?.root ?? null;
  const show = (v: number) => (m === 'time' ? time(v) : energy(v, unit.peek()));
  const here = path();
  const state = data.summary.value.data
    ? stateOf(res, (t) =>
        t.root.children?.length && t.root.value
          ? null
          : 'This run recorded nothing below its phases.',
      )
    : ({ kind: 'loading' } as const);
  const levels = root ? depthOf(root) : 4;
  useEffect(() => {
    box.current?.style.setProperty('--h', `${Icicle.height(levels)}px`);
  }, [levels, state.kind]);
  dark.value;
  const rows = useMemo(() => (root ? flatten(root) : []), [root]);
  const table = () => ({
    columns: [
      'path',
      'kind',
      m === 'time' ? 'time_ms' : 'energy_mj',
      'self',
      'time_ms',
      'energy_mj',
    ],
    rows,
  });
  const note = `${m === 'time' ? 'Time' : 'Energy'} by phase, layer, component, operation.`;
  const treeProps = (name: string) => ({
    name,
    label: root ? describe(root, show) : 'Energy tree',
    update: (c: TreeChart) => {
      if (root) c.set(root, here, show);
    },
  });
  const picker = !energyless && (
    <Segmented
      label="Size by"
      value={m}
      options={[
        ['energy', 'Energy'],
        ['time', 'Time'],
      ]}
      onChange={(v) => {
        metric.value = v;
      }}
    />
  );
  const make =
    <C extends TreeChart>(kind: new (host: HTMLElement) => C) =>
    (host: HTMLElement) => {
      const c = new kind(host);
      c.onPick = zoomTo;
      return c;
    };
  return (
    <>
      <Panel
        class="span-7"
        title="Treemap"
        note={`${note} Click to zoom in, on the trail to zoom out.`}
        actions={picker}
        state={state}
        legend={
          <>
            <Trail path={here} />
            <Legend items={partItems()} />
          </>
        }
        table={table}
        png={async () => (await map.current?.png()) ?? null}
      >
        <Canvas class="h-tree" {...treeProps('treemap')} handle={map} make={make(Treemap)} />
      </Panel>
      <Panel
        class="span-5"
        title="Attention against MLP"
        note={`${m === 'time' ? 'Time' : 'Energy'} as it flows from phases through the layers into components.`}
        state={state}
        legend={<Legend items={partItems()} />}
        table={() => ({
          columns: ['from', 'to', m === 'time' ? 'time_ms' : 'energy_mj'],
          rows: root ? sankeyRows(root) : [],
        })}
        png={() => sankeyPng()}
      >
        {root && <Sankey flows={flows(root)} show={show} />}
      </Panel>
      <Panel
        class="span-12"
        title="Icicle"
        note={`${note} Same data and zoom as the treemap; widths can be compared.`}
        state={state}
        legend={<Legend items={partItems(true)} />}
        table={table}
        png={async () => (await ice.current?.png()) ?? null}
      >
        <div ref={box} class="h-var">
          <Canvas class="fill" {...treeProps('icicle')} handle={ice} make={make(Icicle)} />
        </div>
      </Panel>
    </>
  );
}

function partItems(phases = false): LegendItem[] {
  const c = colours();
  const parts = (Object.keys(PART_LABEL) as Part[]).map((p) => ({
    label: PART_LABEL[p],
    colour: partColour(p),
  }));
  const ph = PHASES.slice(1).map((p) => ({ label: PHASE_LABEL[p], colour: c.phase[p] }));
  return [
    ...parts,
    ...(phases ? ph : []),
    { label: 'Unattributed', colour: c.text3, kind: 'hatch' },
  ];
}

function Trail({ path: names }: { path: string[] }) {
  const steps = [{ phase: null, layer: null, component: null }];
  return (
    <nav class="trail" aria-label="Zoom">
      <button type="button" class="tool" onClick={() => select(steps[0])}>
        Run
      </button>
      {names.map((name, i) => (
        <button
          type="button"
          class="tool"
          key={name}
          aria-current={i === names.length - 1 ? 'true' : undefined}
          onClick={() =>
            select({
              phase: names[0],
              ...(i < 1 ? { layer: null } : {}),
              ...(i < names.length - 1 ? { component: null } : {}),
            })
          }
        >
          › {PHASE_LABEL[name] ?? name}
        </button>
      ))}
    </nav>
  );
}

function depthOf(n: TreeNode): number {
  return 1 + Math.max(0, ...(n.children ?? []).map(depthOf));
}

function flatten(root: TreeNode): Cell[][] {
  const out: Cell[][] = [];
  const walk = (n: TreeNode, trail: string[]) => {
    out.push([trail.join('/') || 'run', n.kind, n.value, n.self, n.time_ms, n.energy_mj]);
    for (const c of n.children ?? []) walk(c, [...trail, c.name]);
  };
  walk(root, []);
  return out;
}

function describe(root: TreeNode, show: (v: number) => string): string {
  const parts = (root.children ?? []).map(
    (p) => `${PHASE_LABEL[p.name] ?? p.name} ${show(p.value ?? 0)}`,
  );
  return `Energy tree of the run, ${show(root.value ?? 0)} in all: ${parts.join(', ')}.`;
}
