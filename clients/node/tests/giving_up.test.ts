/** Callers that cancel and immediately acquire again with the same token. */

import assert from "node:assert/strict";

import { Lock, MultiLock, RLock, RWLock, Semaphore, WaitCancelledError, type RedisClient } from "redis-lock-client";
import { BUSY_MS, eventually, type Server } from "./servers.js";
import { suite } from "./world.js";

const options = { lease: 600_000, token: "mine" };

type AnyLock = Lock | RLock | Semaphore | MultiLock;

interface Case {
  key: string;
  /** Its acquire is cancelled. */
  given: AnyLock;
  giveUp: AbortController;
  /** Is acquired afterwards with the same token. */
  next: AnyLock;
  /** Holds the key first. */
  other: AnyLock;
}

function cases(client: RedisClient, beside: RedisClient): Case[] {
  const lockTypes: ((client: RedisClient, key: string, options: object) => AnyLock)[] = [
    (client, key, options) => new Lock(client, key, options),
    (client, key, options) => new RLock(client, key, options),
    (client, key, options) => new RWLock(client, key, options).write,
    (client, key, options) => new Semaphore(client, key, 1, options),
    (client, key, options) => new MultiLock(client, [key, `${key}:too`], options),
  ];
  return lockTypes.flatMap((create, number) =>
    ["same", "new"].map((object) => {
      const key = `${number}:${object}`;
      const given = create(client, key, options);
      const next = object === "same" ? given : create(client, key, options);
      const other = create(beside, key, { lease: 600_000 });
      return { key, given, giveUp: new AbortController(), next, other };
    }),
  );
}

/** The number of releases that the server has run. */
async function releases(server: Server): Promise<number> {
  const names = ["lock", "rlock", "rwlock", "sem", "mlock"];
  const counts = await Promise.all(names.map((name) => server.calls(`${name}.release`)));
  return counts.reduce((sum, count) => sum + count, 0);
}

