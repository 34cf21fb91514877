/**
 * Single-flight: of all callers that miss one value, one makes it, and the others wait until it is there.
 *
 * The lock decides only which caller makes the value, and what the waiting callers are told; only `read` says that the
 * value is there.
 */

import { abortable, abortableWithin, now } from "./clock.js";
import { LockLostError, NotMadeError } from "./errors.js";
import type { Hold } from "./hold.js";
import type { Done } from "./owned.js";
import { KEPT_MS } from "./protocol.js";

/** The parameters of `once`. */
export interface Making<T> {
  lock: string;
  waitMs: number;
  signal: AbortSignal | undefined;
  /** Requests the lock with COALESCE; undefined: not granted in time. */
  ask(waitMs: number): Promise<Hold | Done | undefined>;
  /** The holder to name when the time is over. */
  holder(): Promise<string | undefined>;
  /** null, undefined: not there. */
  read(): Promise<T | null | undefined> | T | null | undefined;
  make(hold: Hold): Promise<T> | T;
}

export async function once<T>(making: Making<T>): Promise<T> {
  const { lock, waitMs, signal, ask } = making;
  const ends = now() + waitMs;
  const read = (): Promise<T | null | undefined> => abortable(Promise.resolve(making.read()), signal);
  signal?.throwIfAborted();
  let value = await read();
  for (let leftMs = waitMs; value === null || value === undefined; leftMs = Math.max(0, ends - now())) {
    const answer = await ask(leftMs);
    // A caller that gives up returns. The lock stays held as long as `make` runs: otherwise two callers would make the
    // value.
    if (answer?.done === false) return abortableWithin(KEPT_MS, made(answer, making), signal);
    value = await read();
    // Done but not there (it was evicted, or the lock was held for something else): ask again.
    if (answer === undefined && (value === null || value === undefined)) {
      const message = `no value after ${waitMs} ms: another caller holds the lock "${lock}"`;
      throw new NotMadeError(message, lock, await making.holder());
    }
  }
  return value;
}

async function made<T>(hold: Hold, { read, make, signal }: Making<T>): Promise<T> {
  let value: T;
  try {
    // The previous caller may have made the value while this one was requesting the lock.
    const found = await read();
    // The caller may have given up meanwhile: nothing is made for it.
    if (found === null || found === undefined) signal?.throwIfAborted();
    value = found ?? (await make(hold));
  } catch (error) {
    await hold.releaseAfterError("failed");
    // Refused by `exec`: another caller makes the value.
    const found = error instanceof LockLostError && hold.lost ? await read() : undefined;
    if (found === null || found === undefined) throw error;
    return found;
  }
  try {
    await hold.release();
  } catch (error) {
    // The value was made under the lock; if the release fails, the lease ends the hold.
    if (!(error instanceof LockLostError)) return value;
    // Another caller may have made the value too: return what all other callers read.
    return (await read()) ?? value;
  }
  return value;
}
