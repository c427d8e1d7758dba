/** A figure as the page writes it, "1.234 ± 0.005 J" or "12 (5.1 to 31) J", in mJ. */
export const mj = (text: string): number => {
  const m = /([\d,.]+)(?: ± <?[\d,.]+| \([^)]*\))? (nJ|µJ|mJ|J|kJ)/.exec(text);
  const unit: Record<string, number> = { nJ: 1e-6, µJ: 1e-3, mJ: 1, J: 1e3, kJ: 1e6 };
  return m ? Number(m[1].replaceAll(',', '')) * unit[m[2]] : Number.NaN;
};
