import { useMemo, useRef } from 'preact/hooks';
import { Canvas, Legend, Panel } from '../../charts/panel';
import { colours, PHASE_LABEL } from '../../charts/theme';
import { type TokenBar, Waterfall } from '../../charts/waterfall';
import { energy, known, plain, power, time } from '../../core/format';
import { stateOf } from '../../state/resource';
import { at, select } from '../../state/selection';
import { dark, unit } from '../../state/settings';
import type { RunData } from './data';

export function WaterfallPanel({ data }: { data: RunData }) {
  const chart = useRef<Waterfall | null>(null);
  const rows = data.tokens.value.data;
  const anomalies = data.summary.value.data?.anomalies;
  const bars = useMemo((): TokenBar[] => {
    const odd = new Map(
      (anomalies ?? []).filter((a) => a.kind === 'token').map((a) => [a.token, a.reason]),
    );
    return (rows ?? []).map((t) => ({
      token: t.token,
      text: t.text ?? '',
      phase: t.phase,
      start: t.start_ms,
      duration: t.duration_ms,
      value: t.energy_mj,
      sd: t.energy_sd_mj,
      cumulative: t.cumulative_energy_mj,
      anomaly: odd.get(t.token) ?? null,
    }));
  }, [rows, anomalies]);
  const { value: range } = at.range;
  const phase = at.phase.value;
  const token = at.token.value;
  dark.value;
  const c = colours();
  const decode = bars.filter((b) => b.phase === 'decode' && known(b.value));
  const dearest = decode.reduce<TokenBar | null>(
    (a, b) => (!a || (b.value ?? 0) > (a.value ?? 0) ? b : a),
    null,
  );
  return (
    <Panel
      title="Token waterfall"
      note="Energy of each token with its 95 % interval; the line is the sum so far (right scale). Click selects a token."
      state={stateOf(data.tokens, (t) =>
        t.length === 0
          ? 'This run made no tokens.'
          : t.some((x) => x.energy_mj !== null)
            ? null
            : 'Token energy is unavailable in this run; the table has the durations.',
      )}
      legend={
        <>
          <Legend
            items={[
              ...['prefill', 'decode'].map((p) => ({ label: PHASE_LABEL[p], colour: c.phase[p] })),
              { label: 'Sum so far', colour: c.text, kind: 'line' as const },
              { label: 'Anomaly', colour: c.danger },
            ]}
          />
          {dearest && (
            <span>
              Dearest decode token: #{dearest.token} {energy(dearest.value, unit.value)}
            </span>
          )}
        </>
      }
      table={() => ({
        columns: [
          'token',
          'text',
          'phase',
          'start_ms',
          'duration_ms',
          'energy_mj',
          'energy_sd_mj',
          'cumulative_energy_mj',
          'anomaly',
        ],
        rows: bars.map((b) => [
          b.token,
          b.text,
          b.phase,
          b.start,
          b.duration,
          b.value,
          b.sd,
          b.cumulative,
          b.anomaly,
        ]),
      })}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <Canvas
        class="h-waterfall"
        name="waterfall"
        label={`Energy of ${bars.length} tokens, ${bars.filter((b) => b.anomaly).length} marked as anomalies; ${energy(bars[bars.length - 1]?.cumulative, unit.value)} in all.`}
        make={(host) => {
          const made = new Waterfall(host);
          made.onPick = (i) => {
            if (i === null) return;
            const t = made.bar(i).token;
            select({ token: at.token.peek() === t ? null : t });
          };
          return made;
        }}
        handle={chart}
        update={(w) => {
          const i = bars.findIndex((b) => b.token === token);
          w.set(
            bars,
            i < 0 ? null : i,
            (b) =>
              (!phase || b.phase === phase) &&
              (!range || (b.start < range[1] && b.start + b.duration > range[0])),
          );
        }}
      />
    </Panel>
  );
}

/** The strongest; the table and the CSV have all. */
const ANOMALIES = 8;

export function AnomalyPanel({ data }: { data: RunData }) {
  const list = data.summary.value.data?.anomalies ?? [];
  return (
    <Panel
      class="span-6"
      title="Anomalies"
      note="Tokens and samples that stand out, with the reason; click one to go there."
      state={stateOf(data.summary, (s) =>
        s.anomalies.length ? null : 'Nothing stands out in this run.',
      )}
      table={() => ({
        columns: ['kind', 'token', 't_ms', 'value', 'expected', 'score', 'reason'],
        rows: list.map((a) => [a.kind, a.token, a.t_ms, a.value, a.expected, a.score, a.reason]),
      })}
    >
      <ul class="anomalies">
        {list.slice(0, ANOMALIES).map((a) => (
          <li key={`${a.kind}${a.token}${a.t_ms}`}>
            <button
              type="button"
              onClick={() => {
                if (a.kind === 'token' && a.token !== null) select({ token: a.token });
                else if (a.t_ms !== null)
                  select({ range: [Math.max(0, a.t_ms - 20), a.t_ms + 20] });
              }}
            >
              <span class="anomaly-score num">{plain(a.score, 2)}</span>
              <span>
                <strong>
                  {a.kind === 'token' ? `Token ${a.token}` : `Power at ${time(a.t_ms)}`}
                </strong>
                <span class="muted">
                  {' '}
                  {a.kind === 'token' ? energy(a.value, unit.value) : power(a.value)}
                  {a.expected !== null &&
                    `, expected ${a.kind === 'token' ? energy(a.expected, unit.value) : power(a.expected)}`}
                </span>
                <br />
                <span class="note">{a.reason}</span>
              </span>
            </button>
          </li>
        ))}
      </ul>
      {list.length > ANOMALIES && <p class="note">{list.length - ANOMALIES} more in the table.</p>}
    </Panel>
  );
}
