// What the page costs: measured, printed, and held to the budgets where a figure does not depend on
// how busy the machine is (memory). Frames and times are printed beside their budgets; STRICT=1 makes
// them count too. Run with `npm run budget`; SECONDS sets the length of the live part.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { at, launch, open, until } from '../e2e/browser.ts';
import { chartHas } from '../e2e/charts.ts';
import { type Running, startFixture } from '../fixture/server.ts';

const strict = process.env.STRICT === '1';
const seconds = Number(process.env.SECONDS ?? 60);
const dist = join(import.meta.dirname, '../../dist');

let browser: Browser;
let server: Running;

beforeAll(async () => {
  server = await startFixture({ dist, runs: 10_000 });
  browser = await launch();
});
afterAll(async () => {
  await browser?.close();
  await server?.close();
});

const report = (name: string, figures: Record<string, string | number>): void => {
  process.stdout.write(
    `${name}: ${Object.entries(figures)
      .map(([k, v]) => `${k} ${v}`)
      .join(', ')}\n`,
  );
};

async function heapMb(page: Page): Promise<number> {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('HeapProfiler.collectGarbage');
  const { usedSize } = await cdp.send('Runtime.getHeapUsage');
  return usedSize / 1e6;
}

test('the page is at most 120 kB gzipped', () => {
  const files = readdirSync(dist, { recursive: true, encoding: 'utf8' }).filter((f) =>
    /\.(html|js|css|svg)$/.test(f),
  );
  const bytes = files.reduce(
    (a, f) => a + gzipSync(readFileSync(join(dist, f)), { level: 9 }).length,
    0,
  );
  report('page', { gzipped: `${(bytes / 1000).toFixed(1)} kB (budget 120)` });
  expect(bytes).toBeLessThan(120_000);
});

test('live: 1 kHz on five rails, 300,000 samples kept, a heatmap of 80 × 12 at 30 Hz', async () => {
  const o = await open(browser, at(server.url, { view: 'live' }));
  const { page } = o;
  await page.getByText('Connected').waitFor();
  await page.getByRole('button', { name: '5 min' }).waitFor();
  const flood = server.fixture.live.flood(seconds + 6, 300_000, 80, 12);
  await page.getByRole('button', { name: '5 min' }).click();
  await until(
    page,
    () => ((window.__test!.livePower as { points: number }).points ?? 0) > 100,
    null,
    60_000,
  );
  await page.waitForTimeout(3000);
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Performance.enable');
  const busy = async () => {
    const { metrics } = await cdp.send('Performance.getMetrics');
    return metrics.find((m) => m.name === 'TaskDuration')?.value ?? 0;
  };
  const before = await busy();
  const r = await page.evaluate(
    (ms) =>
      new Promise<{ frames: number[]; tasks: number[]; ms: number }>((done) => {
        const frames: number[] = [];
        const tasks: number[] = [];
        const observer = new PerformanceObserver((l) => {
          for (const e of l.getEntries()) tasks.push(e.duration);
        });
        observer.observe({ entryTypes: ['longtask'] });
        const t0 = performance.now();
        let last = t0;
        const tick = (now: number) => {
          frames.push(now - last);
          last = now;
          if (now - t0 < ms) requestAnimationFrame(tick);
          else {
            observer.disconnect();
            done({ frames, tasks, ms: now - t0 });
          }
        };
        requestAnimationFrame(tick);
      }),
    seconds * 1000,
  );
  const share = (await busy()) - before;
  const fps = (r.frames.length / r.ms) * 1000;
  const sorted = r.frames.slice().sort((a, b) => a - b);
  const longPerMinute = (r.tasks.length / r.ms) * 60_000;
  const heap = await heapMb(page);
  const kept = (await chartHas(page, 'livePower', 'points')) as number;
  report('live', {
    fps: `${fps.toFixed(1)} (budget 50)`,
    'frame p50': `${sorted[Math.floor(sorted.length / 2)].toFixed(1)} ms`,
    p99: `${sorted[Math.floor(sorted.length * 0.99)].toFixed(1)} ms`,
    'long tasks a minute': `${longPerMinute.toFixed(1)} (budget 5)`,
    'main thread': `${((100 * share * 1000) / r.ms).toFixed(0)} %`,
    heap: `${heap.toFixed(1)} MB (budget 40)`,
    'points drawn': kept,
  });
  await flood;
  expect(heap).toBeLessThan(40);
  expect(o.problems).toEqual([]);
  if (strict) {
    expect(fps).toBeGreaterThanOrEqual(50);
    expect(longPerMinute).toBeLessThanOrEqual(5);
  }
  await o.close();
});

test('history: a keystroke among 10,000 runs', async () => {
  const o = await open(browser, at(server.url, { view: 'history' }));
  const { page } = o;
  await page.locator('.runs tbody tr').first().waitFor();
  const times: number[] = [];
  for (const text of ['t', 'tu', 'tur', 'turb', 'tu', 'lamp', 'slow', '']) {
    const ms = await page.evaluate(
      (value) =>
        new Promise<number>((done) => {
          const box = document.querySelector<HTMLInputElement>('#history-search');
          const list = document.querySelector('section.list');
          if (!box || !list) throw new Error('no search');
          const t0 = performance.now();
          const seen = new MutationObserver(() => {
            if (list.getAttribute('aria-busy') === 'false') {
              seen.disconnect();
              requestAnimationFrame(() => done(performance.now() - t0));
            }
          });
          seen.observe(list, {
            subtree: true,
            childList: true,
            attributes: true,
            characterData: true,
          });
          box.value = value;
          box.dispatchEvent(new Event('input', { bubbles: true }));
        }),
      text,
    );
    times.push(ms);
  }
  const worst = Math.max(...times);
  report('history', {
    keystrokes: times.map((t) => t.toFixed(0)).join(' / '),
    worst: `${worst.toFixed(0)} ms (budget 100)`,
  });
  if (strict) expect(worst).toBeLessThan(100);
  expect(o.problems).toEqual([]);
  await o.close();
});

test('analysis: a stored run opens', async () => {
  const id = server.fixture.summaries[6].id;
  const times: number[] = [];
  for (let i = 0; i < 3; i++) {
    const o = await open(browser, at(server.url, { view: 'analysis', run: id }));
    await chartHas(o.page, 'power', 'points');
    await chartHas(o.page, 'timeline', 'count');
    times.push(await o.page.evaluate(() => performance.now()));
    await o.close();
  }
  report('analysis', {
    'from navigation to drawn charts': times.map((t) => `${t.toFixed(0)} ms`).join(' / '),
  });
});
