// The details drawer beside the structure: energy and time of the scope, and its parts down to
// operations.
import { useMemo } from 'preact/hooks';
import { partColour, partOf } from '../../charts/parts';
import { phaseLabel } from '../../charts/theme';
import {
  energyInterval,
  energySigned,
  known,
  percent,
  plain,
  power,
  time,
  Z95,
} from '../../core/format';
import { isKnown, type Quantity, quantity } from '../../core/quantity';
import { typicalToken } from '../../core/run_energy';
import { quantile } from '../../core/stats';
import { Amount } from '../../parts/badge';
import { Explain, type Explanation } from '../../parts/explain';
import { Icon } from '../../parts/icon';
import { clearSelection, hasSelection, select, selection } from '../../state/selection';
import { dark, unit } from '../../state/settings';
import { whyToken } from './anomalies';
import { type RunData, scopeOf } from './data';
import { medianInterval, medianSd } from './findings';
import { Bar, OperationsPanel, playing, togglePlay } from './heatmap';
import {
  figures,
  hottest,
  hottestCalm,
  isTimed,
  type PartSum,
  type RunRows,
  type Scope,
  tokensOf,
} from './scope';
import { WhyToken } from './why';

/** Names of the parts of a scope, for its breadcrumbs. */
function crumbs(s: Scope): { label: string; off: Partial<Scope> }[] {
  const out: { label: string; off: Partial<Scope> }[] = [];
  if (s.range)
    out.push({ label: `${time(s.range[0])} to ${time(s.range[1])}`, off: { range: null } });
  if (s.phase) out.push({ label: phaseLabel(s.phase), off: { phase: null } });
  if (s.sequence !== null) out.push({ label: `Sequence ${s.sequence}`, off: { sequence: null } });
  if (s.token !== null) out.push({ label: `Token ${s.token}`, off: { token: null } });
  if (s.layer !== null)
    out.push({ label: s.layer < 0 ? 'Outside layers' : `Layer ${s.layer}`, off: { layer: null } });
  if (s.component) out.push({ label: s.component, off: { component: null } });
  return out;
}

/** Breadcrumbs of the scope: each can be removed, and the browser's Back undoes the last. */
export function ScopeBar({ data }: { data: RunData }) {
  const list = crumbs(scopeOf(selection.value));
  const rows = data.rows.value;
  const token = selection.value.token;
  const tokens = useMemo(
    () => tokensOf(rows?.tokens ?? [], selection.value.sequence),
    [rows, selection.value.sequence],
  );
  const n = tokens.length;
  const row = token === null ? null : rows?.tokens.find((t) => t.token === token);
  const sequences = useMemo(
    () => [...new Set((rows?.tokens ?? []).map((t) => t.sequence))],
    [rows],
  );
  return (
    <section class="scope-bar" aria-label="Scope">
      <nav class="trail" aria-label="Breadcrumbs">
        <button
          type="button"
          class="chip root"
          disabled={!hasSelection.value}
          onClick={clearSelection}
        >
          Whole run
        </button>
        {list.map((c) => (
          <button
            type="button"
            class="chip"
            key={c.label}
            aria-label={`${c.label}: remove from the scope`}
            onClick={() => select(c.off)}
          >
            <span aria-hidden="true">› </span>
            {c.label} <Icon name="close" />
          </button>
        ))}
      </nav>
      {sequences.length > 1 && (
        <select
          class="input small"
          aria-label="Sequence"
          value={selection.value.sequence ?? ''}
          onChange={(e) =>
            select({
              sequence: e.currentTarget.value === '' ? null : Number(e.currentTarget.value),
              token: null,
            })
          }
        >
          <option value="">All sequences</option>
          {sequences.map((q) => (
            <option key={q} value={q}>
              Sequence {q}
            </option>
          ))}
        </select>
      )}
      {n > 0 && (
        <div class="slider">
          <button
            type="button"
            class="btn small"
            aria-label={playing.value ? 'Pause' : 'Play the tokens'}
            onClick={togglePlay}
          >
            <Icon name={playing.value ? 'pause' : 'play'} />
          </button>
          <input
            type="range"
            min={0}
            max={Math.max(0, n - 1)}
            value={token === null ? 0 : Math.max(0, tokens.indexOf(token))}
            aria-label="Token"
            aria-valuetext={token === null ? 'all tokens' : `token ${token}`}
            onInput={(e) => select({ token: tokens[Number(e.currentTarget.value)] ?? null })}
          />
          <span class="slider-text mono">
            {token === null
              ? `${n} ${n === 1 ? 'token' : 'tokens'}`
              : `${tokens.indexOf(token)}/${n - 1} ${JSON.stringify(row?.text ?? '')}`}
          </span>
        </div>
      )}
    </section>
  );
}

