// Every metric as a ratio to the first side on a logarithmic axis around 1: a factor of 2 and one
// of 1/2 are equally far from it, and a single large factor does not compress the rest.
import type { Compare } from '../../api/types';
import { Panel } from '../../charts/panel';
import { colours } from '../../charts/theme';
import { known, plain } from '../../core/format';
import { logTicks } from '../../core/stats';
import { dark } from '../../state/settings';
import { Side, sideColour } from './letters';
import { Metric } from './metric_text';

interface Ratio {
  side: number;
  value: number;
  lo: number | null;
  hi: number | null;
}

/** The ratio with the interval of its test, if there is one. */
export function ratiosOf(d: Compare, m: Compare['metrics'][number]): Ratio[] {
  return m.normalised.flatMap((v, side): Ratio[] => {
    if (side === 0 || !known(v) || v <= 0) return [];
    const t = d.tests.find((x) => x.metric === m.metric && x.a === 0 && x.b === side);
    // Where it was tested, the ratio that the interval belongs to: of geometric means over runs.
    if (t && known(t.ratio) && known(t.ratio_lo) && known(t.ratio_hi) && t.ratio_lo > 0)
      return [{ side, value: t.ratio, lo: t.ratio_lo, hi: t.ratio_hi }];
    return [{ side, value: v, lo: null, hi: null }];
  });
}

/** The ticks that leave room for a label each, outwards from 1. */
function labelled(all: number[], x: (v: number) => number): number[] {
  const out: number[] = [];
  for (const t of [...all].sort((a, b) => Math.abs(Math.log(a)) - Math.abs(Math.log(b))))
    if (x(t) > 3 && x(t) < 97 && out.every((o) => Math.abs(x(o) - x(t)) > 14)) out.push(t);
  return out;
}

/** Where a ratio stands on an axis up to `reach`, in per cent of its width. */
const along = (v: number, reach: number): number => 50 + (50 * Math.log(v)) / Math.log(reach);

/** The ratios that are labelled. Up to a little over a factor of 2 the only logarithmic tick with room for its label
 * would be ×1. */
export function ratioMarks(reach: number): number[] {
  const end = reach > 1.65 ? 1.5 : 1.2;
  if (reach < 2.2) return [1 / end, 1, end];
  return labelled(logTicks(1 / reach, reach), (v) => along(v, reach));
}

export function RatiosPanel({ d }: { d: Compare }) {
  dark.value;
  const rows = d.metrics.map((m) => ({ m, list: ratiosOf(d, m) })).filter((r) => r.list.length > 0);
  const all = rows.flatMap((r) =>
    r.list.flatMap((x) => [x.value, x.lo ?? x.value, x.hi ?? x.value]),
  );
  const groups = d.sides.some((x) => x.runs > 1);
  const reach = Math.max(1.25, ...all.map((v) => Math.max(v, 1 / v))) * 1.08;
  const x = (v: number) => along(v, reach);
  const c = colours();
  const marks = ratioMarks(reach);
  return (
    <Panel
      class="span-6"
      title="Ratios"
      note={`Of each metric to ${d.sides[0].name}, on a logarithmic axis; whiskers are 95 % intervals${groups ? ', of the ratio of geometric means' : ''}.`}
      state={
        rows.length
          ? { kind: 'ready' }
          : { kind: 'empty', text: 'No metric is known on two sides.' }
      }
      table={() => ({
        columns: ['metric', 'side', 'ratio', 'ratio_lo', 'ratio_hi'],
        rows: rows.flatMap((r) =>
          r.list.map((v) => [r.m.metric, d.sides[v.side].name, v.value, v.lo, v.hi]),
        ),
      })}
    >
      <table class="ops ratios">
        <thead>
          <tr>
            <th scope="col">Metric</th>
            <th scope="col" class="bar-cell">
              <div class="ratio-marks" aria-hidden="true">
                {marks.map((t) => (
                  <span key={t} style={{ left: `${x(t)}%` }}>
                    ×{plain(t, reach < 2.2 ? 2 : 1)}
                  </span>
                ))}
              </div>
              <svg
                class="ratio-axis"
                viewBox="0 0 100 4"
                preserveAspectRatio="none"
                aria-hidden="true"
              >
                {marks.map((t) => (
                  <line
                    key={t}
                    x1={x(t)}
                    x2={x(t)}
                    y1="0"
                    y2="4"
                    stroke={c.text3}
                    vector-effect="non-scaling-stroke"
                  />
                ))}
              </svg>
            </th>
            <th scope="col" class="num">
              Ratio
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ m, list }) => (
            <tr key={m.metric}>
              <th scope="row">
                <Metric of={m.metric} />
              </th>
              <td class="bar-cell">
                {list.map((r) => (
                  <svg
                    key={r.side}
                    class="ratio"
                    viewBox="0 0 100 12"
                    preserveAspectRatio="none"
                    role="img"
                    aria-label={`${d.sides[r.side].name}: ${plain(r.value)} times`}
                  >
                    <line
                      x1="50"
                      x2="50"
                      y1="0"
                      y2="12"
                      stroke={c.text3}
                      vector-effect="non-scaling-stroke"
                    />
                    <rect
                      x={Math.min(50, x(r.value))}
                      width={Math.abs(x(r.value) - 50)}
                      y="3"
                      height="6"
                      fill={sideColour(r.side)}
                    />
                    {r.lo !== null && r.hi !== null && (
                      <line
                        x1={x(r.lo)}
                        x2={x(r.hi)}
                        y1="6"
                        y2="6"
                        stroke={c.text}
                        stroke-width="1.5"
                        vector-effect="non-scaling-stroke"
                      />
                    )}
                  </svg>
                ))}
              </td>
              <td class="num">
                {list.map((r) => (
                  <div key={r.side}>
                    <Side d={d} i={r.side} /> ×{plain(r.value)}
                  </div>
                ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}
