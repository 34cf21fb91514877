/** Options that would be ignored are refused when they are passed, and by the types. Needs no server. */

import assert from "node:assert/strict";
import { after, it } from "node:test";

import { Redis } from "ioredis";
import { Lock, MultiLock, RLock, RWLock, Semaphore } from "redis-lock-client";

const redis = new Redis({ lazyConnect: true });
after(() => redis.disconnect());

const refused = (make: () => unknown, says: RegExp): void =>
  assert.throws(make, (error: Error) => error instanceof TypeError && (says.test(error.message) || fail(error)));
const fail = (error: Error): never => assert.fail(error.message);

it("an unknown or misplaced option of a lock", () => {
  // @ts-expect-error: the types refuse it too, here and below.
  refused(() => new Lock(redis, "x", { timeout: 5 }), /^a Lock has no option timeout \(here: lease .*lease, wait/);
  // @ts-expect-error
  refused(() => new Lock(redis, "x", { permits: 2 }), /permits/);
  // @ts-expect-error
  refused(() => new RLock(redis, "x", { mixed: true }), /a RLock has no option mixed/);
  // @ts-expect-error
  refused(() => new RWLock(redis, "x", { autorenew: true }), /autorenew/);
  // @ts-expect-error
  refused(() => new MultiLock(redis, ["x"], { slot: true }), /slot/);
  // @ts-expect-error
  refused(() => new Semaphore(redis, "x", 3, { limit: 3 }), /limit \(here: the third argument of Semaphore\)/);
  // @ts-expect-error
  refused(() => new Lock(redis, "x", 5000), /must be an object, not 5000/);
  const options = { lease: 5000, wait: 0, autoRenew: true, mixed: true, pollInterval: 50, replicas: 0 };
  assert.equal(new Lock(redis, "x", options).name, "x");
});

it("a semaphore without its limit", () => {
  // @ts-expect-error
  refused(() => new Semaphore(redis, "x", { limit: 3 }), /not \{ limit: 3 \}: new Semaphore\(client, name, limit, opt/);
  // @ts-expect-error
  refused(() => new Semaphore(redis, "x"), /not undefined/);
  refused(() => new Semaphore(redis, "x", 0), /not 0/);
  refused(() => new Semaphore(redis, "x", 1.5), /not 1.5/);
});

it("an invalid name", () => {
  // @ts-expect-error
  refused(() => new MultiLock(redis, "ab"), /must be an array, not 'ab'/);
  // @ts-expect-error
  refused(() => new MultiLock(redis, ["a", undefined]), /not undefined/);
  assert.throws(() => new MultiLock(redis, []), RangeError);
  // @ts-expect-error
  refused(() => new Lock(redis, ["a", "b"]), /not \[ 'a', 'b' \]/);
  // @ts-expect-error
  refused(() => new Lock(redis), /not undefined/);
  refused(() => new RWLock(redis, ""), /not empty, not ''/);
});

it("an unknown or misplaced option of an acquire", async () => {
  const lock = new Lock(redis, "x");
  const calls: [() => Promise<unknown>, RegExp][] = [
    // @ts-expect-error
    [() => lock.acquire({ timeout: 5 }), /an acquire of a Lock has no option timeout/],
    // @ts-expect-error
    [() => lock.tryAcquire({ lease: 5 }), /lease/],
    // @ts-expect-error
    [() => lock.tryAcquire({ tellHolder: true }), /no holder: omit tellHolder/],
    // @ts-expect-error
    [() => lock.tryAcquire({ coalesce: true, tellHolder: false }), /no holder/],
    // @ts-expect-error
    [() => new Semaphore(redis, "x", 3).tryAcquire({ permits: 2, tellHolder: true }), /no holder/],
    // @ts-expect-error
    [() => lock.using(() => 1, { coalesc: true }), /coalesc/],
    // @ts-expect-error
    [() => lock.acquire({ coalesce: true, permits: 2 }), /permits/],
    // @ts-expect-error
    [() => lock.once(() => 1, () => 1, { timeout: 5 }), /once has no option timeout/], // prettier-ignore
    // @ts-expect-error
    [() => lock.acquire(5000), /must be an object, not 5000/],
    // @ts-expect-error
    [() => new RWLock(redis, "x").read.acquire({ permits: 2 }), /permits/],
    // @ts-expect-error
    [() => new Semaphore(redis, "x", 3).acquire({ limit: 3 }), /limit/],
  ];
  for (const [call, says] of calls) {
    await assert.rejects(
      call,
      (error: Error) => error instanceof TypeError && (says.test(error.message) || fail(error)),
    );
  }
  assert.equal(redis.status, "wait", "nothing was sent");
});