/** Deviation of a component's energy in the scope; null: unknown. It is known over the whole run only: that of a
 * single layer or token is much wider, and the panel of the cell has it. */
function partSd(data: RunData, p: PartSum): number | null {
  const { net } = selection.value;
  const s = scopeOf(selection.value);
  const summary = data.summary.value.data;
  if (s.layer !== null || s.phase !== null || isTimed(s) || p.energy === null) return null;
  const classes = (summary?.classes ?? []).filter((c) => c.name.split('/')[0] === p.component);
  if (net)
    return classes.length ? classes.reduce((a, c) => a + (c.net_energy_sd_mj ?? 0), 0) : null;
  const c = summary?.components.find((x) => x.component_name === p.component);
  return known(c?.energy_sd_mj) && c.energy_mj
    ? Math.abs((c.energy_sd_mj / c.energy_mj) * p.energy)
    : null;
}

const energyOfPart = (data: RunData, p: PartSum): string =>
  (selection.value.net ? energySigned : energyInterval)(p.energy, partSd(data, p), unit.value);

/** Energy of a part of the model within the scope. */
function partFigures(data: RunData, rows: RunRows): { energy: Quantity<'mJ'>; ms: number } | null {
  const held = data.inScope.value;
  if (!held) return null;
  const { net } = selection.value;
  const list = hottest(held);
  const sum = (of: (p: PartSum) => number): number => list.reduce((a, p) => a + of(p), 0);
  const sds = list.filter((p) => p.energy !== null).map((p) => partSd(data, p));
  const sd = sds.reduce((a, x) => (a === null || x === null ? null : a + x), 0);
  const energyKnown = list.some((p) => p.energy !== null);
  return {
    energy: quantity('mJ', energyKnown ? sum((p) => p.energy ?? 0) : null, rows.source, {
      sd,
      missing: rows.missing,
      signed: net,
    }),
    ms: sum((p) => p.ms),
  };
}

const HELP: Record<'energy' | 'share' | 'power' | 'token' | 'median' | 'time', Explanation> = {
  energy: {
    title: 'Energy of the scope',
    text: 'What the sensors saw in it, with the 95 % interval; deviations of neighbours are added up, which is an upper bound.',
    term: 'energy',
  },
  share: {
    title: 'Share of the run',
    text: 'Energy of the scope over the energy of the whole run.',
    term: 'share',
  },
  power: { title: 'Mean power', text: 'Energy over time.', term: 'power' },
  token: {
    title: 'Mean token',
    text: 'Energy of the tokens in the scope over their number; loading the model belongs to no token. Of the whole run the energy of the request, as in the verdict.',
    term: 'per_token',
  },
  median: {
    title: 'Median of the decode tokens',
    text: 'Of those in the scope, with the 95 % interval of a median; disturbed tokens hardly move it.',
    term: 'typical',
  },
  time: {
    title: 'Time',
    text: 'Time that the scope covers; of parts of the model the sum of their own times.',
    term: 'duration',
  },
};

