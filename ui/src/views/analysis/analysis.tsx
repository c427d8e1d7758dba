// The analysis of one run: the verdict, and below it a workspace whose panels share one scope.
import { signal, useComputed } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { api } from '../../api/client';
import { isStored } from '../../api/early';
import { REPORT } from '../../api/inlined';
import { Trouble } from '../../charts/panel';
import { programs } from '../../charts/theme';
import { isProgram } from '../../core/run_energy';
import { takeKeys } from '../../state/keys';
import { finished } from '../../state/live';
import { stateOf, useResource } from '../../state/resource';
import {
  at,
  follow,
  href,
  PANES,
  type Pane,
  type Range,
  select,
  selection,
  settle,
} from '../../state/selection';
import { still } from '../../state/settings';
import { ComponentsPanel } from './components';
import { useDrawn, useRun } from './data';
import { Details, ScopeBar } from './details';
import { ExpertsPane } from './experts';
import { EfficiencyPanel, RunHead } from './head';
import { HeatmapPane, playing, togglePlay } from './heatmap';
import { OutlookPanel } from './outlook';
import { SamplePanels } from './power';
import { RailsPane } from './rails';
import { RooflinePanel } from './roofline';
import { stepFrom, tokensOf } from './scope';
import { SpansPane } from './span_table';
import { TreePane } from './structure';
import { TimelinePanel } from './timeline';
import { AnomalyPanel, MapPane, TokensPane } from './tokens';
import { Verdict } from './verdict';

/** Incremented when the awaited run has ended. */
const again = signal(0);

export function AnalysisView() {
  const id = at.run.value;
  if (id) return <Analysis key={`${id} ${again.value}`} id={id} />;
  return <Latest />;
}

