const figure = /([\d,.]+)(?: ± <?[\d,.]+| \([^)]*\))? (nJ|µJ|mJ|J|kJ)/;
const units: Record<string, number> = { nJ: 1e-6, µJ: 1e-3, mJ: 1, J: 1e3, kJ: 1e6 };

/** A figure as the page writes it, "1.234 ± 0.005 J" or "12 (5.1 to 31) J", in mJ. */
export const mj = (text: string): number => {
  const m = figure.exec(text);
  return m ? Number(m[1].replaceAll(',', '')) * units[m[2]] : Number.NaN;
};

/** Whether a figure is `value` mJ, rounded to the digits written: as few as its interval leaves. */
export const shows = (text: string, value: number): boolean => {
  const m = figure.exec(text);
  if (!m) return false;
  const digits = m[1].replaceAll(',', '');
  const [, fraction] = digits.split('.');
  const zeros = /0*$/.exec(digits)?.[0].length ?? 0;
  const step = fraction === undefined ? 10 ** zeros : 10 ** -fraction.length;
  return Math.abs(Number(digits) - value / units[m[2]]) <= 0.501 * step;
};
