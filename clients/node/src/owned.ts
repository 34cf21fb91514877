/** The holds of one owner on one lock, with their local deadline and whether they are lost. */

import { now, onAbort, outOfTime } from "./clock.js";
import type { OwnConnection, Word } from "./connection.js";
import { LockLostError } from "./errors.js";
import type { Lease } from "./lock_types.js";

/** A granted acquire. `deadline` is in the time of the monotonic clock; Infinity: none. */
export interface Granted {
  done?: false;
  fence: number;
  holds: number;
  deadline: number;
  slot: number | undefined;
  /** The owner's earlier holds, which this one was to join, were lost. */
  wasLost?: boolean;
  /** The outcome of the command, for a request with one. */
  ran?: Ran;
}

/** The outcome of a command that was sent with its request. */
export interface Ran {
  reply: unknown;
  /** Why there is no reply. `LockLostError` means that the command did not run. */
  error?: unknown;
  /** False: the owner may still hold the lock. */
  isReleased: boolean;
}

/**
 * The result of an acquire with `coalesce` that was not granted, because another holder did the work. `fence` is that
 * of its hold.
 */
export interface Done {
  readonly done: true;
  readonly fence: number;
}

const lengthOf = (lease: Lease): number => lease ?? Infinity;

/** A background task of a hold. */
export interface Keeper {
  stop(): void;
  /** The lease or its deadline has changed: check again after this time at most; default: a third of the lease. */
  again(nextMs?: number): void;
}

/** How long an acquire that does not wait may be delayed by other such requests of its owner. */
const TURN_MS = 1000;

/** The reason with which an acquire yields its turn, to ask again later. */
const MAKE_WAY = Symbol("a request of the same owner comes first");

/** How long an acquire waits for other requests of its owner. */
export interface Turn {
  /** The time to wait, and when it ends. */
  waitMs: number;
  ends: number;
  signal: AbortSignal | undefined;
  /** True if the server may queue it. */
  mayBeQueued: boolean;
}

/**
 *     open ──release──▶ over
 *       └──lose──▶ lost (reported once) ──release──▶ over
 */
export class Owned {
  fence = 0;
  slot: number | undefined;
  deadline = Infinity;
  /** A release before this time keeps the lock held until then (`atLeast`). */
  keptUntil = -Infinity;
  /** For each mode that was held: the number of holds, and since when it is held. */
  private readonly modes: { mode: string; holds: number; since: number }[] = [];
  keepers: Keeper[] = [];
  /** True from a grant until the keepers are stopped. Another grant starts them again. */
  isKept = false;
  /** The connection of a session. While it lives the server renews the lease, so no local deadline applies. */
  connection: OwnConnection | undefined;
  over = false;
  private isLost = false;
  private isWatched = false;
  private watch: ((owned: Owned) => Keeper) | undefined;
  private readonly callbacks: ((error: LockLostError) => void)[] = [];
  private last: Promise<unknown> | undefined;
  /** The acquires that are running or waiting for their turn, and that the server may queue. */
  private queued = 0;
  /** Ends the turn of the one that is running. */
  private acquiring: AbortController | undefined;
  /** The waiting requests to which an acquire yields its turn. */
  private prompt = 0;

  constructor(
    readonly lock: string,
    readonly token: Word,
    /** The length of the lease, including that of later renewals. */
    public lease: Lease,
  ) {}

  get lost(): boolean {
    return this.isLost || (!this.over && this.connection === undefined && now() >= this.deadline);
  }

  /** True if the loss was reported. It is then final, even if the server still has the hold. */
  get lossReported(): boolean {
    return this.isLost;
  }

  /** How long the server may keep the lock without a release, by the local deadline; 0: nothing is held. */
  get remainingMs(): number {
    return this.fence > 0 ? Math.max(0, this.deadline - now()) : 0;
  }

  /** Marks the hold as lost and emits the loss, unless it is known already or all holds were released. */
  lose(): void {
    if (this.isLost || this.over) return;
    this.isLost = true;
    this.stopKeepers();
    const error = new LockLostError(`the lock "${this.lock}" was lost`, this.lock);
    for (const callback of this.callbacks) callback(error);
  }

  onLost(callback: (error: LockLostError) => void): void {
    this.callbacks.push(callback);
  }

  /** How to watch the deadline. This costs a timer, so it starts with the first listener for a loss. */
  watchedBy(watch: (owned: Owned) => Keeper): void {
    this.watch = watch;
    if (this.isWatched) this.keepers.push(watch(this));
  }

  /** Called when a listener for a loss is added. */
  watched(): void {
    if (this.isWatched) return;
    this.isWatched = true;
    if (this.watch !== undefined && !this.isLost && !this.over) this.keepers.push(this.watch(this));
  }

  granted(granted: Granted, mode: string): void {
    // An acquire by the holder never shortens the lease.
    this.deadline = this.fence > 0 ? Math.max(this.deadline, granted.deadline) : granted.deadline;
    this.fence = granted.fence;
    this.slot = granted.slot;
    this.count(mode, granted.holds);
  }

  /** Sets the count of holds in this mode. */
  count(mode: string, holds: number): void {
    const counted = this.inMode(mode);
    if (counted === undefined) {
      this.modes.push({ mode, holds, since: now() });
    } else {
      if (counted.holds === 0) counted.since = now();
      counted.holds = holds;
    }
  }

