// The timelines of two compared runs, aligned by token, with their difference; and what makes the difference of a
// token: its components side by side.
import { useSignal } from '@preact/signals';
import { useMemo, useRef } from 'preact/hooks';
import { api } from '../../api/client';
import { REPORT } from '../../api/inlined';
import type { Compare, ComponentSum, TokenRow, Tokens } from '../../api/types';
import { Aligned, type AlignedModel, type AlignedToken, differenceOf } from '../../charts/aligned';
import { Canvas, Panel } from '../../charts/panel';
import { energy, energySigned, known, time } from '../../core/format';
import { stateOf, useResource } from '../../state/resource';
import { follow, href, without } from '../../state/selection';
import { unit } from '../../state/settings';
import { LETTERS, useColours } from './letters';

const tokenOf = (t: TokenRow, place: number): AlignedToken => ({
  position: place,
  text: t.text ?? '',
  ms: t.duration_ms,
  mj: t.energy_mj,
  sd: t.energy_sd_mj,
});

/** The decode steps of two runs by their place after the prompt; a batch has one token a step, its first. */
export function pairsOf(a: Tokens, b: Tokens): AlignedModel['pairs'] {
  const steps = (t: Tokens) =>
    t.tokens.filter((x) => x.phase === 'decode' && (x.step === null || x.step === x.token));
  const [x, y] = [steps(a), steps(b)];
  return Array.from({ length: Math.max(x.length, y.length) }, (_, i) => [
    x[i] ? tokenOf(x[i], i + 1) : null,
    y[i] ? tokenOf(y[i], i + 1) : null,
  ]);
}

interface PartDifference {
  name: string;
  a: number | null;
  b: number | null;
  msA: number | null;
  msB: number | null;
}

/** Components of two tokens by name, those that differ most first. */
export function partsOf(a: ComponentSum[], b: ComponentSum[]): PartDifference[] {
  const sum = (list: ComponentSum[], name: string, of: 'energy_mj' | 'time_ms') => {
    const own = list.filter((c) => c.component_name === name);
    return own.length && own.every((c) => known(c[of]))
      ? own.reduce((s, c) => s + (c[of] ?? 0), 0)
      : null;
  };
  const names = [...new Set([...a, ...b].map((c) => c.component_name))];
  const size = (p: PartDifference) =>
    Math.abs(known(p.a) && known(p.b) ? p.b - p.a : (p.msB ?? 0) - (p.msA ?? 0));
  return names
    .map((name) => ({
      name,
      a: sum(a, name, 'energy_mj'),
      b: sum(b, name, 'energy_mj'),
      msA: sum(a, name, 'time_ms'),
      msB: sum(b, name, 'time_ms'),
    }))
    .sort((p, q) => size(q) - size(p));
}

const SHOWN = 6;

