// Experiments: grids of settings run in randomised blocks, and their results.
import { signal, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { api } from '../../api/client';
import { REPORT } from '../../api/inlined';
import type { Estimate, Experiment, ExperimentLine } from '../../api/types';
import { Trouble } from '../../charts/panel';
import {
  count,
  dateTime,
  energy,
  energyBetween,
  known,
  percent,
  plain,
  time,
} from '../../core/format';
import { LackBadge, SourceBadge } from '../../parts/badge';
import { Icon } from '../../parts/icon';
import { Notice, Sentence } from '../../parts/notice';
import { WithoutDisturbances } from '../../parts/without';
import { experiment } from '../../state/live';
import { stateOf, useResource } from '../../state/resource';
import { follow, href, select, selection, settle, without } from '../../state/selection';
import { unit } from '../../state/settings';
import { CellsPanel } from './cells';
import { FactorialPanel, FrontPanel } from './charts';
import { PlanForm } from './form';
import { against, boundsOf, isActive, isTypical, joulesOf, planText } from './grid';
import { ASKED, WhatIfPanel } from './what_if';

/** Incremented with every action, to reload the server's data. */
const asked = signal(0);

export function ExperimentsView() {
  const news = experiment.value;
  const list = useResource(`experiments ${news?.name} ${news?.state} ${asked.value}`, (s) =>
    api.experiments(s),
  );
  const all = list.value.data;
  const starting = useSignal(false);
  const name = selection.value.experiment;
  useEffect(() => {
    if (all?.length && !name) settle({ experiment: all[0].name });
  }, [all, name]);
  const state = stateOf(list, (x) =>
    x.length
      ? null
      : 'No experiment is stored yet. Plan one here, or run it in a terminal: `perjoule experiment --dtypes bf16,q8_0 --batches 1,4 --name sweep`',
  );
  return (
    <div class="stack">
      <div class="row">
        <h1>Experiments</h1>
        <span class="spacer" />
        {!selection.value.whatIf && (
          <button type="button" class="btn" onClick={() => select({ whatIf: ASKED })}>
            Predict
          </button>
        )}
        <button
          type="button"
          class="btn primary"
          aria-expanded={starting.value}
          onClick={() => {
            starting.value = !starting.value;
          }}
        >
          New experiment
        </button>
      </div>
      {selection.value.whatIf && <WhatIfPanel ask={selection.value.whatIf} />}
      {starting.value && (
        <PlanForm
          taken={(all ?? []).map((e) => e.name)}
          onBegun={(begun) => {
            starting.value = false;
            asked.value++;
            select({ experiment: begun, along: '' });
          }}
        />
      )}
      {state.kind === 'error' && <Trouble text={state.text} retry={state.retry} />}
      {state.kind === 'loading' && <div class="panel state skeleton">Loading…</div>}
      {state.kind === 'empty' && (
        <div class="panel state">
          <Sentence text={state.text} />
        </div>
      )}
      {all && all.length > 0 && (
        <div class="experiments">
          <List all={all} />
          {name && <One key={name} name={name} />}
        </div>
      )}
    </div>
  );
}

function List({ all }: { all: ExperimentLine[] }) {
  const chosen = selection.value.experiment;
  return (
    <nav class="panel experiment-list" aria-label="Stored experiments">
      <ul>
        {all.map((x) => (
          <li key={x.name}>
            <a
              href={href({ view: 'experiments', experiment: x.name })}
              aria-current={x.name === chosen ? 'true' : undefined}
              onClick={(e) => {
                if (e.metaKey || e.ctrlKey || e.shiftKey || e.button !== 0) return;
                e.preventDefault();
                select({ experiment: x.name, along: '' });
              }}
            >
              <strong>{x.name}</strong>
              {x.state && /^(queued|running|failed|cancelled)$/.test(x.state) && (
                <span class={`badge ${x.state}`}>{x.state}</span>
              )}
              <small>{dateTime(x.created_at)}</small>
              <small>{planText(x.plan)}</small>
            </a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

/** One experiment with all of its figures. */
export function One({ name }: { name: string }) {
  const news = experiment.value?.name === name ? experiment.value : null;
  const q = without.value;
  const key = `experiment ${name} ${news?.state} ${news?.done} ${asked.value} ${q.disturbances}`;
  const res = useResource(key, (s) => api.experiment(name, s, q));
  const d = res.value.data;
  const state = stateOf(res);
  return (
    <div class="stack">
      {state.kind === 'error' && (
        <div class="panel">
          <Trouble text={state.text} retry={state.retry} />
          <p class="row center">
            <RunsLink name={name} />
          </p>
        </div>
      )}
      {state.kind === 'loading' && <div class="panel state skeleton">Loading…</div>}
      {d && (
        <>
          <Head d={d} />
          <div class="grid">
            <FactorialPanel d={d} />
            <FrontPanel d={d} over="seconds_per_token" />
            {d.cells.some((c) => c.loss !== null) && <FrontPanel d={d} over="loss" />}
            {d.cells.some((c) => known(c.score)) && <FrontPanel d={d} over="score" />}
          </div>
          <CellsPanel d={d} />
        </>
      )}
    </div>
  );
}

function RunsLink({ name }: { name: string }) {
  const to = { view: 'history', experiment: name, run: null } as const;
  return (
    <a class="btn" href={href(to)} onClick={(e) => follow(e, 'history', to)}>
      Show its runs
    </a>
  );
}

function Head({ d }: { d: Experiment }) {
  const sources = [...new Set(d.cells.flatMap((c) => c.energy_source ?? []))];
  return (
    <section class="panel experiment-head" aria-label="Result">
      <div class="row">
        <h2>{d.name}</h2>
        <span class={`badge ${d.state}`}>{d.state}</span>
        {sources
          .filter((s) => s !== 'measured')
          .map((s) => (
            <SourceBadge key={s} source={s} />
          ))}
        {[...new Set(d.cells.map((c) => c.partial))].map((text) => (
          <LackBadge key={text} text={text} />
        ))}
        <span class="spacer" />
        {!REPORT && (
          <>
            <WithoutDisturbances />
            <Act d={d} />
            <RunsLink name={d.name} />
            <a
              class="btn"
              href={api.reportHref({ experiment: d.name, ...without.value })}
              target="_blank"
              rel="noreferrer"
            >
              Report
            </a>
          </>
        )}
      </div>
      <p class="note">{planWords(d)}</p>
      <Progress d={d} />
      <ul class="experiment-verdict">
        {verdict(d).map((x) => (
          <li key={x}>{x}</li>
        ))}
      </ul>
    </section>
  );
}

/** Buttons to stop it, resume it, or run another round. */
function Act({ d }: { d: Experiment }) {
  const error = useSignal<string | null>(null);
  const act = async (work: () => Promise<void>) => {
    error.value = null;
    try {
      await work();
      asked.value++;
    } catch (e) {
      error.value = e instanceof Error ? e.message : String(e);
    }
  };
  return (
    <>
      {error.value && <Notice bad>{error.value}</Notice>}
      {isActive(d) ? (
        <button
          type="button"
          class="btn"
          onClick={() => void act(() => api.cancelExperiment(d.name))}
        >
          <Icon name="stop" /> Stop
        </button>
      ) : (
        <button
          type="button"
          class="btn"
          title={
            d.state === 'completed'
              ? 'Another round of the same plan, compared with this one'
              : 'Runs what is left of the plan'
          }
          onClick={() => void act(() => api.resumeExperiment(d.name, d.state === 'completed'))}
        >
          <Icon name="play" /> {d.state === 'completed' ? 'Run again' : 'Go on'}
        </button>
      )}
    </>
  );
}

function Progress({ d }: { d: Experiment }) {
  const news = experiment.value?.name === d.name ? experiment.value : null;
  const left = news?.state === 'running' ? news.left : (d.progress?.left_s ?? null);
  const done = Math.max(d.done, news?.state === 'running' ? news.done : 0);
  const cell = news?.state === 'running' ? news.cell : d.progress?.cell_name;
  return (
    <>
      {d.state === 'failed' && d.error && (
        <Notice bad>
          <Sentence text={d.error} />
        </Notice>
      )}
      {done < d.total && (
        <div class="row progress">
          <progress max={d.total} value={done} aria-label="Runs done" />
          <span class="num">
            {count(done)} of {count(d.total)} runs, {percent(done / d.total)}
          </span>
          {d.state === 'running' && (
            <span class="note" role="status">
              {[
                cell && `now ${cell}`,
                known(left) ? `${time(left * 1000)} left at most` : 'time left not known yet',
              ]
                .filter(Boolean)
                .join('; ')}
            </span>
          )}
          {d.state === 'queued' && (
            <span class="note">It waits: single runs and earlier experiments go first.</span>
          )}
        </div>
      )}
    </>
  );
}

function planWords(d: Experiment): string {
  const p = d.plan;
  return [
    planText(p),
    'randomised blocks',
    p.cool_down_s ? `cool-down up to ${p.cool_down_s} s` : '',
    p.precision ? `until ±${percent(p.precision)}` : '',
    p.max_latency_ms ? `at most ${time(p.max_latency_ms)} a token` : '',
    d.round > 0 ? `round ${d.round + 1}` : '',
  ]
    .filter(Boolean)
    .join('; ');
}

/** A cell's energy with its interval. */
function cost(d: Experiment, cell: number): string {
  const c = d.cells[cell];
  const value = c && joulesOf(d, c);
  if (!c || !known(value)) return 'unavailable';
  const ends = boundsOf(d, c);
  return ends
    ? energyBetween(value * 1000, ends[0] * 1000, ends[1] * 1000, unit.value)
    : energy(value * 1000, unit.value);
}

/** The conclusions as sentences, based on the server's figures. */
export function verdict(d: Experiment): string[] {
  const out: string[] = [];
  const o = d.optimum;
  if (!o) {
    out.push(
      d.done === 0
        ? isActive(d)
          ? 'No run has ended yet.'
          : 'No run has ended.'
        : d.refusal
          ? `No verdict, since cells are not comparable: ${d.refusal}`
          : d.cells.some((c) => known(joulesOf(d, c)))
            ? 'No cell meets the latency limit.'
            : 'No run has an energy: there is no optimum.',
    );
  } else {
    const limit = d.plan.max_latency_ms ? ` within ${time(d.plan.max_latency_ms)} a token` : '';
    const soFar = d.done < d.total && isActive(d) ? 'So far the least' : 'Least';
    out.push(
      `${soFar} energy per ${isTypical(d) ? 'typical token' : 'token'}${limit}: ${o.name}, ${cost(d, o.cell)}, a token every ${time(o.token_latency_ms)}.`,
    );
    const x = against(d, o.cell);
    if (x && known(x.ratio)) {
      const range =
        known(x.ratio_lo) && known(x.ratio_hi)
          ? ` (95 %: ${plain(x.ratio_lo)} to ${plain(x.ratio_hi)})`
          : '';
      // The interval is that of this pair alone; with many cells some pair differs by chance.
      const alone = known(x.ratio_lo) && known(x.ratio_hi) && (x.ratio_hi < 1 || x.ratio_lo > 1);
      const first = d.cells[0].name;
      const than = `${plain(x.ratio)} times the energy of ${first}${range}`;
      out.push(
        x.different
          ? `That is ${than}.`
          : alone
            ? `That is ${than}, but could be chance among ${d.comparisons.length} comparisons${known(x.p_adjusted) ? ` (p ${plain(x.p_adjusted, 2)} after correction)` : ''}. More repeats would tell.`
            : `It is not distinguishable from ${first}: ratio ${plain(x.ratio)}${range}. More repeats would tell.`,
      );
    }
  }
  for (const k of d.knees) out.push(k.text);
  if (d.answers?.text) out.push(d.answers.text);
  const disturbed = d.cells.reduce((a, c) => a + c.disturbed_runs, 0);
  if (disturbed > 0)
    out.push(
      `The machine was busy with something else in ${count(disturbed)} of ${count(d.done)} ${d.done === 1 ? 'run' : 'runs'}: intervals are wider for it.`,
    );
  for (const a of d.ablations ?? []) {
    const unit = (e: Estimate) =>
      e.joules_per_token === null ? 'unavailable' : `${plain(e.joules_per_token)} J`;
    out.push(
      `${d.cells[a.cell].name}: the part takes ${unit(a.difference)} per token by the difference of runs, ${unit(a.attributed)} by attribution. ${a.text}`,
    );
  }
  const changed = d.against_former.filter((x) => x.different);
  if (d.against_former.length > 0)
    out.push(
      changed.length === 0
        ? 'Repeated: no cell differs from the round before.'
        : `Repeated: ${changed.map((x) => `${d.cells[x.cell].name} (×${plain(x.ratio)})`).join(', ')} differ from the round before.`,
    );
  return out;
}
