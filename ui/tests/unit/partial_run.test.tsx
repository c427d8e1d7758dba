// What the page shows of a run whose total is partial, disturbed or below the sensor's resolution.
import { type ComponentChild, render } from 'preact';
import { afterEach, expect, test } from 'vitest';
import type { RunSummary, Summary } from '../../src/api/types.ts';
import { PartialBadge } from '../../src/parts/badge.tsx';
import { Headline } from '../../src/views/analysis/headline.tsx';
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
const headline = (change: Partial<RunSummary> = {}) =>
  shown(<Headline s={{ ...run, ...change } as Summary} />);
const figure = (label: string): HTMLElement | undefined =>
  [...host.querySelectorAll<HTMLElement>('.figure')].find((f) =>
    f.querySelector('dt')?.textContent?.startsWith(label),
  );

test('the badge is there for a partial total only, with an explanation', () => {
  const badge = shown(<PartialBadge run={lacking} />).querySelector('.badge.partial');
  expect(badge?.textContent).toBe('partial: CPU and DRAM only, GPU missing');
  expect(badge?.getAttribute('title')).toContain('lacks');
  expect(shown(<PartialBadge run={run} />).querySelector('.badge')).toBeNull();
});

test('each compared run says whether its total is partial', () => {
  const cards = [...shown(<Cards runs={[run, lacking]} />).querySelectorAll('li')];
  expect(cards.map((c) => c.querySelectorAll('.badge.partial').length)).toEqual([0, 1]);
});

test('the head of an analysis tells mean, typical token and model load apart', () => {
  headline({
    joules_per_token: 0.229,
    joules_per_token_sd: 0.002,
    joules_per_token_typical: 0.209,
    model_load_energy_mj: 1200,
    disturbed_share: 0,
  });
  expect(figure('Per output token')?.querySelector('dd')?.textContent).toBe('229 ± 4 mJ');
  expect(figure('Typical token')?.querySelector('dd')?.textContent).toBe('209 mJ');
  expect(figure('Model load')?.querySelector('dd')?.textContent).toBe('1.20 J');
  for (const label of ['Energy', 'Per output token', 'Typical token', 'Model load'])
    expect(figure(label)?.title.length).toBeGreaterThan(20);
  expect(figure('Disturbed')).toBeUndefined();
});

test('a share of disturbed tokens is shown with what it means', () => {
  headline({ disturbed_share: 0.031, disturbed_tokens: 2 });
  expect(figure('Disturbed')?.querySelector('dd')?.textContent).toBe('3.10 %');
  expect(figure('Disturbed')?.title).toContain('2 tokens');
});

test('an energy below the resolution is marked as unavailable, with its bound', () => {
  headline({
    total_energy_mj: null,
    total_energy_sd_mj: null,
    unavailable_reason: 'below_resolution',
    energy_upper_mj: 3400,
  });
  const value = figure('Energy')?.querySelector('dd');
  expect(value?.textContent).toBe("unavailable (below the sensor's resolution, at most 3.40 J)");
  expect(value?.classList.contains('na')).toBe(true);
});

test('before the figures come, none of them has a value', () => {
  shown(<Headline s={null} />);
  for (const value of host.querySelectorAll('dd')) expect(value.textContent).toBe('…');
});
