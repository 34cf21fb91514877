/** The commands of each lock type, and the meaning of their replies. No I/O, no state. */

import type { Word } from "./connection.js";
import type { LockKind } from "./observer.js";

/** The length of a lease in milliseconds; null: no deadline. */
export type Lease = number | null;

/** The result of the work under the lock. `failed` reports to the requests with COALESCE that it was not done. */
export type Work = "done" | "failed";

const lasting = (lease: Lease): Word[] => (lease === null ? ["PERSIST"] : ["PX", lease]);

/** A lock type. `holds` is always the owner's count after the command, so that every command can be sent again. */
export abstract class LockType {
  /** The name of the lock type in events. */
  abstract readonly kind: LockKind;
  /** The mode, READ or WRITE: each has its own count of holds. */
  readonly mode: string = "";
  /** True if the owner may acquire it again while it holds it. */
  readonly reentrant: boolean = false;
  /** True if the server counts the holds of one owner (HOLDS). */
  readonly counts: boolean = false;
  /** Whether a grant has a slot. */
  readonly slots: boolean = false;

  constructor(readonly keys: readonly Word[]) {}

  get key(): Word {
    return this.keys[0] as Word;
  }

  abstract acquire(token: Word, holds: number, lease: Lease): Word[];
  abstract release(token: Word, holds: number, work: Work): Word[];
  abstract renew(token: Word, lease: Lease): Word[];

  /** True if the release found the hold. */
  wasHeld(reply: number): boolean {
    return reply >= 0;
  }

  /**
   * Releases each lock separately, for when a key was overwritten by another value: the joint release then changes
   * nothing.
   */
  releaseEach(_token: Word): Word[][] {
    return [];
  }

  held(token: Word): Word[] {
    return ["LOCK.HELD", this.key, token];
  }

  cancel(token: Word): Word[] {
    return ["LOCK.CANCEL", this.key, token];
  }

  exists(): Word[] {
    return ["EXISTS", ...this.keys];
  }
}

export class Mutex extends LockType {
  readonly kind = "mutex";
  constructor(key: Word) {
    super([key]);
  }

  acquire(token: Word, _holds: number, lease: Lease): Word[] {
    return ["LOCK.ACQUIRE", this.key, token, ...lasting(lease)];
  }

  release(token: Word, _holds: number, work: Work): Word[] {
    return ["LOCK.RELEASE", this.key, token, ...(work === "failed" ? ["FAILED"] : [])];
  }

  renew(token: Word, lease: Lease): Word[] {
    return ["LOCK.RENEW", this.key, token, ...lasting(lease)];
  }

  override wasHeld(reply: number): boolean {
    return reply === 1;
  }
}

export class Reentrant extends LockType {
  readonly kind = "reentrant";
  override readonly reentrant = true;
  override readonly counts = true;

  constructor(key: Word) {
    super([key]);
  }

  acquire(token: Word, holds: number, lease: Lease): Word[] {
    return ["RLOCK.ACQUIRE", this.key, token, "HOLDS", holds, ...lasting(lease)];
  }

  release(token: Word, holds: number): Word[] {
    return ["RLOCK.RELEASE", this.key, token, "HOLDS", holds];
  }

  renew(token: Word, lease: Lease): Word[] {
    return ["RLOCK.RENEW", this.key, token, ...lasting(lease)];
  }
}

export class ReadWrite extends LockType {
  readonly kind: LockKind;
  override readonly reentrant = true;
  override readonly counts = true;

  constructor(
    key: Word,
    override readonly mode: "READ" | "WRITE",
  ) {
    super([key]);
    this.kind = mode === "READ" ? "read" : "write";
  }

  acquire(token: Word, holds: number, lease: Lease): Word[] {
    return ["RWLOCK.ACQUIRE", this.key, token, this.mode, "HOLDS", holds, ...lasting(lease)];
  }

  release(token: Word, holds: number): Word[] {
    return ["RWLOCK.RELEASE", this.key, token, this.mode, "HOLDS", holds];
  }

  renew(token: Word, lease: Lease): Word[] {
    return ["RWLOCK.RENEW", this.key, token, ...lasting(lease)];
  }
}

export class Permits extends LockType {
  readonly kind = "semaphore";
  override readonly counts = true;

  constructor(
    key: Word,
    private readonly limit: number,
  ) {
    super([key]);
  }

  acquire(token: Word, holds: number, lease: Lease): Word[] {
    return ["SEM.ACQUIRE", this.key, token, "LIMIT", this.limit, "HOLDS", holds, ...lasting(lease)];
  }

  release(token: Word, holds: number): Word[] {
    return ["SEM.RELEASE", this.key, token, "HOLDS", holds];
  }

  renew(token: Word, lease: Lease): Word[] {
    return ["SEM.RENEW", this.key, token, ...lasting(lease)];
  }
}

/**
 * A semaphore with slots: each owner has one permit with a number that no other holder has. A repeated request gets the
 * same number.
 */
export class Slots extends LockType {
  readonly kind = "semaphore";
  override readonly counts = true;
  override readonly slots = true;

  constructor(
    key: Word,
    private readonly limit: number,
  ) {
    super([key]);
  }

  acquire(token: Word, _holds: number, lease: Lease): Word[] {
    return ["SEM.ACQUIRE", this.key, token, "LIMIT", this.limit, "SLOT", ...lasting(lease)];
  }

  release(token: Word): Word[] {
    return ["SEM.RELEASE", this.key, token, "HOLDS", 0];
  }

  renew(token: Word, lease: Lease): Word[] {
    return ["SEM.RENEW", this.key, token, ...lasting(lease)];
  }
}

export class Several extends LockType {
  readonly kind = "multi";
  acquire(token: Word, _holds: number, lease: Lease): Word[] {
    return ["MLOCK.ACQUIRE", this.keys.length, ...this.keys, token, ...lasting(lease)];
  }

  release(token: Word): Word[] {
    return ["MLOCK.RELEASE", this.keys.length, ...this.keys, token];
  }

  renew(token: Word, lease: Lease): Word[] {
    return ["MLOCK.RENEW", this.keys.length, ...this.keys, token, ...lasting(lease)];
  }

  override releaseEach(token: Word): Word[][] {
    return this.keys.map((key) => ["LOCK.RELEASE", key, token]);
  }

  override wasHeld(reply: number): boolean {
    return reply === this.keys.length;
  }
}
