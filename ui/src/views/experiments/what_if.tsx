// Predicted cost of a request on this machine: several batch sizes side by side, and a map over prompt and
// output length.
import { api } from '../../api/client';
import type { Prediction } from '../../api/types';
import { Panel } from '../../charts/panel';
import { energy, known, type Num, percent, time } from '../../core/format';
import { css, level, ramp } from '../../core/ramp';
import { LackBadge, SourceBadge } from '../../parts/badge';
import { Explain, type Explanation } from '../../parts/explain';
import { stateOf, useResource } from '../../state/resource';
import { select, type WhatIf, without } from '../../state/selection';
import { rampName, unit } from '../../state/settings';
import { DTYPES, numbers } from './form';

/** Batch sizes shown side by side. */
const BATCHES = 6;

export const ASKED: WhatIf = { input: '32', output: '64', batches: '1,8', dtype: '', model: '' };

const FIELDS: [Exclude<keyof WhatIf, 'model' | 'dtype'>, string][] = [
  ['input', 'Prompt tokens'],
  ['output', 'New tokens'],
  ['batches', 'Batch sizes'],
];

const joules = (v: Num): string => energy(known(v) ? v * 1000 : null, unit.value);
const seconds = (v: Num): string => time(known(v) ? v * 1000 : null);

export function WhatIfPanel({ ask }: { ask: WhatIf }) {
  const models = useResource('models of what-if', (s) => api.models(s)).value.data ?? [];
  const model = ask.model || models.find((m) => !m.error)?.name || '';
  const batches = (numbers(ask.batches) ?? []).filter((b) => b > 0).slice(0, BATCHES);
  const [input, output] = [Number(ask.input), Number(ask.output)];
  const whole = [input, output].every((n) => Number.isInteger(n) && n > 0) && batches.length > 0;
  const calm = without.value;
  const res = useResource(
    whole && model ? JSON.stringify({ ...ask, model, ...calm }) : null,
    async (signal) => {
      await new Promise((done) => setTimeout(done, 250));
      signal.throwIfAborted();
      const one = (batch: number, i: number) =>
        api.predict(
          { model, dtype: ask.dtype, input, output, batch, map: i === 0 ? 'true' : null, ...calm },
          signal,
        );
      return Promise.all(batches.map(one));
    },
  );
  const put = (key: keyof WhatIf, value: string) => select({ whatIf: { ...ask, [key]: value } });
  const list = res.value.data;
  return (
    <Panel
      class="what-if"
      title="What would it cost?"
      note="Energy and time of a request before it runs, from the architecture of the model and the runs of this machine."
      badge={
        <>
          <SourceBadge
            source={list?.some((p) => !p.refusal && p.rests_on === 'modelled') ? 'modelled' : null}
          />
          <LackBadge text={list?.find((p) => !p.refusal)?.partial} />
        </>
      }
      actions={
        <button type="button" class="btn small" onClick={() => select({ whatIf: null })}>
          Close
        </button>
      }
      legend={
        <div class="fields">
          <label class="field">
            Model
            <input
              class="input"
              list="what-if-models"
              value={model}
              onChange={(e) => put('model', e.currentTarget.value)}
            />
          </label>
          <datalist id="what-if-models">
            {models.map((m) => (
              <option key={m.name} value={m.name} />
            ))}
          </datalist>
          <label class="field">
            Weights
            <select
              class="input"
              value={ask.dtype}
              onChange={(e) => put('dtype', e.currentTarget.value)}
            >
              <option value="">as stored</option>
              {DTYPES.map((d) => (
                <option key={d} value={d}>
                  {d}
                </option>
              ))}
            </select>
          </label>
          {FIELDS.map(([key, label]) => (
            <label class="field" key={key}>
              {label}
              <input
                class="input"
                inputMode="numeric"
                value={ask[key]}
                onInput={(e) => put(key, e.currentTarget.value)}
              />
            </label>
          ))}
        </div>
      }
      state={
        whole
          ? model
            ? stateOf(res)
            : { kind: 'empty', text: 'Name a model to predict for.' }
          : { kind: 'empty', text: 'Lengths and batch sizes are whole numbers above 0.' }
      }
      table={() => ({
        columns: [
          'batch',
          'joules',
          'joules_lo',
          'joules_hi',
          'joules_per_token',
          'seconds',
          'refusal',
        ],
        rows: (list ?? []).map((p) => [
          p.batch,
          p.joules,
          p.joules_lo,
          p.joules_hi,
          p.joules_per_token,
          p.seconds,
          p.refusal,
        ]),
      })}
    >
      {list && <Answers list={list} />}
      {list?.[0]?.map && <LengthMap p={list[0]} map={list[0].map} />}
    </Panel>
  );
}

