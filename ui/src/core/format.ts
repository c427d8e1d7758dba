// Formatting of numbers: from the API's units (mJ, mW, ms; null is unavailable) to short texts without
// insignificant digits.

export type Num = number | null | undefined;
export type EnergyUnit = 'auto' | 'mJ' | 'J' | 'Wh';

export const UNAVAILABLE = 'unavailable';
export const DASH = '–';

/** 95 % of a normal distribution lie within 1.96 standard deviations. */
export const Z95 = 1.959964;

export const known = (v: Num): v is number => typeof v === 'number' && Number.isFinite(v);

const formats: Intl.NumberFormat[] = [];

/** Fixed number of decimal places, with digit grouping. Formatters are cached, because creating one takes
 * longer than formatting a whole table. */
export function fixed(v: number, places: number): string {
  formats[places] ??= new Intl.NumberFormat('en-US', {
    minimumFractionDigits: places,
    maximumFractionDigits: places,
    signDisplay: 'negative', // and not of what is rounded to zero
  });
  return formats[places].format(v);
}

export const threadCount = (n: number | string): string =>
  `${n} ${Number(n) === 1 ? 'thread' : 'threads'}`;

/** About three significant digits, with digit grouping; an exponent only where it is shorter. */
export function digits(v: number, significant = 3): string {
  if (v === 0) return '0';
  const a = Math.abs(v);
  if (a >= 1e9 || a < 1e-4) return v.toExponential(significant - 1).replace('e+', 'e');
  // By the rounded value: 9.999 is 10.0, not 10.00.
  const whole = Math.floor(Math.log10(Number(a.toPrecision(significant)))) + 1;
  const places = Math.max(0, Math.min(6, significant - whole));
  return fixed(v, places);
}

interface Scaled {
  factor: number;
  unit: string;
}

const pick = (a: number, steps: [number, number, string][]): Scaled => {
  // A value that rounds to 1,000 of the smaller unit is shown as 1 of the larger.
  for (const [from, factor, unit] of steps) if (a >= from * 0.9995) return { factor, unit };
  const [, factor, unit] = steps[steps.length - 1];
  return { factor, unit };
};

const ENERGY: [number, number, string][] = [
  [3.6e7, 1 / 3.6e6, 'Wh'],
  [1e6, 1e-6, 'kJ'],
  [1e3, 1e-3, 'J'],
  [1, 1, 'mJ'],
  [1e-3, 1e3, 'µJ'],
  [0, 1e6, 'nJ'],
];
/** Energies of tokens are around a microwatt-hour, so watt-hours take SI prefixes. */
const WATT_HOURS: [number, number, string][] = [
  [3.6e9, 1 / 3.6e9, 'kWh'],
  [3.6e6, 1 / 3.6e6, 'Wh'],
  [3.6e3, 1 / 3.6e3, 'mWh'],
  [3.6, 1 / 3.6, 'µWh'],
  [0, 1 / 3.6e-3, 'nWh'],
];
const POWER: [number, number, string][] = [
  [1e6, 1e-6, 'kW'],
  [1e3, 1e-3, 'W'],
  [0, 1, 'mW'],
];
const TIME: [number, number, string][] = [
  [3.6e6, 1 / 3.6e6, 'h'],
  [1.2e5, 1 / 6e4, 'min'],
  [1e3, 1e-3, 's'],
  [1, 1, 'ms'],
  [1e-3, 1e3, 'µs'],
  [0, 1e6, 'ns'],
];
const COUNT: [number, number, string][] = [
  [1e12, 1e-12, 'T'],
  [1e9, 1e-9, 'G'],
  [1e6, 1e-6, 'M'],
  [1e4, 1e-3, 'k'],
  [0, 1, ''],
];

export function energyScale(mj: number, unit: EnergyUnit = 'auto'): Scaled {
  if (unit === 'mJ') return { factor: 1, unit };
  if (unit === 'J') return { factor: 1e-3, unit };
  if (unit === 'Wh') return pick(Math.abs(mj), WATT_HOURS);
  return pick(Math.abs(mj), ENERGY);
}
export const powerScale = (mw: number): Scaled => pick(Math.abs(mw), POWER);
export const timeScale = (ms: number): Scaled => pick(Math.abs(ms), TIME);

