// Differences between runs with their confidence intervals and significance tests.
import type { Compare, CompareTest } from '../../api/types';
import { Panel } from '../../charts/panel';
import { digits, energyScale, known, powerScale, timeScale } from '../../core/format';
import { Explain } from '../../parts/explain';
import { selection } from '../../state/selection';
import { unit } from '../../state/settings';
import { Side } from './letters';
import { Metric, signed } from './metric_text';

const pText = (p: number | null): string =>
  !known(p) ? 'unavailable' : p < 1e-4 ? '< 0.0001' : digits(p, 2);

const METHODS: Record<string, string> = { welch_log: 'Welch', permutation: 'permutation' };

export function TestsPanel({ d }: { d: Compare }) {
  const only = selection.value.diff;
  const list = d.tests.filter((t) => !only || t.significant);
  return (
    <Panel
      title="Differences"
      of="test"
      note="Geometric means with standard deviations, their ratio with its 95 % interval, p of the test that decides, and corrected for the number of pairs (Holm). The verdict rests on joules per token alone; other metrics are secondary."
      state={
        list.length
          ? { kind: 'ready' }
          : {
              kind: 'empty',
              text: only
                ? 'No difference is significant after correction.'
                : 'There is nothing to test.',
            }
      }
      table={() => ({
        columns: [
          'metric',
          'unit',
          'a',
          'b',
          'sample',
          'n_a',
          'n_b',
          'mean_a',
          'sd_a',
          'mean_b',
          'sd_b',
          'difference',
          'difference_lo',
          'difference_hi',
          'ratio',
          'ratio_lo',
          'ratio_hi',
          'hedges_g',
          'method',
          'p',
          'p_adjusted',
          'significant',
        ],
        rows: list.map((t) => [
          t.metric,
          t.unit,
          d.sides[t.a].name,
          d.sides[t.b].name,
          t.sample,
          t.n_a,
          t.n_b,
          t.mean_a,
          t.sd_a,
          t.mean_b,
          t.sd_b,
          t.difference,
          t.difference_lo,
          t.difference_hi,
          t.ratio,
          t.ratio_lo,
          t.ratio_hi,
          t.hedges_g,
          t.method,
          t.p,
          t.p_adjusted,
          t.significant ? 'yes' : 'no',
        ]),
      })}
    >
      <div class="scroll-x">
        <table class="ops compare-table reflow">
          <thead>
            <tr>
              <th scope="col">Metric</th>
              <th scope="col">Sides</th>
              <th scope="col" class="num">
                First, mean ± sd
              </th>
              <th scope="col" class="num">
                Second, mean ± sd
              </th>
              <th scope="col" class="num">
                <Explain of="uncertainty">Ratio (95 %)</Explain>
              </th>
              <th scope="col" class="num">
                Difference
              </th>
              <th scope="col" class="num">
                <Explain of="test">p</Explain>
              </th>
              <th scope="col" class="num">
                <Explain of="test">p corrected</Explain>
              </th>
              <th scope="col" class="num">
                <Explain of="test">Hedges g</Explain>
              </th>
              <th scope="col">Verdict</th>
            </tr>
          </thead>
          <tbody>
            {list.map((t) => (
              <TestRow key={`${t.metric} ${t.a} ${t.b}`} d={d} t={t} />
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function TestRow({ d, t }: { d: Compare; t: CompareTest }) {
  const meanSd = (m: number | null, s: number | null) => {
    if (!known(m)) return 'unavailable';
    const scale =
      t.unit === 'mJ'
        ? energyScale(m, unit.value)
        : t.unit === 'ms'
          ? timeScale(m)
          : t.unit === 'mW'
            ? powerScale(m)
            : { factor: 1, unit: t.unit };
    return `${digits(m * scale.factor)}${known(s) ? `, sd ${digits(s * scale.factor, 2)}` : ''} ${scale.unit}`;
  };
  return (
    <tr>
      <th scope="row">
        <Metric of={t.metric} />
        <br />
        <span class="note">
          {t.n_a} and {t.n_b} {t.sample}s{!t.primary && t.sample === 'run' && ', secondary'}
        </span>
      </th>
      <td data-label="Sides">
        <Side d={d} i={t.a} /> <Side d={d} i={t.b} />
      </td>
      <td class="num" data-label="First, mean ± sd">
        {meanSd(t.mean_a, t.sd_a)}
      </td>
      <td class="num" data-label="Second, mean ± sd">
        {meanSd(t.mean_b, t.sd_b)}
      </td>
      <td class={`num ${known(t.ratio) ? '' : 'na'}`} data-label="Ratio (95 %)">
        {known(t.ratio) ? digits(t.ratio) : 'unavailable'}
        {known(t.ratio_lo) && known(t.ratio_hi) && (
          <>
            <br />
            <span class="note">
              {digits(t.ratio_lo)} to {digits(t.ratio_hi)}
            </span>
          </>
        )}
      </td>
      <td class={`num ${known(t.difference) ? '' : 'na'}`} data-label="Difference">
        {known(t.difference) ? `${signed(t.difference, t.unit)}` : 'unavailable'}
      </td>
      <td class="num" data-label="p">
        {pText(t.p)}
        <br />
        <span class="note">{METHODS[t.method] ?? ''}</span>
      </td>
      <td class="num" data-label="p corrected">
        {pText(t.p_adjusted)}
      </td>
      <td class="num" data-label="Hedges g">
        {known(t.hedges_g) ? digits(t.hedges_g, 2) : '–'}
      </td>
      <td data-label="Verdict">
        <span class={`badge ${t.significant ? 'running' : ''}`}>
          {!known(t.p_adjusted)
            ? 'unavailable'
            : t.significant
              ? 'different'
              : 'not distinguishable'}
        </span>
      </td>
    </tr>
  );
}
