/** What a lock and an acquire take by name. All times are in milliseconds. */

import type { Hold } from "./hold.js";

export interface AcquireOptions {
  /** How long to wait: 0: not at all, Infinity: for ever. As the lock says; `tryAcquire`: 0. */
  wait?: number;
  /** Gives up when it is aborted, and leaves neither a queued request nor a hold behind. */
  signal?: AbortSignal;
  /** The owner, 1 to 1,024 bytes, in place of a new one for each hold. */
  token?: string | Buffer;
}

export interface ReentrantOptions extends AcquireOptions {
  /** Take it again as the owner of this hold, which is of the same lock. */
  within?: Hold;
}

export interface LockOptions {
  /** How long it is held without being renewed; null: without a deadline. 30,000 */
  lease?: number | null;
  /** How long to wait: 0: not at all, Infinity: for ever. Infinity */
  wait?: number;
  /** Renew after each third of the lease until the release. false; while `once` makes a value, true without session */
  autoRenew?: boolean;
  /** Bind it to a connection of its own: the server renews it, and releases it when that ends. false */
  session?: boolean;
  /** So many replicas must confirm the grant in time, or it is given back and acquire rejects. 0 */
  replicas?: number;
  /** The time for that. 1,000 */
  replicaTimeout?: number;
  /**
   * At most once per interval: a release within so many milliseconds of the grant keeps it held for the rest of them,
   * by a lease of that length. 0. Needs a lease; not with `session`, nor with a token of the caller's own.
   */
  atLeast?: number;
  /** The owner, 1 to 1,024 bytes, in place of a new one for each hold. */
  token?: string | Buffer;
}

export interface MutexOptions extends LockOptions {
  /** Beside clients that hold the key as a string (SET NX): ask again and again in place of waiting in the queue. */
  mixed?: boolean;
  /** How often, half to one and a half of it. 100 */
  pollInterval?: number;
}

/** `LockOptions` with what was left out. */
export interface Settings {
  lease: number | null;
  wait: number;
  /** undefined: the caller said nothing. */
  autoRenew: boolean | undefined;
  session: boolean;
  replicas: number;
  replicaTimeout: number;
  atLeast: number;
  token: string | Buffer | undefined;
  /** undefined: waits in the queue. */
  pollMs: number | undefined;
}

export function settingsOf(options: MutexOptions): Settings {
  const { lease = 30_000, wait = Infinity, autoRenew, session = false, atLeast = 0, token } = options;
  const { replicas = 0, replicaTimeout = 1000, mixed = false, pollInterval = 100 } = options;
  if (lease === null && (session || autoRenew)) {
    throw new RangeError("session and autoRenew need a lease: it is what is renewed");
  }
  if (session && autoRenew) throw new RangeError("with session the server renews: leave autoRenew out");
  if (mixed && session) throw new RangeError("mixed polls, and a session is bound while waiting: use one of them");
  checkedMs("atLeast", atLeast, 0);
  if (atLeast > 0 && lease === null) throw new RangeError("atLeast needs a lease");
  if (atLeast > 0 && session) throw new RangeError("a session ends with its connection: leave atLeast out");
  checkedOwner(atLeast, token);
  if (lease !== null) checkedMs("lease", lease, 1);
  checkedWait(wait);
  checkedMs("replicaTimeout", replicaTimeout, 1);
  if (!Number.isInteger(replicas) || replicas < 0) throw new RangeError("replicas must be a whole number, 0 or more");
  if (!(pollInterval > 0)) throw new RangeError("pollInterval must be more than 0 ms");
  const pollMs = mixed ? pollInterval : undefined;
  return { lease, wait, autoRenew, session, replicas, replicaTimeout, atLeast, token, pollMs };
}

/** The owner of a token is granted the lock that its release has kept, and no interval is kept. */
export function checkedOwner(atLeast: number, token: string | Buffer | undefined): void {
  if (atLeast > 0 && token !== undefined) throw new RangeError("atLeast needs a new token for each hold");
}

export function checkedCoalesce({ atLeast, pollMs }: Settings): void {
  if (atLeast > 0) throw new RangeError("coalesce needs releases that free the lock: leave atLeast out");
  if (pollMs !== undefined) throw new RangeError("coalesce waits in the queue: leave mixed out");
}

export function checkedWait(wait: number): number {
  if (!(wait >= 0)) throw new RangeError(`wait must be 0 ms or more, not ${wait}`);
  return wait;
}

export function checkedMs(name: string, ms: number, least: number): number {
  if (!Number.isInteger(ms) || ms < least)
    throw new RangeError(`${name} must be whole milliseconds, at least ${least}`);
  return ms;
}
