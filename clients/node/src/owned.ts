/** The holds of one owner on one lock: until when they are sure to last, and whether they are lost. */

import { now, onAbort, outOfTime } from "./clock.js";
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
  /** Of a request with a command. */
  ran?: Ran;
}

/** What became of a command that came with its request. */
export interface Ran {
  reply: unknown;
  /** Why there is no reply; `LockLostError`: it did not run. */
  error?: unknown;
  /** False: the owner may still hold the lock. */
  isReleased: boolean;
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

/** The reason for which an acquire ends its turn, to ask again in a later one. */
const MAKE_WAY = Symbol("a request of the same owner comes first");

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
  /** By mode: the count of holds, and since when it is held. */
  readonly modes = new Map<string, { holds: number; since: number }>();
  keepers: Keeper[] = [];
  /** Only of a session: its connection. While it lives the server renews the lease, so no local deadline applies. */
  connection: OwnConnection | undefined;
  over = false;
  private isLost = false;
  private isWatched = false;
  private watch: ((owned: Owned) => Keeper) | undefined;
  private readonly tells: ((error: LockLostError) => void)[] = [];
  private last: Promise<unknown> | undefined;
  /** The acquires under way, or before their turn, that the server may queue. */
  private queued = 0;
  /** Ends the one of them that has its turn. */
  private acquiring: AbortController | undefined;
  /** The requests before their turn that an acquire makes way for. */
  private prompt = 0;

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
    this.tells.push(tell);
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
    this.count(mode, granted.holds);
    this.deadline = granted.deadline;
  }

  /** Sets the count of holds in this mode. */
  count(mode: string, holds: number): void {
    const before = this.modes.get(mode);
    this.modes.set(mode, { holds, since: before === undefined || before.holds === 0 ? now() : before.since });
  }

  /** What LOCK.HELD answered; undefined: nothing is held. */
  found(held: Granted | undefined): void {
    if (held === undefined) return this.lose();
    this.fence = held.fence;
    this.deadline = held.deadline;
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
    return this.modes.get(mode)?.holds ?? 0;
  }

  /** True if it is held in another mode. */
  holdsBeside(mode: string): boolean {
    for (const [other, { holds }] of this.modes) if (other !== mode && holds > 0) return true;
    return false;
  }

  /** Released or given up: no loss is reported from here on. */
  end(): void {
    this.over = true;
    this.stopKeepers();
    this.connection?.close();
  }

  stopKeepers(): void {
    for (const keeper of this.keepers) keeper.stop();
    this.keepers = [];
  }

  /** Runs one after the other: each request states the count of holds after it. */
  serially<T>(work: () => Promise<T>): Promise<T> {
    const done = this.last === undefined ? work() : this.last.then(work);
    this.last = done.catch(() => undefined);
    return done;
  }

  /**
   * Runs a request that the server answers at once in its turn. A queued acquire of the owner makes way, and asks again
   * afterwards: it would keep its turn for as long as it waits, maybe for what this request releases.
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
   * Runs an acquire in its turn, with the signal that ends it. undefined: its time was over before. Rejects with the
   * signal's reason if the signal is aborted before. In both cases the acquire never runs.
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
