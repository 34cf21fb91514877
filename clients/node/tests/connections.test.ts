/** One connection for all callers, one for messages, and what happens when they break. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import net from "node:net";
import { resolve } from "node:path";
import { promisify } from "node:util";

import { Redis } from "ioredis";
import { createClientPool } from "redis";
import { Lock, RLock, type RedisClient } from "redis-lock-client";
import { BUSY_MS, eventually, sleep } from "./servers.js";
import { isPending, suite } from "./world.js";

const run = promisify(execFile);

suite("connections", (each) => {
  each("a thousand callers share one connection and are granted in order", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k", { lease: 120_000 });
    const hold = await lock.acquire();
    assert.equal(await server.connections(), 1);
    const got: number[] = [];
    let inside = 0;
    const turn = (number: number): Promise<void> =>
      lock.using(async () => {
        assert.equal(++inside, 1);
        got.push(number);
        await Promise.resolve();
        inside -= 1;
      });
    const turns = [turn(0)];
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    for (let number = 1; number < 1000; number++) turns.push(turn(number));
    await eventually(async () => (await server.waiters("k")).length === 1000, "a thousand waiters");
    assert.equal(await server.connections(), 2);
    const [began, asked] = [performance.now(), await server.calls("lock.acquire")];
    await hold.release();
    await Promise.all(turns);
    assert.deepEqual(
      got,
      [...got].sort((one, other) => one - other),
    );
    assert.deepEqual([got.length, await server.connections()], [1000, 2]);
    // Each repeats its request once in its period (8 to 10 s for that many), and once more if it waited long.
    const slices = 2 + Math.floor((performance.now() - began) / 8000);
    assert.ok((await server.calls("lock.acquire")) - asked <= 1000 * slices);
    assert.equal(await server.info("k"), null);
  });

  each("an uncontended lock needs one connection and two commands", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    for (let times = 0; times < 10; times++) await new Lock(client, "k").using(() => undefined);
    assert.equal(await server.connections(), 1);
    const calls = await Promise.all(["lock.acquire", "lock.release", "subscribe"].map((name) => server.calls(name)));
    assert.deepEqual(calls, [10, 10, 0]);
  });

  each("a hand-off costs one request, one release and one message", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k", { lease: 60_000 });
    const first = await lock.acquire();
    const second = lock.acquire();
    await eventually(async () => (await server.waiters("k")).length, "a waiter, and so a subscriber");
    await first.release();
    const hold = await second;
    const [began, before] = [performance.now(), await server.calls("lock.acquire")];
    const turns = Array.from({ length: 20 }, () => lock.using(() => undefined));
    await eventually(async () => (await server.waiters("k")).length === 20, "twenty waiters");
    await hold.release();
    await Promise.all(turns);
    const slices = Math.floor((performance.now() - began) / 4000);
    const asked = (await server.calls("lock.acquire")) - before;
    assert.ok(asked >= 20 && asked <= 20 * (1 + slices), `${asked} requests`);
  });

  each("a lost message delays a grant by one request of the wait at most", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    const lock = new Lock(client, "k", { lease: 60_000 });
    const hold = await lock.acquire();
    const waiting = lock.acquire();
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    proxy.holdMessages();
    await hold.release();
    await (await waiting).release();
    // The time has run out and the message about it is lost: the client's own clock ends the wait.
    const held = await lock.acquire();
    const began = performance.now();
    assert.equal(await lock.tryAcquire({ wait: 2000 }), null);
    assert.ok(performance.now() - began >= 1999);
    assert.deepEqual(await server.waiters("k"), []);
    await held.release();
  });

  each("a grant in the last moment of the wait is taken", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    const lock = new Lock(client, "k", { lease: 60_000 });
    const inTime = async (): Promise<boolean> => {
      const hold = await lock.acquire();
      const ends = performance.now() + 2500;
      const waiting = lock.tryAcquire({ wait: 3000 });
      const isQueued = async (): Promise<boolean> => (await server.waiters("k")).length === 1;
      await eventually(async () => performance.now() >= ends || (await isQueued()), "a waiter");
      proxy.holdMessages();
      await hold.release();
      const wasInTime = performance.now() < ends;
      const granted = await waiting;
      if (wasInTime) assert.ok(granted !== null && (await granted.owned()));
      await granted?.release();
      return wasInTime;
    };
    // On a busy machine the release may come after the end of the wait, which proves nothing.
    await eventually(inTime, "a release before the end of the wait");
    assert.equal(await server.info("k"), null);
  });

  each("a subscriber that is cut off is replaced, and the waiters repeat their requests immediately", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k", { lease: 60_000 });
    const hold = await lock.acquire();
    const waiting = lock.acquire();
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    for (let times = 0; times < 3; times++) {
      const asked = await server.calls("lock.acquire");
      await server.ask("CLIENT", "KILL", "TYPE", "pubsub");
      await eventually(async () => (await server.calls("lock.acquire")) > asked, "the request again");
      await eventually(async () => (await server.ask("PUBSUB", "CHANNELS")).length, "the channel");
    }
    // Its own repeated request took over its position, and the server reported that: no reason to repeat it again.
    const asked = await server.calls("lock.acquire");
    await sleep(700);
    assert.ok((await server.calls("lock.acquire")) - asked <= 1);
    await server.ask("CLIENT", "KILL", "TYPE", "pubsub");
    await hold.release();
    const began = performance.now();
    await (await waiting).release();
    assert.ok(performance.now() - began < 4500);
  });

  each("while no subscription is possible, no request is queued for a message", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    const lock = new Lock(client, "k", { lease: 60_000 });
    const hold = await lock.acquire();
    const waiting = lock.acquire();
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    const asked = await server.calls("lock.acquire");
    proxy.refuseNew();
    await server.ask("CLIENT", "KILL", "TYPE", "pubsub");
    await eventually(() => proxy.refused >= 4, "the subscriber, which connects again and again");
    assert.equal(await server.calls("lock.acquire"), asked);
    proxy.accept();
    await eventually(async () => (await server.calls("lock.acquire")) > asked, "the request again");
    assert.equal((await server.ask("PUBSUB", "CHANNELS")).length, 1);
    await hold.release();
    await (await waiting).release();
  });

  each("waiters repeat their requests immediately when the shared connection was cut", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k", { lease: 60_000 });
    const hold = await lock.acquire();
    const waiting = lock.acquire({ token: "early" });
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    const late = lock.acquire({ token: "late" });
    await eventually(async () => (await server.waiters("k")).length === 2, "two waiters");
    await server.ask("CLIENT", "KILL", "TYPE", "normal");
    await eventually(async () => (await server.waiters("k")).length === 2, "both again");
    const asked = await server.calls("lock.acquire");
    await hold.release();
    await (await waiting).release();
    await (await late).release();
    assert.ok(asked <= 7 && (await server.calls("lock.acquire")) - asked <= 2);
  });

  each("many cancelled commands leave the client's queue unchanged", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client, call } = await world.connect(proxy, { reconnectMs: 300 });
    await call("PING");
    proxy.refuse();
    await eventually(async () => (await server.connections()) === 0, "no connection");
    const asked = Array.from({ length: 10 }, () => new Lock(client, "k").acquire({ wait: 50 }));
    for (const { status } of await Promise.allSettled(asked)) assert.equal(status, "rejected");
    proxy.accept();
    assert.equal(await call("PING"), "PONG");
    await new Lock(client, "k").using(() => undefined);
    assert.deepEqual([await server.calls("lock.acquire"), await server.info("k")], [1, null]);
  });

  each("a request is repeated if its reply never comes", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    proxy.holdReply("LOCK.ACQUIRE");
    const acquiring = new Lock(client, "k", { lease: 60_000 }).acquire({ wait: 60_000 });
    await eventually(() => proxy.held > 0, "a reply that is held back");
    proxy.disconnect();
    const hold = await acquiring;
    assert.equal((await server.holders("k")).length, 1);
    await hold.release();
  });

  each("an unreachable server ends the wait in time, and nothing is sent later", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client, call } = await world.connect(proxy, { reconnectMs: 300 });
    await new Lock(client, "warm").using(() => undefined);
    proxy.refuse();
    await eventually(async () => (await server.connections()) === 0, "no connection");
    // Without its offline queue, the client fails the first request immediately, and then it cannot subscribe.
    const { client: other } = await world.connect(proxy, { reconnectMs: 300, offlineQueue: false });
    for (const asks of [client, other]) {
      for (const wait of [0, 200]) {
        await assert.rejects(new Lock(asks, "k").acquire({ wait }), (error: Error) => !/Acquired/.test(error.name));
      }
    }
    proxy.accept();
    // One that waits for too many attempts to connect fails.
    await eventually(() => call("PING").catch(() => undefined), "a connection");
    await sleep(100);
    assert.equal(await server.info("k"), null);
    assert.equal(await server.calls("lock.acquire"), 1);
  });

  each("an acquire or run returns within two seconds of its limit, whatever the network does then", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client, call } = await world.connect(proxy, { reconnectMs: 100 });
    await server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 600_000);
    const silent = (): void => proxy.silence();
    const cutThenSilent = (): void => (proxy.disconnect(), proxy.silence());
    const acquire = (options: object, wait: number): Promise<unknown> =>
      new Lock(client, "k", { lease: 600_000, ...options }).acquire({ wait });
    const run = (options: object, wait: number): Promise<unknown> =>
      new Lock(client, "k", { lease: 600_000, ...options }).run(["INCR", "n"], { wait });
    const ways: [() => void, typeof acquire, object][] = [
      [silent, acquire, {}],
      [silent, acquire, { session: true }],
      [silent, run, {}],
      [silent, run, { session: true }],
      [cutThenSilent, acquire, {}],
      [cutThenSilent, acquire, { session: true }],
      [cutThenSilent, run, { session: true }],
      [() => proxy.refuse(), acquire, { replicas: 1 }],
    ];
    // The two seconds that the README guarantees.
    const inTime = (late: number, what: string): void => assert.ok(late < 2000 + BUSY_MS, `${what}: ${late} ms late`);
    for (const [trouble, ask, options] of ways) {
      // Reconnected after the previous round.
      await eventually(() => call("PING").catch(() => undefined), "a connection");
      const began = performance.now();
      const waiting = ask(options, 1500);
      waiting.catch(() => undefined);
      await eventually(async () => (await server.waiters("k")).length, "a waiter");
      await sleep(began + 1400 - performance.now());
      trouble();
      await assert.rejects(waiting);
      inTime(performance.now() - began - 1500, `${trouble}, ${ask}, ${JSON.stringify(options)}`);
      proxy.speak();
      proxy.accept();
      await eventually(async () => (await server.waiters("k")).length === 0, "an empty queue");
    }
    // A server that stops before it replies to the packet of a run.
    await eventually(() => call("PING").catch(() => undefined), "a connection");
    server.pause();
    const began = performance.now();
    await Promise.all([{}, { session: true }].map((options) => assert.rejects(run(options, 500))));
    inTime(performance.now() - began - 500, "a run on a server that is stopped");
    server.resume();
  });

  each("every request ends in time when connecting hangs and nothing is answered", async (world) => {
    const server = await world.server(["--tcp-backlog", "1"]);
    const { client } = await world.connect(server, { reconnectMs: 1000 });
    const hold = await new Lock(client, "k", { lease: 600_000 }).acquire();
    assert.equal(await new Lock(client, "k").tryAcquire({ wait: 10 }), null);
    await server.ask("CLIENT", "KILL", "TYPE", "normal");
    server.pause();
    // Fills the backlog of a server that accepts nothing: from then on connecting hangs.
    const fillers: net.Socket[] = [];
    const connected = (socket: net.Socket): Promise<boolean> =>
      new Promise((done) => socket.once("connect", () => done(false)));
    for (let hangs = false; !hangs && fillers.length < 20;) {
      const filler = net.connect(server.port, "127.0.0.1").on("error", () => undefined);
      fillers.push(filler);
      hangs = await Promise.race([connected(filler), sleep(300).then(() => true)]);
    }
    const inTime = async (ms: number, work: () => Promise<unknown>): Promise<void> => {
      const began = performance.now();
      await assert.rejects(work());
      const took = performance.now() - began;
      assert.ok(took < ms + BUSY_MS, `${work}: ${took} ms`);
    };
    const ways = [{}, { session: true }, { replicas: 1 }];
    await Promise.all([
      ...ways.map((options) => inTime(500 + 2000, () => new Lock(client, "a", options).acquire({ wait: 500 }))),
      ...ways.map((options) =>
        inTime(200 + 1000, () => new Lock(client, "b", options).acquire({ signal: AbortSignal.timeout(200) })),
      ),
      ...ways.map((options) => inTime(12_000, () => new Lock(client, "c", options).tryAcquire())),
      inTime(12_000, () => hold.extend()),
    ]);
    for (const filler of fillers) filler.destroy();
  });

  each("cancelling on a silent network takes a second, and the request is withdrawn", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    await server.ask("LOCK.ACQUIRE", "k", "somebody", "PX", 600_000);
    for (const options of [{}, { session: true }]) {
      const giveUp = new AbortController();
      const lock = new Lock(client, "k", { lease: 600_000, ...options });
      const waiting = lock.acquire({ signal: giveUp.signal });
      await eventually(async () => (await server.waiters("k")).length, "a waiter");
      proxy.silence();
      const began = performance.now();
      giveUp.abort();
      await assert.rejects(waiting, { name: "AbortError" });
      assert.ok(performance.now() - began < 1000 + BUSY_MS);
      proxy.speak();
      await eventually(async () => (await server.waiters("k")).length === 0, "an empty queue");
    }
  });

  each("a command of exec whose reply was lost is not sent again", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client, call } = await world.connect(proxy);
    const hold = await new Lock(client, "k", { lease: 60_000 }).acquire();
    for (const after of [0, 1]) {
      proxy.cutReply("LOCK.EXEC", after);
      await assert.rejects(hold.exec("INCR", "n"), (error: Error) => error.name !== "LockLostError");
      await call("PING");
    }
    assert.equal(await server.ask("GET", "n"), "2");
    assert.equal(await hold.exec("INCR", "n"), 3);
    await hold.release();
  });

  each("a server that comes back grants the waiter", async (world) => {
    const first = await world.server();
    const { client } = await world.connect(first);
    const lock = new Lock(client, "k", { lease: 60_000 });
    await lock.acquire();
    const waiting = lock.acquire();
    await eventually(async () => (await first.waiters("k")).length, "a waiter");
    await first.stop();
    const second = await world.server([], { port: first.port });
    await (await waiting).release();
    assert.equal(await second.info("k"), null);
  });

  each("a client that its owner closes ends the wait", async (world) => {
    const server = await world.server();
    const { client, end } = await world.connect(server);
    const other = await world.connect(server);
    const hold = await new Lock(other.client, "k").acquire();
    const ways = [{}, { session: true }, { replicas: 1 }];
    const waiting = ways.map((options) => assert.rejects(new Lock(client, "k", options).acquire()));
    await eventually(async () => (await server.waiters("k")).length === ways.length, "the waiters");
    const session = await new Lock(client, "session", { session: true }).acquire();
    const replicated = assert.rejects(new Lock(client, "r", { replicas: 1, replicaTimeout: 60_000 }).acquire());
    const blocked = async (): Promise<string> => server.admin.info("clients");
    await eventually(async () => /^blocked_clients:3\r?$/m.test(await blocked()), "WAIT, beside two waiters");
    const closed = performance.now();
    await end();
    await Promise.all([...waiting, replicated]);
    await eventually(() => session.lost, "the end of the session");
    await eventually(async () => (await server.connections()) === 1, "no connection for messages either");
    assert.ok(performance.now() - closed < 4000);
    assert.equal(await server.info("session"), null);
    await hold.release();
    for (const options of ways) await assert.rejects(new Lock(client, "k", options).acquire());
  });

  each("a process ends when it closes its client, after a wait or with a session", async (world) => {
    const server = await world.server();
    const worker = resolve(__dirname, "closing_worker.js");
    for (const what of ["waited", "waiting", "session"]) {
      const words = [worker, world.library.name, String(server.port), what];
      const { stdout } = await run(process.execPath, words, { timeout: 20_000 });
      assert.ok(stdout !== "" && Number(stdout) < 1000 + BUSY_MS, `${what}: ${stdout} ms`);
      await server.ask("DEL", "k");
    }
  });

  each("a client of a cluster, or by sentinels, that its owner closes ends the waits", async (world) => {
    const cluster = await world.cluster();
    const [primary, sentinel] = [await world.server(), await world.server([], { sentinel: true })];
    await sentinel.ask("SENTINEL", "MONITOR", "main", "127.0.0.1", primary.port, 1);
    const { source } = await cluster.of("k");
    for (const [server, connect] of [
      [source, () => world.library.cluster(cluster.nodes[0].port)],
      [primary, () => world.library.sentinel(sentinel.port)],
    ] as const) {
      for (const how of ["end", "close"] as const) {
        const connected = world.ending(await connect());
        const { client } = connected;
        await server.ask("LOCK.ACQUIRE", "k", "other", "PX", 600_000);
        const session = await new Lock(client, "{k}", { session: true }).acquire();
        const ways = [{}, { session: true }, { replicas: 1 }];
        const waiting = ways.map((options) => assert.rejects(new Lock(client, "k", options).acquire()));
        await eventually(async () => (await server.waiters("k")).length === ways.length, "the waiters");
        const closed = performance.now();
        await connected[how]();
        await Promise.all(waiting);
        await eventually(() => session.lost, "the end of the session");
        assert.ok(performance.now() - closed < 4000, `${how}: ${performance.now() - closed} ms`);
        await eventually(async () => (await server.waiters("k")).length === 0, "an empty queue");
        assert.equal(await server.info("{k}"), null);
      }
    }
  });

  each(
    "a client that is closed while it is about to connect again leaves no connection for messages",
    async (world) => {
      const first = await world.server();
      // The other one connects much sooner.
      const { client, end } = await world.connect(first, { reconnectMs: 3000 });
      await new Lock(client, "k", { lease: 60_000 }).acquire();
      const waiting = new Lock(client, "k").acquire();
      waiting.catch(() => undefined);
      await eventually(async () => (await first.waiters("k")).length, "a waiter");
      await first.stop();
      const seen = client as { isReady?: boolean; status?: string };
      const isGone = (): boolean => seen.isReady === false || seen.status === "reconnecting";
      await eventually(isGone, "the loss");
      await end();
      await assert.rejects(waiting);
      const second = await world.server([], { port: first.port });
      // Longer than it ever pauses: on a slow machine this detects less, but never fails wrongly.
      await sleep(1500);
      assert.equal(await second.connections(), 0);
    },
  );

  each("a client that is closed while it connects for a session or replicas leaves no connection", async (world) => {
    const server = await world.server();
    for (const options of [{ session: true }, { replicas: 1 }]) {
      const { client, call, end } = await world.connect(server);
      await call("PING");
      const rejected = assert.rejects(new Lock(client, "k", options).acquire());
      await new Promise(setImmediate);
      await end();
      await rejected;
      await eventually(async () => (await server.connections()) === 0, "no connection");
      assert.equal(await server.info("k"), null);
    }
  });

  each("cancelling while a session waits leaves nothing", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new Lock(client, "k").acquire();
    const giveUp = new AbortController();
    const waiting = new Lock(client, "k", { session: true }).acquire({ signal: giveUp.signal });
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    giveUp.abort();
    await assert.rejects(waiting, { name: "AbortError" });
    assert.deepEqual(await server.waiters("k"), []);
    await eventually(async () => (await server.connections()) === 1, "no connection of its own");
    await hold.release();
    await assert.rejects(new Lock(client, "k").acquire({ signal: AbortSignal.abort() }), { name: "AbortError" });
    assert.equal(await server.info("k"), null);
  });

  each("cancelling while the request is on its way over another connection leaves nothing", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    proxy.keepRequest("LOCK.ACQUIRE");
    const giveUp = new AbortController();
    const acquiring = new Lock(client, "k", { replicas: 1 }).acquire({ signal: giveUp.signal });
    await eventually(() => proxy.keeps, "the request at the proxy");
    giveUp.abort();
    await eventually(async () => (await server.calls("lock.cancel")) === 1, "the cancellation");
    proxy.letGo();
    await assert.rejects(acquiring, { name: "AbortError" });
    assert.equal(await server.info("k"), null);
    assert.deepEqual([await server.calls("lock.acquire"), await server.calls("lock.release")], [1, 1]);
  });

  each("a session ends with a release that fails, and the release can be repeated", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    for (const session of [false, true]) {
      const hold = await new Lock(client, "k", { lease: 60_000, session }).acquire();
      await server.ask("ACL", "SETUSER", "default", "-lock.release");
      await assert.rejects(hold.release(), /NOPERM/);
      await server.ask("ACL", "SETUSER", "default", "+lock.release");
      if (!session) await hold.release();
      await eventually(async () => (await server.info("k")) === null, "the end of the hold");
    }
  });

  each("a session whose hold was dropped ends", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    await new Lock(client, "k", { lease: 60_000, session: true }).acquire();
    assert.ok(await server.info("k"));
    await eventually(async () => {
      global.gc?.();
      return (await server.info("k")) === null;
    }, "the end of the session");
  });

  each("the same token may wait twice for one key", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new RLock(client, "r").acquire();
    const lock = new RLock(client, "r", { token: "me" });
    const waiting = [lock.acquire(), lock.acquire()];
    await eventually(async () => (await server.waiters("r")).length, "a waiter");
    await hold.release();
    const [one] = await Promise.all(waiting);
    assert.equal((await server.holders("r"))[0]?.["owner"], "me");
    await one?.release();
  });

  each("two clients that wait with one token replace each other only after pauses", async (world) => {
    const server = await world.server();
    const clients = [await world.connect(server), await world.connect(server)];
    await server.ask("LOCK.ACQUIRE", "k", "other", "PX", 600_000);
    const giveUp = new AbortController();
    const { signal } = giveUp;
    const waiting = clients.map(({ client }) => new Lock(client, "k", { token: "me" }).acquire({ signal }));
    const rejected = waiting.map((each) => assert.rejects(each, { name: "AbortError" }));
    await eventually(async () => (await server.calls("lock.acquire")) >= 8, "the turns");
    const [began, asked] = [performance.now(), await server.calls("lock.acquire")];
    await sleep(1000);
    const perSecond = ((await server.calls("lock.acquire")) - asked) / ((performance.now() - began) / 1000);
    assert.ok(perSecond <= 20, `${perSecond} requests a second`);
    giveUp.abort();
    await Promise.all(rejected);
    assert.deepEqual(await server.waiters("k"), []);
  });

  each("the request of a dead process leaves the queue with its lease", async (world) => {
    const server = await world.server();
    const { client, end } = await world.connect(server);
    const { client: living } = await world.connect(server);
    await new Lock(client, "k").acquire();
    const waiting = new Lock(client, "k").acquire();
    waiting.catch(() => undefined);
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    const next = new Lock(living, "k").acquire();
    assert.ok(await isPending(next));
    await end();
    await eventually(async () => (await server.waiters("k")).length === 1, "the end of the dead one's wait");
    // Its lease, shortened.
    await server.ask("PEXPIRE", "k", 100);
    await (await next).release();
    await assert.rejects(waiting);
  });

  each("in a cluster the slot's node publishes, also while the slot is moved", async (world) => {
    const cluster = await world.cluster();
    const { client } = world.ending(await world.library.cluster(cluster.nodes[0].port));
    const { slot, source, target } = await cluster.of("k");
    const lock = new Lock(client, "k", { lease: 120_000 });
    const grantedByMessage = async (): Promise<boolean> => {
      const holding = await lock.acquire();
      const next = lock.acquire();
      await eventually(async () => (await source.waiters("k")).length, "a waiter");
      const asked = await source.calls("lock.acquire");
      await holding.release();
      await (await next).release();
      return (await source.calls("lock.acquire")) === asked;
    };
    const hold = await lock.acquire();
    const waiting = lock.acquire();
    await eventually(async () => (await source.waiters("k")).length, "a waiter");
    await cluster.moveSlot(slot, source, target, async () => {
      await eventually(
        async () => (await target.waiters("k", true)).length,
        "the waiter, before the slot is the node's",
      );
      await hold.release();
      await (await waiting).release();
    });
    // And back again: the first move has ended the earlier subscription.
    const again = await lock.acquire();
    const second = lock.acquire();
    await eventually(async () => (await target.waiters("k")).length, "a waiter");
    await cluster.moveSlot(slot, target, source);
    await eventually(async () => (await source.waiters("k")).length, "the waiter at the first node");
    await again.release();
    await (await second).release();
    // A waiter may ask once more when its new subscription is confirmed. Then a message is enough.
    await eventually(grantedByMessage, "a grant without another request");
    // No request meets a redirection here: the client only learns from the server that its subscription has ended.
    await cluster.moveSlot(slot, source, target);
    await cluster.moveSlot(slot, target, source);
    await eventually(grantedByMessage, "a grant without another request");
    for (const key of ["a", "b", "c", "d"]) {
      const first = await new Lock(client, key).acquire();
      const next = new Lock(client, key).acquire();
      await eventually(async () => (await (await cluster.of(key)).source.waiters(key)).length, "a waiter");
      await first.release();
      await (await next).release();
    }
  });

  each("an argument that is not a client is refused", async () => {
    assert.throws(() => new Lock({} as RedisClient, "k"), TypeError);
    assert.throws(() => new Lock(createClientPool() as unknown as RedisClient, "k"), TypeError);
  });

  each("ioredis: a key prefix, integers as strings, no offline queue", async (world) => {
    if (world.library.name !== "ioredis") return;
    const server = await world.server();
    const options = { port: server.port, keyPrefix: "app:", stringNumbers: true, enableOfflineQueue: false };
    const redis = new Redis({ ...options, enableAutoPipelining: true, lazyConnect: true });
    redis.on("error", () => undefined);
    world.ending({
      client: redis,
      call: async () => undefined,
      select: (db) => redis.select(db),
      end: async () => redis.disconnect(),
      close: () => redis.quit(),
    });
    await redis.connect();
    const lock = new Lock(redis, "k");
    const hold = await lock.acquire();
    assert.equal((await server.holders("app:k"))[0]?.["fence"], hold.fence);
    const waiting = lock.acquire();
    await eventually(async () => (await server.waiters("app:k")).length, "a waiter");
    await hold.release();
    await (await waiting).release();
    assert.equal(await server.ask("DBSIZE"), 0);
  });
});
