/** The options of a lock and of an acquire. All times are in milliseconds. */

import { inspect } from "node:util";

import type { Hold } from "./hold.js";

/** The options of an acquire. All times are in milliseconds. */
export interface AcquireOptions {
  /**
   * How long to wait, in milliseconds; 0: do not wait, Infinity: indefinitely. Default: that of the lock; for
   * `tryAcquire`: 0.
   */
  wait?: number;
  /** Cancels the request when it is aborted, which leaves neither a queued request nor a hold behind. */
  signal?: AbortSignal;
  /** The owner ID, 1 to 1,024 bytes. Default: that of the lock, or a new one for each hold. */
  token?: string | Buffer;
  /**
   * Name the holder in a `NotAcquiredError`, which takes one more request if the lock was not granted. Not for
   * `tryAcquire`. Default: that of the lock.
   */
  tellHolder?: boolean;
}

/** The options of `run`. */
export type RunOptions = Pick<AcquireOptions, "wait" | "signal" | "tellHolder">;

/** The options of an acquire of an `RLock`, or of a view of an `RWLock`. */
export interface ReentrantOptions extends AcquireOptions {
  /** Acquires the lock again as the owner of this hold, which must be a hold of the same lock object. */
  within?: Hold;
}

/** The options of every lock type. All times are in milliseconds. */
export interface LockOptions {
  /**
   * How long the lock is held without a renewal, in milliseconds, up to the server's lock.max-lease; null: no deadline.
   * Default: 30,000.
   */
  lease?: number | null;
  /** How long to wait, in milliseconds; 0: do not wait, Infinity: indefinitely. Default: Infinity. */
  wait?: number;
  /**
   * Renew the lease after each third of it, until the release. Default: false; for `once` true, unless `session` is
   * set.
   */
  autoRenew?: boolean;
  /**
   * Bind the lock to a dedicated connection: the server renews the lease while the connection lives, and releases the
   * lock when it ends. Default: false.
   */
  session?: boolean;
  /**
   * How many replicas must confirm the grant in time; if fewer do, the lock is released and acquire rejects with
   * `NotReplicatedError`. Default: 0.
   */
  replicas?: number;
  /** How long to wait for the replicas, in milliseconds. Default: 1,000. */
  replicaTimeout?: number;
  /**
   * Minimum time from the grant until the lock is free, in milliseconds, for work at most once per interval: an earlier
   * release does not free the lock, but sets its lease to the rest of the time. At most lock.max-lease. Needs a lease,
   * and excludes `session` and `token`. Default: 0.
   */
  atLeast?: number;
  /** The owner ID, 1 to 1,024 bytes. Default: a new one for each hold. */
  token?: string | Buffer;
  /**
   * Name the holder in a `NotAcquiredError`, which takes one more request if the lock was not granted. Default: false.
   */
  tellHolder?: boolean;
}

/** The options of a `Lock`. */
export interface MutexOptions extends LockOptions {
  /**
   * Share the key with clients that hold it as a string (SET NX): poll instead of waiting in the queue. Default: false.
   */
  mixed?: boolean;
  /** The polling interval in milliseconds; each pause is 0.5 to 1.5 times as long. Default: 100. */
  pollInterval?: number;
}

/** `LockOptions` with its defaults filled in. */
export interface Settings {
  lease: number | null;
  wait: number;
  /** undefined: not set by the caller. */
  autoRenew: boolean | undefined;
  session: boolean;
  replicas: number;
  replicaTimeout: number;
  atLeast: number;
  token: string | Buffer | undefined;
  tellHolder: boolean;
  /** undefined: wait in the queue. */
  pollMs: number | undefined;
}

const LOCK = "lease wait autoRenew session replicas replicaTimeout atLeast token tellHolder".split(" ");
const ACQUIRE = "wait signal token tellHolder".split(" ");

/** The names of the options of a lock and of an acquire. */
export const NAMES = {
  lock: LOCK,
  mutex: [...LOCK, "mixed", "pollInterval"],
  semaphore: [...LOCK, "permits", "slot"],
  acquire: ACQUIRE,
  acquireMutex: [...ACQUIRE, "coalesce"],
  acquireReentrant: [...ACQUIRE, "within"],
  acquirePermits: [...ACQUIRE, "permits"],
  run: ["wait", "signal", "tellHolder"],
};

/** Maps options of other lock libraries to their names here. */
const MEANT: Record<string, string> = {
  timeout: "lease (how long it is held) or wait (how long to wait for it)",
  ttl: "lease",
  duration: "lease",
  lockTimeout: "lease",
  acquireTimeout: "wait",
  retryCount: "wait",
  retryDelay: "wait",
  retryJitter: "wait",
  refreshInterval: "autoRenew",
  automaticExtensionThreshold: "autoRenew",
  onLockLost: 'the event "lost" of a hold',
  limit: "the third argument of Semaphore",
};

