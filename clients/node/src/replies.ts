/** Which errors heal by themselves, which mean that a lock was lost, and which are errors of our own. */

import {
  DeadlockError,
  LockError,
  MaxWaitersError,
  ModuleNotLoadedError,
  WaitCancelledError,
  WrongKindError,
  WrongTypeError,
} from "./errors.js";

/**
 * Why a request has no result.
 *
 * - `refused`: the server answered with an error.
 * - `unsent`: it never left, as there was no connection.
 * - `unanswered`: it was sent, and the server may have done it.
 * - `closed`: the client was closed by whom it belongs to, so that asking again is in vain.
 */
export type Stage = "refused" | "unsent" | "unanswered" | "closed";

/** Carries what the client library said through the protocol; a caller never sees it. */
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

  get mayHaveRun(): boolean {
    return this.stage === "unanswered";
  }

  /** Whether the same request may well succeed in a moment: on another connection, node or primary. */
  get heals(): boolean {
    if (this.stage !== "refused") return this.stage !== "closed";
    return HEALING.has(this.code) || (this.code === "UNBLOCKED" && this.message.includes(DEMOTED));
  }

  /** Whether a reply to release, renew or exec says that the lock is no longer ours. */
  get meansLost(): boolean {
    return this.code === "WRONGTYPE" || this.code === "WRONGKIND" || this.code === "NOTHELD";
  }
}

const HEALING = new Set("NOREPLICAS MISCONF GRACE BUSY MASTERDOWN CLUSTERDOWN TRYAGAIN READONLY LOADING".split(" "));
// Redis's own words, of a server that was made a replica.
const DEMOTED = "instance state changed";

// Of a command inside of LOCK.EXEC it says nothing about the module.
const UNKNOWN = /unknown command .?(R?LOCK|RWLOCK|SEM|MLOCK)\./i;

const NOT_LOADED =
  "this server has no redis-lock module: put `loadmodule /path/to/libredis_lock.so` into redis.conf and restart it, " +
  "or send MODULE LOAD /path/to/libredis_lock.so";

const OURS: Record<string, new (message: string, lock: string, options?: { cause?: unknown }) => LockError> = {
  DEADLOCK: DeadlockError,
  WRONGTYPE: WrongTypeError,
  WRONGKIND: WrongKindError,
  MAXWAITERS: MaxWaitersError,
  UNBLOCKED: WaitCancelledError,
};

/** Whether the server does not know a command of the module. */
export function isNotLoaded(error: Trouble): boolean {
  return error.stage === "refused" && UNKNOWN.test(error.message);
}

/** The error that the caller sees. */
export function translated(error: unknown, lock: string): unknown {
  if (!(error instanceof Trouble)) return error;
  if (isNotLoaded(error)) {
    return new ModuleNotLoadedError(NOT_LOADED, lock, { cause: error.error });
  }
  const kind = OURS[error.code];
  if (kind === undefined) return error.error;
  return new kind(error.message.slice(error.code.length + 1), lock, { cause: error.error });
}

/** Whether an error that a library threw is the server's own reply: an upper-case code, then a sentence. */
export function isReply(error: unknown): boolean {
  return error instanceof Error && !("syscall" in error) && /^-?[A-Z][A-Z0-9_]+ /.test(error.message);
}
