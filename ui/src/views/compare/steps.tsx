// The difference in energy per token from A to B, part by part, as a waterfall chart that ends at
// B.
import type { Compare } from '../../api/types';
import { Panel } from '../../charts/panel';
import { partColour, partOf } from '../../charts/parts';
import { colours, phaseLabel } from '../../charts/theme';
import { energy, energyInterval } from '../../core/format';
import { Explain, type Explanation } from '../../parts/explain';
import { dark, unit } from '../../state/settings';
import { Side } from './letters';
import { signed } from './metric_text';

const SHOWN = 10;

const WHY: Explanation = {
  title: 'Because of time and of power',
  text: 'A part needs more energy because it takes longer, or because the machine draws more power meanwhile: both shares, which sum to the step.',
  unit: 'mJ per token',
  term: 'power',
};

interface Step {
  label: string;
  mj: number;
  sd: number | null;
  time: number | null;
  power: number | null;
  colour: string;
}

type Decomposition = Compare['decomposition'][number];

/** The largest terms, with the rest combined, so that the steps sum to the difference. */
function stepsOf(x: Decomposition): Step[] {
  const c = colours();
  const named = x.terms.map(
    (t): Step => ({
      label: t.phase ? `${phaseLabel(t.phase)}${t.component ? `: ${t.component}` : ''}` : 'Other',
      mj: t.difference_mj,
      sd: t.sd_mj,
      time: t.by_time_mj,
      power: t.by_power_mj,
      colour: t.component ? partColour(partOf(t.component)) : (c.phase[t.phase ?? ''] ?? c.text3),
    }),
  );
  const order = [...named].sort((a, b) => Math.abs(b.mj) - Math.abs(a.mj));
  const shown = order.slice(0, SHOWN);
  const rest = order.slice(SHOWN);
  if (!rest.length) return shown;
  const mj = rest.reduce((a, t) => a + t.mj, 0);
  return [
    ...shown,
    {
      label: `${rest.length} smaller parts`,
      mj,
      sd: null,
      time: null,
      power: null,
      colour: c.text3,
    },
  ];
}

export function StepsPanel({ d, x }: { d: Compare; x: Decomposition }) {
  dark.value;
  const steps = stepsOf(x);
  const title = `From ${d.sides[x.a].name} to ${d.sides[x.b].name}`;
  let at = x.mj_per_token_a;
  const ends = [at];
  for (const s of steps) {
    at += s.mj;
    ends.push(at);
  }
  const top = Math.max(x.mj_per_token_a, x.mj_per_token_b, ...ends) || 1;
  const bar = (from: number, to: number, colour: string) => (
    <svg class="step-bar" viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true">
      <rect
        x={(Math.max(0, Math.min(from, to)) / top) * 1000}
        width={Math.max(1.5, (Math.abs(to - from) / top) * 1000)}
        height="12"
        fill={colour}
      />
    </svg>
  );
  const c = colours();
  return (
    <Panel
      title={title}
      of={{
        title,
        text: 'What each phase and component adds to the energy of a token, or takes from it, from the one side to the other. The rows sum exactly to the difference.',
        unit: 'mJ per token',
        term: 'per_token',
      }}
      note="Energy per token, without loading the model: each row is what one part adds or takes away; what time and what power changed."
      table={() => ({
        columns: [
          'phase',
          'component',
          'mj_a',
          'mj_b',
          'difference_mj',
          'by_time_mj',
          'by_power_mj',
          'sd_mj',
        ],
        rows: x.terms.map((t) => [
          t.phase,
          t.component,
          t.mj_a,
          t.mj_b,
          t.difference_mj,
          t.by_time_mj,
          t.by_power_mj,
          t.sd_mj,
        ]),
      })}
    >
      <table
        class="ops steps"
        data-sum={steps.reduce((a, s) => a + s.mj, 0)}
        data-difference={x.difference_mj}
      >
        <thead>
          <tr>
            <th scope="col">
              <Explain of="attribution">Part</Explain>
            </th>
            <th scope="col">
              <span class="sr-only">Step</span>
            </th>
            <th scope="col" class="num">
              <Explain of="per_token">Energy per token</Explain>
            </th>
            <th scope="col" class="num wide">
              <Explain of={WHY}>Because of</Explain>
            </th>
          </tr>
        </thead>
        <tbody>
          <tr>
            <th scope="row">
              <Side d={d} i={x.a} />
            </th>
            <td class="bar-cell">{bar(0, x.mj_per_token_a, c.text2)}</td>
            <td class="num">{energy(x.mj_per_token_a, unit.value)}</td>
            <td class="num wide" />
          </tr>
          {steps.map((s, i) => (
            <tr key={s.label}>
              <th scope="row">{s.label}</th>
              <td class="bar-cell">{bar(ends[i], ends[i + 1], s.colour)}</td>
              <td
                class="num"
                title={s.sd === null ? undefined : energyInterval(s.mj, s.sd, unit.value)}
              >
                {signed(s.mj, 'mJ')}
              </td>
              <td class="num wide note">
                {s.time !== null &&
                  `${signed(s.time, 'mJ')} time, ${signed(s.power ?? 0, 'mJ')} power`}
              </td>
            </tr>
          ))}
          <tr>
            <th scope="row">
              <Side d={d} i={x.b} />
            </th>
            <td class="bar-cell">{bar(0, x.mj_per_token_b, c.text2)}</td>
            <td class="num">{energy(x.mj_per_token_b, unit.value)}</td>
            <td class="num wide" />
          </tr>
        </tbody>
      </table>
    </Panel>
  );
}
