// Analysis: every view of the structure pane below the time canvas.
import { expect, test } from 'vitest';
import type { How } from './browser.ts';
import { chartHas, clickMark, steady } from './charts.ts';
import { button, page, panel, query, runs, scenarios, urlHas, visit } from './stage.ts';

scenarios('the structure of a run', () => {
  const openRun = (more: Record<string, string> = {}, how: How = {}) =>
    visit({ view: 'analysis', run: runs[0], ...more }, how);

  test('scatter and box plot follow the filters of phase and confidence', async () => {
    await openRun({ pane: 'samples' });
    const all = (await chartHas(page, 'scatter', 'shown')) as number;
    const phase = panel('Samples by phase').locator('button.legend-item').last();
    await phase.click();
    await expect.poll(async () => chartHas(page, 'scatter', 'shown')).toBeLessThan(all);
    await phase.click();
    await expect.poll(async () => chartHas(page, 'scatter', 'shown')).toBe(all);
    const slider = page.getByLabel('Smallest phase confidence');
    await slider.fill('1');
    await urlHas('confidence', '100');
    await expect
      .poll(() =>
        page.evaluate(() => (window.__test!.scatter as unknown as { shown: number }).shown),
      )
      .toBeLessThanOrEqual(all);
  });

  test('a cell of the heatmap sets the scope and leads to its operations', async () => {
    await openRun({ pane: 'heatmap' });
    const [, n] = (await chartHas(page, 'heatmap', 'shape')) as number[];
    const names = (await page.evaluate(
      () =>
        (window.__test!.heatmap as unknown as { grid: { components: string[] } }).grid.components,
    )) as string[];
    const j = names.indexOf('attention');
    expect(j).toBeGreaterThanOrEqual(0);
    await clickMark(page, 'heatmap', 1 * n + j);
    await urlHas('layer', '1');
    await urlHas('component', 'attention');
    const operations = panel('Layer 1, attention');
    for (const op of ['qk_matmul', 'softmax', 'value_matmul'])
      await operations.getByText(op).first().waitFor();
    expect(await operations.innerText()).toMatch(/±|\(.* to .*\)/);
  });

  test('metric, colours, and sum, mean or median change what the heatmap shows', async () => {
    await openRun({ pane: 'heatmap' });
    await chartHas(page, 'heatmap', 'shape');
    const first = () =>
      page.evaluate(
        () => (window.__test!.heatmap as unknown as { grid: { values: number[] } }).grid.values[0],
      );
    const sum = await first();
    await page.getByLabel('Heatmap').getByRole('button', { name: 'Mean' }).click();
    await urlHas('per', 'mean');
    await expect.poll(first).toBeLessThan(sum / 10);
    const mean = await first();
    await page.getByLabel('Heatmap').getByRole('button', { name: 'Median' }).click();
    await expect.poll(first).not.toBe(mean);
    await page.getByLabel('Colours').selectOption('log');
    await urlHas('scale', 'log');
    await panel('Heatmap').getByText('logarithmic').waitFor();
    for (const scale of ['linear', 'robust']) {
      await page.getByLabel('Colours').selectOption(scale);
      await urlHas('scale', scale);
      await expect
        .poll(() => panel('Heatmap').locator('.legend').first().innerText())
        .not.toContain('logarithmic');
    }
    for (const metric of [
      'time',
      'power',
      'activation_mean',
      'activation_max',
      'activation_sparsity',
      'attention_entropy',
    ]) {
      await page.getByLabel('Metric', { exact: true }).selectOption(metric);
      await urlHas('metric', metric);
      await expect
        .poll(() => panel('Heatmap').locator('.note').first().innerText())
        .not.toMatch(/^Energy/);
      await expect.poll(() => panel('Heatmap').locator('[role=img]').count()).toBe(1);
    }
  });

  test('the token slider plays and pauses with Space', async () => {
    await openRun({ pane: 'heatmap' });
    await chartHas(page, 'heatmap', 'shape');
    await page.getByLabel('Token', { exact: true }).fill('3');
    await urlHas('token', '3');
    await page.locator('h1').first().click();
    await page.keyboard.press(' ');
    await button('Pause').waitFor();
    // The address follows when it pauses.
    const token = async () => Number(await page.getByLabel('Token', { exact: true }).inputValue());
    await expect.poll(token).toBeGreaterThan(5);
    await page.keyboard.press(' ');
    await button('Play the tokens').waitFor();
    await urlHas('token', String(await token()));
  });

  test('the icicle merges or separates layers; a click zooms in, breadcrumbs zoom out', async () => {
    await openRun();
    await expect
      .poll(async () => ((await chartHas(page, 'icicle', 'shown')) as string[]).join())
      .not.toMatch(/Layer \d/);
    await button('Layers apart').click();
    await urlHas('layers', 'apart');
    await expect
      .poll(async () => ((await chartHas(page, 'icicle', 'shown')) as string[]).join())
      .toMatch(/Layer 1/);
    const spot = await steady(() =>
      page.evaluate(() => {
        const c = window.__test!.icicle as unknown as {
          root: {
            children: { data: { node: { name: string } }; x0: number; x1: number; y0: number }[];
          };
          host: HTMLElement;
        };
        c.host.scrollIntoView({ block: 'center' });
        const box = c.host.getBoundingClientRect();
        const d = c.root.children.find((n) => n.data.node.name === 'decode');
        if (!d) throw new Error('no decode');
        return { x: box.left + (d.x0 + d.x1) / 2, y: box.top + d.y0 + 8 };
      }),
    );
    await page.mouse.click(spot.x, spot.y);
    await urlHas('phase', 'decode');
    await page
      .getByLabel('Breadcrumbs')
      .getByRole('button', { name: /Decode/ })
      .click();
    await expect.poll(() => query().get('phase')).toBe(null);
    // A click on a component goes to that component, as its tip says.
    await button('Merged').click();
    await expect
      .poll(async () => ((await chartHas(page, 'icicle', 'shown')) as string[]).join())
      .not.toMatch(/Layer \d/);
    const part = await steady(() =>
      page.evaluate(() => {
        const c = window.__test!.icicle as unknown as {
          root: {
            descendants: () => {
              data: { node: { name: string; kind: string } };
              depth: number;
              x0: number;
              x1: number;
              y0: number;
            }[];
          };
          host: HTMLElement;
        };
        const box = c.host.getBoundingClientRect();
        const widest = c.root
          .descendants()
          .filter((n) => n.data.node.kind === 'component')
          .sort((a, b) => b.x1 - b.x0 - (a.x1 - a.x0))[0];
        return {
          name: widest.data.node.name,
          x: box.left + (widest.x0 + widest.x1) / 2,
          y: box.top + widest.y0 + 8,
        };
      }),
    );
    await page.mouse.click(part.x, part.y);
    await urlHas('component', part.name);
    expect(query().get('phase')).not.toBe(null);
  });

  test('the Sankey diagram shows attention, MLP and the model load', async () => {
    await openRun({ pane: 'sankey' });
    const label = () => page.locator('svg.sankey').getAttribute('aria-label');
    await expect.poll(label).toMatch(/Attention [\d.]+ %/);
    expect(await label()).toMatch(/MLP [\d.]+ %/);
    expect(
      await page.locator('svg.sankey title', { hasText: /Model load|Set-up/ }).count(),
    ).toBeGreaterThan(0);
  });

  test('the Sankey diagram is operated by keyboard, and Enter narrows the scope', async () => {
    await openRun({ pane: 'sankey' });
    await page.locator('svg.sankey').focus();
    const told = () => page.locator('.tip').innerText();
    await page.keyboard.press('Home');
    await expect.poll(told).toMatch(/Of the run[\s\S]*To /);
    const first = await told();
    await page.keyboard.press('ArrowDown');
    await expect.poll(told).not.toBe(first);
    await page.keyboard.press('ArrowRight');
    await expect.poll(told).toMatch(/From /); // what nothing flows out of, such as disturbances, has no "To"
    await page.keyboard.press('End');
    await expect.poll(told).toMatch(/From /);
    await page.keyboard.press('Home');
    await page.keyboard.press('Enter');
    await expect.poll(() => query().get('phase')).toBeTruthy();
    await page.locator('.sankey-node').nth(1).waitFor();
    expect(
      await page.locator('svg.sankey title', { hasText: /^(Prefill|Decode): / }).count(),
    ).toBeLessThan(2);
  });

  test('price and carbon intensity are set in the page, kept in the URL, and applied to the cost', async () => {
    await openRun({ pane: 'figures' });
    const value = (label: string) =>
      panel('Figures')
        .locator('dt', { hasText: new RegExp(`^${label}$`) })
        .locator('xpath=following-sibling::dd[1]')
        .innerText();
    const scale: Record<string, number> = { nUSD: 1e-9, µUSD: 1e-6, mUSD: 1e-3 };
    const number = async (label: string) => {
      const [, amount, unit] = /([\d.e-]+) ?(\S*)/.exec(await value(label)) ?? [];
      return Number(amount) * (scale[unit] ?? 1);
    };
    const [cost, grams] = [await number('Cost'), await number('CO₂')];
    await page.getByLabel('Price, USD per kWh').fill('1.2');
    await page.keyboard.press('Enter');
    await urlHas('usd', '1.2');
    if (cost) await expect.poll(async () => (await number('Cost')) / cost).toBeCloseTo(10, 0);
    await page.getByLabel('Carbon, g CO₂ per kWh').fill('40');
    await page.keyboard.press('Tab');
    await urlHas('co2', '40');
    if (grams) await expect.poll(async () => grams / (await number('CO₂'))).toBeCloseTo(10, 0);
    const told = await value('Cost');
    await page.reload();
    await expect.poll(() => value('Cost')).toBe(told);
  });

  test('rails by phase: stacked, in percent, with the peak of each and its time', async () => {
    await openRun({ pane: 'rails' });
    const rails = panel('Rails by phase');
    await rails.locator('table.rails').waitFor();
    const decode = rails.getByRole('row', { name: /^Decode/ });
    expect(await decode.innerText()).toMatch(/J\s+[\d.]+ %/);
    expect(await decode.locator('rect').first().getAttribute('width')).toMatch(/[1-9]/);
    await expect.poll(() => rails.innerText()).toMatch(/Peaks: cpu [\d.]+ W at [\d.]+ m?s/);
  });

  test('a bar of the waterfall and a bar of the histogram choose a token', async () => {
    await openRun({ pane: 'tokens' });
    await chartHas(page, 'waterfall', 'count');
    await clickMark(page, 'waterfall', 6);
    await urlHas('token', '6');
    await page.locator('.scope-bar').getByText('Token 6').waitFor();
    // reset: the token with the highest energy may be the one selected above
    await openRun({ pane: 'tokens' });
    await chartHas(page, 'histogram', 'count');
    await page.locator('.canvas[aria-label^="Histogram"]').focus();
    await page.keyboard.press('End');
    await page.keyboard.press('Enter');
    await expect.poll(() => query().get('token')).toMatch(/^\d+$/);
  });
});
