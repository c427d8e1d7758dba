// Experiments: grids run and stored by the real program, one finished and one interrupted.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { axe } from './axe.ts';
import {
  at,
  closePages,
  type How,
  noBrowser,
  type Opened,
  open,
  sharedBrowser,
  until,
} from './browser.ts';
import { chartHas } from './charts.ts';
import { DEMO, missing, startTarget, type Target } from './target.ts';

const why = missing || (await noBrowser());
if (why) process.stderr.write(`skipped: experiments (${why})\n`);

interface Result {
  state: string;
  done: number;
  total: number;
  optimum: { name: string; cell: number };
  cells: { cell: number; name: string; joules_per_token_typical: number; ids: string[] }[];
}

describe.skipIf(why)('experiments', () => {
  let browser: Browser;
  let target: Target;
  let folder: string;
  let o: Opened;
  let page: Page;
  const BIN = resolve(process.env.PERJOULE_BIN ?? '');
  const POWER = 'sim:seed=5,period_ms=1,kind=counter';

  beforeAll(async () => {
    browser = await sharedBrowser();
    folder = mkdtempSync(join(tmpdir(), 'perjoule-experiments-'));
    const db = join(folder, 'runs.db');
    const common = [
      '--models',
      DEMO,
      '--power',
      POWER,
      '--db',
      db,
      '--outputs',
      '8',
      '--inputs',
      '8',
    ];
    // The database is created by the first run.
    execFileSync(BIN, ['run', '--power', POWER, '--db', db, '-m', DEMO, '-n', '2', 'Hello'], {
      stdio: 'ignore',
    });
    const grid = ['--dtypes', 'bf16,q8_0', '--batches', '1,2', '--repeat', '3'];
    execFileSync(BIN, ['experiment', ...grid, '--name', 'sweep', ...common], { stdio: 'ignore' });
    await interrupted(['experiment', '--repeat', '30', '--name', 'cut short', ...common], db);
    target = await startTarget(POWER, db);
  });
  afterAll(async () => {
    await closePages(browser);
    await target?.close();
    rmSync(folder, { recursive: true, force: true });
  });
  afterEach(async () => {
    await o?.close();
    expect(o?.problems ?? []).toEqual([]);
  });

  /** Runs an experiment until some of its runs are stored. */
  async function interrupted(args: string[], db: string): Promise<void> {
    const child = spawn(BIN, args, { stdio: 'ignore' });
    const gone = new Promise<void>((done) => child.once('exit', () => done()));
    const name = args[args.indexOf('--name') + 1];
    const ask = ['experiment', '--name', name, '--result', '--json', '--db', db];
    for (let i = 0; i < 400 && child.exitCode === null; i++) {
      await new Promise((r) => setTimeout(r, 50));
      try {
        const out = execFileSync(BIN, ask, {
          encoding: 'utf8',
          stdio: ['ignore', 'pipe', 'ignore'],
        });
        if ((JSON.parse(out) as Result).done > 0) break;
      } catch {
        // The plan is not stored yet.
      }
    }
    child.kill('SIGINT');
    await gone;
  }
  const visit = async (query: Record<string, string>, how: How = {}) => {
    o = await open(browser, at(target.url, { view: 'experiments', ...query }), how);
    page = o.page;
  };
  const query = () => new URL(page.url()).searchParams;
  const panel = (title: string) => page.locator(`section.panel[aria-label="${title}"]`);
  const result = async (name: string) =>
    (await (
      await fetch(`${target.url}api/profiling/experiments/${encodeURIComponent(name)}`)
    ).json()) as Result;

  test('a finished one shows its optimum and every cell, and links to runs and report', async () => {
    const d = await result('sweep');
    await visit({ experiment: 'sweep' });
    await page.locator('.experiment-verdict').getByText(d.optimum.name).first().waitFor();
    expect(await chartHas(page, 'factorial', 'count')).toBe(4);
    expect(await chartHas(page, 'front', 'count')).toBe(4);
    const rows = panel('Cells').locator('tbody tr');
    expect(await rows.count()).toBe(4);
    const table = page.getByRole('region', { name: 'Cells, table' });
    expect(await table.evaluate((e) => e.scrollWidth - e.clientWidth)).toBe(0);
    await panel('Cells').getByRole('button', { name: 'Per token', exact: true }).click();
    const least = d.cells.reduce((a, c) =>
      c.joules_per_token_typical < a.joules_per_token_typical ? c : a,
    );
    await expect.poll(() => rows.first().innerText()).toContain(least.name);
    const report = await panel('Result').getByRole('link', { name: 'Report' }).getAttribute('href');
    const answer = await fetch(report ?? '');
    expect(answer.ok).toBe(true);
    expect(await answer.text()).toContain('sweep');
    await rows
      .first()
      .getByRole('link', { name: /^Run 2 of/ })
      .click();
    await expect.poll(() => query().get('run')).toBe(least.ids[1]);
    await expect.poll(() => query().get('view')).toBe('analysis');
    await page.goBack();
    await panel('Result').getByRole('link', { name: 'Show its runs' }).click();
    await page.getByText('12 runs', { exact: true }).waitFor();
  });

  test('the axis of the chart can be any varying setting, and the choice is in the URL', async () => {
    await visit({ experiment: 'sweep' });
    await chartHas(page, 'factorial', 'count');
    const legend = () => panel('Energy per token by setting').locator('.legend').innerText();
    expect(await legend()).toMatch(/bf16[\s\S]*q8_0/);
    await page.getByLabel('Setting along the axis').selectOption('dtype');
    await expect.poll(() => query().get('along')).toBe('dtype');
    await expect.poll(legend).toMatch(/batch 1[\s\S]*batch 2/);
    await page.goBack();
    await expect.poll(legend).toMatch(/bf16/);
  });

  test('an interrupted one shows its progress, and can be resumed', async () => {
    const d = await result('cut short');
    expect(d.state).toBe('unfinished');
    await visit({});
    await page.getByRole('link', { name: /cut short/ }).click();
    await page.getByText(`${d.done} of ${d.total} runs`).waitFor();
    await panel('Result').getByRole('button', { name: 'Go on' }).waitFor();
    await expect.poll(() => query().get('experiment')).toBe('cut short');
  });

  test('one is planned in the page, watched, stopped, and resumed', async () => {
    await visit({});
    await page.getByRole('button', { name: 'New experiment' }).click();
    const form = page.getByRole('form', { name: 'New experiment' });
    // Under the name of one that is there it would go on with that.
    expect(await form.getByLabel('Name', { exact: true }).inputValue()).toBe('sweep-2');
    await form.getByLabel('Name').fill('from the page');
    for (const w of ['bf16', 'q8_0']) await form.getByLabel(w, { exact: true }).check();
    await form.getByLabel('Batch sizes').fill('1, two');
    await form.getByText('whole numbers with commas').waitFor();
    expect(await form.getByRole('button', { name: 'Start' }).isDisabled()).toBe(true);
    await form.getByLabel('Batch sizes').fill('1, 2');
    await form.getByLabel('Prompt tokens').fill('8');
    await form.getByLabel('New tokens').fill('64');
    await form.getByLabel('Runs of each cell').fill('40');
    await form.getByText('4 cells, 160 runs').waitFor();
    await form.getByRole('button', { name: 'Start' }).click();
    await expect.poll(() => query().get('experiment')).toBe('from-the-page');
    await page.getByText(/^now .*(left at most|not known yet)/).waitFor();
    const head = panel('Result');
    await head.getByRole('button', { name: 'Stop' }).click();
    await head.getByText('cancelled', { exact: true }).waitFor();
    const { done } = await result('from-the-page');
    expect(done).toBeLessThan(160);
    await head.getByRole('button', { name: 'Go on' }).click();
    await expect.poll(async () => (await result('from-the-page')).done).toBeGreaterThan(done);
    await head.getByRole('button', { name: 'Stop' }).click();
    await head.getByText('cancelled', { exact: true }).waitFor();
  });

  test('what has not run yet is not called unavailable', async () => {
    const ask = (path: string, body: object) =>
      fetch(`${target.url}api/profiling/${path}`, { method: 'POST', body: JSON.stringify(body) });
    // It waits for single runs.
    const long = { prompt: 'First', max_length: 400, batch_size: 64, ignore_eos: true };
    const first = await ask('generate', { ...long, profiling_depth: 'deep', wait: false });
    const { run_id } = (await first.json()) as { run_id: string };
    await ask('experiments', { name: 'later', batches: [1, 2], outputs: [8], repeat: 2 });
    await visit({ experiment: 'later' });
    const cells = panel('Cells').locator('tbody');
    await cells.getByText('not yet').first().waitFor();
    expect(await cells.innerText()).not.toContain('unavailable');
    await ask('experiments/later/cancel', {});
    await page.getByText('No run has ended.').waitFor();
    await cells.getByText('no run').first().waitFor();
    await ask(`run/${run_id}/cancel`, {});
  });

  test('a name without a plan leads to its runs', async () => {
    await visit({ experiment: 'nothing of that name' }, { expected: /404/ });
    await page
      .getByText(/nothing of that name/)
      .first()
      .waitFor();
    await page.getByRole('link', { name: 'Show its runs' }).waitFor();
  });

  test('a run links to predictions for other batch sizes, each with its interval or a refusal', async () => {
    await visit({ view: 'analysis' });
    await page.getByRole('link', { name: 'What if…' }).click();
    const asked = panel('What would it cost?');
    const answers = asked.getByRole('table', { name: 'Predictions by batch' });
    const batches = async () => (await answers.getByRole('rowheader').allInnerTexts()).join(', ');
    await expect.poll(batches).toMatch(/\d+(, \d+){3}/);
    for (const row of await answers.locator('tbody tr').allInnerTexts())
      expect(row).toMatch(/ to |Not predicted: .+/);
    await asked.getByLabel('Batch sizes').fill('1, 2');
    await expect.poll(() => query().get('what_if')).toMatch(/~1, 2~/);
    await expect.poll(batches).toBe('1, 2');
    await asked.getByLabel('New tokens').fill('0');
    await asked.getByText(/whole numbers above 0/).waitFor();
  });

  test('a reason for which several batch sizes are refused is given once', async () => {
    const refused: Record<string, string> = { 1: 'no runs', 2: 'no runs', 4: 'no memory' };
    o = await open(browser, at(target.url, { view: 'history' }));
    page = o.page;
    await page.route(/\/predict\?/, async (r) => {
      const batch = new URL(r.request().url()).searchParams.get('batch') ?? '';
      const answer = { batch: Number(batch), refusal: refused[batch], map: null };
      await r.fulfill({ contentType: 'application/json', body: JSON.stringify(answer) });
    });
    await page.goto(at(target.url, { view: 'experiments', what_if: '8~8~1,2,4~' }));
    const rows = page.getByRole('table', { name: 'Predictions by batch' }).locator('tbody tr');
    await expect
      .poll(() => rows.allInnerTexts())
      .toEqual([
        expect.stringMatching(/^1, 2\s+Not predicted: no runs$/),
        expect.stringMatching(/^4\s+Not predicted: no memory$/),
      ]);
  });

  test('it is accessible, and fits a phone', async () => {
    await visit({ experiment: 'sweep' }, { still: true });
    await chartHas(page, 'front', 'count');
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      await until(page, (t) => document.documentElement.dataset.theme === t, colorScheme);
      expect(await axe(page), colorScheme).toEqual([]);
    }
    await page.setViewportSize({ width: 390, height: 844 });
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(
      390,
    );
  });

  test('a finished one is run again, and compared with its first round', async () => {
    const plan = { name: 'twice', models: ['demo'], outputs: [8], inputs: [8], repeat: 2 };
    await fetch(`${target.url}api/profiling/experiments`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(plan),
    });
    const state = async () => (await result('twice')).state;
    await expect.poll(state).toBe('completed');
    await visit({ experiment: 'twice' });
    await panel('Result').getByRole('button', { name: 'Run again' }).click();
    await panel('Result')
      .getByText(/^Repeated: /)
      .waitFor();
    expect(await panel('Result').innerText()).toMatch(/round 2/);
  });
});
