// The form that starts a run. Its contents are kept while another view is shown.
import { batch, effect, type Signal, signal, untracked } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { ApiError, api } from '../../api/client';
import type { DeviceList, GenerateRequest } from '../../api/types';
import { choiceName } from '../../core/devices';
import { capital, count, promptOf, shortId } from '../../core/format';
import { Icon } from '../../parts/icon';
import { Notice, Sentence } from '../../parts/notice';
import { Segmented } from '../../parts/segmented';
import { hasBegun, link, queue, run, stopping } from '../../state/live';
import { stateOf, useResource } from '../../state/resource';
import { at, settle } from '../../state/selection';

type Depth = 'off' | 'module' | 'deep';
const DEPTHS = [
  ['off', 'Off'],
  ['module', 'Module'],
  ['deep', 'Deep'],
] as const;
const DEPTH_HELP: Record<Depth, string> = {
  off: 'Phases, sections and tokens.',
  module:
    'Down to components. Costs below 1 %, more in models whose tokens take less than a millisecond.',
  deep: 'Down to single operations. Costs below 3 %, more in models whose tokens take less than a millisecond.',
};
const DTYPES = ['f32', 'bf16', 'f16', 'q8_0', 'q4_0'];
const KV_TYPES = ['f32', 'f16'];
const BATCH_RULES = ['tokens', 'equal'];
const STATISTICS = ['all', 'sampled', 'off'];

const EMPTY = {
  model: '',
  device: '',
  prompt: 'Once upon a time',
  depth: 'module' as Depth,
  length: '100',
  tags: '',
  experiment: '',
  temperature: '',
  topK: '',
  topP: '',
  seed: '',
  batch: '1',
  repeat: '1',
  warmup: '0',
  dtype: '',
  minP: '',
  typicalP: '',
  frequency: '',
  presence: '',
  bias: '',
  statistics: '',
  draft: '',
  draftTokens: '',
  penalty: '',
  stop: '',
  system: '',
  kv: '',
  batchRule: '',
};
const form = signal(EMPTY);
const chat = signal(false);
const ignoreEos = signal(false);
/** `away`: because the server could not be reached. */
const error = signal<{ text: string; away: boolean } | null>(null);
const sending = signal(false);

function fail(e: unknown): void {
  const said = e instanceof ApiError;
  error.value = { text: said ? e.message : String(e), away: !said || e.status === 0 };
}

type Key = keyof typeof form.value;
const put = (key: Key, value: string): void => {
  form.value = { ...form.value, [key]: value };
};

/** The model that is offered first; it is not named in the URL. */
let first = '';
/** Longer texts stay out of the URL. */
const LONGEST = 1000;

/** What the form holds other than by default, as a query for the URL. */
function written(): string {
  const q = new URLSearchParams();
  for (const key of Object.keys(EMPTY) as Key[]) {
    const value = form.value[key];
    const usual = key === 'model' ? first : EMPTY[key];
    if (value !== usual && value.length <= LONGEST) q.set(key, value);
  }
  if (chat.value) q.set('chat', '1');
  if (ignoreEos.value) q.set('ignoreEos', '1');
  return q.toString();
}

function read(text: string): void {
  const q = new URLSearchParams(text);
  const said = (Object.keys(EMPTY) as Key[]).filter((k) => q.has(k)).map((k) => [k, q.get(k)]);
  batch(() => {
    form.value = { ...EMPTY, model: first, ...Object.fromEntries(said) };
    if (!(form.value.depth in DEPTH_HELP)) put('depth', EMPTY.depth);
    chat.value = q.has('chat');
    ignoreEos.value = q.has('ignoreEos');
  });
}

/** Keeps form and URL equal. The form stays what it was where the URL says nothing at first. */
function useAsk(): void {
  useEffect(() => {
    if (at.ask.peek()) read(at.ask.peek());
    const stops = [
      effect(() => settle({ ask: written() })),
      effect(() => {
        if (at.ask.value !== untracked(written)) read(at.ask.value);
      }),
    ];
    return () => {
      for (const stop of stops) stop();
    };
  }, []);
}

const given = (text: string): number | undefined =>
  text.trim() === '' || !Number.isFinite(Number(text)) ? undefined : Number(text);

