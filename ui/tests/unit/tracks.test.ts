// The keyboard's place in the timeline, while spans arrive.
import { expect, test } from 'vitest';
import { type Slice, sameSlice } from '../../src/charts/tracks.ts';

const slice = (label: string, start: number, more: Partial<Slice> = {}): Slice => ({
  lane: 0,
  start,
  duration: 1,
  label,
  energy: null,
  sd: null,
  kind: 'phase',
  phase: 'decode',
  token: null,
  ...more,
});

test('a slice is found again among others, wherever its lane is', () => {
  const was = slice('decode', 5);
  const now = [
    slice('prefill', 0),
    slice('layer 0', 5, { lane: 3 }),
    slice('decode', 5, { lane: 1 }),
  ];
  expect(sameSlice(was, now)).toBe(2);
  expect(sameSlice(slice('decode', 6), now)).toBe(null);
  expect(sameSlice(undefined, now)).toBe(null);
});
