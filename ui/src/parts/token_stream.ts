// The generated text, token by token, coloured by energy. Tokens are in lines of fixed height, because one
// long sequence of spans would need a layout of the whole text for every token, which takes a whole core. The
// DOM is updated directly, not through a component.

import { phaseLabel } from '../charts/theme';
import { hideTip, showTip } from '../charts/tip';
import { time } from '../core/format';
import { amountOf, text } from '../core/quantity';
import { css, inkOn, level, ramp } from '../core/ramp';
import { fenceOf } from '../core/stats';
import type { LiveToken } from '../state/live';
import { rampName } from '../state/settings';

export class TokenStream {
  private lines: HTMLElement[] = [];
  private shown: LiveToken[] = [];
  private column = 0;
  /** Number of tokens on the page. */
  private placed = 0;
  private perLine = 60;
  private focused = -1;
  private readonly observer: ResizeObserver;
  private lo = Number.NaN;
  private hi = Number.NaN;
  /** Some tokens exceed the scale. */
  clipped = false;
  /** Colour is time: of a run whose energy nothing reads. */
  timed = false;
  /** Set when the user has scrolled up: new tokens then do not scroll the page. */
  paused = false;
  onPause: (paused: boolean, missed: number) => void = () => {};
  private missed = 0;

  constructor(
    readonly host: HTMLElement,
    private readonly kept: number,
  ) {
    host.addEventListener('pointermove', this.over);
    host.addEventListener('pointerleave', this.leave);
    host.addEventListener('keydown', this.key);
    host.addEventListener('scroll', this.scrolled);
    host.addEventListener('blur', this.leave);
    this.observer = new ResizeObserver(() => this.measure());
    this.observer.observe(host);
  }

  dispose(): void {
    this.observer.disconnect();
    hideTip(this);
    this.host.replaceChildren();
  }

  get count(): number {
    return this.shown.length;
  }

  /** Shows the list; only tokens new since the last call change the DOM. */
  set(tokens: LiveToken[]): void {
    const from = this.shown.length;
    const grown =
      tokens.length >= from && (from === 0 || tokens[from - 1] === this.shown[from - 1]);
    if (!grown) this.clear();
    for (let i = grown ? from : 0; i < tokens.length; i++) this.append(tokens[i], i);
    this.shown = tokens.slice();
    // An outlier widens the scale immediately; it is recomputed whenever the text has doubled.
    if (
      Math.floor(Math.log2(tokens.length)) > Math.floor(Math.log2(Math.max(1, grown ? from : 0)))
    ) {
      this.recolour();
    }
    this.trim();
    if (this.paused) {
      this.missed += tokens.length - (grown ? from : 0);
      this.onPause(true, this.missed);
    } else this.host.scrollTop = this.host.scrollHeight;
  }

  /** Recolours all tokens after a change of scale or ramp. */
  recolour(): void {
    this.scale();
    for (const line of this.lines) {
      for (const s of line.children) this.paint(s as HTMLElement);
    }
  }

  resume(): void {
    this.paused = false;
    this.missed = 0;
    this.host.scrollTop = this.host.scrollHeight;
    this.onPause(false, 0);
  }

  private clear(): void {
    this.lines = [];
    this.shown = [];
    this.column = 0;
    this.placed = 0;
    this.focused = -1;
    this.lo = this.hi = Number.NaN;
    this.clipped = false;
    this.missed = 0;
    this.paused = false;
    this.host.replaceChildren();
    this.onPause(false, 0);
  }

  private measure(): void {
    const probe = document.createElement('span');
    probe.className = 'tok';
    probe.textContent = 'n'.repeat(40);
    const line = document.createElement('div');
    line.className = 'tok-line';
    line.append(probe);
    this.host.append(line);
    const one = probe.getBoundingClientRect().width / 40 || 8;
    line.remove();
    const fit = Math.max(16, Math.floor((this.host.clientWidth - 20) / one));
    if (fit === this.perLine) return;
    this.perLine = fit;
    const tokens = this.shown;
    this.clear();
    this.set(tokens);
  }

  private newLine(): HTMLElement {
    const line = document.createElement('div');
    line.className = 'tok-line';
    this.lines.push(line);
    this.host.append(line);
    this.column = 0;
    return line;
  }

