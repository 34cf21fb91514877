/** Work that throws while the server is gone: its error arrives immediately, and the release continues. */

import assert from "node:assert/strict";

import { Lock, LockLostError, observe, RLock, RWLock, type Hold, type LockEvent } from "redis-lock-client";
import { BUSY_MS, eventually } from "./servers.js";
import { suite } from "./world.js";

const MINE = { name: "Error", message: "mine" };

suite("work that throws", (each) => {
  each("a release that fails may be ignored", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const unhandled: unknown[] = [];
    const record = (reason: unknown): void => void unhandled.push(reason);
    process.on("unhandledRejection", record);
    for (const lock of [new Lock(client, "k"), new RLock(client, "r")]) {
      const hold = await lock.acquire();
      await server.ask("LOCK.BREAK", lock.name);
      void hold.release();
      await eventually(() => hold.lost, "the loss");
    }
    await new Promise((done) => setTimeout(done, 50));
    process.off("unhandledRejection", record);
    assert.deepEqual(unhandled, []);
  });

  for (const session of [false, true]) {
    for (const gone of ["silent", "stopped"] as const) {
      each(`with a server that is ${gone}${session ? ", a session" : ""}: within a second`, async (world) => {
        const server = await world.server();
        const proxy = await world.proxy(server);
        const { client } = await world.connect(proxy);
        const lock = new Lock(client, "k", { lease: 600_000, session });
        const went = (): void => (gone === "silent" ? proxy.silence() : proxy.refuse());
        let began = 0;
        let lost = 0;
        const fail = (hold: Hold): never => {
          hold.on("lost", () => (lost += 1));
          went();
          began = performance.now();
          throw new Error("mine");
        };
        await assert.rejects(lock.using(fail), MINE);
        assert.ok(performance.now() - began < 1000 + BUSY_MS, `${performance.now() - began} ms`);
        // A session that is closed because of its end is not reported as lost.
        if (gone === "silent") assert.equal(lost, 0);
        proxy.accept();
        proxy.speak();
        await eventually(async () => (await server.info("k")) === null, "the release, long before the lease's end");

        const block = async (): Promise<void> => {
          await using hold = await lock.acquire();
          fail(hold);
        };
        await assert.rejects(block(), MINE);
        assert.ok(performance.now() - began < 1000 + BUSY_MS, `${performance.now() - began} ms`);
        proxy.accept();
        proxy.speak();
        await eventually(async () => (await server.info("k")) === null, "the release, long before the lease's end");
      });
    }
  }

  each("a block that succeeds reports that the server refused its release", async (world) => {
    const server = await world.server();
    await server.ask("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-lock.release", "-rlock.release");
    const { client } = await world.connect(server, { username: "u", password: "p" });
    for (const lock of [new Lock(client, "k"), new Lock(client, "s", { session: true }), new RLock(client, "r")]) {
      const block = async (thrown?: Error): Promise<void> => {
        await using _hold = await lock.acquire();
        if (thrown !== undefined) throw thrown;
      };
      await assert.rejects(block(), /NOPERM/);
      await server.ask("FLUSHALL");
      const both = await block(new Error("mine")).catch((error: unknown) => error);
      const { error, suppressed } = both as { error: Error; suppressed: Error };
      assert.match(error.message, /NOPERM/);
      assert.equal(suppressed.message, "mine");
      await server.ask("FLUSHALL");
    }
  });

  each("of an inner hold: its release ends long before the lease, and the outer one can be released", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    const locks = [new RLock(client, "r", { lease: null }), new RWLock(client, "w", { lease: 600_000 }).read];
    const outer = await Promise.all(locks.map((lock) => lock.acquire()));
    const inner = await Promise.all(locks.map((lock, at) => lock.acquire({ within: outer[at] as Hold })));
    const ended: LockEvent[] = [];
    observe(client, (event) => void (event.event === "released" && ended.push(event)));
    const block = async (hold: Hold): Promise<void> => {
      await using _hold = hold;
      proxy.refuse();
      throw new Error("mine");
    };
    await Promise.all(inner.map((hold) => assert.rejects(block(hold), MINE)));
    await eventually(() => ended.length === 2, "the end of the inner releases");
    proxy.accept();
    for (const hold of [...inner, ...outer]) await hold.release();
    assert.equal(await server.ask("DBSIZE"), 0);
  });

  each("once: the error of `make` is kept", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    for (const session of [false, true]) {
      let began = 0;
      const make = (): never => {
        proxy.silence();
        began = performance.now();
        throw new Error("mine");
      };
      const lock = new Lock(client, "k", { lease: 600_000, session });
      await assert.rejects(
        lock.once(() => null, make),
        MINE,
      );
      assert.ok(performance.now() - began < 1000 + BUSY_MS);
      proxy.speak();
      await eventually(async () => (await server.info("k")) === null, "the release");
    }
  });

  each("a block that succeeds still reports a loss", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    for (const session of [false, true]) {
      const block = async (): Promise<void> => {
        await using hold = await new Lock(client, "k", { session }).acquire();
        await server.ask("LOCK.BREAK", "k");
        assert.equal(await hold.owned(), false);
      };
      await assert.rejects(block(), LockLostError);
      const fine = async (): Promise<number> => {
        await using hold = await new Lock(client, "k", { session }).acquire();
        return hold.fence;
      };
      assert.ok((await fine()) > 0);
      assert.equal(await server.info("k"), null);
    }
  });
});
