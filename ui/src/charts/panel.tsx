// The frame of every chart: title, description, legend, loading and empty states, table view, CSV
// and PNG export, and an error boundary, so that a failing chart does not take the page down.
import { Component, type ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Term } from '../core/glossary';
import { download, fileName, type Table, toCsv } from '../core/table';
import { Explain, type Explanation } from '../parts/explain';
import { Icon } from '../parts/icon';
import { Sentence } from '../parts/notice';
import { picture } from './picture';
import { colours, RAIL_LABEL, RAILS, type Rail } from './theme';

export interface LegendItem {
  label: string;
  colour: string;
  /** Drawn as a line, a filled square, or hatching. */
  kind?: 'line' | 'square' | 'hatch' | 'dash';
  off?: boolean;
  onToggle?: () => void;
}

export type PanelState =
  | { kind: 'ready' }
  | { kind: 'loading' }
  | { kind: 'empty'; text: string }
  | { kind: 'error'; text: string; retry?: () => void };

export const READY: PanelState = { kind: 'ready' };

export interface PanelProps {
  title: string;
  /** Explanation of the title, shown on hover and focus. */
  of?: Explanation | Term;
  /** What the chart shows and in which unit, in one short line. */
  note?: ComponentChildren;
  badge?: ComponentChildren;
  legend?: ComponentChildren;
  actions?: ComponentChildren;
  state?: PanelState;
  table?: () => Table;
  /** Of a canvas; without it, the panel is painted as it is laid out. */
  png?: () => Promise<Blob | null>;
  class?: string;
  /** CSS class with the chart's height, applied before the chart exists to avoid layout shift. */
  body?: string;
  children?: ComponentChildren;
}

const ROWS_SHOWN = 500;

class Boundary extends Component<
  { title: string; children?: ComponentChildren },
  { error: string | null }
> {
  override state = { error: null as string | null };
  override componentDidCatch(error: unknown): void {
    this.setState({ error: error instanceof Error ? error.message : String(error) });
  }
  override render() {
    if (this.state.error === null) return this.props.children;
    const again = () => this.setState({ error: null });
    return (
      <Trouble text={`${this.props.title} could not be drawn: ${this.state.error}`} retry={again} />
    );
  }
}

