/** The result of an acquire: a hold, until it is released or lost. */

import { EventEmitter } from "node:events";

import { aside, now } from "./clock.js";
import type { Word } from "./connection.js";
import { LockError, LockLostError } from "./errors.js";
import type { Work } from "./lock_types.js";
import { textOf } from "./info.js";
import type { Owned } from "./owned.js";
import { KEPT_MS } from "./protocol.js";
import { isReply } from "./replies.js";

/** The options of `Hold.release`. */
export interface ReleaseOptions {
  /**
   * The work was not done: the next request is granted the lock even if it waits with `coalesce`, and the lock is free
   * at once despite `atLeast`. Default: false.
   */
  failed?: boolean;
}

/**
 * What a release does while the server cannot be reached.
 *
 * - `awaited`: its caller waits for it, for a limited time.
 * - `disposed`: at the end of a block (`await using`). The owner's last release goes on until the lease expires; a
 *   session's connection is closed after a second.
 * - `thrown`: the work has thrown. As above, but a session's connection is closed at once, which releases the lock as
 *   well.
 */
export type Releasing = "awaited" | "disposed" | "thrown";

/** The server-side operations of a hold, provided by its lock. */
export interface HoldActions {
  release(hold: Hold, work: Work, how: Releasing): Promise<void>;
  extend(owned: Owned, leaseMs: number | undefined): Promise<void>;
  owned(owned: Owned): Promise<boolean>;
  exec(owned: Owned, command: Word[]): Promise<unknown>;
}

// Lets a signal with listeners keep its hold alive, even if nothing else refers to the hold.
const listened = new WeakMap<AbortSignal, Owned>();

/**
 * An acquired lock. Emits `lost` once, with a `LockLostError`, when the loss is known: with `autoRenew` within a third
 * of the lease, with `session` when the connection ends, and otherwise when the lease expires by the local clock,
 * counted from before the request was sent.
 */
export class Hold extends EventEmitter {
  /** Distinguishes a hold from `Done`: always false here. */
  readonly done = false;
  /**
   * The fencing token, which increases with every grant. Send it to the resource that the lock protects, which refuses
   * older ones. Below 2^53.
   */
  readonly fence: number;
  /** How many holds the owner had after this grant; of a semaphore, how many permits. */
  readonly holds: number;
  /** For a semaphore with `slot`: the smallest number from 0 that no other holder had. Otherwise undefined. */
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

  /** The owner ID, as `info` shows it and `fromToken` takes it. If it is not UTF-8, its bytes are shown as `\xNN`. */
  get token(): string {
    return textOf(this.kept.token);
  }

  /** The name of the lock. */
  get lock(): string {
    return this.kept.lock;
  }

  /**
   * True if the hold is known to be lost, at the latest when the lease has expired by the local clock. Does not ask the
   * server; see `owned`.
   */
  get lost(): boolean {
    return this.kept.lost;
  }

  /** A signal that is aborted when the lock is lost, with a `LockLostError` as its reason. */
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

  /**
   * Milliseconds until the lease expires, counted from before the request was sent; 0 if it has expired, Infinity
   * without a lease.
   */
  remaining(): number {
    return Math.max(0, this.kept.deadline - now());
  }

  /**
   * Releases the hold. Rejects with `LockLostError` if the lock was lost before, and with the Redis library's error if
   * the server could not be reached for 10 s, after which the release may be tried again. A call after a successful
   * release does nothing.
   */
  release(options?: ReleaseOptions): Promise<void> {
    return this.releaseOnce(options?.failed === true ? "failed" : "done", "awaited");
  }

  /**
   * @internal Releases after the work has thrown. Never rejects and takes a second at most, because the caller needs
   * that error.
   */
  async releaseAfterError(work: Work): Promise<void> {
    await aside(
      this.releaseOnce(work, "thrown").catch(() => undefined),
      KEPT_MS,
    );
  }

  /**
   * @internal Releases at the end of a block, which may have thrown. Rejects with a loss or refusal that the server
   * reports within a second, but not because the server could not be reached.
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
    return (this.releasing ??= this.actions.release(this, work, how));
  }

  /** @internal A failed release may be tried again, and a caller that does not wait for it may ignore the error. */
  releaseFailed(): void {
    this.releasing?.catch(() => undefined);
    if (!this.kept.over) this.releasing = undefined;
  }

  /**
   * Restarts the lease: it expires `leaseMs` milliseconds from now. Default: the lock's `lease`. Later renewals use
   * this length as well.
   *
   * **This does not add to what is left of the lease**, unlike `extend` of the clients for Python, Go and Rust: with 40
   * seconds left, `extend(30_000)` shortens the lease to 30 seconds.
   *
   * Rejects with `LockLostError` if the lock was lost, and with the Redis library's error if the server could not be
   * reached. The server may have restarted the lease then, so the shorter of both lengths counts.
   */
  extend(leaseMs?: number): Promise<void> {
    return this.actions.extend(this.kept, leaseMs);
  }

  /** Asks the server whether this hold still holds the lock. False after its release. */
  owned(): Promise<boolean> {
    return this.actions.owned(this.kept);
  }

  /**
   * Runs a command on the server only while the lock is held, atomically (LOCK.EXEC). Resolves with the command's
   * reply, decoded as the client decodes it. While the slot of its keys moves, the command is sent again as long as the
   * hold lasts.
   *
   * Rejects with `LockLostError` if the lock was lost, and with `NotRunError` if the command could not be sent: in both
   * cases it did not run. If the reply is lost, rejects with the Redis library's error: the command may have run.
   */
  exec<T = unknown>(command: string, ...args: (string | Buffer | number)[]): Promise<T> {
    return this.actions.exec(this.kept, [command, ...args]) as Promise<T>;
  }
}

export interface Hold extends AsyncDisposable {
  /** Calls the listener once when the lock is lost. */
  on(event: "lost", listener: (error: LockLostError) => void): this;
  /** Calls the listener once when the lock is lost. */
  once(event: "lost", listener: (error: LockLostError) => void): this;
}

for (const add of ["on", "addListener", "prependListener"] as const) {
  Hold.prototype[add] = function (this: Hold, event: string | symbol, listener: (...args: never[]) => void) {
    if (event === "lost") this.kept.watched();
    return EventEmitter.prototype[add].call(this, event, listener as () => void) as Hold;
  };
}

// Node.js has this symbol since 18.18.
if (Symbol.asyncDispose) {
  Hold.prototype[Symbol.asyncDispose] = function (this: Hold) {
    return this.dispose();
  };
}
