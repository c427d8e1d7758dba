// The tooltip, shared by all charts. It shows text only, is positioned through the style object
// (which the content security policy allows), and is announced to screen readers when it was
// opened by keyboard.

export interface Tip {
  title: string;
  rows: [label: string, value: string][];
  /** Sentences instead of figures. */
  wide?: boolean;
}

let box: HTMLElement | null = null;
let voice: HTMLElement | null = null;
let owner: unknown = null;

function ensure(): HTMLElement {
  if (!box) {
    box = document.createElement('div');
    box.className = 'tip';
    box.hidden = true;
    box.setAttribute('aria-hidden', 'true');
    voice = document.createElement('div');
    voice.className = 'sr-only';
    voice.setAttribute('role', 'status');
    document.body.append(box, voice);
  }
  return box;
}

export function showTip(by: unknown, tip: Tip, x: number, y: number, speak = false): void {
  const el = ensure();
  owner = by;
  const title = document.createElement('div');
  title.className = 'tip-title';
  title.textContent = tip.title;
  const list = document.createElement('dl');
  for (const [label, value] of tip.rows) {
    const dt = document.createElement('dt');
    dt.textContent = label;
    const dd = document.createElement('dd');
    dd.textContent = value;
    list.append(dt, dd);
  }
  el.classList.toggle('wide', !!tip.wide);
  el.replaceChildren(title, list);
  el.hidden = false;
  const { offsetWidth: w, offsetHeight: h } = el;
  const left = x + 14 + w > innerWidth - 8 ? x - w - 14 : x + 14;
  const top = y + 14 + h > innerHeight - 8 ? y - h - 14 : y + 14;
  el.style.transform = `translate(${Math.max(8, left)}px, ${Math.max(8, top)}px)`;
  if (speak && voice) {
    voice.textContent = `${tip.title}: ${tip.rows.map(([a, b]) => `${a} ${b}`).join(', ')}`;
  }
}

export function hideTip(by: unknown): void {
  if (box && owner === by) {
    box.hidden = true;
    owner = null;
  }
}
