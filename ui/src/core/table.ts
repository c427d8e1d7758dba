// The data of a chart, for its table view and CSV.

export type Cell = string | number | null;

export interface Table {
  columns: string[];
  rows: Cell[][];
}

const quote = (cell: Cell): string => {
  if (cell === null || (typeof cell === 'number' && !Number.isFinite(cell))) return '';
  const text = String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

/** RFC 4180: CRLF, quotes doubled. Unavailable is an empty field, never 0. Text that a spreadsheet would take
 * for a formula gets a leading apostrophe. */
export function toCsv(table: Table): string {
  const safe = (cell: Cell): Cell =>
    typeof cell === 'string' && /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell;
  const lines = [table.columns, ...table.rows].map((row) =>
    row.map((cell) => quote(safe(cell))).join(','),
  );
  return `${lines.join('\r\n')}\r\n`;
}

export function fileName(title: string, extension: string): string {
  const stem = title
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-|-$/g, '');
  return `perjoule-${stem || 'chart'}.${extension}`;
}

export function download(name: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  const a = document.createElement('a');
  a.href = url;
  a.download = name;
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
