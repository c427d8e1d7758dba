// Any number of runs in groups by one of their fields.
import { api } from '../../api/client';
import type { Compare } from '../../api/types';
import { Panel, Trouble } from '../../charts/panel';
import { known } from '../../core/format';
import { stateOf, useResource } from '../../state/resource';
import { select, selection, without } from '../../state/selection';
import { TestsPanel } from './differences';
import { Metric, showBetween } from './metric_text';
import { RatiosPanel } from './ratios';
import { StepsPanel } from './steps';
import { SettingsPanel, VerdictPanel } from './verdict';

export const FIELDS = [
  'dtype',
  'model',
  'batch',
  'engine',
  'machine',
  'tag',
  'session',
  'commit',
  'experiment',
  'threads',
  'isa',
  'depth',
  'input_tokens',
  'output_tokens',
] as const;

export function GroupChooser() {
  const s = selection.value;
  const facets = useResource('facets of groups', (x) => api.facets(x));
  return (
    <label class="check">
      Group runs by
      <select
        class="input small"
        aria-label="Group runs by"
        value={s.by}
        onChange={(e) => select({ by: e.currentTarget.value })}
      >
        <option value="">– (chosen runs)</option>
        {FIELDS.map((f) => (
          <option key={f} value={f}>
            {f.replace('_', ' ')}
          </option>
        ))}
      </select>
      {s.by && (
        <select
          class="input small"
          aria-label="Of the experiment"
          value={s.experiment}
          onChange={(e) => select({ experiment: e.currentTarget.value })}
        >
          <option value="">all runs</option>
          {(facets.value.data?.experiments ?? []).map((x) => (
            <option key={x.name} value={x.name}>
              {x.name}
            </option>
          ))}
        </select>
      )}
    </label>
  );
}

export function GroupComparison() {
  const s = selection.value;
  const ask = {
    by: s.by,
    search: s.search,
    from: s.from,
    to: s.to,
    experiment: s.experiment,
    model: s.model,
    engine: s.engine,
    dtype: s.dtype,
    machine: s.machine,
    tag: s.tag ? [s.tag] : [],
    ...without.value,
  };
  const res = useResource(`groups ${JSON.stringify(ask)}`, (x) => api.compareGroups(ask, x));
  const state = stateOf(res);
  const d = res.value.data;
  if (state.kind === 'error') return <Trouble text={state.text} retry={state.retry} />;
  if (!d) return <div class="panel state skeleton">Loading…</div>;
  if (d.sides.length < 2)
    return (
      <div class="panel state">
        <p>All these runs have the same {s.by}: there is nothing to compare.</p>
      </div>
    );
  // What History filters by and groups do not know is said, rather than dropped without a word.
  const unused = [
    s.status && 'the status',
    (s.least || s.most) && 'the joules per token',
    s.ids.length > 0 && 'the runs ticked',
  ].filter(Boolean);
  return (
    <>
      {unused.length > 0 && (
        <p class="note">These are groups of all matching runs, whatever {unused.join(' or ')}.</p>
      )}
      <SettingsPanel d={d} />
      <VerdictPanel d={d} />
      <div class="grid">
        <SidesPanel d={d} />
        <RatiosPanel d={d} />
      </div>
      {d.tests.length > 0 && <TestsPanel d={d} />}
      {d.decomposition.slice(0, 3).map((x) => (
        <StepsPanel key={x.b} d={d} x={x} />
      ))}
    </>
  );
}

function SidesPanel({ d }: { d: Compare }) {
  return (
    <Panel
      class="span-6"
      title="Groups"
      note="Means over the runs of a group, with their 95 % interval."
      table={() => ({
        columns: ['metric', 'unit', ...d.sides.map((s) => s.name)],
        rows: d.metrics.map((m) => [m.metric, m.unit, ...m.values]),
      })}
    >
      <div class="scroll-x">
        <table class="ops compare-table reflow">
          <thead>
            <tr>
              <th scope="col">Metric</th>
              {d.sides.map((s) => (
                <th scope="col" class="num" key={s.name}>
                  {s.name} <small class="muted">{s.runs}</small>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {d.metrics.map((m) => (
              <tr key={m.metric}>
                <th scope="row">
                  <Metric of={m.metric} />
                </th>
                {m.values.map((v, i) => (
                  <td
                    key={d.sides[i].name}
                    class={`num ${known(v) ? '' : 'na hatched'}`}
                    data-label={d.sides[i].name}
                  >
                    {showBetween(v, m.lo?.[i] ?? null, m.hi?.[i] ?? null, m.unit)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
