// Pictures of every view in both themes at two widths, for people to look at (npm run shots).
// SHOTS names the folder; SHOTS_URL a running server instead of the fixture; FOLD=1 keeps to the first
// screen, as for the documents; ONLY names some of the views.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, test } from 'vitest';
import { at, launch, open } from '../e2e/browser.ts';
import { startFixture } from '../fixture/server.ts';

const out = process.env.SHOTS ?? '/tmp/perjoule-shots';
const only = process.env.ONLY;
let browser: Browser;
let server: { url: string; close: () => Promise<void> };
let known: string[];

beforeAll(async () => {
  mkdirSync(out, { recursive: true });
  browser = await launch();
  const url = process.env.SHOTS_URL;
  if (url) {
    server = { url, close: async () => {} };
    const list = (await (
      await fetch(
        `${url}api/profiling/runs?limit=50${process.env.FOLD ? '&sort=duration&order=asc&experiment=documents' : ''}`,
      )
    ).json()) as {
      id: string;
    }[];
    known = list.map((r) => r.id);
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
  history: () => ({ view: 'history' }),
  detail: () => ({ view: 'history', run: id(0) }),
  compare: () => ({ view: 'compare', ids: known.slice(0, 3).join(',') }),
};

for (const [name, query] of Object.entries(views)) {
  for (const dark of [false, true]) {
    for (const width of [1280, 390]) {
      test.skipIf(only && !only.split(',').includes(name))(
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
          if (process.env.FOLD) {
            await o.page.waitForTimeout(1200);
            await o.page.screenshot({
              path: join(out, `${name}-${dark ? 'dark' : 'light'}-${width}.png`),
            });
            await o.close();
            return;
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
