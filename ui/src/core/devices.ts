// What computed a run. Devices are stored by number, and 0 is the host.
import type { RunSummary } from '../api/types';

export interface Device {
  number: number;
  name: string;
  rails: string | null;
}

type Of = Pick<RunSummary, 'devices'>;

/** The devices besides the host, in the order of their numbers. */
export function devicesOf(run: Of | null | undefined): Device[] {
  return Object.entries(run?.devices ?? {}).flatMap(([key, value]) => {
    const d = value as { name?: string | null; rails?: string | null };
    const number = Number(key);
    return number > 0 ? [{ number, name: d.name ?? `device ${key}`, rails: d.rails ?? null }] : [];
  });
}

/** A name without what drivers add in parentheses. */
export const shortDevice = (name: string): string => name.replace(/ *\(.*\)$/, '') || name;

/** What a list of devices calls one of them: several cards of a kind by their ids, too. */
export const choiceName = (
  of: { id: string; name: string },
  all: readonly { name: string }[],
): string => (all.filter((d) => d.name === of.name).length > 1 ? `${of.id}: ${of.name}` : of.name);

/** "on NVIDIA H200"; '' where only the host computed. */
export function onDevices(run: Of | null | undefined): string {
  const names = devicesOf(run).map((d) => shortDevice(d.name));
  return names.length ? `on ${names.join(', ')}` : '';
}
