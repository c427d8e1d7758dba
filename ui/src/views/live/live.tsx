// The live view: the current run, power, the heatmap after each token, the text coloured by
// energy.
import { computed, signal, useSignalEffect } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { api } from '../../api/client';
import type { EnergySource, Sensors } from '../../api/types';
import { Heatmap } from '../../charts/heatmap';
import { Canvas, Panel, register } from '../../charts/panel';
import { capital, count, energy, time } from '../../core/format';
import { paced } from '../../core/frame';
import { amountOf } from '../../core/quantity';
import { scaleOf } from '../../core/stats';
import { SourceBadge } from '../../parts/badge';
import { Notice, Sentence } from '../../parts/notice';
import { RampKey } from '../../parts/ramp_key';
import { TokenStream } from '../../parts/token_stream';
import * as live from '../../state/live';
import { useResource } from '../../state/resource';
import { at, select } from '../../state/selection';
import { rampName, unit } from '../../state/settings';
import { endsOf } from '../analysis/heatmap';
import { StartForm } from './form';
import { Meters } from './meters';
import { NowBar } from './now';
import { LivePower } from './power';

export function LiveView() {
  useSensors();
  return (
    <div class="live">
      <h1 class="sr-only">Live</h1>
      <div class="stack live-main">
        <Warnings />
        <NowBar />
        <Meters />
        <LivePower />
        <div class="grid">
          <LiveHeatmap />
          <LiveTokens />
        </div>
      </div>
      <aside class="live-side">
        <StartForm />
      </aside>
    </div>
  );
}

/** The server's power sources; reloaded after a reconnect, because they may have changed. */
function useSensors(): void {
  const open = live.link.value === 'open';
  const found = useResource(`sensors ${open}`, (s) => api.sensors(s));
  useEffect(() => {
    if (found.value.data) live.sensors.value = found.value.data;
  }, [found.value.data]);
}

/** Before the first run: a notice if no energy can be measured, with the remedy. */
function NoPower({ power, sources }: Sensors) {
  if (sources.some((s) => s.in_use)) return null;
  if (power === 'none') {
    return (
      <Notice>
        <strong>This server measures no power.</strong> It was started with{' '}
        <code>--power none</code>; without that option it uses the sensors of this machine.
      </Notice>
    );
  }
  // Sources that must be requested explicitly are no remedy for a missing sensor.
  const helpful = sources.filter((s) => s.state === 'denied' || s.state === 'absent');
  return (
    <Notice>
      <strong>No power sensor is ready on this machine.</strong> Runs record timing and statistics;
      energy stays unavailable. For modelled figures start the server with{' '}
      <code>--power estimate</code>.
      {helpful.length > 0 && (
        <details class="remedies" open={helpful.some((s) => s.state === 'denied')}>
          <summary>What each source needs</summary>
          <ul>
            {helpful.map((s) => (
              <li key={s.name}>
                <strong>{s.name}</strong>: {s.reason}
                {s.remedy && (
                  <>
                    . Remedy: <code>{s.remedy}</code>
                  </>
                )}
              </li>
            ))}
          </ul>
        </details>
      )}
    </Notice>
  );
}

function Warnings() {
  const sensors = live.sensors.value;
  const list = live.warnings.value;
  const told = live.run.value?.error; // said below, as what the run failed of
  return (
    <>
      {sensors && <NoPower {...sensors} />}
      {list
        .filter((w) => w.text !== told)
        .map((w) => (
          <Notice key={w.code + w.text}>
            <Sentence text={capital(w.text)} />
          </Notice>
        ))}
    </>
  );
}

/** What the values of a heatmap belong to: a batch shares its steps. */
function gridName(g: live.LiveGrid): string {
  if (g.sequence !== undefined) return `Token ${g.token} of sequence ${g.sequence}, its share`;
  return live.lanes.length > 1 ? `Step ${g.token}, all sequences` : `Token ${g.token}`;
}

/** No energy is known, and none will come. */
const isWithoutEnergy = (): boolean => {
  const reads = live.sensors.value?.sources.some((s) => s.in_use) ?? true;
  return live.source.value === 'unavailable' || !reads;
};

/** What the badge says. The first heatmaps may show time because no reading has come yet. */
function gridSource(g: live.LiveGrid): EnergySource | null {
  if (g.what.metric === 'energy') return g.what.source === 'measured' ? null : g.what.source;
  return isWithoutEnergy() ? 'unavailable' : null;
}

