/** A cluster that grows: its new node has no slots when the first one moves there, so no client knows it. */

import assert from "node:assert/strict";

import { Lock, MultiLock, RLock, RWLock, Semaphore, type RedisClient } from "redis-lock-client";
import { eventually } from "./servers.js";
import { suite } from "./world.js";

const lease = 600_000;

const ways: [string, (client: RedisClient) => Lock | RLock | Semaphore | MultiLock][] = [
  ["a mutex", (client) => new Lock(client, "k", { lease })],
  ["a mutex with a token", (client) => new Lock(client, "k", { lease, token: "mine" })],
  ["a mutex by polls", (client) => new Lock(client, "k", { lease, mixed: true })],
  ["a mutex of a session", (client) => new Lock(client, "k", { lease, session: true })],
  ["a reentrant mutex", (client) => new RLock(client, "k", { lease })],
  ["a write lock", (client) => new RWLock(client, "k", { lease }).write],
  ["a semaphore", (client) => new Semaphore(client, "k", 1, { lease })],
  // Of several keys neither node grants any before the slot has moved.
  ["one of several mutexes", (client) => new MultiLock(client, ["k"], { lease })],
];

suite("a cluster that grows", (each) => {
  each("a free lock of the moving slot is requested at the node that the reply names", async (world) => {
    const cluster = await world.cluster();
    const { client, end } = world.ending(await world.library.cluster(cluster.nodes[0].port));
    const third = await cluster.grow();
    const { slot, source } = await cluster.of("k");
    await cluster.markMoving(slot, source, third);
    for (const [way, lock] of ways) {
      const first = await lock(client).tryAcquire({ wait: 20_000 });
      assert.ok(first, way);
      if (way.includes("token")) {
        // It would be granted the lock that it holds.
        await first.release();
      } else {
        const waiting = lock(client).acquire();
        if (!way.includes("polls")) {
          await eventually(async () => (await third.waiters("k", true)).length, `${way}: a waiter`);
        }
        await first.release();
        await (await waiting).release();
      }
      await third.ask("ASKING");
      assert.equal(await third.info("k"), null, way);
    }
    await third.ask("ASKING");
    await third.ask("SET", "{k}n", 0);
    assert.equal(await new Lock(client, "k").run(["INCR", "{k}n"]), 1);
    assert.equal(await new Lock(client, "k", { session: true }).run(["INCR", "{k}n"]), 2);
    const hold = await new Lock(client, "k", { lease }).acquire();
    const session = await new Lock(client, "{k}session", { session: true, lease: 6000 }).acquire();
    assert.equal(await hold.exec("INCR", "{k}n"), 3);
    // The client checks it after a third of the lease, at a node that does not own the slot yet.
    const early = await third.calls("lock.held");
    await eventually(async () => (await third.calls("lock.held")) > early, "a check of the session");
    assert.equal(session.lost, false);
    // A hold that was taken there is the same one when the slot has moved.
    const id = await third.ask("CLUSTER", "MYID");
    for (const node of [third, ...cluster.nodes]) await node.ask("CLUSTER", "SETSLOT", slot, "NODE", id);
    assert.equal(await hold.exec("INCR", "{k}n"), 4);
    assert.equal(await new Lock(client, "k").tryAcquire(), null);
    await hold.release();
    const checks = await third.calls("lock.held");
    await eventually(async () => (await third.calls("lock.held")) > checks, "a check of the session");
    await session.release();
    await (await new Lock(client, "k").acquire()).release();
    await end();
    await eventually(async () => (await third.connections()) === 0, "no connection");
  });

  each("a host missing in the reply is the host of the node that answered", async (world) => {
    const cluster = await world.cluster();
    const { client } = world.ending(await world.library.cluster(cluster.nodes[0].port));
    const third = await cluster.grow();
    const { slot, source } = await cluster.of("k");
    await source.ask("CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint");
    await cluster.markMoving(slot, source, third);
    for (const session of [false, true]) {
      const hold = await new Lock(client, "k", { lease, session }).tryAcquire({ wait: 20_000 });
      assert.ok(hold);
      await hold.release();
    }
  });
});
