// Chromium for the tests: one browser per worker, which runs many files (vitest.config.ts), in it one page per file,
// which a test leaves as if it were new. Console errors, page errors and blocked resources are collected; a test with
// any of them fails.
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { HOW } from './chromium.ts';

/** A browser of one's own. */
export const launch = (): Promise<Browser> => chromium.launch(HOW);

let shared: Promise<Browser> | undefined;
/** The browser of all test files of this worker, which ends with it. */
export const sharedBrowser = (): Promise<Browser> => {
  shared ??= launch();
  return shared;
};

/** Closes the pages of a file. */
export async function closePages(browser: Browser | undefined): Promise<void> {
  idle.clear();
  for (const context of browser?.contexts() ?? []) await context.close();
}

let reason: string | undefined;
/** Why no browser can be started here; empty if one can. */
export async function noBrowser(): Promise<string> {
  if (!HOW.executablePath) return 'no Chromium is installed';
  reason ??= await sharedBrowser().then(
    () => '',
    (e: Error) => `Chromium does not start here: ${e.message.split('\n')[0]}`,
  );
  return reason;
}

export interface Opened {
  page: Page;
  context: BrowserContext;
  problems: string[];
  close: () => Promise<void>;
}

export interface How {
  width?: number;
  height?: number;
  dark?: boolean;
  still?: boolean;
  /** Console errors that the test expects. */
  expected?: RegExp;
  scale?: number;
}

/** Pages that a test has closed. The next one takes such a page: a new one would compile the scripts again, which is
 * most of what a visit costs. */
const idle = new Map<Browser, Page[]>();

export async function open(browser: Browser, url: string, how: How = {}): Promise<Opened> {
  const viewport = { width: how.width ?? 1280, height: how.height ?? 900 };
  const media = {
    colorScheme: how.dark ? 'dark' : 'light',
    reducedMotion: how.still ? 'reduce' : 'no-preference',
  } as const;
  const used = how.scale ? undefined : idle.get(browser)?.pop();
  const page =
    used ??
    (await browser.newPage({
      viewport,
      ...media,
      deviceScaleFactor: how.scale ?? 1,
      acceptDownloads: true,
    }));
  const context = page.context();
  context.setDefaultTimeout(120_000); // against hanging only: a busy machine is slow
  if (used) {
    await page.setViewportSize(viewport);
    await page.emulateMedia(media);
    await page.mouse.move(0, 0);
  }
  const problems: string[] = [];
  const note = (text: string) => {
    if (!how.expected?.test(text)) problems.push(text);
  };
  page.on('pageerror', (e) => note(`page error: ${e.message}`));
  page.on('console', (m) => {
    if (m.type() === 'error') note(`console: ${m.text()}`);
  });
  await turnTo(page, url);
  let closed = false;
  const close = async () => {
    if (closed) return;
    closed = true;
    if (how.scale || page.isClosed()) return context.close();
    await forget(page);
    idle.set(browser, [...(idle.get(browser) ?? []), page]);
  };
  return { page, context, problems, close };
}

/** Takes from a page what its test has brought: listeners, routes, what is stored, and what still runs. A page that
 * shows nothing any more is kept as it is; any other is left at a picture of the same server, because a page of
 * another site would be another process. */
async function forget(page: Page): Promise<void> {
  page.removeAllListeners();
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await page.context().clearCookies();
  await page.context().setOffline(false);
  const rests = await page
    .evaluate(() => {
      const { theme, ramp } = JSON.parse(localStorage.getItem('perjoule') ?? '{}');
      localStorage.clear();
      sessionStorage.clear();
      const rest = window.__test?.rest as (() => void) | undefined;
      if (!rest || (theme ?? 'auto') !== 'auto' || (ramp ?? 'viridis') !== 'viridis') return false;
      rest();
      return true;
    })
    .catch(() => false); // a page without an origin stores nothing
  if (!rests) await blank(page);
}

async function blank(page: Page): Promise<void> {
  const url = page.url();
  if (url.startsWith('http')) await page.goto(new URL('/favicon.svg', url).href).catch(() => null);
}

/** Goes to an address as `page.goto` does; but what is stored is shown by the scripts that are loaded, whose loading is
 * half of what a visit costs. (What is live is not: they remember it.) */
export async function turnTo(page: Page, url: string): Promise<void> {
  const { origin, search, searchParams } = new URL(url);
  const shows =
    page.url().startsWith(`${origin}/`) &&
    STORED.has(searchParams.get('view') ?? '') &&
    (await page.evaluate((query) => {
      const again = window.__test?.again as ((query: string) => void) | undefined;
      again?.(query);
      return !!again;
    }, search));
  if (!shows) await page.goto(url);
}
const STORED = new Set(['analysis', 'history', 'compare']);

/** A page address with the test hooks on. */
export function at(base: string, query: Record<string, string> = {}): string {
  const q = new URLSearchParams({ ...query, test: '1' });
  return `${base}?${q}`;
}

/** Waits until the function, run in the page, is true. Functions only: the page's content security
 * policy forbids evaluating strings. */
export const until = <A>(page: Page, f: (arg: A) => unknown, arg: A): Promise<unknown> =>
  page.waitForFunction(f as (a: unknown) => unknown, arg as unknown, { polling: 100 });
