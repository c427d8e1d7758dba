// The timeline as an instrument: nested lanes, flags that read joules, search, the table of the selection; the command
// palette; an advice that is tested where it stands.
import { expect, test } from 'vitest';
import { chartHas } from './charts.ts';
import { button, leave, page, panel, runs, scenarios, target, urlHas, visit } from './stage.ts';

interface Drawn {
  kind: string;
  start: number;
  duration: number;
  energy: number | null;
  usual?: number | null;
}

scenarios('the timeline', () => {
  const tokens = async (): Promise<
    { start_ms: number; duration_ms: number; energy_mj: number }[]
  > => {
    const r = await fetch(`${target.url}api/profiling/run/${runs[0]}/tokens`);
    return ((await r.json()) as { tokens: never[] }).tokens;
  };
  const slices = () =>
    page.evaluate(() =>
      (window.__test!.timeline as unknown as { slices: Drawn[] }).slices.map(
        ({ kind, start, duration, energy, usual }) => ({ kind, start, duration, energy, usual }),
      ),
    );
  const openAround = async (more: Record<string, string> = {}) => {
    const t = (await tokens())[5];
    const [a, b] = [t.start_ms - 0.1, t.start_ms + t.duration_ms + 0.1];
    await visit({ view: 'analysis', run: runs[0], t: `${a.toFixed(3)}-${b.toFixed(3)}`, ...more });
    await expect.poll(async () => (await slices()).some((s) => s.kind === 'operation')).toBe(true);
    return t;
  };

  test('zoomed to a token it nests down to the operation, whose energies are within the token', async () => {
    const t = await openAround();
    const inside = (await slices()).filter(
      (s) => s.start >= t.start_ms && s.start + s.duration <= t.start_ms + t.duration_ms + 1e-3,
    );
    const sum = (kind: string) =>
      inside.filter((s) => s.kind === kind).reduce((a, s) => a + (s.energy ?? 0), 0);
    expect(sum('operation')).toBeGreaterThan(0);
    expect(sum('operation')).toBeLessThanOrEqual(1.01 * sum('component'));
    expect(sum('layer')).toBeLessThanOrEqual(1.01 * t.energy_mj);
    await expect.poll(async () => (await slices()).some((s) => (s.usual ?? 0) > 0)).toBe(true);
  });

  test('two flags read the energy between them, exactly where they cut a step', async () => {
    const t = await openAround();
    const box = await page.locator('.canvas.time').nth(0).boundingBox();
    if (!box) throw new Error('no timeline');
    await page.keyboard.down('Shift');
    await page.mouse.move(box.x + box.width * 0.3, box.y + 60);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.6, box.y + 60, { steps: 5 });
    await page.mouse.up();
    await page.keyboard.up('Shift');
    await urlHas('between', /^[\d.]+-[\d.]+$/);
    const read = () => page.locator('[data-figure=between]');
    await expect.poll(() => read().innerText()).toMatch(/\d.*J/);
    // All of the step is its own energy, however its parts are added up.
    const whole = `${t.start_ms}-${t.start_ms + t.duration_ms}`;
    await leave();
    await visit({ view: 'analysis', run: runs[0], between: whole, unit: 'mJ' });
    await expect.poll(() => read().innerText()).toMatch(/mJ/);
    const mj = Number.parseFloat((await read().innerText()).replace(',', ''));
    expect(Math.abs(mj / t.energy_mj - 1)).toBeLessThan(0.15);
    await page.keyboard.press('Escape');
    await expect.poll(() => read().count()).toBe(0);
  });

  test('a span is found by name, and the next one is a key away', async () => {
    await visit({ view: 'analysis', run: runs[0] });
    await chartHas(page, 'timeline', 'count');
    await page.locator('#find-span').waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type('softmax');
    await urlHas('find', 'softmax'); // on a busy machine its beginning is searched for first, and finds as many
    const status = page.locator('.find [role=status]');
    await expect.poll(() => status.innerText()).toMatch(/^\d+ found/);
    await page.keyboard.press('Enter');
    await expect.poll(() => status.innerText()).toMatch(/^1 of /);
    await urlHas('t', /^[\d.]+-[\d.]+$/);
    await page.keyboard.press('Enter');
    await expect.poll(() => status.innerText()).toMatch(/^2 of /);
  });

  test('the pane Spans sums the selection, sorted by any column', async () => {
    await openAround({ pane: 'spans' });
    const rows = panel('Spans').locator('tbody tr');
    await rows.first().waitFor();
    const cells = (column: number) => rows.locator(`td:nth-child(${column})`).allInnerTexts();
    await panel('Spans').getByRole('button', { name: 'Count' }).click();
    const isSorted = (n: number[]) => n.every((x, i) => i === 0 || n[i - 1] >= x);
    const counts = async () => (await cells(2)).map((x) => Number(x.replaceAll(',', '')));
    await expect.poll(counts).toSatisfy(isSorted);
    await panel('Spans').getByLabel('Level').selectOption('operation');
    await expect.poll(() => rows.first().locator('th').innerText()).toMatch(/›/);
  });

  test('a tall timeline, a pinned track, and panes by key', async () => {
    await openAround();
    await page.keyboard.press('t');
    await urlHas('timeline', 'tall');
    await page.locator('.canvas.time').first().focus();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('p');
    await urlHas('pins', /\w+/);
    await page.keyboard.press(']');
    await urlHas('pane', 'treemap');
  });

  test('the palette reaches panes and runs, and the first Tab skips the navigation', async () => {
    await visit({ view: 'live' });
    await page.locator('.brand').waitFor();
    await page.keyboard.press('Tab');
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe(
      'Skip to the content',
    );
    await page.keyboard.press('Enter');
    expect(await page.evaluate(() => document.activeElement?.id)).toBe('main');
    // What is typed before the palette has opened goes to the page, and the key that opens it closes it.
    const search = page.locator('.palette input');
    await page.keyboard.press('Control+k');
    await search.fill('treemap');
    await search.press('Enter');
    await urlHas('pane', 'treemap');
    await search.waitFor({ state: 'hidden' });
    await page.keyboard.press('Control+k');
    await search.fill('sankey');
    await search.press('Escape');
    await search.waitFor({ state: 'hidden' });
    await page.keyboard.press('Control+k');
    await search.fill('pair');
    const first = page.locator('.palette [role=option]').first();
    await expect.poll(() => first.innerText()).toMatch(/pair/);
    await first.click();
    await urlHas('run', new RegExp(`${runs[1]}|${runs[2]}`));
  });

  test('an advice is tested where it stands', async () => {
    await visit({ view: 'live' });
    // The server gives no advice on modelled energy; the experiment it would name is real.
    await page.route('**/advice*', (route) =>
      route.fulfill({
        json: {
          refusal: null,
          silent: [],
          findings: [
            {
              rule: 'dtype',
              title: 'Store the weights in fewer bits',
              text: 'They are read for every token.',
              kind: 'saving',
              evidence: [],
              saving: null,
              cost: { quality: 'small', latency: 'none', memory: 'less' },
              test: 'perjoule experiment --models demo --inputs 4 --outputs 4 --repeat 2 --dtypes bf16,q8_0',
            },
          ],
        },
      }),
    );
    await page.goto(`${target.url}?view=analysis&run=${runs[0]}&test=1`);
    await button(/Test it here, 4 runs/).click();
    const proof = page.locator('.test-here');
    await expect.poll(() => proof.getAttribute('data-outcome')).toMatch(/confirmed|refuted|open/);
    expect(await proof.innerText()).toMatch(/Confirmed|Refuted|Not settled|Too few/);
    await page.reload();
    await expect.poll(() => proof.getAttribute('data-outcome')).toMatch(/confirmed|refuted|open/);
    await proof.getByRole('link', { name: 'The experiment' }).click();
    await urlHas('experiment', /^test-dtype-/);
  });
});
