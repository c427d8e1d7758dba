// Reports: files that `perjoule report` writes, opened from disk without a network, read, used and printed.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { axe } from './axe.ts';
import { closePages, type How, noBrowser, type Opened, open, sharedBrowser } from './browser.ts';
import { chartHas } from './charts.ts';
import { DEMO, missing, startTarget } from './target.ts';

const why = missing || (await noBrowser());
if (why) process.stderr.write(`skipped: reports (${why})\n`);

const HOSTILE = '</script><script>alert(1)</script> <img src=x onerror=alert(2)> \u2028 & "c"';

describe.skipIf(why)('reports', () => {
  const BIN = resolve(process.env.PERJOULE_BIN ?? '');
  const POWER = 'sim:seed=5,period_ms=1,kind=counter';
  let browser: Browser;
  let folder: string;
  let db: string;
  let o: Opened;
  const asked: string[] = [];
  const perjoule = (...args: string[]): string =>
    execFileSync(BIN, [...args, '--db', db], {
      encoding: 'utf8',
      maxBuffer: 1 << 28,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
  const shown = (id: string) =>
    JSON.parse(perjoule('show', id, '--json')) as {
      id: string;
      total_energy_mj: number;
      joules_per_token_typical: number;
    };

  beforeAll(async () => {
    browser = await sharedBrowser();
    folder = mkdtempSync(join(tmpdir(), 'perjoule-report-'));
    db = join(folder, 'runs.db');
    const run = (...more: string[]) => perjoule('run', '-m', DEMO, '--power', POWER, ...more);
    run('-n', '12', '--depth', 'deep', HOSTILE);
    run('-n', '12', '--dtype', 'q8_0', 'Once upon a time');
    const grid = ['--batches', '1,2', '--repeat', '2', '--inputs', '8', '--outputs', '8'];
    perjoule('experiment', '--models', DEMO, '--power', POWER, ...grid, '--name', 'sweep & "so"');
    const write = (name: string, ...of: string[]) =>
      perjoule('report', ...of, '-o', join(folder, name));
    write('run.html', 'last~5');
    write('two.html', 'last~5', 'last~4');
    write('experiment.html', '--experiment', 'sweep & "so"');
  });
  afterAll(async () => {
    await closePages(browser);
    rmSync(folder, { recursive: true, force: true });
  });
  afterEach(async () => {
    await o?.close();
    expect(o?.problems ?? []).toEqual([]);
    expect(asked.splice(0)).toEqual([]);
  });

  /** Opens a report as a file, offline; requests to anything but the file fail the test. */
  async function read(name: string, how: How = {}): Promise<Page> {
    o = await open(browser, 'about:blank', how);
    await o.context.setOffline(true);
    const file = pathToFileURL(join(folder, name)).href;
    o.page.on('request', (r) => {
      if (!r.url().startsWith(file) && !/^(data|blob):/.test(r.url())) asked.push(r.url());
    });
    o.page.on('dialog', (d) => {
      o.problems.push(`dialog: ${d.message()}`);
      void d.dismiss();
    });
    await o.page.goto(`${file}?test=1`);
    return o.page;
  }

  /** A figure as the page writes it, in millijoules, and how far rounding may have moved it. */
  function millijoules(text: string): { mj: number; by: number } {
    const found = /([\d.,]+)(?: ± <?[\d.,]+| \([^)]*\))? (µJ|mJ|J|kJ)/.exec(text);
    if (!found) throw new Error(`"${text}" is no energy`);
    const scale = { µJ: 1e-3, mJ: 1, J: 1e3, kJ: 1e6 }[found[2] as 'J'];
    const decimals = found[1].split('.')[1]?.length ?? 0;
    // Of a whole number, the zeros at its end may be no digits.
    const zeros = decimals ? 0 : (/0*$/.exec(found[1])?.[0].length ?? 0);
    const by = 0.51 * 10 ** (zeros - decimals) * scale;
    return { mj: Number(found[1].replaceAll(',', '')) * scale, by };
  }
  const expectEnergy = (text: string, mj: number) => {
    const got = millijoules(text);
    expect(Math.abs(got.mj - mj), `${text} for ${mj} mJ`).toBeLessThanOrEqual(got.by);
  };

  const SECTIONS = ['Icicle', 'Sankey', 'Heatmap', 'Tokens', 'Token × layer', 'Roofline', 'Rails'];

  test('a run: all sections, its figures, texts of it inert', async () => {
    const page = await read('run.html');
    for (const chart of ['timeline', 'icicle', 'heatmap', 'roofline', 'waterfall'])
      expect(await chartHas(page, chart, 'paints')).toBeGreaterThan(0);
    for (const name of [...SECTIONS, 'Power samples', 'All figures', 'How to repeat'])
      await page.locator(`section[aria-label="${name}"]`).first().waitFor();
    expectEnergy(
      await page.locator('[data-figure="energy"]').innerText(),
      shown('last~5').total_energy_mj,
    );
    expect(await page.locator('h1').innerText()).toContain('</script><script>alert(1)</script>');
    expect(await page.locator('img').count()).toBe(0);
    expect(await page.getByText('has no such detail').count()).toBe(0);
    expect(await page.locator('nav[aria-label="Views"], .run-picker, .menu').count()).toBe(0);
    expect(await axe(page)).toEqual([]);
  });

  test('a run is explored without a server, and Back undoes', async () => {
    const page = await read('run.html');
    await page.locator('.hottest tbody button').first().click();
    const chip = page.locator('.trail .chip');
    await expect.poll(() => chip.count()).toBe(2);
    await expect.poll(() => page.url()).toMatch(/#view=analysis.*component=/);
    await expect.poll(() => page.locator('.details .ops tbody tr').count()).toBeGreaterThan(0);
    await page.goBack();
    await expect.poll(() => chip.count()).toBe(1);
    expect(await page.getByText('has no such detail').count()).toBe(0);
  });

  test('a comparison', async () => {
    const page = await read('two.html');
    for (const chart of ['overlayPower', 'overlayTokens'])
      expect(await chartHas(page, chart, 'paints')).toBeGreaterThan(0);
    const row = page.locator('section[aria-label="Metrics"] tbody tr').first().locator('td');
    const cells = await row.allInnerTexts();
    // The typical token, which decides, comes first.
    expectEnergy(cells.at(-2) ?? '', shown('last~5').joules_per_token_typical * 1000);
    expectEnergy(cells.at(-1) ?? '', shown('last~4').joules_per_token_typical * 1000);
    expect(await page.getByRole('link').count()).toBe(0);
    expect(await axe(page)).toEqual([]);
  });

  test('an experiment', async () => {
    const page = await read('experiment.html');
    expect(await chartHas(page, 'factorial', 'paints')).toBeGreaterThan(0);
    const result = JSON.parse(
      perjoule('experiment', '--name', 'sweep & "so"', '--result', '--json'),
    ) as { metric: string; cells: { joules_per_token_typical: number }[] };
    expect(result.metric).toBe('joules_per_token_typical');
    const rows = page.locator('section[aria-label="Cells, table"] tbody tr');
    expect(await rows.count()).toBe(result.cells.length);
    expectEnergy(
      await rows.first().locator('td').first().innerText(),
      result.cells[0].joules_per_token_typical * 1000,
    );
    expect(await page.getByRole('link').count()).toBe(0);
    expect(await page.locator('section[aria-label="How to repeat"] pre').innerText()).toContain(
      `perjoule experiment --name 'sweep & "so"' --again`,
    );
    expect(await axe(page)).toEqual([]);
  });

  test('prints in light colours at the width of the paper, then is as before', async () => {
    const page = await read('run.html', { dark: true });
    await chartHas(page, 'icicle', 'paints');
    await page.evaluate(() => {
      const icicle = window.__test!.icicle as { width: number };
      addEventListener('beforeprint', () => {
        window.__test!.printed = {
          theme: document.documentElement.dataset.theme,
          width: icicle.width,
          paper: (document.querySelector('#app') as HTMLElement).clientWidth,
        };
      });
    });
    const width = () => page.evaluate(() => (window.__test!.icicle as { width: number }).width);
    const before = await width();
    const pdf = await page.pdf({
      format: 'A4',
      printBackground: true,
      outline: true,
      tagged: true,
    });
    const printed = (await page.evaluate(() => window.__test?.printed)) as {
      theme: string;
      width: number;
      paper: number;
    };
    expect(printed.theme).toBe('light');
    expect(printed.paper).toBe(703); // 186 mm
    expect(printed.width).not.toBe(before);
    expect(printed.width).toBeLessThan(printed.paper);
    // The outline is made of the headings.
    const text = pdf.toString('latin1');
    for (const name of ['Timeline', 'Icicle', 'Sankey', 'Heatmap', 'Roofline', 'How to repeat'])
      expect(text).toContain(`(${name})`);
    expect(text.match(/\/Type \/Page\b/g)?.length ?? 0).toBeGreaterThan(3);
    await expect.poll(width).toBe(before);
    expect(await page.evaluate(() => document.documentElement.dataset.theme)).toBe('dark');
  });

  test('fits a phone', async () => {
    for (const name of ['run.html', 'two.html', 'experiment.html']) {
      const page = await read(name, { width: 390, height: 800 });
      await page.locator('.panel').first().waitFor();
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(390);
      if (name !== 'experiment.html') await o.close();
    }
  });

  test('the server sends the same file, under a policy without network', async () => {
    const target = await startTarget(POWER, db);
    try {
      o = await open(browser, `${target.url}api/profiling/report?ids=last~5`);
      expect(o.problems).toEqual([]);
    } finally {
      await target.close();
    }
  });
});
