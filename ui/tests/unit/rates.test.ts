// The regions that the page offers are those of the program.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { REGIONS } from '../../src/parts/rates';

test('the carbon of a region is the one of --region', () => {
  const source = readFileSync(join(import.meta.dirname, '../../../src/analysis/cost.c'), 'utf8');
  const known = [...source.matchAll(/\{"(\w+)", "[^"]+", (\d+)\}/g)];
  for (const [region, grams] of REGIONS)
    expect(known.find((k) => k[1] === region.toLowerCase())?.[2]).toBe(String(grams));
});
