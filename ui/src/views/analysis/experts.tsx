// Mixture of experts: how the router spread its choices, and which experts the prompt (or one token)
// used in each layer.
import { useRef } from 'preact/hooks';
import { api } from '../../api/client';
import type { Extras } from '../../api/types';
import { Heatmap } from '../../charts/heatmap';
import { Canvas, Panel } from '../../charts/panel';
import { percent, plain } from '../../core/format';
import { scaleOf } from '../../core/stats';
import { RampKey } from '../../parts/ramp_key';
import { stateOf, useResource } from '../../state/resource';
import { selection } from '../../state/selection';
import type { RunData } from './data';

const WORDS: [string, string][] = [
  ['routing_entropy', 'Routing entropy (nat)'],
  ['routing_entropy_normalised', 'Routing entropy, of its maximum'],
  ['unique_experts', 'Experts read in a step'],
  ['expert_load_variation', 'Variation of the load'],
];

interface Row {
  layer_index?: number | null;
  extra_metrics: Extras | null;
}

const loads = (rows: Row[]): { layer: number; load: number[] }[] =>
  rows.flatMap((r) => {
    const load = r.extra_metrics?.expert_load;
    return Array.isArray(load) && r.layer_index != null ? [{ layer: r.layer_index, load }] : [];
  });

export function ExpertsPane({ data }: { data: RunData }) {
  const chart = useRef<Heatmap | null>(null);
  const token = selection.value.token ?? 0;
  const of = (what: Record<string, unknown>) => api.operations(data.id, what as never);
  const whole = useResource(`experts ${data.id}`, () => of({ component: 'router' }));
  const one = useResource(`experts ${data.id} ${token}`, () => of({ component: 'router', token }));
  const scalar: Extras = Object.assign(
    {},
    ...[...(whole.value.data?.components ?? []), ...(whole.value.data?.operations ?? [])].map(
      (r) => r.extra_metrics ?? {},
    ),
  );
  const rows = [
    ...(one.value.data?.components ?? []),
    ...(one.value.data?.operations ?? []),
  ] as Row[];
  const list = loads(rows);
  const experts = Math.max(0, ...list.map((l) => l.load.length));
  const values = new Float32Array(list.length * experts).fill(Number.NaN);
  list.forEach((l, i) => {
    l.load.forEach((v, e) => {
      values[i * experts + e] = v;
    });
  });
  const scale = scaleOf(values);
  return (
    <Panel
      class="bare"
      title="Experts"
      note={`Means over the run; below, the share of the choices that each expert got at token ${token}${token === 0 ? ' (the prompt)' : ''}.`}
      state={stateOf(whole, (d) => (d.components.length ? null : 'This run has no router.'))}
      table={() => ({
        columns: ['layer', ...Array.from({ length: experts }, (_, e) => `expert ${e}`)],
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
        {WORDS.map(([key, label]) =>
          typeof scalar[key] === 'number' ? (
            <>
              <dt>{label}</dt>
              <dd>{plain(scalar[key] as number)}</dd>
            </>
          ) : null,
        )}
      </dl>
      {list.length > 0 && scale ? (
        <Canvas
          class="h-map"
          name="experts"
          label={`Load of ${experts} experts in ${list.length} layers at token ${token}.`}
          make={(host) => new Heatmap(host)}
          handle={chart}
          update={(c) =>
            c.set({
              layers: list.map((l) => l.layer),
              components: Array.from({ length: experts }, (_, e) => `expert ${e}`),
              values,
              ...scale,
              show: (v) => percent(v),
              unit: 'Share',
            })
          }
        />
      ) : (
        <p class="note">The load of single experts is recorded at depth deep.</p>
      )}
    </Panel>
  );
}