export function Details({ data }: { data: RunData }) {
  const s = selection.value;
  const rows = data.rows.value;
  const scope = scopeOf(s);
  const part = s.layer !== null || s.component !== null;
  const f = useMemo(
    () => (rows ? figures(rows, { ...scope, layer: null, component: null }) : null),
    [rows, s.range, s.phase, s.token, s.sequence],
  );
  const ofPart = part && rows ? partFigures(data, rows) : null;
  const odd =
    s.token === null
      ? null
      : whyToken(
          rows?.tokens.find((t) => t.token === s.token),
          data.summary.value.data?.anomalies ?? [],
        );
  const list = crumbs(scope);
  const title = list.length ? list.map((c) => c.label).join(', ') : 'Whole run';
  return (
    <aside class="panel details" aria-label="Details">
      <h3>{title}</h3>
      {f && <ScopeFigures data={data} f={f} ofPart={part ? ofPart : null} part={part} />}
      {odd && (
        <p class="note odd">
          <Explain of="anomaly">Token {s.token} stands out</Explain>: {odd}.
        </p>
      )}
      <WhyToken data={data} />
      <HottestList data={data} />
      <OperationsPanel data={data} />
    </aside>
  );
}

function ScopeFigures(props: {
  data: RunData;
  f: ReturnType<typeof figures>;
  ofPart: { energy: Quantity<'mJ'>; ms: number } | null;
  part: boolean;
}) {
  const { f, ofPart, part, data } = props;
  const s = selection.value;
  const summary = data.summary.value.data;
  const whole = !hasSelection.value && summary;
  const runEnergy = quantity('mJ', summary?.total_energy_mj, summary?.energy_source, {
    sd: summary?.total_energy_sd_mj,
    missing: data.rows.value?.missing,
    reason: summary?.unavailable_reason,
  });
  const net = s.net;
  const gross = whole ? runEnergy : part ? (ofPart?.energy ?? null) : f.energy;
  const q =
    net && !part
      ? whole
        ? quantity('mJ', summary?.net_energy_mj, summary?.energy_source, {
            sd: summary?.net_energy_sd_mj,
            signed: true,
          })
        : f.net
      : gross;
  const ms = whole ? (summary?.total_duration_ms ?? 0) : part ? (ofPart?.ms ?? 0) : f.ms;
  // Of net energy that may be none, neither a power nor a share is known.
  const doubtful = net && q && isKnown(q) && Math.abs(q.value) <= Z95 * (q.sd ?? 0);
  const mw =
    q && isKnown(q) && ms > 0 && !doubtful ? quantity('mW', (q.value / ms) * 1000, q.source) : null;
  const least = net ? Z95 * (summary?.net_energy_sd_mj ?? 0) : 0;
  const total = net ? summary?.net_energy_mj : summary?.total_energy_mj;
  // Of the whole run it is the typical token, of which there is one, the server's. Both are gross.
  const typical = whole && !net && known(summary.joules_per_token_typical) ? summary : null;
  const median =
    f.perToken.length > 1 && !part && !whole && !net ? quantile(f.perToken, 0.5) : null;
  const ends = medianInterval(f.perToken);
  const half = median !== null && ends && summary ? medianSd(median, ends, summary) : null;
  const source = data.rows.value?.source;
  const joules = net ? summary?.joules_per_token_net : summary?.joules_per_token;
  const joulesSd = net ? summary?.joules_per_token_net_sd : summary?.joules_per_token_sd;
  const mean = meanToken(f, part ? q : null);
  const meanOf = whole
    ? quantity('mJ', known(joules) ? joules * 1000 : null, source, {
        sd: known(joulesSd) ? joulesSd * 1000 : null,
        signed: net,
      })
    : quantity('mJ', net && !part ? null : mean, source, {
        sd: part && q && isKnown(q) && known(q.sd) ? q.sd / f.tokens : null,
        signed: net,
      });
  return (
    <dl class="facts scope-figures">
      <dt>
        <Explain of={HELP.energy}>{net ? 'Energy above idle' : 'Energy'}</Explain>
      </dt>
      <dd data-figure="energy">{q ? <Amount q={q} /> : '…'}</dd>
      {q && isKnown(q) && known(total) && total > least && !whole && (
        <>
          <dt>
            <Explain of={HELP.share}>Share of the run</Explain>
          </dt>
          <dd>{percent(q.value / total)}</dd>
        </>
      )}
      <dt>
        <Explain of={HELP.time}>Time</Explain>
      </dt>
      <dd>{time(ms)}</dd>
      {mw && (
        <>
          <dt>
            <Explain of={HELP.power}>Mean power</Explain>
          </dt>
          <dd>{isKnown(mw) ? power(mw.value) : '–'}</dd>
        </>
      )}
      {q && isKnown(q) && !whole && !net && (
        <>
          <dt>
            <Explain of="delay">Energy-delay product</Explain>
          </dt>
          <dd data-figure="delay">{plain((q.value * ms) / 1e6)} J·s</dd>
        </>
      )}
      {f.tokens > 1 && isKnown(meanOf) && (
        <>
          <dt>
            <Explain of={HELP.token}>Mean of {f.tokens} tokens</Explain>
          </dt>
          <dd data-figure="mean">
            <Amount q={meanOf} />
          </dd>
        </>
      )}
      {typical && (
        <>
          <dt>
            <Explain of="typical">Typical token</Explain>
          </dt>
          <dd data-figure="typical">{typicalToken(typical, unit.value)}</dd>
        </>
      )}
      {median !== null && (
        <>
          <dt>
            <Explain of={HELP.median}>Median decode token</Explain>
          </dt>
          <dd>
            <Amount q={quantity('mJ', median, source, { sd: half })} />
          </dd>
        </>
      )}
    </dl>
  );
}

