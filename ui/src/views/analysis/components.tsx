import { useRef } from 'preact/hooks';
import { api } from '../../api/client';
import type { ComponentStat, RunDetail } from '../../api/types';
import { Canvas, Legend, Panel } from '../../charts/panel';
import { PART_LABEL, type Part, partColour, partOfStat } from '../../charts/parts';
import { type Dot, type Line, Points } from '../../charts/points';
import { colours } from '../../charts/theme';
import {
  count,
  digits,
  energy,
  energyInterval,
  known,
  percent,
  plain,
  power,
  time,
  Z95,
} from '../../core/format';
import { Explain } from '../../parts/explain';
import { Sentence } from '../../parts/notice';
import { stateOf, useResource } from '../../state/resource';
import { select, selection } from '../../state/selection';
import { dark, unit } from '../../state/settings';
import type { RunData } from './data';
import { Bar } from './heatmap';

const ROWS = 12;

export function ComponentsPanel({ data }: { data: RunData }) {
  const list = data.summary.value.data?.components ?? [];
  const timed = !list.some((c) => known(c.energy_mj));
  const whole = list.reduce((a, c) => a + ((timed ? c.time_ms : c.energy_mj) ?? 0), 0);
  const most = Math.max(1e-12, ...list.map((c) => (timed ? c.time_ms : c.energy_mj) ?? 0));
  dark.value;
  const picked = selection.value.component;
  return (
    <Panel
      class="bare"
      title="Components"
      note={
        timed
          ? 'Energy is unavailable; ordered by time over all layers and tokens.'
          : 'Gross energy over all layers and tokens, with the 95 % interval.'
      }
      state={stateOf(data.summary, (s) =>
        s.components.length ? null : 'This run recorded no components.',
      )}
      legend={
        <Legend
          items={(Object.keys(PART_LABEL) as Part[]).map((p) => ({
            label: PART_LABEL[p],
            colour: partColour(p),
          }))}
        />
      }
      table={() => ({
        columns: [
          'component_name',
          'part',
          'count',
          'time_ms',
          'energy_mj',
          'energy_sd_mj',
          'share',
          'power_mw',
          'flops',
          'bytes',
          'pj_per_flop',
          'pj_per_byte',
        ],
        rows: list.map((c) => [
          c.component_name,
          c.part,
          c.count,
          c.time_ms,
          c.energy_mj,
          c.energy_sd_mj,
          c.share,
          c.power_mw,
          c.flops,
          c.bytes,
          c.pj_per_flop,
          c.pj_per_byte,
        ]),
      })}
    >
      <table class="ops hottest">
        <thead>
          <tr>
            <th scope="col">
              <Explain of="attribution">Component</Explain>
            </th>
            <th scope="col" class="num">
              <Explain of="energy">Energy</Explain>
            </th>
            <th scope="col" class="num">
              <Explain of="share">Share</Explain>
            </th>
            <th scope="col" class="num wide">
              <Explain of="power">Power</Explain>
            </th>
            <th scope="col" class="num">
              <Explain of="duration">Time</Explain>
            </th>
          </tr>
        </thead>
        <tbody>
          {list.slice(0, ROWS).map((c) => {
            const v = (timed ? c.time_ms : c.energy_mj) ?? 0;
            return (
              <tr key={c.component_name} class={picked === c.component_name ? 'picked' : ''}>
                <td>
                  <button
                    type="button"
                    class="link"
                    onClick={() =>
                      select({
                        component: picked === c.component_name ? null : c.component_name,
                        layer: null,
                      })
                    }
                  >
                    {c.component_name}
                  </button>
                  <Bar share={v / most} colour={partColour(partOfStat(c))} />
                </td>
                <td class={`num ${known(c.energy_mj) ? '' : 'na hatched'}`}>
                  {energyInterval(c.energy_mj, c.energy_sd_mj, unit.value)}
                </td>
                <td class="num">{percent(c.share ?? (whole > 0 ? v / whole : null))}</td>
                <td class="num wide">{power(c.power_mw)}</td>
                <td class="num">{time(c.time_ms)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {list.length > ROWS && <p class="note">{list.length - ROWS} more in the table.</p>}
    </Panel>
  );
}

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
  const device = others[0]?.[1];
  const limits = (device ? device.limits : d?.machine_info?.limits) as Limits | null | undefined;
  const gflops = limits?.peak_gflops_per_s?.[d?.dtype ?? ''];
  const gbytes = limits?.read_gbytes_per_s;
  const of = device?.name ?? 'this machine';
  return known(gflops) && known(gbytes) ? { gflops, gbytes, of } : null;
}

export function RooflinePanel({ data }: { data: RunData }) {
  const chart = useRef<Points | null>(null);
  const s = data.summary.value.data;
  dark.value;
  const c = colours();
  const list = (s?.components ?? []).filter(
    (x) => (x.intensity ?? 0) > 0 && (x.gflops_per_s ?? 0) > 0,
  );
  const whole = list.reduce((a, x) => a + (x.energy_mj ?? x.time_ms ?? 0), 0) || 1;
  const dots = list.map((x): Dot => dot(x, whole));
  const detail = useResource(`detail ${data.id}`, (x) => api.detail(data.id, x));
  const r = roof(detail.value.data);
  const best = Math.max(0, ...list.map((x) => x.gbytes_per_s ?? 0));
  const top = Math.max(0, ...list.map((x) => x.gflops_per_s ?? 0));
  const lo = Math.min(...list.map((x) => x.intensity ?? 1)) / 2;
  const hi = Math.max(...list.map((x) => x.intensity ?? 1)) * 2;
  const lines: Line[] = list.length
    ? [roofLine(r?.gbytes ?? best, r?.gflops ?? top, lo, hi, c.text2, !r)]
    : [];
  const a = s?.attribution;
  return (
    <Panel
      class="bare"
      title="Roofline"
      note={
        <Sentence
          text={`FLOPs per byte against achieved GFLOP/s; size is energy. ${r ? `Roof: measured peaks of ${r.of}.` : 'Dashed: the best this run reached; `perjoule bench kernels`, with `--device` for a GPU, measures the limit for later runs.'}`}
        />
      }
      state={stateOf(data.summary, () =>
        list.length ? null : 'No component of this run has FLOPs and bytes.',
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
        rows: list.map((x) => [
          x.component_name,
          x.intensity,
          x.gflops_per_s,
          x.gbytes_per_s,
          x.pj_per_flop,
          x.pj_per_byte,
          x.flops,
          x.bytes,
          x.time_ms,
          x.energy_mj,
        ]),
      })}
      png={async () => (await chart.current?.png()) ?? null}
    >
      <Canvas
        class="h-roof"
        name="roofline"
        label={`Roofline of ${list.length} components. ${list
          .slice(0, 5)
          .map(
            (x) =>
              `${x.component_name}: ${plain(x.intensity)} FLOP per byte, ${plain(x.gflops_per_s)} GFLOP/s`,
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
            if (i !== null) select({ component: list[i].component_name, layer: null });
          };
        }}
      />
    </Panel>
  );
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

function dot(x: ComponentStat, whole: number): Dot {
  return {
    x: x.intensity ?? 0,
    y: x.gflops_per_s ?? 0,
    label: x.component_name,
    colour: partColour(partOfStat(x)),
    size: 0.5 + 6 * ((x.energy_mj ?? x.time_ms ?? 0) / whole),
    tip: {
      title: x.component_name,
      rows: [
        ['Intensity', `${plain(x.intensity)} FLOP/B`],
        ['Achieved', `${plain(x.gflops_per_s)} GFLOP/s, ${plain(x.gbytes_per_s)} GB/s`],
        ['Energy per FLOP', known(x.pj_per_flop) ? `${plain(x.pj_per_flop)} pJ` : 'unavailable'],
        ['Energy per byte', known(x.pj_per_byte) ? `${plain(x.pj_per_byte)} pJ` : 'unavailable'],
        ['Energy', energy(x.energy_mj, unit.peek())],
        ['FLOPs', count(x.flops)],
      ],
    },
  };
}
