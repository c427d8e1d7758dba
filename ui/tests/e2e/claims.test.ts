// What the page claims about a run, checked against the run: scopes without leftovers, one mean per token,
// all tokens of a large batch, runs that broke off, and names that are cut off last.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { at, turnTo } from './browser.ts';
import { chartHas } from './charts.ts';
import { mj, shows } from './energy.ts';
import {
  expectProblems,
  leave,
  nowSays,
  openAt,
  page,
  panel,
  query,
  runs,
  scenarios,
  target,
  urlHas,
  visit,
} from './stage.ts';
import { generate, startTarget } from './target.ts';

const figure = (name: string) => page.locator(`[data-figure=${name}]`).innerText();
const tree = () =>
  page.evaluate(() => {
    const c = window.__test?.icicle as unknown as
      | { root?: { value: number }; shown: string[] }
      | undefined;
    return { value: c?.root?.value ?? 0, shown: c?.shown ?? [] };
  });

scenarios('every claim of an analysis holds', () => {
  test('a cell of one token is the whole of its scope: nothing of the rest is called unattributed', async () => {
    await visit({
      view: 'analysis',
      run: runs[0],
      token: '10',
      layer: '1',
      component: 'attention',
    });
    await chartHas(page, 'icicle', 'shown');
    await expect.poll(async () => shows(await figure('energy'), (await tree()).value)).toBe(true);
    const { shown } = await tree();
    expect(shown).toContain('attention');
    expect(shown).not.toContain('unattributed');
  });

  test('a component chosen among the hottest is followed by icicle and operations, over all layers', async () => {
    await visit({ view: 'analysis', run: runs[0] });
    const row = page.locator('table[aria-label="Hottest components"] tbody tr').first();
    const name = await row.getByRole('button').innerText();
    await row.getByRole('button').click();
    await urlHas('component', name);
    await expect.poll(async () => shows(await figure('energy'), (await tree()).value)).toBe(true);
    expect((await tree()).shown).toContain(name);
    await page.locator('.details table.ops:not(.hottest) tbody tr').first().waitFor();
    expect(await page.locator('.details').innerText()).not.toContain('Nothing was recorded');
  });

  test('a layer alone narrows the operations to it', async () => {
    await visit({ view: 'analysis', run: runs[0] });
    const ops = page.locator('.details table.ops:not(.hottest) tbody tr');
    await ops.first().waitFor();
    const whole = await ops.first().innerText();
    await turnTo(page, at(target.url, { view: 'analysis', run: runs[0], layer: '1' }));
    await page.locator('.details').getByText('Of all components of layer 1').waitFor();
    await expect.poll(() => ops.first().innerText()).not.toBe(whole);
  });

  test('the mean token is one figure: loading the model is in none of its places', async () => {
    const cold = await startTarget('sim:seed=5,period_ms=1,kind=counter');
    try {
      const ask = { prompt: 'Cold start', profiling_depth: 'module', max_length: 24 };
      const { run_id } = await generate(cold.url, ask);
      await openAt(at(cold.url, { view: 'analysis', run: run_id }));
      const mean = page.locator('.headline .figure', { hasText: 'Mean token' }).locator('dd');
      await expect.poll(async () => mj(await mean.innerText())).toBeGreaterThan(0);
      await expect.poll(async () => mj(await figure('mean'))).toBe(mj(await mean.innerText()));
      await turnTo(page, at(cold.url, { view: 'history', run: run_id }));
      const detail = page.locator('aside.detail');
      await detail.getByText('Mean token').waitFor();
      expect(await detail.innerText()).not.toContain('Per output token');
    } finally {
      await leave();
      await cold.close();
    }
  });

  test('a batch of more than ten thousand tokens is shown to its last', async () => {
    const ask = { prompt: 'Many', max_length: 90, batch_size: 128, ignore_eos: true };
    const { run_id } = await generate(target.url, { ...ask, profiling_depth: 'off' });
    await visit({ view: 'analysis', run: run_id });
    await expect.poll(() => page.locator('.slider-text').innerText()).toBe(`${128 * 90} tokens`);
  });

  test('a run whose total is unknown shows its time, and what it recorded', async () => {
    const rest = await fetch(`${target.url}api/profiling/run/${runs[0]}/summary`);
    const summary = (await rest.json()) as Record<string, unknown>;
    await visit({ view: 'history' });
    await page.route(/\/summary/, (r) =>
      r.fulfill({
        contentType: 'application/json',
        body: JSON.stringify({
          ...summary,
          status: 'interrupted',
          total_energy_mj: null,
          total_energy_sd_mj: null,
          net_energy_mj: null,
          request_energy_mj: null,
          joules_per_token: null,
        }),
      }),
    );
    await turnTo(page, at(target.url, { view: 'analysis', run: runs[0] }));
    await page.getByRole('heading', { name: 'Where the time went' }).waitFor();
    await page.getByText('its sensor readings do not cover it').waitFor();
    await chartHas(page, 'icicle', 'shown');
    const text = await page.locator('main').innerText();
    expect(text).not.toMatch(/recorded nothing|depth off|no power source was read/);
  });

  test('a run whose server was killed says how far it came', async () => {
    expectProblems(/WebSocket|ERR_|Failed to load|ECONN/);
    const own = await startTarget('sim:seed=8,period_ms=1,kind=counter');
    try {
      const ask = { prompt: 'Broken off', max_length: 480, batch_size: 160, ignore_eos: true };
      const r = await fetch(`${own.url}api/profiling/generate`, {
        method: 'POST',
        body: JSON.stringify({ ...ask, profiling_depth: 'module', wait: false }),
      });
      const { run_id } = (await r.json()) as { run_id: string };
      await openAt(at(own.url, { view: 'live' }));
      await expect
        .poll(() => page.locator('.now-line').innerText())
        .toMatch(/^Running[\s\S]*token \d/);
      await own.kill();
      await own.restart();
      await page.goto(at(own.url, { view: 'analysis', run: run_id }));
      await page.getByText('This run was interrupted').waitFor();
      await chartHas(page, 'icicle', 'shown');
      expect(await page.locator('main').innerText()).not.toMatch(/recorded nothing|depth off/);
    } finally {
      await leave();
      await own.close();
    }
  });

  test('Live and the stored run agree on the power while the model loads', async () => {
    const cold = await startTarget('sim:seed=11,period_ms=1,kind=counter');
    try {
      await openAt(at(cold.url, { view: 'live' }));
      await page.getByText('Connected').waitFor();
      // The demo model loads within one batch of readings.
      const model_name = 'synthetic:smollm2-135m,layers=4';
      const ask = { model_name, prompt_ids: [1, 2, 3], max_length: 12 };
      const { run_id } = await generate(cold.url, { ...ask, profiling_depth: 'module' });
      await nowSays(/completed/i);
      const [file] = await Promise.all([
        page.waitForEvent('download'),
        page.getByLabel('Power: save data as CSV').click(),
      ]);
      const csv = Buffer.concat(await (await file.createReadStream()).toArray()).toString();
      const [head, ...lines] = csv.trim().split('\r\n');
      const total = head.split(',').indexOf('total_power_mw');
      const live = lines.map((l) => Number(l.split(',')[total]));
      const r = await fetch(`${cold.url}api/profiling/run/${run_id}/power?points=4000`);
      const stored = (await r.json()) as {
        t_ms: number[];
        total_power_mw: number[];
        phases: { phase: string; start_ms: number; end_ms: number }[];
      };
      const load = stored.phases.find((p) => p.phase === 'pre_inference');
      const then = stored.total_power_mw
        .filter((_, i) => stored.t_ms[i] > load!.start_ms && stored.t_ms[i] < load!.end_ms)
        .sort((a, b) => a - b);
      const middle = then[then.length >> 1];
      expect(middle).toBeGreaterThan(15_000); // above idle
      expect(live.some((mw) => Math.abs(mw / middle - 1) < 0.15)).toBe(true);
    } finally {
      await leave();
      await cold.close();
    }
  });

  test('a program is shown as one, without the figures of tokens', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'perjoule-program-'));
    const db = join(folder, 'runs.db');
    const power = 'sim:seed=9,period_ms=1,kind=counter';
    const command = ['exec', '--power', power, '--db', db, '--', 'sh', '-c', 'exit 0'];
    execFileSync(resolve(process.env.PERJOULE_BIN ?? ''), command, { stdio: 'ignore' });
    const own = await startTarget(power, db);
    try {
      await openAt(at(own.url, { view: 'analysis', phase: 'pre_inference', pane: 'rails' }));
      await page.locator('.trail').getByText('Program').waitFor();
      await panel('Rails by phase').getByText('Program').first().waitFor();
      await page.locator('.headline').getByText('Mean power').waitFor();
      const text = await page.locator('main').innerText();
      expect(text).not.toMatch(
        /Pre-inference|Typical token|Model load|profiling overhead: [\d.]+ %/,
      );
      expect(await page.getByLabel('Token', { exact: true }).count()).toBe(0);
      // Without layers no view waits for those that will never come.
      for (const [pane, how] of [
        ['icicle', { net: '1' }],
        ['treemap', { t: '0-100000' }],
        ['map', {}],
      ] as const) {
        await turnTo(page, at(own.url, { view: 'analysis', pane, ...how }));
        await page.locator('#pane').getByText('exec reported no layers.').waitFor();
        await expect.poll(() => page.locator('[aria-busy=true]').count()).toBe(0);
      }
    } finally {
      await leave();
      await own.close();
      rmSync(folder, { recursive: true, force: true });
    }
  });

  test('a power curve with many samples a pixel shows their mean within their range', async () => {
    const answer = await fetch(`${target.url}api/profiling/run/${runs[0]}/power`);
    const raw = (await answer.json()) as Record<string, unknown>;
    const t_ms = raw.t_ms as number[];
    const pairs = t_ms.slice(0, t_ms.length & ~1);
    await visit({ view: 'history' });
    await page.route(/\/power\?/, (r) =>
      r.fulfill({
        contentType: 'application/json',
        body: JSON.stringify({
          ...raw,
          bucket_samples: 9,
          t_ms: pairs,
          cpu_power_mw: null,
          total_power_mw: pairs.map((_, i) => (i % 2 ? 50_000 : 20_000)),
          means: { total_power_mw: pairs.slice(0, pairs.length / 2).map(() => 30_000) },
        }),
      }),
    );
    await turnTo(page, at(target.url, { view: 'analysis', run: runs[0] }));
    await chartHas(page, 'timeline', 'points');
    await page.locator('.canvas[aria-label^="Timeline"]').hover({ position: { x: 600, y: 80 } });
    await expect
      .poll(() => page.locator('.tip').innerText())
      .toMatch(/Total\s+30\.0 W \(20\.0 W to 50\.0 W\)/);
    await panel('Timeline').getByText('power as mean and range').waitFor();
  });

  test('a long prompt makes room for its tags, and a further tag is counted', async () => {
    const prompt = `A prompt that goes on ${'and on '.repeat(60)}`;
    const tags = ['steady', 'night', 'third'];
    await generate(target.url, { prompt, tags, max_length: 3, wait: true });
    await visit({ view: 'history', q: 'A prompt that goes on' });
    const row = page.locator('.runs tbody tr').first();
    await row.getByText('steady').waitFor();
    const cell = await row.locator('td.prompt').boundingBox();
    for (const name of ['steady', 'night', '+1']) {
      const box = await row.locator('.tag', { hasText: name }).boundingBox();
      expect(box && cell && box.x + box.width <= cell.x + cell.width + 1).toBe(true);
      expect(box?.width).toBeGreaterThan(10);
    }
    await expect.poll(() => query().get('q')).toBe('A prompt that goes on');
    await panel('Throughput against energy').waitFor();
  });
});
