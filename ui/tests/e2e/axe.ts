// Accessibility by axe-core, WCAG 2 levels A and AA. The rules are read from the package and run in the page
// by the test, because the page's content security policy would block them.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';

const SOURCE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

interface Violation {
  id: string;
  help: string;
  nodes: { html: string; failureSummary?: string }[];
}

/** Violations as readable lines; empty if there are none. */
export async function axe(page: Page): Promise<string[]> {
  // Colours in transition are of neither theme.
  await page.evaluate(() => {
    for (const a of document.getAnimations()) if (a instanceof CSSTransition) a.finish();
  });
  // evaluate() runs outside of the page's content security policy.
  await page.evaluate(SOURCE);
  const found = await page.evaluate(async () => {
    const engine = (
      window as unknown as {
        axe: { run: (d: Document, o: object) => Promise<{ violations: unknown[] }> };
      }
    ).axe;
    return (await engine.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] }))
      .violations;
  });
  return (found as Violation[]).flatMap((v) =>
    v.nodes
      .slice(0, 4)
      .map((n) => `${v.id}: ${v.help}: ${n.html.slice(0, 160)} ${n.failureSummary ?? ''}`),
  );
}
