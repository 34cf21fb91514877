/** The tests of each lock type, and of what all lock types share. */

import assert from "node:assert/strict";

import {
  DeadlockError,
  Lock,
  LockError,
  LockLostError,
  MaxWaitersError,
  MultiLock,
  NotAcquiredError,
  NotReplicatedError,
  RLock,
  RWLock,
  Semaphore,
  WaitCancelledError,
  WrongKindError,
  type Hold,
  type RedisClient,
} from "redis-lock-client";
import { eventually, sleep } from "./servers.js";
import { isPending, suite } from "./world.js";

suite("lock types", (each) => {
  each("a reentrant lock is free when it was released as often", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new RLock(client, "r");
    const outer = await lock.acquire();
    const inner = await lock.acquire({ within: outer });
    assert.deepEqual([outer.holds, inner.holds, inner.fence === outer.fence], [1, 2, true]);
    // The same object outside of it is another owner.
    assert.equal(await lock.tryAcquire(), null);
    await outer.release();
    await outer.release();
    assert.equal((await server.holders("r"))[0]?.["holds"], 1);
    await inner.release();
    assert.equal(await server.info("r"), null);
    await assert.rejects(lock.acquire({ within: outer }), LockError);
    await assert.rejects(new RLock(client, "r").acquire({ within: outer }), TypeError);
  });

  each("the holds of an owner with its own token add up", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const holds = async (key: string): Promise<unknown> => (await server.holders(key))[0]?.["holds"];
    const locks = { r: new RLock(client, "r", { token: "me" }), s: new Semaphore(client, "s", 3, { token: "me" }) };
    for (const [key, lock] of Object.entries(locks)) {
      const one = await lock.acquire();
      const two = await lock.acquire();
      assert.equal(await holds(key), 2);
      await two.release();
      assert.equal(await holds(key), 1);
      await one.release();
      assert.equal(await server.info(key), null);
      await (await lock.acquire()).release();
      assert.equal(await server.info(key), null);
    }
  });

  each("within using, and within what it calls, a reentrant lock belongs to the holder", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new RLock(client, "r");
    const held: number[] = [];
    await lock.using(async () => {
      await Promise.all([1, 2, 3].map(() => lock.using((hold) => void held.push(hold.holds))));
      assert.equal((await server.holders("r"))[0]?.["holds"], 1);
    });
    assert.deepEqual(held.length, 3);
    assert.equal(await server.info("r"), null);
    // Concurrent calls run one after the other.
    let inside = 0;
    await Promise.all(
      Array.from({ length: 20 }, () =>
        lock.using(async () => {
          assert.equal(++inside, 1);
          await lock.using(() => server.ask("PING"));
          inside -= 1;
        }),
      ),
    );
  });

  each("a reentrant lock that was lost is not acquired again", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new RLock(client, "r");
    const hold = await lock.acquire();
    const reported: Error[] = [];
    hold.on("lost", (error) => reported.push(error));
    await server.ask("LOCK.BREAK", "r");
    await assert.rejects(lock.acquire({ within: hold }), LockLostError);
    assert.deepEqual([await server.info("r"), reported.length], [null, 1]);
    await assert.rejects(lock.acquire({ within: hold }), LockLostError);
    await assert.rejects(hold.release(), LockLostError);
    await (await lock.acquire()).release();
  });

  each("readers share and a writer does not", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new RWLock(client, "rw");
    const [one, two] = [await lock.read.acquire(), await lock.read.acquire()];
    assert.equal((await server.holders("rw")).length, 2);
    assert.equal(await lock.write.tryAcquire({ within: two }), null);
    await one.release();
    // The only reader may acquire WRITE, with a new fence, and keep READ.
    const writing = await lock.write.acquire({ within: two });
    assert.ok(writing.fence > two.fence);
    const reading = await lock.read.acquire({ within: writing });
    assert.equal(reading.holds, 2);
    assert.equal(await lock.read.tryAcquire(), null);
    await writing.release();
    assert.equal(await lock.write.tryAcquire(), null);
    const other = await lock.read.tryAcquire();
    assert.ok(other !== null);
    for (const hold of [other, reading, two]) await hold.release();
    assert.equal(await server.info("rw"), null);
  });

  each("an upgrade waits for the other readers and is granted by a message", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new RWLock(client, "rw");
    const [one, two] = [await lock.read.acquire(), await lock.read.acquire()];
    const upgrading = lock.write.acquire({ within: one });
    await eventually(async () => (await server.waiters("rw")).length, "a waiter");
    await two.release();
    const writing = await upgrading;
    assert.ok(writing.fence > one.fence);
    await writing.release();
    await one.release();
    assert.equal(await server.info("rw"), null);
  });

  each("an upgrade that is granted after READ was lost is released, and the loss is reported", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new RWLock(client, "rw", { lease: 60_000 });
    const holders = async (): Promise<string[]> => (await server.holders("rw")).map(({ owner }) => owner);
    for (const { writer, isKnown } of [
      { writer: true, isKnown: true },
      { writer: true, isKnown: false },
      { writer: false, isKnown: false },
    ]) {
      await server.ask("RWLOCK.ACQUIRE", "rw", "reader", "READ", "PX", 600_000);
      const reading = await lock.read.acquire();
      const reported: Error[] = [];
      reading.on("lost", (error) => reported.push(error));
      const asked = ["RWLOCK.ACQUIRE", "rw", "writer", "WRITE", "PX", 600_000, "BLOCK", 60_000, "NOTIFY", "x"] as const;
      if (writer) assert.equal((await server.ask(...asked))[1], 0);
      const upgrading = lock.write.acquire({ within: reading });
      upgrading.catch(() => undefined);
      await eventually(async () => (await server.waiters("rw")).includes(reading.token as string), "the upgrade");
      // The end of the lease of READ, which only the server knows, or this owner too.
      if (isKnown) await reading.extend(100);
      else await server.ask("RWLOCK.RENEW", "rw", reading.token, "PX", 1);
      await eventually(async () => (await holders()).join() === "reader", "the end of READ");
      await server.ask("RWLOCK.RELEASE", "rw", "reader", "READ");
      if (writer) {
        await eventually(async () => (await holders()).join() === "writer", "the writer in between");
        await server.ask("RWLOCK.RELEASE", "rw", "writer", "WRITE");
      }
      await assert.rejects(upgrading, LockLostError);
      assert.deepEqual([await server.info("rw"), reported.length, reading.lost], [null, 1, true]);
      await assert.rejects(lock.write.acquire({ within: reading }), LockLostError);
      await assert.rejects(reading.release(), LockLostError);
    }
    await (await lock.write.acquire()).release();
  });

  each("a READ that was reported lost is not upgraded, even if the server still holds it", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new RWLock(client, "rw", { lease: 60_000 });
    await server.ask("RWLOCK.ACQUIRE", "rw", "reader", "READ", "PX", 600_000);
    const reading = await lock.read.acquire();
    const reported: Error[] = [];
    reading.on("lost", (error) => reported.push(error));
    await reading.extend(1000);
    const upgrading = lock.write.acquire({ within: reading });
    upgrading.catch(() => undefined);
    await eventually(async () => (await server.waiters("rw")).length, "the upgrade");
    await server.ask("RWLOCK.RENEW", "rw", reading.token, "PX", 600_000);
    await eventually(() => reported.length, "the loss, by the local clock");
    await server.ask("RWLOCK.RELEASE", "rw", "reader", "READ");
    await assert.rejects(upgrading, LockLostError);
    assert.deepEqual(
      (await server.holders("rw")).map(({ mode }) => mode),
      ["read"],
    );
    await assert.rejects(reading.release(), LockLostError);
    assert.equal(await server.info("rw"), null);
  });

  each("an upgrade whose READ cannot be checked immediately is repeated, or cancelled entirely", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    const lock = new RWLock(client, "rw", { lease: 60_000 });
    const reading = await lock.read.acquire();
    proxy.cutReply("LOCK.HELD");
    const writing = await lock.write.acquire({ within: reading });
    assert.deepEqual([proxy.cuts, writing.holds, reading.lost], [1, 1, false]);
    await writing.release();
    proxy.holdReply("LOCK.HELD");
    const giveUp = new AbortController();
    const upgrading = lock.write.acquire({ within: reading, signal: giveUp.signal });
    await eventually(() => proxy.held > 0, "the question");
    giveUp.abort();
    await assert.rejects(upgrading, { name: "AbortError" });
    proxy.disconnect();
    await eventually(async () => (await server.holders("rw"))[0]?.["mode"] === "read", "READ alone");
    await reading.release();
    assert.equal(await server.info("rw"), null);
  });

  each("an upgrade that is cancelled after its grant leaves READ as it was", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    const lock = new RWLock(client, "rw", { lease: 60_000 });
    const reading = await lock.read.acquire();
    const holders = async (): Promise<unknown[]> =>
      (await server.holders("rw")).map(({ mode, holds }) => [mode, holds]);
    await server.ask("RWLOCK.ACQUIRE", "rw", "other", "READ", "PX", 600_000);
    const giveUp = new AbortController();
    const upgrading = lock.write.acquire({ within: reading, signal: giveUp.signal });
    await eventually(async () => (await server.waiters("rw")).length, "the upgrade");
    proxy.holdMessages();
    await server.ask("RWLOCK.RELEASE", "rw", "other", "READ");
    await eventually(() => proxy.held > 0, "the grant, which the caller does not know of");
    giveUp.abort();
    await assert.rejects(upgrading, { name: "AbortError" });
    await (await lock.read.acquire({ within: reading })).release();

    // The reply to the withdrawal is late: the next acquire comes after it.
    proxy.holdReply("RWLOCK.ACQUIRE");
    const { held } = proxy;
    const second = new AbortController();
    const again = lock.write.acquire({ within: reading, signal: second.signal });
    await eventually(() => proxy.held > held, "the grant, with its reply held back");
    second.abort();
    await assert.rejects(again, { name: "AbortError" });
    const nested = lock.read.acquire({ within: reading });
    proxy.disconnect();
    await (await nested).release();

    const strict = new RWLock(client, "rw", { lease: 60_000, replicas: 1, replicaTimeout: 50 });
    const same = await strict.read.fromToken(reading.token);
    for (const view of [strict.write, strict.read]) {
      await assert.rejects(view.acquire({ within: same }), NotReplicatedError);
    }
    assert.deepEqual([await holders(), reading.lost, same.lost], [[["read", 1]], false, false]);
    await same.release();
    assert.equal(await server.info("rw"), null);
  });

  each("a cancelled upgrade reports that READ was lost meanwhile", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new RWLock(client, "rw", { lease: 60_000 });
    const reading = await lock.read.acquire();
    await server.ask("RWLOCK.ACQUIRE", "rw", "other", "READ", "PX", 600_000);
    const giveUp = new AbortController();
    const upgrading = lock.write.acquire({ within: reading, signal: giveUp.signal });
    await eventually(async () => (await server.waiters("rw")).length, "the upgrade");
    await server.ask("RWLOCK.RELEASE", "rw", reading.token, "READ", "HOLDS", 0);
    giveUp.abort();
    await assert.rejects(upgrading, { name: "AbortError" });
    assert.ok(reading.lost && reading.signal.aborted);
    assert.deepEqual(await server.waiters("rw"), []);
  });

  each("a semaphore counts permits", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const semaphore = new Semaphore(client, "s", 3);
    const [pair, single] = [await semaphore.acquire({ permits: 2 }), await semaphore.acquire()];
    assert.deepEqual([pair.holds, single.holds], [2, 1]);
    const waiting = semaphore.acquire({ permits: 2 });
    await eventually(async () => (await server.waiters("s")).length, "a waiter");
    await pair.release();
    const granted = await waiting;
    assert.equal(await semaphore.tryAcquire(), null);
    await granted.release();
    await single.release();
    assert.equal(await server.info("s"), null);
    assert.throws(() => new Semaphore(client, "s", 1, { permits: 2 }), RangeError);
    await assert.rejects(semaphore.acquire({ permits: 4 }), RangeError);
  });

  each("several locks are taken all or none", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const both = new MultiLock(client, ["a", "b"]);
    const single = await new Lock(client, "b").acquire();
    assert.equal(await both.tryAcquire(), null);
    assert.equal(await server.info("a"), null);
    const waiting = both.acquire();
    await eventually(async () => (await server.waiters("a")).length, "a waiter");
    await single.release();
    let hold = await waiting;
    const fences = await Promise.all(["a", "b"].map(async (key) => (await server.holders(key))[0]?.["fence"]));
    assert.deepEqual(fences, [hold.fence, hold.fence]);
    await hold.extend(60_000);
    assert.ok((await server.ask("PTTL", "b")) > 30_000 && hold.remaining() > 30_000);
    await hold.release();
    assert.equal(await server.ask("DBSIZE"), 0);
    hold = await both.acquire();
    await server.ask("LOCK.BREAK", "b");
    await assert.rejects(hold.release(), LockLostError);
    assert.equal(await server.ask("DBSIZE"), 0);
    // A key that has become something else does not keep the other keys held.
    hold = await both.acquire();
    await server.ask("SET", "b", "else");
    await assert.rejects(hold.release(), LockLostError);
    assert.deepEqual(await server.ask("KEYS", "*"), ["b"]);
    assert.throws(() => new MultiLock(client, []), RangeError);
  });

  each("what waiting cannot solve is an error of its own", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const [a, b] = [new Lock(client, "a"), new Lock(client, "b")];
    const holds = [await a.acquire({ token: "1" }), await b.acquire({ token: "2" })];
    let waiting: Promise<Hold> = b.acquire({ token: "1" });
    await eventually(async () => (await server.waiters("b")).length, "a waiter");
    await assert.rejects(a.acquire({ token: "2" }), (error: Error) => {
      return error instanceof DeadlockError && error.lock === "a" && error.message.length > 0;
    });
    assert.equal(await server.ask("LOCK.CANCEL", "b", "1"), 1);
    await assert.rejects(waiting, WaitCancelledError);
    await assert.rejects(new RLock(client, "a").acquire(), WrongKindError);
    await server.ask("CONFIG", "SET", "lock.max-waiters-per-key", 1);
    waiting = b.acquire();
    await eventually(async () => (await server.waiters("b")).length, "a waiter");
    await assert.rejects(b.acquire(), MaxWaitersError);
    for (const hold of holds) await hold.release();
    await (await waiting).release();
  });

  each("using releases and reports a loss", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k", { wait: 50 });
    assert.equal(await lock.using(async (hold) => (await server.holders("k"))[0]?.["fence"] === hold.fence), true);
    assert.equal(await server.info("k"), null);
    await assert.rejects(
      lock.using(() => Promise.reject(new Error("mine"))),
      /^Error: mine$/,
    );
    assert.equal(await server.info("k"), null);
    await assert.rejects(
      lock.using(() => server.ask("LOCK.BREAK", "k")),
      LockLostError,
    );
    // The error of the work takes precedence.
    const broken = lock.using(async () => {
      await server.ask("LOCK.BREAK", "k");
      throw new Error("mine");
    });
    await assert.rejects(broken, /^Error: mine$/);
    const hold = await lock.acquire();
    await assert.rejects(
      lock.using(() => assert.fail()),
      (error: Error) => error instanceof NotAcquiredError && error.lock === "k",
    );
    const release = (hold as Partial<AsyncDisposable>)[Symbol.asyncDispose ?? "release"];
    assert.ok(release !== undefined);
    await release.call(hold);
    assert.equal(await server.info("k"), null);
  });

  each("the lease counts from the grant and not from the request", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k", { lease: 20_000 });
    const hold = await new Lock(client, "k", { lease: 60_000 }).acquire();
    const waiting = lock.acquire();
    await eventually(async () => {
      const [waiter] = (await server.ask("LOCK.WAITERS", "k")) as unknown[][];
      return Number(waiter?.[(waiter.indexOf("waited") as number) + 1] ?? 0) > 2500;
    }, "more than a tenth of the lease");
    await hold.release();
    const granted = await waiting;
    const ttl = (await server.holders("k"))[0]?.["ttl"] as number;
    // Counted from the request, it would be 2.5 s less.
    assert.ok(granted.remaining() > ttl - 2400 && granted.remaining() <= ttl + 5, `${granted.remaining()} of ${ttl}`);
    await granted.release();
  });

  each("a lease of its own, or none", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new Lock(client, "k", { lease: null }).acquire();
    assert.deepEqual([await server.ask("PTTL", "k"), hold.remaining()], [-1, Infinity]);
    await hold.extend(60_000);
    assert.ok((await server.ask("PTTL", "k")) > 59_000 && hold.remaining() <= 60_000);
    await hold.release();
    for (const lease of [0, -1, Number.NaN]) assert.throws(() => new Lock(client, "k", { lease }), RangeError);
    for (const wait of [-1, Number.NaN]) assert.throws(() => new Lock(client, "k", { wait }), RangeError);
    await assert.rejects(new Lock(client, "k").acquire({ wait: -1 }), RangeError);
    await assert.rejects(hold.extend(60_000), LockError);
  });

  each("an extended lease is what autoRenew renews", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new Lock(client, "k", { lease: 1500, autoRenew: true }).acquire();
    await hold.extend(9000);
    await eventually(async () => (await server.calls("lock.renew")) >= 2, "a renewal");
    assert.ok((await server.ask("PTTL", "k")) > 6000 && hold.remaining() > 6000);
    await hold.release();
  });

  each("a name and a token may be any bytes", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const name = Buffer.from([0xff, 0x00, 0x6b]);
    const hold = await new Lock(client, name).acquire({ token: Buffer.from([0xfe]) });
    const waiting = new Lock(client, name).acquire({ token: Buffer.from([0xfd]) });
    await eventually(async () => ((await server.ask("LOCK.WAITERS", name)) as unknown[]).length, "a waiter");
    await hold.release();
    const granted = await waiting;
    // Answered by its message, not by a repeated request later.
    assert.ok((await server.calls("lock.acquire")) <= 5);
    await granted.release();
    const odd = await new Lock(client, 'ü "quoted" {"base64":1} 漢字').acquire();
    const next = new Lock(client, 'ü "quoted" {"base64":1} 漢字').acquire();
    assert.ok(await isPending(next));
    await odd.release();
    await (await next).release();
  });

  each("renewals have the length that was given last", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lease = async (): Promise<number> => (await server.holders("k"))[0]?.["lease"];
    // A shorter lease takes effect immediately: a renewal after a third of the old length would come too late.
    const hold = await new Lock(client, "k", { lease: 60_000, autoRenew: true }).acquire();
    await hold.extend(4000);
    await eventually(async () => (await server.calls("lock.renew")) >= 3, "renewals");
    assert.deepEqual([await lease(), hold.lost], [4000, false]);
    // A longer lease is not shortened again.
    await hold.extend(4500);
    const calls = await server.calls("lock.renew");
    await eventually(async () => (await server.calls("lock.renew")) >= calls + 2, "renewals");
    assert.equal(await lease(), 4500);
    await hold.extend();
    assert.equal(await lease(), 60_000);
    // Without renewals the new deadline reports the loss.
    const reported: unknown[] = [];
    const other = await new Lock(client, "other", { lease: 60_000 }).acquire();
    other.on("lost", (error) => reported.push(error));
    await other.extend(200);
    await eventually(() => reported.length, "the loss");
    await hold.release();
  });

  each("an acquire by the holder does not shorten its extended lease", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const settings = { lease: 20_000 };
    const [lock, { read, write }] = [new RLock(client, "k", settings), new RWLock(client, "rw", settings)];
    for (const [first, second] of [
      [lock, lock],
      [read, write],
    ] as const) {
      const outer = await first.acquire();
      await outer.extend(60_000);
      const inner = await second.acquire({ within: outer });
      assert.ok(outer.remaining() > 30_000 && inner.remaining() > 30_000);
      await inner.release();
      await outer.release();
    }
  });

  each("a renewal that is due while the lease is extended does not restore the earlier lease", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    const hold = await new Lock(client, "k", { lease: 6000, autoRenew: true }).acquire();
    await server.ask("CLIENT", "PAUSE", 60_000, "WRITE");
    const { requests } = proxy;
    const extended = hold.extend(60_000);
    await eventually(() => proxy.requests >= requests + 2, "both renewals on their way");
    await server.ask("CLIENT", "UNPAUSE");
    await extended;
    await eventually(async () => (await server.calls("lock.renew")) >= 2, "both renewals");
    assert.ok((await server.ask("PTTL", "k")) > 30_000);
    assert.ok(hold.remaining() > 30_000);
    await hold.release();
  });

  each("a renewal that is on its way when the lease is extended is followed by another one", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    const hold = await new Lock(client, "k", { lease: 6000, autoRenew: true }).acquire();
    await server.ask("CLIENT", "PAUSE", 60_000, "WRITE");
    const { requests } = proxy;
    await eventually(() => proxy.requests > requests, "a renewal on its way");
    const extended = hold.extend(600_000);
    await server.ask("CLIENT", "UNPAUSE");
    await extended;
    // Not only after a third of the new lease.
    await eventually(async () => (await server.calls("lock.renew")) >= 3, "another renewal");
    await eventually(() => hold.remaining() > 500_000, "its reply");
    await hold.release();
  });

  each("an extend to a shorter lease whose reply is lost shortens the local deadline", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client, call } = await world.connect(proxy);
    for (const autoRenew of [false, true]) {
      await eventually(() => call("PING").catch(() => undefined), "a connection");
      const hold = await new Lock(client, "k", { lease: 900_000, autoRenew }).acquire();
      const renewals = await server.calls("lock.renew");
      proxy.refuseNew();
      proxy.cutReply("LOCK.RENEW");
      await assert.rejects(hold.extend(300_000), (error) => !(error instanceof LockError));
      assert.ok(hold.remaining() <= 300_000 && !hold.lost);
      assert.ok((await server.ask("PTTL", "k")) <= 300_000);
      proxy.accept();
      // Not only after a third of the lease.
      if (autoRenew) {
        await eventually(async () => (await server.calls("lock.renew")) >= renewals + 2, "a renewal at once");
      }
      await hold.release();
    }
  });

  each("an extend that was not sent changes nothing", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client, call } = await world.connect(proxy);
    const hold = await new Lock(client, "k", { lease: 9000, autoRenew: true }).acquire();
    await server.ask("CONFIG", "SET", "lock.max-lease", 20_000);
    await assert.rejects(hold.extend(60_000), /invalid expire time/);
    proxy.refuse();
    const seen = client as { isReady?: boolean; status?: string };
    await eventually(() => seen.isReady === false || seen.status === "reconnecting", "the loss of the connection");
    const remaining = hold.remaining();
    const extended = hold.extend(100);
    await assert.rejects(extended, (error) => !(error instanceof LockError));
    assert.ok(hold.remaining() > remaining - 6000 && !hold.lost);
    proxy.accept();
    await eventually(() => call("PING").catch(() => undefined), "a connection");
    await eventually(async () => (await server.holders("k"))[0]?.["ttl"] > 8500, "a renewal with the earlier lease");
    await hold.release();
  });

  each("a release in the background is repeated until the lease has expired that the hold has", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const settings = { lease: 2000, token: "me" };
    const lock = new RLock(client, "k", settings);
    await server.ask("RLOCK.ACQUIRE", "transferred", "me", "HOLDS", 1, "PX", 600_000);
    await server.ask("RLOCK.ACQUIRE", "unlimited", "me", "HOLDS", 1, "PERSIST");
    const extended = await lock.acquire();
    await extended.extend(600_000);
    const holds = [
      extended,
      await new RLock(client, "transferred", settings).fromToken("me"),
      await new RLock(client, "unlimited", settings).fromToken("me"),
    ];
    // The server refuses every write, so the releases fail at once.
    await server.ask("CONFIG", "SET", "min-replicas-to-write", 1);
    const block = async (hold: Hold): Promise<void> => {
      await using _hold = hold;
    };
    await Promise.all(holds.map(block));
    await sleep(2500);
    await server.ask("CONFIG", "SET", "min-replicas-to-write", 0);
    await eventually(async () => (await server.ask("DBSIZE")) === 0, "the releases");
  });

  each("a cancelled acquire by a holder is withdrawn until the lease has expired that it has", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    const lock = new RLock(client, "k", { lease: 2000 });
    const outer = await lock.acquire();
    await outer.extend(600_000);
    const giveUp = new AbortController();
    proxy.holdReply("RLOCK.ACQUIRE");
    const acquiring = lock.acquire({ within: outer, signal: giveUp.signal });
    await eventually(() => proxy.held > 0, "a grant that nobody knows of");
    await server.ask("CONFIG", "SET", "min-replicas-to-write", 1);
    proxy.disconnect();
    giveUp.abort();
    await assert.rejects(acquiring, { name: "AbortError" });
    await sleep(2500);
    assert.equal((await server.holders("k"))[0]?.["holds"], 2);
    await server.ask("CONFIG", "SET", "min-replicas-to-write", 0);
    await eventually(async () => (await server.holders("k"))[0]?.["holds"] === 1, "the withdrawal");
    await outer.release();
  });

  each("a lock is transferred by its token", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const { client: there } = await world.connect(server);
    const hold = await new Lock(client, "k", { lease: 60_000 }).acquire();
    const same = await new Lock(there, "k", { lease: 60_000, token: hold.token }).acquire({ wait: 0 });
    assert.equal(same.fence, hold.fence);
    await same.release();
    assert.equal(await server.info("k"), null);
    await assert.rejects(hold.release(), LockLostError);
  });

  each("an acquire has its own limits while another one of its owner waits", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    await server.ask("RLOCK.ACQUIRE", "r", "other", "PX", 600_000);
    await server.ask("SEM.ACQUIRE", "s", "other", "LIMIT", 2, "HOLDS", 2, "PX", 600_000);
    const locks = {
      r: { lock: new RLock(client, "r", { token: "me" }), command: "rlock" },
      s: { lock: new Semaphore(client, "s", 2, { token: "me" }), command: "sem" },
    };
    for (const [key, { lock, command }] of Object.entries(locks)) {
      const requests = (): Promise<number> => server.calls(`${command}.acquire`);
      const first = lock.acquire();
      await eventually(async () => (await server.waiters(key)).length, "a waiter");
      const [began, asked] = [performance.now(), await requests()];
      assert.equal(await lock.tryAcquire(), null);
      const giveUp = new AbortController();
      const aborted = lock.acquire({ signal: giveUp.signal });
      giveUp.abort();
      await assert.rejects(aborted, { name: "AbortError" });
      await assert.rejects(lock.acquire({ signal: giveUp.signal }), { name: "AbortError" });
      assert.ok(performance.now() - began < 2000);
      for (const limited of [() => lock.tryAcquire({ wait: 200 }), () => lock.acquire({ wait: 200 })]) {
        const since = performance.now();
        const hold = await limited().catch((error: unknown) => assert.ok(error instanceof NotAcquiredError));
        assert.ok(hold === null || hold === undefined);
        const took = performance.now() - since;
        assert.ok(took >= 199 && took < 2200, `${took} ms`);
      }
      // The first one is queued and repeats its request at intervals; the others send nothing, then and later.
      assert.deepEqual(await server.waiters(key), ["me"]);
      assert.ok((await requests()) - asked <= Math.ceil((performance.now() - began) / 4000));
      await server.ask(`${command}.RELEASE`, key, "other", "HOLDS", 0);
      const hold = await first;
      const again = await lock.acquire();
      assert.deepEqual([hold.holds, again.holds], [1, 2]);
      for (const held of [again, hold]) await held.release();
      assert.equal(await server.info(key), null);
    }
  });

  each("an acquire runs after another one of its owner, within its own time limit", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    await server.ask("SEM.ACQUIRE", "s", "other", "LIMIT", 2, "HOLDS", 2, "PX", 600_000);
    const semaphore = new Semaphore(client, "s", 2, { token: "me" });
    // The error of the first one is its own.
    let first = semaphore.acquire();
    first.catch(() => undefined);
    await eventually(async () => (await server.waiters("s")).length, "a waiter");
    let second = semaphore.acquire();
    assert.equal(await server.ask("LOCK.CANCEL", "s", "me"), 1);
    await assert.rejects(first, WaitCancelledError);
    await eventually(async () => (await server.waiters("s")).length, "the second one");
    await server.ask("SEM.RELEASE", "s", "other", "HOLDS", 1);
    await (await second).release();
    // The time counts from the call, not from the turn.
    await server.ask("SEM.ACQUIRE", "s", "other", "LIMIT", 2, "HOLDS", 2, "PX", 600_000);
    first = semaphore.acquire();
    await eventually(async () => (await server.waiters("s")).length, "a waiter");
    const giveUp = new AbortController();
    second = semaphore.acquire({ wait: 9000, signal: giveUp.signal });
    second.catch(() => undefined);
    await sleep(1000);
    await server.ask("SEM.RELEASE", "s", "other", "HOLDS", 1);
    const hold = await first;
    const waiters = async (): Promise<unknown[][]> => server.ask("LOCK.WAITERS", "s");
    const waiter = await eventually(async () => (await waiters())[0], "its turn");
    const remaining = Number(waiter[(waiter.indexOf("remaining") as number) + 1]);
    assert.ok(remaining <= 8010, `${remaining} ms`);
    giveUp.abort();
    await assert.rejects(second, { name: "AbortError" });
    await hold.release();
    await server.ask("SEM.RELEASE", "s", "other", "HOLDS", 0);
    assert.equal(await server.info("s"), null);
  });

  each("a release does not wait for a queued acquire of its owner", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const isQueued = (key: string): Promise<unknown> =>
      eventually(async () => (await server.waiters(key)).includes("me"), "a waiter");
    const inTime = async (work: Promise<unknown>): Promise<void> => {
      await eventually(async () => !(await isPending(work)), "an end beside the queued acquire");
      await work;
    };
    const holds = async (key: string): Promise<unknown[]> =>
      (await server.holders(key)).map(({ owner, mode, holds }) => [owner, mode, holds]);

    // The acquires wait for what is released.
    const semaphore = new Semaphore(client, "s", 3, { token: "me" });
    await server.ask("SEM.ACQUIRE", "s", "other", "LIMIT", 3, "HOLDS", 1, "PX", 600_000);
    const held = await semaphore.acquire({ permits: 2 });
    const waiting = [semaphore.acquire({ wait: 60_000 }), semaphore.acquire()];
    await isQueued("s");
    assert.equal(await semaphore.tryAcquire(), null);
    await inTime(held.release());
    const next = await Promise.all(waiting);
    assert.deepEqual(await holds("s"), [
      ["other", "permits", 1],
      ["me", "permits", 2],
    ]);
    for (const hold of next) await hold.release();
    assert.deepEqual(await holds("s"), [["other", "permits", 1]]);

    // An upgrade goes on without READ.
    const lock = new RWLock(client, "w", { token: "me" });
    await server.ask("RWLOCK.ACQUIRE", "w", "other", "READ", "HOLDS", 1, "PX", 600_000);
    const reader = await lock.read.acquire();
    const writing = lock.write.acquire();
    await isQueued("w");
    await inTime(reader.release());
    await isQueued("w");
    await server.ask("RWLOCK.RELEASE", "w", "other", "READ", "HOLDS", 0);
    const writer = await writing;
    assert.deepEqual(await holds("w"), [["me", "write", 1]]);
    await writer.release();

    // Neither does fromToken, and the signal of the acquire still ends it.
    await server.ask("RLOCK.ACQUIRE", "r", "other", "HOLDS", 1, "PX", 600_000);
    const reentrant = new RLock(client, "r", { token: "me" });
    const giveUp = new AbortController();
    const aborted = assert.rejects(reentrant.acquire({ signal: giveUp.signal }), { name: "AbortError" });
    await isQueued("r");
    await inTime(assert.rejects(reentrant.fromToken("me"), LockLostError));
    await isQueued("r");
    giveUp.abort();
    await aborted;
    assert.deepEqual(await server.waiters("r"), []);
  });

  each("a holder that does not wait is granted while an acquire of its own waits", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new RLock(client, "r");
    await lock.using(async () => {
      const inner = await Promise.all([lock.acquire(), lock.tryAcquire(), lock.tryAcquire()]);
      for (const hold of inner) await (hold as Hold).release();
    });
    assert.equal(await server.info("r"), null);
  });

  each("an acquire after the last release of its owner is a new hold", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    for (const lock of [new RLock(client, "r", { token: "me" }), new Semaphore(client, "s", 3, { token: "me" })]) {
      const hold = await lock.acquire();
      const [, next] = await Promise.all([hold.release(), lock.tryAcquire()]);
      assert.deepEqual([next?.holds, next?.lost], [1, false]);
      await next?.release();
    }
    const lock = new RLock(client, "r");
    const hold = await lock.acquire();
    const releasing = hold.release();
    await assert.rejects(lock.acquire({ within: hold }), { name: "LockError" });
    await releasing;
    assert.equal(await server.ask("DBSIZE"), 0);
  });

  each("a hold of any lock type is transferred completely by its token", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const { client: there } = await world.connect(server);
    const reentrant = new RLock(client, "k");
    const outer = await reentrant.acquire();
    await reentrant.acquire({ within: outer });
    const again = new RLock(there, "k");
    const holds: [Hold, Hold][] = [
      [outer, await again.fromToken(outer.token)],
      ...(await Promise.all(
        [
          (client: RedisClient) => new RWLock(client, "rw").read,
          (client: RedisClient) => new RWLock(client, "w").write,
          (client: RedisClient) => new Semaphore(client, "s", 3, { permits: 2 }),
          (client: RedisClient) => new MultiLock(client, ["a", "b"]),
        ].map(async (lock): Promise<[Hold, Hold]> => {
          const hold = await lock(client).acquire();
          return [hold, await lock(there).fromToken(hold.token)];
        }),
      )),
    ];
    assert.deepEqual(
      holds.map(([, { holds }]) => holds),
      [2, 1, 1, 2, 1],
    );
    for (const [hold, same] of holds) assert.equal(same.fence, hold.fence);
    // Further acquires of its owner are added to it.
    const inner = await again.acquire({ within: holds[0]?.[1] as Hold });
    assert.equal(inner.holds, 3);
    for (const [hold, same] of holds) {
      await same.release();
      await assert.rejects(hold.release(), LockLostError);
    }
    assert.equal(await server.ask("DBSIZE"), 0);
    await assert.rejects(new Lock(there, "k", { session: true }).fromToken("me"), RangeError);
  });

  each("a transferred hold is renewed from then on", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new Lock(client, "k", { lease: 60_000 }).acquire();
    // A third of the lease is longer than what is left of it.
    await server.ask("PEXPIRE", "k", 10_000);
    const same = await new Lock(client, "k", { lease: 60_000, autoRenew: true }).fromToken(hold.token);
    assert.ok((await server.ask("PTTL", "k")) > 30_000 && same.remaining() > 30_000);
    await same.extend(1500);
    await eventually(async () => (await server.calls("lock.renew")) >= 5, "renewals");
    assert.ok(!same.lost);
    await same.release();
  });

  each("a transferred hold whose first renewal fails is not renewed", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new Lock(client, "k", { lease: 60_000 }).acquire();
    await server.ask("ACL", "SETUSER", "default", "-lock.renew");
    const lock = new Lock(client, "k", { lease: 600, autoRenew: true });
    await assert.rejects(lock.fromToken(hold.token), /NOPERM/);
    await server.ask("ACL", "SETUSER", "default", "+lock.renew");
    await sleep(700);
    assert.equal(await server.calls("lock.renew"), 0);
    await hold.release();
  });

  each("after a release that failed, the next acquire of its owner is renewed and reports a loss", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new RLock(client, "r", { lease: 900, autoRenew: true });
    for (const listens of ["before", "between", "after"]) {
      const lost: unknown[] = [];
      const outer = await lock.acquire();
      if (listens === "before") outer.on("lost", (error) => lost.push(error));
      await server.ask("ACL", "SETUSER", "default", "-rlock.release");
      await assert.rejects(outer.release(), /NOPERM/);
      await server.ask("ACL", "SETUSER", "default", "+rlock.release");
      if (listens === "between") outer.on("lost", (error) => lost.push(error));
      const inner = await lock.acquire({ within: outer });
      if (listens === "after") inner.on("lost", (error) => lost.push(error));
      const renewals = await server.calls("rlock.renew");
      await eventually(async () => (await server.calls("rlock.renew")) >= renewals + 4, "renewals");
      assert.ok(!inner.lost);
      await server.ask("LOCK.BREAK", "r");
      await eventually(() => lost.length, "the loss");
      await assert.rejects(inner.release(), LockLostError);
      await assert.rejects(outer.release(), LockLostError);
    }
  });

  each("a release that fails ends the renewals, also with a renewal under way", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new Lock(client, "k", { lease: 3000, autoRenew: true }).acquire();
    await server.ask("CLIENT", "PAUSE", 60_000, "WRITE");
    await eventually(async () => /^blocked_clients:1\r?$/m.test(await server.admin.info("clients")), "a renewal");
    await server.ask("ACL", "SETUSER", "default", "-lock.release");
    const releasing = hold.release();
    await server.ask("CLIENT", "UNPAUSE");
    await assert.rejects(releasing, /NOPERM/);
    await eventually(async () => (await server.info("k")) === null, "the lease's end");
    assert.ok(hold.lost);
  });

  each("with atLeast it stays held until the last release and the interval's end", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const options = { lease: 600_000, atLeast: 120_000 };
    const lock = new RLock(client, "r", options);
    const outer = await lock.acquire();
    const inner = await lock.acquire({ within: outer });
    await outer.release();
    assert.equal((await server.holders("r"))[0]?.["holds"], 1);
    assert.ok((await server.ask("PTTL", "r")) > 300_000);
    await inner.release();
    assert.ok((await server.ask("PTTL", "r")) <= 120_000);
    // The next run of the same object is another owner.
    assert.equal(await lock.tryAcquire(), null);
    // Each lock type, also when the work throws.
    const locks = [
      new RWLock(client, "rw", options).write,
      new Semaphore(client, "s", 2, { ...options, permits: 2 }),
      new MultiLock(client, ["a", "b"], options),
    ];
    for (const each of locks) {
      await assert.rejects(
        each.using(() => Promise.reject(new Error("mine"))),
        /^Error: mine$/,
      );
      assert.equal(await each.tryAcquire(), null);
    }
    for (const key of ["rw", "s", "a", "b"]) assert.ok((await server.ask("PTTL", key)) <= 120_000);
    // It expires without a release, even with a waiter.
    const short = new Lock(client, "k", { lease: 600_000, atLeast: 200 });
    await short.using(() => undefined);
    const granted = performance.now();
    const next = await short.acquire();
    assert.ok(performance.now() - granted <= 60_000);
    await next.release();
  });

  each("with atLeast the other locks are released when one of several was lost", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new MultiLock(client, ["a", "b"], { atLeast: 600_000 }).acquire();
    await server.ask("LOCK.BREAK", "b");
    await assert.rejects(hold.release(), LockLostError);
    assert.equal(await server.ask("DBSIZE"), 0);
  });

  each("with atLeast the loss of one of several locks is reported even after a lost reply", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    const hold = await new MultiLock(client, ["a", "b"], { atLeast: 600_000 }).acquire();
    await server.ask("LOCK.BREAK", "b");
    proxy.cutReply("MLOCK.RENEW");
    await assert.rejects(hold.release(), LockLostError);
    assert.deepEqual([proxy.cuts, await server.ask("DBSIZE")], [1, 0]);
  });

  each("with atLeast a hold that is known to be lost fails although the server still holds it", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new Lock(client, "k", { lease: 400, atLeast: 120_000 }).acquire();
    assert.equal(await server.ask("PEXPIRE", "k", 600_000), 1);
    await eventually(() => hold.lost, "the loss");
    await assert.rejects(hold.release(), LockLostError);
    const left = await server.ask("PTTL", "k");
    // The first one shows that the server accepts such a time.
    assert.deepEqual([await server.calls("lock.renew"), left > 30_000 && left <= 120_000], [2, true]);
  });

  each("with atLeast a release whose reply was lost is sent again", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    const hold = await new Lock(client, "k", { lease: 600_000, atLeast: 120_000 }).acquire();
    proxy.cutReply("LOCK.RENEW");
    await hold.release();
    const left = await server.ask("PTTL", "k");
    assert.deepEqual([proxy.cuts, await server.calls("lock.renew"), left > 30_000 && left <= 120_000], [1, 2, true]);
  });

  each("with atLeast the renewals of before do not lengthen the interval", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new Lock(client, "k", { lease: 3000, autoRenew: true, atLeast: 5000 }).acquire();
    await eventually(async () => (await server.calls("lock.renew")) >= 2, "renewals");
    await hold.release();
    await eventually(async () => (await server.info("k")) === null, "the interval's end");
    assert.ok(!hold.lost);
  });

  each("an acquire with atLeast that fails keeps nothing", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k", { atLeast: 600_000, replicas: 1, replicaTimeout: 50 });
    await assert.rejects(lock.acquire(), NotReplicatedError);
    assert.equal(await server.info("k"), null);
  });
});
