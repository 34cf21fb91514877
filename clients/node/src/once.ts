/**
 * Single-flight: if many callers miss the same value, one computes it and the others wait for it.
 *
 * The lock only decides which caller computes the value, and when the others look again. Only `read` finds it.
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
  /** The holder to name if the wait times out. */
  holder(): Promise<string | undefined>;
  /** Resolves with null or undefined if there is no value. */
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
    // A cancelled caller returns, but the lock stays held while `make` runs; otherwise two callers would compute the
    // value.
    if (answer?.done === false) return abortableWithin(KEPT_MS, made(answer, making), signal);
    value = await read();
    // Done, but no value (it was evicted, or the lock was held for something else): try again.
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
    // Another caller may have stored the value while this one was acquiring the lock.
    const found = await read();
    // The caller may have been cancelled meanwhile, so do not compute the value for it.
    if (found === null || found === undefined) signal?.throwIfAborted();
    value = found ?? (await make(hold));
  } catch (error) {
    await hold.releaseAfterError("failed");
    // `exec` refused because the lock was lost, so another caller computes the value.
    const found = error instanceof LockLostError && hold.lost ? await read() : undefined;
    if (found === null || found === undefined) throw error;
    return found;
  }
  try {
    await hold.release();
  } catch (error) {
    // The value was computed under the lock. If the release fails, the lease ends the hold.
    if (!(error instanceof LockLostError)) return value;
    // Another caller may have computed the value as well: return what all other callers read.
    return (await read()) ?? value;
  }
  return value;
}
