import { describe, expect, test } from 'vitest';
import type { Conditions } from '../../src/api/types';
import { gaugeRows, gaugesOf, gaugeText, readingAt } from '../../src/charts/gauges';

const device = (of: Partial<Conditions['devices'][number]>): Conditions => ({
  run_id: 'x',
  devices: [
    {
      device: 'cpu',
      t_ms: [0, 1000, 2000],
      temperature_c: null,
      clock_mhz: null,
      memory_clock_mhz: null,
      utilisation: null,
      power_limit_mw: null,
      throttle: [null, null, null],
      ...of,
    },
  ],
});

describe('conditions over time', () => {
  test('a device that reported nothing has no lane', () => {
    expect(gaugesOf(device({}))).toEqual([]);
    expect(gaugesOf(device({ temperature_c: [null, null, null] }))).toEqual([]);
    expect(gaugesOf(null)).toEqual([]);
  });
  test('a lane states its ranges and throttling', () => {
    const [g] = gaugesOf(
      device({
        temperature_c: [50, null, 62.5],
        clock_mhz: [3000, 3000, 3000],
        throttle: ['', 'thermal', 'power,thermal'],
      }),
    );
    expect(gaugeText(g)).toBe(
      'cpu: temperature 50.0 to 62.5 °C, clock 3,000 MHz, throttled in 2 of 3 readings',
    );
    // A gap stays a gap: the reading of 50 °C is not held across it.
    expect(gaugeRows(g, 1)).toEqual([
      ['Clock', '3,000 MHz'],
      ['Throttled', 'thermal'],
    ]);
    expect(gaugeRows(g, 2)[2]).toEqual(['Throttled', 'power, thermal']);
  });
  test('a reading is held until the next one', () => {
    const [g] = gaugesOf(device({ utilisation: [0, 1, 1] }));
    expect([0, 999, 1000, 1001, 9999].map((t) => readingAt(g, t))).toEqual([0, 0, 1, 1, 2]);
  });
});
