import { signal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { api } from '../../api/client';
import type { PhaseRow, Section } from '../../api/types';
import { Canvas, Panel } from '../../charts/panel';
import { PHASE_LABEL } from '../../charts/theme';
import { type Slice, Timeline } from '../../charts/timeline';
import { energy, energyInterval, percent, time } from '../../core/format';
import { extent } from '../../core/stats';
import { RampKey } from '../../parts/ramp_key';
import { stateOf, useResource } from '../../state/resource';
import { type Range, select, selection } from '../../state/selection';
import { unit } from '../../state/settings';
import type { RunData } from './data';

/** Slices of the sections lane at most, per phase, earliest first. */
const SECTIONS = 5000;
const NONE: ReadonlyMap<string, Section[]> = new Map();

/** Phases whose sections are shown; survives a change of the run. */
const open = signal<ReadonlySet<string>>(new Set());

export function TimelinePanel({ data, full }: { data: RunData; full: Range }) {
  const chart = useRef<Timeline | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const phases = data.pipeline.value.data?.phases ?? null;
  const tokens = data.tokens.value.data;
  const expanded = open.value;
  // Sections are many and mostly unseen: they are fetched for the phases that are open.
  const wanted = [...expanded].sort();
  const opened = useResource(wanted.length ? `sections ${data.id} ${wanted}` : null, async (s) => {
    const answers = await Promise.all(
      wanted.map((phase) => api.pipeline(data.id, { phase, limit: SECTIONS }, s)),
    );
    return new Map(
      wanted.map((w, i) => [w, answers[i].phases.find((p) => p.phase === w)?.sections ?? []]),
    );
  });
  const sections = opened.value.data;
  const { lanes, slices } = useMemo(
    () => build(phases ?? [], tokens ?? [], sections ?? NONE),
    [phases, tokens, sections],
  );
  const height = Timeline.height(lanes.length);
  useEffect(() => {
    box.current?.style.setProperty('--h', `${height}px`);
  }, [height, phases !== null]);
  const s = selection.value;
  const picked = (x: Slice) =>
    (x.kind === 'token' && x.token === s.token) || (x.kind === 'phase' && s.phase === x.phase);
  const e = extent((phases ?? []).map((p) => p.energy_mj));
  const pick = (i: number | null) => {
    if (i === null || !chart.current) return;
    const x = chart.current.slice(i);
    if (x.kind === 'token') select({ token: x.token });
    if (x.kind === 'section' && x.token !== null) select({ token: x.token });
    if (x.kind !== 'phase') return;
    toggle(x.phase);
    select({ phase: s.phase === x.phase ? null : x.phase });
  };
  return (
    <Panel
      title="Pipeline"
      body="h-timeline"
      note="Width is duration, colour is energy within a lane. Click a phase to select it and open its sections."
      state={stateOf(data.pipeline, (p) =>
        p.phases.length ? null : 'This run recorded no phases.',
      )}
      legend={
        <>
          {e ? (
            <RampKey
              label="Energy of a phase"
              lo={energy(Math.min(0, e[0]), unit.value)}
              hi={energy(e[1], unit.value)}
            />
          ) : (
            <span>Energy is unavailable: slices are hatched.</span>
          )}
          <span class="row phase-toggles">
            {(phases ?? [])
              .filter((p) => (p.section_count ?? 0) > 0)
              .map((p) => (
                <button
                  type="button"
                  key={p.phase}
                  class="btn small"
                  aria-expanded={expanded.has(p.phase)}
                  onClick={() => toggle(p.phase)}
                >
                  {expanded.has(p.phase) ? '−' : '+'} {PHASE_LABEL[p.phase] ?? p.phase}
                </button>
              ))}
          </span>
        </>
      }
      table={() => ({
        columns: ['lane', 'name', 'token', 'start_ms', 'duration_ms', 'energy_mj', 'energy_sd_mj'],
        rows: slices.map((x) => [x.kind, x.label, x.token, x.start, x.duration, x.energy, x.sd]),
      })}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <div ref={box} class="h-var">
        <Canvas
          name="timeline"
          class="fill"
          label={describe(phases ?? [])}
          make={(host) => {
            const made = new Timeline(host);
            made.onPick = pickThrough;
            return made;
          }}
          handle={chart}
          update={(c) => {
            onPick = pick;
            c.set(full, lanes, slices, picked);
          }}
        />
      </div>
    </Panel>
  );
}

// The chart is made once; what a click means is decided anew with every render.
let onPick: (i: number | null) => void = () => {};
const pickThrough = (i: number | null): void => onPick(i);

function toggle(phase: string): void {
  const next = new Set(open.value);
  if (!next.delete(phase)) next.add(phase);
  open.value = next;
}

function build(
  phases: PhaseRow[],
  tokens: NonNullable<RunData['tokens']['value']['data']>,
  sections: ReadonlyMap<string, Section[]>,
): { lanes: string[]; slices: Slice[] } {
  const lanes = ['Phases'];
  const slices: Slice[] = phases.map((p) => ({
    lane: 0,
    start: p.start_ms,
    duration: p.duration_ms,
    label: PHASE_LABEL[p.phase] ?? p.phase,
    energy: p.energy_mj,
    sd: p.energy_sd_mj,
    kind: 'phase',
    phase: p.phase,
    token: null,
    rows: (p.section_totals ?? []).slice(0, 6).map((x) => [x.section_name, time(x.duration_ms)]),
  }));
  const opened = phases.filter((p) => sections.get(p.phase)?.length);
  if (opened.length) {
    const lane = lanes.push('Sections') - 1;
    for (const p of opened) {
      for (const x of sections.get(p.phase) ?? []) {
        slices.push({
          lane,
          start: x.start_ms,
          duration: x.duration_ms,
          label: x.section_name,
          energy: x.energy_mj,
          sd: x.energy_sd_mj,
          kind: 'section',
          phase: p.phase,
          token: x.token,
          rows: x.token === null ? [] : [['Token', String(x.token)]],
        });
      }
    }
  }
  if (tokens.length) {
    const lane = lanes.push('Tokens') - 1;
    for (const t of tokens) {
      slices.push({
        lane,
        start: t.start_ms,
        duration: t.duration_ms,
        label: t.phase === 'prefill' ? 'Prompt' : (t.text ?? '').trim() || `#${t.token}`,
        energy: t.energy_mj,
        sd: t.energy_sd_mj,
        kind: 'token',
        phase: t.phase,
        token: t.token,
        rows: [['Token', String(t.token)]],
      });
    }
  }
  return { lanes, slices };
}

function describe(phases: PhaseRow[]): string {
  const total = phases.reduce((a, p) => a + p.duration_ms, 0);
  const parts = phases.map(
    (p) =>
      `${PHASE_LABEL[p.phase] ?? p.phase} ${time(p.duration_ms)} (${percent(p.duration_ms / total)}), ${energyInterval(p.energy_mj, p.energy_sd_mj)}`,
  );
  return `Timeline of the run. ${parts.join('; ')}.`;
}
