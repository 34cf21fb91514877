/**
 * Errors of a lock. Failures of the connection or the server keep the error type of ioredis or node-redis.
 */

/** The base of all; `lock` is the name of the lock. */
export class LockError extends Error {
  constructor(
    message: string,
    readonly lock: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The time to wait was over; the request has left the queue. */
export class NotAcquiredError extends LockError {
  constructor(
    message: string,
    lock: string,
    /** With `tellHolder`: the token of the first holder; undefined: there was none any more, or it is not known. */
    readonly holder?: string,
  ) {
    super(holder === undefined ? message : `${message}: ${holder} holds it`, lock);
  }
}

/** The time to wait was over, and the value that another caller makes was not there yet (`once`). */
export class NotMadeError extends NotAcquiredError {}

/** The hold is lost: its lease ended, an operator broke it, or the key became something else. */
export class LockLostError extends LockError {}

/**
 * The command of `run` or `exec` did not run, and its caller may send it again. `cause` is why: the last error of the
 * connection, a refusal of the server, or the redirection while a slot of a cluster moves.
 */
export class NotRunError extends LockError {}

/** The wait would have closed a cycle of owners; it was not queued. The message names the cycle. */
export class DeadlockError extends LockError {}

/** An operator ended the wait (LOCK.CANCEL). */
export class WaitCancelledError extends LockError {}

/** The server has as many waiters as `lock.max-waiters` or `lock.max-waiters-per-key` allow. */
export class MaxWaitersError extends LockError {}

/** The key holds something that is no lock, such as the string that a `SET NX` client leaves. */
export class WrongTypeError extends LockError {}

/** The key is a lock of another family. */
export class WrongKindError extends LockError {}

/** Fewer replicas than asked for confirmed the grant in time; it was given back. */
export class NotReplicatedError extends LockError {}

/** The server does not know the lock commands. */
export class ModuleNotLoadedError extends LockError {}
