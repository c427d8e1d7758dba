// One truth in every panel: gross or net of idle, with or without disturbances, the bar, the icicle, the treemap and the details
// have one total, and no part is more than its whole. On runs of a busy machine, alone and in a batch.
import { type ChildProcess, spawn } from 'node:child_process';
import { expect, test } from 'vitest';
import { shows } from './energy.ts';
import { leave, page, scenarios, target, visit } from './stage.ts';
import { generate } from './target.ts';

interface Node {
  value: number;
  children?: Node[];
  data: { node: { name: string; kind: string; value: number | null } };
}

const rootOf = async (name: 'icicle' | 'treemap'): Promise<Node> => {
  await page.waitForFunction((n) => (window.__test?.[n] as { root?: unknown })?.root, name);
  return page.evaluate((n) => {
    const copy = (x: Node): Node => ({
      value: x.value,
      children: x.children?.map(copy),
      data: { node: { ...x.data.node, children: undefined } as Node['data']['node'] },
    });
    return copy((window.__test![n] as unknown as { root: Node }).root);
  }, name);
};

/** Every part of a tree is at most its whole, as drawn and as stated. */
function holds(n: Node): void {
  for (const c of n.children ?? []) {
    expect(c.value, c.data.node.name).toBeLessThanOrEqual(n.value * (1 + 1e-6) + 1e-6);
    expect(c.data.node.value ?? 0).toBeLessThanOrEqual(
      (n.data.node.value ?? 0) * (1 + 1e-5) + 1e-6,
    );
    holds(c);
  }
}

/** The energies (mJ) of a table's rows by name, unrounded: a wide interval is shown with one digit. */
const rowsOf = async (table: string): Promise<Map<string, number>> =>
  new Map(
    await page
      .locator(`${table} tbody tr[data-mj]`)
      .evaluateAll((list) =>
        (list as HTMLElement[]).map((r): [string, number] => [
          (r.children[0] as HTMLElement).innerText.trim(),
          Number(r.dataset.mj),
        ]),
      ),
  );

/** Longer than any run here; a killed test leaves its load behind. */
const BUSY = 'const end = Date.now() + 60_000; while (Date.now() < end);';

async function busyRun(batch_size: number): Promise<string> {
  const load: ChildProcess[] = [0, 1].map(() => spawn(process.execPath, ['-e', BUSY]));
  try {
    const body = { prompt: 'A busy machine', profiling_depth: 'deep', max_length: 40, batch_size };
    return (await generate(target.url, { ...body, wait: true })).run_id;
  } finally {
    for (const p of load) p.kill('SIGKILL');
  }
}

scenarios('Totals', () => {
  for (const batch of [1, 4])
    test(`batch ${batch}: all panels agree, and parts are at most their whole`, async () => {
      const run = await busyRun(batch);
      for (const net of ['', '1'])
        for (const calm of ['', '1']) {
          const state = {
            view: 'analysis',
            run,
            load: '1',
            ...(net && { net }),
            ...(calm && { disturbances: 'leave' }),
          };
          await leave();
          await visit(state);
          const bar = page.locator('.energy-parts');
          await bar.waitFor();
          await page.waitForFunction(() => !document.querySelector('[aria-busy=true]'));
          const parts = await bar.locator('li').evaluateAll((list) =>
            list.map((e) => {
              const { part, mj } = (e as HTMLElement).dataset;
              return { part, mj: Number(mj) };
            }),
          );
          // Net of idle, the bar has idle power as a part of its own.
          const total = parts
            .filter((p) => !net || p.part !== 'idle')
            .reduce((a, p) => a + p.mj, 0);
          if (calm) expect(parts.map((p) => p.part)).not.toContain('disturbed');
          const icicle = await rootOf('icicle');
          holds(icicle);
          expect((icicle.data.node.value ?? 0) / total).toBeCloseTo(1, 4); // sums of 32-bit floats
          const energy = page.locator('dd[data-figure=energy]');
          expect(await energy.innerText()).toSatisfy((text: string) => shows(text, total));
          // An operation is a part of its component, gross or net.
          for (const table of ['.hottest', '.ops:not(.hottest)'])
            await page.locator(`.details table${table} tbody tr[data-mj]`).first().waitFor();
          const components = await rowsOf('.details table.hottest');
          const operations = await rowsOf('.details table.ops:not(.hottest)');
          expect(components.size * operations.size).toBeGreaterThan(0);
          // Neither is shown without its interval.
          const rows = await page.locator('.details table.ops tbody tr').allInnerTexts();
          for (const row of rows) expect(row).toMatch(/±|\(.* to .*\)|unavailable/);
          for (const [name, mj] of operations) {
            const whole = components.get(name.split(' › ')[0]);
            if (whole !== undefined) expect(mj, name).toBeLessThanOrEqual(whole * 1.001 + 1e-6);
          }
          // The request alone has all but the load.
          const request = page.getByRole('button', { name: 'Request', exact: true });
          const loads = parts.some((p) => p.part === 'load');
          expect(await request.count()).toBe(loads ? 1 : 0);
          if (loads) {
            await request.click();
            const value = async () => (await rootOf('icicle')).data.node.value ?? 0;
            await expect.poll(value).toBeLessThan(total * 0.999);
            holds(await rootOf('icicle'));
            await page.getByRole('button', { name: 'With model load' }).click();
          }
          await page.getByRole('tab', { name: 'Treemap' }).click();
          const map = await rootOf('treemap');
          expect((map.data.node.value ?? 0) / total).toBeCloseTo(1, 4);
        }
    });
});
