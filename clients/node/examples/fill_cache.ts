/**
 * A thousand callers miss one value at the same time and one of them makes it: single-flight against a cache stampede.
 */

import { setTimeout } from "node:timers/promises";

import { Redis } from "ioredis";
import { Lock, type Hold } from "redis-lock-client";

async function main(): Promise<void> {
  const redis = new Redis(Number(process.env["REDIS_PORT"] ?? 6379));
  const lock = new Lock(redis, "lock:report");
  let made = 0;
  const read = (): Promise<string | null> => redis.get("report");
  const make = async (hold: Hold): Promise<string> => {
    await setTimeout(100, undefined, { signal: hold.signal });
    const report = `report ${++made}`;
    await hold.exec("SET", "report", report, "PX", 60_000);
    return report;
  };
  const reports = await Promise.all(Array.from({ length: 1000 }, () => lock.once(read, make)));
  const different = new Set(reports).size;
  console.log(`a thousand callers have ${different === 1 ? "one value" : `${different} values`}; made: ${made}`);
  await redis.del("report");
  await redis.quit();
}

void main();
