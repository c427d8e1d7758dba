import { describe, expect, it } from 'vitest';
import { devicesOf, onDevices, shortDevice } from '../../src/core/devices';

const RUN = {
  devices: {
    '0': { name: 'Xeon', rails: 'cpu' },
    '1': { name: 'llvmpipe (LLVM 15.0.6, 256 bits)', rails: null },
    '2': { name: null, rails: 'gpu1' },
  },
};

describe('devices of a run', () => {
  it('are those besides the host', () => {
    expect(devicesOf(RUN)).toEqual([
      { number: 1, name: 'llvmpipe (LLVM 15.0.6, 256 bits)', rails: null },
      { number: 2, name: 'device 2', rails: 'gpu1' },
    ]);
    expect(onDevices(RUN)).toBe('on llvmpipe, device 2');
  });
  it('are none where only the host computed', () => {
    expect(devicesOf({ devices: null })).toEqual([]);
    expect(onDevices(null)).toBe('');
  });
  it('keep a name that is nothing but parentheses', () => {
    expect(shortDevice('(unknown)')).toBe('(unknown)');
    expect(shortDevice('NVIDIA H200')).toBe('NVIDIA H200');
  });
});
