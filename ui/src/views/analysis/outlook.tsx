// A run compared with expectations: the prediction from earlier runs on the machine, and published figures of
// similar models.
import type { Predicted, Published, Summary } from '../../api/types';
import { Panel } from '../../charts/panel';
import { energy, known, type Num, plain, time } from '../../core/format';
import { energyPerToken } from '../../core/run_energy';
import { Explain } from '../../parts/explain';
import { stateOf } from '../../state/resource';
import { unit } from '../../state/settings';
import type { RunData } from './data';

const joules = (v: Num): string => energy(known(v) ? v * 1000 : null, unit.value);
const seconds = (v: Num): string => time(known(v) ? v * 1000 : null);

/** One line of the verdict; null where nothing was predicted. */
export const predictedLine = (p: Predicted | null | undefined): string | null =>
  p && known(p.joules)
    ? `predicted ${joules(p.joules)}, took ${joules(p.actual_joules)}${p.within === false ? ', outside of the interval' : ''}`
    : null;

export function OutlookPanel({ data }: { data: RunData }) {
  const s = data.summary.value.data;
  return (
    <Panel
      class="bare"
      title="Predicted and published"
      note="What was expected of this run, beside what it took."
      state={stateOf(data.summary, (x) =>
        x.predicted || x.published?.length ? null : 'Nothing is known to set beside this run.',
      )}
      table={() => table(s)}
    >
      {s?.predicted && <PredictedTable p={s.predicted} />}
      {s && (s.published?.length ?? 0) > 0 && <PublishedTable s={s} list={s.published ?? []} />}
    </Panel>
  );
}

function PredictedTable({ p }: { p: Predicted }) {
  if (p.refusal)
    return (
      <p class="note">
        <Explain of="predicted">Not predicted</Explain>: {p.refusal.replace(/^no prediction: /, '')}{' '}
        ({p.runs} earlier runs are known).
      </p>
    );
  const rows: [string, string, string, string][] = [
    [
      'Energy of the request',
      joules(p.joules),
      `${joules(p.joules_lo)} to ${joules(p.joules_hi)}`,
      joules(p.actual_joules),
    ],
    [
      'Time of the request',
      seconds(p.seconds),
      `${seconds(p.seconds_lo)} to ${seconds(p.seconds_hi)}`,
      seconds(p.actual_seconds),
    ],
  ];
  return (
    <div class="scroll-x">
      <table class="ops" aria-label="Predicted and actual">
        <thead>
          <tr>
            <th scope="col">
              <Explain of="predicted">From {p.runs} earlier runs</Explain>
            </th>
            {['Predicted', '95 % interval', 'Actual'].map((h) => (
              <th scope="col" class="num" key={h}>
                {h}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(([label, ...cells]) => (
            <tr key={label}>
              <th scope="row">{label}</th>
              {cells.map((c) => (
                <td class="num" key={c}>
                  {c}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function PublishedTable({ s, list }: { s: Summary; list: Published[] }) {
  return (
    <div class="scroll-x">
      <table class="ops" aria-label="Published figures">
        <thead>
          <tr>
            <th scope="col">
              <Explain of="published">Published</Explain>
            </th>
            <th scope="col" class="num">
              Per token
            </th>
            <th scope="col">What differs</th>
          </tr>
        </thead>
        <tbody>
          <tr>
            <th scope="row">This run</th>
            <td class="num">{energyPerToken(s, unit.value)}</td>
            <td />
          </tr>
          {list.map((p) => (
            <tr key={p.model + p.hardware + p.batch}>
              <th scope="row">
                {p.model} on {p.hardware}
                {known(p.batch) && `, batch ${p.batch}`}
                <br />
                <span class="note">{p.source}</span>
              </th>
              <td class="num">
                {joules(p.joules_per_token)}
                {known(p.joules_per_token_hi) && ` to ${joules(p.joules_per_token_hi)}`}
                {known(p.ratio) && (
                  <>
                    <br />
                    <span class="note">this run: {plain(p.ratio, 2)} times</span>
                  </>
                )}
              </td>
              <td class="note">{p.caveats.join('; ')}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function table(s: Summary | null) {
  const p = s?.predicted;
  return {
    columns: ['what', 'joules', 'joules_lo', 'joules_hi', 'seconds', 'source'],
    rows: [
      ...(p
        ? [
            [
              'predicted',
              p.joules,
              p.joules_lo,
              p.joules_hi,
              p.seconds,
              p.refusal ?? 'this machine',
            ],
            ['actual', p.actual_joules, null, null, p.actual_seconds, 'this run'],
          ]
        : []),
      ...(s?.published ?? []).map((x) => [
        `${x.model}, per token`,
        x.joules_per_token,
        null,
        x.joules_per_token_hi,
        null,
        x.source,
      ]),
    ],
  };
}
