/** One leader at a time, as long as its process lives: with a session. */

import { setTimeout } from "node:timers/promises";

import { createClient } from "redis";
import { Lock, type Hold } from "redis-lock-client";

/** Resolves when this process leads. A refusal, such as a LOCK.CANCEL or too many waiters, must not end it for good. */
async function lead(lock: Lock): Promise<Hold> {
  for (;;) {
    try {
      return await lock.acquire();
    } catch (error) {
      console.error("not leading, queueing again in a second:", error);
      await setTimeout(1000);
    }
  }
}

async function main(): Promise<void> {
  const redis = createClient({ socket: { port: Number(process.env["REDIS_PORT"] ?? 6379) } });
  await redis.connect();
  const hold = await lead(new Lock(redis, "leader", { lease: 10_000, session: true }));
  hold.once("lost", (error) => console.log("no leader any more:", error.message));
  console.log("leading");
  await hold.release();
  await redis.close();
}

void main();
