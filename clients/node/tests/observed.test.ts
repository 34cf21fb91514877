/** Who holds a lock, and the events for an observer and the debug log. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { it } from "node:test";

import {
  Lock,
  LockLostError,
  MultiLock,
  NotAcquiredError,
  NotMadeError,
  observe,
  RLock,
  RWLock,
  Semaphore,
  type LockEvent,
  type LockInfo,
} from "redis-lock-client";
import { eventually, Server } from "./servers.js";
import { suite } from "./world.js";

const run = promisify(execFile);

suite("observed", (each) => {
  each("info names the holders of a lock of any type and counts the waiters", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k", { lease: 60_000 });
    assert.equal(await lock.info(), null);
    const hold = await lock.acquire();
    const waiting = lock.acquire();
    await eventually(async () => (await lock.info())?.waiters === 1, "a waiter");
    const found = (await lock.info()) as LockInfo;
    const { ttl, holders, ...rest } = found;
    assert.deepEqual(rest, { kind: "mutex", limit: 1, fence: hold.fence, waiters: 1, holding: 1 });
    assert.ok(ttl !== null && ttl > 0 && ttl <= 60_000);
    const [{ age = -1, ttl: left = -1, ...holder } = {}] = holders;
    const { token: owner, fence } = hold;
    assert.deepEqual(holder, { owner, fence, mode: "exclusive", holds: 1, lease: 60_000, session: null, slot: null });
    assert.ok(age >= 0 && left !== null && left > 0);
    await hold.release();
    await (await waiting).release();

    const withoutDeadline = await new RLock(client, "r", { lease: null }).acquire();
    const reentrant = await new RLock(client, "r").info();
    assert.deepEqual([reentrant?.kind, reentrant?.ttl, reentrant?.holders[0]?.lease], ["reentrant", null, null]);
    await withoutDeadline.release();

    const rw = new RWLock(client, "w");
    const readers = [await rw.read.acquire(), await rw.read.acquire()];
    assert.deepEqual(
      (await rw.info())?.holders.map(({ owner, mode }) => [owner, mode]),
      readers.map(({ token }) => [token, "read"]),
    );
    assert.deepEqual([(await rw.write.info({ count: 1 }))?.holders.length, (await rw.info())?.holding], [1, 2]);
    for (const reader of readers) await reader.release();

    const semaphore = new Semaphore(client, "s", 3, { slot: true, session: true });
    const slot = await semaphore.acquire();
    const permit = (await semaphore.info()) as LockInfo;
    assert.deepEqual([permit.kind, permit.limit, permit.holders[0]?.slot], ["semaphore", 3, 0]);
    assert.ok(Number(permit.holders[0]?.session) > 0);
    await slot.release();

    const several = await new MultiLock(client, ["a", "b"]).acquire();
    const both = await new MultiLock(client, ["a", "x", "b"]).info();
    assert.deepEqual(
      both.map((one) => one?.holders[0]?.owner),
      [several.token, undefined, several.token],
    );
    await several.release();
  });

  each("a token is shown as a string, whatever its bytes are", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    for (const [token, shown] of [
      [Buffer.from("grüße"), "grüße"],
      [Buffer.from([0x61, 0xff, 0x00]), "a\\xff\u0000"],
      [Buffer.concat([Buffer.from("\\xff\\"), Buffer.from([0xff])]), "\\x5cxff\\x5c\\xff"],
      // Unchanged, even if it looks like an encoded token.
      ["a\\xff", "a\\xff"],
    ] as const) {
      const hold = await new Lock(client, "k", { token }).acquire();
      assert.equal(hold.token, shown);
      assert.equal((await new Lock(client, "k").info())?.holders[0]?.owner, shown);
      const reported = await new Lock(client, "k", { wait: 0, tellHolder: true }).acquire().catch((error) => error);
      assert.equal(reported.holder, shown);
      const handedOn = await new Lock(client, "k").fromToken(shown);
      assert.deepEqual([handedOn.fence, handedOn.token], [hold.fence, shown]);
      await handedOn.release();
      assert.equal(await server.info("k"), null);
      await assert.rejects(new Lock(client, "k").fromToken(shown), LockLostError);
      const permits = await new Semaphore(client, "s", 2, { token }).acquire({ permits: 2 });
      await (await new Semaphore(client, "s", 2).fromToken(permits.token)).release();
      assert.equal(await server.info("s"), null);
    }
  });

  each("the error names the holder if the caller asks for it", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new Lock(client, "b", { token: "the-other" }).acquire();
    const infos = (): Promise<number> => server.calls("lock.info");
    const refused = async (acquiring: Promise<unknown>): Promise<NotAcquiredError> => {
      const error = await acquiring.then(
        () => assert.fail("granted"),
        (error: unknown) => error,
      );
      assert.ok(error instanceof NotAcquiredError);
      return error;
    };
    assert.equal((await refused(new Lock(client, "b").acquire({ wait: 0 }))).holder, undefined);
    assert.equal(await infos(), 0);
    const reported = await refused(new Lock(client, "b", { tellHolder: true, wait: 30 }).acquire());
    assert.equal(reported.holder, "the-other");
    assert.match(reported.message, /within 30 ms: the-other holds it$/);
    assert.equal(await infos(), 1);
    assert.equal((await refused(new Lock(client, "b").acquire({ wait: 0, tellHolder: true }))).holder, "the-other");
    const several = new MultiLock(client, ["a", "b"], { wait: 0, tellHolder: true });
    assert.equal((await refused(several.acquire())).holder, "the-other");
    const once = new Lock(client, "b", { wait: 30, tellHolder: true }).once(
      () => null,
      () => 1,
    );
    const notMade = await refused(once);
    assert.ok(notMade instanceof NotMadeError);
    assert.equal(notMade.holder, "the-other");
    // Not for a grant.
    const before = await infos();
    await hold.release();
    await new Lock(client, "b", { tellHolder: true }).using(() => undefined);
    assert.equal(await infos(), before);
  });

  each("the holder of many keys is found within a second", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    const names = Array.from({ length: 20 }, (_, number) => `k${number}`);
    await server.ask("LOCK.ACQUIRE", "k19", "the-other", "PX", 600_000);
    const lock = new MultiLock(client, names, { wait: 0, tellHolder: true });
    await assert.rejects(lock.acquire(), { holder: "the-other" });
    proxy.holdReply("LOCK.INFO");
    const began = performance.now();
    await assert.rejects(lock.acquire(), { name: "NotAcquiredError", holder: undefined });
    assert.ok(performance.now() - began < 3000, `${performance.now() - began} ms`);
  });

  each("an observer gets every event, with durations", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const other = await world.connect(server);
    const events: LockEvent[] = [];
    observe(client, (event) => void events.push(event));
    const names = (): string[] => events.splice(0).map(({ event, kind }) => `${event} ${kind}`);

    await new Lock(client, "k", { token: "me" }).using(() => undefined);
    const [granted, released] = events;
    assert.ok(granted?.event === "granted" && released?.event === "released");
    const { kind, keys, owner, fence } = granted;
    assert.deepEqual({ kind, keys, owner }, { kind: "mutex", keys: ["k"], owner: "me" });
    assert.ok(fence > 0 && released.fence === fence && granted.wait >= 0 && released.hold >= 0);
    assert.deepEqual(names(), ["granted mutex", "released mutex"]);

    const held = await new Lock(other.client, "k", { lease: 600_000 }).acquire();
    assert.equal(await new Lock(client, "k").tryAcquire(), null);
    assert.deepEqual(names(), ["not_granted mutex"]);
    for (const session of [false, true]) {
      const waiting = new Lock(client, "k", { session, wait: 30_000 }).acquire();
      await eventually(() => events.length === 1, "the event of the queue");
      if (!session) await held.release();
      else await server.ask("LOCK.BREAK", "k");
      const hold = await waiting;
      await hold.release();
      const wait = events.find(({ event }) => event === "granted");
      assert.ok(wait?.event === "granted" && wait.wait > 0);
      assert.deepEqual(names(), ["queued mutex", "granted mutex", "released mutex"]);
      if (!session) await new Lock(other.client, "k", { lease: 600_000 }).acquire();
    }

    const giveUp = new AbortController();
    await server.ask("LOCK.ACQUIRE", "k", "x", "PX", 600_000);
    const given = new Lock(client, "k").acquire({ signal: giveUp.signal });
    await eventually(() => events.length === 1, "the event of the queue");
    giveUp.abort(new Error("enough"));
    await assert.rejects(given, /enough/);
    assert.match(String((events[1] as { error?: unknown }).error), /enough/);
    assert.deepEqual(names(), ["queued mutex", "not_granted mutex"]);

    const renewed = await new Semaphore(client, "s", 2, { lease: 900, autoRenew: true }).acquire();
    await eventually(() => events.some(({ event }) => event === "renewed"), "a renewal");
    await server.ask("LOCK.BREAK", "s");
    await eventually(() => events.some(({ event }) => event === "lost"), "the loss");
    await assert.rejects(renewed.release(), LockLostError);
    assert.deepEqual([...new Set(names())], ["granted semaphore", "renewed semaphore", "lost semaphore"]);
    // Also without a listener and without renewals.
    const short = await new Lock(client, "short", { lease: 100 }).acquire();
    await eventually(() => events.some(({ event }) => event === "lost"), "the end of the lease");
    assert.ok(short.lost);
    names();

    // Each mode of a read/write lock that is held: how the loss comes to light changes nothing.
    for (const how of ["renewal", "release"]) {
      const rw = new RWLock(client, "w", { lease: how === "renewal" ? 900 : 600_000, autoRenew: how === "renewal" });
      const write = await rw.write.acquire();
      const read = await rw.read.acquire({ within: write });
      await (await rw.read.acquire({ within: write })).release();
      assert.deepEqual(names().slice(-1), ["released read"]);
      await server.ask("LOCK.BREAK", "w");
      if (how === "renewal")
        await eventually(() => events.filter(({ event }) => event === "lost").length === 2, "both");
      for (const hold of [read, write]) await assert.rejects(hold.release(), LockLostError);
      assert.deepEqual(
        names()
          .filter((name) => !name.startsWith("renewed"))
          .sort(),
        ["lost read", "lost write"],
      );
      // The mode that was released before is not.
      const only = await rw.read.acquire();
      await (await rw.write.acquire({ within: only })).release();
      names();
      await server.ask("LOCK.BREAK", "w");
      await assert.rejects(only.release(), LockLostError);
      assert.deepEqual(
        names().filter((name) => !name.startsWith("renewed")),
        ["lost read"],
      );
    }

    const rw = new RWLock(client, "w");
    await rw.write.using(() => rw.read.using(() => undefined));
    await new RLock(client, "r").using(() => undefined);
    await new MultiLock(client, ["a", "b"]).using(({ fence }) => {
      assert.deepEqual((events.at(-1) as { keys: string[]; fence: number }).keys, ["a", "b"]);
      assert.equal((events.at(-1) as { fence: number }).fence, fence);
    });
    const pairs = (kind: string): string[] => [`granted ${kind}`, `released ${kind}`];
    const nested = ["granted write", "granted read", "released read", "released write"];
    assert.deepEqual(names(), [...nested, ...pairs("reentrant"), ...pairs("multi")]);

    observe(client, undefined);
    await new Lock(client, "z").using(() => undefined);
    assert.deepEqual(names(), []);
  });

  each("an observer that throws changes nothing", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const warnings: string[] = [];
    const warned = ({ name, message }: Error): void => void warnings.push(`${name}: ${message}`);
    process.on("warning", warned);
    const ways = [
      () => {
        throw new Error("mine");
      },
      () => Promise.reject(new Error("mine")) as unknown as undefined,
      () => {
        throw Symbol("mine");
      },
      () => {
        throw Object.create(null);
      },
    ];
    for (const observer of ways) {
      observe(client, observer);
      const hold = await new Lock(client, "k", { lease: 60_000, autoRenew: true }).acquire();
      await hold.extend();
      assert.equal(await new Lock(client, "k").tryAcquire(), null);
      // The reason of a signal may be anything too.
      const reason = Object.create(null);
      const giveUp = new AbortController();
      const waiting = new Lock(client, "k").acquire({ signal: giveUp.signal });
      await eventually(async () => (await server.waiters("k")).length, "a waiter");
      giveUp.abort(reason);
      assert.equal(await waiting.catch((error: unknown) => error), reason);
      await hold.release();
      assert.equal(await server.info("k"), null);
    }
    const reported = ["Error: mine", "Symbol(mine)", "an object without a string form"];
    await eventually(() => new Set(warnings).size === reported.length, "the warnings");
    process.off("warning", warned);
    // Tests of other libraries run in parallel.
    const expected = reported.map((what) => `RedisLockWarning: an observer threw an error: ${what}`);
    assert.deepEqual(new Set(warnings), new Set(expected));
  });

  each("exec returns replies like the library's own calls", async (world) => {
    const server = await world.server();
    const { client, call } = await world.connect(server);
    await server.ask("HSET", "h", "a", "1", "b", "2");
    await server.ask("ZADD", "z", "1.5", "a");
    const hold = await new Lock(client, "k").acquire();
    for (const words of [
      ["hgetall", "h"],
      ["zrange", "z", "0", "-1", "withscores"],
      ["zscore", "z", "a"],
      ["incr", "n"],
      ["get", "none"],
      ["smembers", "none"],
      ["config", "get", "port"],
    ]) {
      const [command = "", ...args] = words;
      const own = await call(...words).catch(String);
      const inner = await hold.exec(command, ...args).catch(String);
      if (command === "incr") assert.equal(Number(inner), Number(own) + 1);
      else if (command !== "config") assert.deepEqual(inner, own, command);
    }
    await hold.release();
  });
});

it("the debug log has key, owner, fence and duration", { timeout: 60_000 }, async () => {
  const server = await Server.start();
  try {
    const program = join(__dirname, "../examples/mutex.js");
    const env = { ...process.env, REDIS_PORT: String(server.port), NODE_DEBUG: "redis-lock" };
    const { stderr } = await run(process.execPath, [program], { env });
    assert.match(stderr, /^REDIS-LOCK \d+: granted mutex report to \S+:\d+:[0-9a-f]{16}, fence \d+, after \d+ ms$/m);
    assert.match(stderr, /^REDIS-LOCK \d+: released mutex report to \S+, fence \d+, held for [1-9]\d\d+ ms$/m);
  } finally {
    await server.stop();
  }
});
