/** The result of an acquire: a hold, until it is released or lost. */

import { EventEmitter } from "node:events";

import { aside, now } from "./clock.js";
import type { Word } from "./connection.js";
import { LockError, LockLostError } from "./errors.js";
import type { Work } from "./families.js";
import { textOf } from "./info.js";
import type { Owned } from "./owned.js";
import { KEPT_MS } from "./protocol.js";
import { isReply } from "./replies.js";

export interface ReleaseOptions {
  /**
   * The work was not done: a request with `coalesce` that waits for a `Lock` is granted the lock, and is not told that
   * the work was done. With `atLeast`, the lock is free at once. false
   */
  failed?: boolean;
}

/**
 * What a release does while the server cannot be asked.
 *
 * - `awaited`: its caller waits for it, for a limited time.
 * - `disposed`: at the end of a block (`await using`). The last one of its owner goes on until the lease is over; a
 *   session's connection is closed after a second.
 * - `thrown`: the work has thrown. As above, and a session's connection is closed at once, which releases the lock too.
 */
export type Releasing = "awaited" | "disposed" | "thrown";

/** The server-side operations of a hold; provided by its lock. */
export interface HoldActions {
  release(hold: Hold, work: Work, how: Releasing): Promise<void>;
  extend(owned: Owned, leaseMs: number | undefined): Promise<void>;
  owned(owned: Owned): Promise<boolean>;
  exec(owned: Owned, command: Word[]): Promise<unknown>;
}

// A signal with listeners keeps its hold alive, even if nothing else refers to the hold any more.
const listened = new WeakMap<AbortSignal, Owned>();

/**
 * A granted hold. Emits `lost` once, with a `LockLostError`, when the loss is known: with `autoRenew` within a third of
 * the lease, with `session` when the connection ends, otherwise when the lease is over by the local clock, counted from
 * before the request was sent.
 */
export class Hold extends EventEmitter {
  /** Tells a hold from `Done`: this one is held. */
  readonly done = false;
  /** Grows with every grant: give it to the resource that the lock protects, which refuses older ones. Below 2^53. */
  readonly fence: number;
  /** The owner's count of holds, this one included; of a semaphore, its permits. */
  readonly holds: number;
  /** Of a semaphore with `slot`: the smallest number from 0 that no other holder has. */
  readonly slot: number | undefined;
  /** @internal The time of the grant. */
  readonly since = now();
  private controller: AbortController | undefined;
  private releasing: Promise<void> | undefined;
  private lostAs: LockLostError | undefined;

  /** @internal */
  constructor(
    /** @internal */
    readonly kept: Owned,
    mode: string,
    /** @internal How many of its owner's holds are released with it. */
    readonly added: number,
    private readonly actions: HoldActions,
  ) {
    super();
    this.fence = kept.fence;
    this.holds = kept.of(mode);
    this.slot = kept.slot;
    kept.onLost((error) => {
      this.lostAs = error;
      this.controller?.abort(error);
      this.emit("lost", error);
    });
  }

  /** The owner, for `fromToken` and as `info` shows it: of a token that is not UTF-8, with bytes as `\xNN`. */
  get token(): string {
    return textOf(this.kept.token);
  }

  /** The name of the lock. */
  get lock(): string {
    return this.kept.lock;
  }

  /** True if the hold is known to be lost; by the local clock, at the latest when the lease is over. */
  get lost(): boolean {
    return this.kept.lost;
  }

  /** Aborted, with a `LockLostError` as its reason, when it is lost. */
  get signal(): AbortSignal {
    if (this.controller === undefined) {
      this.controller = new AbortController();
      listened.set(this.controller.signal, this.kept);
      this.kept.watched();
      if (this.lost) this.kept.lose();
      if (this.lostAs !== undefined) this.controller.abort(this.lostAs);
    }
    return this.controller.signal;
  }

  /** Milliseconds until the lease ends; 0: it is over; Infinity: no end. Counted from before the request was sent. */
  remaining(): number {
    return Math.max(0, this.kept.deadline - now());
  }

  /**
   * Releases the hold. Rejects with `LockLostError` if it was lost before, and with the library's error if the server
   * could not be asked: then the release may be tried again. After a release, another call does nothing.
   */
  release(options?: ReleaseOptions): Promise<void> {
    return this.releaseOnce(options?.failed === true ? "failed" : "done", "awaited");
  }

  /** @internal The work has thrown. Never rejects, and lasts a second at most: the error is what its caller needs. */
  async releaseAfterError(work: Work): Promise<void> {
    await aside(
      this.releaseOnce(work, "thrown").catch(() => undefined),
      KEPT_MS,
    );
  }

  /**
   * @internal The end of a block, which may have thrown: what the server answered within a second is reported, a loss
   * or a refusal; not that it could not be asked.
   */
  async dispose(): Promise<void> {
    let answered: unknown;
    const releasing = this.releaseOnce("done", "disposed").catch((error: unknown) => {
      if (error instanceof LockError || isReply(error)) answered = error;
    });
    await aside(releasing, KEPT_MS);
    if (answered !== undefined) throw answered;
  }

  private releaseOnce(work: Work, how: Releasing): Promise<void> {
    if (this.releasing === undefined) {
      this.releasing = this.actions.release(this, work, how);
      this.releasing.catch((error: unknown) => {
        if (!this.kept.over) this.releasing = undefined;
        return error;
      });
    }
    return this.releasing;
  }

  /** Restarts the lease from now, with this length or the lock's. Rejects as `release`. */
  extend(leaseMs?: number): Promise<void> {
    return this.actions.extend(this.kept, leaseMs);
  }

  /** True if this was not released, and the server says that it is held. */
  owned(): Promise<boolean> {
    return this.actions.owned(this.kept);
  }

  /**
   * Run a command on the server only while this is held, in one step (LOCK.EXEC); its reply as the client gives it.
   * Rejects with `LockLostError` when it was lost, and with `NotRunError` when it could not be asked for: the command
   * did not run. When the reply is lost, with the library's error: the command may have run. While the slot of its keys
   * moves it is sent again as long as the hold lasts.
   */
  exec<T = unknown>(command: string, ...args: (string | Buffer | number)[]): Promise<T> {
    return this.actions.exec(this.kept, [command, ...args]) as Promise<T>;
  }
}

export interface Hold extends AsyncDisposable {
  /** Called once, when it is lost. */
  on(event: "lost", listener: (error: LockLostError) => void): this;
  once(event: "lost", listener: (error: LockLostError) => void): this;
}

for (const add of ["on", "addListener", "prependListener"] as const) {
  Hold.prototype[add] = function (this: Hold, event: string | symbol, listener: (...args: never[]) => void) {
    if (event === "lost") this.kept.watched();
    return EventEmitter.prototype[add].call(this, event, listener as () => void) as Hold;
  };
}

// Node has the symbol since 18.18.
if (Symbol.asyncDispose) {
  Hold.prototype[Symbol.asyncDispose] = function (this: Hold) {
    return this.dispose();
  };
}
