/** One leader, for as long as its process lives: bound to a connection. */

import { createClient } from "redis";
import { Lock } from "redis-lock-client";

async function main(): Promise<void> {
  const redis = createClient({ socket: { port: Number(process.env["REDIS_PORT"] ?? 6379) } });
  await redis.connect();
  const hold = await new Lock(redis, "leader", { lease: 10_000, session: true }).acquire();
  hold.once("lost", (error) => console.log("no leader any more:", error.message));
  console.log("leading");
  await hold.release();
  await redis.close();
}

void main();
