/** The families of locks. */

import type { RedisClient } from "./client.js";
import { Mutex, Permits, ReadWrite, Reentrant, Several } from "./families.js";
import { Context, LockBase } from "./lock.js";
import type { AcquireOptions, LockOptions, MutexOptions, ReentrantOptions } from "./options.js";

type Name = string | Buffer;

/** A mutex. Each acquire is an owner of its own. */
export class Lock extends LockBase {
  constructor(client: RedisClient, name: Name, options: MutexOptions = {}) {
    super(client, String(name), (key) => new Mutex(key(name)), options);
  }
}

/**
 * A mutex that its holder may take again; it is free when it was released as often. Inside of `using` an acquire is
 * the holder's; elsewhere it is with `within: hold`, and otherwise somebody else's.
 */
export class RLock extends LockBase<ReentrantOptions> {
  constructor(client: RedisClient, name: Name, options: LockOptions = {}) {
    super(client, String(name), (key) => new Reentrant(key(name)), options);
  }
}

export interface SemaphoreOptions extends LockOptions {
  /** How many permits an acquire takes. 1 */
  permits?: number;
}

export interface PermitOptions extends AcquireOptions {
  /** How many permits to take, in place of the semaphore's `permits`. */
  permits?: number;
}

/** At most `limit` permits are out at once; each acquire is an owner of its own, and its release gives all back. */
export class Semaphore extends LockBase<PermitOptions> {
  private readonly permits: number;

  constructor(
    client: RedisClient,
    name: Name,
    readonly limit: number,
    options: SemaphoreOptions = {},
  ) {
    super(client, String(name), (key) => new Permits(key(name), limit), options);
    this.permits = this.perHold({ permits: options.permits ?? 1 });
  }

  protected override perHold(options: PermitOptions | undefined): number {
    const permits = options?.permits ?? this.permits;
    if (!Number.isInteger(permits) || permits < 1 || permits > this.limit) {
      throw new RangeError(`permits must be from 1 to ${this.limit}`);
    }
    return permits;
  }
}

/** Several mutexes at once, all or none, with one fence. In a cluster all names share one slot. */
export class MultiLock extends LockBase {
  constructor(client: RedisClient, names: readonly Name[], options: LockOptions = {}) {
    if (names.length === 0) throw new RangeError("a MultiLock needs at least one name");
    super(client, names.join(", "), (key) => new Several(names.map(key)), options);
  }
}

/** One mode of a read/write lock. */
export class View extends LockBase<ReentrantOptions> {
  /** @internal */
  constructor(client: RedisClient, name: Name, mode: "READ" | "WRITE", options: LockOptions, context: Context) {
    super(client, String(name), (key) => new ReadWrite(key(name), mode), options, context);
  }
}

/**
 * Many readers or one writer. The writer may also read, and keep that when it gives WRITE back; the only reader may
 * write. Who is the holder already: as in `RLock`, over both views.
 */
export class RWLock {
  readonly read: View;
  readonly write: View;

  constructor(client: RedisClient, name: Name, options: LockOptions = {}) {
    const context = new Context();
    this.read = new View(client, name, "READ", options, context);
    this.write = new View(client, name, "WRITE", options, context);
  }
}
