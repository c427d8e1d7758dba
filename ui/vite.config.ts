// One page, built for embedding: hashed names, nothing inlined (the page's content security policy allows no
// inline script or style), relative URLs so that it also works below a prefix. `--mode report` builds the report
// instead: a single file with everything inlined, which `perjoule report` adds its data to.
// `npm run dev` serves generated runs unless PERJOULE_URL names a real server to proxy requests to.
import { createHash } from 'node:crypto';
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

const hashOf = (text: string): string =>
  `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** Puts the script and the style sheet into the report's HTML, and a policy that allows these two and no network. */
const oneFile: Plugin = {
  name: 'one-file',
  enforce: 'post',
  generateBundle(_options, bundle) {
    let [html, script, style] = ['', '', ''];
    for (const [name, part] of Object.entries(bundle)) {
      if (part.type === 'chunk') script += part.code;
      else if (name.endsWith('.css')) style += part.source;
      else html += part.source;
      delete bundle[name];
    }
    script = script.replaceAll('</script', '<\\/script').replaceAll('<!--', '<\\!--');
    const policy = [
      "default-src 'none'",
      `script-src ${hashOf(script)}`,
      `style-src ${hashOf(style)}`,
      'img-src data: blob:',
      "base-uri 'none'",
      "form-action 'none'",
    ].join('; ');
    const source = html
      .replace(/\s*<(script|link)[^>]*(src|href)="[^"]*"[^>]*>(<\/script>)?/g, '')
      .replace(
        '<meta',
        () => `<meta http-equiv="Content-Security-Policy" content="${policy}" />\n    <meta`,
      )
      .replace('</head>', () => `  <style>${style}</style>\n  </head>`)
      .replace('</body>', () => `<script type="module">${script}</script>\n  </body>`);
    this.emitFile({ type: 'asset', fileName: 'report.html', source });
  },
};

export default defineConfig(
  async ({ command, mode }): Promise<UserConfig> => ({
    base: './',
    publicDir: mode === 'report' ? false : 'public',
    plugins:
      mode === 'report'
        ? [oneFile]
        : command === 'serve' && !server
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
      ...(mode === 'report' ? { rolldownOptions: { input: 'report.html' } } : {}),
    },
  }),
);
