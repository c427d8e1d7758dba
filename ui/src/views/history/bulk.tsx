// Bulk actions on the ticked runs: compare, tag, export, delete.
import { useSignal } from '@preact/signals';
import { useState } from 'preact/hooks';
import { api, type Query } from '../../api/client';
import type { RunSummary } from '../../api/types';
import { download, type Table, toCsv } from '../../core/table';
import { Confirm } from '../../parts/confirm';
import { Icon } from '../../parts/icon';
import { Notice } from '../../parts/notice';
import { at, COMPARED, go, select, selection, without } from '../../state/selection';

/** Limit of concurrent requests, because the server has other clients. */
const ABREAST = 6;
/** Maximum number of files saved by one click. */
const FILES = 20;
/** All matching runs, up to the server's page limit. */
const MATCHING = 10_000;

async function forEach<T>(list: T[], work: (item: T) => Promise<void>): Promise<void> {
  const rest = list.slice();
  const worker = async () => {
    for (let item = rest.shift(); item !== undefined; item = rest.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: Math.min(ABREAST, list.length) }, worker));
}

const FIGURES = [
  'id',
  'created_at',
  'status',
  'prompt',
  'model_name',
  'dtype',
  'engine',
  'scope',
  'level',
  'profiling_depth',
  'batch_size',
  'threads',
  'machine',
  'experiment_name',
  'input_tokens',
  'output_tokens',
  'total_duration_ms',
  'energy_source',
  'total_energy_mj',
  'total_energy_sd_mj',
  'net_energy_mj',
  'request_energy_mj',
  'model_load_energy_mj',
  'joules_per_token',
  'joules_per_token_sd',
  'joules_per_token_typical',
  'joules_per_token_typical_lo',
  'joules_per_token_typical_hi',
  'tokens_per_second',
  'tokens_per_joule',
  'mean_power_mw',
  'disturbed_share',
  'cost_usd',
  'co2_grams',
] as const satisfies readonly (keyof RunSummary)[];

/** Summaries as a table: figures in the API's units, empty if unavailable. */
export function figuresOf(runs: RunSummary[]): Table {
  return {
    columns: [...FIGURES, 'partial_rails', 'tags'],
    rows: runs.map((r) => [
      ...FIGURES.map((k) => r[k] ?? null),
      (r.partial_rails ?? []).join(' '),
      r.tags.join(' '),
    ]),
  };
}

export function Bulk({ q, total, changed }: { q: Query; total: number; changed: () => void }) {
  const ids = at.ids.value;
  const busy = useSignal(false);
  const error = useSignal<string | null>(null);
  const [asking, setAsking] = useState(false);
  const attempt = async (work: () => Promise<void>) => {
    if (busy.value) return;
    busy.value = true;
    error.value = null;
    try {
      await work();
    } catch (e) {
      error.value = e instanceof Error ? e.message : String(e);
    }
    busy.value = false;
  };
  const remove = () =>
    attempt(async () => {
      const gone = new Set<string>();
      try {
        await forEach(ids, async (id) => {
          await api.remove(id);
          gone.add(id);
        });
      } finally {
        const s = selection.value;
        select({
          ids: s.ids.filter((i) => !gone.has(i)),
          run: s.run && gone.has(s.run) ? null : s.run,
        });
        setAsking(false);
        changed();
      }
    });
  const many = ids.length > COMPARED;
  return (
    <div class="row bulk">
      {ids.length > 0 && (
        <>
          <span class="muted" role="status">
            {ids.length} selected
          </span>
          <button type="button" class="btn" onClick={() => select({ ids: [] })}>
            Clear
          </button>
          <TagMenu
            busy={busy.value}
            onTag={(tag, add) =>
              void attempt(async () => {
                await forEach(ids, (id) => api.retag(id, add ? { add: [tag] } : { remove: [tag] }));
                changed();
              })
            }
          />
          <button
            type="button"
            class="btn danger"
            disabled={busy.value}
            onClick={() => setAsking(true)}
          >
            <Icon name="trash" /> Delete
          </button>
        </>
      )}
      <SaveMenu ids={ids} q={q} total={total} attempt={attempt} />
      <button
        type="button"
        class="btn primary"
        disabled={ids.length < 2 || many}
        title={
          many
            ? `Up to ${COMPARED} runs stand side by side; “Compare groups” takes any number`
            : `Select 2 to ${COMPARED} runs`
        }
        onClick={() => go({ view: 'compare', by: '' })}
      >
        <Icon name="compare" /> Compare
      </button>
      {error.value && <Notice bad>{error.value}</Notice>}
      <Confirm
        open={asking}
        title={ids.length === 1 ? 'Delete this run?' : `Delete ${ids.length} runs?`}
        text={`Everything recorded in ${ids.length === 1 ? 'it' : 'them'} will be gone.`}
        action="Delete"
        error={null}
        onYes={() => void remove()}
        onNo={() => setAsking(false)}
      />
    </div>
  );
}

