import { useSignal } from '@preact/signals';
import { api } from '../api/client';
import { download } from '../core/table';
import { without } from '../state/selection';
import { Icon } from './icon';

const FORMATS = [
  ['json', 'JSON, whole run', 'json'],
  ['csv', 'CSV, one file per table (zip)', 'zip'],
  ['trace', 'Trace for Perfetto', 'trace.json'],
  ['speedscope', 'Energy flame graph for speedscope', 'speedscope.json'],
  ['folded', 'Folded stacks', 'folded'],
] as const;

/** Downloads of one run. Fetched by script, so that errors are shown here. */
export function ExportMenu({ id }: { id: string }) {
  const error = useSignal<string | null>(null);
  const save = async (format: string, extension: string) => {
    error.value = null;
    try {
      download(`perjoule-${id}.${extension}`, await api.export(id, { format, ...without.value }));
    } catch (e) {
      error.value = e instanceof Error ? e.message : String(e);
    }
  };
  return (
    <details class="menu">
      <summary class="btn">
        <Icon name="download" /> Export
      </summary>
      <ul>
        {FORMATS.map(([format, label, extension]) => (
          <li key={format}>
            <button
              type="button"
              onClick={(e) => {
                e.currentTarget.closest('details')?.removeAttribute('open');
                void save(format, extension);
              }}
            >
              {label}
            </button>
          </li>
        ))}
        <li>
          <a href={api.reportHref({ ids: id, ...without.value })} target="_blank" rel="noreferrer">
            Report, one page to forward
          </a>
        </li>
      </ul>
      {error.value && <p role="alert">{error.value}</p>}
    </details>
  );
}