/** What the columns say. */
const HEADS: [string, Explanation][] = [
  [
    'Per token',
    { title: 'Predicted energy per token', text: 'Of one output token.', term: 'predicted' },
  ],
  [
    '95 % interval',
    {
      title: 'Interval',
      text: 'Where the energy per token lies 19 times in 20.',
      term: 'predicted',
    },
  ],
  [
    'Against batch',
    {
      title: 'Saving',
      text: 'Energy per token less than, or more than, with the first batch size.',
      term: 'predicted',
    },
  ],
  ['Request', { title: 'Energy of the request', text: 'Of all its sequences.', term: 'predicted' }],
  ['Time', { title: 'Time of the request', text: 'Without loading the model.', term: 'duration' }],
];

/** Answers in order; neighbours that were refused for the same reason share a row. */
function byRefusal(list: Prediction[]): Prediction[][] {
  const rows: Prediction[][] = [];
  for (const p of list) {
    const before = rows.at(-1);
    if (p.refusal && before?.[0].refusal === p.refusal) before.push(p);
    else rows.push([p]);
  }
  return rows;
}

function Answers({ list }: { list: Prediction[] }) {
  const first = list[0];
  const head = (i: number) => {
    const [label] = HEADS[i];
    return label === 'Against batch' ? `${label} ${first?.batch}` : label;
  };
  return (
    <div class="scroll-x">
      <table class="ops reflow" aria-label="Predictions by batch">
        <thead>
          <tr>
            <th scope="col">
              <Explain of="predicted">Batch</Explain>
            </th>
            {HEADS.map(([label, help], i) => (
              <th scope="col" class="num" key={label}>
                <Explain of={help}>{head(i)}</Explain>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {byRefusal(list).map(([p, ...same]) =>
            p.refusal ? (
              <tr key={p.batch}>
                <th scope="row">{[p, ...same].map((x) => x.batch).join(', ')}</th>
                <td colSpan={5} class="note">
                  <span class="refusal">
                    Not predicted: {p.refusal.replace(/^no prediction: /, '')}
                  </span>
                </td>
              </tr>
            ) : (
              <tr key={p.batch}>
                <th scope="row">{p.batch}</th>
                {figuresOf(p, first).map((text, i) => (
                  <td class={`num ${i === 1 ? 'muted' : ''}`} data-label={head(i)} key={head(i)}>
                    {text}
                  </td>
                ))}
              </tr>
            ),
          )}
        </tbody>
      </table>
      {known(first?.median_error) && (
        <p class="note">
          From {first.runs} runs; of runs left out, half were predicted within{' '}
          {percent(first.median_error)}.
        </p>
      )}
    </div>
  );
}

/** An end of the interval of the request, per token. */
const perToken = (p: Prediction, v: Num): Num =>
  known(v) && known(p.joules) && known(p.joules_per_token) && p.joules > 0
    ? (v / p.joules) * p.joules_per_token
    : null;

/** In the order of `HEADS`. */
const figuresOf = (p: Prediction, first: Prediction | null): string[] => [
  joules(p.joules_per_token),
  `${joules(perToken(p, p.joules_lo))} to ${joules(perToken(p, p.joules_hi))}`,
  first ? saved(p, first) : '–',
  joules(p.joules),
  seconds(p.seconds),
];

/** A batch size's saving per token relative to the first. */
function saved(p: Prediction, first: Prediction): string {
  if (p === first) return '–';
  if (!known(p.joules_per_token) || !known(first.joules_per_token)) return 'not known';
  const share = 1 - p.joules_per_token / first.joules_per_token;
  return share >= 0 ? `saves ${percent(share)}` : `costs ${percent(-share)} more`;
}

function LengthMap({ p, map }: { p: Prediction; map: NonNullable<Prediction['map']> }) {
  const all = map.joules_per_token.flat().filter(known);
  if (all.length < 2) return null;
  const lo = Math.min(...all);
  // Differences below one percent get no colour.
  const hi = Math.max(lo * 1.01, ...all);
  const colours = ramp(rampName.value);
  const colour = (v: number) => css(colours[level(v, lo, hi)]);
  return (
    <div class="scroll-x">
      <h4>Per token by length, batch {p.batch}</h4>
      <table class="ops length-map" aria-label="Predicted energy per token by length">
        <thead>
          <tr>
            <th scope="col">Prompt \ new tokens</th>
            {map.outputs.map((o) => (
              <th scope="col" class="num" key={o}>
                {o}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {map.inputs.map((n, i) => (
            <tr key={n}>
              <th scope="row">{n}</th>
              {map.joules_per_token[i].map((v, k) => (
                <td class={`num ${known(v) ? '' : 'na hatched'}`} key={map.outputs[k]}>
                  {known(v) && (
                    <svg class="swatch" width="10" height="10" aria-hidden="true">
                      <rect width="10" height="10" rx="2.5" fill={colour(v)} />
                    </svg>
                  )}{' '}
                  {known(v) ? joules(v) : '–'}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {map.least && (
        <p class="note">
          Least: {joules(map.least.joules_per_token)} per token with {map.least.input} prompt and{' '}
          {map.least.output} new tokens.
        </p>
      )}
    </div>
  );
}
