/** A thousand callers over two connections, one at a time, in order of arrival. */

import { Redis } from "ioredis";
import { Lock } from "redis-lock-client";

async function main(): Promise<void> {
  const redis = new Redis(Number(process.env["REDIS_PORT"] ?? 6379));
  const lock = new Lock(redis, "counter");
  let count = 0;
  const add = async (): Promise<void> => {
    const before = count;
    await redis.ping();
    count = before + 1;
  };
  await Promise.all(Array.from({ length: 1000 }, () => lock.using(add)));
  console.log("counted", count);
  await redis.quit();
}

void main();
