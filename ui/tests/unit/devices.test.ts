import { describe, expect, it } from 'vitest';
import { choiceName, devicesOf, onDevices, shortDevice } from '../../src/core/devices';
import { lanesOf } from '../../src/views/analysis/timeline_data';

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
  it('of one name are told apart in a list', () => {
    const all = ['gpu:0', 'gpu:1'].map((id) => ({ id, name: 'NVIDIA H100' }));
    const cpu = { id: 'cpu', name: 'Xeon' };
    expect([cpu, ...all].map((d) => choiceName(d, [cpu, ...all]))).toEqual([
      'Xeon',
      'gpu:0: NVIDIA H100',
      'gpu:1: NVIDIA H100',
    ]);
  });
  it('have lanes of their own, and the host none for what they compute', () => {
    const of = { sections: null, tokens: true, spans: [null, null, null], pins: [] };
    const names = (hostless: boolean) =>
      lanesOf({ ...of, hostless, devices: devicesOf(RUN).slice(0, 1) }).map((l) => l.name);
    const device = ['llvmpipe', 'components', 'operations'];
    expect(names(true)).toEqual(['Phases', 'Sections', 'Tokens', ...device]);
    expect(names(false).slice(3, 6)).toEqual(['Layers', 'Components', 'Operations']);
  });
  it('keep a name that is nothing but parentheses', () => {
    expect(shortDevice('(unknown)')).toBe('(unknown)');
    expect(shortDevice('NVIDIA H200')).toBe('NVIDIA H200');
  });
});
