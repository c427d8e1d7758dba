// Settings of this browser: theme, energy unit, ramp. Stored in localStorage, where allowed.
import { effect, signal } from '@preact/signals';
import type { EnergyUnit } from '../core/format';
import type { RampName } from '../core/ramp';

export type Theme = 'auto' | 'light' | 'dark';

const KEY = 'perjoule';

interface Stored {
  theme: Theme;
  unit: EnergyUnit;
  ramp: RampName;
}

function load(): Partial<Stored> {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? '{}') as Partial<Stored>;
  } catch {
    return {};
  }
}

const stored = load();
const one = <T extends string>(v: T | undefined, of: readonly T[]): T =>
  v !== undefined && of.includes(v) ? v : of[0];

export const theme = signal<Theme>(one(stored.theme, ['auto', 'light', 'dark']));
export const unit = signal<EnergyUnit>(one(stored.unit, ['auto', 'mJ', 'J', 'Wh']));
export const rampName = signal<RampName>(one(stored.ramp, ['viridis', 'cividis']));

const systemDark = matchMedia('(prefers-color-scheme: dark)');
const systemStill = matchMedia('(prefers-reduced-motion: reduce)');
/** The effective theme; canvases repaint when it changes. */
export const dark = signal(false);
export const still = signal(systemStill.matches);
/** Laid out for paper: always light. */
export const printing = signal(false);

export function startSettings(): void {
  const apply = () => {
    const wanted = theme.value === 'dark' || (theme.value === 'auto' && systemDark.matches);
    document.documentElement.classList.toggle('printing', printing.value);
    document.documentElement.dataset.theme = wanted && !printing.value ? 'dark' : 'light';
    dark.value = wanted && !printing.value;
  };
  systemDark.addEventListener('change', apply);
  systemStill.addEventListener('change', () => {
    still.value = systemStill.matches;
  });
  effect(apply);
  effect(() => {
    const all: Stored = {
      theme: theme.value,
      unit: unit.value,
      ramp: rampName.value,
    };
    try {
      localStorage.setItem(KEY, JSON.stringify(all));
    } catch {
      // Private windows may have no storage; settings then last as long as the page.
    }
  });
}
