// unit: pure functions and components in happy-dom. e2e: the real binary (PERJOULE_BIN) and the
// fixture server in a real Chromium. budget: the performance budgets, run on request only.
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          environment: 'happy-dom',
          include: ['tests/unit/**/*.test.{ts,tsx}'],
          isolate: false, // a page's modules are loaded once, which is most of what these tests cost
        },
      },
      {
        test: {
          name: 'e2e',
          environment: 'node',
          include: ['tests/e2e/**/*.test.ts'],
          maxWorkers: 2, // run in parallel: each file has its own server, and mostly waits
          isolate: false, // a worker starts one browser, and loads what drives it once
          // Limits are against hanging only; no test has one of its own, which a busy machine could exceed.
          testTimeout: 600_000,
          hookTimeout: 600_000,
          expect: { poll: { timeout: 120_000, interval: 100 } },
        },
      },
      {
        test: {
          name: 'shots',
          environment: 'node',
          include: ['tests/shots/**/*.test.ts'],
          fileParallelism: false,
          testTimeout: 120_000,
          hookTimeout: 120_000,
        },
      },
      {
        test: {
          name: 'budget',
          environment: 'node',
          include: ['tests/budget/**/*.test.ts'],
          fileParallelism: false,
          testTimeout: 300_000,
          hookTimeout: 120_000,
        },
      },
    ],
  },
});
