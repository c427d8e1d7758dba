// Prefetching of an analysis: requests are sent by the entry script, and taken by the client once.
import { afterEach, expect, test, vi } from 'vitest';
import { FIRST } from '../../src/api/address.ts';
import { api } from '../../src/api/client.ts';
import { askEarly, takeEarly } from '../../src/api/early.ts';

const asked: string[] = [];
const answering = (body: unknown) =>
  vi.stubGlobal('fetch', async (url: string) => {
    asked.push(url);
    return new Response(JSON.stringify(body));
  });

afterEach(() => {
  asked.length = 0;
  vi.unstubAllGlobals();
});

test('the client takes a prefetched response once, then sends its own request', async () => {
  answering({ status: 'completed', tokens: [] });
  askEarly('?view=analysis&run=a%2Fb');
  await vi.waitFor(() => expect(asked).toHaveLength(4));
  await Promise.all([api.summary('a/b'), api.pipeline('a/b', { limit: 1 }), api.tokens('a/b', {})]);
  expect(asked).toHaveLength(4);
  await api.summary('a/b');
  expect(asked).toHaveLength(5);
  expect(takeEarly(FIRST.power('a/b'))).not.toBeNull();
  expect(takeEarly(FIRST.power('a/b'))).toBeNull();
});

test.each([
  ['unknown', 404, {}],
  ['running', 200, { status: 'running' }],
])('of a run that is %s only the summary is asked', async (_, status, body) => {
  vi.stubGlobal('fetch', async (url: string) => {
    asked.push(url);
    return new Response(JSON.stringify(body), { status });
  });
  askEarly('?view=analysis&run=x');
  await takeEarly(FIRST.summary('x'));
  await new Promise((done) => setTimeout(done));
  expect(asked).toEqual([FIRST.summary('x')]);
});

test('what the page asks before the summary is read is not asked twice', async () => {
  answering({ status: 'completed' });
  askEarly('?view=analysis&run=y');
  await api.tokens('y', {});
  await vi.waitFor(() => expect(asked).toHaveLength(4));
  expect(asked.filter((url) => url === FIRST.tokens('y'))).toHaveLength(1);
});

test.each(['?view=history', '?view=analysis', '?view=compare&run=x'])(
  'nothing is asked early at %s',
  (search) => {
    answering({});
    askEarly(search);
    expect(asked).toEqual([]);
  },
);

test('a failed prefetch rejects for whoever takes it', async () => {
  vi.stubGlobal('fetch', async () => {
    throw new TypeError('refused');
  });
  askEarly('?view=analysis&run=gone');
  await expect(api.summary('gone')).rejects.toThrow('cannot be reached');
});

test('an unchanged list keeps its identity', async () => {
  answering([{ id: 'a' }]);
  const first = (await api.runs({ search: 'j' })).runs;
  expect((await api.runs({ search: 'jo' })).runs).toBe(first);
  answering([{ id: 'b' }]);
  expect((await api.runs({ search: 'jou' })).runs).toEqual([{ id: 'b' }]);
});
