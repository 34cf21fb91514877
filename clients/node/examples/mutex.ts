/** One at a time, waiting in the server's queue; the work ends when the lock is lost. */

import { setTimeout } from "node:timers/promises";

import { Redis } from "ioredis";
import { Lock } from "redis-lock-client";

async function main(): Promise<void> {
  const redis = new Redis(Number(process.env["REDIS_PORT"] ?? 6379));
  const lock = new Lock(redis, "report", { lease: 30_000, autoRenew: true });
  await lock.using(async (hold) => {
    console.log("held, with fence", hold.fence);
    await setTimeout(100, undefined, { signal: hold.signal });
  });
  await redis.quit();
}

void main();