function scaled(v: Num, s: (v: number) => Scaled): string {
  if (!known(v)) return UNAVAILABLE;
  const { factor, unit } = s(v);
  return `${digits(v * factor)} ${unit}`.trimEnd();
}

export const energy = (mj: Num, unit: EnergyUnit = 'auto'): string =>
  scaled(mj, (v) =>
    v === 0 ? { factor: 1, unit: unit === 'auto' ? 'mJ' : unit } : energyScale(v, unit),
  );
export const power = (mw: Num): string =>
  scaled(mw, (v) => (v === 0 ? { factor: 1, unit: 'W' } : powerScale(v)));
export const time = (ms: Num): string =>
  scaled(ms, (v) => (v === 0 ? { factor: 1, unit: 'ms' } : timeScale(v)));
export const count = (n: Num, unit = ''): string => {
  if (!known(n)) return UNAVAILABLE;
  const { factor, unit: prefix } = pick(Math.abs(n), COUNT);
  const text = prefix === '' && Number.isInteger(n) ? fixed(n, 0) : digits(n * factor);
  return `${text} ${prefix}${unit}`.trimEnd();
};
export const plain = (v: Num, significant = 3): string =>
  known(v) ? digits(v, significant) : UNAVAILABLE;
/** Shares below a ten-thousandth are shown as such, without digits. */
export function percent(share: Num): string {
  if (!known(share)) return UNAVAILABLE;
  const p = share * 100;
  if (p !== 0 && Math.abs(p) < 0.01) return p > 0 ? '<0.01 %' : '>-0.01 %';
  return `${digits(p, Math.abs(p) < 1 ? 2 : 3)} %`;
}

/** A relative half width. That of a simulated sensor can be far below any digit worth showing, and "±<" reads
 * as neither. */
export const spread = (share: Num): string =>
  known(share) && share > 0 && share < 1e-4
    ? 'within 0.01 %'
    : known(share)
      ? `±${percent(share)}`
      : UNAVAILABLE;

/** An amount of money; a single run costs millionths of a dollar. */
export function dollars(usd: Num): string {
  if (!known(usd)) return UNAVAILABLE;
  const units: [number, string][] = [
    [1e-9, 'nUSD'],
    [1e-6, 'µUSD'],
    [1e-3, 'mUSD'],
  ];
  const small = usd > 0 && usd < 0.001;
  const [unit, name] = (small && units.findLast(([u]) => usd >= u)) || [1, 'USD'];
  const digits = { minimumSignificantDigits: 2, maximumSignificantDigits: 2 };
  return `${(usd / unit).toLocaleString('en-US', digits)} ${name}`;
}

/** The 95 % interval of a positive figure from half of its width, symmetric in logarithms, so that it stays
 * positive; as base/estimate.c computes it. */
export function bounds(value: number, half: number): [lo: number, hi: number] {
  const factor = Math.exp(Math.asinh(half / value));
  return [value / factor, value * factor];
}

/** "12.4 ± 0.3 J": a positive energy with its 95 % interval in one unit, with the digits that the interval
 * supports. */
export function energyInterval(mj: Num, sdMj: Num, unit: EnergyUnit = 'auto'): string {
  if (!known(mj) || !known(sdMj) || !(sdMj > 0) || mj <= 0) return energySigned(mj, sdMj, unit);
  return energyBetween(mj, ...bounds(mj, Z95 * sdMj), unit);
}

/** The same of an interval that is known by its ends. */
export function energyBetween(mj: Num, lo: Num, hi: Num, unit: EnergyUnit = 'auto'): string {
  if (!known(mj) || !known(lo) || !known(hi)) return energy(mj, unit);
  const { factor, unit: u } = energyScale(shown(mj, lo, hi), unit);
  return `${estimate(mj * factor, lo * factor, hi * factor)} ${u}`;
}