export function AlignedPanel({ d }: { d: Compare }) {
  const chart = useRef<Aligned | null>(null);
  const other = useSignal(1);
  const picked = useSignal<number | null>(null);
  const series = useColours();
  const k = Math.min(other.value, d.runs.length - 1);
  const ids = [d.runs[0].id, d.runs[k].id];
  const q = without.value;
  const tokens = useResource(`aligned ${ids.join()} ${q.disturbances ?? ''}`, (s) =>
    Promise.all(ids.map((id) => api.allTokens(id, s, q))),
  );
  const both = tokens.value.data;
  const pairs = useMemo(() => (both ? pairsOf(both[0], both[1]) : []), [both]);
  const names: [string, string] = [LETTERS[0], LETTERS[k]];
  const total = pairs.reduce((sum, p) => sum + (differenceOf(p) ?? 0), 0);
  const known_ = pairs.filter((p) => differenceOf(p) !== null).length;
  return (
    <Panel
      title="Token by token"
      note={`Decode steps of ${names[0]} and ${names[1]} side by side by their place, each as wide as the other; pale where the intervals leave open which is dearer. Drag to zoom, double-click for all.`}
      state={stateOf(tokens, () =>
        known_ ? null : 'Token energy is unavailable in one of these runs.',
      )}
      legend={
        <>
          {d.runs.length > 2 && (
            <select
              class="input small"
              aria-label="Run beside A"
              value={k}
              onChange={(e) => {
                other.value = Number(e.currentTarget.value);
                picked.value = null;
              }}
            >
              {d.runs.slice(1).map((r, i) => (
                <option key={r.id} value={i + 1}>
                  A and {LETTERS[i + 1]}
                </option>
              ))}
            </select>
          )}
          <span>
            Over {known_} steps {names[1]} differs by {energySigned(total, null, unit.value)}.
          </span>
        </>
      }
      table={() => ({
        columns: ['place', 'energy_a_mj', 'energy_b_mj', 'difference_mj', 'time_a_ms', 'time_b_ms'],
        rows: pairs.map((p, i) => [
          i + 1,
          p[0]?.mj ?? null,
          p[1]?.mj ?? null,
          differenceOf(p),
          p[0]?.ms ?? null,
          p[1]?.ms ?? null,
        ]),
      })}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <Canvas
        class="h-aligned"
        name="aligned"
        label={`${pairs.length} decode steps of two runs aligned by token, and their difference.`}
        make={(host) => {
          const made = new Aligned(host);
          made.onPick = (i) => {
            picked.value = i === picked.value ? null : i;
          };
          return made;
        }}
        handle={chart}
        update={(c) =>
          c.set({ names, colours: [series[0], series[k]], pairs, picked: picked.value })
        }
      />
      {picked.value !== null && both && !REPORT && (
        <TokenDifference
          key={`${ids.join()} ${picked.value}`}
          ids={ids}
          names={names}
          place={picked.value}
          both={both}
        />
      )}
    </Panel>
  );
}

function TokenDifference(props: {
  ids: string[];
  names: [string, string];
  place: number;
  both: Tokens[];
}) {
  const { ids, names, place, both } = props;
  const rows = both.map(
    (t) =>
      t.tokens.filter((x) => x.phase === 'decode' && (x.step === null || x.step === x.token))[
        place
      ],
  );
  const q = without.value;
  const there = rows.every(Boolean);
  const parts = useResource(
    there ? `difference ${ids.join()} ${place} ${q.disturbances ?? ''}` : null,
    async (s) => {
      const [a, b] = await Promise.all(
        ids.map((id, i) => api.operations(id, { token: rows[i].token, ...q }, s)),
      );
      return partsOf(a.components, b.components);
    },
  );
  const u = unit.value;
  const list = parts.value.data?.slice(0, SHOWN) ?? [];
  if (!there) return <p class="note">Only one of the runs has this step.</p>;
  return (
    <div class="token-difference">
      <p class="row">
        <strong>Step {place + 1}</strong>
        {ids.map((run, i) => {
          const to = { view: 'analysis' as const, run, token: rows[i].token };
          return (
            <a key={run} href={href(to)} onClick={(e) => follow(e, 'analysis', to)}>
              {names[i]}: {energy(rows[i].energy_mj, u)}, {time(rows[i].duration_ms)}
            </a>
          );
        })}
      </p>
      {parts.value.error && <p class="note">{parts.value.error}</p>}
      {list.length > 0 && (
        <table class="ops">
          <thead>
            <tr>
              <th scope="col">Component</th>
              <th scope="col" class="num">
                {names[0]}
              </th>
              <th scope="col" class="num">
                {names[1]}
              </th>
              <th scope="col" class="num">
                Difference
              </th>
            </tr>
          </thead>
          <tbody>
            {list.map((p) => (
              <tr key={p.name}>
                <th scope="row">{p.name}</th>
                <td class="num">
                  {energy(p.a, u)}, {time(p.msA)}
                </td>
                <td class="num">
                  {energy(p.b, u)}, {time(p.msB)}
                </td>
                <td class="num">
                  {known(p.a) && known(p.b)
                    ? `${p.b > p.a ? '+' : ''}${energySigned(p.b - p.a, null, u)}`
                    : 'unavailable'}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}
