/** The cases of clients/conformance.md, each for ioredis and node-redis. */

import assert from "node:assert/strict";

import {
  Lock,
  LockError,
  LockLostError,
  ModuleNotLoadedError,
  MultiLock,
  NotAcquiredError,
  NotReplicatedError,
  RLock,
  Semaphore,
  WrongTypeError,
  type Hold,
} from "redis-lock-client";
import { otherProtocols } from "./libraries.js";
import { eventually, Server, sleep } from "./servers.js";
import { isPending, suite, World } from "./world.js";

suite("conformance", (each) => {
  each("acquire", acquire);
  each("acquire (with the other protocol)", async ({ library: { name } }) => {
    for (const library of otherProtocols.filter((other) => other.name.replace(/ RESP\d$/, "") === name)) {
      const world = new World(library);
      try {
        await acquire(world);
      } finally {
        await world.end();
      }
    }
  });

  async function acquire(world: World): Promise<void> {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k", { lease: 10_000 });
    const hold = await lock.acquire();
    const [holder] = await server.holders("k");
    assert.equal(holder?.["owner"], hold.token);
    assert.equal(holder?.["fence"], hold.fence);
    assert.ok(hold.fence > 0 && Number.isSafeInteger(hold.fence));
    assert.ok(hold.remaining() > 9000 && hold.remaining() <= 10_000);
    assert.equal(hold.holds, 1);
    const [random, pid, ...host] = String(hold.token).split(":").reverse();
    assert.ok(String(hold.token).length <= 38 && Number(pid) === process.pid && /^[0-9a-f]{16}$/.test(random ?? ""));
    assert.ok(host.join(":").length > 0);
    assert.ok((await hold.owned()) && (await lock.locked()));
    assert.equal(await lock.tryAcquire(), null);
    await hold.release();
    assert.equal(await server.info("k"), null);
    assert.ok(!(await lock.locked()) && !(await hold.owned()));
    const second = await lock.tryAcquire();
    assert.ok(second !== null && second.fence > hold.fence && second.token !== hold.token);
    const waiting = lock.acquire();
    await eventually(async () => (await lock.info())?.waiters === 1, "a waiter");
    assert.equal((await lock.info())?.holders[0]?.owner, second.token);
    await second.release();
    await (await waiting).release();
    const session = await new Lock(client, "k", { session: true }).acquire();
    assert.equal(await session.exec("GET", "none"), null);
    await session.release();
  }

  each("wait", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k");
    const hold = await lock.acquire();
    const began = performance.now();
    await assert.rejects(lock.acquire({ wait: 300 }), NotAcquiredError);
    assert.ok(performance.now() - began >= 299);
    assert.deepEqual(await server.waiters("k"), []);
    assert.equal(await lock.tryAcquire({ wait: 20 }), null);
    const waiting = lock.acquire({ wait: 30_000 });
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    await hold.release();
    await (await waiting).release();
    assert.equal(await server.calls("lock.cancel"), 0);
  });

  each("order", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new Lock(client, "k").acquire();
    const got: number[] = [];
    const turns = [];
    for (let number = 0; number < 5; number++) {
      turns.push(new Lock(client, "k").using(() => void got.push(number), { token: `waiter-${number}` }));
      await eventually(async () => (await server.waiters("k")).length === number + 1, "one more waiter");
    }
    await hold.release();
    await Promise.all(turns);
    assert.deepEqual(got, [0, 1, 2, 3, 4]);
  });

  each("position-kept-over-short-sockets", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(server);
    const short = await world.connect(proxy, { socketTimeoutMs: 300 });
    // A busy machine may be later than the usual second.
    await server.ask("CONFIG", "SET", "lock.keep-place", 60_000);
    await new Lock(client, "k", { token: "holder" }).acquire();
    const early = new Lock(short.client, "k", { token: "early" }).acquire();
    await eventually(async () => String(await server.waiters("k")) === "early", "the first waiter");
    const late = new Lock(client, "k", { token: "late" }).acquire();
    await eventually(async () => (await server.waiters("k")).includes("late"), "the second waiter");
    // The proxy cuts idle sockets too: ioredis checks the timeout only while it awaits a reply.
    for (let times = 0; times < 5; times++) {
      const asked = await server.calls("lock.acquire");
      proxy.disconnect();
      await eventually(async () => (await server.calls("lock.acquire")) > asked, "the request again");
      await eventually(async () => String(await server.waiters("k")) === "early,late", "both, in order");
    }
    await eventually(() => server.releaseBeforeTwo("k", "holder"), "both at the release");
    const first = await early;
    assert.ok(await isPending(late));
    await first.release();
    await (await late).release();
  });

  for (const after of [0, 3]) {
    each(`lost-reply-of-acquire (after ${after} bytes)`, async (world) => {
      const server = await world.server();
      const proxy = await world.proxy(server);
      const { client } = await world.connect(proxy);
      const reentrant = new RLock(client, "r");
      const outer = { hold: undefined as Hold | undefined };
      const taken: [string, number, () => Promise<Hold>][] = [
        ["k", 1, () => new Lock(client, "k").acquire()],
        ["r", 1, async () => (outer.hold = await reentrant.acquire())],
        ["r", 2, () => reentrant.acquire({ within: outer.hold as Hold })],
        ["s", 2, () => new Semaphore(client, "s", 5, { permits: 2 }).acquire()],
        ["m", 1, () => new MultiLock(client, ["m", "n"]).acquire()],
        ["o", 1, async () => (await new Lock(client, "o").tryAcquire()) as Hold],
      ];
      const holds = [];
      for (const [key, expected, take] of taken) {
        const { cuts } = proxy;
        proxy.cutReply(".ACQUIRE", after);
        const hold = await take();
        assert.equal(proxy.cuts, cuts + 1);
        const [holder, ...others] = await server.holders(key);
        assert.deepEqual([holder?.["holds"], others, hold.holds], [expected, [], expected]);
        holds.push(hold);
      }
      for (const hold of holds.reverse()) await hold.release();
      assert.equal(await server.ask("DBSIZE"), 0);
    });
  }

  each("lost-reply-of-release", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    const lock = new Lock(client, "k");
    const hold = await lock.acquire();
    proxy.cutReply("LOCK.RELEASE");
    await hold.release();
    assert.deepEqual([proxy.cuts, await server.info("k")], [1, null]);
    const reentrant = new RLock(client, "r");
    const outer = await reentrant.acquire();
    const inner = await reentrant.acquire({ within: outer });
    const innermost = await reentrant.acquire({ within: outer });
    for (const [held, left] of [
      [innermost, 2],
      [inner, 1],
      [outer, 0],
    ] as const) {
      proxy.cutReply("RLOCK.RELEASE");
      await held.release();
      assert.deepEqual(
        (await server.holders("r")).map((holder) => holder["holds"]),
        left > 0 ? [left] : [],
      );
    }
    assert.equal(proxy.cuts, 4);
    // Releasing a lock that was lost before never succeeds, even if more replies are lost.
    const lost = await lock.acquire();
    await server.ask("LOCK.BREAK", "k");
    await assert.rejects(lost.release(), LockLostError);
    const over = await new Lock(client, "k", { lease: 50 }).acquire();
    await eventually(() => over.lost, "the end of the lease");
    proxy.cutReply("LOCK.RELEASE");
    await assert.rejects(over.release(), LockLostError);
    assert.equal(proxy.cuts, 5);
  });

  each("failover-while-waiting", async (world) => {
    const [primary, replica] = [await world.server(), await world.server()];
    const sentinel = await world.server([], { sentinel: true });
    await replica.ask("REPLICAOF", "127.0.0.1", primary.port);
    await eventually(async () => (await replica.replication("master_link_status")) === "up", "a link");
    await sentinel.ask("SENTINEL", "MONITOR", "main", "127.0.0.1", primary.port, 1);
    await sentinel.ask("SENTINEL", "SET", "main", "down-after-milliseconds", 5000);
    await sentinel.ask("SENTINEL", "SET", "main", "failover-timeout", 30_000);
    await eventually(async () => (await sentinel.ask("SENTINEL", "REPLICAS", "main")).length, "the replica");

    const { client } = world.ending(await world.library.sentinel(sentinel.port));
    const hold = await new Lock(client, "k", { lease: 120_000 }).acquire();
    const waiting = new Lock(client, "k", { lease: 120_000 }).acquire();
    await eventually(async () => (await primary.waiters("k")).length, "a waiter");
    await primary.ask("WAIT", 1, 5000);
    await eventually(() => failoverBegun(sentinel), "a failover that sentinel agrees to");
    await eventually(async () => (await replica.replication("role")) === "master", "a new primary");
    await eventually(async () => (await primary.replication("role")) === "slave", "the old one is a replica");
    await eventually(async () => (await replica.waiters("k")).length, "the same waiter at the new primary");
    await hold.release();
    const granted = await waiting;
    assert.ok(granted.fence > hold.fence);
    await granted.release();
    assert.equal(await replica.info("k"), null);
  });

  each("cluster-redirect-while-waiting", async (world) => {
    const cluster = await world.cluster();
    const { client } = world.ending(await world.library.cluster(cluster.nodes[0].port));
    const { slot, source, target } = await cluster.of("k");
    const hold = await new Lock(client, "k", { lease: 120_000 }).acquire();
    const waiting = new Lock(client, "k", { lease: 120_000 }).acquire();
    await eventually(async () => (await source.waiters("k")).length, "a waiter");
    await cluster.moveSlot(slot, source, target);
    await eventually(async () => (await target.waiters("k")).length, "the same waiter at the slot's new node");
    await hold.release();
    await (await waiting).release();
    assert.equal(await target.info("k"), null);
    const several = await new MultiLock(client, ["{k}1", "{k}2"]).acquire();
    await several.exec("SET", "{k}3", "v");
    await several.release();
    assert.equal(await target.ask("GET", "{k}3"), "v");
  });

  each("cancellation-leaves-nothing", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(server);
    const cut = await world.connect(proxy);
    const hold = await new Lock(client, "k").acquire();
    // Once out of the queue.
    let giveUp = new AbortController();
    let waiting = new Lock(cut.client, "k").acquire({ signal: giveUp.signal });
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    giveUp.abort(new Error("enough"));
    await assert.rejects(waiting, /^Error: enough$/);
    assert.deepEqual(await server.waiters("k"), []);
    assert.equal(await server.calls("lock.cancel"), 1);
    // And once while the grant is on its way, unknown to the caller: its message is held back.
    giveUp = new AbortController();
    waiting = new Lock(cut.client, "k").acquire({ signal: giveUp.signal });
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    proxy.holdMessages();
    await hold.release();
    await eventually(async () => (await server.holders("k")).length && proxy.held > 0, "a grant that nobody knows of");
    giveUp.abort();
    await assert.rejects(waiting, { name: "AbortError" });
    assert.equal(await server.info("k"), null);
    assert.equal(await server.calls("lock.cancel"), 2);
    // Withdrawn by the client, whose process goes on.
    assert.equal(await cut.call("PING"), "PONG");
  });

  each("renewal-stops-with-the-lock", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k", { lease: 900, autoRenew: true });
    const hold = await lock.acquire();
    await eventually(async () => (await server.calls("lock.renew")) >= 4, "renewals for longer than the lease");
    assert.ok(!hold.lost && hold.remaining() > 0 && hold.remaining() <= 900);
    await hold.release();
    const renewed = await server.calls("lock.renew");
    await sleep(700);
    assert.equal(await server.calls("lock.renew"), renewed);
    // An owner that forgets to release keeps the lock until its lease expires, not indefinitely.
    await lock.acquire();
    await eventually(async () => {
      global.gc?.();
      return (await server.info("k")) === null;
    }, "the lease's end");
  });

  each("loss-is-reported", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const reported: Error[] = [];
    let hold = await new Lock(client, "k", { lease: 3000, autoRenew: true }).acquire();
    hold.on("lost", (error) => reported.push(error));
    const { signal } = hold;
    assert.ok(!hold.lost && !signal.aborted);
    await server.ask("LOCK.BREAK", "k");
    await eventually(() => signal.aborted, "the signal");
    // A renewal reports the loss, long before the lease expires.
    assert.ok(hold.remaining() > 0);
    assert.ok(
      hold.lost && reported.length === 1 && reported[0] instanceof LockLostError && signal.reason === reported[0],
    );
    await assert.rejects(hold.release(), LockLostError);
    assert.equal(reported.length, 1);
    // Without renewals the local deadline reports the loss, without any reply of the server.
    hold = await new Lock(client, "k", { lease: 400 }).acquire();
    hold.once("lost", (error) => reported.push(error));
    await eventually(() => reported.length === 2, "the event");
    assert.ok(hold.lost && hold.signal.aborted && hold.remaining() === 0);
    await eventually(async () => (await server.info("k")) === null, "the lease's end");
    await assert.rejects(hold.release(), LockLostError);
    await assert.rejects(hold.extend(), LockError);
    // As if the server's clock were behind: its reply to the release is 1, which is not a success.
    hold = await new Lock(client, "k", { lease: 400 }).acquire();
    assert.equal(await server.ask("PEXPIRE", "k", 60_000), 1);
    await eventually(() => hold.lost, "the loss");
    assert.notEqual(await server.info("k"), null);
    await assert.rejects(hold.extend(600_000), LockLostError);
    await assert.rejects(hold.exec("SET", "v", "lost"), LockLostError);
    assert.ok((await server.ask("PTTL", "k")) <= 60_000);
    assert.equal(await server.ask("GET", "v"), null);
    await assert.rejects(hold.release(), LockLostError);
    assert.equal(await server.info("k"), null);
    // The lease expires while the request to extend it is on its way.
    hold = await new Lock(client, "k", { lease: 400 }).acquire();
    assert.equal(await server.ask("PEXPIRE", "k", 60_000), 1);
    await server.ask("CLIENT", "PAUSE", 60_000, "WRITE");
    const extended = assert.rejects(hold.extend(60_000), LockLostError);
    await eventually(() => hold.lost, "the loss");
    await server.ask("CLIENT", "UNPAUSE");
    await extended;
    assert.ok(hold.lost && hold.signal.aborted);
    await assert.rejects(hold.release(), LockLostError);
    // A renewal that cannot be sent: the deadline reports the loss.
    const stopped = await world.server();
    hold = await new Lock((await world.connect(stopped)).client, "k", { lease: 1000, autoRenew: true }).acquire();
    await stopped.stop();
    await eventually(() => hold.signal.aborted, "the signal");
  });

  each("session", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    assert.throws(() => new Lock(client, "k", { session: true, lease: null }), RangeError);
    assert.throws(() => new Lock(client, "k", { session: true, autoRenew: true }), RangeError);
    const lock = new Lock(client, "k", { lease: 1200, session: true });
    let hold = await lock.acquire();
    let lost = 0;
    hold.on("lost", () => (lost += 1));
    const [holder] = await server.holders("k");
    assert.ok(holder?.["session"]);
    await eventually(async () => (await server.holders("k"))[0]?.["age"] > 3000, "a hold that outlives its lease");
    // Not immediately if a parallel test has blocked the event loop.
    await eventually(() => hold.remaining() > 0, "the server's renewal of the lease");
    assert.ok(!hold.lost && hold.remaining() <= 1200);
    assert.equal(await server.calls("lock.renew"), 0);
    // A client that is stopped for longer than the lease has not lost the lock: the server renews it.
    for (const until = performance.now() + 1500; performance.now() < until;);
    assert.ok(!hold.lost);
    await hold.release();
    assert.deepEqual([await server.info("k"), lost], [null, 0]);
    await eventually(async () => !(await isConnected(server, holder["session"])), "the end of the connection");
    // The end of the connection reports the loss: a check after a third of this lease would come too late.
    hold = await new Lock(client, "k", { lease: 600_000, session: true }).acquire();
    await server.ask("CLIENT", "KILL", "ID", (await server.holders("k"))[0]?.["session"]);
    await eventually(() => hold.signal.aborted, "the signal");
    assert.equal(await server.info("k"), null);
    await assert.rejects(hold.release(), LockLostError);
    // It waits over its own connection.
    const other = await new Lock(client, "k").acquire();
    const waiting = lock.acquire();
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    await other.release();
    await (await waiting).release();
  });

  each("replicas", async (world) => {
    const [primary, replica] = [await world.server(), await world.server()];
    await replica.ask("REPLICAOF", "127.0.0.1", primary.port);
    await eventually(async () => (await replica.replication("master_link_status")) === "up", "a link");
    const { client } = await world.connect(primary);
    const hold = await new Lock(client, "k", { lease: 60_000, replicas: 1, replicaTimeout: 60_000 }).acquire();
    assert.equal((await replica.holders("k"))[0]?.["fence"], hold.fence);
    await hold.release();
    assert.equal(await primary.calls("wait"), 1);
    const lacking = new Lock(client, "k", { lease: 60_000, replicas: 2, replicaTimeout: 50 });
    await assert.rejects(lacking.acquire(), NotReplicatedError);
    assert.equal(await primary.info("k"), null);
  });

  each("exec", async (world) => {
    const server = await world.server();
    const { client, call } = await world.connect(server);
    const hold = await new Lock(client, "k").acquire();
    assert.equal(await hold.exec("SET", "v", "held"), "OK");
    assert.equal(await hold.exec("GET", "v"), "held");
    await hold.exec("HSET", "h", "f", 1);
    for (const command of ["HGETALL", "hgetall"]) {
      assert.deepEqual(await hold.exec(command, "h"), await call(command, "h"));
    }
    await assert.rejects(
      hold.exec("NOSUCH"),
      (error) => /unknown/i.test(String(error)) && !(error instanceof LockError),
    );
    const wrongType = hold.exec("LPUSH", "v", 1);
    await assert.rejects(wrongType, (error) => /WRONGTYPE/.test(String(error)) && !(error instanceof LockError));
    await server.ask("LOCK.BREAK", "k");
    await assert.rejects(hold.exec("SET", "v", "lost"), LockLostError);
    assert.ok(hold.lost && hold.signal.aborted);
    assert.equal(await server.ask("GET", "v"), "held");
  });

  each("server-without-the-module", async (world) => {
    const server = await world.server([], { module: false });
    const { client } = await world.connect(server);
    for (const lock of [new Lock(client, "k"), new RLock(client, "k")]) {
      await assert.rejects(lock.acquire(), (error: Error) => {
        return (
          error instanceof ModuleNotLoadedError &&
          /loadmodule .* into redis.conf .*, or send MODULE LOAD/.test(error.message)
        );
      });
    }
  });

  each("key-became-something-else", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k");
    const methods: ((hold: Hold) => Promise<void>)[] = [
      (hold) => hold.release(),
      (hold) => hold.extend(),
      (hold) => hold.extend(1000),
      (hold) => hold.exec("SET", "v", "held"),
    ];
    for (const method of methods) {
      const hold = await lock.acquire();
      await server.ask("SET", "k", "else");
      await assert.rejects(method(hold), LockLostError);
      assert.ok(hold.lost);
      assert.equal(await server.ask("GET", "k"), "else");
      assert.ok(!(await hold.owned()) && (await lock.locked()));
      for (const wait of [0, 1000]) {
        await assert.rejects(lock.acquire({ wait }), (error: Error) => {
          return error instanceof WrongTypeError && /"k" is a string, not a lock.*mixed: true/.test(error.message);
        });
      }
      await server.ask("DEL", "k");
    }
    // A waiting request is rejected too.
    const hold = await lock.acquire();
    const waiting = lock.acquire();
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    await server.ask("SET", "k", "else");
    await assert.rejects(waiting, WrongTypeError);
    await assert.rejects(hold.release(), LockLostError);
  });

  each("no-polling", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k", { lease: 60_000 });
    const hold = await lock.acquire();
    const turns = Array.from({ length: 100 }, () => lock.using(() => undefined));
    await eventually(async () => (await server.waiters("k")).length === 100, "a hundred waiters");
    const [began, asked] = [performance.now(), await server.calls("lock.acquire")];
    await sleep(1000);
    // A request of a wait lasts 5 s: each waiter may have repeated it once in that time, not more often.
    const slices = 1 + Math.floor((performance.now() - began) / 5000);
    assert.ok((await server.calls("lock.acquire")) - asked <= 100 * slices);
    await hold.release();
    await Promise.all(turns);
    for (const command of ["lock.renew", "exists", "lock.held"]) assert.equal(await server.calls(command), 0);
  });

  each("at-least", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const ttl = (): Promise<number> => server.ask("PTTL", "k");
    // The rest of the lease is longer than the interval, or shorter.
    for (const [lease, atLeast, least] of [
      [600_000, 120_000, 30_000],
      [30_000, 600_000, 300_000],
    ] as const) {
      const hold = await new Lock(client, "k", { lease, atLeast }).acquire();
      const renewals = await server.calls("lock.renew");
      await hold.release();
      const left = await ttl();
      assert.ok(left > least && left <= atLeast, `${left}`);
      assert.deepEqual([await server.calls("lock.renew"), await server.calls("lock.release")], [renewals + 1, 0]);
      // Its caller no longer has a hold, and gets no loss.
      assert.deepEqual([await hold.owned(), hold.lost, hold.signal.aborted], [false, false, false]);
      await assert.rejects(hold.exec("SET", "v", "held"), LockLostError);
      await assert.rejects(hold.extend(), LockError);
      await hold.release();
      assert.equal(await new Lock(client, "k", { lease, atLeast }).tryAcquire(), null);
      await server.ask("DEL", "k");
    }
    // After the interval a release frees the lock; so does a release after failed work.
    const short = await new Lock(client, "k", { atLeast: 20 }).acquire();
    await sleep(25);
    await short.release();
    assert.equal(await server.info("k"), null);
    const lock = new Lock(client, "k", { atLeast: 600_000 });
    await (await lock.acquire()).release({ failed: true });
    assert.equal(await server.info("k"), null);
    const lost = await lock.acquire();
    await server.ask("LOCK.BREAK", "k");
    await assert.rejects(lost.release(), LockLostError);
    for (const options of [{ session: true }, { lease: null }, { token: "me" }, { atLeast: -1 }]) {
      assert.throws(() => new Lock(client, "k", { atLeast: 600_000, ...options }), RangeError);
    }
    await assert.rejects(lock.acquire({ token: "me" }), RangeError);
    await assert.rejects(lock.fromToken("me"), RangeError);
  });

  each("from-token", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const { client: there } = await world.connect(server);
    const hold = await new Lock(client, "k", { lease: 60_000 }).acquire();
    const lock = new Lock(there, "k", { lease: 600_000 });
    const same = await lock.fromToken(hold.token);
    assert.deepEqual([same.fence, same.token, same.lost, await same.owned()], [hold.fence, hold.token, false, true]);
    assert.ok(same.remaining() > 30_000 && same.remaining() <= 60_000);
    assert.equal(await server.calls("lock.acquire"), 1);
    await same.extend();
    assert.ok((await server.ask("PTTL", "k")) > 300_000);
    assert.equal(await same.exec("SET", "v", "there"), "OK");
    await same.release();
    assert.equal(await server.info("k"), null);
    await assert.rejects(hold.release(), LockLostError);
    // A token that does not hold the lock is rejected, and a loss is reported as usual.
    await assert.rejects(lock.fromToken("nobody"), LockLostError);
    assert.equal(await server.info("k"), null);
    const broken = await lock.fromToken((await new Lock(client, "k").acquire()).token);
    await server.ask("LOCK.BREAK", "k");
    await assert.rejects(broken.release(), LockLostError);
    assert.ok(broken.signal.aborted);
  });
});

async function failoverBegun(sentinel: Server): Promise<boolean> {
  try {
    return (await sentinel.ask("SENTINEL", "FAILOVER", "main")) === "OK";
  } catch (error) {
    // Sentinel refuses until it has seen the replica's INFO.
    assert.match(String(error), /NOGOODSLAVE|INPROG/);
    return false;
  }
}

async function isConnected(server: Server, id: number): Promise<boolean> {
  return new RegExp(`^id=${id} `, "m").test(await server.ask("CLIENT", "LIST"));
}
