// The machine's rails, always shown: current power and the last minute.
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { api } from '../../api/client';
import type { PowerNow } from '../../api/types';
import { colours, RAIL_LABEL, RAILS, type Rail } from '../../charts/theme';
import { isKnown, quantity, text } from '../../core/quantity';
import { SourceBadge } from '../../parts/badge';
import { Explain, termed } from '../../parts/explain';
import { Notice, Sentence } from '../../parts/notice';
import { link, sensors } from '../../state/live';
import { dark } from '../../state/settings';

/** Rail names as in the charts; unknown names are left unchanged. */
const NAME = (rail: string): string => RAIL_LABEL[rail as Rail] ?? rail;

const METER_HELP =
  'Mean power of this rail over the last three seconds, which follows a change later than the chart of a run does, and the last minute; read whether a run goes on or not.';

/** What the figures of a rail are made of: its counter, the log that shapes it, what a read takes. */
function madeOf(rail: PowerNow['rails'][number]): [string, string][] {
  const source = sensors.value?.sources.find((s) => s.name === rail.source);
  const made = source?.rails.find((r) => r.name === rail.name)?.made_of;
  return made ? [['Made of', made]] : [];
}

const EVERY_MS = 1000;
const SECONDS = 60;

const latest = signal<PowerNow | null>(null);
const failed = signal<string | null>(null);

/** Polls once per second while visible. */
function useMeters(): void {
  const open = link.value === 'open';
  useEffect(() => {
    if (!open) return;
    const abort = new AbortController();
    const ask = async () => {
      if (document.hidden) return;
      try {
        latest.value = await api.powerNow(SECONDS, abort.signal);
        failed.value = null;
      } catch (e) {
        if (!abort.signal.aborted) failed.value = e instanceof Error ? e.message : String(e);
      }
    };
    void ask();
    const timer = setInterval(() => void ask(), EVERY_MS);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [open]);
}

export function Meters() {
  useMeters();
  dark.value;
  const now = latest.value;
  if (!now) return null;
  if (!now.rails.length)
    return now.remedy ? (
      <Notice>
        <Sentence text={now.remedy} />
      </Notice>
    ) : null;
  const stale = link.value !== 'open' || failed.value !== null;
  const c = colours();
  const colour = (rail: PowerNow['rails'][number]): string => {
    const of = RAILS.find((r) => r === rail.class || r === rail.name);
    return of ? c.rail[of as Rail] : c.text3;
  };
  return (
    <section class="panel meters" aria-label="Meters of this machine">
      <ul>
        {now.rails.map((r) => {
          const q = quantity('mW', stale ? null : r.now_mw, r.quality);
          return (
            <li key={`${r.source} ${r.name}`}>
              <span class="meter-head">
                <Explain
                  of={{
                    ...termed('power'),
                    title: NAME(r.name),
                    text: METER_HELP,
                    more: madeOf(r),
                  }}
                >
                  {NAME(r.name)}
                </Explain>
                <small class="muted">{r.source}</small>
                {r.quality === 'modelled' && <SourceBadge source="modelled" />}
              </span>
              <strong class={isKnown(q) ? 'num' : 'num na'}>
                {isKnown(q) ? text(q) : 'no reading now'}
              </strong>
              {isKnown(q) && <small class="muted">mean of 3 s</small>}
              <Spark values={r.power_mw} colour={colour(r)} />
            </li>
          );
        })}
      </ul>
    </section>
  );
}

/** Sparkline of a minute, with gaps where there are no readings. */
function Spark({ values, colour }: { values: (number | null)[]; colour: string }) {
  const top = Math.max(1e-9, ...values.map((v) => v ?? 0)) * 1.08;
  let d = '';
  let open = false;
  values.forEach((v, i) => {
    if (v === null) {
      open = false;
      return;
    }
    d += `${open ? 'L' : 'M'}${((i / Math.max(1, values.length - 1)) * 120).toFixed(1)} ${(24 - (v / top) * 22).toFixed(1)}`;
    open = true;
  });
  return (
    <svg class="spark" viewBox="0 0 120 26" preserveAspectRatio="none" aria-hidden="true">
      <path
        d={d}
        fill="none"
        stroke={colour}
        stroke-width="1.5"
        vector-effect="non-scaling-stroke"
      />
    </svg>
  );
}
