// One run, taken apart. Panels are drawn when they come near the screen; all share the selection.
import { type ReadonlySignal, useComputed, useSignal, useSignalEffect } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { api } from '../../api/client';
import { Trouble } from '../../charts/panel';
import { takeKeys } from '../../state/keys';
import { finished } from '../../state/live';
import { stateOf, useResource } from '../../state/resource';
import { at, type Range, select, selection } from '../../state/selection';
import { HottestPanel, RooflinePanel } from './components';
import { useRun } from './data';
import { EfficiencyPanel, RunHead, SelectionBar } from './head';
import { HeatmapPanels, togglePlay } from './heatmap';
import { PowerPanel, SamplePanels } from './power';
import { StructurePanels } from './structure';
import { TimelinePanel } from './timeline';
import { AnomalyPanel, WaterfallPanel } from './tokens';

export function AnalysisView() {
  const id = at.run.value;
  if (id) return <Analysis key={id} id={id} />;
  return <Latest />;
}

/** Without a run in the address: the newest one. */
function Latest() {
  const res = useResource(`latest ${finished.value}`, (s) => api.runs({ limit: 1 }, s));
  const first = res.value.data?.runs[0];
  useEffect(() => {
    if (first) select({ run: first.id });
  }, [first]);
  const state = stateOf(res);
  if (state.kind === 'error') return <Trouble text={state.text} retry={state.retry} />;
  return (
    <div class="state">
      <h1>Analysis</h1>
      <p>
        {res.value.data
          ? 'No runs are stored yet. Start one in Live, or with perjoule run in a terminal.'
          : 'Loading…'}
      </p>
    </div>
  );
}

const SECTIONS = [
  ['time', 'Time'],
  ['layers', 'Layers'],
  ['structure', 'Structure'],
  ['tokens', 'Tokens'],
  ['efficiency', 'Efficiency'],
] as const;

function Analysis({ id }: { id: string }) {
  const data = useRun(id);
  const end = useComputed((): number | null => {
    const pipeline = data.pipeline.value.data;
    const total = pipeline?.total_duration_ms ?? data.summary.value.data?.total_duration_ms ?? null;
    return pipeline?.phases.reduce((a, p) => Math.max(a, p.end_ms), total ?? 0) ?? total;
  }).value;
  const full = useMemo((): Range => [0, Math.max(end ?? 0, 0.001)], [end]);
  useEffect(
    () =>
      takeKeys({
        full: () => (end ? full : null),
        focus: () => focusOf(data),
        play: togglePlay,
        step: (by) => {
          const n = data.tokens.value.data?.length ?? 0;
          if (n)
            select({
              token: Math.max(0, Math.min(n - 1, (at.token.peek() ?? (by > 0 ? -1 : n)) + by)),
            });
        },
      }),
    [id, full],
  );
  return (
    <div class="stack analysis">
      <RunHead data={data} />
      <nav class="subnav" aria-label="Parts of the analysis">
        {SECTIONS.map(([name, label]) => (
          <a
            key={name}
            href={`#${name}`}
            onClick={(e) => {
              e.preventDefault();
              document.getElementById(name)?.scrollIntoView({ block: 'start', behavior: 'smooth' });
            }}
          >
            {label}
          </a>
        ))}
      </nav>
      <div id="time" class="stack anchor">
        <TimelinePanel data={data} full={full} />
        <PowerPanel data={data} full={full} />
        <Near class="grid" height={300} calm={data.calm}>
          <SamplePanels data={data} full={full} />
        </Near>
      </div>
      <Near id="layers" class="grid anchor" height={420} calm={data.calm}>
        <HeatmapPanels data={data} />
      </Near>
      <Near id="structure" class="grid anchor" height={600} calm={data.calm}>
        <StructurePanels data={data} />
      </Near>
      <Near id="tokens" class="stack anchor" height={320} calm={data.calm}>
        <WaterfallPanel data={data} />
      </Near>
      <Near id="efficiency" class="grid anchor" height={700} calm={data.calm}>
        <HottestPanel data={data} />
        <RooflinePanel data={data} />
        <EfficiencyPanel data={data} />
        <AnomalyPanel data={data} />
      </Near>
      <SelectionBar data={data} />
    </div>
  );
}

/** Children are made when they come near the screen; what is far away costs nothing. Until what is
 * first looked at has come, only those on the screen itself are. */
function Near(props: {
  id?: string;
  class: string;
  height: number;
  calm: ReadonlySignal<boolean>;
  children: ComponentChildren;
}) {
  const near = useSignal(false);
  const box = useRef<HTMLDivElement>(null);
  useSignalEffect(() => {
    const el = box.current;
    if (!el || near.value) return;
    el.style.minHeight = `${props.height}px`;
    const o = new IntersectionObserver(
      (seen) => {
        if (!seen.some((e) => e.isIntersecting)) return;
        near.value = true;
        el.style.minHeight = '';
      },
      { rootMargin: props.calm.value ? '600px' : '0px 0px -120px' },
    );
    o.observe(el);
    return () => o.disconnect();
  });
  return (
    <div ref={box} id={props.id} class={props.class}>
      {near.value && props.children}
    </div>
  );
}

/** The stretch of time that the selection covers, with a little air. */
function focusOf(data: ReturnType<typeof useRun>): Range | null {
  const s = selection.peek();
  const t = s.token !== null ? data.tokens.peek().data?.find((x) => x.token === s.token) : null;
  const p = s.phase ? data.pipeline.peek().data?.phases.find((x) => x.phase === s.phase) : null;
  const span = t ? [t.start_ms, t.start_ms + t.duration_ms] : p ? [p.start_ms, p.end_ms] : null;
  if (!span) return null;
  const air = (span[1] - span[0]) * 0.08;
  return [Math.max(0, span[0] - air), span[1] + air];
}
