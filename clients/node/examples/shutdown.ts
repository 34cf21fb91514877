/** A worker that ends cleanly on SIGTERM: it leaves the queue, stops its work, releases its lock and then closes. */

import { setTimeout } from "node:timers/promises";

import { Redis } from "ioredis";
import { Lock } from "redis-lock-client";

async function main(): Promise<void> {
  const redis = new Redis(Number(process.env["REDIS_PORT"] ?? 6379));
  const lock = new Lock(redis, "report", { lease: 30_000, autoRenew: true });

  const stop = new AbortController();
  process.once("SIGTERM", () => stop.abort());
  while (!stop.signal.aborted) {
    try {
      await lock.using(
        async (hold) => {
          console.log("working, with fence", hold.fence);
          await setTimeout(60_000, undefined, { signal: AbortSignal.any([stop.signal, hold.signal]) });
        },
        { signal: stop.signal },
      );
    } catch (error) {
      if (!stop.signal.aborted) throw error;
    }
  }
  await redis.quit();
  console.log("stopped");
}

void main();
