/** The lock types. */

import type { RedisClient } from "./client.js";
import { Mutex, Permits, ReadWrite, Reentrant, Several, Slots } from "./lock_types.js";
import type { Hold } from "./hold.js";
import type { LockInfo } from "./info.js";
import { Context, LockBase } from "./lock.js";
import { once } from "./once.js";
import {
  checkedLimit,
  checkedName,
  checkedNames,
  checkedOptions,
  NAMES,
  type AcquireOptions,
  type LockOptions,
  type MutexOptions,
  type ReentrantOptions,
} from "./options.js";
import type { Done } from "./owned.js";

type Name = string | Buffer;

/** The options of `Lock.acquire` and `Lock.tryAcquire`. */
export interface CoalesceOptions extends AcquireOptions {
  /**
   * For work whose result all callers can share (single-flight): if the holder releases while this request waits, the
   * result is `Done`, unless that release reported that the work failed. Has no effect without waiting, and excludes
   * `mixed` and `atLeast`. Default: false.
   */
  coalesce?: boolean;
}

const REENTRANT = { lock: NAMES.lock, acquire: NAMES.acquireReentrant };

type Coalesced = AcquireOptions & { coalesce: true };

/** A mutex: one owner holds it at a time. Each acquire is a new owner, so it is not reentrant; see `RLock`. */
export class Lock extends LockBase {
  /** Creates a lock object; sends nothing. Throws a `TypeError` or `RangeError` for invalid options. */
  constructor(client: RedisClient, name: Name, options: MutexOptions = {}) {
    checkedName(name);
    super(client, String(name), (key) => new Mutex(key(name)), options, {
      lock: NAMES.mutex,
      acquire: NAMES.acquireMutex,
    });
  }

  /** Acquires the lock as below, but resolves with `Done` if the holder did the work meanwhile. */
  override acquire(options: Coalesced): Promise<Hold | Done>;
  /**
   * Acquires the lock. Waits in the server's queue, first come, first served.
   *
   * Rejects with `NotAcquiredError` if the lock was not granted in time, with the signal's reason if the signal was
   * aborted, with another `LockError` if waiting cannot help (a deadlock, a key of another type, too many waiters), and
   * with the Redis library's error if the server could not be reached.
   */
  override acquire(options?: AcquireOptions): Promise<Hold>;
  override acquire(options?: CoalesceOptions): Promise<Hold | Done> {
    return options?.coalesce === true ? this.coalesced(options) : super.acquire(options);
  }

  /** Acquires the lock as below, but resolves with `Done` if the holder did the work meanwhile. */
  override tryAcquire(options: Omit<Coalesced, "tellHolder">): Promise<Hold | Done | null>;
  /**
   * Acquires the lock like `acquire`, but resolves with null if it was not granted in time. Without `wait` it does not
   * wait.
   */
  override tryAcquire(options?: Omit<AcquireOptions, "tellHolder">): Promise<Hold | null>;
  override async tryAcquire(options?: Omit<CoalesceOptions, "tellHolder">): Promise<Hold | Done | null> {
    if (options?.coalesce !== true) return super.tryAcquire(options);
    this.checkTry(options);
    this.checkCoalesce();
    return (await this.ask(this.waitOf({ wait: options.wait ?? 0 }), options, "coalesce")) ?? null;
  }

  private async coalesced(options: AcquireOptions): Promise<Hold | Done> {
    this.checkCoalesce();
    const wait = this.waitOf(options);
    const answer = await this.ask(wait, options, "coalesce");
    if (answer === undefined) throw await this.notAcquired(wait, options);
    return answer;
  }

  /**
   * Resolves with the value that `read` finds. If there is none, one caller computes it with `make` and the others
   * wait: single-flight, against a cache stampede. `read` resolves with null or undefined if there is no value; `make`
   * computes the value, stores it where `read` finds it, and returns it.
   *
   * The lock is held and renewed while `make` runs (with `autoRenew: false`, only for its lease). If `make` rejects, so
   * does `once`, and the next caller computes the value. If the lock is lost meanwhile, the result is what `read` finds
   * then. If the release fails, the value is returned, and the lease ends the hold. A `signal` ends the wait, and this
   * call at most a second later; `make` should observe it as well, because the lock is held until `make` ends.
   *
   * Rejects with `NotMadeError` if the wait timed out while another caller was computing the value, and otherwise as
   * `acquire` does.
   */
  async once<T>(
    read: () => Promise<T | null | undefined> | T | null | undefined,
    make: (hold: Hold) => Promise<T> | T,
    options?: AcquireOptions,
  ): Promise<T> {
    this.checkOnce();
    checkedOptions("once", options, NAMES.acquire);
    const waitMs = this.waitOf(options);
    const ask = (waitMs: number): Promise<Hold | Done | undefined> => this.ask(waitMs, options, "once");
    const holder = (): Promise<string | undefined> => this.holder(options);
    return once({ lock: this.name, waitMs, signal: options?.signal, ask, holder, read, make });
  }
}

