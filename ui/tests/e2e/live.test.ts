// Live: starting, watching, queueing and stopping runs; joining late and losing the server.
import { expect, test } from 'vitest';
import { at, open, until } from './browser.ts';
import { chartHas, pointAt } from './charts.ts';
import {
  browser,
  button,
  expectProblems,
  leave,
  nowSays,
  occupy,
  page,
  panel,
  relieve,
  scenarios,
  startRun,
  target,
  urlHas,
  visit,
} from './stage.ts';
import { generate } from './target.ts';

scenarios('Live', () => {
  test('before any run the page says which sources will be read', async () => {
    await visit({ view: 'live' });
    await panel('Power')
      .getByText(/cpu from sim/)
      .waitFor();
    await panel('Power').locator('.badge.modelled').waitFor();
    expect(await page.locator('.live-main').innerText()).not.toMatch(/unavailable|No power/);
  });

  test('a run is started, watched and completed', async () => {
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
    // The heatmap finally shows the last token, whichever live frames were dropped.
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

  test('the power of a run shorter than a batch of readings is drawn too', async () => {
    await visit({ view: 'live' });
    await page.getByText('Connected').waitFor();
    // The second run, whose first reading comes with its whole first batch.
    for (const prompt of ['Once upon a time', 'The turbine']) {
      const [answer] = await Promise.all([
        page.waitForResponse((r) => r.url().endsWith('/generate')),
        startRun(60, prompt),
      ]);
      const { run_id } = (await answer.json()) as { run_id: string };
      await page.locator(`.now a[href*="run=${run_id}"]`).waitFor();
    }
    const phases = async () =>
      ((await chartHas(page, 'livePower', 'phases')) as { phase: string }[]).map((p) => p.phase);
    await expect.poll(phases).toContain('decode');
  });

  test('hovering a token shows what it cost; the arrow keys walk the tokens', async () => {
    await visit({ view: 'live' });
    await startRun(16);
    await nowSays(/completed/i);
    await pointAt(page.locator('.tok').nth(4));
    await expect
      .poll(() => page.locator('.tip').innerText())
      .toMatch(/Token 4[\s\S]*Energy\s+(unavailable|[\d.]+)/);
    await page.locator('.stream').focus();
    await page.keyboard.press('ArrowLeft');
    await expect
      .poll(() => page.locator('.sr-only[role=status]').last().innerText())
      .toMatch(/Token \d+.*Energy/);
  });

  test('of a batch the text of one sequence is shown, which can be chosen', async () => {
    await visit({ view: 'live' });
    await page.getByText('Connected').waitFor();
    const body = { prompt: 'Once upon a time', max_length: 24, batch_size: 5, ignore_eos: true };
    const { run_id } = await generate(target.url, body);
    await page.locator(`.now a[href*="run=${run_id}"]`).waitFor();
    const figure = (name: string) =>
      page.locator('.now .figure', { hasText: name }).locator('dd').first().innerText();
    await expect.poll(() => figure('Tokens')).toBe('120');
    const count = () =>
      page.evaluate(() => (window.__test!.tokenStream as { count: number }).count);
    await expect.poll(count).toBe(24);
    await panel('Layers and components')
      .getByText(/sequence \d, its share/)
      .waitFor();
    await panel('Tokens').getByLabel('Sequence').selectOption({ label: 'Sequence 3' });
    await urlHas('sequence', '3');
    await expect.poll(count).toBe(24);
    await pointAt(page.locator('.tok').nth(2));
    await expect.poll(() => page.locator('.tip').innerText()).toMatch(/Sequence\s+3/);
  });

  test('runs are queued; queued and running ones can be stopped, and are stored', async () => {
    await visit({ view: 'live' });
    await page.getByText('Connected').waitFor();
    await occupy();
    await nowSays(/^\s*Running/);
    const [answer] = await Promise.all([
      page.waitForResponse((r) => r.url().endsWith('/generate')),
      startRun(8, 'Waiting in line'),
    ]);
    const { run_id } = (await answer.json()) as { run_id: string };
    const cancel = button(`Cancel queued run ${run_id}`);
    await cancel.click();
    await cancel.waitFor({ state: 'detached' });
    // Clicked once, in decode: the next queued run starts immediately, and after the last one nothing can be stopped.
    await nowSays(/^\s*Running[\s\S]*token [1-9]/i);
    await button('Stop').click();
    const stopped = async () => {
      const r = await fetch(`${target.url}api/profiling/runs?status=cancelled`);
      return ((await r.json()) as { prompt: string; prefill_duration_ms: number }[]).some(
        (x) => x.prompt === 'A long story' && x.prefill_duration_ms > 0,
      );
    };
    await expect.poll(stopped).toBe(true);
    await relieve();
    await nowSays(/cancelled|completed/i);
  });

  test('the form asks for everything that a request can say', async () => {
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

  test('an invalid run is refused with a message', async () => {
    expectProblems(/422|400/);
    await visit({ view: 'live' });
    await page.route('**/generate', (r) => r.continue({ postData: '{"prompt":""}' }));
    await startRun(5);
    await page.locator('.start .notice.bad').waitFor();
    expect(await page.locator('.start .notice.bad').innerText()).toMatch(/Prompt/i);
  });

  test('the page reconnects when the server comes back, and goes on', async () => {
    expectProblems(/WebSocket|ERR_|Failed to load|ECONN/);
    await visit({ view: 'live' });
    await page.getByText('Connected').waitFor();
    await target.kill();
    await page.getByText('Reconnecting…').waitFor();
    await target.restart();
    await page.getByText('Connected').waitFor();
    await startRun(6);
    await nowSays(/completed/i);
  });

  test('a page opened late shows the run in progress', async () => {
    await visit({ view: 'live' });
    await page.getByText('Connected').waitFor();
    await occupy();
    await nowSays(/^\s*Running/);
    await nowSays(/layer \d/);
    const late = await open(browser, at(target.url, { view: 'live' }));
    await expect.poll(() => late.page.locator('.now-line').innerText()).toMatch(/^\s*Running/);
    await late.page.locator('.queue li').first().waitFor();
    await chartHas(late.page, 'tokenStream', 'count');
    // Its figures keep updating.
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

  test('the rails of the machine are shown before, during and after a run', async () => {
    await visit({ view: 'live' });
    const meters = page.getByRole('region', { name: 'Meters of this machine' });
    const reads = () =>
      expect.poll(() => meters.locator('strong').first().innerText()).toMatch(/\d.* m?W$/);
    await reads();
    await occupy();
    await nowSays(/^\s*Running/);
    await reads();
    await relieve();
    await nowSays(/cancelled|completed/i);
    await reads();
    expect(await meters.locator('.badge.modelled').count()).toBeGreaterThan(0);
  });

  test('a meter says what its figures are made of', async () => {
    await visit({ view: 'live' });
    const meters = page.getByRole('region', { name: 'Meters of this machine' });
    await meters.locator('.explain').first().waitFor();
    await expect
      .poll(async () => {
        await page.mouse.move(0, 0);
        await pointAt(meters.locator('.explain').first());
        return page.locator('.tip').innerText();
      })
      .toMatch(/Made of[\s\S]*every .* ms/);
  });

  test('what the form would ask is in the URL, which restores it', async () => {
    await visit({ view: 'live' });
    await page.getByText('Connected').waitFor();
    await page.fill('textarea[name=prompt]', 'A & B, said twice');
    await page.fill('input[name=length]', '33');
    await page.getByLabel('Chat', { exact: true }).check();
    await page.getByRole('button', { name: 'Deep', exact: true }).click();
    await urlHas('ask', /(?=.*length=33)(?=.*depth=deep)(?=.*chat=1)/);
    await page.reload();
    const shown = () =>
      page.evaluate(() =>
        ['textarea[name=prompt]', 'input[name=length]'].map(
          (s) => document.querySelector<HTMLInputElement>(s)?.value,
        ),
      );
    await expect.poll(shown).toEqual(['A & B, said twice', '33']);
    expect(await page.getByLabel('Chat', { exact: true }).isChecked()).toBe(true);
    await page.getByRole('link', { name: 'History', exact: true }).click();
    await page.locator('.runs').waitFor();
    expect(page.url()).not.toContain('said');
    await page.goBack();
    await expect.poll(shown).toEqual(['A & B, said twice', '33']);
  });

  test('every control of a run reaches the server, as often as the form says', async () => {
    await visit({ view: 'live' });
    await page.getByText('Connected').waitFor();
    await page.locator('select[name=model] option').first().waitFor({ state: 'attached' });
    const bodies: Record<string, unknown>[] = [];
    await page.route('**/generate', async (r) => {
      bodies.push(r.request().postDataJSON() as Record<string, unknown>);
      await r.fulfill({ status: 202, contentType: 'application/json', body: '{"run_id":"x"}' });
    });
    await page.getByText('More settings').click();
    await page.fill('textarea[name=prompt]', 'Hello');
    await page.getByLabel('Chat', { exact: true }).check();
    await page.fill('textarea[name=system]', 'Be brief');
    await page.getByRole('button', { name: 'Deep', exact: true }).click();
    for (const [name, value] of [
      ['tags', 'one, two'],
      ['temperature', '0.5'],
      ['topK', '40'],
      ['topP', '0.9'],
      ['seed', '7'],
      ['repeat', '3'],
      ['batch', '4'],
    ])
      await page.fill(`input[name=${name}]`, value);
    await page.selectOption('select[name=dtype]', 'q8_0');
    await page.locator('textarea[name=prompt]').press('Control+Enter');
    await expect.poll(() => bodies.length).toBe(3);
    for (const body of bodies)
      expect(body).toMatchObject({
        prompt: 'Hello',
        chat: true,
        system: 'Be brief',
        profiling_depth: 'deep',
        tags: ['one', 'two'],
        temperature: 0.5,
        top_k: 40,
        top_p: 0.9,
        seed: 7,
        batch_size: 4,
        dtype: 'q8_0',
      });
  });

  test('rails keep their colours in both themes; phases are shaded and tokens coloured', async () => {
    const HUES: [string, number, number][] = [
      ['cpu', 205, 235],
      ['gpu', 120, 165],
      ['ane', 20, 45],
      ['dram', 255, 285],
      ['total', 345, 365],
    ];
    for (const dark of [false, true]) {
      await visit({ view: 'live' }, { dark });
      await page.getByText('Connected').waitFor();
      const colours = await page.evaluate(
        (rails) => {
          const style = getComputedStyle(document.documentElement);
          return rails.map((r) => style.getPropertyValue(`--rail-${r}`).trim());
        },
        HUES.map(([r]) => r),
      );
      HUES.forEach(([rail, least, most], i) => {
        const h = hue(colours[i]);
        expect(h < 20 ? h + 360 : h, `${rail} ${colours[i]}`).toBeGreaterThanOrEqual(least);
        expect(h < 20 && rail === 'total' ? h + 360 : h, rail).toBeLessThanOrEqual(most);
      });
      if (dark) continue;
      await startRun(300);
      await nowSays(/completed/i);
      const drawn = panel('Power').locator('.legend-item', { hasText: 'CPU' }).locator('rect');
      expect(await drawn.getAttribute('fill')).toBe(colours[0]);
      const phases = async () =>
        ((await chartHas(page, 'livePower', 'phases')) as { phase: string }[]).map((p) => p.phase);
      await expect.poll(phases).toContain('decode');
      const shades = await page
        .locator('.tok')
        .evaluateAll((l) => [...new Set(l.map((t) => getComputedStyle(t).backgroundColor))]);
      expect(shades.length).toBeGreaterThan(1);
      await leave();
    }
  });
});

/** The hue of "#rrggbb" in degrees. */
function hue(colour: string): number {
  const [r, g, b] = [1, 3, 5].map((i) => Number.parseInt(colour.slice(i, i + 2), 16));
  const [most, least] = [Math.max(r, g, b), Math.min(r, g, b)];
  const d = most - least || 1;
  const sixth = most === r ? (g - b) / d : most === g ? (b - r) / d + 2 : (r - g) / d + 4;
  return (sixth * 60 + 360) % 360;
}