function TagMenu(props: { busy: boolean; onTag: (tag: string, add: boolean) => void }) {
  const typed = useSignal('');
  const use = (add: boolean) => {
    const tag = typed.value.trim();
    if (tag) props.onTag(tag, add);
  };
  return (
    <details class="menu">
      <summary class="btn">Tag</summary>
      <form
        class="menu-form"
        onSubmit={(e) => {
          e.preventDefault();
          use(true);
        }}
      >
        <label class="field">
          <span>Tag of the selected runs</span>
          <input
            class="input"
            name="tag"
            value={typed.value}
            onInput={(e) => {
              typed.value = e.currentTarget.value;
            }}
          />
        </label>
        <div class="row">
          <button type="submit" class="btn small" disabled={props.busy || !typed.value.trim()}>
            Add
          </button>
          <button
            type="button"
            class="btn small"
            disabled={props.busy || !typed.value.trim()}
            onClick={() => use(false)}
          >
            Remove
          </button>
        </div>
      </form>
    </details>
  );
}

function SaveMenu(props: {
  ids: string[];
  q: Query;
  total: number;
  attempt: (work: () => Promise<void>) => Promise<void>;
}) {
  const { ids, q, total } = props;
  const csv = async () => {
    const list = ids.length
      ? await chosen(ids)
      : (await api.runs({ ...q, limit: MATCHING, offset: 0 })).runs;
    download('perjoule-runs.csv', new Blob([toCsv(figuresOf(list))], { type: 'text/csv' }));
  };
  const files = async () => {
    for (const id of ids)
      download(`perjoule-${id}.json`, await api.export(id, { format: 'json', ...without.value }));
  };
  const pick = (e: Event, work: () => Promise<void>) => {
    (e.currentTarget as HTMLElement).closest('details')?.removeAttribute('open');
    void props.attempt(work);
  };
  return (
    <details class="menu">
      <summary class="btn">
        <Icon name="download" /> Export
      </summary>
      <ul>
        <li>
          <button type="button" disabled={total === 0} onClick={(e) => pick(e, csv)}>
            {ids.length
              ? `Figures of the ${ids.length} selected, CSV`
              : `Figures of all ${Math.min(total, MATCHING).toLocaleString('en-US')} matching, CSV`}
          </button>
        </li>
        {ids.length > 0 && (
          <li>
            <button
              type="button"
              disabled={ids.length > FILES}
              title={ids.length > FILES ? `At most ${FILES} files at a time` : undefined}
              onClick={(e) => pick(e, files)}
            >
              Whole runs, one JSON file each
            </button>
          </li>
        )}
        {ids.length > 0 && ids.length <= COMPARED && (
          <li>
            <a
              href={api.reportHref({ ids: ids.join(','), ...without.value })}
              target="_blank"
              rel="noreferrer"
            >
              Report of the selected runs
            </a>
          </li>
        )}
      </ul>
    </details>
  );
}

/** In the order of the selection. */
async function chosen(ids: string[]): Promise<RunSummary[]> {
  const found = new Map<string, RunSummary>();
  await forEach(ids, async (id) => {
    found.set(id, await api.detail(id));
  });
  return ids.flatMap((id) => found.get(id) ?? []);
}
