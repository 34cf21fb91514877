/** What one owner holds of one lock: until when it surely lasts, and whether it was lost. */

import { now } from "./clock.js";
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
}

/** In place of a hold, to an acquire with `coalesce`: the work was done by the hold with this fence. */
export interface Done {
  readonly done: true;
  readonly fence: number;
}

/** Something that runs beside a hold. */
export interface Keeper {
  stop(): void;
  /** The lease begins anew, with another length. */
  again(): void;
}

/**
 *     open ──release──▶ over
 *       └──lose──▶ lost (told once) ──release──▶ over
 */
export class Owned {
  fence = 0;
  slot: number | undefined;
  deadline = Infinity;
  /** A release before that leaves it held until then (`atLeast`). */
  keptUntil = -Infinity;
  /** By mode. */
  readonly holds = new Map<string, number>();
  keepers: Keeper[] = [];
  /** Of a session: its connection. The server renews the lease while it lives, so that no local deadline counts. */
  connection: OwnConnection | undefined;
  over = false;
  private isLost = false;
  private isWatched = false;
  private watch: ((owned: Owned) => Keeper) | undefined;
  private readonly tells = new Set<(error: LockLostError) => void>();
  private last: Promise<unknown> = Promise.resolve();

  constructor(
    readonly lock: string,
    readonly token: Word,
    /** Of renewals, too: the length last asked for. */
    public lease: Lease,
  ) {}

  get lost(): boolean {
    return this.isLost || (!this.over && this.connection === undefined && now() >= this.deadline);
  }

  /** Mark it as lost and tell so, unless that is known already or it was given back. */
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

  /** How its deadline is watched, which costs a timer: once somebody wants to be told of a loss. */
  watchedBy(watch: (owned: Owned) => Keeper): void {
    this.watch = watch;
    if (this.isWatched) this.keepers.push(watch(this));
  }

  /** Somebody wants to be told of a loss. */
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

  /** Renewed by hand: later renewals have this length, and begin anew. A shorter one cannot wait for the next. */
  renewed(lease: Lease): void {
    this.lease = lease;
    for (const keeper of this.keepers) keeper.again();
  }

  of(mode: string): number {
    return this.holds.get(mode) ?? 0;
  }

  /** Given back or given up: nobody is told of a loss from here on. */
  end(): void {
    this.over = true;
    this.stopKeepers();
    this.connection?.close();
  }

  stopKeepers(): void {
    for (const keeper of this.keepers.splice(0)) keeper.stop();
  }

  /** One after the other: each request says how much is held after it. */
  serially<T>(work: () => Promise<T>): Promise<T> {
    const done = this.last.then(work, work);
    this.last = done.catch(() => undefined);
    return done;
  }
}
