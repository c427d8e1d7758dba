// Badges for the source of a figure (measured, modelled, …), and figures with labels.
import type { EnergySource, RunSummary, Status } from '../api/types';
import { energyInterval, type Num, UNAVAILABLE } from '../core/format';
import type { Term } from '../core/glossary';
import { type Quantity, text as quantityText, type Unit } from '../core/quantity';
import { FIGURE_HELP, partialText } from '../core/run_energy';
import { unit } from '../state/settings';
import { Explain } from './explain';

const SOURCE_HELP: Record<EnergySource, string> = {
  measured: 'Energy was read from sensors.',
  modelled: 'Energy is an estimate from a model or a simulated sensor, not a measurement.',
  unavailable: 'There is no energy in this run: no power source was read, or none resolved it.',
};

/** The source of an energy; always shown for figures that are not measured. */
export function SourceBadge({ source }: { source: EnergySource | null | undefined }) {
  if (!source) return null;
  const text = source === 'unavailable' ? 'energy unavailable' : source;
  return (
    <span class={`badge ${source}`} title={SOURCE_HELP[source]}>
      {text}
    </span>
  );
}

/** The rails missing from a run's total; shown with every energy of a partial run. */
export function PartialBadge({ run }: { run: RunSummary }) {
  return <LackBadge text={partialText(run)} />;
}

/** What an energy lacks, in words: "CPU only, GPU missing". */
export function LackBadge({ text }: { text: string | null | undefined }) {
  if (!text) return null;
  return (
    <span class="badge partial" title={FIGURE_HELP.partial}>
      {text}
    </span>
  );
}

export function StatusBadge({ status }: { status: Status }) {
  return <span class={`badge ${status}`}>{status}</span>;
}

const SCOPE_HELP = {
  machine: 'Energy of the whole machine while the run went on.',
  process:
    "Energy of the process and its children: the machine's, by their share of processor time.",
  request: "Energy of this request: the machine's, shared between requests that ran at once.",
} as const;

/** Engine and energy scope of a run that was not made by this program's engine. */
export function OriginBadges({ run, brief }: { run: RunSummary; brief?: boolean }) {
  const other = run.engine && run.engine !== 'perjoule';
  const { scope, level } = run;
  return (
    <>
      {other && (
        <span
          class="badge engine"
          title={['The engine that ran the model', scope && SCOPE_HELP[scope]]
            .filter(Boolean)
            .join('. ')}
        >
          {run.engine}
        </span>
      )}
      {!brief && scope && (other || scope !== 'machine') && (
        <span class="badge" title={SCOPE_HELP[scope]}>
          {scope}
        </span>
      )}
      {!brief && level && (
        <span
          class="badge"
          title="Level of detail recorded from the engine: fine has layers, coarse has not"
        >
          {level}
        </span>
      )}
    </>
  );
}

/** An energy with its 95 % interval, in the unit chosen for the page. */
export function Energy({ mj, sd }: { mj: Num; sd?: Num }) {
  const text = energyInterval(mj, sd, unit.value);
  return <span class={text === UNAVAILABLE ? 'na hatched' : ''}>{text}</span>;
}

export function Figure({
  label,
  value,
  sub,
  title,
  of,
}: {
  label: string;
  value: string;
  sub?: string;
  /** Its glossary entry. */
  of: Term;
  /** An explanation more specific than the glossary's. */
  title?: string;
}) {
  const na = value.startsWith(UNAVAILABLE);
  return (
    <div class={`figure ${na && value !== UNAVAILABLE ? 'reason' : ''}`}>
      <dt>
        <Explain of={title ? { title: label, text: title, term: of } : of}>{label}</Explain>
        {sub && <small>{sub}</small>}
      </dt>
      <dd class={na ? 'na hatched' : ''}>{value}</dd>
    </div>
  );
}

/** A quantity with its interval, and a badge unless it is completely measured. */
export function Amount({ q }: { q: Quantity<Unit> }) {
  if (q.source === 'unavailable')
    return (
      <span class="na hatched" title={q.reason ?? undefined}>
        {UNAVAILABLE}
      </span>
    );
  return (
    <span class="amount">
      {quantityText(q, unit.value)}
      {q.unit !== 'ms' && q.source === 'modelled' && <span class="badge modelled">modelled</span>}
      {q.missing.length > 0 && <span class="badge partial">partial</span>}
    </span>
  );
}
