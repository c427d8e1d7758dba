// History: searching, filtering, grouping, exporting and deleting stored runs.
import { expect, test } from 'vitest';
import { pointAt } from './charts.ts';
import { button, page, panel, query, runs, scenarios, target, urlHas, visit } from './stage.ts';
import { generate } from './target.ts';

scenarios('History', () => {
  test('search, filters, sorting and paging are done by the server', async () => {
    await visit({ view: 'history' });
    await page.locator('.runs tbody tr').first().waitFor();
    await page.fill('#history-search', 'turbine in the');
    await expect.poll(() => page.locator('.runs tbody tr').count()).toBe(1);
    await urlHas('q', 'turbine in the');
    await button('Clear filters').click();
    await page.getByLabel('Tag').selectOption('pair');
    await expect.poll(() => page.locator('.runs tbody tr').count()).toBe(2);
    await button('Clear filters').click();
    await page.getByRole('columnheader', { name: 'Typical token' }).getByRole('button').click();
    await urlHas('sort', 'joules_per_token_typical');
    await expect
      .poll(() =>
        page.getByRole('columnheader', { name: 'Typical token' }).getAttribute('aria-sort'),
      )
      .toBe('ascending');
    await page.fill('#history-search', 'no such prompt');
    await page.getByText('No run matches these filters.').waitFor();
  });

  test('a run is named where it stands; the name is searched, listed and removed', async () => {
    await visit({ view: 'analysis', run: runs[0] });
    await button('Edit the name and the note').click();
    await page.getByLabel('Name', { exact: true }).fill('after the update');
    await page.getByLabel('Note', { exact: true }).fill('fans at full speed');
    await page.keyboard.press('Enter');
    await expect.poll(() => page.locator('h1').innerText()).toBe('after the update');
    await page.getByText('fans at full speed').waitFor();
    await visit({ view: 'history' });
    await page.fill('#history-search', 'FANS');
    await expect.poll(() => page.locator('.runs tbody tr').count()).toBe(1);
    await page.locator('.runs tbody .prompt strong', { hasText: 'after the update' }).click();
    const detail = page.locator('aside.detail');
    await detail.getByRole('button', { name: 'Edit the name and the note' }).click();
    await detail.getByLabel('Name', { exact: true }).fill('');
    await page.keyboard.press('Escape'); // keeps it
    await detail.locator('h2', { hasText: 'after the update' }).waitFor();
    await detail.getByRole('button', { name: 'Edit the name and the note' }).click();
    await detail.getByLabel('Name', { exact: true }).fill('');
    await detail.getByLabel('Note', { exact: true }).fill('');
    await detail.getByRole('button', { name: 'Save' }).click();
    // The row of the list loses it too, without being loaded anew.
    await expect.poll(() => page.locator('.runs tbody .prompt strong').count()).toBe(0);
  });

  test('a menu closes by Escape and by a press elsewhere', async () => {
    await visit({ view: 'history' });
    await page.locator('.runs tbody tr').first().waitFor();
    const menu = page.locator('details.menu', { hasText: 'Columns' });
    for (const close of [
      () => page.keyboard.press('Escape'),
      () => page.getByRole('heading', { name: 'History' }).click(),
    ]) {
      await menu.locator('summary').click();
      await expect.poll(() => menu.getAttribute('open')).not.toBeNull();
      await close();
      await expect.poll(() => menu.getAttribute('open')).toBeNull();
    }
  });

  test('rows are grouped; groups expand, are ticked together, and are kept in the URL', async () => {
    await visit({ view: 'history' });
    await page.getByLabel('Group the rows by').selectOption('tag');
    const group = page.locator('.group-head', { hasText: 'pair' });
    await expect.poll(() => group.innerText()).toMatch(/pair[\s\S]*2 runs[\s\S]*mJ/);
    await urlHas('group', 'tag');
    await group.getByRole('button', { name: 'pair' }).click();
    await urlHas('unfold', 'pair');
    await page.reload();
    await expect
      .poll(() => page.locator('tbody.group tr:not(.group-head)').allInnerTexts())
      .toHaveLength(2);
    await page.getByLabel('Select the runs of pair').check();
    await expect.poll(() => query().get('ids')?.split(',').sort()).toEqual(runs.slice(1).sort());
    // On a phone each figure of a group has its place.
    await page.setViewportSize({ width: 390, height: 844 });
    const figures = group.locator('td.num:visible');
    await expect
      .poll(
        async () =>
          new Set(
            await figures.evaluateAll((all) => all.map((td) => (td as HTMLElement).offsetTop)),
          ),
      )
      .toHaveProperty('size', 1);
    for (const width of await figures.evaluateAll((all) => all.map((td) => td.clientWidth)))
      expect(width).toBeGreaterThan(60);
  });

  test('headings explain their figures on focus, and stay in sight while the rows scroll', async () => {
    await visit({ view: 'history' }, { height: 420 });
    await page.locator('.runs tbody tr').first().waitFor();
    const sort = page.getByRole('columnheader', { name: 'Typical token' }).getByRole('button');
    await sort.focus();
    await page.keyboard.press('Shift+Tab'); // by keyboard, where the explanation is shown
    await page.keyboard.press('Tab');
    await page
      .locator('.tip')
      .getByText('Median energy of the undisturbed decode tokens')
      .waitFor();
    await page.locator('.tip').getByText('Press to sort by it.').waitFor();
    await panel('Throughput against energy').waitFor(); // below, so that the page is long enough
    await page.evaluate(() => {
      const last = document.querySelector('.runs tbody tr:last-child') as Element;
      window.scrollBy(0, last.getBoundingClientRect().top - 90);
    });
    // Right below the bar of the views.
    await expect.poll(async () => (await sort.boundingBox())?.y).toBeLessThan(80);
    expect((await sort.boundingBox())?.y).toBeGreaterThan(40);
  });

  test('a keystroke that finds the same runs changes nothing in their rows', async () => {
    await visit({ view: 'history', q: 'The turbin' });
    await expect.poll(() => page.locator('.runs tbody tr').count()).toBe(2);
    await panel('Throughput against energy').waitFor(); // whose request must not replace the list
    await page.evaluate(() => {
      const w = window as unknown as { changed: number };
      w.changed = 0;
      new MutationObserver((list) => {
        w.changed += list.length;
      }).observe(document.querySelector('.runs tbody') as Element, {
        subtree: true,
        childList: true,
        attributes: true,
        characterData: true,
      });
    });
    await page.fill('#history-search', 'The turbine');
    await urlHas('q', 'The turbine');
    await expect.poll(() => page.locator('section.list').getAttribute('aria-busy')).toBe('false');
    expect(await page.evaluate(() => (window as unknown as { changed: number }).changed)).toBe(0);
    // The link is brought up to date when it is pointed at.
    const link = page.locator('.runs tbody a.tool').first();
    await pointAt(link);
    const address = new URLSearchParams((await link.getAttribute('href')) ?? '');
    expect(address.get('q')).toBe('The turbine');
  });

  test('the detail of a run, and its exports', async () => {
    await visit({ view: 'history', run: runs[1] });
    const detail = page.locator('aside.detail');
    await detail.getByText('Figures').waitFor();
    expect(await detail.innerText()).toContain('The turbine');
    for (const [label, extension] of [
      ['JSON, whole run', 'json'],
      ['CSV, one file per table (zip)', 'zip'],
      ['Trace for Perfetto', 'trace.json'],
    ]) {
      await detail.getByText('Export').click();
      const [file] = await Promise.all([
        page.waitForEvent('download'),
        detail.getByRole('button', { name: label }).click(),
      ]);
      expect(file.suggestedFilename()).toBe(`perjoule-${runs[1]}.${extension}`);
      const bytes = Buffer.concat(await (await file.createReadStream()).toArray());
      expect(bytes.subarray(0, 2).toString()).toMatch(extension === 'zip' ? /^PK/ : /^[{[]/);
    }
  });

  test('deleting asks first', async () => {
    const doomed = (
      await generate(target.url, { prompt: 'To be deleted', max_length: 3, wait: true })
    ).run_id;
    await visit({ view: 'history', q: 'To be deleted' });
    await button(/^Delete To be deleted/).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Delete this run?').waitFor();
    await dialog.getByRole('button', { name: 'Keep' }).click();
    expect((await fetch(`${target.url}api/profiling/run/${doomed}/summary`)).status).toBe(200);
    await button(/^Delete To be deleted/).click();
    await dialog.getByRole('button', { name: 'Delete' }).click();
    await page.getByText('No run matches these filters.').waitFor();
    expect((await fetch(`${target.url}api/profiling/run/${doomed}/summary`)).status).toBe(404);
  });

  test('many ticked runs are tagged, exported, and deleted after confirmation', async () => {
    const lot = `lot ${Date.now()}`; // another one if it is tried again
    const prompts = ['One', 'Two', 'Three'].map((n) => `${n} of ${lot}`);
    for (const prompt of prompts) await generate(target.url, { prompt, max_length: 3, wait: true });
    await visit({ view: 'history', q: `of ${lot}` });
    await expect.poll(() => page.locator('.runs tbody tr').count()).toBe(3);
    await page.getByLabel('Select all runs of this page').check();
    await page.locator('.bulk [role=status]').getByText('3 selected').waitFor();
    await page.locator('.bulk').getByText('Tag', { exact: true }).click();
    await page.getByLabel('Tag of the selected runs').fill('by hand');
    await button('Add').click();
    await expect.poll(() => page.locator('.runs .tag', { hasText: 'by hand' }).count()).toBe(3);
    await button('Remove').click();
    await expect.poll(() => page.locator('.runs .tag').count()).toBe(0);
    await page.locator('.bulk').getByText('Export').click();
    const [file] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Figures of the 3 selected, CSV' }).click(),
    ]);
    const csv = Buffer.concat(await (await file.createReadStream()).toArray()).toString();
    expect(csv.trim().split('\r\n')).toHaveLength(4);
    for (const p of prompts) expect(csv).toContain(p);
    await page.locator('.bulk').getByRole('button', { name: 'Delete' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Delete 3 runs?').waitFor();
    await dialog.getByRole('button', { name: 'Keep' }).click();
    await dialog.waitFor({ state: 'hidden' });
    expect(await page.locator('.runs tbody tr').count()).toBe(3);
    await page.locator('.bulk').getByRole('button', { name: 'Delete' }).click();
    await dialog.getByRole('button', { name: 'Delete' }).click();
    await page.getByText('No run matches these filters.').waitFor();
    await expect.poll(() => query().get('ids')).toBe(null);
  });

  test('back and forward restore the view', async () => {
    await visit({ view: 'history' });
    await page.locator('.runs tbody tr').first().waitFor();
    await page.getByRole('link', { name: 'Live', exact: true }).click();
    await page.getByLabel('Start a run').waitFor();
    await page.goBack();
    await page.locator('.runs tbody tr').first().waitFor();
    await page.goForward();
    await page.getByLabel('Start a run').waitFor();
  });

  test('columns can be chosen, and the choice is in the URL', async () => {
    await visit({ view: 'history' });
    const head = page.locator('.runs th.c-duration');
    await head.waitFor();
    await page.getByText('Columns', { exact: true }).click();
    await page.getByRole('checkbox', { name: 'Duration' }).uncheck();
    await expect.poll(() => head.isVisible()).toBe(false);
    await urlHas('hide', /duration/);
    await page.goBack();
    await expect.poll(() => head.isVisible()).toBe(true);
  });

  test('each filter is applied by the server and kept in the URL', async () => {
    await visit({ view: 'history' });
    const rows = page.locator('.runs tbody tr');
    await rows.first().waitFor();
    const facets = (await (await fetch(`${target.url}api/profiling/facets`)).json()) as Record<
      string,
      { name: string; runs: number }[]
    >;
    const offered = JSON.parse(JSON.stringify(facets)) as typeof facets;
    for (const list of ['engines', 'dtypes', 'machines', 'experiments'])
      offered[list] = [...(facets[list] ?? []), { name: 'another', runs: 0 }];
    await page.route(/\/facets/, (r) =>
      r.fulfill({ contentType: 'application/json', body: JSON.stringify(offered) }),
    );
    await page.reload();
    for (const [label, list, name] of [
      ['Model', 'models', 'model'],
      ['Status', 'statuses', 'status'],
      ['Engine', 'engines', 'engine'],
      ['Weights', 'dtypes', 'dtype'],
      ['Machine', 'machines', 'machine'],
      ['Experiment', 'experiments', 'experiment'],
    ]) {
      const { name: value, runs: count } = offered[list][0];
      await page.getByRole('search').getByLabel(label, { exact: true }).selectOption(value);
      await urlHas(name, value);
      await expect.poll(() => rows.count(), { message: label }).toBe(Math.min(50, count));
      if (!count) await page.getByText('No run matches these filters.').waitFor();
      await button('Clear filters').click();
      await expect.poll(() => query().get(name)).toBe(null);
    }
  });

  test('ranges of joules per token and of dates filter', async () => {
    await visit({ view: 'history' });
    const rows = page.locator('.runs tbody tr');
    await rows.first().waitFor();
    await page.getByLabel('Smallest joules per token').fill('100000');
    await page.getByText('No run matches these filters.').waitFor();
    await page.getByLabel('Smallest joules per token').fill('');
    await rows.first().waitFor();
    await page.getByLabel('to', { exact: true }).fill('2001-01-01');
    await page.getByText('No run matches these filters.').waitFor();
    await button('Clear filters').click();
    await rows.first().waitFor();
  });

  test('tasks, and commits that a gate measured, have their sums; a click lists the runs', async () => {
    const tag = (id: string, change: string) =>
      fetch(`${target.url}api/profiling/run/${id}/tags?${change}`, { method: 'POST' });
    await tag(runs[0], 'add=session%3Dfix-parser&add=commit%3D1111aaaa2222bbbb');
    await tag(runs[1], 'add=session%3Dfix-parser');
    await visit({ view: 'history' });
    const sessions = panel('Sessions').locator('tbody tr');
    await expect.poll(() => sessions.count()).toBe(1);
    expect(await sessions.locator('td').nth(1).innerText()).toBe('2');
    expect(await sessions.locator('td').nth(4).innerText()).toMatch(/J/);
    await panel('Commits').getByRole('link', { name: '1111aaaa2222', exact: true }).click();
    await urlHas('tag', 'commit=1111aaaa2222bbbb');
    await expect.poll(() => page.locator('.runs tbody tr').count()).toBe(1);
    for (const id of runs.slice(0, 2))
      await tag(id, 'remove=session%3Dfix-parser&remove=commit%3D1111aaaa2222bbbb');
    await visit({ view: 'history' });
    await page.locator('.runs tbody tr').first().waitFor();
    await expect.poll(() => panel('Sessions').count()).toBe(0);
  });

  test('all matching runs are plotted by throughput and energy, with front and knee', async () => {
    await visit({ view: 'history' });
    const chart = panel('Throughput against energy');
    await chart.locator('[role=img]').waitFor();
    expect(await chart.locator('[role=img]').getAttribute('aria-label')).toMatch(
      /Scatter of \d+ runs .* on the Pareto front/,
    );
    await chart.getByLabel('Throughput against energy: view as table').click();
    const head = await chart.locator('.data-table thead').innerText();
    expect(head).toMatch(/pareto/);
    expect(head).toMatch(/knee/);
    expect(await chart.locator('.data-table tbody tr', { hasText: 'yes' }).count()).toBeGreaterThan(
      0,
    );
  });
});
