// Screenshots of every view in both themes at two widths, for visual review (npm run shots). SHOTS names the
// folder; SHOTS_URL a running server instead of the fixture; ONLY selects views. DOCUMENTS=1 makes the four
// screenshots of the documents instead: the first screen of a server whose runs
// of the experiment "documents" are tagged baseline, q8_0 and q4_0.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, test } from 'vitest';
import { at, launch, open } from '../e2e/browser.ts';
import { startFixture } from '../fixture/server.ts';

const out = process.env.SHOTS ?? '/tmp/perjoule-shots';
const only = process.env.ONLY;
const documents = process.env.DOCUMENTS === '1';
let browser: Browser;
let server: { url: string; close: () => Promise<void> };
let known: string[];

beforeAll(async () => {
  mkdirSync(out, { recursive: true });
  browser = await launch();
  const url = process.env.SHOTS_URL;
  if (url) {
    server = { url, close: async () => {} };
    known = documents
      ? (await Promise.all(['baseline', 'q8_0', 'q4_0'].map((t) => ids(url, `&tag=${t}`)))).flat()
      : await ids(url);
  } else {
    const fixture = await startFixture({
      dist: join(import.meta.dirname, '../../dist'),
      runs: 130,
    });
    server = fixture;
    known = fixture.fixture.summaries.map((r) => r.id);
  }
});
afterAll(async () => {
  await browser?.close();
  await server?.close();
});

async function ids(url: string, more = ''): Promise<string[]> {
  const experiment = documents ? '&experiment=documents&search=Once' : '';
  const r = await fetch(`${url}api/profiling/runs?limit=${documents ? 1 : 50}${experiment}${more}`);
  return ((await r.json()) as { id: string }[]).map((x) => x.id);
}

const id = (i: number) => known[Math.min(i, known.length - 1)];
const views: Record<string, () => Record<string, string>> = {
  live: () => ({ view: 'live' }),
  analysis: () => ({ view: 'analysis', run: id(0) }),
  cell: () => ({
    view: 'analysis',
    run: id(6),
    token: '40',
    layer: '7',
    component: 'attention',
  }),
  fallback: () => ({ view: 'analysis', run: id(2) }),
  cancelled: () => ({ view: 'analysis', run: id(3) }),
  partial: () => ({ view: 'analysis', run: id(7) }),
  engine: () => ({ view: 'analysis', run: id(9) }),
  modelled: () => ({ view: 'analysis', run: id(4), pane: 'heatmap' }),
  history: () => ({ view: 'history' }),
  nothing: () => ({ view: 'history', q: 'no such prompt' }),
  gone: () => ({ view: 'analysis', run: 'no-such-run' }),
  experiments: () => ({ view: 'experiments' }),
  detail: () => ({ view: 'history', run: id(0) }),
  compare: () => ({ view: 'compare', ids: known.slice(0, 3).join(',') }),
};

const WIDTHS = (process.env.WIDTHS ?? '1280,390,1920').split(',').map(Number);
for (const [name, query] of Object.entries(views)) {
  for (const dark of [false, true]) {
    for (const width of WIDTHS) {
      test.skipIf(documents || (only && !only.split(',').includes(name)))(
        `${name} ${dark ? 'dark' : 'light'} ${width}`,
        async () => {
          const o = await open(browser, at(server.url, query()), {
            dark,
            width,
            height: width === 390 ? 844 : 900,
          });
          await o.page.waitForTimeout(700);
          if (name === 'live') {
            await o.page.getByRole('button', { name: /Start|Queue/ }).click();
            await o.page.waitForTimeout(1800);
          }
          const height = Math.min(
            6000,
            await o.page.evaluate(() => document.documentElement.scrollHeight),
          );
          await o.page.setViewportSize({ width, height });
          await o.page.waitForTimeout(700);
          const file = join(out, `${name}-${dark ? 'dark' : 'light'}-${width}`);
          await o.page.screenshot({ path: `${file}.png` });
          const piece = width === 390 ? 1800 : 1200;
          for (let y = 0, i = 1; height > piece && y < height; y += piece, i++) {
            const clip = { x: 0, y, width, height: Math.min(piece, height - y) };
            await o.page.screenshot({ path: `${file}-part${i}.png`, clip });
          }
          if (name === 'live')
            await o.page
              .getByRole('button', { name: 'Stop' })
              .click({ timeout: 300 })
              .catch(() => {});
          if (o.problems.length) process.stderr.write(`${name}: ${o.problems.join('\n')}\n`);
          await o.close();
        },
      );
    }
  }
}

/** The file name, and actions on the page before the screenshot. */
const PICTURES: [string, string, boolean][] = [
  ['live', 'live-dark-1280', true],
  ['analysis', 'analysis-light-1280', false],
  ['history', 'history-light-1280', false],
  ['compare', 'compare-light-1280', false],
];
for (const [name, file, dark] of PICTURES) {
  test.skipIf(!documents)(`${name} for the documents`, async () => {
    const o = await open(browser, at(server.url, views[name]()), {
      dark,
      height: name === 'analysis' ? 1330 : 860, // with the workspace below the verdict
      still: true,
    });
    const { page } = o;
    if (name === 'live') {
      await page.getByLabel('New tokens').fill('200');
      await page.getByRole('button', { name: 'Start' }).click();
      await page.getByText('Open in Analysis').waitFor();
    }
    await page.locator('.panel').first().waitFor();
    await page.waitForFunction(() => !document.querySelector('[aria-busy=true]'));
    await page.waitForTimeout(1200);
    await page.screenshot({ path: join(out, `${file}.png`) });
    await o.close();
  });
}
