// Access to charts: a canvas is opaque to selectors, so the page (with ?test=1) exposes its chart objects.
import type { Locator, Page } from 'playwright-core';

interface AnyChart {
  outline?: (mark: unknown) => { x: number; y: number; w: number; h: number } | null;
  host: HTMLElement;
  [key: string]: unknown;
}

/** Waits until a chart is there and the property, or the result of the method, is truthy. */
export async function chartHas(page: Page, name: string, property: string): Promise<unknown> {
  const handle = await page.waitForFunction(
    ([n, p]) => {
      const c = window.__test?.[n] as Record<string, unknown> | undefined;
      const v = c?.[p];
      return v ? { v: JSON.parse(JSON.stringify(v)) as unknown } : false;
    },
    [name, property] as const,
    { polling: 100 },
  );
  return ((await handle.jsonValue()) as { v: unknown }).v;
}

/** What `find` finds twice in a row: charts move while the page above them is laid out. */
export async function steady<T>(find: () => Promise<T>): Promise<T> {
  let before = '';
  for (let i = 0; i < 100; i++) {
    const found = await find();
    const now = JSON.stringify(found);
    if (now === before) return found;
    before = now;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error(`it never comes to rest: ${before}`);
}

/** Points at what has come to rest: a tip closes when its element moves away under the pointer. */
export async function pointAt(spot: Locator): Promise<void> {
  await spot.scrollIntoViewIfNeeded();
  await steady(() => spot.boundingBox());
  await spot.hover();
}

/** Scrolls a mark into view; returns its centre in page coordinates. */
export async function markAt(
  page: Page,
  name: string,
  mark: number,
): Promise<{ x: number; y: number }> {
  await page.evaluate(
    (n) => (window.__test![n] as AnyChart).host.scrollIntoView({ block: 'center' }),
    name,
  );
  return steady(() =>
    page.evaluate(
      ([n, m]) => {
        const c = window.__test![n as string] as AnyChart;
        const r = c.outline?.(m);
        if (!r) throw new Error(`${n} has no mark ${m}`);
        const box = c.host.getBoundingClientRect();
        return { x: box.left + r.x + r.w / 2, y: box.top + r.y + r.h / 2 };
      },
      [name, mark] as const,
    ),
  );
}

export async function clickMark(page: Page, name: string, mark: number): Promise<void> {
  const p = await markAt(page, name, mark);
  await page.mouse.click(p.x, p.y);
}

/** Drags across a chart between two fractions of its width. */
export async function brush(page: Page, selector: string, from: number, to: number): Promise<void> {
  const el = page.locator(selector).first();
  await el.scrollIntoViewIfNeeded();
  const box = await el.boundingBox();
  if (!box) throw new Error(`${selector} is not visible`);
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + box.width * from, y);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * ((from + to) / 2), y, { steps: 4 });
  await page.mouse.move(box.x + box.width * to, y, { steps: 4 });
  await page.mouse.up();
}
