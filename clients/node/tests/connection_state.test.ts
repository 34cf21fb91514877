/** Changes that a caller makes to its connection also apply to the connections that the client opens. */

import assert from "node:assert/strict";

import { Lock, MultiLock, NotReplicatedError } from "redis-lock-client";
import { eventually } from "./servers.js";
import { suite } from "./world.js";

suite("the state of a connection", (each) => {
  for (const how of ["the library's select", "a raw SELECT"] as const) {
    each(`a session and replicas lock in the database that the client is in (${how})`, async (world) => {
      const server = await world.server();
      const { client, call, select } = await world.connect(server);
      await (how === "a raw SELECT" ? call("SELECT", "5") : select(5));
      await server.admin.select(5);
      const held = await new Lock(client, "k", { lease: 60_000 }).acquire();
      assert.equal(await new Lock(client, "k", { session: true }).tryAcquire(), null);
      assert.equal(await new Lock(client, "k", { replicas: 1, replicaTimeout: 50 }).tryAcquire(), null);
      const waiting = new Lock(client, "k", { session: true }).acquire();
      await eventually(async () => (await server.waiters("k")).length, "a waiter in the database");
      await held.release();
      const session = await waiting;
      assert.equal((await server.holders("k"))[0]?.["owner"], session.token);
      assert.ok((await server.holders("k"))[0]?.["session"]);
      // After another change, further locks are in that database.
      await select(0);
      await server.admin.select(0);
      const other = await new Lock(client, "k", { session: true }).acquire();
      assert.equal((await server.holders("k"))[0]?.["owner"], other.token);
      await other.release();
      await select(5);
      await session.release();
      await assert.rejects(new Lock(client, "k", { replicas: 1, replicaTimeout: 50 }).acquire(), NotReplicatedError);
    });
  }

  each("where the database cannot be selected a session is not granted in another one", async (world) => {
    const server = await world.server();
    const { client, select } = await world.connect(server);
    await select(5);
    await server.ask("ACL", "SETUSER", "default", "-select");
    await assert.rejects(new Lock(client, "k", { session: true }).acquire(), /NOPERM/);
    assert.equal(await server.calls("lock.acquire"), 0);
    await eventually(async () => (await server.connections()) === 1, "no connection of its own");
  });

  each("a request that is cancelled while its connection is opened is not sent afterwards", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    for (const options of [{ session: true }, { replicas: 1 }]) {
      const before = await server.connections();
      proxy.keepRequest("$4\r\nINFO\r\n");
      const giveUp = new AbortController();
      const acquiring = new Lock(client, "k", options).acquire({ signal: giveUp.signal });
      await eventually(() => proxy.keeps, "the request at the proxy");
      giveUp.abort();
      await assert.rejects(acquiring, { name: "AbortError" });
      proxy.letGo();
      await eventually(async () => (await server.connections()) === before, "no connection of its own");
      assert.equal(await server.calls("lock.acquire"), 0);
    }
  });

  each("a session's connection has the client's name", async (world) => {
    const server = await world.server();
    const { client, call } = await world.connect(server);
    await call("CLIENT", "SETNAME", "the-worker");
    const session = await new Lock(client, "k", { session: true }).acquire();
    const id = (await server.holders("k"))[0]?.["session"];
    assert.match(await server.ask("CLIENT", "LIST", "ID", id), / name=the-worker /);
    await session.release();
  });

  each("a user that the constructor does not know is refused, not replaced by another one", async (world) => {
    const server = await world.server();
    await server.ask("ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all");
    const late = await world.connect(server);
    await late.call("AUTH", "worker", "secret");
    const plain = await new Lock(late.client, "k").acquire();
    await plain.release();
    await assert.rejects(new Lock(late.client, "k", { session: true }).acquire(), /"worker" by AUTH/);
    assert.equal(await server.info("k"), null);
    const known = await world.connect(server, { username: "worker", password: "secret" });
    const session = await new Lock(known.client, "k", { session: true }).acquire();
    const id = (await server.holders("k"))[0]?.["session"];
    assert.match(await server.ask("CLIENT", "LIST", "ID", id), / user=worker /);
    await session.release();
  });

  each("a client with a keyPrefix meets the key that its own commands name", async (world) => {
    // The prefix of node-redis came with its major 6.
    if (world.library.of === "node-redis" && world.library.major === 5) return;
    const server = await world.server();
    const plain = await world.connect(server);
    for (const keyPrefix of world.library.of === "ioredis" ? ["app:"] : ["app:", Buffer.from([0x61, 0xff])]) {
      const prefixed = await world.connect(server, { keyPrefix });
      const name = Buffer.concat([Buffer.from(keyPrefix as string), Buffer.from("k")]);
      for (const options of [{}, { session: true }]) {
        const hold = await new Lock(prefixed.client, "k", options).acquire();
        assert.equal(await server.ask("EXISTS", name), 1);
        assert.equal(await new Lock(plain.client, name).tryAcquire(), null);
        // Without the prefix it is a different lock.
        await new Lock(plain.client, "k").using(() => undefined);
        const waiting = new Lock(plain.client, name).acquire();
        await eventually(async () => (await server.ask("LOCK.WAITERS", name)).length, "a waiter");
        await hold.release();
        await (await waiting).release();
      }
      const several = await new MultiLock(prefixed.client, ["a", "b"]).acquire();
      await several.release();
      assert.equal(await server.ask("DBSIZE"), 0);
    }
  });

  each("in a cluster and with Sentinel too", async (world) => {
    if (world.library.of === "node-redis" && world.library.major === 5) return;
    const cluster = await world.cluster();
    const [primary, sentinel] = [await world.server(), await world.server([], { sentinel: true })];
    await sentinel.ask("SENTINEL", "MONITOR", "main", "127.0.0.1", primary.port, 1);
    const { source } = await cluster.of("app:k");
    for (const [server, connected] of [
      [source, await world.library.cluster(cluster.nodes[0].port, "app:")],
      [primary, await world.library.sentinel(sentinel.port, "app:")],
    ] as const) {
      const { client } = world.ending(connected);
      for (const options of [{}, { session: true }]) {
        const hold = await new Lock(client, "k", options).acquire();
        assert.equal((await server.holders("app:k"))[0]?.["owner"], hold.token);
        await hold.release();
      }
    }
  });
});
