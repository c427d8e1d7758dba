import { beforeEach, expect, test, vi } from 'vitest';
import { frame } from '../fixture/live.ts';

vi.stubGlobal('requestAnimationFrame', (f: (t: number) => void) => {
  f(0);
  return 0;
});
const live = await import('../../src/state/live.ts');
const { api } = await import('../../src/api/client.ts');
const { mostOf } = await import('../../src/views/live/now.tsx');
const say = (type: string, more: object = {}): void =>
  live.feed.message({ type, run_id: 'r1', t_ms: 0, ...more });

beforeEach(() => {
  live.run.value = null;
  live.queue.value = [];
  live.reset();
});

const start = (): void =>
  say('run_started', {
    model_name: 'demo',
    prompt: 'hi',
    profiling_depth: 'module',
    layer_count: 2,
  });

const token = (position: number, more: object = {}): void =>
  say('token_complete', {
    position,
    sequence: 0,
    token_id: 1,
    text: 'a',
    phase: position ? 'decode' : 'prefill',
    duration_ms: 10,
    energy_mj: 300,
    energy_source: 'measured',
    power_mw: 30_000,
    ...more,
  });

test('a run from the queue to its end', () => {
  say('run_queued', { position: 1 });
  expect(live.queue.value).toEqual([{ id: 'r1', position: 1 }]);
  start();
  expect(live.queue.value).toEqual([]);
  expect(live.run.value).toMatchObject({ id: 'r1', state: 'running', layers: 2 });
  say('section_start', { phase: 'prefill', section_name: 'layers', t_ms: 12 });
  expect(live.now.value).toMatchObject({ phase: 'prefill', section: 'layers' });
  token(0);
  token(1);
  expect(live.totals).toMatchObject({
    energy: { value: 600, unit: 'mJ', source: 'measured' },
    known: 2,
    decode: 1,
  });
  const before = live.finished.value;
  say('inference_complete', { status: 'completed', summary: { id: 'r1' } });
  expect(live.run.value).toMatchObject({ state: 'ended', status: 'completed' });
  expect(live.finished.value).toBe(before + 1);
});

test('messages replayed after a reconnect are not counted twice', () => {
  start();
  token(0);
  token(1);
  token(1);
  token(0);
  expect(live.tokens.length).toBe(2);
  say('power_sample', { t_ms: 5, phase: 'decode', total_power_mw: 1, energy_source: 'modelled' });
  say('power_sample', { t_ms: 5, phase: 'decode', total_power_mw: 1, energy_source: 'modelled' });
  say('power_sample', { t_ms: 4, phase: 'decode', total_power_mw: 1, energy_source: 'modelled' });
  expect(live.samples.length).toBe(1);
});

test('a new run forgets the old one', () => {
  start();
  token(0);
  live.feed.message({ type: 'run_started', run_id: 'r2', t_ms: 0, model_name: 'other' });
  expect(live.tokens.length).toBe(0);
  expect(live.run.value).toMatchObject({ id: 'r2', model: 'other' });
});

test('missing energy is unavailable, not zero', () => {
  start();
  token(0, { energy_mj: null, power_mw: null });
  expect(live.tokens[0].energy).toEqual({ unit: 'mJ', source: 'unavailable', reason: null });
  expect(live.totals).toMatchObject({ known: 0, energy: { source: 'unavailable' } });
  // A figure without a source is not shown.
  token(1, { energy_source: undefined });
  expect(live.tokens[1].energy.source).toBe('unavailable');
  say('power_sample', {
    t_ms: 1,
    phase: 'decode',
    cpu_power_mw: 5,
    gpu_power_mw: null,
    energy_source: 'measured',
  });
  expect(live.samples.last(2)).toBe(5);
  expect(live.samples.last(3)).toBeNaN();
});

test('binary batches are added to the same ring buffer and set the phases', () => {
  start();
  const columns = [
    Float32Array.of(0, 1, 2, 3),
    Float32Array.of(2, 2, 3, 3),
    ...Array.from({ length: 5 }, () => Float32Array.of(1, 2, 3, 4)),
  ];
  live.feed.binary(frame(1, 0, 100, 4, 0, columns).buffer as ArrayBuffer);
  expect(Array.from(live.samples.view(0))).toEqual([100, 101, 102, 103]);
  expect(live.spans.value.map((s) => [s.phase, s.start, s.end])).toEqual([
    ['prefill', 100, 102],
    ['decode', 102, 103],
  ]);
});

