// The verdict on a run: where the joules went, the energy per token, how reliable it is, and what
// to change.
import { signal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { api } from '../../api/client';
import { REPORT } from '../../api/inlined';
import type { Advice, Summary } from '../../api/types';
import { partColour } from '../../charts/parts';
import { colours, phaseLabel } from '../../charts/theme';
import {
  count,
  energy,
  energySigned,
  known,
  percent,
  plain,
  power,
  spread,
  time,
  UNAVAILABLE,
} from '../../core/format';
import type { Term } from '../../core/glossary';
import {
  disturbed,
  energyPerToken,
  isProgram,
  modelLoad,
  partialText,
  profilingCost,
  runEnergy,
  thinkingShare,
  thinkingTokens,
  typicalToken,
} from '../../core/run_energy';
import { Figure, PartialBadge, SourceBadge } from '../../parts/badge';
import { Explain, type Explanation, termed } from '../../parts/explain';
import { Icon } from '../../parts/icon';
import { Sentence } from '../../parts/notice';
import { Segmented } from '../../parts/segmented';
import { useResource } from '../../state/resource';
import { select, selection, without } from '../../state/selection';
import { dark, unit } from '../../state/settings';
import type { RunData } from './data';
import { canBeNet, type Segment, type SegmentKey, samplesPerToken, segments } from './findings';
import { predictedLine } from './outlook';
import { TestHere, useTests } from './test_here';
import { ruleTested, testName } from './test_plan';

function colourOf(key: SegmentKey): string {
  const c = colours();
  switch (key) {
    case 'load':
    case 'program': // as the timeline has it, where it is the phase before the (missing) prompt
      return c.phase.pre_inference;
    case 'prefill':
      return c.phase.prefill;
    case 'attention':
      return partColour('attention');
    case 'mlp':
      return partColour('mlp');
    case 'rest':
      return partColour('other');
    case 'decode':
      return c.phase.decode;
    case 'disturbed':
      return c.danger;
    case 'gaps':
      return c.phase.idle;
    case 'idle':
      return c.text2;
    default:
      return c.phase.post_inference;
  }
}

/** Parts of the bar with a glossary entry of their own. */
const TERM_OF: Partial<Record<SegmentKey, Term>> = {
  load: 'load',
  prefill: 'phase',
  decode: 'phase',
  disturbed: 'disturbed',
  gaps: 'idle',
  idle: 'idle',
};

export function Verdict({ data }: { data: RunData }) {
  const s = data.summary.value.data;
  const rows = data.rows.value;
  const cubes = data.cubes.value.data;
  const net = selection.value.net && canBeNet(s);
  const advice = useAdvice(data);
  const list = useMemo(
    () => (s && rows ? segments(s, rows, cubes, net) : null),
    [s, rows, cubes, net],
  );
  return (
    <section class="panel verdict" aria-label="Verdict" aria-busy={!s}>
      <div class="verdict-head">
        <h2>Where the {s && !known(s.total_energy_mj) ? 'time' : 'energy'} went</h2>
        {s && !REPORT && (selection.value.calm || hasDisturbances(s)) && (
          <Segmented
            label="Disturbances"
            value={selection.value.calm ? 'leave' : 'keep'}
            options={[
              ['keep', 'With disturbances'],
              ['leave', 'Without'],
            ]}
            onChange={(v) => select({ calm: v === 'leave' })}
          />
        )}
        {canBeNet(s) && (
          <Segmented
            label="Idle power"
            value={net ? 'net' : 'gross'}
            options={[
              ['gross', 'Gross'],
              ['net', 'Net of idle'],
            ]}
            onChange={(v) => select({ net: v === 'net' })}
          />
        )}
      </div>
      {list && s && <EnergyBar list={list} total={s.total_energy_mj ?? 0} />}
      {s && !list && rows && <TimeBar data={data} />}
      {!rows && <div class="energy-bar skeleton" />}
      <Figures s={s} />
      {s && <Trust s={s} advice={advice} />}
      <Findings advice={advice} s={s} />
    </section>
  );
}

/** The parts side by side; each links to its scope. */
function EnergyBar({ list, total }: { list: Segment[]; total: number }) {
  dark.value;
  const show = (mj: number) => energy(mj, unit.value);
  let x = 0;
  return (
    <>
      <svg
        class="energy-bar"
        viewBox="0 0 1000 26"
        preserveAspectRatio="none"
        role="img"
        aria-label={`${show(total)} in all: ${list.map((p) => `${p.label} ${show(p.mj)}, ${percent(p.mj / total)}`).join('; ')}.`}
      >
        {list.map((p) => {
          const w = Math.max(0, (p.mj / total) * 1000);
          const at = x;
          x += w;
          return (
            <rect
              key={p.key}
              x={at}
              width={Math.max(0, w - 1.5)}
              height="26"
              fill={colourOf(p.key)}
            >
              <title>{`${p.label}: ${show(p.mj)}, ${percent(p.mj / total)}`}</title>
            </rect>
          );
        })}
      </svg>
      <ul class="energy-parts" data-sum={list.reduce((a, p) => a + p.mj, 0)} data-total={total}>
        {list.map((p) => (
          <li key={p.key} data-part={p.key} data-mj={p.mj}>
            <Swatch colour={colourOf(p.key)} />
            <Explain of={{ title: p.label, text: p.help, term: TERM_OF[p.key] ?? 'attribution' }}>
              {p.label}
            </Explain>
            <strong class="num">{percent(p.mj / total)}</strong>
            <span class="num muted">{show(p.mj)}</span>
            {p.scope && list.find((o) => o.scope?.phase === p.scope?.phase) === p && (
              <button
                type="button"
                class="tool"
                title={`Narrow to ${phaseLabel(p.scope.phase ?? '')}`}
                aria-label={`Narrow the workspace to ${phaseLabel(p.scope.phase ?? '')}`}
                onClick={() => p.scope && select({ ...p.scope, range: null, token: null })}
              >
                <Icon name="chevron" />
              </button>
            )}
          </li>
        ))}
      </ul>
    </>
  );
}

export function Swatch({ colour }: { colour: string }) {
  return (
    <svg class="swatch" width="10" height="10" viewBox="0 0 10 10" aria-hidden="true">
      <rect width="10" height="10" rx="2.5" fill={colour} />
    </svg>
  );
}

const IDLE_TIME: Explanation = {
  title: 'Idle gaps',
  text: 'Time of the run in which no phase was open.',
  unit: 'ns, µs, ms, s or min',
  term: 'duration',
};

/** Each phase once, in the order of their first appearance; idle comes last. */
function byPhase(list: { phase: string; duration_ms: number }[]) {
  const sum = new Map<string, number>();
  for (const p of list) sum.set(p.phase, (sum.get(p.phase) ?? 0) + p.duration_ms);
  return [...sum]
    .filter(([, ms]) => ms > 0)
    .map(([phase, duration_ms]) => ({ phase, duration_ms }))
    .sort((a, b) => Number(a.phase === 'idle') - Number(b.phase === 'idle'));
}

/** Without energy: the phases by time, without any joules. */
function TimeBar({ data }: { data: RunData }) {
  dark.value;
  const c = colours();
  const phases = byPhase(data.pipeline.value.data?.phases ?? []);
  const total = phases.reduce((a, p) => a + p.duration_ms, 0) || 1;
  let x = 0;
  return (
    <>
      <p class="note">
        {data.summary.value.data?.energy_source === 'unavailable'
          ? 'Energy is unavailable in this run: the bar shows time.'
          : 'The energy of the whole run is unavailable, as its sensor readings do not cover it: the bar shows time.'}
      </p>
      <svg class="energy-bar" viewBox="0 0 1000 26" preserveAspectRatio="none" aria-hidden="true">
        {phases.map((p) => {
          const w = (p.duration_ms / total) * 1000;
          const at = x;
          x += w;
          return (
            <rect key={p.phase} x={at} width={w} height="26" fill={c.phase[p.phase] ?? c.text3} />
          );
        })}
      </svg>
      <ul class="energy-parts">
        {phases.map((p) => (
          <li key={p.phase} data-part={p.phase}>
            <Swatch colour={c.phase[p.phase] ?? c.text3} />
            <Explain of={p.phase === 'idle' ? IDLE_TIME : 'phase'}>
              {p.phase === 'idle' ? 'Idle gaps' : phaseLabel(p.phase)}
            </Explain>
            <strong class="num">{percent(p.duration_ms / total)}</strong>
            <span class="num muted">{time(p.duration_ms)}</span>
          </li>
        ))}
      </ul>
    </>
  );
}

function Figures({ s }: { s: Summary | null }) {
  const u = unit.value;
  const figure = (label: string, value: (x: Summary) => string, term: Term, sub?: string) => (
    <Figure label={label} value={s ? value(s) : '…'} of={term} sub={sub} />
  );
  const tokens = !s || !isProgram(s);
  return (
    <dl class="figures headline" aria-busy={!s}>
      {tokens && figure('Typical token', (x) => typicalToken(x, u), 'typical', 'median')}
      {tokens && figure('Mean token', (x) => energyPerToken(x, u), 'per_token', 'request')}
      {figure('Whole run', (x) => runEnergy(x, u), 'energy', 'gross')}
      {figure('Above idle', (x) => energySigned(x.net_energy_mj, x.net_energy_sd_mj, u), 'net')}
      {tokens && figure('Model load', (x) => modelLoad(x, u), 'load')}
      {tokens &&
        figure(
          'Speed',
          (x) => (known(x.tokens_per_second) ? `${plain(x.tokens_per_second)} tok/s` : UNAVAILABLE),
          'speed',
          'decode',
        )}
      {s &&
        known(s.thinking_tokens) &&
        figure(
          'Thinking',
          (x) => percent(thinkingShare(x)),
          'thinking',
          thinkingTokens(s) ?? undefined,
        )}
      {figure('Duration', (x) => time(x.total_duration_ms), 'duration')}
      {tokens ? (
        figure(
          'Tokens',
          (x) => `${x.input_tokens ?? '–'} in, ${x.output_tokens ?? '–'} out`,
          'phase',
        )
      ) : (
        <Figure label="Mean power" value={power(s?.mean_power_mw ?? null)} of="power" />
      )}
    </dl>
  );
}

const hasDisturbances = (s: Summary): boolean => (s.disturbance?.duration_ms ?? 0) > 0;

function disturbedWords(s: Summary): string {
  const share = disturbed(s);
  const events = s.anomalies.filter((a) => a.kind === 'disturbance').length;
  if (s.disturbed_tokens === null) return 'disturbances not judged';
  if (!events) return 'no disturbances';
  const what = `${count(events)} ${events === 1 ? 'disturbance' : 'disturbances'}`;
  if (selection.value.calm) return `without ${what}`;
  return share ? `${share} of the request in ${what}` : what;
}

function Trust({ s, advice }: { s: Summary; advice: Advice | null }) {
  const samples = samplesPerToken(s);
  const partial = partialText(s);
  const a = s.attribution;
  const items: [string, Explanation][] = [];
  if (known(samples) && s.energy_source !== 'unavailable')
    items.push([
      `${plain(samples, 2)} power samples per token`,
      {
        title: 'Samples per token',
        text: 'Power samples over the length of the run, times the length of the median token. Below one, single tokens are told apart by the model of the run and not by the sensor alone.',
        term: 'samples',
      },
    ]);
  if (known(a?.interval) && s.energy_source !== 'unavailable')
    items.push([
      a.interval >= 1 ? 'components are not told apart' : `components ${spread(a.interval)}`,
      {
        title: 'Intervals of components',
        text: `Median half width of the components' 95 % intervals, by their energy net of idle.${known(a.interval_calibrated) ? ` A calibration (perjoule calibrate) would give ${spread(a.interval_calibrated)}.` : ''}`,
        term: 'uncertainty',
      },
    ]);
  if (!isProgram(s))
    items.push([
      disturbedWords(s),
      {
        title: 'Disturbed share',
        text: 'Share of the energy of the request beyond what is expected of its prompt, steps and gaps.',
        term: 'disturbed',
      },
    ]);
  const cost = profilingCost(s);
  if (cost)
    items.push([
      `profiling overhead: ${cost}`,
      {
        title: 'Cost of profiling',
        text: "The profiler's own processor time, as a share of the run's if that ran in the same process.",
        term: 'recording',
      },
    ]);
  for (const f of advice?.findings ?? [])
    if (f.kind === 'trust')
      items.push([
        f.title.toLowerCase(),
        {
          title: f.title,
          text: `${f.text} ${costOf(f.cost)}${f.test ? ` Test: ${f.test}` : ''}`,
          term: 'uncertainty',
        },
      ]);
  const expected = predictedLine(s.predicted);
  if (expected) items.push([expected, termed('predicted')]);
  return (
    <p class="trust">
      <SourceBadge source={s.energy_source} />
      {partial && <PartialBadge run={s} />}
      {items.map(([label, of]) => (
        <Explain key={label} of={of}>
          {label}
        </Explain>
      ))}
    </p>
  );
}

/** The server's advice; null until it is there, and for runs that are not stored yet. */
function useAdvice(data: RunData): Advice | null {
  const stored = data.summary.value.data?.status === 'completed';
  const g = selection.value.co2;
  const q = { g_per_kwh: g, ...without.value };
  const res = useResource(
    data.calm.value && stored ? `advice ${data.id} ${JSON.stringify(q)}` : null,
    (s) => api.advice(data.id, q, s),
  );
  return res.value.data ?? null;
}

type Saving = Advice['findings'][number]['saving'];

function savingOf(s: Saving): string | null {
  if (!s || !known(s.share)) return null;
  const range =
    known(s.share_lo) && known(s.share_hi)
      ? ` (${percent(s.share_lo)} to ${percent(s.share_hi)})`
      : '';
  return `${percent(s.share)}${range} of the ${s.of === 'total' ? 'run' : s.of}, ${s.basis}`;
}

/** The drawback, also where there is none. */
const costOf = (c: Advice['findings'][number]['cost']): string =>
  `Costs in quality: ${c.quality}; in latency: ${c.latency}; in memory: ${c.memory}.`;

/** The text that was copied last, which its button says for a while. */
const copied = signal<string | null>(null);
const SAID_MS = 2000;

function copy(text: string): void {
  navigator.clipboard?.writeText(text).then(
    () => {
      copied.value = text;
      setTimeout(() => {
        if (copied.peek() === text) copied.value = null;
      }, SAID_MS);
    },
    () => {},
  );
}

/** What would save energy; what limits the figures' reliability stands in the line of trust. Without advice
 * there is nothing here. */
function Findings({ advice, s }: { advice: Advice | null; s: Summary | null }) {
  const list = (advice?.findings ?? []).filter((f) => f.kind === 'saving').slice(0, 3);
  const tests = useTests(!!advice && !advice.refusal && !REPORT);
  // Tests of what is no longer advised, often because of them.
  const former = s
    ? [...tests].flatMap((name) => {
        const rule = ruleTested(name, s.id);
        return rule && !list.some((f) => f.rule === rule) ? [rule] : [];
      })
    : [];
  if (!list.length && !former.length) return <NoAdvice advice={advice} />;
  return (
    <div class="findings">
      <h3>What to change</h3>
      <ol>
        {list.map((f) => (
          <li key={f.rule} data-rule={f.rule}>
            <strong>{f.title}.</strong> <Sentence text={f.text} />{' '}
            {savingOf(f.saving) && <em>Expected: {savingOf(f.saving)}.</em>}{' '}
            <span class="muted cost">{costOf(f.cost)}</span>
            {s && !REPORT && (
              <TestHere
                s={s}
                rule={f.rule}
                finding={f}
                stored={tests.has(testName(f.rule, s.id))}
              />
            )}
            {f.test && (
              <span class="command">
                <code>{f.test}</code>
                <button
                  type="button"
                  class="tool"
                  aria-label={`Copy the command: ${f.test}`}
                  onClick={() => copy(f.test ?? '')}
                >
                  <Icon name={copied.value === f.test ? 'check' : 'copy'} />
                </button>
              </span>
            )}
          </li>
        ))}
        {s &&
          former.map((rule) => (
            <li key={rule} data-rule={rule}>
              <strong>Tested: {rule.replaceAll('-', ' ')}.</strong> No longer advised
              {reasonOf(advice, rule)}
              <TestHere s={s} rule={rule} finding={null} stored />
            </li>
          ))}
      </ol>
    </div>
  );
}

/** Why there is none. */
function NoAdvice({ advice }: { advice: Advice | null }) {
  if (!advice) return null;
  return (
    <p class="note no-advice">
      No advice: {advice.refusal ?? 'nothing here would save enough to be named'}.
    </p>
  );
}

const reasonOf = (advice: Advice | null, rule: string): string => {
  const reason = advice?.silent?.find((x) => x.rule === rule)?.reason;
  return reason ? `: ${reason}.` : '.';
};
