// Regression tests: one scenario per past defect, against servers that provoke it (no power source, token
// required, stopped and killed runs, batches).
import { createServer, request } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  at,
  closePages,
  type How,
  noBrowser,
  type Opened,
  open,
  sharedBrowser,
  turnTo,
  until,
} from './browser.ts';
import { brush, chartHas } from './charts.ts';
import { mj, shows } from './energy.ts';
import { generate, missing, startTarget, type Target } from './target.ts';

const why = missing || (await noBrowser());
if (why) process.stderr.write(`skipped: what the page once said wrongly (${why})\n`);

interface Token {
  token: number;
  energy_mj: number;
  disturbed_ms?: number | null;
  start_ms: number;
  duration_ms: number;
  sequence: number;
}

/** A reverse proxy that serves the program below a path, including WebSockets. */
async function startProxy(port: number, below: string) {
  const strip = (url: string | undefined) => `/${(url ?? '/').slice(below.length)}`;
  const server = createServer((req, res) => {
    if (!req.url?.startsWith(below)) {
      res.writeHead(404).end();
      return;
    }
    const on = request(
      { port, host: '127.0.0.1', method: req.method, path: strip(req.url), headers: req.headers },
      (answer) => {
        res.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(res);
      },
    );
    on.on('error', () => res.destroy());
    req.pipe(on);
  });
  server.on('upgrade', (req, socket) => {
    const on = connect(port, '127.0.0.1', () => {
      const head = Object.entries(req.headers).map(([k, v]) => `${k}: ${v}\r\n`);
      on.write(`GET ${strip(req.url)} HTTP/1.1\r\n${head.join('')}\r\n`);
      on.pipe(socket).pipe(on);
    });
    for (const s of [on, socket]) s.on('error', () => [on, socket].map((x) => x.destroy()));
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}${below}`,
    close: () => {
      server.closeAllConnections();
      return new Promise<void>((done) => server.close(() => done()));
    },
  };
}

describe.skipIf(why)('the page says what is so', () => {
  let browser: Browser;
  let target: Target;
  let run: string;
  let batch: string;
  let o: Opened;
  let page: Page;
  let expected: RegExp | undefined;

  beforeAll(async () => {
    browser = await sharedBrowser();
    target = await startTarget('sim:seed=9,period_ms=1,kind=counter');
    const ask = { profiling_depth: 'deep', max_length: 48 };
    run = (await generate(target.url, { prompt: 'Once upon a time', ...ask })).run_id;
    batch = (await generate(target.url, { prompt: 'Four at once', ...ask, batch_size: 4 })).run_id;
  });
  afterAll(async () => {
    await closePages(browser);
    await target?.close();
  });
  beforeEach(() => {
    expected = undefined;
  });
  afterEach(async () => {
    await o?.close();
    expect(o?.problems ?? []).toEqual([]);
  });
  const visit = async (query: Record<string, string>, how: How = {}, url = target.url) => {
    o = await open(browser, at(url, query), { ...how, expected: how.expected ?? expected });
    page = o.page;
  };
  const query = () => new URL(page.url()).searchParams;
  const panel = (title: string) => page.locator(`section.panel[aria-label="${title}"]`);
  const get = async <T>(path: string): Promise<T> =>
    (await fetch(`${target.url}api/profiling/${path}`)).json() as Promise<T>;
  const figure = () => page.locator('[data-figure=energy]').innerText();

  test('1: without a sensor the live heatmap shows time, and no joule appears anywhere', async () => {
    const blind = await startTarget('none');
    try {
      await visit({ view: 'live' }, {}, blind.url);
      await page.getByText('Connected').waitFor();
      for (let i = 0; i < 2; i++) {
        const before = await page.locator('.now-line').innerText();
        await page
          .locator('select[name=model] option:not([disabled])')
          .first()
          .waitFor({ state: 'attached' });
        await page.fill('input[name=length]', '12');
        await page.getByRole('button', { name: /^(Start|Queue)$/ }).click();
        await until(page, (b) => document.querySelector('.now-line')?.textContent !== b, before);
        await expect.poll(() => page.locator('.now-line').innerText()).toMatch(/completed/i);
      }
      await chartHas(page, 'liveHeatmap', 'shape');
      const map = panel('Layers and components');
      await expect.poll(() => map.innerText()).toMatch(/Time of the last token/);
      await map.locator('.badge.unavailable').waitFor();
      const tokens = panel('Tokens');
      await expect.poll(() => tokens.innerText()).toMatch(/colour is time per token/);
      await expect.poll(() => tokens.locator('.tok:not(.hatched)').count()).toBeGreaterThan(5);
      const [file] = await Promise.all([
        page.waitForEvent('download'),
        map.getByRole('button', { name: /save data as CSV/ }).click(),
      ]);
      const csv = Buffer.concat(await (await file.createReadStream()).toArray()).toString();
      expect(csv).toContain('q_proj_time_ms');
      expect(csv).not.toContain('energy');
      expect(await page.locator('main').innerText()).not.toMatch(/\d [nµmk]?J\b/);
    } finally {
      await o?.close();
      await blind.close();
    }
  });

  test('2: a server with a token asks for it once; the session is a cookie that no script reads', async () => {
    const closed = await startTarget('none', undefined, ['--token', 'open sesame']);
    expected = /401|WebSocket/;
    try {
      await visit({ view: 'history' }, {}, closed.url);
      const dialog = page.getByRole('dialog');
      await dialog.getByText('asks for its token').waitFor();
      await dialog.getByLabel('Token').fill('wrong');
      await dialog.getByRole('button', { name: 'Sign in' }).click();
      await dialog.getByText(/wrong token/i).waitFor();
      await dialog.getByLabel('Token').fill('open sesame');
      await dialog.getByRole('button', { name: 'Sign in' }).click();
      await page.getByText('Connected').waitFor();
      await page.getByText(/No runs are stored yet/).waitFor();
      expect(await page.evaluate(() => document.cookie)).toBe('');
      expect(await page.evaluate(() => JSON.stringify(localStorage))).not.toContain('sesame');
      expect(page.url()).not.toContain('sesame');
      await page.reload();
      await page.getByText(/No runs are stored yet/).waitFor();
      expect(await page.getByRole('dialog').count()).toBe(0);
    } finally {
      await o?.close();
      await closed.close();
    }
  });

  test('2: everything works behind a reverse proxy at a sub-path, including the session', async () => {
    const closed = await startTarget('none', undefined, ['--token', 'open sesame']);
    const proxy = await startProxy(Number(new URL(closed.url).port), '/perjoule/');
    expected = /401|WebSocket/;
    try {
      await visit({ view: 'history' }, {}, proxy.url);
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('Token').fill('open sesame');
      await dialog.getByRole('button', { name: 'Sign in' }).click();
      await page.getByText('Connected').waitFor();
      await page.getByText(/No runs are stored yet/).waitFor();
      const cookies = await o.context.cookies();
      expect(cookies).toHaveLength(1);
      expect(cookies[0]).toMatchObject({ path: '/perjoule', httpOnly: true, sameSite: 'Strict' });
    } finally {
      await o?.close();
      await proxy.close();
      await closed.close();
    }
  });

  test('3: rounding errors of a flat rail are no anomalies', async () => {
    const flat = await startTarget('sim:seed=4,period_ms=1,kind=power,noise=0,resolution_mj=0');
    try {
      const ask = { prompt: 'A flat rail', profiling_depth: 'module', max_length: 64 };
      const { run_id } = await generate(flat.url, ask);
      const summary = (await (
        await fetch(`${flat.url}api/profiling/run/${run_id}/summary`)
      ).json()) as { anomalies: { value: number; expected: number }[] };
      for (const a of summary.anomalies)
        expect(Math.abs(a.value / a.expected - 1)).toBeGreaterThan(0.1999);
      await visit({ view: 'analysis', run: run_id, pane: 'figures' }, {}, flat.url);
      await panel('Anomalies').waitFor();
      await chartHas(page, 'timeline', 'count');
      const text = await page.locator('main').innerText();
      expect(text).not.toMatch(/robust deviations/);
      for (const [, value, expected] of text.matchAll(/([\d.,]+ \w+), expected ([\d.,]+ \w+)/g))
        expect(value).not.toBe(expected);
    } finally {
      await o?.close();
      await flat.close();
    }
  });

  test('4: the figure shown with a scope is that of the scope, for any combination', async () => {
    const tokens = (await get<{ tokens: Token[] }>(`run/${run}/tokens`)).tokens;
    // One that nothing disturbed: what a disturbance cost is in the token's figure and in no part of it.
    const quiet = tokens.findIndex((t, i) => i >= 10 && !t.disturbed_ms);
    expect(quiet).toBeGreaterThan(0);
    const number = String(tokens[quiet].token);
    await visit({ view: 'analysis', run, token: number });
    await expect.poll(async () => mj(await figure())).toBeGreaterThan(0);
    const token = mj(await figure());
    expect(await figure()).toSatisfy((text: string) => shows(text, tokens[quiet].energy_mj));
    await turnTo(page, at(target.url, { view: 'analysis', run, token: number, layer: '1' }));
    await expect.poll(async () => mj(await figure())).toBeLessThan(token);
    const layer = mj(await figure());
    await turnTo(
      page,
      at(target.url, { view: 'analysis', run, token: number, layer: '1', component: 'attention' }),
    );
    await expect.poll(async () => mj(await figure())).toBeLessThan(layer);
    const cell = await get<{ components: { energy_mj: number }[] }>(
      `run/${run}/operations?token=${number}&layer=1&component=attention`,
    );
    expect(await figure()).toSatisfy((t: string) => shows(t, cell.components[0].energy_mj));
    // The interval of the component over the whole run is not that of one cell.
    expect(await figure()).not.toContain('±');
    await turnTo(page, at(target.url, { view: 'analysis', run, phase: 'decode', layer: '1' }));
    await expect.poll(async () => mj(await figure())).toBeGreaterThan(layer);
  });

  test('5: a time range filters tree, heatmap and hottest components, or the view is labelled "whole run"', async () => {
    await visit({ view: 'analysis', run });
    await chartHas(page, 'icicle', 'shown');
    const value = () =>
      page.evaluate(
        () => (window.__test?.icicle as { root?: { value: number } } | undefined)?.root?.value ?? 0,
      );
    await expect.poll(value).toBeGreaterThan(0);
    const whole = await value();
    const hottest = () => page.locator('table.hottest').innerText();
    const first = await hottest();
    // A range of tokens: which part of the run they fill depends on how long the model took to load.
    const tokens = (await get<{ tokens: Token[] }>(`run/${run}/tokens`)).tokens;
    const t = `${tokens[10].start_ms}-${tokens[20].start_ms}`;
    await turnTo(page, at(target.url, { view: 'analysis', run, t }));
    await chartHas(page, 'icicle', 'shown');
    await expect.poll(value).toBeGreaterThan(0);
    await expect.poll(value).toBeLessThan(whole);
    await expect.poll(hottest).not.toBe(first);
    await page.getByRole('tab', { name: 'Roofline' }).click();
    await page.getByText('does not follow the scope').waitFor();
    await page.getByRole('tab', { name: 'Heatmap' }).click();
    expect(await page.getByText('does not follow the scope').count()).toBe(0);
  });

  test('6: Compare first shows the differing settings, warns if runs are not comparable, and draws ratios on a log axis', async () => {
    await visit({ view: 'compare', ids: `${run},${batch}` });
    await panel('Settings that differ').waitFor();
    const text = await panel('Settings that differ').innerText();
    expect(text).toMatch(/prompt/i);
    expect(text).toMatch(/batch/i);
    await page
      .getByText(/do not compare directly|differs? in/i)
      .first()
      .waitFor();
    await panel('From A to B').waitFor();
    const sums = await page.locator('.steps').evaluate((e) => ({
      sum: Number((e as HTMLElement).dataset.sum),
      difference: Number((e as HTMLElement).dataset.difference),
    }));
    expect(sums.sum).toBeCloseTo(sums.difference, 4);
  });

  test('7: model loading is separate, and not included in the joules per token', async () => {
    const cold = await startTarget('sim:seed=6,period_ms=1,kind=counter');
    try {
      const ask = { prompt: 'Cold start', profiling_depth: 'module', max_length: 24 };
      const { run_id } = await generate(cold.url, ask);
      const s = (await (
        await fetch(`${cold.url}api/profiling/run/${run_id}/summary`)
      ).json()) as Record<string, number>;
      expect(s.model_load_energy_mj).toBeGreaterThan(0);
      const perToken = s.request_energy_mj / s.output_tokens;
      expect((s.joules_per_token * 1000) / perToken).toBeCloseTo(1, 6);
      await visit({ view: 'analysis', run: run_id }, {}, cold.url);
      await page.locator('[data-part=load]').waitFor();
      const mean = page.locator('.headline .figure', { hasText: 'Mean token' }).locator('dd');
      await expect.poll(() => mean.innerText()).toSatisfy((t: string) => shows(t, perToken));
      await turnTo(page, at(cold.url, { view: 'history' }));
      // The list has the typical token, and says the mean beside it.
      const cell = page.locator('.runs tbody td[data-label="Typical token"]').first();
      const typical = s.joules_per_token_typical * 1000;
      await expect.poll(() => cell.innerText()).toSatisfy((t: string) => shows(t, typical));
      expect(await cell.getAttribute('title')).toMatch(/Median energy[\s\S]*The mean is/);
    } finally {
      await o?.close();
      await cold.close();
    }
  });

  test('8: stalls do not create hotspots: median and typical values are shown besides the mean', async () => {
    await visit({ view: 'analysis', run, pane: 'heatmap', per: 'median' });
    await chartHas(page, 'heatmap', 'shape');
    const text = await page.locator('.headline').innerText();
    expect(text).toMatch(/Typical token/);
    expect(text).toMatch(/Mean token/);
    await page
      .getByText(/disturbance/)
      .first()
      .waitFor();
  });

  test('9: Back undoes each choice and never leaves the page', async () => {
    await visit({ view: 'history' });
    await page.locator('.runs tbody tr').first().waitFor();
    await turnTo(page, at(target.url, { view: 'analysis', run }));
    await chartHas(page, 'timeline', 'points');
    await brush(page, '.canvas.time', 0.3, 0.6);
    await expect.poll(() => query().get('t')).not.toBe(null);
    const t = query().get('t');
    await page.waitForTimeout(1000);
    await page.getByRole('tab', { name: 'Heatmap' }).click();
    await expect.poll(() => query().get('pane')).toBe('heatmap');
    await page.goBack();
    await expect.poll(() => query().get('pane')).toBe(null);
    await expect.poll(() => query().get('t')).toBe(t);
    await page.goBack();
    await expect.poll(() => query().get('t')).toBe(null);
    await expect.poll(() => query().get('view')).toBe('analysis');
  });

  test('10: the unit is in the URL, and no two figures overlap in watt-hours', async () => {
    await visit({ view: 'analysis', run });
    await page.locator('.headline').waitFor();
    await page.getByLabel('Energy unit').selectOption('Wh');
    await expect.poll(() => query().get('unit')).toBe('Wh');
    const overlaps = await page.locator('.headline .figure').evaluateAll((list) => {
      const boxes = list.map((e) => {
        const r = document.createRange();
        r.selectNodeContents(e.querySelector('dd') ?? e);
        return r.getBoundingClientRect();
      });
      let n = 0;
      for (const [i, a] of boxes.entries())
        for (const b of boxes.slice(i + 1))
          if (
            a.left < b.right - 1 &&
            b.left < a.right - 1 &&
            a.top < b.bottom - 1 &&
            b.top < a.bottom - 1
          )
            n++;
      return n;
    });
    expect(overlaps).toBe(0);
    await page.getByLabel('Energy unit').selectOption('auto');
  });

  test('11: a run that does not fit is refused before it is queued', async () => {
    expected = /422/;
    await visit({ view: 'live' });
    await page.getByText('Connected').waitFor();
    await page
      .locator('select[name=model] option:not([disabled])')
      .first()
      .waitFor({ state: 'attached' });
    await page.fill('input[name=length]', '100000');
    await page.getByRole('button', { name: /^(Start|Queue)$/ }).click();
    await page
      .locator('.start .notice.bad')
      .getByText(/more than the model's context/)
      .waitFor();
    expect(await page.locator('.queue li').count()).toBe(0);
  });

  test('12: nothing is shown as running while the server is down, and errors are cleared when it is back', async () => {
    expected = /WebSocket|ERR_|Failed to load|ECONN/;
    const own = await startTarget('sim:seed=2,period_ms=1,kind=counter');
    try {
      await visit({ view: 'live' }, { expected }, own.url);
      await page.getByText('Connected').waitFor();
      await page.getByLabel('Meters of this machine').getByText(/ W/).first().waitFor();
      for (let i = 0; i < 3; i++)
        await fetch(`${own.url}api/profiling/generate`, {
          method: 'POST',
          body: JSON.stringify({
            prompt: 'Long',
            max_length: 400,
            batch_size: 160,
            ignore_eos: true,
            profiling_depth: 'deep',
            wait: false,
          }),
        });
      const now = () => page.locator('.now-line').innerText();
      await expect.poll(now).toMatch(/^Running/);
      await page.getByRole('button', { name: 'Stop', exact: true }).click();
      await expect
        .poll(() =>
          page
            .locator('.previous')
            .innerText()
            .catch(() => ''),
        )
        .toMatch(/cancelled|completed/);
      await own.kill();
      await page.getByText('Reconnecting…').waitFor();
      await expect.poll(now).not.toMatch(/^Running/);
      expect(await page.getByRole('button', { name: /^Stop/ }).isDisabled()).toBe(true);
      await page.getByText('no reading now').first().waitFor();
      await own.restart();
      await page.getByText('Connected').waitFor();
      await expect.poll(() => page.locator('.start .notice.bad').count()).toBe(0);
    } finally {
      await o?.close();
      await own.close();
    }
  });

  test('12: a refusal stays when the server is back', async () => {
    expected = /422|WebSocket|ERR_|Failed to load|ECONN/;
    const own = await startTarget('sim:seed=2,period_ms=1,kind=counter');
    try {
      await visit({ view: 'live' }, { expected }, own.url);
      await page.getByText('Connected').waitFor();
      await page
        .locator('select[name=model] option:not([disabled])')
        .first()
        .waitFor({ state: 'attached' });
      await page.fill('input[name=length]', '100000');
      await page.getByRole('button', { name: /^(Start|Queue)$/ }).click();
      const refusal = page
        .locator('.start .notice.bad')
        .getByText(/more than the model's context/);
      await refusal.waitFor();
      await own.kill();
      await page.getByText('Reconnecting…').waitFor();
      await own.restart();
      await page.getByText('Connected').waitFor();
      expect(await refusal.count()).toBe(1);
    } finally {
      await own.close();
    }
  });

  test('13: a missing run is reported once, with a link', async () => {
    expected = /404/;
    await visit({ view: 'analysis', run: '01980000-0000-7000-8000-000000000000' });
    await page.getByText(/run 0198\S* is not in/i).waitFor();
    expect(await page.getByText(/run 0198\S* is not in/i).count()).toBe(1);
    expect(await page.getByText('Loading…').count()).toBe(0);
    // It is asked for once, not once for each panel.
    const asked: string[] = [];
    page.on('request', (r) => {
      if (r.url().includes('/run/01980000')) asked.push(r.url());
    });
    await page.reload();
    await page.getByText(/run 0198\S* is not in/i).waitFor();
    expect(asked.map((url) => new URL(url).pathname.split('/').pop())).toEqual(['summary']);
    await page.getByRole('link', { name: 'All runs' }).click();
    await page.locator('.runs tbody tr').first().waitFor();
  });

  test('14: a run stopped near its end is shown with its stored status', async () => {
    await visit({ view: 'live' });
    await page.getByText('Connected').waitFor();
    for (const delay of [0, 30, 120]) {
      const prompt = `Nearly done ${delay}`;
      const { run_id } = (await (
        await fetch(`${target.url}api/profiling/generate`, {
          method: 'POST',
          body: JSON.stringify({ prompt, max_length: 12, wait: false }),
        })
      ).json()) as { run_id: string };
      await page.waitForTimeout(delay);
      const stop = await fetch(`${target.url}api/profiling/run/${run_id}/cancel`, {
        method: 'POST',
      });
      const said = stop.ok ? ((await stop.json()) as { status: string }).status : 'ended';
      let stored = '';
      await expect
        .poll(async () => {
          const r = await fetch(`${target.url}api/profiling/run/${run_id}/summary`);
          stored = r.ok ? ((await r.json()) as { status: string }).status : 'gone';
          return stored;
        })
        .not.toMatch(/queued|running/);
      // "cancelled" is shown for a run that had not begun; otherwise the run's final state counts.
      if (said === 'cancelled') expect(stored).toMatch(/cancelled|gone/);
      else expect(stored).toMatch(/completed|cancelled/);
      if (stored === 'gone') continue;
      await turnTo(page, at(target.url, { view: 'history', q: prompt }));
      await expect.poll(() => page.locator('.runs tbody tr').first().innerText()).toContain(stored);
    }
  });

  test('15: on a phone the status comes before the form, and nothing is wider than the screen', async () => {
    await visit(
      { view: 'live', ids: [run, batch, 'a', 'b'].join(',') },
      { width: 390, height: 844 },
    );
    await page.locator('.now').waitFor();
    const [now, form] = await page.evaluate(() =>
      ['.now', '.start'].map((s) => document.querySelector(s)?.getBoundingClientRect().top ?? -1),
    );
    expect(now).toBeGreaterThan(0);
    expect(form).toBeGreaterThan(now);
    const widest = () => page.evaluate(() => document.documentElement.scrollWidth);
    expect(await widest()).toBeLessThanOrEqual(390);
    for (const view of ['history', 'analysis']) {
      await turnTo(page, at(target.url, { view, run, ids: [run, batch, 'a', 'b'].join(',') }));
      await page.locator('.panel').first().waitFor();
      expect(await widest(), view).toBeLessThanOrEqual(390);
    }
    // the longest interval fits its half of the screen
    await page.locator('.headline .figure').first().waitFor();
    const overflows = await page.evaluate(() =>
      [...document.querySelectorAll('.headline dd')].map((dd) => {
        dd.textContent = '800 (320 to 2,000) mJ';
        return dd.scrollWidth - dd.clientWidth;
      }),
    );
    expect(Math.max(...overflows)).toBeLessThanOrEqual(0);
  });

  test('16: each sequence of a batch has its own map, and a row of History opens on a click anywhere', async () => {
    const tokens = (await get<{ tokens: Token[] }>(`run/${batch}/tokens`)).tokens;
    const other = tokens.find((t) => t.sequence === 2 && t.token > 4);
    await visit({ view: 'analysis', run: batch, pane: 'heatmap', token: String(other?.token) });
    await chartHas(page, 'heatmap', 'shape');
    const known = await page.evaluate(() =>
      Array.from(
        (window.__test!.heatmap as unknown as { grid: { values: Float32Array } }).grid.values,
      ).some((v) => v > 0),
    );
    expect(known).toBe(true);
    // A sequence has its shares of the steps, of whatever a step was slowed by.
    const want = tokens.reduce((a, t) => a + t.energy_mj, 0);
    await turnTo(page, at(target.url, { view: 'analysis', run: batch, pane: 'map' }));
    await chartHas(page, 'map', 'shape');
    await page.getByRole('tab', { name: 'Icicle' }).click();
    await page.getByLabel('Sequence').selectOption('2');
    await expect.poll(async () => mj(await figure())).toBeLessThan(want / 3);
    await expect.poll(async () => mj(await figure())).toBeGreaterThan(want / 6);
    // Steps go from token to token of that sequence alone, each with its energy.
    const own = tokens.filter((t) => t.sequence === 2).map((t) => String(t.token));
    await page.locator('h1').first().click();
    for (let step = 0; step < 3; step++) {
      await page.keyboard.press('.');
      await expect.poll(() => query().get('token')).toBe(own[step]);
      await expect.poll(async () => mj(await figure())).toBeGreaterThan(0);
    }
    const slider = page.getByLabel('Token', { exact: true });
    expect(Number(await slider.getAttribute('max'))).toBe(own.length - 1);
    await turnTo(page, at(target.url, { view: 'history' }));
    await page.locator('.runs tbody tr').first().locator('td[data-label="Typical token"]').click();
    await expect.poll(() => query().get('run')).not.toBe(null);
  });
});
