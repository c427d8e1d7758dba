// The WebSocket of the live stream. It reconnects automatically with exponential backoff of at
// most five seconds, and immediately when the network comes back or the page becomes visible.
import { base, signedOut } from './client';

export type LinkState = 'connecting' | 'open' | 'lost';

export interface SocketHandlers {
  state: (s: LinkState) => void;
  message: (m: Record<string, unknown> & { type: string }) => void;
  binary: (b: ArrayBuffer) => void;
}

const FIRST_MS = 250;
const LONGEST_MS = 5000;

export class LiveSocket {
  private ws: WebSocket | null = null;
  private wait = FIRST_MS;
  private timer = 0;
  private closed = false;
  private everOpen = false;

  /** `machine`: the stream of another machine that has joined this server. */
  constructor(
    private readonly on: SocketHandlers,
    private readonly machine?: string,
  ) {
    addEventListener('online', this.now);
    document.addEventListener('visibilitychange', this.now);
    this.open();
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    removeEventListener('online', this.now);
    document.removeEventListener('visibilitychange', this.now);
    this.ws?.close();
  }

  private readonly now = (): void => {
    if (this.ws || this.closed || document.hidden) return;
    clearTimeout(this.timer);
    this.wait = FIRST_MS;
    this.open();
  };

  private open(): void {
    if (signedOut.peek()) return; // the page is asking for the token
    this.on.state(this.everOpen ? 'lost' : 'connecting');
    const url = new URL('ws/profiling', base());
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    if (this.machine === undefined) url.searchParams.set('binary', '1');
    else url.searchParams.set('machine', this.machine);
    const ws = new WebSocket(url);
    ws.binaryType = 'arraybuffer';
    this.ws = ws;
    ws.onopen = () => {
      this.wait = FIRST_MS;
      this.everOpen = true;
      this.on.state('open');
    };
    ws.onmessage = (e) => {
      if (typeof e.data !== 'string') this.on.binary(e.data as ArrayBuffer);
      else this.text(e.data);
    };
    ws.onclose = () => {
      this.ws = null;
      if (this.closed) return;
      this.on.state('lost');
      this.everOpen = true;
      this.timer = window.setTimeout(() => this.open(), this.wait);
      this.wait = Math.min(LONGEST_MS, this.wait * 2);
    };
  }

  private text(data: string): void {
    let m: unknown;
    try {
      m = JSON.parse(data);
    } catch {
      return;
    }
    if (m && typeof m === 'object' && typeof (m as { type?: unknown }).type === 'string') {
      this.on.message(m as Record<string, unknown> & { type: string });
    }
  }
}
