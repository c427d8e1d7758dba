// The plan of a new experiment: lists of settings whose every combination is run.
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { api } from '../../api/client';
import type { Plan } from '../../api/types';
import { capital, count } from '../../core/format';
import { Icon } from '../../parts/icon';
import { Notice, Sentence } from '../../parts/notice';
import { useResource } from '../../state/resource';

export const DTYPES = ['f32', 'bf16', 'f16', 'q8_0', 'q4_0'];

const form = signal({
  name: 'sweep',
  batches: '1',
  inputs: '32',
  outputs: '32',
  threads: '',
  repeat: '5',
  precision: '',
  coolDown: '',
  latency: '',
  seed: '1',
  evalText: '',
  tasksText: '',
});
const models = signal<string[]>([]);
const dtypes = signal<string[]>([]);
const error = signal<string | null>(null);
const sending = signal(false);

type Key = keyof typeof form.value;
const put = (key: Key, value: string): void => {
  form.value = { ...form.value, [key]: value };
};

/** Parses "1, 2,4"; anything but whole numbers is dropped. */
export function numbers(text: string): number[] | null {
  const parts = text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map(Number);
  return parts.every((n) => Number.isInteger(n) && n >= 0) ? parts : null;
}

const given = (text: string): number | undefined =>
  text.trim() === '' || !Number.isFinite(Number(text)) ? undefined : Number(text);

const LISTS = [
  ['batches', 'Batch sizes'],
  ['inputs', 'Prompt tokens'],
  ['outputs', 'New tokens'],
  ['threads', 'Threads'],
] as const;

export function planOf(): Plan | string {
  const f = form.value;
  // Names are part of URLs: the server accepts neither blanks nor slashes.
  const plan: Plan = { name: f.name.trim().replace(/[\s/]+/g, '-') || 'sweep' };
  for (const [key, label] of LISTS) {
    const list = numbers(f[key]);
    if (!list) return `${label}: whole numbers with commas between them`;
    if (list.length) plan[key] = list;
  }
  if (models.value.length) plan.models = models.value;
  if (dtypes.value.length) plan.dtypes = dtypes.value;
  const [repeat, precision, cool, latency, seed] = [
    given(f.repeat),
    given(f.precision),
    given(f.coolDown),
    given(f.latency),
    given(f.seed),
  ];
  if (repeat !== undefined) plan.repeat = repeat;
  if (precision !== undefined) plan.precision = precision / 100;
  if (cool !== undefined) plan.cool_down_s = cool;
  if (latency !== undefined) plan.max_latency_ms = latency;
  if (seed !== undefined) plan.seed = seed;
  if (f.evalText.trim()) plan.eval_text = f.evalText;
  if (f.tasksText.trim()) plan.tasks_text = f.tasksText;
  return plan;
}

/** Number of combinations in the plan. */
export const cellsOf = (p: Plan): number =>
  [p.models, p.dtypes, p.batches, p.inputs, p.outputs, p.threads].reduce(
    (a, l) => a * Math.max(1, l?.length ?? 1),
    1,
  );

/** The name, with a number where it is taken: one that has begun goes on instead of starting anew. */
export function freeName(name: string, taken: readonly string[]): string {
  const stem = name.replace(/-\d+$/, '');
  let free = name;
  for (let i = 2; taken.includes(free); i++) free = `${stem}-${i}`;
  return free;
}

export function PlanForm(props: { taken: readonly string[]; onBegun: (name: string) => void }) {
  const { taken, onBegun } = props;
  useEffect(() => put('name', freeName(form.peek().name, taken)), []);
  const found = useResource('models of a plan', (s) => api.models(s));
  const plan = planOf();
  const cells = typeof plan === 'string' ? 0 : cellsOf(plan);
  const begin = async () => {
    if (sending.value || typeof plan === 'string') return;
    sending.value = true;
    error.value = null;
    try {
      onBegun(await api.beginExperiment(plan));
    } catch (e) {
      error.value = capital(e instanceof Error ? e.message : String(e));
    }
    sending.value = false;
  };
  return (
    <form
      class="panel plan-form"
      aria-label="New experiment"
      onSubmit={(e) => {
        e.preventDefault();
        void begin();
      }}
    >
      <div class="plan-fields">
        <Text label="Name" name="name" />
        <Several
          label="Models"
          all={(found.value.data ?? []).filter((m) => !m.error).map((m) => m.name)}
          of={models}
          none="the demo model"
        />
        <Several label="Weights" all={DTYPES} of={dtypes} none="as stored" />
        {LISTS.map(([key, label]) => (
          <Text
            key={key}
            label={label}
            name={key}
            hint={key === 'threads' ? 'one per core' : key === 'batches' ? '1, 2, 4' : '32, 128'}
          />
        ))}
        <Text label="Runs of each cell" name="repeat" type="number" min="1" />
        <Text label="Until the interval is below, %" name="precision" type="number" min="0" />
        <Text label="Cool-down at most, s" name="coolDown" type="number" min="0" hint="none" />
        <Text label="Latency limit, ms a token" name="latency" type="number" min="0" hint="none" />
        <Text label="Seed of the order" name="seed" type="number" min="0" />
      </div>
      <Long label="Text to measure the loss on, optional" name="evalText" hint="none" />
      <Long
        label="Tasks that each model and type of weights answers, one JSON object per line"
        name="tasksText"
        hint={'{"prompt": "2 + 2 =", "answer": "4"}'}
      />
      <div class="row">
        <button
          type="submit"
          class="btn primary"
          disabled={sending.value || typeof plan === 'string'}
        >
          <Icon name="play" /> Start
        </button>
        <span class="note" role="status">
          {typeof plan === 'string'
            ? plan
            : `${count(cells)} ${cells === 1 ? 'cell' : 'cells'}, ${plan.precision ? 'at most ' : ''}${count(cells * (plan.repeat ?? 5))} runs in randomised blocks; single runs go first.`}
        </span>
      </div>
      {error.value && (
        <Notice bad>
          <Sentence text={error.value} />
        </Notice>
      )}
    </form>
  );
}

function Several(props: { label: string; all: string[]; of: { value: string[] }; none: string }) {
  const list = props.of.value;
  return (
    <fieldset class="field several">
      <legend>{props.label}</legend>
      <div class="row">
        {props.all.map((x) => (
          <label class="check" key={x}>
            <input
              type="checkbox"
              checked={list.includes(x)}
              onChange={() => {
                props.of.value = list.includes(x) ? list.filter((y) => y !== x) : [...list, x];
              }}
            />
            {x}
          </label>
        ))}
        {list.length === 0 && <span class="note">{props.none}</span>}
      </div>
    </fieldset>
  );
}

function Long(props: { label: string; name: Key; hint: string }) {
  return (
    <label class="field">
      <span>{props.label}</span>
      <textarea
        class="input"
        name={props.name}
        rows={2}
        placeholder={props.hint}
        value={form.value[props.name]}
        onInput={(e) => put(props.name, e.currentTarget.value)}
      />
    </label>
  );
}

function Text(props: { label: string; name: Key; type?: string; hint?: string; min?: string }) {
  return (
    <label class="field">
      <span>{props.label}</span>
      <input
        class="input"
        name={props.name}
        type={props.type ?? 'text'}
        placeholder={props.hint}
        min={props.min}
        step="any"
        value={form.value[props.name]}
        onInput={(e) => put(props.name, e.currentTarget.value)}
      />
    </label>
  );
}
