/** The options of a lock and of an acquire. All times are in milliseconds. */

import { inspect } from "node:util";

import type { Hold } from "./hold.js";

export interface AcquireOptions {
  /** How long to wait: 0: not at all, Infinity: for ever. Default: the lock's; `tryAcquire`: 0. */
  wait?: number;
  /** Gives up when aborted, and leaves neither a queued request nor a hold behind. */
  signal?: AbortSignal;
  /** The owner, 1 to 1,024 bytes, in place of a new one for each hold. */
  token?: string | Buffer;
  /**
   * A `NotAcquiredError` names the holder: one more request, only where it was not granted. Not of `tryAcquire`.
   * Default: the lock's.
   */
  tellHolder?: boolean;
}

export type RunOptions = Pick<AcquireOptions, "wait" | "signal" | "tellHolder">;

export interface ReentrantOptions extends AcquireOptions {
  /** Acquires again as the owner of this hold, which is of the same lock. */
  within?: Hold;
}

export interface LockOptions {
  /** The time it is held without a renewal, up to lock.max-lease; null: without a deadline. 30,000 */
  lease?: number | null;
  /** How long to wait: 0: not at all, Infinity: for ever. Infinity */
  wait?: number;
  /** Renew after each third of the lease until the release. false; while `once` makes a value, true without session */
  autoRenew?: boolean;
  /** Bind it to a dedicated connection: the server renews it, and releases it when the connection ends. false */
  session?: boolean;
  /** This many replicas must confirm the grant in time; otherwise it is given back and acquire rejects. 0 */
  replicas?: number;
  /** The time for the replicas. 1,000 */
  replicaTimeout?: number;
  /**
   * At most once per interval: a release earlier than this after the grant does not free the lock, but sets its lease
   * to the rest of the time. 0. At most lock.max-lease. Needs a lease; not with `session`, nor with a token of the
   * caller's own.
   */
  atLeast?: number;
  /** The owner, 1 to 1,024 bytes, in place of a new one for each hold. */
  token?: string | Buffer;
  /** A `NotAcquiredError` names the holder: one more request, only where it was not granted. false */
  tellHolder?: boolean;
}

export interface MutexOptions extends LockOptions {
  /** Beside clients that hold the key as a string (SET NX): polls, and does not wait in the queue. false */
  mixed?: boolean;
  /** The interval of the polls; each is 0.5 to 1.5 times as long. 100 */
  pollInterval?: number;
}

/** `LockOptions` with its defaults filled in. */
export interface Settings {
  lease: number | null;
  wait: number;
  /** undefined: not given by the caller. */
  autoRenew: boolean | undefined;
  session: boolean;
  replicas: number;
  replicaTimeout: number;
  atLeast: number;
  token: string | Buffer | undefined;
  tellHolder: boolean;
  /** undefined: waits in the queue. */
  pollMs: number | undefined;
}

const LOCK = "lease wait autoRenew session replicas replicaTimeout atLeast token tellHolder".split(" ");
const ACQUIRE = "wait signal token tellHolder".split(" ");

/** The names of the options that a lock takes, and that one acquire takes. */
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

/** What the options of other lock libraries are called here. */
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

/** Refuses an option that is not among `names`: it would be ignored. `of` names the class or function in the error. */
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

/** Refuses what `String` would make a name of: undefined, an object, a list. */
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
    // 0: the default.
    atLeast: atLeast === 0 ? 0 : checkedMs("atLeast", atLeast),
    replicaTimeout: checkedMs("replicaTimeout", replicaTimeout),
  };
  if (!Number.isInteger(replicas) || replicas < 0) throw new RangeError("replicas must be a whole number, 0 or more");
  const pollMs = checkedMs("pollInterval", pollInterval);
  return { ...times, wait, autoRenew, session, replicas, token, tellHolder, pollMs: mixed ? pollMs : undefined };
}

/** Rejects a token with `atLeast`: its owner would be granted the lock again, so no interval would be kept. */
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

/** Rounded up to whole milliseconds, and at most what can be sent as such: then the server says what it allows. */
export function checkedMs(name: string, ms: number): number {
  if (typeof ms !== "number" || !(ms > 0)) throw new RangeError(`${name} must be more than 0 ms, not ${shown(ms)}`);
  return Math.min(Math.ceil(ms), Number.MAX_SAFE_INTEGER);
}

export function checkedCount(count: number): number {
  if (!Number.isSafeInteger(count) || count < 0) throw new RangeError("count must be a whole number, 0 or more");
  return count;
}
