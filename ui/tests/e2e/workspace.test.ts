// Analysis: the verdict and the time canvas, with their common scope, URL and keyboard shortcuts.
import { expect, test } from 'vitest';
import { at, type How } from './browser.ts';
import { brush, chartHas, clickMark, pointAt } from './charts.ts';
import {
  button,
  expectProblems,
  leave,
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

scenarios('the verdict and the time canvas', () => {
  const openRun = (more: Record<string, string> = {}, how: How = {}) =>
    visit({ view: 'analysis', run: runs[0], ...more }, how);
  const range = () => (query().get('t') ?? '').split('-').map(Number);
  const figure = () => page.locator('[data-figure=energy]').innerText();

  test('without a run in the URL the newest is shown', async () => {
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
    // The page has no advice of its own, and the server gives none on modelled energy.
    expect(await page.locator('.findings').count()).toBe(0);
    expect(await page.locator('.headline').innerText()).toMatch(
      /Typical token[\s\S]*(±|\(.* to .*\))/,
    );
  });

  test('every figure of the verdict explains itself on hover and on focus', async () => {
    await openRun();
    // What is still loading moves what lies under the pointer.
    await page.waitForFunction(() => !document.querySelector('[aria-busy=true]'));
    await pointAt(page.locator('.headline .explain').first());
    await expect
      .poll(() => page.locator('.tip').innerText())
      .toMatch(/Median energy of the undisturbed decode tokens/);
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

  test('the prediction is shown besides the actual figures, or why there is none', async () => {
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
  test('each pane draws, gives its table, its CSV and its picture', async () => {
    await openRun();
    for (const [pane, titles] of PANES) {
      await page.locator(`#tab-${pane}`).click();
      for (const title of titles) {
        const p = panel(title);
        await p.waitFor();
        await expect.poll(() => p.getAttribute('aria-busy'), { message: title }).toBe('false');
        expect(await p.getByRole('alert').count(), title).toBe(0);
        await expect.poll(() => p.locator('.state').count(), { message: title }).toBe(0);
        const csv = p.getByRole('button', { name: /save data as CSV/ });
        const [file] = await Promise.all([page.waitForEvent('download'), csv.click()]);
        const text = await (await file.createReadStream()).toArray();
        expect(Buffer.concat(text).toString(), `${title} CSV`).toMatch(/^[\w%()", .-]+\r\n/);
        const png = p.getByRole('button', { name: /save picture as PNG/ });
        const [picture] = await Promise.all([page.waitForEvent('download'), png.click()]);
        const bytes = Buffer.concat(await (await picture.createReadStream()).toArray());
        expect(bytes.subarray(1, 4).toString(), `${title} PNG`).toBe('PNG');
        expect(bytes.length, title).toBeGreaterThan(800);
        await p.getByRole('button', { name: /view as table/ }).click();
        await p.locator('.data-table tbody tr').first().waitFor();
        await p.getByRole('button', { name: /view as table/ }).click();
      }
    }
  });

  test('tabs of the structure pane are operated with the arrow keys and kept in the URL', async () => {
    await openRun();
    await page.getByRole('tab', { name: 'Icicle' }).focus();
    await page.keyboard.press('ArrowRight');
    await urlHas('pane', 'treemap');
    await page.keyboard.press('ArrowRight');
    await urlHas('pane', 'sankey');
    expect(await page.getByRole('tab', { selected: true }).innerText()).toBe('Sankey');
  });

  test('the three findings that matter most have evidence, saving and experiment', async () => {
    await visit({ view: 'history' });
    const found = (n: number) => ({
      rule: `rule_${n}`,
      title: `Finding ${n}`,
      text: `Seen in ${n} of 9.`,
      kind: 'saving',
      evidence: [],
      saving: { of: 'request', basis: 'predicted', share: 0.3, share_lo: 0.2, share_hi: 0.4 },
      cost: { quality: 'small', latency: 'none', memory: `${n} MB` },
      test: `perjoule experiment --batches 1,${n}`,
    });
    await page.route(/\/advice/, (r) =>
      r.fulfill({
        contentType: 'application/json',
        body: JSON.stringify({
          refusal: null,
          findings: [{ ...found(0), kind: 'trust', saving: null }, ...[1, 2, 3, 4].map(found)],
        }),
      }),
    );
    await page.goto(at(target.url, { view: 'analysis', run: runs[0] }));
    const list = page.locator('.findings li');
    await list.filter({ hasText: 'Finding 1' }).waitFor();
    const texts = await list.allInnerTexts();
    expect(texts).toHaveLength(3);
    texts.forEach((text, i) => {
      expect(text).toMatch(new RegExp(`Finding ${i + 1}\\..*Seen in ${i + 1} of 9`));
      expect(text).toMatch(/Expected: 30\.0 % \(20\.0 % to 40\.0 %\)/);
      expect(text).toContain(`perjoule experiment --batches 1,${i + 1}`);
      expect(text).toContain(`Costs in quality: small; in latency: none; in memory: ${i + 1} MB.`);
    });
    // What limits the figures is no change: it stands with what they are to be trusted for.
    expect(await page.locator('.trust').innerText()).toContain('finding 0');
  });

  test('the wheel zooms where the canvas was clicked, and pans sideways', async () => {
    await openRun();
    await chartHas(page, 'timeline', 'points');
    await page.locator('.canvas.time').focus();
    await page.locator('.canvas.time').hover({ position: { x: 500, y: 60 } });
    await page.mouse.wheel(0, -400);
    await urlHas('t', /^\d/);
    const [a, b] = range();
    await page.mouse.wheel(200, 0);
    await expect.poll(() => range()[0]).toBeGreaterThan(a);
    expect(range()[1] - range()[0]).toBeCloseTo(b - a, 1);
    await page.mouse.wheel(0, 100);
    await expect.poll(() => range()[1] - range()[0]).toBeGreaterThan(b - a);
  });

  test('timeline, icicle and treemap are operated by keyboard', async () => {
    await openRun();
    await chartHas(page, 'timeline', 'points');
    const idle = await page.evaluate(
      () =>
        (window.__test!.timeline as unknown as { model: { power: { idle: number | null } } }).model
          .power.idle,
    );
    expect(idle).toBeGreaterThan(0);
    await chartHas(page, 'timeline', 'count'); // spans come after the power
    await page.locator('.canvas.time').focus();
    await page.keyboard.press('Home');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Enter');
    await urlHas('phase', /^(idle|prefill|decode)$/); // in the order of time
    for (const pane of ['icicle', 'treemap']) {
      await openRun({ pane });
      await chartHas(page, pane, 'shown');
      await page.evaluate(
        (name) => (window.__test![name] as unknown as { host: HTMLElement }).host.focus(),
        pane,
      );
      for (const key of ['ArrowRight', 'ArrowDown', 'Enter']) await page.keyboard.press(key);
      await expect
        .poll(() => query().get('phase') ?? query().get('component') ?? query().get('layer'))
        .toBeTruthy();
      await leave();
    }
  });

  test('a click on a phase narrows everything to it; zooming in shows its sections', async () => {
    // Zoomed, because beside the other phases prefill may be narrower than a pixel.
    const summary = await (await fetch(`${target.url}api/profiling/run/${runs[0]}/summary`)).json();
    const { start_ms, end_ms } = summary.phases.find(
      (p: { phase: string }) => p.phase === 'prefill',
    );
    const beside = (end_ms - start_ms) / 2;
    await openRun({ t: `${Math.max(0, start_ms - beside)}-${end_ms + beside}` });
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
    await page.waitForTimeout(1000); // later changes are separate history entries
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

  test('canvas charts are operated by keyboard', async () => {
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

  test('a URL restores the whole state', async () => {
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

  test('a missing run is reported once, not in each panel', async () => {
    expectProblems(/404/);
    await visit({ view: 'analysis', run: '00000000-0000-7000-8000-000000000000' });
    await page.locator('main [role=alert]').waitFor();
    expect(await page.locator('main [role=alert]').count()).toBe(1);
    expect(await page.locator('main').innerText()).not.toMatch(/Loading/);
    await page.getByRole('link', { name: 'All runs' }).click();
    await urlHas('view', 'history');
  });

  test('without any power source the run is complete but for energy, and the remedy is named', async () => {
    const fallback = await startTarget('none');
    try {
      const id = (
        await generate(fallback.url, {
          prompt: 'In the dark',
          max_length: 6,
          profiling_depth: 'module',
          wait: true,
        })
      ).run_id;
      await openAt(at(fallback.url, { view: 'analysis', run: id }), { height: 7000 });
      await page.locator('.run-head .badge.unavailable').waitFor();
      await page.locator('.notice').first().waitFor();
      expect(await page.locator('.headline').innerText()).toMatch(/unavailable/);
      const verdict = page.getByRole('region', { name: 'Verdict' });
      await verdict.getByText('Where the time went').waitFor();
      const parts = await verdict
        .locator('.energy-parts li')
        .evaluateAll((list) => list.map((x) => x.getAttribute('data-part')));
      expect(new Set(parts).size).toBe(parts.length);
      const { disturbances: judged } = (await (
        await fetch(`${fallback.url}api/profiling/run/${id}/summary`)
      ).json()) as { disturbances: { events: unknown[] } | null };
      const held = judged?.events.length ?? 0;
      expect(await verdict.locator('.trust').innerText()).toMatch(
        held ? new RegExp(`${held} disturbance`) : /no disturbances|not judged/,
      );
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
      // Close the page first: its requests to a stopped server would count as errors.
      await leave();
      await fallback.close();
    }
  });
});