let heatRange: [number, number] = [0, 1];
let heatClipped = false;
let heatLog = false;
let heatRun: string | null = null;

function LiveHeatmap() {
  const chart = useRef<Heatmap | null>(null);
  // The chart is updated for every token, the texts around it a few times per second.
  live.glance.value;
  const g = live.grid.peek();
  const r = live.run.value;
  useSignalEffect(() => {
    const grid = live.grid.value;
    if (!grid || !chart.current) return;
    show(chart.current, grid);
  });
  const [lo, hi] = heatRange;
  const text = (v: number) => (g?.what.metric === 'time' ? time(v) : energy(v, unit.value));
  return (
    <Panel
      class="span-7"
      title="Layers and components"
      note={
        g?.what.metric === 'time'
          ? 'Time of the last token, by layer and component.'
          : 'Energy of the last token, by layer and component.'
      }
      badge={<SourceBadge source={g && gridSource(g)} />}
      state={
        g
          ? { kind: 'ready' }
          : r?.depth === 'off'
            ? { kind: 'empty', text: 'At depth off a run records no layers.' }
            : r?.state === 'ended'
              ? { kind: 'empty', text: 'The run ended before its first token.' }
              : { kind: 'empty', text: 'The heatmap fills with the first token.' }
      }
      legend={
        <RampKey
          label={g ? `${gridName(g)}${heatLog ? ', logarithmic' : ''}` : ''}
          lo={text(lo)}
          hi={`${heatClipped ? '≥ ' : ''}${text(hi)}`}
        />
      }
      table={() => gridTable(g)}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <Canvas
        class="h-live-map"
        name="liveHeatmap"
        label={
          g
            ? `Heatmap of ${g.layers} layers by ${g.components.length} components for ${gridName(g).toLowerCase()}, from ${text(lo)} to ${text(hi)}.`
            : 'Heatmap'
        }
        make={(host) => new Heatmap(host)}
        handle={chart}
        update={(c) => {
          unit.value;
          if (live.grid.peek() && c.shape[0] === 0) show(c, live.grid.peek()!);
        }}
      />
    </Panel>
  );
}

/** The colour scale adapts slowly, so that successive tokens are comparable, and recovers within some tokens
 * after an outlier. */
const FALL = 0.9;

function show(chart: Heatmap, g: live.LiveGrid): void {
  const id = live.run.peek()?.id ?? null;
  // At the end as in Analysis: logarithmic where the values span decades. Before, the kind of scale does not change
  // from token to token.
  const ended = live.run.peek()?.state === 'ended';
  const last = ended ? endsOf(g.values, 'auto') : null;
  const scale = last ?? scaleOf(g.values);
  heatLog = last?.log ?? false;
  const e: [number, number] | null = scale && [scale.lo, scale.hi];
  // Nor has the last heatmap of a run one to be compared with.
  const fresh = id !== heatRun || g.token <= 1 || ended;
  heatRun = id;
  if (e) {
    heatRange = fresh
      ? e
      : [Math.min(e[0], heatRange[0] / FALL), Math.max(e[1], FALL * heatRange[1])];
  }
  const [lo, hi] = heatRange;
  heatClipped = !!scale && g.values.some((v) => v > hi);
  chart.set({
    layers: Array.from({ length: g.layers }, (_, i) => i),
    components: g.components,
    values: g.values,
    lo,
    hi,
    log: heatLog,
    show: (v) => (g.what.metric === 'time' ? time(v) : energy(v, unit.peek())),
    unit: g.what.metric === 'time' ? 'Time' : 'Energy',
  });
}

function gridTable(g: live.LiveGrid | null) {
  if (!g) return { columns: [], rows: [] };
  return {
    columns: [
      'layer',
      ...g.components.map((c) => `${c}_${g.what.metric === 'time' ? 'time_ms' : 'energy_mj'}`),
    ],
    rows: Array.from({ length: g.layers }, (_, i) => [
      i,
      ...g.components.map((_, j) => {
        const v = g.values[i * g.components.length + j];
        return Number.isFinite(v) ? v : null;
      }),
    ]),
  };
}

const anyTokens = computed(() => live.tokensVersion.value > 0 && live.tokens.length > 0);
const sequences = computed(() => (live.tokensVersion.value > 0 ? live.lanes.length : 0));

