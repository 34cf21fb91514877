/** Classifies errors: transient, a lost lock, or an error for the caller. */

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
 * - `unsent`: it was not sent, as there was no connection.
 * - `unanswered`: it was sent, and the server may have executed it.
 * - `closed`: the application closed the client; a retry is useless.
 */
export type Stage = "refused" | "unsent" | "unanswered" | "closed";

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

  get mayHaveRun(): boolean {
    return this.stage === "unanswered";
  }

  /** True if the same request may succeed in a moment: on another connection, node or primary. */
  get heals(): boolean {
    if (this.stage !== "refused") return this.stage !== "closed";
    return HEALING.has(this.code) || (this.code === "UNBLOCKED" && this.message.includes(DEMOTED));
  }

  /** True if the reply to release, renew or exec says that the lock is no longer ours. */
  get meansLost(): boolean {
    return this.code === "WRONGTYPE" || this.code === "WRONGKIND" || this.code === "NOTHELD";
  }
}

const HEALING = new Set("NOREPLICAS MISCONF GRACE BUSY MASTERDOWN CLUSTERDOWN TRYAGAIN READONLY LOADING".split(" "));
// Redis's message when the server became a replica.
const DEMOTED = "instance state changed";

// Inside of LOCK.EXEC, an unknown command says nothing about the module.
const UNKNOWN = /unknown command .?(R?LOCK|RWLOCK|SEM|MLOCK)\./i;

const NOT_LOADED =
  "this server has no redis-lock module: put `loadmodule /path/to/libredis_lock.so` into redis.conf and restart it, " +
  "or send MODULE LOAD /path/to/libredis_lock.so where enable-module-command allows it";

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
  const kind = OURS[error.code];
  if (kind === undefined) return error.error;
  return new kind(error.message.slice(error.code.length + 1), lock, { cause: error.error });
}

/** True if an error from a library is the server's own reply: an upper-case code, then a sentence. */
export function isReply(error: unknown): boolean {
  return error instanceof Error && !("syscall" in error) && /^-?[A-Z][A-Z0-9_]+ /.test(error.message);
}
