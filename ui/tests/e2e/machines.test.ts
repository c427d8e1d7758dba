// Servers of their own: the machines of a fleet, a mixture of experts, the progress of a model load, and a
// run that was killed.
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { axe } from './axe.ts';
import { at, until } from './browser.ts';
import { chartHas } from './charts.ts';
import { writeMixture } from './moe.ts';
import { leave, nowSays, openAt, page, panel, scenarios, target, urlHas, visit } from './stage.ts';
import { DEMO, generate, startTarget, type Target } from './target.ts';

const SIM = 'sim:seed=5,period_ms=1,kind=counter';

scenarios('machines and their models', () => {
  const withServer = async (
    args: string[],
    body: (own: Target) => Promise<void>,
  ): Promise<void> => {
    const own = await startTarget(SIM, undefined, args);
    try {
      await body(own);
    } finally {
      // Close the page first: its requests to a stopped server would count as errors.
      await leave();
      await own.close();
    }
  };

  test('Machines lists this one with its runs, energy and sensors', async () => {
    await visit({ view: 'machines' });
    const row = page.locator('table.machines tbody tr');
    await row.first().waitFor();
    expect(await row.count()).toBe(1);
    const cell = (label: string) => row.locator(`td[data-label="${label}"]`).innerText();
    expect(await cell('Runs')).toBe('3');
    expect(await cell('Sensors')).toContain('sim');
    expect(await cell('Energy today (UTC)')).toMatch(/\d.* [mk]?J[\s\S]*modelled/);
    expect(await cell('Last seen')).toMatch(/now|s ago|min/);
    // Its runs are one click away.
    await row.getByRole('link', { name: /^3 runs/ }).click();
    await urlHas('view', 'history');
    await urlHas('machine', /.+/);
    await expect.poll(() => page.locator('.runs tbody tr').count()).toBe(3);
  });

  test('Machines has no WCAG A or AA violation in either theme, and fits a phone', async () => {
    await visit({ view: 'machines' });
    await page.locator('table.machines tbody tr').first().waitFor();
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

  test('a joined machine is watched: its run, power and text; the URL restores it', () =>
    withServer(['--join-token', 'a secret of the fleet'], async (fleet) => {
      const join = [
        '--join',
        fleet.url.replace(/\/$/, ''),
        '--join-token',
        'a secret of the fleet',
      ];
      await withServer(join, async (member) => {
        await openAt(at(fleet.url, { view: 'machines' }));
        const watch = page.getByRole('button', { name: /^Watch/ });
        await watch.waitFor();
        await watch.click();
        await urlHas('watch', /.+/);
        const shown = page.getByRole('region', { name: /^Live: / });
        await shown.getByText('Nothing has run since').waitFor();
        const made = generate(member.url, { prompt: 'Far away', max_length: 200, batch_size: 8 });
        await shown.getByText(/Far away/).waitFor();
        await expect.poll(() => shown.locator('.words').innerText()).toMatch(/\w{3}/);
        await made;
        await page.reload();
        await shown.getByText('Nothing has run since').waitFor();
      });
    }));

  test('the progress of a model load is shown, in layers', () =>
    withServer([], async (own) => {
      await openAt(at(own.url, { view: 'live' }));
      await page.getByText('Connected').waitFor();
      // Noted in the page as it is shown, because this test may be slower than the load.
      await page.evaluate(() => {
        const shown: [number, string][] = [];
        window.__test!.shown = shown;
        const note = () => {
          const bar = document.querySelector<HTMLProgressElement>('progress.loading[value]');
          const line = document.querySelector('.now-line')?.textContent ?? '';
          if (bar) shown.push([bar.value / bar.max, line]);
        };
        const all = { subtree: true, childList: true, attributes: true, characterData: true };
        new MutationObserver(note).observe(document.body, all);
      });
      // Converting a hundred million weights takes long enough to be seen.
      await generate(own.url, {
        model_name: 'synthetic:smollm2-135m',
        dtype: 'q8_0',
        prompt: 'abc',
        max_length: 4,
      });
      await nowSays(/completed/i);
      const shown = (await page.evaluate(() => window.__test!.shown)) as [number, string][];
      const shares = shown.map(([share]) => share);
      expect(new Set(shares).size).toBeGreaterThan(2);
      expect(shares).toEqual([...shares].sort((x, y) => x - y));
      for (const [, line] of shown) expect(line).toMatch(/Loading the model.*\d+ of 30 layers/);
    }));

  test('a run that was killed says so, without figures or remarks that it cannot know', () =>
    withServer([], async (own) => {
      await openAt(at(own.url, { view: 'live' }));
      await page.getByText('Connected').waitFor();
      const answer = await fetch(`${own.url}api/profiling/generate`, {
        method: 'POST',
        body: JSON.stringify({
          model_name: 'synthetic:smollm2-135m',
          prompt: 'Doomed',
          max_length: 2000,
          wait: false,
        }),
      });
      const { run_id: id } = (await answer.json()) as { run_id: string };
      await nowSays(/Running[\s\S]*token [1-9]/);
      await leave();
      await own.kill();
      await own.restart();
      const summary = async () =>
        (await (await fetch(`${own.url}api/profiling/run/${id}/summary`)).json()) as {
          status: string;
          total_energy_mj: number | null;
        };
      await expect.poll(async () => (await summary()).status).toBe('interrupted');
      await openAt(at(own.url, { view: 'analysis', run: id }));
      await page.locator('.run-head .badge', { hasText: 'interrupted' }).waitFor();
      await expect.poll(() => page.locator('[aria-busy=true]').count()).toBe(0);
      const text = await page.locator('main').innerText();
      expect(text).not.toMatch(/depth off|no sensor could be read/i);
      if ((await summary()).total_energy_mj === null) {
        expect(text).not.toMatch(/\d ± \d[\d.]* [mµn]?J/);
        expect(text).toMatch(/unavailable/);
      } else expect(text).toMatch(/Where the energy went/);
    }));

  test('a mixture of experts shows who was chosen, by layer', async () => {
    const models = mkdtempSync(join(tmpdir(), 'perjoule-models-'));
    writeMixture(models, 'mixture', DEMO);
    cpSync(DEMO, join(models, 'demo'), { recursive: true });
    try {
      await withServer(['--models', models], async (own) => {
        const { run_id } = await generate(own.url, {
          model_name: 'mixture',
          prompt: 'Once upon a time',
          max_length: 40,
          ignore_eos: true,
        });
        await openAt(at(own.url, { view: 'analysis', run: run_id }));
        await page.getByRole('tab', { name: 'Experts' }).click();
        await urlHas('pane', 'experts');
        const [layers, experts] = (await chartHas(page, 'experts', 'shape')) as number[];
        expect([layers, experts]).toEqual([2, 4]);
        const text = await panel('Experts').innerText();
        expect(text).toMatch(/Over the whole run/);
        expect(text).toMatch(/Experts per token\s+2[\d.]* of 4/);
        expect(text).toMatch(/Load balance/);
        await panel('Experts')
          .getByRole('button', { name: /view as table/ })
          .click();
        const cells = await page
          .getByLabel('Experts, table')
          .locator('tbody tr')
          .first()
          .locator('td')
          .allInnerTexts();
        const loads = cells.slice(1).map(Number);
        expect(loads).toHaveLength(4);
        expect(loads.reduce((a, x) => a + x)).toBeCloseTo(1, 2);
        // A run of a dense model has no such view.
        await page.goto(at(target.url, { view: 'analysis' }));
        await page.getByRole('tab', { name: 'Icicle' }).waitFor();
        expect(await page.getByRole('tab', { name: 'Experts' }).count()).toBe(0);
      });
    } finally {
      rmSync(models, { recursive: true, force: true });
    }
  });
});
