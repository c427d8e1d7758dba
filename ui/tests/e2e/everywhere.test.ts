// Properties of all views: accessibility, phone layout, keyboard, themes and the content security policy.
import { expect, test } from 'vitest';
import { axe } from './axe.ts';
import { at, until } from './browser.ts';
import {
  button,
  nowSays,
  page,
  panel,
  runs,
  scenarios,
  startRun,
  target,
  urlHas,
  visit,
} from './stage.ts';

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

  for (const name of ['live', 'analysis', 'history', 'compare', 'choose'])
    test(`${name} has no WCAG A or AA violation in either theme, and fits a phone and a tablet`, async () => {
      const drawn = async () => {
        await page.locator('.panel').first().waitFor();
        await until(page, () => !document.querySelector('[aria-busy=true]'), null);
      };
      await visit(views()[name], { width: 390, height: 844 });
      for (const width of [390, 768]) {
        await page.setViewportSize({ width, height: 844 });
        await drawn();
        expect(
          await page.evaluate(() => document.documentElement.scrollWidth),
          `at ${width} pixels`,
        ).toBeLessThanOrEqual(width);
      }
      await page.setViewportSize({ width: 1280, height: 7000 });
      for (const theme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme: theme });
        await until(page, (t) => document.documentElement.dataset.theme === t, theme);
        await drawn();
        expect(await axe(page), theme).toEqual([]);
      }
    });

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
    await expect.poll(theme).toBe('dark');
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

  test('every chart outside Analysis gives its data as CSV and its picture as PNG', async () => {
    const charts: [Record<string, string>, string[]][] = [
      [{ view: 'analysis', run: runs[0] }, ['Timeline']],
      [{ view: 'history' }, ['Throughput against energy']],
      [
        { view: 'compare', ids: `${runs[0]},${runs[1]}` },
        ['Power over time', 'Energy by token', 'Throughput against energy', 'Ratios'],
      ],
      [{ view: 'live' }, ['Power', 'Layers and components']],
    ];
    await visit({ view: 'machines' });
    for (const [where, titles] of charts) {
      await page.goto(at(target.url, where));
      if (where.view === 'live') {
        await startRun(16);
        await nowSays(/completed/i);
      }
      for (const title of titles) {
        const p = panel(title);
        await p.locator('[role=img], canvas').first().waitFor();
        for (const [name, start] of [
          [/save data as CSV/, /^[\w, ."()%-]+\r\n[^\r]/],
          [/save picture as PNG/, /^.PNG/],
        ] as const) {
          const [file] = await Promise.all([
            page.waitForEvent('download'),
            p.getByRole('button', { name }).click(),
          ]);
          const bytes = Buffer.concat(await (await file.createReadStream()).toArray());
          expect(bytes.toString('latin1'), title).toMatch(start);
        }
      }
    }
  });
});
