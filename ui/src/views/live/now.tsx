// The state of the current run in words: waiting, loading, running, stopping, ended, or unknown
// because the server cannot be reached.
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { EnergySource } from '../../api/types';
import { phaseLabel } from '../../charts/theme';
import { onDevices } from '../../core/devices';
import { capital, clip, count, known, plain, time } from '../../core/format';
import { isKnown, type Quantity, quantity, text } from '../../core/quantity';
import { energyPerToken, primaryHelp, runEnergy, typicalToken } from '../../core/run_energy';
import { Figure, PartialBadge, SourceBadge } from '../../parts/badge';
import { Icon } from '../../parts/icon';
import { Notice, Sentence } from '../../parts/notice';
import * as live from '../../state/live';
import { follow, href } from '../../state/selection';
import { unit } from '../../state/settings';
import { AfterRun } from './after';

/** Updated five times per second during a run, because messages may be seconds apart. */
const tick = signal(0);

function useTick(on: boolean): void {
  useEffect(() => {
    if (!on) return;
    const timer = setInterval(() => {
      tick.value++;
    }, 200);
    return () => clearInterval(timer);
  }, [on]);
}

type Shown = 'idle' | 'gone' | 'queued' | 'loading' | 'running' | 'stopping' | 'ended';

export function stateNow(): Shown {
  const r = live.run.value;
  if (!r) return 'idle';
  if (r.state === 'ended') return 'ended';
  if (live.link.value !== 'open') return 'gone';
  if (r.state === 'queued') return 'queued';
  if (live.stopping.value === r.id) return 'stopping';
  return isLoading(r) ? 'loading' : 'running';
}

/** Until the model is described, unless something later already happens: the description may have been lost. */
function isLoading(r: live.LiveRun): boolean {
  const n = live.now.peek();
  if (n.section === 'model_load') return true;
  return r.layers === 0 && n.token < 0 && (n.phase === 'idle' || n.phase === 'pre_inference');
}

const WORD: Record<Shown, string> = {
  idle: 'Nothing is running.',
  gone: 'Server gone',
  queued: 'Queued',
  loading: 'Loading the model',
  running: 'Running',
  stopping: 'Stopping',
  ended: '',
};

/** The layer with the highest value in the last token; the current one changes too fast to read. */
export function mostOf(g: live.LiveGrid | null): string {
  if (!g || g.layers < 2) return '';
  let [at, most] = [-1, 0];
  for (let l = 0; l < g.layers; l++) {
    let sum = 0;
    for (let c = 0; c < g.components.length; c++) sum += g.values[l * g.components.length + c] || 0;
    if (sum > most) [at, most] = [l, sum];
  }
  return at < 0 ? '' : `; most in layer ${at} at token ${g.token}`;
}

/** What the figures are, if they are known and not measured. */
const badgeOf = (source: EnergySource | null | undefined): EnergySource | null =>
  source === 'modelled' ? source : null;

export function NowBar() {
  const r = live.run.value;
  live.glance.value;
  const n = live.now.peek();
  const state = stateNow();
  useTick(state === 'loading' || state === 'running' || state === 'stopping');
  tick.value;
  if (!r || state === 'idle')
    return (
      <section class="panel now" aria-label="What is running">
        <div class="now-line">
          <span class="dot" /> <strong>{WORD.idle}</strong>
          <span class="muted">
            Write a prompt and press Start. Runs started in a terminal appear in History.
          </span>
        </div>
        <Before />
      </section>
    );
  const going = state === 'running' || state === 'stopping' || state === 'loading';
  const where = [
    phaseLabel(n.phase),
    n.section.replaceAll('_', ' '),
    n.token >= 0 ? `token ${n.token}` : '',
    n.layer >= 0 ? `layer ${n.layer}` : '',
  ]
    .filter(Boolean)
    .join(' › ');
  const s = live.summary.value;
  return (
    <section class="panel now" aria-label="What is running">
      <div class="now-line">
        <span class={`dot ${going ? 'on' : state === 'ended' ? r.status : ''}`} />
        <strong>{state === 'ended' ? r.status : WORD[state]}</strong>
        <span>
          {r.model} {onDevices(s)}
        </span>
        <span class="muted now-where">
          {state === 'gone' && 'Reconnecting; what is shown is the last that was known.'}
          {state === 'loading' &&
            `${n.load ? `${n.load.done} of ${n.load.total} layers. ` : ''}The first token comes after it.`}
          {state === 'running' &&
            `${where}${n.section === 'layers' && r.layers ? ` (${r.layers} layers${mostOf(live.grid.peek())})` : ''}`}
          {state === 'stopping' && 'It ends within a token, and is kept.'}
          {state === 'queued' && 'It starts when the runs before it have ended.'}
        </span>
        <SourceBadge source={s ? badgeOf(s.energy_source) : badgeOf(live.totals.energy.source)} />
        {s && <PartialBadge run={s} />}
        {live.lost.value > 0 && (
          <span class="note">
            {live.lost.value.toLocaleString('en-US')} live updates skipped here; the stored run has
            all
          </span>
        )}
        {state === 'ended' && s?.prompt && (
          <span class="muted now-prompt">“{clip(s.prompt, 60)}”</span>
        )}
        {state === 'ended' && (
          <span class="row after-run">
            <OpenRun id={r.id} />
            <AfterRun />
          </span>
        )}
      </div>
      {state === 'loading' && (
        <progress
          class="loading"
          aria-label="Loading the model"
          {...(n.load ? { value: n.load.done, max: n.load.total } : {})}
        >
          {time(live.elapsed())}
        </progress>
      )}
      {r.error && (
        <Notice bad>
          <Sentence text={capital(r.error)} />
        </Notice>
      )}
      <NowFigures />
      <Part />
      <Before />
    </section>
  );
}

