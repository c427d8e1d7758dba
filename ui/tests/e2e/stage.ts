// Fixtures shared by the view scenarios: a real server with a simulated sensor, the demo model and three
// stored runs, one browser per file and one page per test. `page`, `target` and `runs` are live
// bindings; the hooks that set them are installed by `scenarios()`.
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect } from 'vitest';
import {
  at,
  closePages,
  type How,
  noBrowser,
  type Opened,
  open,
  sharedBrowser,
} from './browser.ts';
import { generate, missing, startTarget, type Target } from './target.ts';

const why = missing || (await noBrowser());
if (why) process.stderr.write(`skipped: the dashboard against the real server (${why})\n`);

export let browser: Browser;
export let target: Target;
export let runs: string[];
export let page: Page;
let o: Opened | undefined;
/** Problems of the visits that this test has ended. */
let problems: string[] = [];
let expected: RegExp | undefined;

/** Declares console errors that the test expects; call before `visit`. */
export const expectProblems = (text: RegExp): void => {
  expected = text;
};

/** Opens a page of any server as the page of the test. */
export const openAt = async (url: string, how: How = {}): Promise<void> => {
  await leave();
  o = await open(browser, url, { ...how, expected: how.expected ?? expected });
  page = o.page;
};
export const visit = (query: Record<string, string>, how: How = {}): Promise<void> =>
  openAt(at(target.url, query), how);
export const leave = async (): Promise<void> => {
  await o?.close();
  problems.push(...(o?.problems ?? []));
  o = undefined;
};

export const query = () => new URL(page.url()).searchParams;
export const urlHas = (name: string, value: string | RegExp) =>
  expect
    .poll(() => query().get(name))
    [value instanceof RegExp ? 'toMatch' : 'toBe'](value as string);
export const panel = (title: string) => page.locator(`section.panel[aria-label="${title}"]`);
export const button = (name: string | RegExp) => page.getByRole('button', { name });
export const startRun = async (length: number, prompt = 'Once upon a time') => {
  await page
    .locator('select[name=model] option:not([disabled])')
    .first()
    .waitFor({ state: 'attached' });
  await page.fill('textarea[name=prompt]', prompt);
  await page.fill('input[name=length]', String(length));
  await button(/^(Start|Queue)$/).click();
};
/** Queues two runs that last longer than any test; the tokens come slowly, as on a larger model, so that the page and
 * the machine have time for the test. */
let busy: string[] = [];
export const occupy = async (): Promise<void> => {
  const body = {
    prompt: 'A long story',
    model_name: 'synthetic:smollm2-135m,layers=4',
    max_length: 8000,
    ignore_eos: true,
    profiling_depth: 'module',
    wait: false,
  };
  for (let i = 0; i < 2; i++) {
    const r = await fetch(`${target.url}api/profiling/generate`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!r.ok) throw new Error(`generate answered ${r.status}: ${await r.text()}`);
    busy.push(((await r.json()) as { run_id: string }).run_id);
  }
};
/** Cancels them, last queued first, so that none starts in the meantime. */
export const relieve = async (): Promise<void> => {
  for (const id of busy.reverse()) {
    await fetch(`${target.url}api/profiling/run/${id}/cancel`, { method: 'POST' });
  }
  busy = [];
};
export const nowSays = (text: RegExp) =>
  expect.poll(() => page.locator('.now-line').innerText()).toMatch(text);

/** Runs scenarios with one server and one browser; unexpected console errors fail them. */
export const scenarios = (name: string, body: () => void): void => {
  describe.skipIf(why)(name, () => {
    beforeAll(async () => {
      [browser, target] = await Promise.all([
        sharedBrowser(),
        startTarget('sim:seed=7,period_ms=1,kind=counter'),
      ]);
      runs = [];
      for (const [prompt, tags] of [
        ['Once upon a time', ['first']],
        ['The turbine', ['second', 'pair']],
        ['The turbine in the valley', ['pair']],
      ] as const) {
        const body = { prompt, tags, profiling_depth: 'deep', max_length: 64, wait: true };
        runs.push((await generate(target.url, body)).run_id);
      }
    });
    afterAll(async () => {
      await closePages(browser);
      await target?.close();
    });
    beforeEach(() => {
      expected = undefined;
      problems = [];
    });
    afterEach(async () => {
      await relieve(); // a failed test must not leave the server busy for the next one
      await leave();
      expect(problems).toEqual([]);
    });
    body();
  });
};
