// Table of an experiment's cells: energy, speed, and their runs.
import { useSignal } from '@preact/signals';
import { REPORT } from '../../api/inlined';
import type { Experiment, ExperimentCell } from '../../api/types';
import { Panel } from '../../charts/panel';
import {
  energy,
  energyBetween,
  estimate,
  known,
  type Num,
  percent,
  plain,
  power,
  shortId,
  time,
} from '../../core/format';
import type { Term } from '../../core/glossary';
import { Explain } from '../../parts/explain';
import { Icon } from '../../parts/icon';
import { follow, go, href } from '../../state/selection';
import { unit } from '../../state/settings';
import { solved, tableOf } from './charts';
import { against, boundsOf, isActive, joulesOf } from './grid';

interface Column {
  key: string;
  label: string;
  /** Explains the figure. */
  help?: string;
  term?: Term;
  value: (d: Experiment, c: ExperimentCell) => number | null;
  /** After a line break what is less important, in small print. */
  show: (d: Experiment, c: ExperimentCell) => string;
  wide?: boolean;
  /** Left out where the table would not fit beside the list; its data are in the table and the CSV. */
  spare?: boolean;
}

const between = (value: number | null, ends: [Num, Num] | null): string => {
  const mj = (v: Num) => (known(v) ? v * 1000 : null);
  const text = energyBetween(mj(value), mj(ends?.[0]), mj(ends?.[1]), unit.value);
  return text.replace(/ (\(.*\)) (\S+)$/, ' $2\n$1'); // a wide interval on a line of its own
};

const COLUMNS: Column[] = [
  {
    key: 'cell',
    label: 'Cell',
    value: (_, c) => c.cell,
    show: (_, c) => c.name,
  },
  {
    key: 'jpt',
    label: 'Per token',
    term: 'typical',
    help: 'Energy of the typical token (of runs without decode tokens: the mean of the request), mean over the runs of the cell with its 95 % interval.',
    value: joulesOf,
    show: (d, c) => between(joulesOf(d, c), boundsOf(d, c)),
  },
  {
    key: 'ratio',
    label: 'Ratio to first',
    help: 'Energy per token as a multiple of the first cell, with the 95 % interval of the ratio. Bold where the difference stands after correction for the number of cells.',
    value: (d, c) => against(d, c.cell)?.ratio ?? null,
    show: (d, c) => {
      const x = against(d, c.cell);
      if (c.cell === 0 && known(joulesOf(d, c))) return '1';
      if (!x || !known(x.ratio)) return isActive(d) ? 'not yet' : 'unavailable';
      return known(x.ratio_lo) && known(x.ratio_hi)
        ? estimate(x.ratio, x.ratio_lo, x.ratio_hi).replace(' (', '\n(')
        : plain(x.ratio);
    },
  },
  {
    key: 'mean',
    label: 'Mean token',
    term: 'per_token',
    help: 'Energy of the request per output token, mean over the runs of the cell with its 95 % interval. Stalls of the machine are in it.',
    value: (_, c) => c.joules_per_token,
    show: (_, c) => between(c.joules_per_token, [c.joules_per_token_lo, c.joules_per_token_hi]),
    wide: true,
  },
  {
    key: 'tps',
    label: 'Tokens/s',
    value: (_, c) => c.tokens_per_second,
    show: (_, c) => plain(c.tokens_per_second),
  },
  {
    key: 'ttft',
    label: 'First token',
    term: 'duration',
    help: 'Time of the prefill: how long until the first token.',
    value: (_, c) => c.ttft_ms,
    show: (_, c) => time(c.ttft_ms),
    wide: true,
  },
  {
    key: 'latency',
    label: 'A token every',
    term: 'speed',
    help: 'Latency that each sequence sees: batch size over tokens per second.',
    value: (_, c) => c.token_latency_ms,
    show: (_, c) => time(c.token_latency_ms),
    wide: true,
  },
  {
    key: 'power',
    label: 'Mean power',
    value: (_, c) => c.mean_power_mw,
    show: (_, c) => power(c.mean_power_mw),
    wide: true,
  },
  {
    key: 'loss',
    label: 'Loss',
    help: 'Loss on the text that the plan names: what a type of weights costs in quality.',
    value: (_, c) => c.loss,
    show: (_, c) => plain(c.loss, 4),
    wide: true,
  },
  {
    key: 'score',
    label: 'Tasks solved',
    help: 'Share of the tasks of the plan that the model solved with these weights, with its 95 % interval.',
    value: (_, c) => c.score ?? null,
    show: (_, c) => solved(c).replace(' (', '\n('),
    wide: true,
  },
  {
    key: 'read',
    label: 'Read per step',
    help: 'Weights that a decode step reads, once for all sequences of a batch.',
    value: (_, c) => c.decode_weight_bytes ?? null,
    show: (_, c) =>
      known(c.decode_weight_bytes) ? `${plain(c.decode_weight_bytes / 1e6)} MB` : 'unavailable',
    wide: true,
    spare: true,
  },
  {
    key: 'context',
    label: 'Context',
    help: 'Share of the context of the model that the longest sequence takes, and the size of its keys and values.',
    value: (_, c) => c.context_share ?? null,
    show: (_, c) =>
      known(c.context_share)
        ? `${percent(c.context_share)}${known(c.kv_megabytes) ? `\n${plain(c.kv_megabytes)} MB` : ''}`
        : 'unavailable',
    wide: true,
    spare: true,
  },
  {
    key: 'active',
    label: 'Per M active',
    help: 'Energy of a request per million active parameters.',
    value: (_, c) => c.energy_per_million_active_parameters_mj ?? null,
    show: (_, c) => energy(c.energy_per_million_active_parameters_mj, unit.value),
    wide: true,
  },
  {
    key: 'experts',
    label: 'Experts per step',
    help: 'Experts of a layer that a decode step reads, on average.',
    value: (_, c) => c.experts_per_step ?? null,
    show: (_, c) => plain(c.experts_per_step),
    wide: true,
  },
];

