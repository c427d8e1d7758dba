// Compare: runs side by side, and which conclusions are shown.
import { expect, test } from 'vitest';
import { at, turnTo } from './browser.ts';
import { pointAt } from './charts.ts';
import { button, page, panel, query, runs, scenarios, target, urlHas, visit } from './stage.ts';
import { generate } from './target.ts';

scenarios('Compare', () => {
  test('two to four runs are ticked and compared', async () => {
    await visit({ view: 'history', q: 'turbine' });
    await page.locator('.runs tbody tr').nth(1).waitFor();
    expect(await page.getByRole('button', { name: 'Compare', exact: true }).isDisabled()).toBe(
      true,
    );
    for (const i of [0, 1]) await page.locator('.runs tbody input[type=checkbox]').nth(i).check();
    await page.getByRole('button', { name: 'Compare', exact: true }).click();
    await urlHas('view', 'compare');
    await urlHas('ids', /,/);
    await panel('Metrics').waitFor();
    for (const title of [
      'Metrics',
      'Settings that differ',
      'Why B differs from A',
      'From A to B',
      'Ratios',
      'Differences',
      'Power over time',
      'Energy by token',
      'Phases',
      'Components',
      'Throughput against energy',
    ]) {
      await panel(title).waitFor();
      expect(await panel(title).getByRole('alert').count(), title).toBe(0);
    }
    // one run per side allows no test, so no side is called the best anywhere
    const verdict = await page.getByRole('region', { name: 'Verdict' }).innerText();
    expect(verdict).toMatch(/not decided by one run on each side/);
    expect(verdict).toMatch(/not tested against/);
    expect(verdict).not.toMatch(/tied/);
    expect(verdict).not.toMatch(/(Most efficient|Fastest|Lowest energy): [AB] /);
    const word = panel('Metrics').getByRole('button', { name: 'Energy-delay product' });
    await word.focus();
    await page.keyboard.press('Shift+Tab');
    await page.keyboard.press('Tab');
    await expect
      .poll(() => page.locator('.tip').innerText())
      .toMatch(/Unit[\s\S]*J·s[\s\S]*docs\//);
    for (const [title, head] of [
      ['Phases', 'Phases'],
      ['Components', 'Components'],
      ['From A to B', 'Energy per token'],
      ['Differences', 'p corrected'],
    ]) {
      const name = panel(title).getByRole('button', { name: head, exact: true });
      await pointAt(name);
      await expect
        .poll(() => page.locator('.tip').innerText(), { message: title })
        .toMatch(/What[\s\S]*docs\//);
    }
    // A logarithmic axis: a ratio and its inverse are equally far from 1.
    const axis = panel('Ratios').locator('.ratio-marks span');
    const at = new Map(
      await axis.evaluateAll((l) =>
        l.map((e): [number, number] => [
          Number(e.textContent?.slice(1).replace(',', '')),
          Number.parseFloat((e as HTMLElement).style.left),
        ]),
      ),
    );
    expect(at.get(1)).toBeCloseTo(50, 6);
    const others = [...at.keys()].filter((r) => r > 1);
    expect(others.length).toBeGreaterThan(0);
    for (const r of others) {
      // The mark opposite; labels are rounded to one digit.
      const mirror = [...at].find(([, x]) => Math.abs(x + (at.get(r) ?? 0) - 100) < 0.01);
      expect(Math.abs((mirror?.[0] ?? 0) * r - 1), `×${r}`).toBeLessThan(0.25);
    }
    const tests = await panel('Differences').innerText();
    expect(tests).toMatch(/p/);
    expect(tests).toMatch(/±|\(.* to .*\)/);
    const rows = await panel('Metrics').locator('tbody tr').count();
    await page.getByLabel('Only differences').check();
    await urlHas('diff', '1');
    expect(await panel('Metrics').locator('tbody tr').count()).toBeLessThanOrEqual(rows);
    const ids = query().get('ids') ?? '';
    await button('Make baseline').click();
    await expect.poll(() => query().get('ids')).toBe(ids.split(',').reverse().join(','));
  });

  test('tokens that the machine disturbed do not flatten the others: the axis becomes logarithmic', async () => {
    const ids = runs.slice(0, 2).join();
    const axis = () =>
      page.evaluate(() => (window.__test!.overlayTokens as { yAxis: { log: boolean } }).yAxis.log);
    await visit({ view: 'history' });
    let planted = 1;
    await page.route('**/tokens*', async (r) => {
      const answer = await r.fetch();
      const body = (await answer.json()) as { tokens: { energy_mj: number }[] };
      for (const t of body.tokens) t.energy_mj = 100;
      body.tokens[9].energy_mj *= planted;
      await r.fulfill({ response: answer, json: body });
    });
    for (const [factor, log] of [
      [2, false],
      [90, true],
    ] as const) {
      planted = factor;
      await turnTo(page, at(target.url, { view: 'compare', ids }));
      await panel('Energy by token')
        .getByText(/by position/)
        .waitFor();
      await expect.poll(axis).toBe(log);
      expect((await panel('Energy by token').innerText()).includes('logarithmic')).toBe(log);
    }
  });

  test('on a phone each table of the comparison is as wide as the screen', async () => {
    await visit({ view: 'compare', ids: `${runs[0]},${runs[1]}` }, { width: 390, height: 844 });
    for (const title of ['Settings that differ', 'From A to B', 'Metrics', 'Differences']) {
      const table = panel(title).locator('table');
      await table.waitFor();
      const wide = await table.evaluate((t) => [
        t.scrollWidth,
        (t.parentElement as HTMLElement).clientWidth,
      ]);
      expect(wide[0], title).toBeLessThanOrEqual(wide[1]);
    }
    expect(
      await panel('Differences')
        .locator('td')
        .first()
        .evaluate((t) => getComputedStyle(t, '::before').content),
    ).toContain('Sides');
  });

  test('prompts given as token ids are as narrow as a phone', async () => {
    const prompt_ids = Array.from({ length: 60 }, (_, i) => 300 + i);
    const ids: string[] = [];
    for (const dtype of ['bf16', 'q8_0'])
      ids.push((await generate(target.url, { prompt_ids, dtype, max_length: 8 })).run_id);
    const wide = () => page.evaluate(() => document.documentElement.scrollWidth);
    await visit({ view: 'compare' }, { width: 390, height: 844 });
    await page.locator('.choice', { hasText: '60 token ids' }).first().waitFor();
    expect(await wide()).toBeLessThanOrEqual(390);
    await turnTo(page, at(target.url, { view: 'compare', ids: `${ids[0]},${runs[0]}` }));
    const settings = panel('Settings that differ');
    await settings.getByText(/^token ids 300,301/).waitFor();
    expect(await wide()).toBeLessThanOrEqual(390);
    const table = settings.locator('table');
    const [inner, outer] = await table.evaluate((t) => [
      t.scrollWidth,
      (t.parentElement as HTMLElement).clientWidth,
    ]);
    expect(inner).toBeLessThanOrEqual(outer);
  });

  test('groups of runs are compared by any setting, with one verdict', async () => {
    await visit({ view: 'compare' });
    await page.getByLabel('Group runs by').selectOption('tag');
    await urlHas('by', 'tag');
    await panel('Groups').waitFor();
    await panel('Groups').getByText('pair').first().waitFor();
    await page.getByRole('region', { name: 'Verdict' }).waitFor();
    await panel('Ratios').waitFor();
    // What differs comes first, as it does for two runs.
    const titles = await page
      .locator('section.panel')
      .evaluateAll((l) => l.map((e) => e.getAttribute('aria-label')));
    expect(titles.indexOf('Settings that differ')).toBeLessThan(titles.indexOf('Verdict'));
  });

  test('groups of several runs are tested, and the verdict has an effect size', async () => {
    // Until enough of them were not disturbed by other tests.
    for (let round = 0; round < 12; round++) {
      const ask = 'api/profiling/compare/groups?by=dtype&tag=grouped';
      const d = (round > 2 && (await (await fetch(`${target.url}${ask}`)).json())) as {
        verdicts: { p: number | null }[];
      };
      if (d && d.verdicts[0]?.p !== null) break;
      for (const dtype of ['bf16', 'q8_0'])
        await generate(target.url, {
          prompt: 'Grouped',
          tags: ['grouped'],
          dtype,
          max_length: 24,
        });
    }
    await visit({ view: 'compare', by: 'dtype', tag: 'grouped' });
    const verdict = page.getByRole('region', { name: 'Verdict' });
    await verdict
      .getByText(/\d against \d+ runs, p [<\d. ]+, effect size [\d.]+ \(Hedges g\)/)
      .waitFor();
    const row = panel('Differences').locator('tbody tr').first();
    expect(await row.innerText()).toMatch(/bf16\s+q8_0/);
  });
});