function request(): GenerateRequest {
  const f = form.value;
  return {
    prompt: f.prompt,
    profiling_depth: f.depth,
    max_length: given(f.length) ?? 100,
    tags: f.tags
      .split(',')
      .map((t) => t.trim())
      .filter(Boolean),
    wait: false,
    ...(f.model && { model_name: f.model }),
    ...(f.device && { device: f.device }),
    ...(f.experiment && { experiment_name: f.experiment }),
    ...(given(f.temperature) !== undefined && { temperature: given(f.temperature) }),
    ...(given(f.topK) !== undefined && { top_k: given(f.topK) }),
    ...(given(f.topP) !== undefined && { top_p: given(f.topP) }),
    ...(given(f.seed) !== undefined && { seed: given(f.seed) }),
    ...((given(f.batch) ?? 1) > 1 && { batch_size: given(f.batch) }),
    ...(f.dtype && { dtype: f.dtype }),
    ...(f.kv && { kv: f.kv }),
    ...(f.batchRule && (given(f.batch) ?? 1) > 1 && { batch_rule: f.batchRule }),
    ...(given(f.minP) !== undefined && { min_p: given(f.minP) }),
    ...(given(f.typicalP) !== undefined && { typical_p: given(f.typicalP) }),
    ...(given(f.frequency) !== undefined && { frequency_penalty: given(f.frequency) }),
    ...(given(f.presence) !== undefined && { presence_penalty: given(f.presence) }),
    ...(f.bias.trim() && { logit_bias: biases(f.bias) }),
    ...(f.statistics && { statistics: f.statistics }),
    ...(f.draft.trim() && { draft_model: f.draft.trim() }),
    ...(f.draft.trim() && given(f.draftTokens) && { draft_tokens: given(f.draftTokens) }),
    ...(given(f.penalty) !== undefined && { repetition_penalty: given(f.penalty) }),
    ...(stops(f.stop).length && { stop: stops(f.stop) }),
    ...(chat.value && { chat: true, ...(f.system && { system: f.system }) }),
    ...(ignoreEos.value && { ignore_eos: true }),
  };
}

/** Parses comma-separated "ID=BIAS"; invalid input is passed on for the server to reject. */
const biases = (text: string): Record<string, number> =>
  Object.fromEntries(
    text.split(',').map((one) => {
      const [id = '', bias = ''] = one.split('=').map((part) => part.trim());
      return [id, Number(bias)];
    }),
  );

/** One text per line; `\\n` stands for a line feed. */
const stops = (text: string): string[] =>
  text
    .split('\n')
    .filter((t) => t !== '')
    .map((t) => t.replaceAll('\\n', '\n'));

const times = (text: string, least: number): number =>
  Math.max(least, Math.min(50, Math.round(given(text) ?? least)));

/** Warm-up runs are stored with a tag, outside the experiment, so that no mean includes them. */
const WARM_UP = 'warm-up';
function warmUp(): GenerateRequest {
  const { experiment_name: _, ...ask } = request();
  return { ...ask, tags: [WARM_UP] };
}

/** What was asked for last, to run it again. */
export const lastRequest = signal<GenerateRequest | null>(null);

async function start(): Promise<void> {
  if (sending.value) return;
  sending.value = true;
  error.value = null;
  lastRequest.value = request();
  try {
    for (let i = times(form.value.warmup, 0); i > 0; i--) await api.generate(warmUp());
    for (let i = times(form.value.repeat, 1); i > 0; i--) await api.generate(request());
  } catch (e) {
    fail(e);
  }
  sending.value = false;
}

const LISTED = 50;

/** The runs that wait, oldest first. */
async function waiting(): Promise<{ id: string; position: number; prompt: string }[]> {
  const ask = { status: 'queued', sort: 'date', order: 'asc', limit: LISTED };
  const { runs } = await api.runs(ask);
  return runs
    .filter((r) => r.status === 'queued')
    .map((r, i) => ({ id: r.id, position: i + 1, prompt: promptOf(r) }));
}

/** What was queued before this page was opened or while it was cut off; later runs are announced. */
async function fetchQueue(): Promise<void> {
  const before = new Set(queue.peek().map((q) => q.id));
  const found = await waiting().catch(() => null);
  if (!found) return;
  const listed = new Set(found.map((q) => q.id));
  // Those that were stopped meanwhile are not in the server's list, which ends somewhere.
  const rest = queue
    .peek()
    .filter((q) => !listed.has(q.id) && (!before.has(q.id) || found.length === LISTED));
  queue.value = [...found.filter((q) => !hasBegun(q.id)), ...rest].sort(
    (a, b) => a.position - b.position,
  );
}

/** The prompts of the runs that were announced. */
async function fetchPrompts(): Promise<void> {
  const found = await waiting().catch(() => []);
  // '' where there is none, so that it is not asked for again.
  queue.value = queue
    .peek()
    .map((q) => ({ ...q, prompt: q.prompt ?? found.find((r) => r.id === q.id)?.prompt ?? '' }));
}

async function stop(id: string): Promise<void> {
  try {
    const said = await api.cancel(id);
    if (said === 'stopping') stopping.value = id;
    queue.value = queue.value.filter((q) => q.id !== id);
  } catch (e) {
    fail(e);
  }
}

