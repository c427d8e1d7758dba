// Breakdown of a run's energy into parts that sum exactly to its total, and how sure its tokens are. Pure functions of the
// API's responses.
import type { RunSummary, Summary } from '../../api/types';
import { type Part, partOf } from '../../charts/parts';
import { known, Z95 } from '../../core/format';
import type { Selection } from '../../state/selection';
import { type Cubes, matrix, type RunRows, sums } from './scope';

export type SegmentKey =
  | 'load'
  | 'prefill'
  | 'attention'
  | 'mlp'
  | 'rest'
  | 'decode'
  | 'disturbed'
  | 'gaps'
  | 'idle'
  | 'program'
  | 'other';

export interface Segment {
  key: SegmentKey;
  label: string;
  mj: number;
  /** Description in one sentence. */
  help: string;
  /** The scope that a click selects. */
  scope: Partial<Selection> | null;
}

const DECODE_PARTS: [SegmentKey, string, Part[]][] = [
  ['attention', 'Attention', ['attention']],
  ['mlp', 'MLP', ['mlp']],
];

/** Sums of decode by kind of work, without disturbances. */
function decodeParts(rows: RunRows, cubes: Cubes, net: boolean): Map<Part, number> {
  const m = sums(rows, cubes, only('decode'), 'energy', net);
  const cells = matrix(m, 'energy');
  const out = new Map<Part, number>();
  m.components.forEach((name, c) => {
    for (let l = 0; l <= m.layers; l++) {
      const v = cells[l * m.components.length + c];
      if (!Number.isNaN(v)) out.set(partOf(name), (out.get(partOf(name)) ?? 0) + v);
    }
  });
  return out;
}

const only = (phase: string) => ({
  range: null,
  phase,
  token: null,
  sequence: null,
  layer: null,
  component: null,
});

/** Null if energy is unavailable. The last part is the remainder, so that the sum is exact. */
export function segments(
  s: Summary,
  rows: RunRows,
  cubes: Cubes | null,
  net: boolean,
): Segment[] | null {
  const total = s.total_energy_mj;
  if (!known(total)) return null;
  const has = (e: { energy_mj: number | null; net_energy_mj: number | null }) =>
    known(net ? e.net_energy_mj : e.energy_mj);
  const value = (e: { energy_mj: number | null; net_energy_mj: number | null }): number =>
    (net ? e.net_energy_mj : e.energy_mj) ?? 0;
  // What a device without a sensor computed has no energy: that of the host meanwhile is in no phase.
  const open = rows.phases.some((p) => (p.phase === 'prefill' || p.phase === 'decode') && !has(p));
  if (net && !known(s.net_energy_mj)) return null;
  // Every part is without its disturbance, which is a part of its own.
  const lost = (p: RunRows['phases'][number]): number =>
    has(p) ? ((net ? p.disturbed_net_energy_mj : p.disturbed_energy_mj) ?? 0) : 0;
  const phase = (name: string): number =>
    rows.phases.filter((p) => p.phase === name).reduce((a, p) => a + value(p) - lost(p), 0);
  const list: Segment[] = [];
  const add = (
    key: SegmentKey,
    label: string,
    mj: number,
    help: string,
    scope: Segment['scope'],
  ) => {
    if (mj !== 0) list.push({ key, label, mj, help, scope });
  };
  const pre = phase('pre_inference');
  // Of loading only the gross energy is stored: its net energy is what the request and the gaps leave of the run's.
  const gross = s.model_load_energy_mj ?? 0;
  const gapsOfAll = rows.phases.filter((p) => p.phase === 'idle').reduce((a, p) => a + value(p), 0);
  const loading = net ? (s.net_energy_mj ?? 0) - (s.request_energy_net_mj ?? 0) - gapsOfAll : gross;
  const load = gross > 0 ? loading * (1 - (s.disturbance?.model_load_energy_mj ?? 0) / gross) : 0;
  add(
    'load',
    'Model load',
    load,
    'Reading the model before the first token; later runs of a loaded model do not pay it.',
    { phase: 'pre_inference' },
  );
  add('prefill', 'Prefill', phase('prefill'), 'Reading the prompt, up to the first token.', {
    phase: 'prefill',
  });
  const disturbed = rows.phases.reduce((a, p) => a + lost(p), 0);
  const decode = phase('decode');
  const parts = cubes?.energy ? decodeParts(rows, cubes, net) : null;
  if (parts?.size) {
    let left = decode;
    for (const [key, label, kinds] of DECODE_PARTS) {
      const mj = kinds.reduce((a, k) => a + (parts.get(k) ?? 0), 0);
      left -= mj;
      add(key, `Decode: ${label}`, mj, `${label} of all layers, over the decode tokens.`, {
        phase: 'decode',
      });
    }
    add(
      'rest',
      'Decode: head and rest',
      left,
      'Output head, embedding, norms, sampling, and what no component holds.',
      { phase: 'decode' },
    );
  } else add('decode', 'Decode', decode, 'All tokens after the first.', { phase: 'decode' });
  add(
    'disturbed',
    'Disturbances',
    disturbed,
    'What steps, the prompt, loading and gaps took beyond what is expected of them: the machine was busy, throttled or waiting.',
    null,
  );
  const rest = open ? AROUND : outsideTokens(s, rows);
  add(rest.key, rest.label, pre - load + phase('post_inference'), rest.help, null);
  const left = (of = total): number => of - list.reduce((a, x) => a + x.mj, 0);
  const gaps = open ? left((net ? s.net_energy_mj : total) ?? 0) : net ? phase('idle') : left();
  if (Math.abs(gaps) > total * 1e-9)
    add(
      'gaps',
      open ? 'In no phase' : 'Idle gaps',
      gaps,
      open
        ? 'What the rest of the machine took while a device that no sensor measures computed, and between the phases.'
        : 'Time between the phases, in which nothing was computed.',
      null,
    );
  if (net)
    add(
      'idle',
      'Idle power',
      left(),
      'What the machine draws anyway: idle power over the length of the run.',
      null,
    );
  return list;
}

