// The user's electricity price and carbon intensity, from which cost and CO₂ of all runs are computed. Empty
// fields mean the server's settings.
import { amount, type Selection, select, selection } from '../state/selection';
import { Explain } from './explain';

const FIELDS: [name: 'usd' | 'co2', label: string, unit: string, usual: string][] = [
  ['usd', 'Price', 'USD per kWh', '0.12'],
  ['co2', 'Carbon', 'g CO₂ per kWh', '400'],
];

/** Of regions, as `--region` knows them. */
const REGIONS: [name: string, grams: number][] = [
  ['California', 200],
  ['EU', 300],
  ['US', 400],
  ['Texas', 500],
];

export function Rates() {
  const s = selection.value;
  const put = (name: 'usd' | 'co2', text: string) =>
    select({ [name]: amount(text) } as Partial<Selection>);
  return (
    <div class="row rates">
      <Explain of="cost">Electricity</Explain>
      {FIELDS.map(([name, label, unit, usual]) => (
        <label class="check" key={name}>
          {label}
          <input
            class="input narrow"
            type="number"
            min="0"
            step="any"
            placeholder={usual}
            list={name === 'co2' ? 'carbon-of-regions' : undefined}
            aria-label={`${label}, ${unit}`}
            value={s[name]}
            onChange={(e) => put(name, e.currentTarget.value)}
          />
          <span class="muted">{unit}</span>
        </label>
      ))}
      <datalist id="carbon-of-regions">
        {REGIONS.map(([region, grams]) => (
          <option key={region} value={grams} label={`${region}, ${grams} g`} />
        ))}
      </datalist>
    </div>
  );
}
