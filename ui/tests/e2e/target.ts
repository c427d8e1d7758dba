// The server under test: the real `perjoule serve` named by PERJOULE_BIN, with a simulated sensor, the demo
// model and a temporary database.
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const ROOT = resolve(import.meta.dirname, '../../..');
/** The built page: the folder embedded in the program, or ui/dist. */
export const DIST = process.env.PERJOULE_PAGE ?? resolve(import.meta.dirname, '../../dist');
const BIN = process.env.PERJOULE_BIN && resolve(process.env.PERJOULE_BIN);
export const DEMO = process.env.PERJOULE_DEMO ?? join(ROOT, 'models/demo');

/** Why the real server cannot be tested here; empty if it can. */
export const missing = ((): string => {
  if (!BIN) return 'PERJOULE_BIN names no binary';
  if (!existsSync(BIN)) return `${BIN} does not exist`;
  if (!existsSync(join(DEMO, 'config.json'))) return `the demo model is not at ${DEMO}`;
  return '';
})();

export interface Target {
  url: string;
  /** Kills the process (SIGKILL), like a crash. */
  kill: () => Promise<void>;
  /** Starts it again on the same port and database. */
  restart: () => Promise<void>;
  /** Stops the process for a while, as a busy machine does. */
  stall: (ms: number) => Promise<void>;
  close: () => Promise<void>;
}

const freePort = (): Promise<number> =>
  new Promise((done) => {
    const s = createServer();
    s.listen(0, '127.0.0.1', () => {
      const { port } = s.address() as AddressInfo;
      s.close(() => done(port));
    });
  });

async function healthy(url: string, child: ChildProcess, log: () => string): Promise<void> {
  for (let i = 0; i < 2400; i++) {
    if (child.exitCode !== null)
      throw new Error(`perjoule serve ended with ${child.exitCode}:\n${log()}`);
    try {
      if ((await fetch(`${url}healthz`)).ok) return;
    } catch {
      // Not listening yet.
    }
    await new Promise((r) => setTimeout(r, 50));
  }
  throw new Error(`perjoule serve did not answer:\n${log()}`);
}

/** `db`: a database to serve instead of an empty one; it is not deleted. */
export async function startTarget(
  power: string,
  db?: string,
  more: string[] = [],
): Promise<Target> {
  const folder = mkdtempSync(join(tmpdir(), 'perjoule-e2e-'));
  const port = await freePort();
  const url = `http://127.0.0.1:${port}/`;
  let child: ChildProcess;
  const up = async () => {
    let log = '';
    const args = [
      'serve',
      '--port',
      String(port),
      '--db',
      db ?? join(folder, 'runs.db'),
      '--models',
      resolve(DEMO, '..'),
      '--power',
      power,
      // The other processors are the browser's: threads that wait for one another on a busy machine take its time.
      '--threads',
      '1',
      ...more,
    ];
    child = spawn(BIN as string, args, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const s of [child.stdout, child.stderr]) s?.on('data', (d: Buffer) => (log += d));
    await healthy(url, child, () => log);
  };
  const down = (signal: NodeJS.Signals) =>
    new Promise<void>((done) => {
      if (child.exitCode !== null || child.signalCode !== null) done();
      else {
        child.once('exit', () => done());
        child.kill(signal);
      }
    });
  await up();
  return {
    url,
    kill: () => down('SIGKILL'),
    restart: up,
    stall: async (ms) => {
      child.kill('SIGSTOP');
      await new Promise((done) => setTimeout(done, ms));
      child.kill('SIGCONT');
    },
    close: async () => {
      await down('SIGTERM');
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Runs one generation to its end; returns the summary. A test that fails before it awaits that stops the
 * server, which must not count as a second, unhandled failure. */
export function generate(url: string, body: Record<string, unknown>): Promise<{ run_id: string }> {
  const made = run(url, body);
  made.catch(() => undefined);
  return made;
}

async function run(url: string, body: Record<string, unknown>): Promise<{ run_id: string }> {
  const r = await fetch(`${url}api/profiling/generate`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (!r.ok) throw new Error(`generate answered ${r.status}: ${await r.text()}`);
  const summary = (await r.json()) as { run_id: string };
  for (let i = 0; i < 2400; i++) {
    const s = await fetch(`${url}api/profiling/run/${summary.run_id}/summary`);
    if (s.ok && ((await s.json()) as { status: string }).status !== 'running') return summary;
    await new Promise((x) => setTimeout(x, 50));
  }
  throw new Error(`run ${summary.run_id} does not end`);
}