suite("giving up", (each) => {
  each("one signal cancels five hundred callers without a warning", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const warnings: Error[] = [];
    // Other tests of this process break connections, which makes the client warn.
    const warned = (warning: Error): void => {
      if (warning.name !== "RedisLockWarning") warnings.push(warning);
    };
    process.on("warning", warned);
    const giveUp = new AbortController();
    const { signal } = giveUp;
    const lock = new Lock(client, "k", { lease: 600_000 });
    const value = (): Promise<string> =>
      lock.once<string>(
        () => server.ask("GET", "v"),
        async (hold) => hold.exec("SET", "v", "1"),
        { signal },
      );
    await Promise.all(Array.from({ length: 500 }, value));
    const hold = await lock.acquire();
    const waiting = Array.from({ length: 500 }, () => lock.acquire({ signal }));
    const rlock = new RLock(client, "r", { token: "me" });
    await server.ask("RLOCK.ACQUIRE", "r", "other", "PX", 600_000);
    waiting.push(...Array.from({ length: 20 }, () => rlock.acquire({ signal })));
    const settled = Promise.allSettled(waiting);
    await eventually(async () => (await server.waiters("k")).length === 500, "the waiters");
    giveUp.abort(new Error("enough"));
    for (const result of await settled) assert.equal((result as PromiseRejectedResult).reason?.message, "enough");
    await eventually(async () => (await server.waiters("k")).length === 0, "an empty queue");
    await eventually(async () => (await server.waiters("r")).length === 0, "an empty queue");
    await hold.release();
    process.off("warning", warned);
    assert.deepEqual(warnings, []);
  });

  for (const how of ["aborted", "aborted on a silent network", "out of time on a silent network"]) {
    each(`an acquire that was ${how} takes nothing from the next one of its token`, async (world) => {
      const server = await world.server();
      const proxy = await world.proxy(server);
      const [{ client }, { client: beside }] = [await world.connect(proxy), await world.connect(server)];
      const all = cases(client, beside);
      const others = await Promise.all(all.map(({ other }) => other.acquire()));
      const wait = how.startsWith("out of time") ? 2000 : Infinity;
      const waiting = all.map(({ given, giveUp }) => given.acquire({ wait, signal: giveUp.signal }));
      const rejected = Promise.all(waiting.map((acquiring) => assert.rejects(acquiring)));
      for (const { key } of all) await eventually(async () => (await server.waiters(key)).length, "a waiter");
      if (how === "aborted") proxy.keepMessages();
      else proxy.silence();
      // The grants are on their way.
      for (const other of others) await other.release();
      if (wait === Infinity) for (const { giveUp } of all) giveUp.abort();
      if (how !== "aborted") await rejected;
      const acquiring = all.map(({ next }) => next.acquire());
      proxy.letMessagesGo();
      proxy.speak();
      const holds = await Promise.all(acquiring);
      await rejected;
      await eventually(async () => (await releases(server)) === 2 * all.length, "the withdrawals");
      for (const [number, { key }] of all.entries()) {
        assert.equal((await server.holders(key))[0]?.["holds"], 1, key);
        await holds[number]?.release();
      }
      assert.equal(await server.ask("DBSIZE"), 0);
    });
  }

  each("a late message about a cancelled acquire does not end the next one of its token", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const [{ client }, { client: beside }] = [await world.connect(proxy), await world.connect(server)];
    const all = cases(client, beside);
    const others = await Promise.all(all.map(({ other }) => other.acquire()));
    const isQueued = (): Promise<unknown> =>
      eventually(async () => {
        const waiters = await Promise.all(all.map(({ key }) => server.waiters(key)));
        return waiters.every(({ length }) => length === 1);
      }, "the waiters");
    const waiting = all.map(({ given, giveUp }) => given.acquire({ signal: giveUp.signal }));
    const rejected = Promise.all(waiting.map((acquiring) => assert.rejects(acquiring)));
    await isQueued();
    proxy.keepMessages();
    for (const { giveUp } of all) giveUp.abort();
    await rejected;
    const acquiring = all.map(({ next }) => next.acquire());
    acquiring.forEach((each) => each.catch(() => undefined));
    await eventually(async () => (await server.calls("lock.cancel")) === all.length, "the withdrawals");
    await isQueued();
    proxy.letMessagesGo();
    for (const other of others) await other.release();
    for (const each of acquiring) await (await each).release();
    // One that an operator sends still ends a wait, and leaves nothing.
    for (const { key, other, next } of all) {
      const held = await other.acquire();
      const cancelled = assert.rejects(next.acquire(), WaitCancelledError);
      await eventually(async () => (await server.waiters(key)).length, "a waiter");
      assert.equal(await server.ask("LOCK.CANCEL", key, options.token), 1);
      await cancelled;
      await held.release();
    }
    assert.equal(await server.ask("DBSIZE"), 0);
  });

  each("an acquire that is cancelled while it waits for replicas leaves nothing", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k", { ...options, replicas: 1, replicaTimeout: 10_000 });
    const giveUp = new AbortController();
    const acquiring = lock.acquire({ signal: giveUp.signal });
    await eventually(async () => /^blocked_clients:1\r?$/m.test(await server.admin.info("clients")), "WAIT");
    const began = performance.now();
    giveUp.abort();
    const next = new Lock(client, "k", options).acquire();
    await assert.rejects(acquiring, { name: "AbortError" });
    assert.ok(performance.now() - began < 1000 + BUSY_MS);
    // The withdrawal takes nothing from the next one of the token.
    assert.equal(await (await next).owned(), true);
    await (await next).release();
    assert.equal(await server.info("k"), null);
    await eventually(async () => (await server.connections()) === 1, "no connection of its own");
  });

  each("a repeated release takes nothing from the next acquire of its token", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    const lock = new Lock(client, "k", options);
    for (let times = 0; times < 10; times++) {
      const hold = await lock.acquire();
      proxy.cutReply("LOCK.RELEASE");
      const [, next] = await Promise.all([hold.release(), lock.acquire()]);
      assert.equal(await next.owned(), true);
      await next.release();
    }
  });
});
