/** Distributed locks over ioredis and node-redis, for servers with the redis-lock module. See README.md. */

export { observe } from "./client.js";
export type { RedisClient } from "./client.js";
export {
  DeadlockError,
  LockError,
  LockLostError,
  MaxWaitersError,
  ModuleNotLoadedError,
  NotAcquiredError,
  NotMadeError,
  NotReplicatedError,
  NotRunError,
  WaitCancelledError,
  WrongKindError,
  WrongTypeError,
} from "./errors.js";
export { Hold } from "./hold.js";
export type { ReleaseOptions } from "./hold.js";
export type { HolderInfo, LockInfo } from "./info.js";
export { Lock, MultiLock, RLock, RWLock, Semaphore, View } from "./locks.js";
export type { CoalesceOptions, PermitOptions, SemaphoreOptions } from "./locks.js";
export type { AcquireOptions, LockOptions, MutexOptions, ReentrantOptions, RunOptions } from "./options.js";
export type { LockEvent, LockKind, Observer } from "./observer.js";
export type { Done } from "./owned.js";
export { makeToken } from "./tokens.js";
