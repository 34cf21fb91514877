/** What happens to the locks of a client, for its observer and for the debug log (NODE_DEBUG=redis-lock). */

import { debuglog } from "node:util";

import type { Word } from "./connection.js";
import { textOf } from "./info.js";

export type LockKind = "mutex" | "reentrant" | "read" | "write" | "semaphore" | "multi";

interface Common {
  kind: LockKind;
  /** The keys on the server, with the client's prefix. */
  keys: string[];
  /** The token; bytes that are not UTF-8 are shown as `\xNN`. */
  owner: string;
}

/** An event of a lock. Durations are in milliseconds. */
export type LockEvent = Common &
  (
    | { event: "queued" }
    /** `wait`: since the call of the acquire. */
    | { event: "granted"; fence: number; wait: number }
    /** `error`: why, unless the time was over, or the work was done by another holder (`coalesce`). */
    | { event: "not_granted"; wait: number; error?: unknown }
    | { event: "renewed"; fence: number }
    /** `hold`: since the grant. */
    | { event: "lost"; fence: number; hold: number }
    /** `error`: the server could not be asked; the lease ends the hold. */
    | { event: "released"; fence: number; hold: number; error?: unknown }
  );

/** Receives the events. What it throws is reported as a warning of the process, and changes no outcome. */
export type Observer = (event: LockEvent) => void;

type Outcome = LockEvent extends infer Each ? (Each extends LockEvent ? Omit<Each, keyof Common> : never) : never;

const debug = debuglog("redis-lock");

/** The observer of one client. */
export class Observed {
  observer: Observer | undefined;

  /** True if an event would be told. */
  get isOn(): boolean {
    return this.observer !== undefined || debug.enabled;
  }

  tell({ kind, keys }: { kind: LockKind; keys: readonly Word[] }, owner: Word, outcome: Outcome): void {
    if (!this.isOn) return;
    try {
      const event = { ...outcome, kind, keys: keys.map(textOf), owner: textOf(owner) } as LockEvent;
      if (debug.enabled) debug("%s", line(event));
      const returned: unknown = this.observer?.(event);
      if (returned instanceof Promise) returned.catch(warn);
    } catch (error) {
      warn(error);
    }
  }
}

const warn = (error: unknown): void =>
  process.emitWarning(`an observer threw an error: ${shown(error)}`, "RedisLockWarning");

/** Anything can be thrown, or be the reason of a signal: also what has no string form. Never throws. */
export function shown(error: unknown): string {
  try {
    return String(error);
  } catch {
    return "an object without a string form";
  }
}

/** Such as `granted report to host:1:c0ffee, fence 17, after 12 ms`. */
function line(event: LockEvent): string {
  const fence = "fence" in event ? `, fence ${event.fence}` : "";
  const wait = "wait" in event ? `, after ${Math.round(event.wait)} ms` : "";
  const hold = "hold" in event ? `, held for ${Math.round(event.hold)} ms` : "";
  const error = "error" in event ? `: ${shown(event.error)}` : "";
  return `${event.event} ${event.kind} ${event.keys.join(" ")} to ${event.owner}${fence}${wait}${hold}${error}`;
}