/**
 * Throws for an option that is not in `names`, because it would be ignored. `of` names the class or function in the
 * error.
 */
export function checkedOptions(of: string, options: unknown, names: readonly string[]): void {
  if (options === undefined) return;
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new TypeError(`the options of ${of} must be an object, not ${shown(options)}`);
  }
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue;
    const meant = MEANT[name] === undefined ? "" : ` (here: ${MEANT[name]})`;
    throw new TypeError(`${of} has no option ${name}${meant}; its options: ${names.join(", ")}`);
  }
}

/** Throws for values that `String` would turn into a name: undefined, an object, a list. */
export function checkedName(name: unknown): void {
  if ((typeof name === "string" || Buffer.isBuffer(name)) && name.length > 0) return;
  throw new TypeError(`the name of a lock must be a string or a Buffer, and not empty, not ${shown(name)}`);
}

export function checkedNames(names: unknown): void {
  if (!Array.isArray(names)) throw new TypeError(`the names of a MultiLock must be an array, not ${shown(names)}`);
  if (names.length === 0) throw new RangeError("a MultiLock needs at least one name");
  names.forEach(checkedName);
}

export function checkedLimit(limit: unknown): void {
  if (Number.isInteger(limit) && (limit as number) >= 1) return;
  const call = "new Semaphore(client, name, limit, options)";
  throw new TypeError(`the limit of a semaphore must be a whole number of 1 or more, not ${shown(limit)}: ${call}`);
}

const shown = (value: unknown): string => inspect(value, { depth: 1, breakLength: Infinity });

export function settingsOf(options: MutexOptions): Settings {
  const { lease = 30_000, wait = Infinity, autoRenew, session = false, atLeast = 0, token } = options;
  const { replicas = 0, replicaTimeout = 1000, mixed = false, pollInterval = 100, tellHolder = false } = options;
  if (lease === null && (session || autoRenew)) {
    throw new RangeError("session and autoRenew need a lease to renew");
  }
  if (session && autoRenew) throw new RangeError("with session, the server renews the lease: omit autoRenew");
  if (mixed && session) throw new RangeError("mixed polls, but a session is bound while waiting: use only one of them");
  if (atLeast > 0 && lease === null) throw new RangeError("atLeast needs a lease");
  if (atLeast > 0 && session) throw new RangeError("a session ends with its connection: omit atLeast");
  checkedOwner(atLeast, token);
  checkedWait(wait);
  const times = {
    lease: lease === null ? null : checkedMs("lease", lease),
    // 0 is the default.
    atLeast: atLeast === 0 ? 0 : checkedMs("atLeast", atLeast),
    replicaTimeout: checkedMs("replicaTimeout", replicaTimeout),
  };
  if (!Number.isInteger(replicas) || replicas < 0) throw new RangeError("replicas must be a whole number, 0 or more");
  const pollMs = checkedMs("pollInterval", pollInterval);
  return { ...times, wait, autoRenew, session, replicas, token, tellHolder, pollMs: mixed ? pollMs : undefined };
}

/** Throws for a token with `atLeast`: its owner would be granted the lock again within the interval. */
export function checkedOwner(atLeast: number, token: string | Buffer | undefined): void {
  if (atLeast > 0 && token !== undefined) throw new RangeError("atLeast needs a new token for each hold");
}

export function checkedCoalesce({ atLeast, pollMs }: Settings): void {
  if (atLeast > 0) throw new RangeError("coalesce needs releases that free the lock: omit atLeast");
  if (pollMs !== undefined) throw new RangeError("coalesce waits in the queue: omit mixed");
}

export function checkedWait(wait: number): number {
  if (typeof wait !== "number" || !(wait >= 0)) throw new RangeError(`wait must be 0 ms or more, not ${wait}`);
  return wait;
}

/** Rounds up to whole milliseconds and saturates at the largest safe integer, which the server then refuses. */
export function checkedMs(name: string, ms: number): number {
  if (typeof ms !== "number" || !(ms > 0)) throw new RangeError(`${name} must be more than 0 ms, not ${shown(ms)}`);
  return Math.min(Math.ceil(ms), Number.MAX_SAFE_INTEGER);
}

export function checkedCount(count: number): number {
  if (!Number.isSafeInteger(count) || count < 0) throw new RangeError("count must be a whole number, 0 or more");
  return count;
}
