// What the headers of the dashboard and of a report have in common.
import { select } from '../state/selection';
import { theme, unit } from '../state/settings';
import { ENERGY_UNITS } from './help';
import { Icon } from './icon';

const NEXT_THEME = { auto: 'light', light: 'dark', dark: 'auto' } as const;
const THEME_ICON = { auto: 'auto', light: 'sun', dark: 'moon' } as const;

/** The energy unit and the theme. */
export function Switches() {
  return (
    <>
      <label class="unit-switch">
        <span class="sr-only">Energy unit</span>
        <select
          class="input"
          value={unit.value}
          onChange={(e) => {
            select({ unit: e.currentTarget.value as typeof unit.value });
          }}
        >
          {ENERGY_UNITS.map(([v, label]) => (
            <option key={v} value={v}>
              {label}
            </option>
          ))}
        </select>
      </label>
      <button
        type="button"
        class="tool"
        title={`Theme: ${theme.value}`}
        aria-label={`Theme: ${theme.value}. Change`}
        onClick={() => {
          theme.value = NEXT_THEME[theme.value];
        }}
      >
        <Icon name={THEME_ICON[theme.value]} />
      </button>
    </>
  );
}

export function Mark() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="var(--accent)" />
      <path d="M18.2 5 8.5 18h6.1L13 27l10.4-13.6h-6.5z" fill="var(--accent-ink)" />
    </svg>
  );
}