export function Trouble({ text, retry }: { text: string; retry?: () => void }) {
  return (
    <div class="state" role="alert">
      <Icon name="warning" />
      <p>
        <Sentence text={text} />
      </p>
      {retry && (
        <button type="button" class="btn" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Panel(props: PanelProps) {
  const { title, of, note, badge, legend, actions, state = READY, table, png, children } = props;
  const [tabular, setTabular] = useState(false);
  const section = useRef<HTMLElement>(null);
  const ready = state.kind === 'ready';
  const save = async () => {
    const blob = png ? await png() : section.current && (await picture(section.current));
    if (blob) download(fileName(title, 'png'), blob);
  };
  const csv = () => {
    if (table) download(fileName(title, 'csv'), new Blob([toCsv(table())], { type: 'text/csv' }));
  };
  return (
    <section
      ref={section}
      class={`panel ${props.class ?? ''}`}
      aria-label={title}
      aria-busy={state.kind === 'loading'}
    >
      <header class="panel-head">
        <div class="panel-title">
          <h3>{of ? <Explain of={of}>{title}</Explain> : title}</h3>
          {badge}
        </div>
        {note && <p class="note">{note}</p>}
        {actions && <div class="panel-actions">{actions}</div>}
        <div class="panel-tools">
          {table && (
            <button
              type="button"
              class="tool"
              aria-pressed={tabular}
              disabled={!ready}
              title="View as table"
              aria-label={`${title}: view as table`}
              onClick={() => setTabular(!tabular)}
            >
              <Icon name="table" />
            </button>
          )}
          {table && (
            <button
              type="button"
              class="tool"
              disabled={!ready}
              title="Save data as CSV"
              aria-label={`${title}: save data as CSV`}
              onClick={csv}
            >
              CSV
            </button>
          )}
          {(png || table) && (
            <button
              type="button"
              class="tool"
              disabled={!ready || tabular}
              title="Save picture as PNG"
              aria-label={`${title}: save picture as PNG`}
              onClick={save}
            >
              PNG
            </button>
          )}
        </div>
      </header>
      {legend && ready && !tabular && <div class="legend">{legend}</div>}
      <Boundary title={title}>
        {state.kind === 'loading' && (
          <div class={`state skeleton ${props.body ?? ''}`}>Loading…</div>
        )}
        {state.kind === 'empty' && <div class="state">{state.text}</div>}
        {state.kind === 'error' && <Trouble text={state.text} retry={state.retry} />}
        {ready && tabular && table && <DataTable table={table()} title={title} />}
        {ready && !tabular && children}
      </Boundary>
    </section>
  );
}

const shown = (cell: string | number | null): string => {
  if (cell === null || (typeof cell === 'number' && !Number.isFinite(cell))) return 'unavailable';
  if (typeof cell === 'string' || Number.isInteger(cell)) return String(cell);
  return cell.toPrecision(6).replace(/\.?0+$/, '');
};

function DataTable({ table, title }: { table: Table; title: string }) {
  const rows = table.rows.slice(0, ROWS_SHOWN);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard
    <section class="data-table" tabIndex={0} aria-label={`${title}, table`}>
      <table>
        <thead>
          <tr>
            {table.columns.map((c) => (
              <th scope="col" key={c}>
                {c}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, i) => (
            <tr key={i}>
              {row.map((cell, j) => (
                <td key={j} class={typeof cell === 'number' ? 'num' : cell === null ? 'na' : ''}>
                  {shown(cell)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {table.rows.length > ROWS_SHOWN && (
        <p class="note">
          The first {ROWS_SHOWN} of {table.rows.length.toLocaleString('en-US')} rows; the CSV has
          all.
        </p>
      )}
    </section>
  );
}

export function Legend({ items }: { items: LegendItem[] }) {
  return (
    <ul class="legend-list">
      {items.map((it) => (
        <li key={it.label}>
          {it.onToggle ? (
            <button type="button" class="legend-item" aria-pressed={!it.off} onClick={it.onToggle}>
              <Swatch {...it} /> {it.label}
            </button>
          ) : (
            <span class="legend-item">
              <Swatch {...it} /> {it.label}
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}

/** Toggles for the available rails, and a summary of the missing ones. */
export function RailLegend(props: {
  there: (rail: Rail) => boolean;
  shown: Record<Rail, boolean>;
  onToggle: (rail: Rail) => void;
}) {
  const c = colours();
  const gone = RAILS.filter((r) => !props.there(r));
  const items: LegendItem[] = RAILS.filter(props.there).map((r) => ({
    label: RAIL_LABEL[r],
    colour: c.rail[r],
    kind: 'line',
    off: !props.shown[r],
    onToggle: () => props.onToggle(r),
  }));
  if (gone.length)
    items.push({
      label: `${gone.map((r) => RAIL_LABEL[r]).join(', ')} unavailable`,
      colour: c.text3,
      kind: 'hatch',
    });
  return <Legend items={items} />;
}

function Swatch({ colour, kind = 'square' }: LegendItem) {
  return (
    <svg class="swatch" width="12" height="12" viewBox="0 0 12 12" aria-hidden="true">
      {kind === 'square' && <rect width="12" height="12" rx="3" fill={colour} />}
      {kind === 'line' && <rect y="5" width="12" height="2.5" rx="1" fill={colour} />}
      {kind === 'dash' && <path d="M0 6h5M7 6h5" stroke={colour} stroke-width="2" />}
      {kind === 'hatch' && (
        <g stroke={colour} stroke-width="1.5">
          <path d="M0 6 6 0M0 12 12 0M6 12l6-6" />
        </g>
      )}
    </svg>
  );
}

/** A chart's interface to its frame. */
export interface Drawn {
  onError: (error: unknown) => void;
  dispose(): void;
}

export interface CanvasProps<C extends Drawn> {
  make: (host: HTMLElement) => C;
  /** Updates the chart; runs after every render of the owner. */
  update: (chart: C) => void;
  label: string;
  class?: string;
  handle?: { current: C | null };
  /** A name under which tests find the chart. */
  name?: string;
}

/** Mounts a canvas chart in the page. The label is for screen readers. */
export function Canvas<C extends Drawn>(props: CanvasProps<C>) {
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<C | null>(null);
  const [failed, setFailed] = useState<unknown>(null);
  if (failed) throw failed;
  useEffect(() => {
    if (!host.current) return;
    const made = props.make(host.current);
    made.onError = setFailed;
    chart.current = made;
    if (props.handle) props.handle.current = made;
    if (props.name) register(props.name, made);
    props.update(made);
    return () => {
      chart.current = null;
      if (props.handle) props.handle.current = null;
      if (props.name) register(props.name, null);
      made.dispose();
    };
  }, []);
  useEffect(() => {
    if (chart.current) props.update(chart.current);
  });
  return (
    <div
      ref={host}
      class={`canvas ${props.class ?? ''}`}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: its marks are walked with the arrow keys
      tabIndex={0}
      role="img"
      aria-label={props.label}
    />
  );
}

declare global {
  interface Window {
    __test?: Record<string, unknown>;
  }
}

/** With ?test=1 in the address, tests may look at charts: a canvas is opaque to selectors. */
export function register(name: string, thing: unknown): void {
  if (window.__test) window.__test[name] = thing;
}
