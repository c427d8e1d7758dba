// The structure of the energy: icicle, treemap and Sankey diagram of phase, layer, component and
// operation. Zooming sets the scope, so that it is part of the URL and filters all other panels.
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { api } from '../../api/client';
import type { TreeNode } from '../../api/types';
import { Canvas, Legend, type LegendItem, Panel, type PanelState } from '../../charts/panel';
import { nodePart, PART_LABEL, type Part, partColour } from '../../charts/parts';
import { Sankey } from '../../charts/sankey';
import { colours, PHASES, phaseLabel } from '../../charts/theme';
import { Icicle, isRest, type Placed, pathOf, type TreeChart, Treemap } from '../../charts/tree';
import { energy, known, time } from '../../core/format';
import type { Cell } from '../../core/table';
import { Segmented } from '../../parts/segmented';
import { stateOf, useResource } from '../../state/resource';
import { hasSelection, select, selection, without } from '../../state/selection';
import { dark, unit } from '../../state/settings';
import type { RunData } from './data';
import { flows, sankeyPng, sankeyRows } from './flows';
import { cubesState } from './heatmap';
import { isTimed, mergeLayers, type Scope, tree, within, withoutLoad, withSections } from './scope';

/** Icicle and treemap zoom to a phase and what lies in it; any other part of the model is cut out instead. */
const isZoom = (s: Scope & { apart: boolean }): boolean =>
  (s.layer === null && s.component === null) ||
  (s.phase !== null && (!s.apart || s.layer !== null));

type TreeMetric = 'energy' | 'time';

/** The selection as a path of names in the tree. */
function path(apart: boolean): string[] {
  const { phase, layer, component } = selection.value;
  if (!phase) return [];
  const out = [phase];
  if (apart && layer !== null && layer >= 0) out.push(`layer ${layer}`);
  if (component !== null) out.push(component);
  return out;
}

/** A click zooms to the clicked node; on the zoomed node itself or what it lies in, out of it. */
function zoomTo(n: Placed | null): void {
  if (!n) return;
  const apart = selection.peek().apart;
  const here = path(apart);
  const to = pathOf(n.data.rest && n.parent ? n.parent : n);
  const inside = here.every((name, i) => to[i] === name);
  const next = inside ? (to.length > here.length ? to : here.slice(0, -1)) : to;
  const at = n.ancestors().reverse();
  const nodes = at.slice(1, next.length + 1).map((a) => a.data.node);
  const layer = nodes.find((x) => x.kind === 'layer')?.layer ?? null;
  const component = nodes.find((x) => x.kind === 'component')?.name ?? null;
  select({ phase: next[0] ?? null, ...(apart ? { layer } : {}), component });
}

/** The tree of the scope: from the server with operations for the whole run; summed here down to components
 * for a narrower scope. */
function useTree(data: RunData) {
  const s = selection.value;
  // Without a total, as in a run whose sensor readings end before it does, energies have no whole to be parts of.
  const energyless = !known(data.summary.value.data?.total_energy_mj);
  const m: TreeMetric = energyless ? 'time' : s.size;
  const narrow =
    isTimed(s) || (s.net && !energyless && m === 'energy') || (!s.apart && s.layer !== null);
  const there = data.summary.value.data !== null;
  const d = without.value;
  const res = useResource(
    there && !narrow ? `tree ${data.id} ${m} ${d.disturbances ?? ''}` : null,
    (x) => api.tree(data.id, { metric: m, ...d }, x),
  );
  const held = data.inScope.value;
  const phases = data.pipeline.value.data?.phases;
  const cut = isZoom(s) ? null : `${s.layer} ${s.component}`;
  const root = useMemo((): TreeNode | null => {
    const ofScope = (x: TreeNode | null) => x && { ...x, name: 'scope' };
    // Sections are known by phase, and not by token or layer.
    const filled = (x: TreeNode | null) => x && (phases ? withSections(x, phases, m, s.net) : x);
    if (narrow) {
      const sum = held && tree({ ...held, metric: m }, !s.apart);
      return isTimed(s) || held?.partial ? ofScope(sum) : filled(sum);
    }
    const whole = res.value.data?.root ?? null;
    const seen = filled(whole && (s.apart ? whole : mergeLayers(whole)));
    return seen && cut ? ofScope(within(seen, { ...s, layer: s.apart ? s.layer : null })) : seen;
  }, [narrow, held, res.value.data, phases, s.apart, m, s.net, cut]);
  // A look at the load itself is at all of it.
  const request = root && s.phase !== 'pre_inference' ? withoutLoad(root) : null;
  const empty = (n: TreeNode) =>
    n.children?.length && n.value && !(narrow && !n.children.some((p) => p.children?.length))
      ? null
      : narrow
        ? 'Nothing of the model was recorded in this part of the run.'
        : 'This run recorded nothing below its phases.';
  const state: PanelState = root
    ? (() => {
        const none = empty(root);
        return none ? { kind: 'empty', text: none } : { kind: 'ready' };
      })()
    : narrow
      ? cubesState(data)
      : there
        ? stateOf(res)
        : { kind: 'loading' };
  return {
    root: s.loading ? root : (request ?? root),
    canLoad: request !== null,
    m,
    narrow,
    state,
    energyless,
  };
}

/** A node of the Sankey diagram narrows the scope to its phase or component. */
function pickFlow(id: string): void {
  const [kind, ...name] = id.split(' ');
  const of = name.join(' ');
  if (kind === 'phase') select({ phase: of });
  else if (kind === 'comp') select({ component: of });
}

const NOTE = 'phase, section, layer, component, operation';

