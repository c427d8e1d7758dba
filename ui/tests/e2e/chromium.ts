// Where Chromium is, and how it is started.
import { existsSync } from 'node:fs';

const FOUND = [
  '/usr/bin/chromium-headless-shell',
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
].find((p) => existsSync(process.env.CHROMIUM ?? p));

export const HOW = {
  executablePath: process.env.CHROMIUM ?? FOUND,
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
};
