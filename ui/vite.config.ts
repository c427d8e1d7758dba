// One page, built for embedding: hashed names, nothing inlined (the page's content security policy allows no
// inline script or style), relative URLs so that it also works below a prefix.
// `npm run dev` serves generated runs unless PERJOULE_URL names a real server to proxy requests to.
import { defineConfig, type Plugin, type UserConfig } from 'vite';

const server = process.env.PERJOULE_URL;

/** Preloads the page's one big chunk in parallel with the entry script that imports it. */
const preloadStart: Plugin = {
  name: 'preload-start',
  transformIndexHtml: {
    order: 'post',
    handler: (_html, { bundle }) =>
      Object.values(bundle ?? {}).flatMap((chunk) =>
        chunk.type === 'chunk' && chunk.isDynamicEntry
          ? [
              {
                tag: 'link',
                attrs: { rel: 'modulepreload', crossorigin: true, href: `./${chunk.fileName}` },
                injectTo: 'head' as const,
              },
            ]
          : [],
      ),
  },
};

export default defineConfig(
  async ({ command }): Promise<UserConfig> => ({
    base: './',
    plugins:
      command === 'serve' && !server
        ? [(await import('./tests/fixture/plugin.ts')).fixturePlugin()]
        : [preloadStart],
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
