// Every metric as a multiple of the baseline's.
import { useRef } from 'preact/hooks';
import type { Compare } from '../../api/types';
import { GroupedBars } from '../../charts/bars';
import { Canvas, Legend, Panel } from '../../charts/panel';
import { digits, known, plain } from '../../core/format';
import { selection } from '../../state/selection';
import { LETTERS, useColours } from './letters';
import { differs, nameOf } from './metric_text';

export function BarsPanel({ d }: { d: Compare }) {
  const chart = useRef<GroupedBars | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const series = useColours();
  const only = selection.value.diff;
  const list = d.metrics.filter(
    (m) =>
      m.better !== null &&
      m.normalised.some(known) &&
      (!only || differs(m.difference_percent.slice(1))),
  );
  const height = GroupedBars.height(list.length, d.runs.length);
  box.current?.style.setProperty('--h', `${height}px`);
  return (
    <Panel
      class="span-5"
      title="Normalised"
      note="Each metric as a multiple of the baseline A (dashed line at 1)."
      state={
        list.length ? { kind: 'ready' } : { kind: 'empty', text: 'There is nothing to normalise.' }
      }
      legend={
        <Legend
          items={d.runs.map((r, i) => ({
            label: `${LETTERS[i]} ${r.model_name ?? ''} ${r.dtype ?? ''}`,
            colour: series[i],
          }))}
        />
      }
      table={() => ({
        columns: ['metric', ...d.runs.map((_, i) => LETTERS[i])],
        rows: list.map((m) => [m.metric, ...m.normalised]),
      })}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <div
        ref={(el) => {
          el?.style.setProperty('--h', `${height}px`);
          (box as { current: HTMLDivElement | null }).current = el;
        }}
        class="h-var"
      >
        <Canvas
          class="fill"
          name="bars"
          label={`Normalised metrics. ${list.map((m) => `${nameOf(m.metric)}: ${m.normalised.map((v, i) => `${LETTERS[i]} ${plain(v)}`).join(', ')}`).join('; ')}.`}
          make={(host) => new GroupedBars(host)}
          handle={chart}
          update={(c) =>
            c.set(
              list.map((m) => ({
                label: nameOf(m.metric),
                bars: m.normalised.map((v, i) => ({
                  value: v,
                  colour: series[i],
                  name: LETTERS[i],
                  text: known(v) ? `${digits(v)}×` : 'unavailable',
                })),
              })),
            )
          }
        />
      </div>
    </Panel>
  );
}
