// One run as a row of the history, and the columns that rows have.
import type { RunSummary } from '../../api/types';
import { onDevices } from '../../core/devices';
import {
  clip,
  dateTime,
  energy,
  energySigned,
  known,
  percent,
  plain,
  promptOf,
  time,
} from '../../core/format';
import type { Term } from '../../core/glossary';
import {
  energyPerToken,
  listedEnergy,
  listedToken,
  primaryHelp,
  primaryJoules,
  runEnergy,
  thinkingLine,
  thinkingShare,
} from '../../core/run_energy';
import { OriginBadges, PartialBadge, SourceBadge, StatusBadge } from '../../parts/badge';
import { Icon } from '../../parts/icon';
import { described, titleOf } from '../../state/names';
import { at, CHOSEN, follow, hrefNow, select } from '../../state/selection';
import { unit } from '../../state/settings';

/** From this share of disturbances on a run is marked. */
const MARKED = 0.1;

/** Maximum number of tags shown in a row; the rest is counted. */
const TAGS = 2;

export interface Column {
  key: string;
  label: string;
  sort?: string;
  num?: boolean;
  class?: string;
  term?: Term;
}

export const COLUMNS: Column[] = [
  { key: 'date', label: 'When', sort: 'date' },
  { key: 'prompt', label: 'Prompt' },
  { key: 'model', label: 'Model', class: 'model' },
  { key: 'tokens', label: 'Tokens', num: true, class: 'wider', term: 'phase' },
  {
    key: 'duration',
    label: 'Duration',
    sort: 'duration',
    num: true,
    class: 'wide',
    term: 'duration',
  },
  { key: 'energy', label: 'Energy', sort: 'energy', num: true, term: 'energy' },
  {
    key: 'jpt',
    label: 'Typical token',
    sort: 'joules_per_token_typical',
    num: true,
    term: 'typical',
  },
  { key: 'mean', label: 'Mean token', num: true, term: 'per_token' },
  { key: 'net', label: 'Net', num: true, term: 'net' },
  { key: 'tps', label: 'Tokens/s', sort: 'tokens_per_second', num: true, term: 'speed' },
  { key: 'batch', label: 'Batch', num: true },
  { key: 'threads', label: 'Threads', num: true },
  { key: 'engine', label: 'Engine' },
  { key: 'thinking', label: 'Thinking', num: true, term: 'thinking' },
  { key: 'disturbed', label: 'Disturbed', num: true, term: 'disturbed' },
  { key: 'state', label: 'State', class: 'wide', term: 'source' },
];

