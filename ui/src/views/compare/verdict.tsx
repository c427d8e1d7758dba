// The result of a comparison: which settings differ, what limits it, and one sentence per pair.
import { Fragment } from 'preact';
import type { Compare } from '../../api/types';
import { Panel } from '../../charts/panel';
import { capital, clip, known, plain } from '../../core/format';
import { Icon } from '../../parts/icon';
import { Notice, Sentence } from '../../parts/notice';
import { Side } from './letters';
import { show } from './metric_text';

const WORDS: Record<string, string> = {
  dtype: 'Weights',
  batch_size: 'Batch size',
  prompt: 'Prompt',
  model_name: 'Model',
  profiling_depth: 'Depth',
};
const word = (setting: string): string => {
  const text = WORDS[setting] ?? setting.replaceAll('_', ' ').replace('.', ': ');
  return text[0].toUpperCase() + text.slice(1);
};

/** Longer values, such as prompts, are cut; the table of the panel has all of them. */
const LONGEST = 90;

/** Prompts given as token ids tell little by their numbers. */
const settingText = (value: string): string =>
  /^\d+(,\d+){3}[\d, ]*/.test(value) ? `token ids ${clip(value, 30)}` : clip(value, LONGEST);

export function SettingsPanel({ d }: { d: Compare }) {
  return (
    <Panel
      title="Settings that differ"
      note={
        d.differences.length
          ? 'Everything else is the same on all sides.'
          : 'These sides have the same settings.'
      }
      table={() => ({
        columns: ['setting', ...d.sides.map((s) => s.name)],
        rows: d.differences.map((x) => [x.setting, ...x.values.map((v) => String(v ?? ''))]),
      })}
    >
      {d.differences.length > 0 && (
        <div class="scroll-x">
          <table class="ops compare-table settings reflow">
            <thead>
              <tr>
                <th scope="col">Setting</th>
                {d.sides.map((s, i) => (
                  <th scope="col" key={s.name}>
                    <Side d={d} i={i} />
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {d.differences.map((x) => (
                <tr key={x.setting}>
                  <th scope="row">{word(x.setting)}</th>
                  {x.values.map((v, i) => (
                    <td
                      key={d.sides[i]?.name ?? i}
                      data-label={d.sides[i]?.name}
                      title={String(v ?? '')}
                    >
                      {v === null ? '–' : settingText(String(v))}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {d.caveats.length > 0 && (
        <Notice>
          <strong>These sides do not compare directly:</strong>
          <ul class="caveats">
            {[...new Set(d.caveats.map((c) => c.text))].map((text) => (
              <li key={text}>
                <Sentence text={capital(text)} />
              </li>
            ))}
          </ul>
        </Notice>
      )}
    </Panel>
  );
}

/** The difference in standard deviations, where there were enough runs to know these. */
function effect(d: Compare, v: Compare['verdicts'][number]): string {
  const t = d.tests.find((x) => x.a === v.a && x.b === v.b && x.metric === v.metric);
  return known(t?.hedges_g) ? `, effect size ${plain(Math.abs(t.hedges_g), 2)} (Hedges g)` : '';
}

/** What a verdict on one pair rests on. */
function Grounds({ d, v }: { d: Compare; v: Compare['verdicts'][number] }) {
  return (
    <>
      <br />
      <span class="note">
        {v.n_a} against {v.n_b} {v.n_a + v.n_b === 2 ? 'run' : 'runs'}
        {known(v.p) && `, p ${v.p < 1e-4 ? '< 0.0001' : plain(v.p, 2)}`}
        {effect(d, v)}
      </span>
    </>
  );
}

export function VerdictPanel({ d }: { d: Compare }) {
  return (
    <section class="panel verdict" aria-label="Verdict">
      <h2>Verdict</h2>
      <ul class="verdicts">
        {d.conclusions.map((c) => (
          <li key={c.verdict ?? 'ties'} class={c.outcome}>
            <Icon name={c.outcome === 'different' ? 'bolt' : 'info'} />
            <span>
              <strong>
                {c.text ||
                  'The energy per token of one of these sides is unavailable: nothing to compare.'}
              </strong>
              {known(c.verdict) && <Grounds d={d} v={d.verdicts[c.verdict]} />}
            </span>
          </li>
        ))}
      </ul>
      {d.best.length > 0 && (
        <p class="trust">
          {d.best.map((b) => (
            <Best key={b.title} d={d} b={b} />
          ))}
        </p>
      )}
    </section>
  );
}

/** The side with the best figure. If others tie with it or could not be tested, it is not called the best. */
function Best({ d, b }: { d: Compare; b: Compare['best'][number] }) {
  const rate = b.metric === 'tokens_per_second' ? ' tokens/s' : '';
  const figure = show(b.value, d.metrics.find((m) => m.metric === b.metric)?.unit ?? '') + rate;
  const title = b.title[0].toUpperCase() + b.title.slice(1);
  const others = [...b.tied_with, ...b.untested];
  if (!others.length)
    return (
      <span>
        {title}: <Side d={d} i={b.side} /> {figure}
      </span>
    );
  const single = !b.tied_with.length;
  return (
    <span>
      {title}: not decided
      {single && others.every((i) => d.sides[i]?.runs === 1) ? ' by one run on each side' : ''} (
      <Side d={d} i={b.side} /> has {figure};{' '}
      {single ? 'not tested against' : 'no significant difference to'}{' '}
      {others.map((t, k) => (
        <Fragment key={t}>
          {k > 0 && (k === others.length - 1 ? ' and ' : ', ')}
          <Side d={d} i={t} />
        </Fragment>
      ))}
      )
    </span>
  );
}