/** The newest run, if the URL names none. */
function Latest() {
  const res = useResource(`latest ${finished.value}`, (s) => api.runs({ limit: 1 }, s));
  const first = res.value.data?.runs[0];
  useEffect(() => {
    if (first) settle({ run: first.id });
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

const LABEL: Record<Pane, string> = {
  icicle: 'Icicle',
  treemap: 'Treemap',
  sankey: 'Sankey',
  heatmap: 'Heatmap',
  tokens: 'Tokens',
  map: 'Token × layer',
  spans: 'Spans',
  roofline: 'Roofline',
  rails: 'Rails',
  samples: 'Power samples',
  experts: 'Experts',
  figures: 'All figures',
};

/** Panes that always show the whole run, and are labelled accordingly. */
const WHOLE: ReadonlySet<Pane> = new Set(['roofline', 'rails', 'experts', 'figures']);

type Data = ReturnType<typeof useRun>;

const STEP_MS = 120;

/** Plays back the tokens of the run one after another. */
function usePlayer(data: Data): void {
  const tokens = data.tokens.value.data;
  const n = tokens?.length ?? 0;
  useEffect(() => {
    if (!playing.value || n === 0) return;
    const timer = setInterval(
      () => {
        const now = at.token.peek();
        const next = stepFrom(tokensOf(tokens ?? [], at.sequence.peek()), now, 1);
        if (next === now || next === null) playing.value = false;
        else select({ token: next });
      },
      still.value ? STEP_MS * 4 : STEP_MS,
    );
    return () => clearInterval(timer);
  }, [playing.value, n]);
  useEffect(
    () => () => {
      playing.value = false;
    },
    [],
  );
}

function useTimeKeys(data: Data, full: Range, end: number | null): void {
  useEffect(
    () =>
      takeKeys({
        full: () => (end ? full : null),
        focus: () => focusOf(data),
        play: togglePlay,
        step: (by) => {
          const list = tokensOf(data.tokens.value.data ?? [], at.sequence.peek());
          const token = stepFrom(list, at.token.peek(), by);
          if (token !== null) select({ token });
        },
      }),
    [data.id, full],
  );
}

function Analysis({ id }: { id: string }) {
  const data = useRun(id);
  const end = useComputed((): number | null => {
    const pipeline = data.pipeline.value.data;
    const total = pipeline?.total_duration_ms ?? data.summary.value.data?.total_duration_ms ?? null;
    return pipeline?.phases.reduce((a, p) => Math.max(a, p.end_ms), total ?? 0) ?? total;
  }).value;
  const full = useMemo((): Range => [0, Math.max(end ?? 0, 0.001)], [end]);
  useTimeKeys(data, full, end);
  usePlayer(data);
  const summary = data.summary.value.data;
  useEffect(() => {
    programs.value = !!summary && isProgram(summary);
  }, [summary]);
  const { error } = data.summary.value;
  if (error !== null) return <Missing data={data} error={error} />;
  if (summary && !isStored(summary)) return <Unfinished id={id} status={summary.status} />;
  return (
    <div class="stack analysis">
      <RunHead data={data} />
      <Verdict data={data} />
      <ScopeBar data={data} />
      <TimelinePanel data={data} full={full} />
      <Workspace data={data} full={full} />
    </div>
  );
}

/** Structure and details below the timeline, created after its first paint in reserved space. */
function Workspace({ data, full }: { data: Data; full: Range }) {
  if (!useDrawn(data.calm)) return <div class="workspace to-come" />;
  return (
    <div class="workspace">
      {REPORT ? <Sections data={data} full={full} /> : <Structure data={data} full={full} />}
      <Details data={data} />
    </div>
  );
}

/** The panes of a report, one below the other: it is read and printed as a whole. */
function Sections({ data, full }: { data: Data; full: Range }) {
  const panes = PANES.filter(
    (p) => p !== 'treemap' && p !== 'spans' && (p !== 'experts' || isMixture(data)),
  );
  return (
    <div class="stack">
      {panes.map((p) => (
        <section class="panel section" aria-label={LABEL[p]} key={p}>
          <LabelledPane data={data} full={full} pane={p} />
        </section>
      ))}
    </div>
  );
}

const SOON_MS = 1500;

/** One message for a missing run, instead of one in each panel. A run that is being recovered comes by itself. */
function Missing({ data, error }: { data: Data; error: string }) {
  const { soon, loading } = data.summary.value;
  useEffect(() => {
    if (!soon || loading) return;
    const timer = setTimeout(data.summary.retry, SOON_MS);
    return () => clearTimeout(timer);
  }, [soon, loading]);
  return (
    <div class="stack analysis">
      <h1>Analysis</h1>
      <Trouble text={error} retry={data.summary.retry} />
      <p class="row center">
        <a
          class="btn"
          href={href({ view: 'history', run: null })}
          onClick={(e) => follow(e, 'history', { run: null })}
        >
          All runs
        </a>
      </p>
    </div>
  );
}

/** The rows of a run are available once it has ended. */
function Unfinished({ id, status }: { id: string; status: string }) {
  useEffect(() => {
    const first = finished.peek();
    return finished.subscribe((n) => {
      if (n !== first) again.value++;
    });
  }, [id]);
  return (
    <div class="state">
      <h1>{status === 'queued' ? 'This run waits in the queue' : 'This run goes on'}</h1>
      <p>Its figures are stored at its end and appear here then.</p>
      <a
        class="btn primary"
        href={href({ view: 'live', run: null })}
        onClick={(e) => follow(e, 'live', { run: null })}
      >
        Watch it in Live
      </a>
    </div>
  );
}

function Structure({ data, full }: { data: Data; full: Range }) {
  const pane = at.pane.value;
  const has = (p: Pane) => hasPane(data, p);
  const panes = PANES.filter((p) => has(p) || p === pane);
  const walk = (e: KeyboardEvent) => {
    const by = e.key === 'ArrowRight' ? 1 : e.key === 'ArrowLeft' ? -1 : 0;
    if (!by) return;
    e.preventDefault();
    const to = panes[(panes.indexOf(pane) + by + panes.length) % panes.length];
    select({ pane: to });
    document.getElementById(`tab-${to}`)?.focus();
  };
  return (
    <section class="panel structure" aria-label="Structure">
      <div class="tabs" role="tablist" aria-label="What to show" onKeyDown={walk}>
        {panes.map((p) => (
          <button
            type="button"
            role="tab"
            id={`tab-${p}`}
            key={p}
            aria-selected={p === pane}
            aria-controls="pane"
            tabIndex={p === pane ? 0 : -1}
            onClick={() => select({ pane: p })}
          >
            {LABEL[p]}
          </button>
        ))}
      </div>
      <div id="pane" role="tabpanel" aria-labelledby={`tab-${pane}`}>
        <LabelledPane data={data} full={full} pane={pane} />
      </div>
    </section>
  );
}

function LabelledPane(props: { data: Data; full: Range; pane: Pane }) {
  return (
    <>
      {hasScope() && WHOLE.has(props.pane) && !(props.pane === 'roofline' && isPhaseAlone()) && (
        <p class="whole-run">
          <span class="badge">whole run</span> This view does not follow the scope.
        </p>
      )}
      {selection.value.calm && props.pane === 'samples' && (
        <p class="whole-run">
          <span class="badge">as measured</span> Readings of power are with disturbances.
        </p>
      )}
      <PaneOf {...props} />
    </>
  );
}

function PaneOf({ data, full, pane }: { data: Data; full: Range; pane: Pane }) {
  switch (pane) {
    case 'icicle':
    case 'treemap':
    case 'sankey':
      return <TreePane key={pane} data={data} kind={pane} />;
    case 'heatmap':
      return <HeatmapPane data={data} />;
    case 'tokens':
      return <TokensPane data={data} />;
    case 'map':
      return <MapPane data={data} />;
    case 'spans':
      return <SpansPane data={data} full={full} />;
    case 'roofline':
      return <RooflinePanel data={data} />;
    case 'rails':
      return <RailsPane data={data} />;
    case 'samples':
      return (
        <div class="stack">
          <SamplePanels data={data} full={full} />
        </div>
      );
    case 'experts':
      return <ExpertsPane data={data} />;
    case 'figures':
      return (
        <div class="stack">
          <EfficiencyPanel data={data} />
          <OutlookPanel data={data} />
          <ComponentsPanel data={data} />
          <AnomalyPanel data={data} />
        </div>
      );
  }
}

/** Panes of what a run did not record have no tab; an address opens them still, and they say what is missing. */
function hasPane(data: Data, pane: Pane): boolean {
  const s = data.summary.value.data;
  switch (pane) {
    case 'experts':
      return isMixture(data);
    case 'heatmap':
    case 'map':
    case 'roofline':
    case 'sankey':
    case 'spans':
      return !s || s.components.length > 0;
    case 'tokens':
      return !s || (s.counts?.tokens ?? 0) > 0;
    default:
      return true;
  }
}

const hasScope = (): boolean => {
  const s = selection.value;
  return (
    !!(s.range || s.phase || s.component) ||
    s.token !== null ||
    s.layer !== null ||
    s.sequence !== null
  );
};

/** The roofline has the prompt and decoding apart. */
const isPhaseAlone = (): boolean => {
  const { range, phase, token, sequence, layer, component } = selection.value;
  const others = range !== null || token !== null || sequence !== null || layer !== null;
  return (phase === 'prefill' || phase === 'decode') && !others && component === null;
};

const isMixture = (data: Data): boolean =>
  (data.summary.value.data?.components ?? []).some((c) =>
    /^(router|experts?)/.test(c.component_name),
  );

/** The time range of the selection, with a small margin. */
function focusOf(data: Data): Range | null {
  const s = selection.peek();
  const t = s.token !== null ? data.tokens.peek().data?.find((x) => x.token === s.token) : null;
  const p = s.phase ? data.pipeline.peek().data?.phases.find((x) => x.phase === s.phase) : null;
  const span = t ? [t.start_ms, t.start_ms + t.duration_ms] : p ? [p.start_ms, p.end_ms] : null;
  if (!span) return null;
  const air = (span[1] - span[0]) * 0.08;
  return [Math.max(0, span[0] - air), span[1] + air];
}