/** The sequence of a batch whose text is shown; together they would be one word many times. */
const lane = (): number => Math.min(at.sequence.peek() ?? 0, Math.max(0, live.lanes.length - 1));

const isModelled = (): boolean => live.tokens[live.tokens.length - 1]?.energy.source === 'modelled';

function ChooseSequence({ of }: { of: number }) {
  return (
    <label class="choose-sequence">
      <span class="note">{count(of)} sequences</span>
      <select
        class="input"
        aria-label="Sequence"
        value={Math.min(at.sequence.value ?? 0, of - 1)}
        onChange={(e) => select({ sequence: Number(e.currentTarget.value) || null })}
      >
        {Array.from({ length: of }, (_, q) => (
          <option key={q} value={q}>
            Sequence {q}
          </option>
        ))}
      </select>
    </label>
  );
}

function LiveTokens() {
  const host = useRef<HTMLDivElement>(null);
  const stream = useRef<TokenStream | null>(null);
  const paused = useRef(signal(-1)).current;
  const range = useRef(signal<[number, number]>([Number.NaN, Number.NaN])).current;
  useEffect(() => {
    if (!host.current) return;
    const s = new TokenStream(host.current, live.KEPT_TOKENS);
    s.onPause = (p, missed) => {
      paused.value = p ? missed : -1;
    };
    stream.current = s;
    register('tokenStream', s);
    return () => {
      s.dispose();
      stream.current = null;
    };
  }, []);
  const draw = useRef(
    paced(50, () => {
      const s = stream.current;
      if (!s) return;
      s.timed = isWithoutEnergy();
      s.set(live.lanes[lane()] ?? []);
      const [lo, hi] = s.range;
      if (lo !== range.peek()[0] || hi !== range.peek()[1]) range.value = [lo, hi];
    }),
  ).current;
  useSignalEffect(() => {
    live.tokensVersion.value;
    at.sequence.value;
    draw();
  });
  useSignalEffect(() => {
    rampName.value;
    live.tokensVersion.value;
    if (live.run.value?.state === 'ended') {
      if (stream.current) stream.current.timed = isWithoutEnergy();
      stream.current?.set(live.lanes[lane()] ?? []);
      stream.current?.recolour();
      range.value = stream.current?.range ?? range.peek();
    }
  });
  const any = anyTokens.value;
  const [lo, hi] = range.value;
  const timed = isWithoutEnergy();
  const text = (v: number) => (timed ? time(v) : energy(v, unit.value));
  return (
    <Panel
      class="span-5"
      title="Tokens"
      note={`The text as it comes; colour is ${timed ? 'time' : 'energy'} per token, hover for details.`}
      badge={
        <SourceBadge source={timed ? 'unavailable' : any && isModelled() ? 'modelled' : null} />
      }
      legend={
        any && (
          <>
            {Number.isFinite(lo) && (
              <RampKey
                label={timed ? 'Time' : 'Energy'}
                lo={text(lo)}
                hi={`${stream.current?.clipped ? '≥ ' : ''}${text(hi)}`}
              />
            )}
            {sequences.value > 1 && <ChooseSequence of={sequences.value} />}
          </>
        )
      }
      table={() => ({
        columns: ['position', 'sequence', 'text', 'phase', 'duration_ms', 'energy_mj', 'power_mw'],
        rows: live.tokens.map((t) => [
          t.position,
          t.sequence,
          t.text,
          t.phase,
          t.duration,
          amountOf(t.energy),
          amountOf(t.power),
        ]),
      })}
    >
      <div class="stream-box">
        <div
          ref={host}
          class="stream"
          // biome-ignore lint/a11y/noNoninteractiveTabindex: tokens are walked with the arrow keys
          tabIndex={0}
          role="log"
          aria-live="off"
          aria-label="Generated text, token by token"
        />
        {!any && (
          <div class="state">
            {live.run.value?.state === 'ended'
              ? 'The run ended before its first token.'
              : 'Tokens appear here one by one.'}
          </div>
        )}
        {paused.value >= 0 && (
          <button
            type="button"
            class="btn small stream-resume"
            onClick={() => stream.current?.resume()}
          >
            Paused{paused.value > 0 ? `, ${paused.value} new` : ''}. Follow again
          </button>
        )}
      </div>
    </Panel>
  );
}
