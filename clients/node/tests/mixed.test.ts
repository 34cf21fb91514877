/** A migrating service: loops of SET NX PX and ours with `mixed` hold the same key. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

import { Lock, NotAcquiredError } from "redis-lock-client";
import { eventually, sleep } from "./servers.js";
import { isPending, suite } from "./world.js";

const CLIENTS = 20;
const EACH = 8;
const PAUSE_MS = 20;
const UNLOCK = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end';

suite("mixed fleets", (each) => {
  each("old and new clients take turns, and no two hold it", async (world) => {
    const server = await world.server();
    const { client, call } = await world.connect(server);
    const turns = { old: 0, new: 0 };
    let inside = 0;
    let done = false;
    const work = async (side: "old" | "new"): Promise<void> => {
      assert.equal(++inside, 1, "two holders");
      turns[side] += 1;
      if (Math.min(turns.old, turns.new) >= EACH) done = true;
      await sleep(1);
      inside -= 1;
    };
    const old = async (): Promise<void> => {
      while (!done) {
        const token = randomUUID();
        if ((await call("SET", "k", token, "NX", "PX", "60000")) === null) {
          await sleep(PAUSE_MS * (0.5 + Math.random()));
          continue;
        }
        await work("old");
        assert.equal(await call("EVAL", UNLOCK, "1", "k", token), 1);
        await sleep(PAUSE_MS / 4);
      }
    };
    const ours = async (): Promise<void> => {
      const lock = new Lock(client, "k", { lease: 60_000, mixed: true, pollInterval: PAUSE_MS });
      while (!done) {
        await lock.using(() => work("new"));
        await sleep(PAUSE_MS / 4);
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, () => [old(), ours()]).flat());
    console.log(`# ${world.library.name}: turns of ${CLIENTS} and ${CLIENTS} clients: ${JSON.stringify(turns)}`);
    assert.equal(await server.ask("EXISTS", "k"), 0);
  });

  each("a string is waited for only with mixed", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    await server.ask("SET", "k", "old", "NX", "PX", 60_000);
    const lock = new Lock(client, "k", { mixed: true, pollInterval: 10 });
    assert.equal(await lock.tryAcquire(), null);
    await assert.rejects(lock.acquire({ wait: 100 }), NotAcquiredError);
    const waiting = lock.acquire();
    const asked = await server.calls("lock.acquire");
    await eventually(async () => (await server.calls("lock.acquire")) > asked + 2, "polls");
    assert.ok(await isPending(waiting));
    await server.ask("DEL", "k");
    const hold = await waiting;
    // Conversely, an old client finds the key in use, and a new one that polls stays out of the queue.
    assert.equal(await server.ask("SET", "k", "old", "NX", "PX", 60_000), null);
    assert.equal(await lock.tryAcquire({ wait: 50 }), null);
    assert.deepEqual(await server.waiters("k"), []);
    await hold.release();
    assert.throws(() => new Lock(client, "k", { mixed: true, session: true }), RangeError);
  });
});