/**
 * A reentrant mutex: its holder may acquire it again, and it is free after as many releases. An acquire inside `using`,
 * or with `within: hold`, has the owner of that hold; any other acquire is a new owner.
 */
export class RLock extends LockBase<ReentrantOptions> {
  /** Creates a lock object; sends nothing. Throws a `TypeError` or `RangeError` for invalid options. */
  constructor(client: RedisClient, name: Name, options: LockOptions = {}) {
    checkedName(name);
    super(client, String(name), (key) => new Reentrant(key(name)), options, REENTRANT);
  }
}

/** The options of a `Semaphore`. */
export interface SemaphoreOptions extends LockOptions {
  /** How many permits one acquire takes. Default: 1. */
  permits?: number;
  /**
   * Number the permits: each acquire takes one, and `slot` of the hold is its number, from 0 to `limit` - 1, which no
   * other holder has. Default: false.
   */
  slot?: boolean;
}

/** The options of an acquire of a `Semaphore`. */
export interface PermitOptions extends AcquireOptions {
  /** How many permits this acquire takes. Default: `permits` of the semaphore. */
  permits?: number;
}

/**
 * A semaphore: at most `limit` permits are held at once. Each acquire is a new owner, and its release returns all of
 * its permits.
 */
export class Semaphore extends LockBase<PermitOptions> {
  private readonly permits: number;

  /**
   * Creates a semaphore object; sends nothing. Throws a `TypeError` or `RangeError` for invalid options.
   *
   * @param limit How many permits may be held at once. If users of a name disagree, the latest request decides.
   */
  constructor(
    client: RedisClient,
    name: Name,
    readonly limit: number,
    options: SemaphoreOptions = {},
  ) {
    checkedName(name);
    checkedLimit(limit);
    const { permits = 1, slot = false } = options;
    super(client, String(name), (key) => new (slot ? Slots : Permits)(key(name), limit), options, {
      lock: NAMES.semaphore,
      acquire: NAMES.acquirePermits,
    });
    this.permits = this.perHold({ permits });
  }

  protected override perHold(options: PermitOptions | undefined): number {
    const permits = options?.permits ?? this.permits;
    if (!Number.isInteger(permits) || permits < 1 || permits > this.limit) {
      throw new RangeError(`permits must be from 1 to ${this.limit}`);
    }
    if (this.lockType.slots && permits > 1) throw new RangeError("a slot is one permit: omit permits");
    return permits;
  }
}

/**
 * Multiple mutexes that are acquired together, all or none, with one fencing token. In a cluster all names must hash to
 * one slot.
 */
export class MultiLock extends LockBase<AcquireOptions, (LockInfo | null)[]> {
  /** Creates a lock object; sends nothing. Throws a `TypeError` or `RangeError` for invalid options. */
  constructor(client: RedisClient, names: readonly Name[], options: LockOptions = {}) {
    checkedNames(names);
    super(client, names.join(", "), (key) => new Several(names.map(key)), options, {
      lock: NAMES.lock,
      acquire: NAMES.acquire,
    });
  }

  protected override infoOf(each: (LockInfo | null)[]): (LockInfo | null)[] {
    return each;
  }
}

/** One mode of a read/write lock, as `RWLock.read` and `RWLock.write`. */
export class View extends LockBase<ReentrantOptions> {
  /** @internal */
  constructor(client: RedisClient, name: Name, mode: "READ" | "WRITE", options: LockOptions, context: Context) {
    checkedName(name);
    super(client, String(name), (key) => new ReadWrite(key(name), mode), options, REENTRANT, context);
  }
}

/**
 * A read/write lock: many readers or one writer. The writer may acquire READ as well, and keeps it after it releases
 * WRITE; the only reader may acquire WRITE. Owners are recognized as in `RLock`, across both views.
 */
export class RWLock {
  /** The lock of the readers, which any number of owners hold at once. */
  readonly read: View;
  /** The lock of the writer, which excludes all other owners. */
  readonly write: View;

  /** Creates a lock object; sends nothing. Throws a `TypeError` or `RangeError` for invalid options. */
  constructor(client: RedisClient, name: Name, options: LockOptions = {}) {
    const context = new Context();
    this.read = new View(client, name, "READ", options, context);
    this.write = new View(client, name, "WRITE", options, context);
  }
  /** Asks the server for the holders of both modes and the number of waiters, as `info` of either view does. */
  info(options?: { count?: number }): Promise<LockInfo | null> {
    return this.read.info(options);
  }
}