/** The value as its interval lets it be shown: 970 (740 to 1,260) mJ is 1.0 J. */
function shown(value: number, lo: number, hi: number): number {
  const half = (hi - lo) / 2;
  const unsure = isNarrow(value, lo, half) ? half : value - lo;
  if (!(unsure > 0)) return value;
  const step = 10 ** -lastDigit(unsure);
  return Math.max(step, Math.round(value / step) * step);
}

/** The same of an energy that may be negative. */
export function energySigned(mj: Num, sdMj: Num, unit: EnergyUnit = 'auto'): string {
  if (!known(mj)) return UNAVAILABLE;
  if (!known(sdMj) || sdMj < 0) return energy(mj, unit);
  const half = Z95 * sdMj;
  const { factor, unit: u } = energyScale(Math.max(Math.abs(mj), half), unit);
  return `${estimate(mj * factor, (mj - half) * factor, (mj + half) * factor)} ${u}`;
}

/** Up to this relative half width the two sides of an interval look alike. */
const NARROW = 0.25;
const isNarrow = (value: number, lo: number, half: number): boolean =>
  !(lo > 0) || half <= NARROW * value;

/** "12.4 ± 0.3", or "12 (5.1 to 31)" where the two sides differ visibly. */
export function estimate(value: number, lo: number, hi: number): string {
  const half = (hi - lo) / 2;
  if (isNarrow(value, lo, half)) return pair(value, half);
  const end = (v: number) => rounded(v, 1 - Math.floor(Math.log10(v)));
  return `${rounded(value, placeOf(value - lo))} (${end(lo)} to ${end(hi)})`;
}

/** The decimal place that a half width supports: its first digit, or the second if the first is 1. */
function lastDigit(half: number): number {
  const exponent = Math.floor(Math.log10(half));
  return -exponent + (half / 10 ** exponent < 1.95 ? 1 : 0);
}
const placeOf = (half: number): number => Math.min(6, lastDigit(half));

function rounded(v: number, place: number): string {
  const step = 10 ** -place;
  return fixed(place < 0 ? Math.round(v / step) * step : v, Math.max(0, place));
}

/** A value and a half width with the same last digit. */
export function pair(value: number, half: number): string {
  if (!(half > 0)) return `${digits(value)} ± 0`;
  const place = placeOf(half);
  const smallest = 10 ** -place;
  return half < smallest / 2
    ? `${rounded(value, place)} ± <${rounded(smallest, place)}`
    : `${rounded(value, place)} ± ${rounded(half, place)}`;
}

export function ago(iso: string, now = Date.now()): string {
  const s = Math.round((now - Date.parse(iso)) / 1000);
  if (!Number.isFinite(s)) return '';
  if (s < 60) return 'just now';
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  if (s < 30 * 86400) return `${Math.floor(s / 86400)} d ago`;
  return iso.slice(0, 10);
}

export function dateTime(iso: string): string {
  const d = new Date(iso);
  if (Number.isNaN(d.getTime())) return iso;
  const two = (n: number) => String(n).padStart(2, '0');
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** A short run id: the end of the UUIDv7, because its start is the time and similar within a session. */
export const shortId = (id: string): string => id.slice(-8);

/** A run's prompt, or why none can be shown; '' if none was recorded. */
export function promptOf(run: { prompt: string | null; prompt_private?: unknown }): string {
  // Prompts given as token ids are stored as their numbers, those of a batch line by line.
  if (run.prompt && /^\d+(,\d+){3,}(\n\d+(,\d+){3,})*$/.test(run.prompt)) {
    const lines = run.prompt.split('\n');
    const count = lines.reduce((n, line) => n + line.split(',').length, 0);
    const of = lines.length > 1 ? ` in ${lines.length} prompts` : '';
    return `${count} token ids${of}: ${run.prompt}`;
  }
  return run.prompt ?? (run.prompt_private ? '(private)' : '');
}

/** With a capital first letter: the server's words as a sentence. */
export const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

export function clip(text: string, length: number): string {
  const flat = text.replace(/\s+/g, ' ').trim();
  return flat.length > length ? `${flat.slice(0, length - 1).trimEnd()}…` : flat;
}
