// The one switch "without disturbances", in views of several runs.
import { select, selection } from '../state/selection';
import { Explain } from './explain';

export const WithoutDisturbances = () => (
  <span class="check">
    <input
      id="without-disturbances"
      aria-label="Without disturbances"
      type="checkbox"
      checked={selection.value.calm}
      onChange={(e) => select({ calm: e.currentTarget.checked })}
    />
    <label for="without-disturbances">Without</label> <Explain of="disturbed">disturbances</Explain>
  </span>
);
