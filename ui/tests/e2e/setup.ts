// Starts the one browser of all test files.
import { chromium } from 'playwright-core';
import type { TestProject } from 'vitest/node';
import { HOW } from './chromium.ts';

export default async ({ provide }: TestProject): Promise<() => Promise<void>> => {
  const why = (text: string) => {
    provide('browser', '');
    provide('noBrowser', text);
    return async () => {};
  };
  if (!HOW.executablePath) return why('no Chromium is installed');
  try {
    const server = await chromium.launchServer(HOW);
    provide('browser', server.wsEndpoint());
    provide('noBrowser', '');
    return () => server.close();
  } catch (e) {
    return why(`Chromium does not start here: ${(e as Error).message.split('\n')[0]}`);
  }
};
