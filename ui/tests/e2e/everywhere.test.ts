// Properties of all views: accessibility, phone layout, keyboard, themes and the content security policy.
import { expect, test } from 'vitest';
import { axe } from './axe.ts';
import { until } from './browser.ts';
import { button, page, runs, scenarios, target, urlHas, visit } from './stage.ts';

scenarios('every view', () => {
  const views = (): Record<string, Record<string, string>> => ({
    live: { view: 'live' },
    analysis: {
      view: 'analysis',
      run: runs[0],
      layer: '0',
      component: 'q_proj',
      phase: 'decode',
      pane: 'heatmap',
    },
    history: { view: 'history', run: runs[0] },
    compare: { view: 'compare', ids: `${runs[0]},${runs[1]}` },
    choose: { view: 'compare' },
  });

  for (const name of ['live', 'analysis', 'history', 'compare', 'choose']) {
    for (const dark of [false, true]) {
      test(`${name} has no WCAG A or AA violation in the ${dark ? 'dark' : 'light'} theme`, async () => {
        await visit(views()[name], { dark, height: 7000 });
        await page.locator('.panel').first().waitFor();
        await expect
          .poll(() => page.locator('[aria-busy=true]').count(), { timeout: 30_000 })
          .toBe(0);
        expect(await axe(page)).toEqual([]);
      });
    }

    test(`${name} fits a phone`, async () => {
      await visit(views()[name], { width: 390, height: 844 });
      await page.locator('.panel').first().waitFor();
      await expect
        .poll(() => page.locator('[aria-busy=true]').count(), { timeout: 30_000 })
        .toBe(0);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(
        390,
      );
    });
  }

  test('? shows the keys, 1 to 4 change the view', async () => {
    await visit({ view: 'live' });
    await page.getByLabel('Start a run').waitFor();
    await page.locator('.brand').focus();
    await page.keyboard.press('?');
    await page.getByRole('dialog').getByText('Zoom the time range in, out').waitFor();
    expect(await axe(page)).toEqual([]);
    await page.keyboard.press('Escape');
    await page.keyboard.press('3');
    await urlHas('view', 'history');
    await page.locator('.runs').waitFor();
    await page.keyboard.press('/');
    await until(page, () => document.activeElement?.id === 'history-search', null);
  });

  test('the theme can be chosen and is remembered', async () => {
    await visit({ view: 'live' });
    const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
    expect(await theme()).toBe('light');
    await button(/^Theme/).click();
    await button(/^Theme/).click();
    expect(await theme()).toBe('dark');
    await page.reload();
    await expect.poll(theme).toBe('dark');
  });

  test('the page is served with a strict policy and nothing breaks it', async () => {
    const r = await fetch(target.url);
    expect(r.headers.get('content-security-policy')).toMatch(/default-src 'self'/);
    expect(r.headers.get('content-security-policy')).not.toMatch(/unsafe/);
    await visit({ view: 'live' });
    await page.getByText('Connected').waitFor();
  });
});
