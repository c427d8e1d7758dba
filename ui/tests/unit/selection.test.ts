import { beforeEach, expect, test, vi } from 'vitest';
import {
  amount,
  CHOSEN,
  clearSelection,
  EMPTY,
  go,
  hasSelection,
  href,
  parse,
  type Selection,
  select,
  selection,
  settle,
  startSelection,
  write,
} from '../../src/state/selection.ts';

const full: Selection = {
  view: 'analysis',
  run: '01989c2e-7d1a-7c3e-9b8f-0123456789ab',
  range: [12.5, 340],
  between: [12.5, 13.75],
  tall: true,
  find: 'value matmul',
  pins: ['tokens', 'component 1'],
  phase: 'decode',
  token: 0,
  layer: 3,
  component: 'q_proj',
  loading: true,
  metric: 'attention_entropy',
  ids: ['a', 'b', 'c'],
  search: 'Müller & söhne = 100 %',
  model: 'llama 3.2/1b',
  tag: 'x,y',
  status: 'failed',
  experiment: 'dtype sweep',
  engine: 'llama.cpp',
  dtype: 'q8_0',
  machine: 'EPYC',
  least: '0.1',
  most: '2',
  group: 'settings',
  unfold: ['synthetic:x,layers=4', 'a & b'],
  hide: ['duration', 'state'],
  from: '2026-01-01',
  to: '2026-02-01',
  sort: 'energy',
  order: 'asc',
  page: 7,
  sequence: 2,
  pane: 'heatmap',
  aggregate: 'median',
  scale: 'log',
  size: 'time',
  calm: true,
  net: true,
  apart: true,
  unit: 'Wh',
  usd: '0.3',
  co2: '45.5',
  confidence: 40,
  window: 300,
  by: 'dtype',
  diff: true,
  whatIf: { input: '8', output: '64', batches: '1,8', dtype: '', model: 'synthetic:a,layers=2' },
  ask: '',
  along: 'batch',
  watch: 'bench01',
};

beforeEach(() => {
  history.replaceState(null, '', '/');
  startSelection();
});

test('every state survives the round trip through the URL', () => {
  expect(parse(write(full))).toEqual(full);
  expect(parse(write(EMPTY))).toEqual(EMPTY);
  const live = { ...EMPTY, ask: 'prompt=a+%26+b&length=12' };
  expect(parse(write(live))).toEqual(live);
  expect(write({ ...live, view: 'history' })).not.toContain('prompt');
});

test('defaults are left out', () => {
  expect(write(EMPTY)).toBe('?view=live');
});

test('invalid values in the URL give the default', () => {
  const ids = Array.from({ length: CHOSEN + 1 }, (_, i) => `id${i}`);
  const s = parse(
    `?view=%3Cscript%3E&t=9-3&token=-4&layer=1e9&metric=joy&page=0&order=up&ids=,,${ids}`,
  );
  expect(s).toEqual({ ...EMPTY, ids: ids.slice(0, CHOSEN) });
});

test('token 0 is a selection, not nothing', () => {
  expect(write({ ...EMPTY, token: 0 })).toContain('token=0');
  select({ token: 0 });
  expect(hasSelection.value).toBe(true);
  clearSelection();
  expect(hasSelection.value).toBe(false);
});

test('each choice is a history entry; quick changes of one kind are one entry', async () => {
  // Flush pending changes of the previous test.
  await new Promise((done) => setTimeout(done, 200));
  const before = history.length;
  for (const layer of [1, 2]) select({ layer });
  await vi.waitFor(() => expect(location.search).toContain('layer=2'));
  expect(history.length).toBe(before + 1);
  select({ token: 3 });
  await vi.waitFor(() => expect(location.search).toContain('token=3'));
  expect(history.length).toBe(before + 2);
  settle({ run: 'x' });
  await vi.waitFor(() => expect(location.search).toContain('run=x'));
  expect(history.length).toBe(before + 2);
  go({ view: 'history' });
  expect(location.search).toContain('view=history');
  expect(history.length).toBe(before + 3);
});

test('a drag is one history entry, however long it takes', async () => {
  await new Promise((done) => setTimeout(done, 200));
  const now = vi.spyOn(performance, 'now');
  const before = history.length;
  const drag = (to: number[], at: number) => {
    window.dispatchEvent(new Event('pointerdown'));
    to.forEach((end, i) => {
      now.mockReturnValue(at + i * 5000);
      select({ range: [0, end] });
    });
    window.dispatchEvent(new Event('pointerup'));
  };
  drag([1, 2, 3], 1e6);
  await vi.waitFor(() => expect(location.search).toContain('t=0-3'));
  expect(history.length).toBe(before + 1);
  drag([4, 5], 2e6);
  await vi.waitFor(() => expect(location.search).toContain('t=0-5'));
  expect(history.length).toBe(before + 2);
  now.mockRestore();
});

test('the experiment that was looked at filters no other view', () => {
  go({ view: 'experiments', experiment: 'sweep' });
  expect(href({ view: 'history' })).not.toContain('sweep');
  expect(href({ view: 'history', experiment: 'sweep' })).toContain('experiment=sweep');
  go({ view: 'history' });
  expect(selection.value.experiment).toBe('');
  // A filter of History stays one.
  go({ view: 'history', experiment: 'sweep' });
  go({ view: 'compare' });
  expect(selection.value.experiment).toBe('sweep');
  go({ view: 'history', experiment: '' });
});

test('another run starts with nothing selected', () => {
  select({ token: 4, range: [1, 2], metric: 'time' });
  go({ view: 'analysis', run: 'other' });
  expect(selection.value).toMatchObject({ run: 'other', token: null, range: null, metric: 'time' });
});

test.each([
  ['0.12', '0.12'],
  ['400', '400'],
  [' 45.5 ', '45.5'],
  ['-1', ''],
  ['1e3', ''],
  ['cheap', ''],
  [null, ''],
])('a price of %s is taken as "%s"', (text, read) => {
  expect(amount(text)).toBe(read);
});
