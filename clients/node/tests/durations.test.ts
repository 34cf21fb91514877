/** Durations: zero, negative values and NaN are refused, fractions round up, and the largest are never truncated. */

import assert from "node:assert/strict";

import { Lock, MultiLock, NotAcquiredError, RLock, Semaphore, type LockOptions } from "redis-lock-client";
import { eventually } from "./servers.js";
import { suite } from "./world.js";

const GREATEST = [2 ** 31, Number.MAX_SAFE_INTEGER, 1e300, Number.MAX_VALUE, Infinity];

suite("durations", (each) => {
  each("zero, negative values and what is not a number are refused before anything is sent", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new Lock(client, "held").acquire();
    const asked = await server.calls("lock.acquire");
    for (const time of [0, -1, -0.5, NaN, -Infinity, "5", {}] as number[]) {
      for (const name of ["lease", "replicaTimeout", "pollInterval", "atLeast"]) {
        // 0 is its default.
        if (name === "atLeast" && time === 0) continue;
        const options = { [name]: time, ...(name === "pollInterval" ? { mixed: true } : {}) } as LockOptions;
        assert.throws(() => new Lock(client, "k", options), RangeError, `${name} ${String(time)}`);
      }
      await assert.rejects(hold.extend(time), RangeError);
      if (time === 0) continue;
      assert.throws(() => new Lock(client, "k", { wait: time }), RangeError);
      await assert.rejects(new Lock(client, "k").acquire({ wait: time }), RangeError);
      await assert.rejects(new Lock(client, "k").tryAcquire({ wait: time }), RangeError);
      await assert.rejects(new Lock(client, "k").run(["PING"], { wait: time }), RangeError);
    }
    assert.deepEqual([await server.calls("lock.acquire"), await server.calls("lock.renew")], [asked, 0]);
    await hold.release();
  });

  each("fractions round up", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const leaseOf = async (): Promise<number> => (await server.holders("k"))[0]?.["lease"];
    const hold = await new Lock(client, "k", { lease: 20_000.001 }).acquire();
    assert.equal(await leaseOf(), 20_001);
    await hold.extend(30_000.5);
    assert.equal(await leaseOf(), 30_001);
    await hold.release();
    await new Lock(client, "k", { lease: 60_000, atLeast: 20_000.5 }).using(() => undefined);
    assert.ok((await leaseOf()) <= 20_001 && (await leaseOf()) > 15_000);
    await server.ask("DEL", "k");
    await server.ask("SET", "k", "old");
    const lock = new Lock(client, "k", { mixed: true, pollInterval: 0.1, replicaTimeout: 0.1, lease: 0.1 });
    await assert.rejects(lock.acquire({ wait: 20.5 }), NotAcquiredError);
  });

  each("the largest are refused by the server or never end", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const other = await new Lock(client, "held", { lease: 600_000 }).acquire();
    for (const time of GREATEST) {
      if (time > 31_536_000_000) {
        for (const options of [{}, { autoRenew: true }, { session: true }]) {
          await assert.rejects(new Lock(client, "k", { lease: time, ...options }).acquire(), /invalid expire time/);
        }
        await assert.rejects(other.extend(time), /invalid expire time/);
      }
      assert.equal(await server.info("k"), null);
      const waits = [
        new Lock(client, "held", { wait: time }).acquire(),
        new Lock(client, "held", { session: true }).acquire({ wait: time }),
        new Lock(client, "held").tryAcquire({ wait: time }),
      ];
      const running = new Lock(client, "held").run(["PING"], { wait: time });
      await eventually(async () => (await server.waiters("held")).length === 4, "the waiters");
      await server.ask("LOCK.BREAK", "held");
      for (const each of waits) void each.then((hold) => hold?.release());
      await Promise.all([...waits, running]);
      await eventually(async () => (await server.info("held")) === null, "the releases");
      await server.ask("LOCK.ACQUIRE", "held", other.token, "PX", 600_000);
    }
    await server.ask("SET", "old", "v");
    const polls = new Lock(client, "old", { mixed: true, pollInterval: Infinity });
    await assert.rejects(polls.acquire({ wait: 50 }), NotAcquiredError);
  });

  each("an atLeast above lock.max-lease is refused before the work runs", async (world) => {
    const server = await world.server(["--lock.max-lease", "60000"]);
    const { client } = await world.connect(server);
    const atLeast = { lease: 10_000, atLeast: 60_001 };
    let runs = 0;
    for (const lock of [
      new Lock(client, "k", atLeast),
      new Lock(client, "k", { ...atLeast, autoRenew: true }),
      new Lock(client, "k", { ...atLeast, mixed: true }),
      new RLock(client, "k", atLeast),
      new Semaphore(client, "k", 3, atLeast),
      new MultiLock(client, ["k", "k2"], atLeast),
    ]) {
      for (const asked of [lock.using(() => (runs += 1)), lock.tryAcquire()]) {
        await assert.rejects(asked, (error: Error) => {
          return error instanceof RangeError && /^atLeast is too long: .*60000/.test(error.message);
        });
      }
    }
    assert.equal(runs, 0);
    assert.equal(await server.ask("DBSIZE"), 0);
    await new Lock(client, "k", { lease: 10_000, atLeast: 60_000 }).using(() => (runs += 1));
    assert.equal(runs, 1);
    assert.ok((await server.ask("PTTL", "k")) > 50_000);
    // The acquire itself reports a key of another type.
    await server.ask("SET", "k", "v");
    await assert.rejects(new Lock(client, "k", { lease: 10_000, atLeast: 60_000 }).acquire(), {
      name: "WrongTypeError",
    });
  });
});