export function Row({
  run: r,
  repeats = 0,
  onRepeats,
  onDelete,
}: {
  run: RunSummary;
  /** Runs folded into this row; negative: they stand below it. */
  repeats?: number;
  onRepeats?: (group: string) => void;
  onDelete: (run: RunSummary) => void;
}) {
  const ids = at.ids.value;
  const on = ids.includes(r.id);
  const open = at.run.value === r.id;
  const na = (v: unknown) => (known(v as number) ? 'num' : 'num na hatched');
  return (
    <tr
      class={open ? 'open' : ''}
      onClick={(e) => {
        if (!(e.target as HTMLElement).closest('button, a, input'))
          select({ run: open ? null : r.id });
      }}
    >
      <td>
        <input
          type="checkbox"
          checked={on}
          disabled={!on && ids.length >= CHOSEN}
          aria-label={`Select ${clip(titleOf(r) || r.id, 40)}`}
          onChange={() => select({ ids: on ? ids.filter((i) => i !== r.id) : [...ids, r.id] })}
        />
      </td>
      <td data-col="date" data-label="When">
        <span class="nowrap" title={r.created_at}>
          {dateTime(r.created_at)}
        </span>
      </td>
      <td class="prompt">
        <div>
          <button
            type="button"
            class="link"
            title={[described(r).name, promptOf(r)].filter(Boolean).join('\n')}
            onClick={() => select({ run: open ? null : r.id })}
            aria-expanded={open}
          >
            {described(r).name ? (
              <>
                <strong>{described(r).name}</strong>{' '}
                <span class="muted">{clip(promptOf(r), 80)}</span>
              </>
            ) : (
              clip(titleOf(r), 160) || <em>no prompt</em>
            )}
          </button>
          {described(r).note && (
            <span class="tag" title={described(r).note ?? ''}>
              note
            </span>
          )}
          {repeats !== 0 && (
            <button
              type="button"
              class="tag repeats"
              aria-expanded={repeats < 0}
              title={repeats > 0 ? 'Show every repeat' : 'Fold the repeats'}
              aria-label={`${repeats > 0 ? 'Show' : 'Fold'} ${Math.abs(repeats) + 1} repeats`}
              onClick={() => onRepeats?.(r.repeat_group ?? '')}
            >
              {repeats > 0 ? '×' : '−'} {Math.abs(repeats) + 1}
            </button>
          )}
          <OriginBadges run={r} brief />
          {r.tags.length > 0 && (
            <span class="tags" title={r.tags.join(', ')}>
              {r.tags.slice(0, TAGS).map((t) => (
                <span class="tag" key={t}>
                  {t}
                </span>
              ))}
              {r.tags.length > TAGS && <span class="tag">+{r.tags.length - TAGS}</span>}
            </span>
          )}
        </div>
      </td>
      <td
        data-col="model"
        class="nowrap model"
        data-label="Model"
        title={`${r.model_name ?? ''} ${r.dtype ?? ''} ${onDevices(r)}`}
      >
        <div class="named">
          <span class="name">{r.model_name}</span>
          <span class="muted">
            {r.dtype} {onDevices(r)}
          </span>
        </div>
      </td>
      <td data-col="tokens" class="num wider" data-label="Tokens">
        {r.input_tokens ?? '–'} → {r.output_tokens ?? '–'}
      </td>
      <td data-col="duration" class="num wide" data-label="Duration">
        {time(r.total_duration_ms)}
      </td>
      <td data-col="energy" class={na(r.total_energy_mj)} data-label="Energy">
        <span title={runEnergy(r, unit.value)}>{shortEnergy(r)}</span>
        {/* Where there is no room for the column of states, too. */}
        {r.energy_source === 'modelled' && <abbr title="Modelled, not measured">~</abbr>}{' '}
        <PartialBadge run={r} />
      </td>
      <td
        class={na(primaryJoules(r))}
        data-col="jpt"
        data-label="Typical token"
        title={primaryHelp(r, unit.value)}
      >
        {listedToken(r, unit.value)}
      </td>
      <td data-col="mean" class={na(r.joules_per_token)} data-label="Mean token">
        {energyPerToken(r, unit.value)}
      </td>
      <td data-col="net" class={na(r.net_energy_mj)} data-label="Net">
        {energySigned(r.net_energy_mj, r.net_energy_sd_mj, unit.value)}
      </td>
      <td data-col="tps" class={na(r.tokens_per_second)} data-label="Tokens/s">
        {plain(r.tokens_per_second)}
      </td>
      <td data-col="batch" class="num" data-label="Batch">
        {r.batch_size ?? 1}
      </td>
      <td data-col="threads" class="num" data-label="Threads">
        {r.threads ?? '–'}
      </td>
      <td data-col="engine" data-label="Engine">
        {r.engine ?? '–'}
      </td>
      <td
        data-col="thinking"
        class="num"
        data-label="Thinking"
        title={thinkingLine(r, unit.value) ?? ''}
      >
        {known(thinkingShare(r)) ? percent(thinkingShare(r)) : '–'}
      </td>
      <td data-col="disturbed" class="num" data-label="Disturbed">
        {known(r.disturbed_share) ? percent(r.disturbed_share) : '–'}
      </td>
      <td data-col="state" class="state-cell wide" data-label="State">
        {/* Most runs are completed, so only other states are shown. */}
        {r.status === 'completed' ? (
          <span class="sr-only">completed</span>
        ) : (
          <StatusBadge status={r.status} />
        )}
        {r.energy_source === 'modelled' && <SourceBadge source={r.energy_source} />}
        {(r.disturbed_share ?? 0) >= MARKED && (
          <span
            class="badge shaken"
            title="Share of the request's energy in disturbances; the typical token is without them."
          >
            <Icon name="warning" /> {Math.round(100 * (r.disturbed_share ?? 0))} %
            <span class="sr-only"> disturbed</span>
          </span>
        )}
      </td>
      <td class="actions">
        <a
          class="tool"
          title="Open in Analysis"
          aria-label={`Open in Analysis: ${clip(titleOf(r) || r.id, 40)}`}
          href={hrefNow({ view: 'analysis', run: r.id })}
          onPointerEnter={(e) => renew(e.currentTarget, r.id)}
          onFocus={(e) => renew(e.currentTarget, r.id)}
          onClick={(e) => follow(e, 'analysis', { run: r.id })}
        >
          <Icon name="chevron" />
        </a>
        <button
          type="button"
          class="tool"
          title="Delete"
          aria-label={`Delete ${clip(titleOf(r) || r.id, 40)}`}
          onClick={() => onDelete(r)}
        >
          <Icon name="trash" />
        </button>
      </td>
    </tr>
  );
}

/** Brings the address of a link up to date before it can be used. */
const renew = (link: HTMLAnchorElement, run: string): void => {
  link.href = hrefNow({ view: 'analysis', run });
};

/** For narrow columns: the upper bound of an unresolved energy, without the explanation. */
const shortEnergy = (r: RunSummary): string =>
  r.unavailable_reason === 'below_resolution' && known(r.energy_upper_mj)
    ? `unavailable, ≤ ${energy(r.energy_upper_mj, unit.value)}`
    : listedEnergy(r, unit.value);