  /** Takes the reply to LOCK.HELD; undefined: nothing is held. */
  found(held: Granted | undefined): void {
    if (held === undefined) return this.lose();
    this.fence = held.fence;
    this.deadline = held.deadline;
  }

  /**
   * A renewal on request is about to be sent. From here on automatic renewals use its length, so that none of them
   * restores the earlier one. A shorter lease could expire before the next renewal, so their interval restarts.
   */
  renewing(lease: Lease): void {
    const isShorter = lengthOf(lease) < lengthOf(this.lease);
    this.lease = lease;
    if (isShorter) this.checkAgain();
  }

  renewed(deadline: number): void {
    this.deadline = deadline;
    this.checkAgain();
  }

  /** The renewal on request has failed. One that may have run may even run later, so the shorter lease is safe. */
  notRenewed(lease: Lease, earlier: Lease, failed: "unsent" | "unanswered"): void {
    if (this.lease !== lease) return;
    if (failed === "unsent" || lengthOf(earlier) < lengthOf(lease)) this.lease = earlier;
  }

  /** The lease may end at this time, because it is unknown whether a renewal has run, or when. Renews at once. */
  mayEnd(deadline: number): void {
    this.deadline = Math.min(this.deadline, deadline);
    this.checkAgain(0);
  }

  private checkAgain(nextMs?: number): void {
    for (const keeper of this.keepers) keeper.again(nextMs);
  }

  of(mode: string): number {
    return this.inMode(mode)?.holds ?? 0;
  }

  /** True if the owner holds another mode. */
  holdsBeside(mode: string): boolean {
    for (const other of this.modes) if (other.mode !== mode && other.holds > 0) return true;
    return false;
  }

  /** undefined: it was not held yet in this mode. */
  inMode(mode: string): { holds: number; since: number } | undefined {
    for (const each of this.modes) if (each.mode === mode) return each;
    return undefined;
  }

  /** Released or abandoned: from here on no loss is reported. */
  end(): void {
    this.over = true;
    this.stopKeepers();
    this.connection?.close();
  }

  stopKeepers(): void {
    for (const keeper of this.keepers) keeper.stop();
    this.keepers = [];
    this.isKept = false;
  }

  /** Runs requests one after another, because each states the resulting number of holds. */
  serially<T>(work: () => Promise<T>): Promise<T> {
    const done = this.last === undefined ? work() : this.last.then(work);
    this.last = done.catch(() => undefined);
    return done;
  }

  /**
   * Runs a request that gets its reply at once, in its turn. A queued acquire of the owner yields its turn and asks
   * again afterwards, because it may be waiting for what this request releases.
   */
  first<T>(work: () => Promise<T>): Promise<T> {
    this.prompt += 1;
    this.acquiring?.abort(MAKE_WAY);
    return this.serially(() => {
      this.prompt -= 1;
      return work();
    });
  }

  /**
   * Runs an acquire in its turn, with the signal that ends it. Resolves with undefined if its time ran out before, and
   * rejects with the signal's reason if the signal was aborted before. In both cases the acquire never runs.
   */
  async inTurn<T>(work: (signal: AbortSignal | undefined) => Promise<T>, turn: Turn): Promise<T | undefined> {
    const { waitMs, ends, mayBeQueued } = turn;
    const until = waitMs > 0 ? ends : now() + (this.queued > 0 ? 0 : TURN_MS);
    if (mayBeQueued) this.queued += 1;
    try {
      for (;;) {
        const result = await this.oneTurn(work, turn, until);
        if (result !== MAKE_WAY) return result;
      }
    } finally {
      if (mayBeQueued) this.queued -= 1;
    }
  }

  private async oneTurn<T>(
    work: (signal: AbortSignal | undefined) => Promise<T>,
    { signal, mayBeQueued }: Turn,
    until: number,
  ): Promise<T | typeof MAKE_WAY | undefined> {
    signal?.throwIfAborted();
    return await new Promise((resolve, reject) => {
      let hasLeft = false;
      let timer: { stop(): void } | undefined;
      const settle = (): void => {
        timer?.stop();
        off();
      };
      const leave = (): void => {
        hasLeft = true;
        settle();
        resolve(undefined);
      };
      const aborted = (): void => {
        reject(signal?.reason);
        leave();
      };
      if (until < Infinity) timer = outOfTime(until - now(), leave);
      const off = onAbort(signal, aborted);
      this.serially(async () => {
        if (hasLeft) return undefined;
        settle();
        return mayBeQueued ? this.makingWay(work, signal) : work(signal);
      }).then(resolve, reject);
    });
  }

  private async makingWay<T>(
    work: (signal: AbortSignal) => Promise<T>,
    signal: AbortSignal | undefined,
  ): Promise<T | typeof MAKE_WAY> {
    if (this.prompt > 0) return MAKE_WAY;
    const acquiring = (this.acquiring = new AbortController());
    const off = onAbort(signal, () => acquiring.abort(signal?.reason));
    try {
      return await work(acquiring.signal);
    } catch (error) {
      if (error === MAKE_WAY) return MAKE_WAY;
      throw error;
    } finally {
      this.acquiring = undefined;
      off();
    }
  }
}
