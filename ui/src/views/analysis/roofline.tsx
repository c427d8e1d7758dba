// The roofline: what each component achieves, of the prompt and of decoding apart, below what the machine can.
import { useRef } from 'preact/hooks';
import { runPath } from '../../api/address';
import { api } from '../../api/client';
import { holds } from '../../api/inlined';
import type { ComponentStat, ComponentSum, RunDetail } from '../../api/types';
import { Canvas, Legend, Panel } from '../../charts/panel';
import { PART_LABEL, type Part, partColour, partOf } from '../../charts/parts';
import { type Dot, type Line, Points } from '../../charts/points';
import { colours } from '../../charts/theme';
import { count, digits, energy, known, plain, Z95 } from '../../core/format';
import { Sentence } from '../../parts/notice';
import { stateOf, useResource } from '../../state/resource';
import { select, selection, without } from '../../state/selection';
import { dark, unit } from '../../state/settings';
import type { RunData } from './data';

interface Limits {
  read_gbytes_per_s?: number;
  peak_gflops_per_s?: Record<string, number>;
}

interface Roof {
  gflops: number;
  gbytes: number;
  of: string;
}

/** Measured peak rates of what computed: the run's only device besides the host, else the processor. */
function roof(d: RunDetail | null): Roof | null {
  const others = Object.entries(d?.devices ?? {}).filter(([number]) => number !== '0');
  if (others.length > 1) return null;
  const device = others[0]?.[1] as { limits?: unknown; name?: string } | undefined;
  const limits = (device ? device.limits : d?.machine_info?.limits) as Limits | null | undefined;
  const gflops = limits?.peak_gflops_per_s?.[d?.dtype ?? ''];
  const gbytes = limits?.read_gbytes_per_s;
  const of = device?.name ?? 'this machine';
  return known(gflops) && known(gbytes) ? { gflops, gbytes, of } : null;
}

/** Whether the times of its components are the host's, which launched too late: no basis for rates. */
export function waitsForLaunches(d: Pick<RunDetail, 'settings'> | null): boolean {
  const { module_times = '' } = d?.settings ?? {};
  return String(module_times).includes('waiting for launches');
}

/** A component in one phase; without figures by phase, over the whole run. */
export interface RoofPart {
  name: string;
  phase: 'prefill' | 'decode' | null;
  flops: number;
  bytes: number;
  ms: number;
  mj: number | null;
}

const PHASE_LABEL = { prefill: 'prompt', decode: 'decode' } as const;

/** The components that computed something. */
export function roofParts(
  list: readonly (ComponentStat | ComponentSum)[],
  phase: RoofPart['phase'],
): RoofPart[] {
  return list.flatMap((c) => {
    const [flops, bytes, ms] = [c.flops ?? 0, c.bytes ?? 0, c.time_ms ?? 0];
    if (!(flops > 0 && bytes > 0 && ms > 0)) return [];
    return [{ name: c.component_name, phase, flops, bytes, ms, mj: c.energy_mj }];
  });
}

export const intensity = (p: RoofPart): number => p.flops / p.bytes;
export const gflops = (p: RoofPart): number => p.flops / p.ms / 1e6;
const gbytes = (p: RoofPart): number => p.bytes / p.ms / 1e6;
/** mJ over FLOPs or bytes. */
const picojoules = (p: RoofPart, of: number): number | null =>
  p.mj === null ? null : (p.mj * 1e9) / of;

/** The components of the prompt and of decoding, each at its own intensity: a prompt reads the weights once for all
 * its tokens, decoding once for each. */
function useParts(data: RunData): { list: RoofPart[]; apart: boolean } {
  const d = without.value;
  const of = (phase: 'prefill' | 'decode') =>
    holds(`${runPath(data.id)}/operations`, { phase, ...d })
      ? `roofline ${data.id} ${phase} ${d.disturbances ?? ''}`
      : null;
  const prefill = useResource(of('prefill'), (x) =>
    api.operations(data.id, { phase: 'prefill', ...d }, x),
  ).value.data;
  const decode = useResource(of('decode'), (x) =>
    api.operations(data.id, { phase: 'decode', ...d }, x),
  ).value.data;
  const apart = [
    ...roofParts(prefill?.components ?? [], 'prefill'),
    ...roofParts(decode?.components ?? [], 'decode'),
  ];
  if (apart.length) return { list: apart, apart: true };
  return { list: roofParts(data.summary.value.data?.components ?? [], null), apart: false };
}

const nameOf = (p: RoofPart): string => (p.phase ? `${p.name}, ${PHASE_LABEL[p.phase]}` : p.name);

