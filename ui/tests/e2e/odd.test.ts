// Cases that the real server cannot produce on demand: ten thousand runs, incomplete runs side by side,
// failing responses. Uses generated runs of the fixture server.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type Running, startFixture } from '../fixture/server.ts';
import {
  at,
  closePages,
  noBrowser,
  type Opened,
  open,
  sharedBrowser,
  turnTo,
  until,
} from './browser.ts';
import { chartHas } from './charts.ts';
import { DIST } from './target.ts';

const why =
  (await noBrowser()) ||
  (existsSync(join(DIST, 'index.html')) ? '' : 'the page is not built (npm run build)');
if (why) process.stderr.write(`skipped: the dashboard on generated runs (${why})\n`);

describe.skipIf(why)('the dashboard on odd data', () => {
  let browser: Browser;
  let server: Running;
  let o: Opened;
  let page: Page;

  beforeAll(async () => {
    browser = await sharedBrowser();
    server = await startFixture({ dist: DIST, runs: 10_000 });
  });
  afterAll(async () => {
    await closePages(browser);
    await server?.close();
  });
  afterEach(async () => {
    await o?.close();
    expect(o?.problems ?? []).toEqual([]);
  });
  const visit = async (query: Record<string, string>, expected?: RegExp, height = 900) => {
    o = await open(browser, at(server.url, query), { expected, height });
    page = o.page;
  };
  const panel = (title: string) => page.locator(`section.panel[aria-label="${title}"]`);
  const id = (i: number) => server.fixture.summaries[i].id;

  test('ten thousand runs are paged by the server', async () => {
    await visit({ view: 'history' });
    await page.getByText('10,000 runs').waitFor();
    await expect.poll(() => page.locator('.runs tbody tr').count()).toBe(50);
    await page.getByRole('button', { name: 'Next' }).click();
    await page.getByText('51 to 100 of 10,000').waitFor();
    await expect.poll(() => new URL(page.url()).searchParams.get('page')).toBe('2');
    // A page number beyond the end shows the last page.
    await turnTo(page, at(server.url, { view: 'history', page: '99999' }));
    await page.getByText('9951 to 10000 of 10,000').waitFor();
  });

  test('the Pareto chart holds every matching run, the name of each made when it is pointed at', async () => {
    await visit({ view: 'history' });
    const chart = panel('Throughput against energy');
    await chart.locator('[role=img]').waitFor();
    const all = server.fixture.summaries.filter(
      (r) => r.tokens_per_second !== null && r.joules_per_token_typical !== null,
    ).length;
    expect(all).toBeGreaterThan(9000);
    expect(await chartHas(page, 'pareto', 'count')).toBe(all);
    expect(await chart.innerText()).toContain('All matching runs');
    await page.evaluate(() =>
      (window.__test!.pareto as unknown as { host: HTMLElement }).host.focus(),
    );
    await page.keyboard.press('ArrowRight');
    await expect
      .poll(() => page.locator('.tip').innerText())
      .toMatch(/(Typical|Mean) token[\s\S]*tok\/s/);
  });

  const odd: [string, number, Record<string, string[]>][] = [
    [
      'a run without energy',
      2,
      {
        samples: ['Power by phase'],
        tokens: [],
        rails: ['Rails by phase'],
        icicle: [],
      },
    ],
    ['a cancelled run', 3, { icicle: [], figures: [] }],
    ['a modelled run', 4, { heatmap: [], rails: [] }],
    [
      'an imported run of depth off',
      5,
      {
        heatmap: ['Heatmap'],
        figures: ['Components'],
        roofline: ['Roofline'],
        map: ['Tokens and layers'],
      },
    ],
    ['a run of 32 layers and 240 tokens', 6, { icicle: [], treemap: [], heatmap: [], map: [] }],
  ];
  for (const [what, index, panes] of odd)
    test(`${what} shows what it has in ${Object.keys(panes).join(', ')}`, async () => {
      await visit({ view: 'analysis', run: id(index) }, undefined, 3000);
      await chartHas(page, 'timeline', 'count');
      for (const [pane, empty] of Object.entries(panes)) {
        const tab = page.locator(`#tab-${pane}`);
        // A pane that this run has no tab for is still reached by an address.
        if (await tab.count()) await tab.click();
        else await turnTo(page, at(server.url, { view: 'analysis', run: id(index), pane }));
        await page.locator(`#tab-${pane}[aria-selected=true], #pane .panel`).first().waitFor();
        await until(page, () => !document.querySelector('[aria-busy=true]'), null);
        for (const title of empty) await panel(title).locator('.state').waitFor();
        expect(await page.locator('.panel [role=alert]').count(), pane).toBe(0);
      }
    });

  test('runs with and without energy are compared without zeros for missing values', async () => {
    await visit({ view: 'compare', ids: [0, 2, 4, 5].map(id).join(',') });
    await panel('Metrics').waitFor();
    const cells = await panel('Metrics')
      .locator('tr', { hasText: 'Energy per token' })
      .first()
      .locator('td')
      .allInnerTexts();
    expect(cells).toHaveLength(4);
    expect(cells[1]).toBe('unavailable');
    expect(cells.filter((c) => /^0/.test(c))).toEqual([]);
  });

  test('a partial total shows its missing rails wherever its energy is shown', async () => {
    await visit({ view: 'analysis', run: id(7) });
    await page.locator('.trust .badge.partial').waitFor();
    await turnTo(page, at(server.url, { view: 'history', run: id(7) }));
    await page.locator('.runs .badge.partial').first().waitFor();
    await turnTo(page, at(server.url, { view: 'compare', ids: [0, 7].map(id).join(',') }));
    await panel('Metrics').locator('.badge.partial').first().waitFor();
  });

  test('a run of another engine shows the engine and its energy scope', async () => {
    await visit({ view: 'analysis', run: id(9) });
    await page.locator('.run-head .badge.engine').waitFor();
    await turnTo(page, at(server.url, { view: 'history' }));
    await page.locator('.runs .badge.engine').first().waitFor();
  });

  test('a panel whose data fails shows the error and a retry button; the others are unaffected', async () => {
    await visit({ view: 'analysis', run: id(0) }, /500/);
    await page.route('**/tree*', (r) =>
      r.fulfill({
        status: 500,
        contentType: 'application/problem+json',
        body: '{"detail":"the disk is on fire"}',
      }),
    );
    await page.reload();
    await panel('Icicle').getByText('the disk is on fire').waitFor();
    await page.unroute('**/tree*');
    await panel('Icicle').getByRole('button', { name: 'Try again' }).click();
    await chartHas(page, 'icicle', 'shown');
    await page.getByRole('tab', { name: 'Heatmap' }).click();
    await chartHas(page, 'heatmap', 'shape');
  });

  test('a chart that throws fails alone', async () => {
    await visit({ view: 'analysis', run: id(0) });
    await chartHas(page, 'icicle', 'shown');
    await page.evaluate(() => {
      const t = window.__test!.timeline as { paint: () => void; invalidate: () => void };
      t.paint = () => {
        throw new Error('a planted fault');
      };
      t.invalidate();
    });
    await panel('Timeline').getByText('could not be drawn: a planted fault').waitFor();
    await panel('Icicle').locator('[role=img]').waitFor();
    await panel('Timeline').getByRole('button', { name: 'Try again' }).click();
    await panel('Timeline').locator('[role=img]').first().waitFor();
  });

  test('names that look like markup stay text', async () => {
    const prompt = '<img src=x onerror=alert(1)> "quoted" & more';
    server.fixture.summaries[1].prompt = prompt;
    await visit({ view: 'history', run: id(1) });
    await page.locator('.runs').getByText(prompt).waitFor();
    await page.locator('aside.detail').getByText(prompt).first().waitFor();
    expect(await page.locator('img').count()).toBe(0);
  });

  test('a thousand tokens in the stream stay within their lines', async () => {
    await visit({ view: 'live' });
    await page.getByText('Connected').waitFor();
    const flood = server.fixture.live.flood(2, 2000, 80, 12);
    await chartHas(page, 'liveHeatmap', 'shape');
    await chartHas(page, 'tokenStream', 'count');
    const heights = await page
      .locator('.tok-line')
      .evaluateAll((l) => [...new Set(l.map((e) => (e as HTMLElement).offsetHeight))]);
    expect(heights).toEqual([24]);
    await flood; // its run ends before the next test
  });

  test('a run that failed says why, and leads to what is kept of it', async () => {
    await visit({ view: 'live' });
    await page.getByText('Connected').waitFor();
    const run = { run_id: id(3), t_ms: 0 };
    server.fixture.say({ ...run, type: 'run_started', model_name: 'demo', prompt: 'Doomed' });
    const text = 'the weights end early';
    server.fixture.say({ ...run, type: 'warning', code: 'run_failed', text });
    server.fixture.say({
      ...run,
      type: 'run_failed',
      error: text,
      stored: true,
    });
    const now = page.getByRole('region', { name: 'What is running' });
    await now.getByText('failed').waitFor();
    await now.getByText('the weights end early').waitFor();
    expect(await page.getByText('the weights end early').count()).toBe(1);
    await page.locator('.live-main').getByText('ended before its first token').first().waitFor();
    await now.getByRole('link', { name: /Open in Analysis/ }).click();
    await expect.poll(() => new URL(page.url()).searchParams.get('run')).toBe(id(3));
  });

  test('prefers-reduced-motion disables animations', async () => {
    o = await open(browser, at(server.url, { view: 'live' }), { still: true });
    page = o.page;
    await page.getByText('Connected').waitFor();
    const moving = await page.evaluate(
      () => document.getAnimations().filter((a) => a.playState === 'running').length,
    );
    expect(moving).toBe(0);
  });
});
