// Every view and every interaction of the dashboard, in a real browser, against the real server with
// a simulated sensor and the demo model. Asserts on what the page says and on numbers that charts hand
// out, never on how long something took.
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { axe } from './axe.ts';
import { at, type How, launch, noBrowser, type Opened, open, until } from './browser.ts';
import { brush, chartHas, clickMark } from './charts.ts';
import { FIXTURE, generate, missing, startTarget, type Target } from './target.ts';

const why = missing || (await noBrowser());
if (why) process.stderr.write(`skipped: the dashboard against the real server (${why})\n`);

describe.skipIf(why)('the dashboard', () => {
  let browser: Browser;
  let target: Target;
  let runs: string[];
  let o: Opened;
  let page: Page;

  beforeAll(async () => {
    browser = await launch();
    target = await startTarget('sim:seed=7,period_ms=1,kind=counter');
    runs = [];
    for (const [prompt, tags] of [
      ['Once upon a time', ['first']],
      ['The turbine', ['second', 'pair']],
      ['The turbine in the valley', ['pair']],
    ] as const) {
      const body = { prompt, tags, profiling_depth: 'deep', max_length: 64, wait: !FIXTURE };
      runs.push((await generate(target.url, body)).run_id);
    }
  });
  afterAll(async () => {
    await browser?.close();
    await target?.close();
  });

  let expected: RegExp | undefined;
  const visit = async (query: Record<string, string>, how: How = {}) => {
    o = await open(browser, at(target.url, query), { ...how, expected: how.expected ?? expected });
    page = o.page;
  };
  beforeEach(() => {
    expected = undefined;
  });
  afterEach(async () => {
    await relieve(); // a test that failed half-way must not leave the server busy for the next
    await o?.close();
    expect(o?.problems ?? []).toEqual([]);
  });

  const query = () => new URL(page.url()).searchParams;
  const urlHas = (name: string, value: string | RegExp) =>
    expect
      .poll(() => query().get(name), { timeout: 20_000 })
      [value instanceof RegExp ? 'toMatch' : 'toBe'](value as string);
  const panel = (title: string) => page.locator(`section.panel[aria-label="${title}"]`);
  const button = (name: string | RegExp) => page.getByRole('button', { name });
  const startRun = async (length: number, prompt = 'Once upon a time') => {
    await page
      .locator('select[name=model] option:not([disabled])')
      .first()
      .waitFor({ state: 'attached' });
    await page.fill('textarea[name=prompt]', prompt);
    await page.fill('input[name=length]', String(length));
    await button(/^(Start|Queue)$/).click();
  };
  /** Enough long runs, one after another, that the server is busy for as long as a test looks. */
  let busy: string[] = [];
  const occupy = async (): Promise<void> => {
    const body = {
      prompt: 'A long story',
      max_length: FIXTURE ? 900 : 480,
      batch_size: FIXTURE ? 1 : 160,
    };
    busy = await Promise.all(
      Array.from({ length: FIXTURE ? 2 : 12 }, async () => {
        const r = await fetch(`${target.url}api/profiling/generate`, {
          method: 'POST',
          headers: { 'Content-Type': 'application/json' },
          body: JSON.stringify({ ...body, profiling_depth: 'deep', wait: false }),
        });
        return ((await r.json()) as { run_id: string }).run_id;
      }),
    );
  };
  /** Cancels them, the last in line first, so that none starts in the meantime. */
  const relieve = async (): Promise<void> => {
    for (const id of busy.reverse()) {
      await fetch(`${target.url}api/profiling/run/${id}/cancel`, { method: 'POST' });
    }
    busy = [];
  };
  const nowSays = (text: RegExp) =>
    expect.poll(() => page.locator('.now-line').innerText(), { timeout: 60_000 }).toMatch(text);

  describe('Live', () => {
    test('before any run the page says which sources will be read', async () => {
      await visit({ view: 'live' });
      await panel('Power')
        .getByText(FIXTURE ? /cpu from rapl/ : /cpu from sim/)
        .waitFor();
      if (!FIXTURE) await panel('Power').locator('.badge.modelled').waitFor();
      expect(await page.locator('.live-main').innerText()).not.toMatch(/unavailable|No power/);
    });

    test('a run is started, watched and ends', async () => {
      await visit({ view: 'live' });
      await page.getByText('Connected').waitFor();
      await page.fill('input[name=tags]', 'watched, live');
      await startRun(40);
      await chartHas(page, 'tokenStream', 'count');
      const [layers, components] = (await chartHas(page, 'liveHeatmap', 'shape')) as number[];
      expect(layers).toBeGreaterThan(0);
      expect(components).toBeGreaterThan(5);
      await nowSays(/completed/i);
      await until(
        page,
        () => ((window.__test!.tokenStream as { count: number }).count ?? 0) >= 20,
        null,
      );
      // The heatmap ends with the last token, whatever came live.
      await expect
        .poll(async () => {
          const made = Number((await page.locator('.now .figure dd').first().innerText()).trim());
          return (await panel('Layers and components').innerText()).includes(`Token ${made - 1}`);
        })
        .toBe(true);
      expect(await chartHas(page, 'livePower', 'points')).toBeGreaterThan(1);
      await panel('Power').locator('.badge.modelled').waitFor();
      expect(await page.locator('.figure').first().innerText()).toContain('Tokens');
      await button('Save data as CSV')
        .or(page.getByLabel('Power: save data as CSV'))
        .first()
        .waitFor();
      await page.getByRole('link', { name: /Open in Analysis/ }).click();
      await urlHas('view', 'analysis');
      await urlHas('run', /^[0-9a-f-]{36}$/);
    });

    test('hovering a token shows what it cost; the arrow keys walk the tokens', async () => {
      await visit({ view: 'live' });
      await startRun(16);
      await nowSays(/completed/i);
      await page.locator('.tok').nth(4).hover();
      await expect
        .poll(() => page.locator('.tip').innerText())
        .toMatch(/Token 4[\s\S]*Energy\s+(unavailable|[\d.]+)/);
      await page.locator('.stream').focus();
      await page.keyboard.press('ArrowLeft');
      await expect
        .poll(() => page.locator('.sr-only[role=status]').last().innerText())
        .toMatch(/Token \d+.*Energy/);
    });

    test('runs queue; queued and running ones can be stopped, and are kept', async () => {
      await visit({ view: 'live' });
      await page.getByText('Connected').waitFor();
      await occupy();
      await nowSays(/running/i);
      const [answer] = await Promise.all([
        page.waitForResponse((r) => r.url().endsWith('/generate')),
        startRun(8, 'Waiting in line'),
      ]);
      const { run_id } = (await answer.json()) as { run_id: string };
      const cancel = button(`Cancel queued run ${run_id}`);
      await cancel.click();
      await cancel.waitFor({ state: 'detached' });
      // The next in line starts at once, so the server is asked which ones were stopped.
      const stopped = async () => {
        await button('Stop').click();
        const r = await fetch(`${target.url}api/profiling/runs?status=cancelled`);
        return ((await r.json()) as { prompt: string; prefill_duration_ms: number }[]).some(
          (x) => x.prompt === 'A long story' && x.prefill_duration_ms > 0,
        );
      };
      await expect.poll(stopped).toBe(true);
      await relieve();
      await nowSays(/cancelled|completed/i);
    });

    test.skipIf(FIXTURE)('the form asks for everything that a request can say', async () => {
      await visit({ view: 'live' });
      await page.getByText('Connected').waitFor();
      await page.locator('select[name=model] option').first().waitFor({ state: 'attached' });
      await page.getByText('More settings').click();
      await page.fill('input[name=length]', '6');
      await page.fill('input[name=minP]', '0.05');
      await page.fill('input[name=penalty]', '1.1');
      await page.fill('textarea[name=stop]', 'never this\nnor\\nthat');
      await page.selectOption('select[name=kv]', 'f16');
      await page.getByLabel('Go on after the end of the text').check();
      await page.fill('input[name=batch]', '2');
      await page.selectOption('select[name=batchRule]', 'equal');
      await page.fill('input[name=warmup]', '1');
      await page.fill('input[name=experiment]', 'from the form');
      const bodies: Record<string, unknown>[] = [];
      page.on('request', (r) => {
        if (r.url().endsWith('/generate')) bodies.push(r.postDataJSON() as Record<string, unknown>);
      });
      await button(/^(Start|Queue)$/).click();
      await expect.poll(() => bodies.length).toBe(2);
      expect(bodies[0]).toMatchObject({ tags: ['warm-up'], min_p: 0.05 });
      expect(bodies[0]).not.toHaveProperty('experiment_name');
      expect(bodies[1]).toMatchObject({
        repetition_penalty: 1.1,
        stop: ['never this', 'nor\nthat'],
        kv: 'f16',
        ignore_eos: true,
        batch_size: 2,
        batch_rule: 'equal',
        experiment_name: 'from the form',
      });
      await expect
        .poll(async () => {
          const r = await fetch(`${target.url}api/profiling/runs?experiment=from%20the%20form`);
          return ((await r.json()) as { status: string }[])[0]?.status;
        })
        .toBe('completed');
    });

    test('what cannot be run is refused with a sentence', async () => {
      expected = /422|400/;
      await visit({ view: 'live' });
      await page.route('**/generate', (r) => r.continue({ postData: '{"prompt":""}' }));
      await startRun(5);
      await page.locator('.start .notice.bad').waitFor();
      expect(await page.locator('.start .notice.bad').innerText()).toMatch(/prompt/);
    });
  });

  describe('Analysis', () => {
    const openRun = (more: Record<string, string> = {}, how: How = {}) =>
      visit({ view: 'analysis', run: runs[0], ...more }, how);
    const range = () => (query().get('t') ?? '').split('-').map(Number);
    const figure = () => page.locator('[data-figure=energy]').innerText();

    test('without a run in the address the newest is shown', async () => {
      await visit({ view: 'analysis' });
      await urlHas('run', /^[0-9a-f-]{36}$/);
      await page.locator('.headline').waitFor();
    });

    test('the verdict is one bar that sums exactly to the total, gross and net', async () => {
      await openRun();
      await page.locator('.energy-parts li[data-part=attention]').waitFor();
      const sums = () =>
        page.locator('.energy-parts').evaluate((ul) => ({
          sum: Number((ul as HTMLElement).dataset.sum),
          total: Number((ul as HTMLElement).dataset.total),
          parts: [...ul.querySelectorAll('li')].map((li) => (li as HTMLElement).dataset.part),
        }));
      const gross = await sums();
      expect(gross.sum).toBeCloseTo(gross.total, 6);
      expect(gross.parts).toEqual(
        expect.arrayContaining(['load', 'prefill', 'attention', 'mlp', 'rest']),
      );
      await page.getByLabel('Verdict').getByRole('button', { name: 'Net of idle' }).click();
      await urlHas('net', '1');
      await page.locator('.energy-parts li[data-part=idle]').waitFor();
      const net = await sums();
      expect(net.sum).toBeCloseTo(gross.total, 6);
      expect(await page.locator('.trust').innerText()).toMatch(/modelled[\s\S]*samples per token/);
      expect(await page.locator('.findings li').count()).toBeGreaterThan(0);
      expect(await page.locator('.headline').innerText()).toMatch(/Typical token[\s\S]*±/);
    });

    test('every figure of the verdict explains itself on hover and on focus', async () => {
      await openRun();
      await page.locator('.headline .explain').first().hover();
      await expect
        .poll(() => page.locator('.tip').innerText())
        .toMatch(/Median energy of the decode tokens/);
      await page.locator('.brand').focus();
      for (let i = 0; i < 40; i++) {
        await page.keyboard.press('Tab');
        if (await page.evaluate(() => document.activeElement?.closest('.trust') !== null)) break;
      }
      await expect
        .poll(() => page.locator('.sr-only[role=status]').last().innerText())
        .toMatch(/What .+/);
      await page.locator('.headline').getByRole('button', { name: 'Above idle' }).click();
      const words = page.getByRole('dialog', { name: 'Glossary' });
      expect(await words.locator('.picked').innerText()).toMatch(
        /^Energy, net of idle[\s\S]*measurement\.md/,
      );
      await page.keyboard.press('Escape');
      await expect.poll(() => words.count()).toBe(0);
    });

    test('what was predicted stands beside what the run took, or why nothing was', async () => {
      await openRun({ pane: 'figures' });
      expect(await panel('Predicted and published').innerText()).toMatch(
        /Not predicted: .+|95 % interval[\s\S]*Actual|Nothing is known/,
      );
    });

    const PANES: [string, string[]][] = [
      ['icicle', ['Icicle']],
      ['treemap', ['Treemap']],
      ['sankey', ['Sankey']],
      ['heatmap', ['Heatmap']],
      ['tokens', ['Token histogram', 'Token waterfall']],
      ['map', ['Tokens and layers']],
      ['roofline', ['Roofline']],
      ['rails', ['Rails by phase']],
      ['samples', ['Samples by phase', 'Power by phase']],
      ['figures', ['Figures', 'Components']],
    ];
    for (const [pane, titles] of PANES) {
      test(`the pane ${pane} draws, gives its table, its CSV and its picture`, async () => {
        await openRun({ pane });
        for (const title of titles) {
          const p = panel(title);
          await p.waitFor();
          await expect.poll(() => p.getAttribute('aria-busy'), { timeout: 30_000 }).toBe('false');
          expect(await p.getByRole('alert').count(), title).toBe(0);
          await expect.poll(() => p.locator('.state').count()).toBe(0);
          const csv = p.getByRole('button', { name: /save data as CSV/ });
          const [file] = await Promise.all([page.waitForEvent('download'), csv.click()]);
          const text = await (await file.createReadStream()).toArray();
          expect(Buffer.concat(text).toString(), `${title} CSV`).toMatch(/^[\w%()", .-]+\r\n/);
          const png = p.getByRole('button', { name: /save picture as PNG/ });
          if (await png.count()) {
            const [picture] = await Promise.all([page.waitForEvent('download'), png.click()]);
            const bytes = Buffer.concat(await (await picture.createReadStream()).toArray());
            expect(bytes.subarray(1, 4).toString(), `${title} PNG`).toBe('PNG');
            expect(bytes.length).toBeGreaterThan(800);
          }
          await p.getByRole('button', { name: /view as table/ }).click();
          await p.locator('.data-table tbody tr').first().waitFor();
          await p.getByRole('button', { name: /view as table/ }).click();
        }
      });
    }

    test('the tabs of the structure are walked with the arrow keys and stand in the address', async () => {
      await openRun();
      await page.getByRole('tab', { name: 'Icicle' }).focus();
      await page.keyboard.press('ArrowRight');
      await urlHas('pane', 'treemap');
      await page.keyboard.press('ArrowRight');
      await urlHas('pane', 'sankey');
      expect(await page.getByRole('tab', { selected: true }).innerText()).toBe('Sankey');
    });

    test('a click on a phase narrows everything to it; zooming in shows its sections', async () => {
      await openRun();
      await chartHas(page, 'timeline', 'count');
      const whole = await figure();
      const slices = await page.evaluate(() =>
        (
          window.__test!.timeline as unknown as { slices: { kind: string; phase: string }[] }
        ).slices.map((s) => `${s.kind} ${s.phase}`),
      );
      await clickMark(page, 'timeline', slices.indexOf('phase prefill'));
      await urlHas('phase', 'prefill');
      await page.locator('.scope-bar').getByText('Prefill').waitFor();
      await expect.poll(figure).not.toBe(whole);
      await page.keyboard.press('f');
      await urlHas('t', /^\d/);
      await expect
        .poll(() =>
          page.evaluate(
            () =>
              (
                window.__test!.timeline as unknown as { slices: { kind: string; phase: string }[] }
              ).slices.filter((s) => s.kind === 'section' && s.phase === 'prefill').length,
          ),
        )
        .toBeGreaterThan(1);
    });

    test('conditions of the devices are a track of the time canvas, and in its table', async () => {
      await openRun();
      const said = page.locator('section.panel[aria-label=Timeline] .legend');
      const r = await fetch(`${target.url}api/profiling/run/${runs[0]}/conditions`);
      const { devices } = (await r.json()) as {
        devices: { device: string; utilisation: unknown; temperature_c: unknown }[];
      };
      const shown = devices.filter((d) => d.utilisation || d.temperature_c);
      for (const d of shown) await said.getByText(new RegExp(`^${d.device}: `)).waitFor();
      await button('Timeline: view as table').click();
      await page.getByLabel('Timeline, table').getByText('temperature_c').waitFor();
    });

    test('dragging zooms; W S A D f Esc, the minimap and Back move and undo the range', async () => {
      await openRun();
      await chartHas(page, 'timeline', 'points');
      await brush(page, '.canvas.time', 0.3, 0.6);
      await urlHas('t', /^\d/);
      const [a, b] = range();
      await page.mouse.move(5, 300);
      await page.keyboard.press('w');
      await expect.poll(() => range()[1] - range()[0]).toBeLessThan((b - a) * 0.8);
      const before = range();
      await page.keyboard.press('d');
      await expect.poll(() => range()[0]).toBeGreaterThan(before[0]);
      await page.keyboard.press('a');
      await expect.poll(() => Math.abs(range()[0] - before[0])).toBeLessThan(0.01);
      await page.keyboard.press('s');
      await expect.poll(() => range()[1] - range()[0]).toBeGreaterThan(before[1] - before[0]);
      await page.waitForTimeout(1000); // further steps are steps of their own
      await page.keyboard.press('.');
      await urlHas('token', '0');
      await page.goBack();
      await expect.poll(() => query().get('token')).toBe(null);
      await urlHas('t', /^\d/);
      await page.goForward();
      await urlHas('token', '0');
      await page.keyboard.press('f');
      const token = await (
        await fetch(`${target.url}api/profiling/run/${runs[0]}/tokens?limit=1`)
      ).json();
      const first = (token as { tokens: { duration_ms: number }[] }).tokens[0];
      await expect.poll(() => range()[1] - range()[0]).toBeLessThan(first.duration_ms * 1.3);
      await page.keyboard.press('Escape');
      await expect.poll(() => query().get('token')).toBe(null);
      await page.keyboard.press('Escape');
      await expect.poll(() => query().get('t')).toBe(null);
      await page.waitForTimeout(1000);
      await brush(page, '.canvas.minimap', 0.5, 0.7);
      await urlHas('t', /^\d/);
      await page.goBack();
      await expect.poll(() => query().get('t')).toBe(null);
      await urlHas('view', 'analysis');
    });

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

    test('a cell of the heatmap narrows to it and leads to its operations', async () => {
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
      expect(await operations.innerText()).toMatch(/±/);
    });

    test('metric, colours, and sum, mean or median change what the heatmap shows', async () => {
      await openRun({ pane: 'heatmap' });
      await chartHas(page, 'heatmap', 'shape');
      const first = () =>
        page.evaluate(
          () =>
            (window.__test!.heatmap as unknown as { grid: { values: number[] } }).grid.values[0],
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
      await expect.poll(() => Number(query().get('token')), { timeout: 20_000 }).toBeGreaterThan(5);
      await page.keyboard.press(' ');
      await button('Play the tokens').waitFor();
      expect(Number(query().get('token'))).toBeGreaterThan(3);
    });

    test('the icicle merges the layers or sets them apart; a click narrows, breadcrumbs lead back', async () => {
      await openRun();
      await expect
        .poll(async () => ((await chartHas(page, 'icicle', 'shown')) as string[]).join())
        .not.toMatch(/Layer \d/);
      await button('Layers apart').click();
      await urlHas('layers', 'apart');
      await expect
        .poll(async () => ((await chartHas(page, 'icicle', 'shown')) as string[]).join())
        .toMatch(/Layer 1/);
      const spot = await page.evaluate(() => {
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
      });
      await page.mouse.click(spot.x, spot.y);
      await urlHas('phase', 'decode');
      await page
        .getByLabel('Breadcrumbs')
        .getByRole('button', { name: /Decode/ })
        .click();
      await expect.poll(() => query().get('phase')).toBe(null);
    });

    test('the Sankey sets attention against MLP, with the model load by its name', async () => {
      await openRun({ pane: 'sankey' });
      const label = () => page.locator('svg.sankey').getAttribute('aria-label');
      await expect.poll(label).toMatch(/Attention [\d.]+ %/);
      expect(await label()).toMatch(/MLP [\d.]+ %/);
      expect(
        await page.locator('svg.sankey title', { hasText: 'Model load' }).count(),
      ).toBeGreaterThan(0);
    });

    test('the Sankey is walked with the keyboard, and Enter narrows the scope', async () => {
      await openRun({ pane: 'sankey' });
      await page.locator('svg.sankey').focus();
      const told = () => page.locator('.tip').innerText();
      await page.keyboard.press('Home');
      await expect.poll(told).toMatch(/Of the run[\s\S]*To /);
      const first = await told();
      await page.keyboard.press('ArrowDown');
      await expect.poll(told).not.toBe(first);
      await page.keyboard.press('ArrowRight');
      await expect.poll(told).toMatch(/From [\s\S]*To /);
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

    test('price and carbon are set in the page, kept in the address, and cost follows', async () => {
      await openRun({ pane: 'figures' });
      const value = (label: string) =>
        panel('Figures')
          .locator('dt', { hasText: new RegExp(`^${label}$`) })
          .locator('xpath=following-sibling::dd[1]')
          .innerText();
      const number = async (label: string) => Number((await value(label)).replace(/[^\d.e-]/g, ''));
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

    test('a bar of the waterfall and a bar of the histogram choose a token', async () => {
      await openRun({ pane: 'tokens' });
      await chartHas(page, 'waterfall', 'count');
      await clickMark(page, 'waterfall', 6);
      await urlHas('token', '6');
      await page.locator('.scope-bar').getByText('Token 6').waitFor();
      // from the start again: the token that needed most may well be the one chosen above
      await openRun({ pane: 'tokens' });
      await chartHas(page, 'histogram', 'count');
      await page.locator('.canvas[aria-label^="Histogram"]').focus();
      await page.keyboard.press('End');
      await page.keyboard.press('Enter');
      await expect.poll(() => query().get('token')).toMatch(/^\d+$/);
    });

    test('canvas charts are walked with the keyboard', async () => {
      await openRun({ pane: 'heatmap' });
      await chartHas(page, 'heatmap', 'shape');
      await page.locator('.h-map').focus();
      for (const key of ['ArrowRight', 'ArrowRight', 'ArrowDown', 'Enter'])
        await page.keyboard.press(key);
      await urlHas('layer', '1');
      await expect
        .poll(() => page.locator('.sr-only[role=status]').last().innerText())
        .toMatch(/Layer 1/);
    });

    test('an address brings everything back', async () => {
      await openRun({
        token: '5',
        layer: '1',
        component: 'q_proj',
        metric: 'time',
        t: '1-9',
        phase: 'decode',
        pane: 'heatmap',
        unit: 'Wh',
      });
      const bar = () => page.locator('.scope-bar').innerText();
      for (const part of ['Token 5', 'Layer 1', 'q_proj', 'Decode', '1.00 ms to 9.00 ms'])
        await expect.poll(bar).toContain(part);
      expect(await page.getByLabel('Metric', { exact: true }).inputValue()).toBe('time');
      await panel('Layer 1, q_proj').waitFor();
      await expect.poll(() => page.locator('.headline').innerText()).toMatch(/[µmn]Wh/);
    });

    test('a run that is not there is said once, not in each panel', async () => {
      expected = /404/;
      await visit({ view: 'analysis', run: '00000000-0000-7000-8000-000000000000' });
      await page.locator('main [role=alert]').waitFor();
      expect(await page.locator('main [role=alert]').count()).toBe(1);
      expect(await page.locator('main').innerText()).not.toMatch(/Loading/);
      await page.getByRole('link', { name: 'All runs' }).click();
      await urlHas('view', 'history');
    });
  });

  describe('History and Compare', () => {
    test('search, filters, sorting and paging ask the server', async () => {
      await visit({ view: 'history' });
      await page.locator('.runs tbody tr').first().waitFor();
      await page.fill('#history-search', 'turbine in the');
      await expect.poll(() => page.locator('.runs tbody tr').count()).toBe(1);
      await urlHas('q', 'turbine in the');
      await button('Clear filters').click();
      await page.getByLabel('Tag').selectOption('pair');
      await expect.poll(() => page.locator('.runs tbody tr').count()).toBe(2);
      await button('Clear filters').click();
      await page.getByRole('columnheader', { name: 'Per token' }).getByRole('button').click();
      await urlHas('sort', 'joules_per_token');
      await expect
        .poll(() => page.getByRole('columnheader', { name: 'Per token' }).getAttribute('aria-sort'))
        .toBe('ascending');
      await page.fill('#history-search', 'no such prompt');
      await page.getByText('No run matches these filters.').waitFor();
    });

    test('rows stand in groups, which open, are ticked as one, and survive the address', async () => {
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
        if (!FIXTURE)
          expect(bytes.subarray(0, 2).toString()).toMatch(extension === 'zip' ? /^PK/ : /^[{[]/);
      }
    });

    test('deleting asks first', async () => {
      const doomed = (
        await generate(target.url, { prompt: 'To be deleted', max_length: 3, wait: !FIXTURE })
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

    test('many runs are ticked: tagged, exported, deleted after a question', async () => {
      const lot = `lot ${Date.now()}`; // another one if it is tried again
      const prompts = ['One', 'Two', 'Three'].map((n) => `${n} of ${lot}`);
      for (const prompt of prompts)
        await generate(target.url, { prompt, max_length: 3, wait: !FIXTURE });
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
      // one run on each side decides nothing: no side is called the best, in no place
      const verdict = await page.getByRole('region', { name: 'Verdict' }).innerText();
      expect(verdict).toMatch(/not decided by one run on each side/);
      expect(verdict).not.toMatch(/tied/);
      expect(verdict).not.toMatch(/(Most efficient|Fastest|Lowest energy): [AB] /);
      const word = panel('Metrics').getByRole('button', { name: 'Energy-delay product' });
      await word.focus();
      await page.keyboard.press('Shift+Tab');
      await page.keyboard.press('Tab');
      await expect
        .poll(() => page.locator('.tip').innerText())
        .toMatch(/Unit[\s\S]*J·s[\s\S]*docs\//);
      const tests = await panel('Differences').innerText();
      expect(tests).toMatch(/p/);
      expect(tests).toMatch(/±/);
      const rows = await panel('Metrics').locator('tbody tr').count();
      await page.getByLabel('Only differences').check();
      await urlHas('diff', '1');
      expect(await panel('Metrics').locator('tbody tr').count()).toBeLessThanOrEqual(rows);
      const ids = query().get('ids') ?? '';
      await button('Make baseline').click();
      await expect.poll(() => query().get('ids')).toBe(ids.split(',').reverse().join(','));
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
  });

  describe('everywhere', () => {
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
    });

    for (const name of ['live', 'analysis', 'history', 'compare']) {
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

  test('without any power source the run is complete but for energy, and the remedy is named', async () => {
    const fallback = await startTarget('none');
    try {
      const id = (
        await generate(fallback.url, {
          prompt: 'In the dark',
          max_length: 6,
          profiling_depth: 'module',
          wait: !FIXTURE,
        })
      ).run_id;
      o = await open(browser, at(fallback.url, { view: 'analysis', run: id }), { height: 7000 });
      page = o.page;
      await page.locator('.run-head .badge.unavailable').waitFor();
      await page.locator('.notice').first().waitFor();
      expect(await page.locator('.headline').innerText()).toMatch(/unavailable/);
      await panel('Timeline')
        .getByText(/unavailable/)
        .first()
        .waitFor();
      await panel('Icicle').locator('[role=img]').waitFor();
      await page.getByRole('tab', { name: 'Tokens' }).click();
      await panel('Token waterfall')
        .getByText(/^Time of each token/)
        .waitFor();
      await panel('Token waterfall').locator('[role=img]').waitFor();
      await page.getByRole('tab', { name: 'Heatmap' }).click();
      await page.getByLabel('Metric', { exact: true }).selectOption('time');
      await panel('Heatmap').locator('[role=img]').waitFor();
      expect(await page.locator('body').innerText()).not.toMatch(/(^|[^\d.])0(\.0+)? m?J\b/);
      await page.goto(at(fallback.url, { view: 'live' }));
      await page.getByText(/measures no power|No power sensor is ready/).waitFor();
      await panel('Power').getByText('unavailable').first().waitFor();
    } finally {
      // The page first: what it still asks of a server that is gone would count as a problem.
      await o?.close();
      await fallback.close();
    }
  });

  test('the page reconnects when the server comes back, and goes on', async () => {
    expected = /WebSocket|ERR_|Failed to load|ECONN/;
    await visit({ view: 'live' });
    await page.getByText('Connected').waitFor();
    await target.kill();
    await page.getByText('Reconnecting…').waitFor();
    await target.restart();
    await page.getByText('Connected').waitFor({ timeout: 60_000 });
    await startRun(6);
    await nowSays(/completed/i);
  });

  test('a page that comes late sees the run that is going on', async () => {
    await visit({ view: 'live' });
    await page.getByText('Connected').waitFor();
    await occupy();
    await nowSays(/running/i);
    const late = await open(browser, at(target.url, { view: 'live' }));
    await expect
      .poll(() => late.page.locator('.now-line').innerText(), { timeout: 30_000 })
      .toMatch(/running/i);
    await chartHas(late.page, 'tokenStream', 'count');
    // Its figures go on with it.
    const elapsed = () => late.page.locator('.now .figure', { hasText: 'Elapsed' }).innerText();
    const first = await elapsed();
    await expect.poll(elapsed).not.toBe(first);
    await expect
      .poll(() => late.page.locator('.now .figure', { hasText: 'Tokens' }).first().innerText())
      .toMatch(/[1-9]/);
    await late.close();
    expect(late.problems).toEqual([]);
    await relieve();
    await nowSays(/cancelled|completed/i);
  });
});
