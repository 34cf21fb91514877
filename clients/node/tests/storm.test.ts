/**
 * A thousand acquires that are aborted within 1.5 ms, for each way to acquire: none leaves a hold or a request behind.
 */

import assert from "node:assert/strict";

import { Lock, MultiLock, RLock, RWLock, Semaphore, type RedisClient } from "redis-lock-client";
import { eventually } from "./servers.js";
import { suite } from "./world.js";

const TIMES = 1000;
const lease = 600_000;

type Ask = (signal: AbortSignal) => Promise<{ release(): Promise<void> } | null | unknown>;

const ways: Record<string, (client: RedisClient) => Ask> = {
  acquire: (client) => (signal) => new Lock(client, "k", { lease }).acquire({ signal }),
  tryAcquire: (client) => (signal) => new Lock(client, "k", { lease }).tryAcquire({ signal }),
  using: (client) => (signal) => new Lock(client, "k", { lease }).using(() => undefined, { signal }),
  run: (client) => (signal) => new Lock(client, "k", { lease }).run(["INCR", "n"], { signal }),
  once: (client) => (signal) =>
    new Lock(client, "k", { lease }).once(
      () => null,
      () => 1,
      { signal },
    ),
  token: (client) => (signal) => new Lock(client, "k", { lease, token: "me" }).acquire({ signal }),
  mixed: (client) => (signal) => new Lock(client, "k", { lease, mixed: true }).acquire({ signal }),
  autoRenew: (client) => (signal) => new Lock(client, "k", { lease, autoRenew: true }).acquire({ signal }),
  session: (client) => (signal) => new Lock(client, "k", { lease, session: true }).acquire({ signal }),
  reentrant: (client) => (signal) => new RLock(client, "k", { lease }).acquire({ signal }),
  write: (client) => (signal) => new RWLock(client, "k", { lease }).write.acquire({ signal }),
  semaphore: (client) => (signal) => new Semaphore(client, "k", 1, { lease }).acquire({ signal }),
  slot: (client) => (signal) => new Semaphore(client, "k", 1, { lease, slot: true }).acquire({ signal }),
  several: (client) => (signal) => new MultiLock(client, ["k", "k2"], { lease }).acquire({ signal }),
};

/** Timers do not fire below a millisecond. */
async function aborted(after: number): Promise<AbortSignal> {
  const giveUp = new AbortController();
  const ends = performance.now() + after;
  const check = (): void => (performance.now() < ends ? void setImmediate(check) : giveUp.abort());
  setImmediate(check);
  return giveUp.signal;
}

suite("a storm of aborts", (each) => {
  for (const [way, asks] of Object.entries(ways)) {
    each(`leaves nothing behind: ${way}`, async (world) => {
      const server = await world.server();
      const { client } = await world.connect(server);
      const ask = asks(client);
      // A session opens a new connection each time.
      const [times, beside] = way === "session" ? [TIMES / 4, 4] : [TIMES, 8];
      let granted = 0;
      for (let at = 0; at < times; at += beside) {
        const asked = Array.from({ length: beside }, async () => {
          const got = await ask(await aborted(Math.random() * 1.5)).catch(() => null);
          if (got === null || typeof got !== "object") return;
          granted += 1;
          await (got as { release(): Promise<void> }).release().catch((error: Error) => {
            // Two concurrent acquires of one token share one hold.
            assert.ok(way === "token" && error.name === "LockLostError", String(error));
          });
        });
        await Promise.all(asked);
      }
      await eventually(async () => (await server.waiters("k")).length === 0, "an empty queue");
      await eventually(async () => (await server.info("k")) === null, `a free lock, after ${granted} grants`);
      await server.ask("DEL", "n");
      assert.equal(await server.ask("DBSIZE"), 0);
      const next = await new Lock(client, "k").tryAcquire({ wait: 10_000 });
      assert.ok(next, "it can be had");
      await next.release();
    });
  }
});
