// Compares two to four runs side by side. The first run is the baseline, which can be changed.
import { useEffect } from 'preact/hooks';
import { api } from '../../api/client';
import { REPORT } from '../../api/inlined';
import { Trouble } from '../../charts/panel';
import { phaseLabel, programs } from '../../charts/theme';
import { isProgram } from '../../core/run_energy';
import { WithoutDisturbances } from '../../parts/without';
import { stateOf, useResource } from '../../state/resource';
import { at, COMPARED, follow, href, select, selection, without } from '../../state/selection';
import { AlignedPanel } from './aligned';
import { Cards } from './cards';
import { ChooseRuns } from './choose';
import { TestsPanel } from './differences';
import { GroupChooser, GroupComparison } from './groups';
import { MetricsPanel } from './metrics';
import { Overlays } from './overlays';
import { Pareto } from './pareto';
import { PartsPanel } from './parts';
import { RatiosPanel } from './ratios';
import { StepsPanel } from './steps';
import { SettingsPanel, VerdictPanel } from './verdict';
import { WhyPanel } from './why';

export function CompareView() {
  const ids = at.ids.value.slice(0, COMPARED);
  if (selection.value.by)
    return (
      <div class="stack">
        <div class="row">
          <h1>Compare</h1>
          <span class="spacer" />
          <WithoutDisturbances />
          <GroupChooser />
        </div>
        <GroupComparison />
      </div>
    );
  if (ids.length < 2) {
    return (
      <div class="stack">
        <div class="row">
          <h1>Compare</h1>
          <span class="spacer" />
          <GroupChooser />
        </div>
        <ChooseRuns />
      </div>
    );
  }
  return <Comparison key={ids.join()} ids={ids} />;
}

function Comparison({ ids }: { ids: string[] }) {
  const q = without.value;
  const res = useResource(`compare ${ids.join()} ${q.disturbances ?? ''}`, (s) =>
    api.compare(ids, s, q),
  );
  const d = res.value.data;
  const state = stateOf(res);
  useEffect(() => {
    programs.value = !!d?.runs.every(isProgram);
  }, [d]);
  return (
    <div class="stack">
      <div class="row">
        <h1>Compare</h1>
        <span class="spacer" />
        {!REPORT && <WithoutDisturbances />}
        {!REPORT && <GroupChooser />}
        <label class="check">
          <input
            type="checkbox"
            checked={selection.value.diff}
            onChange={(e) => select({ diff: e.currentTarget.checked })}
          />
          Only differences
        </label>
        {!REPORT && (
          <a class="btn" href={href({ view: 'history' })} onClick={(e) => follow(e, 'history')}>
            Choose runs
          </a>
        )}
      </div>
      {state.kind === 'error' && <Trouble text={state.text} retry={state.retry} />}
      {state.kind === 'loading' && <div class="panel state skeleton">Loading…</div>}
      {d && (
        <>
          <Cards runs={d.runs} />
          <SettingsPanel d={d} />
          <VerdictPanel d={d} />
          {d.runs.length === 2 && <WhyPanel a={d.runs[0].id} b={d.runs[1].id} />}
          {d.decomposition.map((x) => (
            <StepsPanel key={x.b} d={d} x={x} />
          ))}
          <div class="grid">
            <MetricsPanel d={d} />
            <RatiosPanel d={d} />
          </div>
          <TestsPanel d={d} />
          {d.runs.length > 1 && <AlignedPanel d={d} />}
          <Overlays d={d} />
          <div class="grid">
            <PartsPanel
              title="Phases"
              rows={d.phases.map((p) => ({
                name: phaseLabel(p.phase),
                time: p.duration_ms,
                energy: p.energy_mj,
              }))}
              d={d}
            />
            <PartsPanel
              title="Components"
              rows={d.components.map((c) => ({
                name: c.component_name,
                time: c.time_ms,
                energy: c.energy_mj,
              }))}
              d={d}
            />
          </div>
          <Pareto runs={d.runs} />
        </>
      )}
    </div>
  );
}
