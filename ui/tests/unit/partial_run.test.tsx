// Display of a run with a partial total.
import { type ComponentChild, render } from 'preact';
import { afterEach, expect, test } from 'vitest';
import { PartialBadge } from '../../src/parts/badge.tsx';
import { Cards } from '../../src/views/compare/cards.tsx';
import { makeRun } from '../fixture/generate.ts';

const host = document.createElement('div');
afterEach(() => render(null, host));

function shown(what: ComponentChild): HTMLElement {
  render(what, host);
  return host;
}

const run = makeRun({ seed: 4, tokens: 20 }).summary;
const lacking = makeRun({ seed: 4, tokens: 20, lacks: ['gpu'] }).summary;

test('only a partial total has the badge, with an explanation', () => {
  const badge = shown(<PartialBadge run={lacking} />).querySelector('.badge.partial');
  expect(badge?.textContent).toBe('partial: CPU and DRAM only, GPU missing');
  expect(badge?.getAttribute('title')).toContain('lacks');
  expect(shown(<PartialBadge run={run} />).querySelector('.badge')).toBeNull();
});

test('each compared run shows whether its total is partial', () => {
  const cards = [...shown(<Cards runs={[run, lacking]} />).querySelectorAll('li')];
  expect(cards.map((c) => c.querySelectorAll('.badge.partial').length)).toEqual([0, 1]);
});
