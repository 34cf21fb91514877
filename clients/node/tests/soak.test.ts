/** No memory stays in use after a request's reply or a hold's release: the heap does not grow. */

import assert from "node:assert/strict";
import { it } from "node:test";

import { Lock, MultiLock, RLock, RWLock, Semaphore, type RedisClient } from "redis-lock-client";
import { tested } from "./libraries.js";
import { World } from "./world.js";

/** SOAK_PAIRS=100000 for a long one, in every way over every library. */
const LONG = process.env["SOAK_PAIRS"];
const PAIRS = Number(LONG ?? 2000);
const BESIDE = 20;
/** For each pair; a leaked object takes more. */
const ALLOWED_BYTES = 24;
const ROUNDS = 20;

type Pair = (client: RedisClient, signal: AbortSignal) => Promise<unknown>;

const released = async (acquiring: Promise<{ release(): Promise<void> } | null>): Promise<void> =>
  (await acquiring)?.release();

let number = 0;

const ways: Record<string, Pair> = {
  acquire: (client) => released(new Lock(client, `k${number++}`).acquire()),
  signal: (client, signal) => released(new Lock(client, `k${number++}`).acquire({ signal })),
  tryAcquire: (client) => released(new Lock(client, `k${number++}`).tryAcquire()),
  using: (client) => new Lock(client, `k${number++}`).using((hold) => hold.signal),
  run: (client) => new Lock(client, `k${number++}`).run(["PING"]),
  exec: (client) => new Lock(client, `k${number++}`).using((hold) => hold.exec("PING")),
  once: (client) =>
    new Lock(client, `k${number++}`).once(
      () => null,
      () => 1,
    ),
  token: (client) => released(new Lock(client, `k${number}`, { token: `me${number++}` }).acquire()),
  autoRenew: (client) => released(new Lock(client, `k${number++}`, { autoRenew: true }).acquire()),
  atLeast: (client) => released(new Lock(client, `k${number++}`, { atLeast: 1 }).acquire()),
  reentrant: (client) => released(new RLock(client, `k${number++}`).acquire()),
  write: (client) => released(new RWLock(client, `k${number++}`).write.acquire()),
  semaphore: (client) => released(new Semaphore(client, `k${number++}`, 3).acquire()),
  several: (client) => released(new MultiLock(client, [`k${number++}`, "k"]).acquire()),
  waits: (client) => released(new Lock(client, "k").acquire()),
};

/** The libraries differ only in how a command is sent, waits and is cancelled. */
const SENDING = ["signal", "run", "waits"];

function heap(): number {
  for (let times = 0; times < 3; times++) global.gc?.();
  return process.memoryUsage().heapUsed;
}

/**
 * Whether the heap stays as it is, by how much it grew in each round. If the first round is inconclusive, the mean of
 * the last five decides, because compiled code and garbage of earlier rounds make the heap jump up and down.
 */
function isSteady(grown: number[]): boolean {
  const allowed = PAIRS * ALLOWED_BYTES;
  if (grown.length === 1) return Math.abs(grown[0]!) < allowed;
  return grown.length >= 5 && grown.slice(-5).reduce((sum, bytes) => sum + bytes) / 5 < allowed;
}

// One after the other: they share the heap.
for (const library of tested) {
  it(`the heap does not grow, however a lock is acquired: ${library.name}`, { timeout: 3_600_000 }, async () => {
    const world = new World(library);
    try {
      const server = await world.server();
      const { client } = await world.connect(server);
      const { signal } = new AbortController();
      const pairs = async (pair: Pair): Promise<void> => {
        await Promise.all(
          Array.from({ length: BESIDE }, async () => {
            for (let done = 0; done < PAIRS / BESIDE; done++) await pair(client, signal);
          }),
        );
      };
      for (const [way, pair] of Object.entries(ways)) {
        if (library !== tested[0] && !LONG && !SENDING.includes(way)) continue;
        await pairs(pair); // Compiles the code and fills caches.
        const grown: number[] = [];
        for (let before = heap(); !isSteady(grown) && grown.length < ROUNDS;) {
          await pairs(pair);
          const after = heap();
          grown.push(after - before);
          before = after;
        }
        assert.ok(isSteady(grown), `${way}: ${grown.join(", ")} bytes in rounds of ${PAIRS} pairs`);
      }
    } finally {
      await world.end();
    }
  });
}
