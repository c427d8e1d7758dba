// Chromium for the tests: one browser per file, one context per test. Console errors, page errors and blocked
// resources are collected; a test with any of them fails.
import { existsSync } from 'node:fs';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';

export const CHROMIUM = [
  '/usr/bin/chromium-headless-shell',
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
].find((p) => existsSync(process.env.CHROMIUM ?? p));

export const launch = (): Promise<Browser> =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? CHROMIUM,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--force-color-profile=srgb',
      // Disables Chromium's background requests, which fail in a closed network.
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-quic',
      '--disable-sync',
    ],
  });

/** Why no browser can be started here; empty if one can. */
export const noBrowser = async (): Promise<string> => {
  if (!CHROMIUM && !process.env.CHROMIUM) return 'no Chromium is installed';
  try {
    await (await launch()).close();
    return '';
  } catch (e) {
    return `Chromium does not start here: ${(e as Error).message.split('\n')[0]}`;
  }
};

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

export async function open(browser: Browser, url: string, how: How = {}): Promise<Opened> {
  const context = await browser.newContext({
    viewport: { width: how.width ?? 1280, height: how.height ?? 900 },
    colorScheme: how.dark ? 'dark' : 'light',
    reducedMotion: how.still ? 'reduce' : 'no-preference',
    deviceScaleFactor: how.scale ?? 1,
    acceptDownloads: true,
  });
  const page = await context.newPage();
  const problems: string[] = [];
  const note = (text: string) => {
    if (!how.expected?.test(text)) problems.push(text);
  };
  page.on('pageerror', (e) => note(`page error: ${e.message}`));
  page.on('console', (m) => {
    if (m.type() === 'error') note(`console: ${m.text()}`);
  });
  await page.goto(url);
  return { page, context, problems, close: () => context.close() };
}

/** A page address with the test hooks on. */
export function at(base: string, query: Record<string, string> = {}): string {
  const q = new URLSearchParams({ ...query, test: '1' });
  return `${base}?${q}`;
}

/** Waits until the function, run in the page, is true. Functions only: the page's content security
 * policy forbids evaluating strings. */
export const until = <A>(
  page: Page,
  f: (arg: A) => unknown,
  arg: A,
  timeout = 30_000,
): Promise<unknown> =>
  page.waitForFunction(f as (a: unknown) => unknown, arg as unknown, { timeout });