const AROUND = {
  key: 'other',
  label: 'Around the tokens',
  help: 'Before the prompt and after the last token.',
} as const;

/** What pre- and post-inference hold besides the model load: known of the own engine, not of others. */
function outsideTokens(
  s: Summary,
  rows: RunRows,
): { key: 'other' | 'program'; label: string; help: string } {
  if (!s.engine || s.engine === 'perjoule')
    return { key: 'other', label: 'Other', help: 'Tokenization, cache set-up, clean-up.' };
  return rows.tokens.length
    ? AROUND
    : {
        key: 'program',
        label: 'Program',
        help: 'It reported no phases, so that its energy is one piece.',
      };
}

/** The 95 % interval of a median by order statistics; null below six values. */
export function medianInterval(sorted: Float64Array): [number, number] | null {
  const n = sorted.length;
  if (n < 6) return null;
  const half = (1.959964 * Math.sqrt(n)) / 2;
  const at = (i: number) => sorted[Math.max(0, Math.min(n - 1, Math.round(i)))];
  return [at(n / 2 - half - 0.5), at(n / 2 + half - 0.5)];
}

/** The standard deviation of a median of tokens: their scatter, and the errors of the sensor that they share, as
 * those of the run's typical token. */
export function medianSd(median: number, ends: [number, number], s: Summary): number {
  const scatter = Math.max(median - ends[0], ends[1] - median) / Z95;
  const typical = known(s.joules_per_token_typical) ? s.joules_per_token_typical * 1000 : 0;
  const part = (sd: number | null): number =>
    known(sd) && typical > 0 ? (sd / typical) * median : 0;
  return Math.hypot(
    scatter,
    part(s.typical_token_energy_sd_bias_mj),
    part(s.typical_token_energy_sd_gain_mj),
  );
}

/** Number of power samples within a typical token. */
export function samplesPerToken(s: Summary): number | null {
  const samples = s.counts.samples;
  const ms = s.token_statistics?.duration_ms.median;
  if (!known(samples) || !known(ms) || !known(s.total_duration_ms) || s.total_duration_ms <= 0)
    return null;
  return (samples / s.total_duration_ms) * ms;
}

export const canBeNet = (s: RunSummary | null): boolean => known(s?.net_energy_mj);
