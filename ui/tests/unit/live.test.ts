import { beforeEach, expect, test, vi } from 'vitest';
import { frame } from '../fixture/live.ts';

vi.stubGlobal('requestAnimationFrame', (f: (t: number) => void) => {
  f(0);
  return 0;
});
const live = await import('../../src/state/live.ts');
const { api } = await import('../../src/api/client.ts');
const { mostOf, stateNow } = await import('../../src/views/live/now.tsx');
const say = (type: string, more: object = {}): void =>
  live.feed.message({ type, run_id: 'r1', t_ms: 0, ...more });

beforeEach(() => {
  live.run.value = null;
  live.queue.value = [];
  live.ended.value = [];
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

const summaries = (of: Record<string, object>) =>
  vi.spyOn(api, 'summary').mockImplementation(async (id) => {
    if (!of[id]) throw new Error('unknown');
    return { id, model_name: 'demo', prompt: `prompt of ${id}`, ...of[id] } as never;
  });

test('a run whose begin a slow page was not told begins with its first message', async () => {
  const asked = summaries({ a: { status: 'cancelled' }, b: { status: 'running' } });
  live.feed.message({ type: 'run_started', run_id: 'a', t_ms: 0, prompt: 'first' });
  live.feed.message({ type: 'token_complete', run_id: 'a', t_ms: 1, position: 7, text: 'x' });
  const inside = { t_ms: 5, position: 3, phase: 'decode', text: 'y' };
  live.feed.message({ type: 'token_complete', run_id: 'b', ...inside });
  expect(live.run.value).toMatchObject({ id: 'b', state: 'running' });
  expect(live.tokens.map((t) => t.text)).toEqual(['y']);
  await vi.waitFor(() => expect(live.run.value?.prompt).toBe('prompt of b'));
  // Its predecessor's end was lost too.
  await vi.waitFor(() =>
    expect(live.ended.value).toMatchObject([{ id: 'a', status: 'cancelled', stored: true }]),
  );
  // What still comes of that one is late.
  live.feed.message({ type: 'token_complete', run_id: 'a', t_ms: 9, position: 8, text: 'z' });
  expect(live.run.value?.id).toBe('b');
  expect(live.tokens.length).toBe(1);
  asked.mockRestore();
});

test('a run of which only the description was lost is not loading for ever', () => {
  live.link.value = 'open';
  live.feed.message({ type: 'run_started', run_id: 'c', t_ms: 0 });
  expect(stateNow()).toBe('loading');
  live.feed.message({
    type: 'section_start',
    run_id: 'c',
    t_ms: 3,
    phase: 'decode',
    section_name: 'layers',
  });
  expect(stateNow()).toBe('running');
});

test('the sequences of a batch share the time of a step, and are not doubled by a reconnect', () => {
  start();
  const step = (position: number) => {
    for (const sequence of [0, 1, 2]) token(position, { sequence });
  };
  step(0);
  step(1);
  step(2);
  expect(live.tokens.length).toBe(9);
  expect(live.totals).toMatchObject({ decode: 6, decodeTime: 20, time: 30, known: 9 });
  step(1);
  step(2);
  expect(live.tokens.length).toBe(9);
  expect(live.lanes.map((l) => l.map((t) => t.position))).toEqual([
    [0, 1, 2],
    [0, 1, 2],
    [0, 1, 2],
  ]);
});

test('what was stopped or failed stays in sight while later runs complete', () => {
  const run = (run_id: string, type: string, status: string, error?: string) => {
    live.feed.message({ type: 'run_started', run_id, t_ms: 0, prompt: run_id });
    live.feed.message({ type, run_id, t_ms: 1, status, error, summary: { id: run_id } });
  };
  run('p', 'inference_complete', 'cancelled');
  run('q', 'inference_complete', 'completed');
  run('r', 'inference_complete', 'completed');
  expect(live.ended.value.map((e) => `${e.id} ${e.status}`)).toEqual([
    'r completed',
    'p cancelled',
  ]);
  // One that failed while it waited, too.
  live.feed.message({ type: 'run_queued', run_id: 's', t_ms: null, position: 1 });
  live.feed.message({ type: 'run_failed', run_id: 's', t_ms: null, error: 'the weights are gone' });
  expect(live.queue.value).toEqual([]);
  expect(live.ended.value[0]).toMatchObject({ id: 's', error: 'the weights are gone' });
});

test('at its end the figures of a run become those that are stored', async () => {
  const of = { phase: 'decode', duration_ms: 10, power_snapshot_mw: 40_000 };
  const tokens = vi.spyOn(api, 'tokens').mockResolvedValue({
    tokens: [0, 1].map((position) => ({ ...of, position, sequence: 0, text: null, energy_mj: 77 })),
    energy_source: 'modelled',
  } as never);
  const power = vi.spyOn(api, 'power').mockResolvedValue({
    bucket_samples: 1,
    t_ms: [1, 2],
    phase: [3, 3],
    cpu_power_mw: [40, 50],
    total_power_mw: [41, 51],
    phases: [{ phase: 'decode', start_ms: 0, end_ms: 2 }],
  } as never);
  start();
  token(0);
  token(1);
  const flat = { phase: 'idle', cpu_power_mw: 10, total_power_mw: 10, energy_source: 'modelled' };
  for (const t_ms of [1, 2, 3]) say('power_sample', { ...flat, t_ms });
  const summary = { id: 'r1', output_tokens: 2, energy_source: 'modelled' };
  say('inference_complete', { status: 'completed', summary });
  await vi.waitFor(() => expect(live.settled.value).toBe(true));
  expect(Array.from(live.samples.view(0))).toEqual([1, 2, 3]);
  expect(Array.from(live.samples.view(2))).toEqual([40, 50, 10]);
  expect(live.samples.view(3)[0]).toBeNaN();
  expect(live.spans.value).toEqual([{ phase: 'decode', start: 0, end: 2 }]);
  expect(live.tokens.map((t) => [t.text, t.energy])).toEqual([
    ['a', expect.objectContaining({ value: 77, source: 'modelled' })],
    ['a', expect.objectContaining({ value: 77, source: 'modelled' })],
  ]);
  tokens.mockRestore();
  power.mockRestore();
});
