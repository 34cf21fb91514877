/** The holds of one owner on one lock: until when they are sure to last, and whether they are lost. */

import { now, outOfTime } from "./clock.js";
import type { OwnConnection, Word } from "./connection.js";
import { LockLostError } from "./errors.js";
import type { Lease } from "./families.js";

/** The server's answer to an acquire; `deadline` by the monotonic clock, Infinity: none. */
export interface Granted {
  done?: false;
  fence: number;
  holds: number;
  deadline: number;
  slot: number | undefined;
  /** What the owner held before, and was to hold together with this, was lost. */
  wasLost?: boolean;
}

/** The answer to an acquire with `coalesce`, without a hold: the hold with this fence did the work. */
export interface Done {
  readonly done: true;
  readonly fence: number;
}

/** A task that runs beside a hold. */
export interface Keeper {
  stop(): void;
  /** The lease restarts with another length. */
  again(): void;
}

/** How long an acquire that does not wait stays behind requests of its owner that do not wait either. */
const TURN_MS = 1000;

/** How long an acquire waits for its turn behind other requests of its owner. */
export interface Turn {
  /** Its time to wait, and when that is over. */
  waitMs: number;
  ends: number;
  signal: AbortSignal | undefined;
  /** True if the server may queue it. */
  mayBeQueued: boolean;
}

/**
 *     open ──release──▶ over
 *       └──lose──▶ lost (told once) ──release──▶ over
 */
export class Owned {
  fence = 0;
  slot: number | undefined;
  deadline = Infinity;
  /** A release before this time leaves the lock held until then (`atLeast`). */
  keptUntil = -Infinity;
  /** By mode. */
  readonly holds = new Map<string, number>();
  keepers: Keeper[] = [];
  /** Only of a session: its connection. While it lives the server renews the lease, so no local deadline applies. */
  connection: OwnConnection | undefined;
  over = false;
  private isLost = false;
  private isWatched = false;
  private watch: ((owned: Owned) => Keeper) | undefined;
  private readonly tells = new Set<(error: LockLostError) => void>();
  private last: Promise<unknown> = Promise.resolve();
  /** The acquires under way, or before their turn, that the server may queue. */
  private queued = 0;

  constructor(
    readonly lock: string,
    readonly token: Word,
    /** The length of the lease; of later renewals too. */
    public lease: Lease,
  ) {}

  get lost(): boolean {
    return this.isLost || (!this.over && this.connection === undefined && now() >= this.deadline);
  }

  /** True if the loss was told: it is final, even if the server still has the hold. */
  get told(): boolean {
    return this.isLost;
  }

  /** Marks it as lost and emits the loss, unless the loss is already known or all holds were released. */
  lose(): void {
    if (this.isLost || this.over) return;
    this.isLost = true;
    this.stopKeepers();
    const error = new LockLostError(`the lock "${this.lock}" was lost`, this.lock);
    for (const tell of this.tells) tell(error);
  }

  onLost(tell: (error: LockLostError) => void): void {
    this.tells.add(tell);
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
    this.fence = granted.fence;
    this.slot = granted.slot;
    this.holds.set(mode, granted.holds);
    this.deadline = granted.deadline;
  }

  /**
   * A manual renewal: later renewals use this length, and their interval restarts. A shorter lease cannot wait for the
   * next one.
   */
  renewed(lease: Lease): void {
    this.lease = lease;
    for (const keeper of this.keepers) keeper.again();
  }

  of(mode: string): number {
    return this.holds.get(mode) ?? 0;
  }

  /** True if it is held in another mode. */
  holdsBeside(mode: string): boolean {
    return [...this.holds].some(([other, holds]) => other !== mode && holds > 0);
  }

  /** Released or given up: no loss is reported from here on. */
  end(): void {
    this.over = true;
    this.stopKeepers();
    this.connection?.close();
  }

  stopKeepers(): void {
    for (const keeper of this.keepers.splice(0)) keeper.stop();
  }

  /** Runs one after the other: each request states the count of holds after it. */
  serially<T>(work: () => Promise<T>): Promise<T> {
    const done = this.last.then(work, work);
    this.last = done.catch(() => undefined);
    return done;
  }

  /**
   * Runs an acquire in its turn. undefined: its time was over before. Rejects with the signal's reason if the signal is
   * aborted before. In both cases the acquire never runs.
   */
  async inTurn<T>(work: () => Promise<T>, { waitMs, ends, signal, mayBeQueued }: Turn): Promise<T | undefined> {
    signal?.throwIfAborted();
    const until = waitMs > 0 ? ends : now() + (this.queued > 0 ? 0 : TURN_MS);
    if (mayBeQueued) this.queued += 1;
    try {
      return await new Promise((resolve, reject) => {
        let hasLeft = false;
        let timer: { stop(): void } | undefined;
        const settle = (): void => {
          timer?.stop();
          signal?.removeEventListener("abort", aborted);
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
        // A timer may fire a moment too early.
        const watch = (): void => {
          if (until < Infinity) timer = outOfTime(until - now(), () => (now() < until ? watch() : leave()));
        };
        watch();
        signal?.addEventListener("abort", aborted, { once: true });
        this.serially(async () => {
          if (hasLeft) return undefined;
          settle();
          return work();
        }).then(resolve, reject);
      });
    } finally {
      if (mayBeQueued) this.queued -= 1;
    }
  }
}