function OpenRun({ id }: { id: string }) {
  return (
    <a
      class="btn small"
      href={href({ view: 'analysis', run: id })}
      onClick={(e) => follow(e, 'analysis', { run: id })}
    >
      Open in Analysis <Icon name="chevron" />
    </a>
  );
}

/** The runs before: with a queue the next begins immediately, and what was stopped or failed would disappear
 * unnoticed. */
function Before() {
  const before = live.ended.value.filter((x) => x.id !== live.run.value?.id);
  if (!before.length) return null;
  return (
    <ul class="previous" aria-label="Runs before">
      {before.map((p) => (
        <li key={p.id} class="note row">
          <span>
            Before: {p.prompt ? `“${clip(p.prompt, 40)}” ` : 'a queued run '}
            {p.status}
            {p.error ? `: ${p.error}` : ''}
          </span>
          {p.stored && <OpenRun id={p.id} />}
        </li>
      ))}
    </ul>
  );
}

/** The experiment that the runs belong to. */
function Part() {
  const x = live.experiment.value;
  if (x?.state !== 'running') return null;
  const to = { view: 'experiments', experiment: x.name, run: null } as const;
  return (
    <p class="note row">
      <span>
        Experiment{' '}
        <a href={href(to)} onClick={(e) => follow(e, 'experiments', to)}>
          {x.name}
        </a>
        : {count(x.done)} of {count(x.total)} runs{x.cell && `, now ${x.cell}`}
      </span>
      <progress max={x.total} value={x.done} aria-label="Runs of the experiment done" />
    </p>
  );
}

/** "not yet" is not "unavailable". */
function provisional(q: Quantity<'mJ'>): string {
  if (isKnown(q)) return text(q, unit.value);
  return live.source.value === 'unavailable' ? 'unavailable' : 'not yet';
}

function NowFigures() {
  // Tokens and totals are not signals: reading these subscribes to their changes.
  live.glance.value;
  tick.value;
  const s = live.summary.value;
  const t = live.totals;
  const q = t.energy;
  const perToken = isKnown(q) && t.known ? quantity('mJ', q.value / t.known, q.source) : q;
  const speed = s
    ? s.tokens_per_second
    : t.decodeTime > 0
      ? (t.decode / t.decodeTime) * 1000
      : null;
  const ended = live.run.value?.state === 'ended';
  return (
    <dl class="figures">
      <Figure label="Tokens" of="phase" value={count(s?.output_tokens ?? live.tokens.length)} />
      <Figure
        label="Energy"
        of="energy"
        value={s ? runEnergy(s, unit.value) : provisional(q)}
        sub={s ? 'whole run' : 'tokens so far'}
        title={
          s
            ? 'Gross energy of the whole run, with loading the model.'
            : 'Provisional: what the sensors have seen of the tokens so far, without loading the model.'
        }
      />
      {s && known(s.joules_per_token_typical) ? (
        <Figure
          label="Typical token"
          of="typical"
          value={typicalToken(s, unit.value)}
          sub="median"
          title={primaryHelp(s, unit.value)}
        />
      ) : (
        <Figure
          label="Mean token"
          of="per_token"
          value={s ? energyPerToken(s, unit.value) : provisional(perToken)}
          sub={s ? 'of the request' : 'so far'}
          title={
            s
              ? 'Energy of the request over its output tokens, without loading the model.'
              : 'Provisional: energy of the tokens so far over their number, without loading the model.'
          }
        />
      )}
      <Figure
        label="Tokens per second"
        of="speed"
        value={speed === null && !ended ? 'not yet' : plain(speed)}
      />
      <Figure label="Elapsed" of="duration" value={time(s?.total_duration_ms ?? live.elapsed())} />
    </dl>
  );
}
