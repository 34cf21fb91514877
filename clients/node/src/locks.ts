/** The families of locks. */

import type { RedisClient } from "./client.js";
import { Mutex, Permits, ReadWrite, Reentrant, Several, Slots } from "./families.js";
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

export interface CoalesceOptions extends AcquireOptions {
  /**
   * For work with a result that all callers can share: while another owner holds the lock, its release answers this
   * request too, with `Done`, unless the release says that the work failed. Without waiting it changes nothing. Not
   * with `mixed` nor `atLeast`. false
   */
  coalesce?: boolean;
}

const REENTRANT = { lock: NAMES.lock, acquire: NAMES.acquireReentrant };

type Coalesced = AcquireOptions & { coalesce: true };

/** A mutex. Each acquire is an owner of its own. */
export class Lock extends LockBase {
  constructor(client: RedisClient, name: Name, options: MutexOptions = {}) {
    checkedName(name);
    super(client, String(name), (key) => new Mutex(key(name)), options, {
      lock: NAMES.mutex,
      acquire: NAMES.acquireMutex,
    });
  }

  override acquire(options: Coalesced): Promise<Hold | Done>;
  override acquire(options?: AcquireOptions): Promise<Hold>;
  override acquire(options?: CoalesceOptions): Promise<Hold | Done> {
    return options?.coalesce === true ? this.coalesced(options) : super.acquire(options);
  }

  override tryAcquire(options: Omit<Coalesced, "tellHolder">): Promise<Hold | Done | null>;
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
   * Makes a value once for many callers that miss it (single-flight, against a cache stampede). `read` looks for the
   * value (null, undefined: not there); one caller runs `make`, which stores the value where `read` finds it, and
   * returns it. The other callers wait until it is there.
   *
   * The lock is held and renewed while `make` runs (with `autoRenew: false`, only for its lease). If `make` rejects, so
   * does this, and the next caller makes the value. If the lock was lost meanwhile, the result is what `read` finds
   * then. If the release fails, the value is returned, and the lease ends the hold. A `signal` ends the wait, and this
   * call a second later at the latest; `make` should observe it too: the lock is held until `make` ends.
   *
   * Rejects with `NotMadeError` if the time is over while another caller makes the value, and otherwise as `acquire`.
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
 * A mutex that its holder may acquire again; it is free after as many releases. An acquire inside of `using` belongs to
 * the holder; elsewhere, it does with `within: hold`, and is otherwise a new owner.
 */
export class RLock extends LockBase<ReentrantOptions> {
  constructor(client: RedisClient, name: Name, options: LockOptions = {}) {
    checkedName(name);
    super(client, String(name), (key) => new Reentrant(key(name)), options, REENTRANT);
  }
}

export interface SemaphoreOptions extends LockOptions {
  /** The number of permits per acquire. 1 */
  permits?: number;
  /** One permit with a slot, in `slot` of the hold: a number from 0, below `limit`, that no other holder has. false */
  slot?: boolean;
}

export interface PermitOptions extends AcquireOptions {
  /** The number of permits, overriding the semaphore's `permits`. */
  permits?: number;
}

/**
 * At most `limit` permits are held at once; each acquire is an owner of its own, and its release gives all its permits
 * back.
 */
export class Semaphore extends LockBase<PermitOptions> {
  private readonly permits: number;

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
    if (this.family.slots && permits > 1) throw new RangeError("a slot is one permit: omit permits");
    return permits;
  }
}

/** Several mutexes at once, all or none, with one fence. In a cluster all names share one slot. */
export class MultiLock extends LockBase<AcquireOptions, (LockInfo | null)[]> {
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

/** One mode of a read/write lock. */
export class View extends LockBase<ReentrantOptions> {
  /** @internal */
  constructor(client: RedisClient, name: Name, mode: "READ" | "WRITE", options: LockOptions, context: Context) {
    checkedName(name);
    super(client, String(name), (key) => new ReadWrite(key(name), mode), options, REENTRANT, context);
  }
}

/**
 * Many readers or one writer. The writer may also read, and keep READ after it releases WRITE; the only reader may
 * acquire WRITE. Holders are recognized as in `RLock`, across both views.
 */
export class RWLock {
  readonly read: View;
  readonly write: View;

  constructor(client: RedisClient, name: Name, options: LockOptions = {}) {
    const context = new Context();
    this.read = new View(client, name, "READ", options, context);
    this.write = new View(client, name, "WRITE", options, context);
  }
  /** As `info` of its views: both modes. */
  info(options?: { count?: number }): Promise<LockInfo | null> {
    return this.read.info(options);
  }
}