test('a heatmap comes as frames after its layout, or as a list of components', () => {
  start();
  live.feed.binary(frame(2, 0, 0, 2, 7, [Float32Array.of(1, 2, 3, 4)]).buffer as ArrayBuffer);
  expect(live.grid.value).toBeNull();
  const layout = { layers: 2, components: ['q_proj', 'mlp'] };
  // Without a unit the values could be anything: they are not shown.
  say('heatmap_layout', layout);
  live.feed.binary(frame(2, 0, 0, 2, 7, [Float32Array.of(1, 2, 3, 4)]).buffer as ArrayBuffer);
  expect(live.grid.value).toBeNull();
  say('heatmap_layout', { ...layout, metric: 'energy', unit: 'mJ', energy_source: 'modelled' });
  live.feed.binary(frame(2, 0, 0, 2, 7, [Float32Array.of(1, 2, 3, 4)]).buffer as ArrayBuffer);
  expect(live.grid.value).toMatchObject({ layers: 2, token: 7 });
  expect(live.grid.value?.what).toEqual({ metric: 'energy', unit: 'mJ', source: 'modelled' });
  say('component_metrics', {
    position: 8,
    energy_source: 'unavailable',
    components: [
      { layer_index: 0, component_name: 'q_proj', time_ms: 2, energy_mj: null },
      { layer_index: 1, component_name: 'o_proj', time_ms: 3, energy_mj: null },
      { layer_index: null, component_name: 'lm_head', time_ms: 9, energy_mj: null },
    ],
  });
  const g = live.grid.value;
  expect(g).toMatchObject({ layers: 2, components: ['q_proj', 'o_proj'], token: 8 });
  expect(g?.what).toEqual({ metric: 'time', unit: 'ms' });
  expect(Array.from(g?.values ?? [])).toEqual([2, Number.NaN, Number.NaN, 3]);
});

test('a warning that precedes its run belongs to it', () => {
  start();
  say('inference_complete', { status: 'completed', summary: { id: 'r1' } });
  live.feed.message({
    type: 'warning',
    run_id: 'r2',
    t_ms: null,
    code: 'power_unavailable',
    text: 'No sensor.',
  });
  live.feed.message({
    type: 'run_started',
    run_id: 'r2',
    t_ms: 0,
    model_name: 'demo',
    layer_count: 2,
  });
  expect(live.source.value).toBe('unavailable');
  expect(live.warnings.value).toMatchObject([{ run: 'r2', code: 'power_unavailable' }]);
  live.feed.message({
    type: 'heatmap_layout',
    run_id: 'r2',
    t_ms: 0,
    layers: 1,
    components: ['q_proj'],
    metric: 'time',
    unit: 'ms',
    energy_source: 'unavailable',
  });
  live.feed.binary(frame(2, 0, 0, 1, 0, [Float32Array.of(0.172)]).buffer as ArrayBuffer);
  expect(live.grid.value?.what).toEqual({ metric: 'time', unit: 'ms' });
});

test('lost messages are counted and warnings kept', () => {
  start();
  say('gap', { from: 10, to: 14 });
  expect(live.lost.value).toBe(5);
  say('warning', { code: 'power_unavailable', text: 'No sensor.' });
  expect(live.warnings.value).toMatchObject([{ code: 'power_unavailable' }]);
});

test('messages of unknown types and shapes are ignored', () => {
  start();
  say('surprise', { anything: 1 });
  say('token_complete', { position: 'x', text: 5, energy_mj: 'much' });
  say('component_metrics', { components: 7 });
  live.feed.binary(new ArrayBuffer(3));
  expect(live.run.value?.state).toBe('running');
});

test('the last heatmap is that of the last token, though live updates were lost', async () => {
  const row = (position: number) => ({ position, sequence: 0, text: 'a', phase: 'decode' });
  const tokens = vi
    .spyOn(api, 'tokens')
    .mockResolvedValue({ tokens: [0, 1, 2, 3, 4].map(row), energy_source: 'measured' } as never);
  const heatmap = vi.spyOn(api, 'heatmap').mockResolvedValue({
    layers: [0, 1],
    components: ['q_proj'],
    values: [[1], [2]],
    metric: 'energy',
    unit: 'mJ',
    energy_source: 'measured',
  } as never);
  start();
  token(0); // and nothing more: not even one heatmap
  const summary = { id: 'r1', output_tokens: 5, energy_source: 'measured' };
  say('inference_complete', { status: 'completed', summary });
  await vi.waitFor(() => expect(live.grid.value).toMatchObject({ token: 4, layers: 2 }));
  expect(heatmap.mock.calls[0]).toEqual(['r1', { metric: 'energy', token: 4 }]);
  expect(live.tokens).toHaveLength(5);
  tokens.mockRestore();
  heatmap.mockRestore();
});

test('the layer with the highest value comes from the heatmap, if there is one', () => {
  const what = { metric: 'time', unit: 'ms' } as const;
  const of = (values: number[], layers: number) =>
    mostOf({ layers, components: ['a', 'b'], values: Float32Array.from(values), token: 7, what });
  expect(of([1, 2, 4, Number.NaN, 3, 0.5], 3)).toBe('; most in layer 1 at token 7');
  expect(of([Number.NaN, Number.NaN, Number.NaN, Number.NaN], 2)).toBe('');
  expect(of([1, 2], 1)).toBe('');
  expect(mostOf(null)).toBe('');
});

test('the running layer is shown until the section is over', () => {
  start();
  say('section_start', { t_ms: 5, phase: 'decode', section_name: 'layers' });
  expect(live.now.value.layer).toBe(-1);
  say('layer_running', { t_ms: 6, phase: 'decode', position: 4, layer_index: 1 });
  expect(live.now.value).toMatchObject({ section: 'layers', token: 4, layer: 1, t: 6 });
  say('section_start', { t_ms: 9, phase: 'decode', section_name: 'sampling' });
  expect(live.now.value).toMatchObject({ section: 'sampling', layer: -1 });
});