export function RooflinePanel({ data }: { data: RunData }) {
  const chart = useRef<Points | null>(null);
  const s = data.summary.value.data;
  dark.value;
  const c = colours();
  const { list: parts, apart } = useParts(data);
  const detail = useResource(`detail ${data.id}`, (x) => api.detail(data.id, x));
  const waits = waitsForLaunches(detail.value.data);
  const all = waits ? [] : parts;
  const chosen = selection.value.phase;
  const list =
    apart && (chosen === 'prefill' || chosen === 'decode')
      ? all.filter((p) => p.phase === chosen)
      : all;
  const whole = list.reduce((a, p) => a + (p.mj ?? p.ms), 0) || 1;
  const dots = list.map((p): Dot => dot(p, whole));
  const r = roof(detail.value.data);
  const best = Math.max(0, ...list.map(gbytes));
  const top = Math.max(0, ...list.map(gflops));
  const lo = Math.min(...list.map(intensity)) / 2;
  const hi = Math.max(...list.map(intensity)) * 2;
  const lines: Line[] = list.length
    ? [
        roofLine(r?.gbytes ?? best, r?.gflops ?? top, lo, hi, c.text2, !r),
        ...pairs(list).map(
          ([a, b]): Line => ({
            points: [a, b].map((p) => [intensity(p), gflops(p)]),
            label: a.name,
            colour: c.grid,
          }),
        ),
      ]
    : [];
  const a = s?.attribution;
  return (
    <Panel
      class="bare"
      title="Roofline"
      note={
        <Sentence
          text={`FLOPs per byte against achieved GFLOP/s${apart ? ', of the prompt (rings) and of decoding (dots)' : ''}; size is energy. ${r ? `Roof: measured peaks of ${r.of}.` : 'Dashed: the best this run reached; `perjoule bench kernels`, with `--device` for a GPU, measures the limit for later runs.'}`}
        />
      }
      state={stateOf(data.summary, () =>
        waits
          ? 'The times of its components contain waiting for launches: there are no rates.'
          : list.length
            ? null
            : 'No component of this run has FLOPs and bytes.',
      )}
      legend={
        <>
          <Legend
            items={(Object.keys(PART_LABEL) as Part[]).map((p) => ({
              label: PART_LABEL[p],
              colour: partColour(p),
            }))}
          />
          {known(a?.pj_per_flop) && (
            <span>
              {digits(a.pj_per_flop)}
              {known(a.pj_per_flop_sd) && ` ± ${digits(Z95 * a.pj_per_flop_sd, 2)}`} pJ/FLOP,{' '}
              {plain(a.pj_per_byte)}
              {known(a.pj_per_byte_sd) && ` ± ${digits(Z95 * a.pj_per_byte_sd, 2)}`} pJ/byte
            </span>
          )}
        </>
      }
      table={() => ({
        columns: [
          'component_name',
          'phase',
          'intensity',
          'gflops_per_s',
          'gbytes_per_s',
          'pj_per_flop',
          'pj_per_byte',
          'flops',
          'bytes',
          'time_ms',
          'energy_mj',
        ],
        rows: list.map((p) => [
          p.name,
          p.phase ?? 'run',
          intensity(p),
          gflops(p),
          gbytes(p),
          picojoules(p, p.flops),
          picojoules(p, p.bytes),
          p.flops,
          p.bytes,
          p.ms,
          p.mj,
        ]),
      })}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <Canvas
        class="h-roof"
        name="roofline"
        label={`Roofline of ${list.length} ${apart ? 'components by phase' : 'components'}. ${list
          .slice(0, 5)
          .map(
            (p) =>
              `${nameOf(p)}: ${plain(intensity(p))} FLOP per byte, ${plain(gflops(p))} GFLOP/s`,
          )
          .join('; ')}.`}
        make={(host) => new Points(host)}
        handle={chart}
        update={(p) => {
          p.set({
            x: { label: 'FLOP per byte', log: true, show: short },
            y: { label: 'GFLOP/s', log: true, show: short },
            dots,
            lines,
          });
          p.onPick = (i) => {
            if (i !== null) select({ component: list[i].name, layer: null });
          };
        }}
      />
    </Panel>
  );
}

/** The prompt and the decoding of one component. */
function pairs(list: RoofPart[]): [RoofPart, RoofPart][] {
  return list.flatMap((a) => {
    const b = list.find((x) => x.name === a.name && x.phase === 'decode');
    return a.phase === 'prefill' && b ? [[a, b] as [RoofPart, RoofPart]] : [];
  });
}

const short = (v: number): string =>
  v >= 1 ? String(Number(v.toPrecision(3))) : String(Number(v.toPrecision(2)));

function roofLine(
  gbytes: number,
  gflops: number,
  lo: number,
  hi: number,
  colour: string,
  dash: boolean,
): Line {
  const ridge = gflops / gbytes;
  const points: [number, number][] = [[Math.min(lo, ridge), gbytes * Math.min(lo, ridge)]];
  if (ridge > lo && ridge < hi) points.push([ridge, gflops]);
  points.push([hi, Math.min(gflops, gbytes * hi)]);
  return { points, label: 'Roof', colour, dash };
}

function dot(p: RoofPart, whole: number): Dot {
  const [flop, byte] = [picojoules(p, p.flops), picojoules(p, p.bytes)];
  return {
    x: intensity(p),
    y: gflops(p),
    label: p.phase === 'prefill' ? '' : p.name,
    ring: p.phase === 'prefill',
    colour: partColour(partOf(p.name)),
    size: 0.5 + 6 * ((p.mj ?? p.ms) / whole),
    tip: {
      title: nameOf(p),
      rows: [
        ['Intensity', `${plain(intensity(p))} FLOP/B`],
        ['Achieved', `${plain(gflops(p))} GFLOP/s, ${plain(gbytes(p))} GB/s`],
        ['Energy per FLOP', known(flop) ? `${plain(flop)} pJ` : 'unavailable'],
        ['Energy per byte', known(byte) ? `${plain(byte)} pJ` : 'unavailable'],
        ['Energy', energy(p.mj, unit.peek())],
        ['FLOPs', count(p.flops)],
      ],
    },
  };
}
