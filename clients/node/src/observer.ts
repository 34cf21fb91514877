/** The events of a client's locks, for its observer and the debug log (NODE_DEBUG=redis-lock). */

import { debuglog } from "node:util";

import type { Word } from "./connection.js";
import { textOf } from "./info.js";

/** The lock types. Each mode of a read/write lock is one. */
export type LockKind = "mutex" | "reentrant" | "read" | "write" | "semaphore" | "multi";

interface Common {
  /** The lock type. */
  kind: LockKind;
  /** The keys on the server, with the client's prefix. */
  keys: string[];
  /** The owner ID; bytes that are not UTF-8 are shown as `\xNN`. */
  owner: string;
}

/** An event of a lock. Durations are in milliseconds. */
export type LockEvent = Common &
  (
    | { event: "queued" }
    /** `wait`: the time since the call of the acquire. */
    | { event: "granted"; fence: number; wait: number }
    /** `error`: the reason, unless the wait timed out or another holder did the work (`coalesce`). */
    | { event: "not_granted"; wait: number; error?: unknown }
    | { event: "renewed"; fence: number }
    /** `hold`: the time since the grant. */
    | { event: "lost"; fence: number; hold: number }
    /** `error`: why the server could not be reached; the lock is held until its lease expires. */
    | { event: "released"; fence: number; hold: number; error?: unknown }
  );

/**
 * Receives the events of a client's locks. An error that it throws is reported as a process warning and changes no
 * outcome.
 */
export type Observer = (event: LockEvent) => void;

type Outcome = LockEvent extends infer Each ? (Each extends LockEvent ? Omit<Each, keyof Common> : never) : never;

const debug = debuglog("redis-lock");
/** Does not change while the process runs. The property of `debug` is a function that looks it up. */
const isDebugging = debug.enabled;

/** The observer of one client. */
export class Observed {
  observer: Observer | undefined;

  /** True if events are reported to an observer or the debug log. */
  get isOn(): boolean {
    return this.observer !== undefined || isDebugging;
  }

  emit({ kind, keys }: { kind: LockKind; keys: readonly Word[] }, owner: Word, outcome: Outcome): void {
    if (!this.isOn) return;
    try {
      const event = { ...outcome, kind, keys: keys.map(textOf), owner: textOf(owner) } as LockEvent;
      if (isDebugging) debug("%s", line(event));
      const returned: unknown = this.observer?.(event);
      if (returned instanceof Promise) returned.catch(warn);
    } catch (error) {
      warn(error);
    }
  }
}

const warn = (error: unknown): void =>
  process.emitWarning(`an observer threw an error: ${shown(error)}`, "RedisLockWarning");

/**
 * The string form of an error. Never throws, although anything may be thrown, including objects without a string form.
 */
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