const room = (c: Column): string => (c.spare ? 'wide wider' : c.wide ? 'wide' : '');

/** Columns of models with experts. */
const EXPERTS = new Set(['active', 'experts']);

/** Maximum number of runs linked individually in a row; the others are in History. */
const LINKED = 6;

export function CellsPanel({ d }: { d: Experiment }) {
  const order = useSignal<{ key: string; down: boolean }>({ key: 'cell', down: false });
  const losses = d.cells.some((c) => known(c.loss));
  const scores = d.cells.some((c) => known(c.score));
  const experts = d.cells.some((c) => known(c.experts_per_step));
  const columns = COLUMNS.filter(
    (c) =>
      (c.key !== 'loss' || losses) &&
      (c.key !== 'score' || scores) &&
      (!EXPERTS.has(c.key) || experts),
  );
  const by = columns.find((c) => c.key === order.value.key) ?? columns[0];
  const rows = d.cells.slice().sort((a, b) => {
    const [x, y] = [by.value(d, a), by.value(d, b)];
    if (!known(x) || !known(y)) return known(x) ? -1 : known(y) ? 1 : 0;
    return order.value.down ? y - x : x - y;
  });
  const knees = new Set(d.knees.filter((k) => k.settled).map((k) => k.cell));
  return (
    <Panel title="Cells" table={() => tableOf(d)}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard */}
      <section class="scroll-x" tabIndex={0} aria-label="Cells, table">
        <table class="ops cells reflow">
          <thead>
            <tr>
              {columns.map((c) => (
                <th
                  scope="col"
                  key={c.key}
                  class={`${c.key === 'cell' ? '' : 'num'} ${room(c)}`}
                  aria-sort={
                    c.key === by.key ? (order.value.down ? 'descending' : 'ascending') : undefined
                  }
                >
                  <button
                    type="button"
                    class="sort"
                    onClick={() => {
                      order.value = {
                        key: c.key,
                        down: c.key === by.key ? !order.value.down : false,
                      };
                    }}
                  >
                    {c.label}
                    {c.key === by.key && <Icon name={order.value.down ? 'down' : 'up'} />}
                  </button>
                  {c.help && (
                    <Explain of={{ title: c.label, text: c.help, term: c.term ?? 'per_token' }}>
                      <span class="sr-only">What is {c.label}?</span>
                      <Icon name="info" />
                    </Explain>
                  )}
                </th>
              ))}
              {!REPORT && (
                <th scope="col" class="wide">
                  Runs
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {rows.map((c) => (
              <tr key={c.cell} class={c.cell === d.optimum?.cell ? 'picked' : ''}>
                {columns.map((x) => (
                  <Cell key={x.key} d={d} c={c} x={x} knee={knees.has(c.cell)} />
                ))}
                {!REPORT && (
                  <td class="wide">
                    <RunLinks d={d} c={c} />
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </Panel>
  );
}

function Cell({ d, c, x, knee }: { d: Experiment; c: ExperimentCell; x: Column; knee: boolean }) {
  if (x.key === 'cell')
    return (
      <th scope="row">
        {c.name} {c.cell === d.optimum?.cell && <span class="badge least">least energy</span>}
        {knee && d.cells.length > 1 && (
          <span class="badge" title="A larger batch saves less than 10 % per doubling">
            knee
          </span>
        )}
      </th>
    );
  // "not yet" is not "unavailable".
  const text = c.ids.length ? x.show(d, c) : isActive(d) ? 'not yet' : 'no run';
  const [figure, small] = text.split('\n');
  const strong = x.key === 'ratio' && against(d, c.cell)?.different;
  return (
    <td
      class={`num ${room(x)} ${text === 'unavailable' ? 'na hatched' : ''} ${c.ids.length ? '' : 'muted'}`}
      data-label={x.label}
    >
      {strong ? <strong>{figure}</strong> : figure}
      {small && (
        <>
          <br />
          <span class="note">{small}</span>
        </>
      )}
    </td>
  );
}

function RunLinks({ d, c }: { d: Experiment; c: ExperimentCell }) {
  const more = { view: 'history', experiment: d.name, run: null } as const;
  return (
    <span class="run-links">
      {c.ids.slice(0, LINKED).map((id, i) => (
        <a
          key={id}
          title={`Run ${shortId(id)}`}
          aria-label={`Run ${i + 1} of ${c.name}`}
          href={href({ view: 'analysis', run: id })}
          onClick={(e) => follow(e, 'analysis', { run: id })}
        >
          {i + 1}
        </a>
      ))}
      {c.ids.length > LINKED && (
        <a href={href(more)} onClick={(e) => follow(e, 'history', more)}>
          {c.ids.length - LINKED} more
        </a>
      )}
      {c.ids.length > 1 && (
        <button
          type="button"
          class="tool"
          title="Compare its runs"
          aria-label={`Compare runs of ${c.name}`}
          onClick={() => go({ view: 'compare', by: '', ids: c.ids.slice(0, 4) })}
        >
          <Icon name="compare" />
        </button>
      )}
    </span>
  );
}