export function TreePane({ data, kind }: { data: RunData; kind: 'icicle' | 'treemap' | 'sankey' }) {
  const map = useRef<Treemap | null>(null);
  const ice = useRef<Icicle | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const { root, canLoad, m, narrow, state, energyless } = useTree(data);
  const s = selection.value;
  const show = (v: number) => (m === 'time' ? time(v) : energy(v, unit.peek()));
  const here = path(s.apart);
  const levels = root ? depthOf(root) : 4;
  useEffect(() => {
    box.current?.style.setProperty('--h', `${Icicle.height(levels)}px`);
  }, [levels, state.kind, kind]);
  dark.value;
  const unitName = m === 'time' ? 'time_ms' : 'energy_mj';
  const valueName = m === 'time' ? 'value_ms' : 'value_mj';
  const table = () => ({
    columns: ['path', 'kind', valueName, `self_${valueName}`, 'time_ms', 'energy_mj'],
    rows: root ? flatten(root) : [],
  });
  const what = m === 'time' ? 'Time' : s.net ? 'Energy above idle' : 'Energy';
  const note = `${what} by ${narrow ? `phase, ${isTimed(s) ? '' : 'section, '}${s.apart ? 'layer, ' : ''}component` : s.apart ? NOTE : 'phase, section, component (all layers together), operation'}${canLoad && !s.loading ? ', without loading the model' : ''}${hasSelection.value ? ', within the scope' : ''}.`;
  const props = {
    label: root ? describe(root, show) : 'Energy tree',
    update: (c: TreeChart) => {
      if (root) c.set(root, here, show);
    },
  };
  const make =
    <C extends TreeChart>(type: new (host: HTMLElement) => C) =>
    (host: HTMLElement) => {
      const c = new type(host);
      c.onPick = zoomTo;
      return c;
    };
  const actions = (
    <>
      {canLoad && (
        <Segmented
          label="Model load"
          value={s.loading ? 'with' : 'without'}
          options={[
            ['without', 'Request'],
            ['with', 'With model load'],
          ]}
          onChange={(v) => select({ loading: v === 'with' })}
        />
      )}
      <Segmented
        label="Layers"
        value={s.apart ? 'apart' : 'merged'}
        options={[
          ['merged', 'Merged'],
          ['apart', 'Layers apart'],
        ]}
        onChange={(v) => select({ apart: v === 'apart' })}
      />
      {!energyless && (
        <Segmented
          label="Size by"
          value={m}
          options={[
            ['energy', 'Energy'],
            ['time', 'Time'],
          ]}
          onChange={(v) => select({ size: v })}
        />
      )}
    </>
  );
  // Icicle and treemap zoom to the scope; the Sankey diagram shows only the flows within it.
  const shown =
    root &&
    within(root, { phase: s.phase, layer: s.apart ? s.layer : null, component: s.component });
  const common = { class: 'bare', note, state, actions };
  if (kind === 'sankey')
    return (
      <Panel
        {...common}
        title="Sankey"
        legend={<Legend items={partItems(shown)} />}
        table={() => ({ columns: ['from', 'to', unitName], rows: shown ? sankeyRows(shown) : [] })}
        png={() => sankeyPng()}
      >
        {shown && <Sankey flows={flows(shown)} show={show} onPick={pickFlow} />}
      </Panel>
    );
  if (kind === 'treemap')
    return (
      <Panel
        {...common}
        title="Treemap"
        legend={<Legend items={partItems(shown)} />}
        table={table}
        png={async () => (await map.current?.png()) ?? null}
      >
        <Canvas class="h-tree" name="treemap" {...props} handle={map} make={make(Treemap)} />
      </Panel>
    );
  return (
    <Panel
      {...common}
      title="Icicle"
      legend={<Legend items={partItems(shown, true)} />}
      table={table}
      png={async () => (await ice.current?.png()) ?? null}
    >
      <div ref={box} class="h-var">
        <Canvas class="fill" name="icicle" {...props} handle={ice} make={make(Icicle)} />
      </div>
    </Panel>
  );
}

/** What a tree has of each kind that a colour stands for. */
function drawn(root: TreeNode): Set<string> {
  const seen = new Set<string>();
  const walk = (n: TreeNode, parents: TreeNode[]) => {
    if (!((n.value ?? 0) > 0)) return;
    const part = nodePart(n, parents);
    if (part) seen.add(part);
    else if (n.kind === 'phase' || n.kind === 'disturbed') seen.add(n.kind + n.name);
    if (n.children?.length && isRest(n.self, root.value)) seen.add('rest');
    for (const c of n.children ?? []) walk(c, [...parents, n]);
  };
  walk(root, []);
  return seen;
}

function partItems(root: TreeNode | null, phases = false): LegendItem[] {
  const c = colours();
  const seen = root ? drawn(root) : new Set<string>();
  const parts = (Object.keys(PART_LABEL) as Part[])
    .filter((p) => seen.has(p))
    .map((p) => ({ label: PART_LABEL[p], colour: partColour(p) }));
  const ph = PHASES.filter((p) => seen.has(`phase${p}`)).map((p) => ({
    label: phaseLabel(p),
    colour: c.phase[p],
  }));
  return [
    ...parts,
    ...(phases ? ph : []),
    ...(seen.has('disturbeddisturbed') ? [{ label: 'Disturbed', colour: c.danger }] : []),
    ...(seen.has('rest')
      ? [{ label: 'Unattributed', colour: c.text3, kind: 'hatch' as const }]
      : []),
  ];
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
  const parts = (root.children ?? []).map((p) => `${phaseLabel(p.name)} ${show(p.value ?? 0)}`);
  return `Energy tree of the run, ${show(root.value ?? 0)} in all: ${parts.join(', ')}.`;
}