  private append(t: LiveToken, i: number): void {
    const visible = t.text.replaceAll('\n', '⏎').replaceAll('\t', '⇥') || '·';
    const width = [...visible].length;
    let line = this.lines[this.lines.length - 1];
    if (!line || (this.column > 0 && this.column + width > this.perLine)) line = this.newLine();
    this.column += width;
    const s = document.createElement('span');
    s.className = 'tok';
    s.textContent = visible;
    s.dataset.i = String(i);
    this.widen(t);
    this.paintToken(s, t);
    line.append(s);
    this.placed++;
    if (t.text.endsWith('\n')) this.newLine();
  }

  /** The scale is based on decode tokens, because the prompt's value is far larger. */
  private widen(t: LiveToken): void {
    const mj = amountOf(t.energy);
    if (mj === null || t.phase !== 'decode') return;
    if (!(mj >= this.lo)) this.lo = mj;
    if (!this.clipped && !(mj <= this.hi)) this.hi = mj;
  }

  private scale(): void {
    const ends = fenceOf(
      this.shown.map((t) => (t.phase === 'decode' ? (this.worth(t) ?? Number.NaN) : Number.NaN)),
    );
    if (!ends) return;
    this.lo = ends.lo;
    this.hi = ends.hi;
    this.clipped = ends.clipped;
  }

  private worth(t: LiveToken): number | null {
    return this.timed ? t.duration : amountOf(t.energy);
  }

  get range(): [number, number] {
    return [this.lo, this.hi];
  }

  private paint(s: HTMLElement): void {
    const t = this.shown[Number(s.dataset.i)];
    if (t) this.paintToken(s, t);
  }

  private paintToken(s: HTMLElement, t: LiveToken): void {
    const worth = this.worth(t);
    s.classList.toggle('hatched', worth === null);
    if (worth === null) return;
    const pixel = ramp(rampName.value)[level(worth, this.lo, this.hi)];
    s.style.backgroundColor = css(pixel);
    s.style.color = inkOn(pixel);
  }

  private trim(): void {
    while (this.placed > this.kept && this.lines.length > 1) {
      const first = this.lines.shift();
      this.placed -= first?.children.length ?? 0;
      first?.remove();
    }
  }

  private tip(i: number, x: number, y: number, speak: boolean): void {
    const t = this.shown[i];
    if (!t) return;
    showTip(
      this,
      {
        title: `Token ${t.position}: ${JSON.stringify(t.text)}`,
        rows: [
          ['Phase', phaseLabel(t.phase)],
          ...(t.sequence > 0 ? [['Sequence', String(t.sequence)] as [string, string]] : []),
          ['Energy', `${text(t.energy)}${t.energy.source === 'modelled' ? ' (modelled)' : ''}`],
          ['Power', text(t.power)],
          ['Duration', time(t.duration)],
        ],
      },
      x,
      y,
      speak,
    );
  }

  private readonly over = (e: PointerEvent): void => {
    const s = (e.target as HTMLElement).closest<HTMLElement>('.tok');
    if (s?.dataset.i) this.tip(Number(s.dataset.i), e.clientX, e.clientY, false);
    else hideTip(this);
  };

  private readonly leave = (): void => hideTip(this);

  private readonly key = (e: KeyboardEvent): void => {
    const by = e.key === 'ArrowRight' ? 1 : e.key === 'ArrowLeft' ? -1 : 0;
    if (!by || !this.shown.length) return;
    e.preventDefault();
    this.host.querySelector('.tok.focus')?.classList.remove('focus');
    this.focused = Math.max(
      0,
      Math.min(this.shown.length - 1, this.focused < 0 ? this.shown.length - 1 : this.focused + by),
    );
    const s = this.host.querySelector<HTMLElement>(`.tok[data-i="${this.focused}"]`);
    if (!s) return;
    s.classList.add('focus');
    s.scrollIntoView({ block: 'nearest' });
    const r = s.getBoundingClientRect();
    this.tip(this.focused, r.left, r.bottom, true);
  };

  private readonly scrolled = (): void => {
    const end = this.host.scrollHeight - this.host.scrollTop - this.host.clientHeight < 30;
    if (end && this.paused) this.resume();
    else if (!end && !this.paused) {
      this.paused = true;
      this.onPause(true, 0);
    }
  };
}
