// One page, built for embedding: hashed names, nothing inlined (the page's content security policy
// allows no inline script or style), relative addresses so that it also works behind a prefix.
// `npm run dev` serves generated runs unless PERJOULE_URL names a real server to pass requests to.
import { defineConfig, type UserConfig } from 'vite';

const server = process.env.PERJOULE_URL;

export default defineConfig(
  async ({ command }): Promise<UserConfig> => ({
    base: './',
    plugins:
      command === 'serve' && !server
        ? [(await import('./tests/fixture/plugin.ts')).fixturePlugin()]
        : [],
    server: server
      ? { proxy: { '/api': server, '/metrics': server, '/ws': { target: server, ws: true } } }
      : {},
    build: {
      target: 'es2022',
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      sourcemap: false,
      reportCompressedSize: false,
      chunkSizeWarningLimit: 400,
    },
  }),
);
