// Colour ramps: perceptually uniform, safe for colour-blind users, the same in both themes. A ramp
// is a table of 256 packed pixels (little-endian RGBA, as ImageData stores them).

export type RampName = 'viridis' | 'cividis';

const STOPS: Record<RampName, string> = {
  viridis: '440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725',
  cividis: '00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838',
};

function build(stops: string): Uint32Array {
  const rgb = stops
    .split(' ')
    .map((h) => [0, 2, 4].map((i) => Number.parseInt(h.slice(i, i + 2), 16)));
  const lut = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (rgb.length - 1);
    const k = Math.min(rgb.length - 2, Math.floor(at));
    const [r, g, b] = rgb[k].map((c, j) => Math.round(c + (rgb[k + 1][j] - c) * (at - k)));
    lut[i] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }
  return lut;
}

const tables = new Map<RampName, Uint32Array>();

export function ramp(name: RampName): Uint32Array {
  let lut = tables.get(name);
  if (!lut) {
    lut = build(STOPS[name]);
    tables.set(name, lut);
  }
  return lut;
}

export const css = (pixel: number): string =>
  `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;

/** Position of a value on the ramp, 0..255. An empty range maps to the middle. */
export function level(v: number, lo: number, hi: number): number {
  if (!(hi > lo)) return 128;
  const i = Math.round(((v - lo) / (hi - lo)) * 255);
  return i < 0 ? 0 : i > 255 ? 255 : i;
}

/** #rrggbb, or #rgb, as which the build writes #ffffff. */
const hex = (colour: string): number =>
  Number.parseInt(
    colour.length === 4 ? colour.slice(1).replace(/./g, '$&$&') : colour.slice(1),
    16,
  );

/** The pixel of a colour drawn with this opacity over a background. */
export function blend(colour: string, alpha: number, background: string): number {
  const [top, below] = [hex(colour), hex(background)];
  const mix = (shift: number) =>
    Math.round(((top >> shift) & 255) * alpha + ((below >> shift) & 255) * (1 - alpha));
  return ((255 << 24) | (mix(0) << 16) | (mix(8) << 8) | mix(16)) >>> 0;
}

/** Black or white, whichever reads better on the pixel (WCAG relative luminance). */
export function inkOn(pixel: number): string {
  const lin = (c: number) => {
    const s = c / 255;
    return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  };
  const y =
    0.2126 * lin(pixel & 255) +
    0.7152 * lin((pixel >> 8) & 255) +
    0.0722 * lin((pixel >> 16) & 255);
  return y > 0.179 ? '#000' : '#fff';
}
