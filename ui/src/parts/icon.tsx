// The icons of the page, 16 px line drawings on one grid.
const PATHS = {
  table: 'M2.5 3.5h11v9h-11zM2.5 6.5h11M2.5 9.5h11M6.5 6.5v6',
  warning: 'M8 2.5 14 13H2zM8 6.5v3M8 11.2v.1',
  info: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 7.5v3.5M8 5v.1',
  sun: 'M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1',
  moon: 'M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7z',
  auto: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 2v12M8 5h4.5M8 8h6M8 11h4.5',
  keys: 'M1.5 4h13v8h-13zM4 6.5h.1M6.6 6.5h.1M9.2 6.5h.1M12 6.5h.1M5 9.5h6',
  play: 'M5 3.5v9l7-4.5z',
  pause: 'M5.5 3.5v9M10.5 3.5v9',
  stop: 'M4.5 4.5h7v7h-7z',
  close: 'M4.5 4.5l7 7M11.5 4.5l-7 7',
  search: 'M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5l3 3',
  trash: 'M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.5 9h6l.5-9',
  download: 'M8 2.5v7M5 7l3 3 3-3M3 12.5h10',
  chevron: 'M6 4l4 4-4 4',
  up: 'M8 12.5v-9M4.5 7 8 3.5 11.5 7',
  down: 'M8 3.5v9M4.5 9 8 12.5 11.5 9',
  compare: 'M5.5 2.5v11M10.5 2.5v11M2.5 5.5h3M10.5 10.5h3',
  bolt: 'M9 1.5 3.5 9H8l-1 5.5L12.5 7H8z',
  check: 'M3 8.5l3.5 3.5 6.5-8',
  edit: 'M3 13l.8-3.2 6.7-6.7 2.4 2.4-6.7 6.7zM9.3 4.3l2.4 2.4',
  copy: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