export function StartForm() {
  useAsk();
  const models = useResource('models', (s) => api.models(s));
  const devices = useResource('devices', (s) => api.devices(s)).value.data?.devices ?? [];
  const f = form.value;
  const list = models.value.data ?? [];
  useEffect(() => {
    if (!list.length) return;
    first = list.find((m) => !m.error)?.name ?? '';
    if (!form.value.model) put('model', first);
  }, [list]);
  const there = link.value === 'open';
  const active = there && run.value && run.value.state !== 'ended' ? run.value : null;
  // Errors from the time the server was unreachable are cleared when it is back.
  useEffect(() => {
    if (there) {
      if (error.peek()?.away) error.value = null;
      void fetchQueue();
      if (models.value.error) models.retry();
    }
  }, [there]);
  const unnamed = queue.value.some((q) => q.prompt === undefined);
  useEffect(() => {
    if (there && unnamed) void fetchPrompts();
  }, [there, unnamed]);
  const chosen = list.find((m) => m.name === f.model);
  const state = stateOf(models);
  return (
    <form
      class="panel start"
      aria-label="Start a run"
      onSubmit={(e) => {
        e.preventDefault();
        void start();
      }}
      onKeyDown={(e) => {
        if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) {
          e.preventDefault();
          void start();
        }
      }}
    >
      <label class="field">
        <span>Model</span>
        <select
          class="input"
          name="model"
          value={f.model}
          onChange={(e) => put('model', e.currentTarget.value)}
        >
          {list.map((m) => (
            <option key={m.name} value={m.name} disabled={!!m.error}>
              {m.name}
              {m.error ? ' (cannot be read)' : ''}
            </option>
          ))}
        </select>
      </label>
      {state.kind === 'error' && (
        <Notice bad>
          <Sentence text={state.text} />
        </Notice>
      )}
      {chosen && (
        <p class="note">
          {[
            chosen.architecture,
            chosen.parameters !== null && `${count(chosen.parameters)} parameters`,
            chosen.layers !== null && `${chosen.layers} layers`,
            chosen.attention?.toUpperCase(),
            chosen.dtype,
          ]
            .filter(Boolean)
            .join(' · ')}
        </p>
      )}
      {devices.length > 1 && <DeviceChoice devices={devices} />}
      <label class="field">
        <span>Prompt</span>
        <textarea
          class="input"
          name="prompt"
          rows={3}
          required
          value={f.prompt}
          onInput={(e) => put('prompt', e.currentTarget.value)}
        />
      </label>
      <Check label="Chat" of={chat} title="Run the prompt through the model's own chat template" />
      {chat.value && (
        <label class="field">
          <span>System message</span>
          <textarea
            class="input"
            name="system"
            rows={2}
            value={f.system}
            onInput={(e) => put('system', e.currentTarget.value)}
          />
        </label>
      )}
      <div class="field">
        <span>Depth</span>
        <Segmented
          label="Depth"
          value={f.depth}
          options={DEPTHS}
          onChange={(v) => put('depth', v)}
        />
        <p class="note">{DEPTH_HELP[f.depth]}</p>
      </div>
      <div class="pair">
        <Text label="New tokens" name="length" type="number" min="1" />
        <Text
          label="Temperature"
          name="temperature"
          type="number"
          min="0"
          step="0.05"
          hint="greedy"
        />
      </div>
      <Text label="Tags" name="tags" hint="baseline, bf16" />
      <details>
        <summary>More settings</summary>
        <div class="pair">
          <Text label="Top k" name="topK" type="number" min="1" />
          <Text label="Top p" name="topP" type="number" min="0" max="1" step="0.01" />
        </div>
        <div class="pair">
          <Text label="Min p" name="minP" type="number" min="0" max="1" step="0.01" />
          <Text
            label="Repetition penalty"
            name="penalty"
            type="number"
            min="0.01"
            step="0.01"
            hint="1: none"
          />
        </div>
        <div class="pair">
          <Text label="Typical p" name="typicalP" type="number" min="0.001" max="1" step="0.01" />
          <Text label="Logit bias" name="bias" hint="ID=BIAS, …" />
        </div>
        <div class="pair">
          <Text
            label="Frequency penalty"
            name="frequency"
            type="number"
            min="-2"
            max="2"
            step="0.1"
            hint="0: none"
          />
          <Text
            label="Presence penalty"
            name="presence"
            type="number"
            min="-2"
            max="2"
            step="0.1"
            hint="0: none"
          />
        </div>
        <div class="pair">
          <Text label="Draft model" name="draft" hint="none" />
          <Text
            label="Tokens it proposes"
            name="draftTokens"
            type="number"
            min="1"
            max="16"
            hint="4"
          />
        </div>
        <Choice label="Statistics from" name="statistics" options={STATISTICS} none="by depth" />
        <div class="pair">
          <Text label="Seed" name="seed" type="number" min="0" />
          <Text label="Batch size" name="batch" type="number" min="1" />
        </div>
        <div class="pair">
          <Choice label="Weights" name="dtype" options={DTYPES} none="as stored" />
          <Choice label="KV cache" name="kv" options={KV_TYPES} none="the engine's choice" />
        </div>
        {(given(f.batch) ?? 1) > 1 && (
          <Choice
            label="Split the energy of a shared step by"
            name="batchRule"
            options={BATCH_RULES}
            none="bytes"
          />
        )}
        <label class="field">
          <span>Stop at</span>
          <textarea
            class="input stops"
            name="stop"
            rows={2}
            placeholder="one text per line"
            value={f.stop}
            onInput={(e) => put('stop', e.currentTarget.value)}
          />
        </label>
        <Check
          label="Go on after the end of the text"
          of={ignoreEos}
          title="Continue past end-of-sequence tokens, up to the number of new tokens"
        />
        <div class="pair">
          <Text label="Warm-up runs" name="warmup" type="number" min="0" max="50" />
          <Text label="Repeat" name="repeat" type="number" min="1" max="50" />
        </div>
        <p class="note">
          Warm-up runs come first, with the tag <code>{WARM_UP}</code> and outside of the
          experiment.
        </p>
        <Text label="Experiment" name="experiment" />
      </details>
      <div class="row start-actions">
        <button
          type="submit"
          class="btn primary"
          disabled={sending.value || !there || !f.prompt.trim()}
        >
          <Icon name="play" /> {active ? 'Queue' : 'Start'}
        </button>
        <button
          type="button"
          class="btn"
          disabled={!active || stopping.value === active?.id}
          onClick={() => {
            if (active) void stop(active.id);
          }}
        >
          <Icon name="stop" /> {active && stopping.value === active.id ? 'Stopping…' : 'Stop'}
        </button>
        <span class="note">Ctrl+Enter starts</span>
      </div>
      {error.value && (
        <Notice bad>
          <Sentence text={capital(error.value.text)} />
        </Notice>
      )}
      {queue.value.length > 0 && (
        <div>
          <h3>Queue</h3>
          <ul class="queue">
            {queue.value.map((q) => (
              <li key={q.id}>
                {q.prompt ? (
                  <span class="queued-prompt" title={q.prompt}>
                    {q.prompt}
                  </span>
                ) : (
                  <span class="mono">{shortId(q.id)}</span>
                )}
                <button
                  type="button"
                  class="tool"
                  aria-label={`Cancel queued run ${q.id}`}
                  onClick={() => void stop(q.id)}
                >
                  <Icon name="close" />
                </button>
              </li>
            ))}
          </ul>
        </div>
      )}
    </form>
  );
}

