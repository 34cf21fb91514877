/**
 * The errors of a lock. Failures of the connection or the server are errors of ioredis or node-redis.
 */

/** The base class of all errors of a lock. `lock` is the name of the lock. */
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

/** The lock was not granted in time. The request has left the queue. */
export class NotAcquiredError extends LockError {
  constructor(
    message: string,
    lock: string,
    /** With `tellHolder`: the owner ID of the oldest holder; undefined if there was none any more, or it is unknown. */
    readonly holder?: string,
  ) {
    super(holder === undefined ? message : `${message}: ${holder} holds it`, lock);
  }
}

/** `once` timed out while another caller was still computing the value. */
export class NotMadeError extends NotAcquiredError {}

/** The lock was lost: its lease expired, an operator broke it, or its key was overwritten. */
export class LockLostError extends LockError {}

/**
 * The command of `run` or `exec` did not run, and may be sent again. `cause` is the reason: the last error of the
 * connection, a refusal of the server, or the redirection while a slot of a cluster is moving.
 */
export class NotRunError extends LockError {}

/** The request would deadlock, so it was not queued. The message lists the owners in the cycle. */
export class DeadlockError extends LockError {}

/** An operator ended the wait (LOCK.CANCEL), or a newer request with the same token did. */
export class WaitCancelledError extends LockError {}

/** The queue is full: the server has as many waiters as `lock.max-waiters` or `lock.max-waiters-per-key` allows. */
export class MaxWaitersError extends LockError {}

/** The key holds a value that is not a lock, such as the string of a `SET NX` client. */
export class WrongTypeError extends LockError {}

/** The key is a lock of another type. */
export class WrongKindError extends LockError {}

/** Fewer replicas than `replicas` confirmed the grant in time, so the lock was released again. */
export class NotReplicatedError extends LockError {}

/** The server has not loaded the module. */
export class ModuleNotLoadedError extends LockError {}
