// Mixture of experts: distribution of the routing choices, and bytes read per step, over the whole run.
import { useRef } from 'preact/hooks';
import type { ModelUse } from '../../api/types';
import { Heatmap } from '../../charts/heatmap';
import { Canvas, Panel } from '../../charts/panel';
import { count, energy, known, percent, plain } from '../../core/format';
import { scaleOf } from '../../core/stats';
import { RampKey } from '../../parts/ramp_key';
import { stateOf } from '../../state/resource';
import { unit } from '../../state/settings';
import type { RunData } from './data';

type Experts = NonNullable<ModelUse['experts']>;

const facts = (e: Experts, active: number | null | undefined): [string, string][] => [
  ['Experts per token', `${plain(e.per_token)} of ${count(e.experts)}`],
  ['Read by a decode step, per layer', plain(e.per_step)],
  ['The same if drawn at random', plain(e.per_step_even)],
  ['Read by a prefill pass', plain(e.per_prefill)],
  ['Request energy per million active parameters', energy(active, unit.value)],
  ['Routing entropy, of its maximum', plain(e.routing_entropy_normalised)],
  ['Load balance (1: even)', plain(e.load_balance)],
  ['Variation of the load', known(e.load_variation) ? percent(e.load_variation) : 'unavailable'],
  ['Experts never used', known(e.unused_share) ? percent(e.unused_share) : 'unavailable'],
];

export function ExpertsPane({ data }: { data: RunData }) {
  const chart = useRef<Heatmap | null>(null);
  const s = data.summary.value.data;
  const e = s?.model_use?.experts ?? null;
  const list = (e?.load ?? []).flatMap((load, layer) => (load.length ? [{ layer, load }] : []));
  const experts = Math.max(0, ...list.map((l) => l.load.length));
  const values = new Float32Array(list.length * experts).fill(Number.NaN);
  list.forEach((l, i) => {
    l.load.forEach((v, k) => {
      values[i * experts + k] = v ?? Number.NaN;
    });
  });
  const scale = scaleOf(values);
  return (
    <Panel
      class="bare"
      title="Experts"
      note="Over the whole run; the map shows the share of a layer's choices that each expert got."
      state={stateOf(data.summary, (d) =>
        d.model_use?.experts ? null : 'This model has no experts.',
      )}
      table={() => ({
        columns: ['layer', ...Array.from({ length: experts }, (_, k) => `expert ${k}`)],
        rows: list.map((l) => [l.layer, ...l.load]),
      })}
      png={async () => (await chart.current?.png()) ?? null}
      legend={
        scale && (
          <RampKey label="Share of the choices" lo={percent(scale.lo)} hi={percent(scale.hi)} />
        )
      }
    >
      <dl class="facts">
        {e &&
          facts(e, s?.energy_per_million_active_parameters_mj).map(([label, value]) => (
            <>
              <dt>{label}</dt>
              <dd>{value}</dd>
            </>
          ))}
      </dl>
      {list.length > 0 && scale ? (
        <Canvas
          class="h-map below-facts"
          name="experts"
          label={`Load of ${experts} experts in ${list.length} layers over the run.`}
          make={(host) => new Heatmap(host)}
          handle={chart}
          update={(c) =>
            c.set({
              layers: list.map((l) => l.layer),
              components: Array.from({ length: experts }, (_, k) => `expert ${k}`),
              values,
              ...scale,
              show: (v) => percent(v),
              unit: 'Share',
            })
          }
        />
      ) : (
        <p class="note">The load of single experts is recorded from depth module on.</p>
      )}
    </Panel>
  );
}