/** Only where there is more than the CPU. */
function DeviceChoice({ devices }: { devices: DeviceList['devices'] }) {
  const chosen = devices.find((d) => d.id === form.value.device);
  return (
    <label class="field">
      <span>Device</span>
      <select
        class="input"
        name="device"
        value={form.value.device}
        onChange={(e) => put('device', e.currentTarget.value)}
      >
        <option value="">the server's choice</option>
        {devices.map((d) => (
          <option key={d.id} value={d.id} disabled={!d.usable}>
            {choiceName(d, devices)}
            {d.usable ? '' : ' (cannot be used)'}
          </option>
        ))}
      </select>
      {chosen && !chosen.rail && (
        <p class="note">Not measured: {chosen.rail_reason ?? 'no rail'}.</p>
      )}
    </label>
  );
}

function Choice(props: { label: string; name: Key; options: string[]; none: string }) {
  return (
    <label class="field">
      <span>{props.label}</span>
      <select
        class="input"
        name={props.name}
        value={form.value[props.name]}
        onChange={(e) => put(props.name, e.currentTarget.value)}
      >
        <option value="">{props.none}</option>
        {props.options.map((d) => (
          <option key={d} value={d}>
            {d}
          </option>
        ))}
      </select>
    </label>
  );
}

function Check({ label, of, title }: { label: string; of: Signal<boolean>; title: string }) {
  return (
    <label class="check" title={title}>
      <input
        type="checkbox"
        checked={of.value}
        onChange={(e) => {
          of.value = e.currentTarget.checked;
        }}
      />
      {label}
    </label>
  );
}

function Text(props: {
  label: string;
  name: Key;
  type?: string;
  hint?: string;
  min?: string;
  max?: string;
  step?: string;
}) {
  return (
    <label class="field">
      <span>{props.label}</span>
      <input
        class="input"
        name={props.name}
        type={props.type ?? 'text'}
        placeholder={props.hint}
        min={props.min}
        max={props.max}
        step={props.step}
        value={form.value[props.name]}
        onInput={(e) => put(props.name, e.currentTarget.value)}
      />
    </label>
  );
}
