/** Classifies errors: transient, a lost lock, or an error for the caller. */

import {
  DeadlockError,
  LockError,
  MaxWaitersError,
  ModuleNotLoadedError,
  NotRunError,
  WaitCancelledError,
  WrongKindError,
  WrongTypeError,
} from "./errors.js";

/**
 * Why a request has no result.
 *
 * - `refused`: the server replied with an error.
 * - `redirected`: a node of a cluster replied that another one has the key, or none while its slot moves. Nothing ran.
 * - `unsent`: it was not sent, because there was no connection.
 * - `unanswered`: it was sent, and the server may have executed it.
 * - `closed`: the application closed the client; a retry is useless.
 */
export type Stage = "refused" | "redirected" | "unsent" | "unanswered" | "closed";

/** Carries the client library's error through the protocol; a caller never sees it. */
export class Trouble extends Error {
  constructor(
    readonly error: unknown,
    readonly stage: Stage,
  ) {
    super(error instanceof Error ? error.message : String(error));
  }

  /** The first word of an error reply. */
  get code(): string {
    return this.stage === "refused" ? (this.message.split(" ", 1)[0] ?? "") : "";
  }

  /** True if in a cluster the request belongs to another node, or to none while its slot moves. */
  get isRedirection(): boolean {
    return this.code === "ASK" || this.code === "MOVED" || this.code === "TRYAGAIN";
  }

  /**
   * True if a client for a single server is connected to a node of a cluster, and the key or channel belongs to another
   * node.
   */
  get isOfClusterNode(): boolean {
    const isOfChannel = this.code === "CROSSSLOT" && this.message.includes("NOTIFY");
    return isOfChannel || this.code === "ASK" || this.code === "MOVED";
  }

  get mayHaveRun(): boolean {
    return this.stage === "unanswered";
  }

  /** True if the same request may succeed in a moment: on another connection, node or primary. */
  get heals(): boolean {
    if (isDenied(this.error)) return false;
    if (this.stage !== "refused") return this.stage !== "closed";
    return HEALING.has(this.code) || (this.code === "UNBLOCKED" && this.message.includes(DEMOTED));
  }

  /**
   * True if this reply to LOCK.EXEC is the command's own error, and not a refusal after which nothing ran. Outside a
   * cluster TRYAGAIN is the command's own, on an adopted key.
   */
  get isOfCommand(): boolean {
    return this.stage === "refused" && !this.isOfClusterNode && (!this.heals || this.code === "TRYAGAIN");
  }

  /** True if the reply to a release, renewal or exec means that the lock is no longer ours. */
  get meansLost(): boolean {
    return this.code === "WRONGTYPE" || this.code === "WRONGKIND" || this.code === "NOTHELD";
  }
}

const HEALING = new Set("NOREPLICAS MISCONF GRACE BUSY MASTERDOWN CLUSTERDOWN TRYAGAIN READONLY LOADING".split(" "));
// Redis's message when the server became a replica.
const DEMOTED = "instance state changed";

// Matches replies about the user, even if a library quotes them in its own error.
const DENIED = /(^|[:\s-])(WRONGPASS|NOAUTH|NOPERM|DENIED|ERR AUTH|ERR Client sent AUTH)\b/;

/**
 * True if the server or a sentinel has refused the user, so that a retry cannot help. Looks at the causes of an error
 * as well.
 */
export function isDenied(error: unknown, depth = 5): boolean {
  if (!(error instanceof Error) || depth === 0) return false;
  const { cause, lastNodeError, errors = [] } = error as Error & { lastNodeError?: unknown; errors?: unknown[] };
  return DENIED.test(error.message) || [cause, lastNodeError, ...errors].some((each) => isDenied(each, depth - 1));
}

// LOCK.EXEC reports an unknown inner command in the same way, which says nothing about the module.
const UNKNOWN = /unknown command .?(R?LOCK|RWLOCK|SEM|MLOCK)\./i;

const NOT_LOADED =
  "this server has no redis-lock module: put `loadmodule /path/to/libredis_lock.so` into redis.conf and restart it, " +
  "or send MODULE LOAD /path/to/libredis_lock.so where enable-module-command allows it";

const OF_CLUSTER_NODE =
  "the server is a node of a cluster: create the client with `new Cluster` of ioredis, or `createCluster` of " +
  "node-redis";

const OURS: Record<string, new (message: string, lock: string, options?: { cause?: unknown }) => LockError> = {
  DEADLOCK: DeadlockError,
  WRONGTYPE: WrongTypeError,
  WRONGKIND: WrongKindError,
  MAXWAITERS: MaxWaitersError,
  UNBLOCKED: WaitCancelledError,
};

/** True if the server does not know a command of the module. */
export function isNotLoaded(error: Trouble): boolean {
  return error.stage === "refused" && UNKNOWN.test(error.message);
}

/** The error that the caller sees. */
export function translated(error: unknown, lock: string): unknown {
  if (!(error instanceof Trouble)) return error;
  if (isNotLoaded(error)) {
    return new ModuleNotLoadedError(NOT_LOADED, lock, { cause: error.error });
  }
  if (error.stage === "redirected") {
    return new LockError(`the slot of the lock "${lock}" is moving: ${error.message}`, lock, { cause: error.error });
  }
  if (error.isOfClusterNode) {
    return new LockError(`${OF_CLUSTER_NODE} (${error.message})`, lock, { cause: error.error });
  }
  const kind = OURS[error.code];
  if (kind === undefined) return error.error;
  return new kind(error.message.slice(error.code.length + 1), lock, { cause: error.error });
}

/**
 * The error of a command that did not run, if the caller could take it for the command's own. The classes of other
 * errors say that already.
 */
export function notRun(trouble: Trouble, lock: string): LockError {
  const error = translated(trouble, lock);
  if (error instanceof LockError && error.constructor !== LockError) return error;
  const why = error instanceof Error ? error.message : String(error);
  return new NotRunError(`the command did not run: ${why}`, lock, { cause: trouble.error });
}

/** True if an error from a library is a reply of the server: an upper-case code, then a sentence. */
export function isReply(error: unknown): boolean {
  return error instanceof Error && !("syscall" in error) && /^-?[A-Z][A-Z0-9_]+ /.test(error.message);
}