/** Of a part of the model: its energy over the tokens. */
const meanToken = (f: ReturnType<typeof figures>, part: Quantity<'mJ'> | null): number | null =>
  part ? (isKnown(part) ? part.value / f.tokens : null) : f.mean;

/** Explains the column of shares. */
const shareOf = (timed: boolean, calm: boolean): Explanation => ({
  title: 'Share of the scope',
  text: `${timed ? 'Time' : 'Energy'} of the component over that of the scope (the whole run, unless narrowed)${calm ? ', both without disturbances' : ''}. Loading the model and what no component did is the rest.`,
  term: 'share',
});

const SHOWN = 8;

function HottestList({ data }: { data: RunData }) {
  dark.value;
  const held = data.inScope.value;
  const s = selection.value;
  // A stall is no hotspot.
  const {
    parts: list,
    calm,
    whole,
  } = useMemo(() => (held ? hottestCalm(held) : { parts: [], calm: false, whole: null }), [held]);
  if (!list.length || s.component !== null) return null;
  const timed = !list.some((p) => p.energy !== null);
  const of = (p: (typeof list)[number]) => (timed ? p.ms : (p.energy ?? 0));
  return (
    <table class="ops hottest" aria-label="Hottest components">
      <thead>
        <tr>
          <th scope="col">
            <Explain of="attribution">Hottest components</Explain>
            {calm && (
              <>
                <br />
                <Explain of="disturbed">without disturbances</Explain>
              </>
            )}
          </th>
          <th scope="col" class="num">
            <Explain of={timed ? HELP.time : HELP.energy}>{timed ? 'Time' : 'Energy'}</Explain>
          </th>
          <th scope="col" class="num">
            <Explain of={shareOf(timed, calm)}>Share</Explain>
          </th>
        </tr>
      </thead>
      <tbody>
        {list.slice(0, SHOWN).map((p) => (
          <tr key={p.component} data-mj={p.energy}>
            <td>
              <button type="button" class="link" onClick={() => select({ component: p.component })}>
                {p.component}
              </button>
              <Bar
                share={of(p) / Math.max(1e-12, of(list[0]))}
                colour={partColour(partOf(p.component))}
              />
            </td>
            <td class="num">{timed ? time(p.ms) : energyOfPart(data, p)}</td>
            <td class="num">{percent(whole && of(p) / whole)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
