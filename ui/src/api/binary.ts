// Binary frames of the live stream and the token cube: little-endian float32 after a short header.

export interface PowerBatch {
  kind: 'power';
  sequence: number;
  tMs: number;
  rows: number;
  /** Column-major: ms after tMs, phase, cpu, gpu, ane, dram, total. */
  columns: Float32Array[];
}

export interface HeatmapFrame {
  kind: 'heatmap';
  sequence: number;
  tMs: number;
  layers: number;
  components: number;
  token: number;
  /** layers × components. */
  values: Float32Array;
}

const HEADER = 24;

/** Returns null for a frame of an unknown version or shape. */
export function decodeFrame(buffer: ArrayBuffer): PowerBatch | HeatmapFrame | null {
  if (buffer.byteLength < HEADER) return null;
  const d = new DataView(buffer);
  const kind = d.getUint8(0);
  if (d.getUint8(1) !== 1) return null;
  const columns = d.getUint16(2, true);
  const sequence = d.getUint32(4, true);
  const tMs = d.getFloat64(8, true);
  const rows = d.getUint32(16, true);
  const token = d.getUint32(20, true);
  if (HEADER + columns * rows * 4 > buffer.byteLength) return null;
  const values = new Float32Array(buffer, HEADER, columns * rows);
  if (kind === 1) {
    const list = Array.from({ length: columns }, (_, i) =>
      values.subarray(i * rows, (i + 1) * rows),
    );
    return { kind: 'power', sequence, tMs, rows, columns: list };
  }
  if (kind === 2) {
    return { kind: 'heatmap', sequence, tMs, layers: rows, components: columns, token, values };
  }
  return null;
}

export interface Cube {
  tokens: number;
  layers: number;
  components: number;
  values: Float32Array;
}

/** All heatmaps of a run, one per token. Throws an error with a message for invalid bytes. */
export function decodeCube(buffer: ArrayBuffer): Cube {
  const magic = new TextDecoder().decode(buffer.slice(0, 7));
  if (buffer.byteLength < HEADER || magic !== 'PJCUBE1')
    throw new Error('The server sent no heatmap cube.');
  const [tokens, layers, components] = new Uint32Array(buffer, 8, 3);
  const n = tokens * layers * components;
  if (HEADER + n * 4 > buffer.byteLength) throw new Error('The heatmap cube is cut short.');
  return { tokens, layers, components, values: new Float32Array(buffer, HEADER, n) };
}
