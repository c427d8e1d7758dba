import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type Entry, GLOSSARY } from '../../src/core/glossary.ts';

const DOCS = join(import.meta.dirname, '../../../docs');

test('every term refers to an existing section', () => {
  for (const [term, e] of Object.entries(GLOSSARY) as [string, Entry][]) {
    const [file, heading] = e.where.split(/, (.*)/);
    const lines = readFileSync(join(DOCS, file), 'utf8').split('\n');
    const found = lines.some((l) => /^#+ /.test(l) && l.replace(/^#+ /, '').startsWith(heading));
    expect(found, `${term}: ${e.where}`).toBe(true);
    expect(e.text, term).toMatch(/\.$/);
  }
});
