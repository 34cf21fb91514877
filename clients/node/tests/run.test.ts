/** `run`: lock, command and release in one packet; what happens when replies or connections are lost. */

import assert from "node:assert/strict";

import {
  Lock,
  LockError,
  LockLostError,
  MultiLock,
  NotAcquiredError,
  NotRunError,
  observe,
  RLock,
  RWLock,
  Semaphore,
  type LockEvent,
  type RedisClient,
} from "redis-lock-client";
import { eventually } from "./servers.js";
import { isPending, suite } from "./world.js";

const LOCKS = 7;

function oneOfEach(client: RedisClient): (Lock | RLock | Semaphore | MultiLock)[] {
  const rw = new RWLock(client, "rw");
  return [
    new Lock(client, "k"),
    new RLock(client, "r"),
    rw.read,
    rw.write,
    new Semaphore(client, "s", 3, { permits: 2 }),
    new MultiLock(client, ["a", "b"]),
    new Lock(client, "k", { session: true }),
  ];
}

suite("run", (each) => {
  each("a command in one packet with its lock", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    for (const [number, lock] of oneOfEach(client).entries()) {
      assert.equal(await lock.run(["INCR", "n"]), number + 1);
      const packet = proxy.packets.pop() ?? "";
      assert.equal(proxy.packets.length, 0);
      for (const word of [".ACQUIRE", "INCR", ".RELEASE"]) assert.ok(packet.includes(word), packet);
      assert.equal(packet.includes("SESSION"), number === LOCKS - 1);
      assert.deepEqual(await server.ask("KEYS", "*"), ["n"]);
    }
    const lock = new Lock(client, "k");
    await lock.run(["HSET", "h", "f", 1]);
    const all = await lock.run(["HGETALL", "h"]);
    assert.deepEqual(all, await new Lock(client, "other").using((hold) => hold.exec("HGETALL", "h")));
    assert.equal(await lock.run(["GET", "none"]), null);
    // The command's own error, including its own WRONGTYPE.
    await assert.rejects(lock.run(["INCR", "h"]), /WRONGTYPE/);
    await assert.rejects(lock.run(["NOSUCH"]), /unknown command/);
    assert.equal(await server.info("k"), null);
  });

  each("it waits its turn or reports that it was not granted", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    for (const options of [{}, { session: true }]) {
      await server.ask("DEL", "n");
      const hold = await new Lock(client, "k").acquire();
      const lock = new Lock(client, "k", options);
      for (const wait of [0, 300]) {
        await assert.rejects(lock.run(["INCR", "n"], { wait, tellHolder: true }), (error) => {
          return error instanceof NotAcquiredError && error.holder === hold.token;
        });
      }
      assert.deepEqual(await server.waiters("k"), []);
      const running = lock.run(["INCR", "n"]);
      await eventually(async () => (await server.waiters("k")).length, "a waiter");
      assert.equal(await server.ask("GET", "n"), null);
      proxy.packets.length = 0;
      await hold.release();
      assert.equal(await running, 1);
      assert.equal(await server.info("k"), null);
      // After the grant, the command and the release in one packet; with a session everything was sent before.
      assert.deepEqual(
        proxy.packets.map((packet) => [packet.includes(".ACQUIRE"), packet.includes(".RELEASE")]),
        options.session ? [] : [[false, true]],
      );
    }
  });

  each("it reports that the lock was lost", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    for (const lose of [
      ["LOCK.BREAK", "k"],
      ["SET", "k", "something else"],
    ]) {
      // The packet arrives in two parts, and the lock is lost between them.
      proxy.splitRequest("LOCK.EXEC");
      const running = new Lock(client, "k").run(["INCR", "n"]);
      await eventually(async () => (await server.holders("k")).length, "the grant");
      await server.ask(...(lose as [string, ...string[]]));
      proxy.letGo();
      await assert.rejects(running, LockLostError);
      assert.equal(await server.ask("GET", "n"), null);
    }
  });

  // Before any reply, within that of the acquire, within that of the command: ":1\r\n" of the release follows it.
  for (const after of [0, 3, -6]) {
    each(`no command is sent twice (cut at ${after})`, async (world) => {
      const server = await world.server();
      const proxy = await world.proxy(server);
      for (let number = 0; number < LOCKS; number++) {
        // Of its own: no withdrawal of the one before is under way there.
        const lock = oneOfEach((await world.connect(proxy)).client)[number] as Lock;
        proxy.cutReply("LOCK.EXEC", after);
        await assert.rejects(lock.run(["INCR", "n"]), (error) => !(error instanceof LockError));
        assert.equal(proxy.cuts, number + 1);
        assert.equal(await server.ask("GET", "n"), String(number + 1));
        await eventually(async () => String(await server.ask("KEYS", "*")) === "n", "the end of the hold");
      }
    });
  }

  each("it returns its reply if only the release has none", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    for (let number = 0; number < LOCKS; number++) {
      const lock = oneOfEach((await world.connect(proxy)).client)[number] as Lock;
      proxy.cutReply("LOCK.EXEC", -4);
      assert.equal(await lock.run(["INCR", "n"]), number + 1);
      assert.equal(proxy.cuts, number + 1);
      await eventually(async () => String(await server.ask("KEYS", "*")) === "n", "the end of the hold");
    }
  });

  each("a release that does not arrive is repeated", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    proxy.splitRequest("LOCK.RELEASE");
    const running = new Lock(client, "k", { lease: 600_000 }).run(["INCR", "n"]);
    await eventually(() => proxy.replies.some((reply) => reply.includes("\r\n:1\r\n")), "the command's reply");
    assert.equal((await server.holders("k")).length, 1);
    proxy.disconnect();
    assert.equal(await running, 1);
    await eventually(async () => (await server.info("k")) === null, "the end of the hold");
  });

  each("it waits in the queue during the grace", async (world) => {
    const server = await world.server(["--lock.grace", "1500"]);
    const { client } = await world.connect(server);
    const running = new Lock(client, "k").run(["INCR", "n"]);
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    assert.equal(await running, 1);
    assert.ok((await server.calls("lock.acquire")) <= 3);
  });

  for (const session of [false, true]) {
    each(`a packet that arrives in part leaves nothing${session ? ", by its session alone" : ""}`, async (world) => {
      const server = await world.server();
      const proxy = await world.proxy(server);
      const { client } = await world.connect(proxy);
      proxy.splitRequest("LOCK.EXEC");
      const running = new Lock(client, "k", { lease: 600_000, session }).run(["INCR", "n"]);
      await eventually(async () => (await server.holders("k")).length, "the grant");
      if (session) await server.ask("ACL", "SETUSER", "default", "-lock.release");
      proxy.disconnect();
      await assert.rejects(running);
      await eventually(async () => (await server.info("k")) === null, "the end of the hold");
      assert.equal(await server.ask("GET", "n"), null);
    });
  }

  each("a connection that ends while it waits", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(server);
    const cut = await world.connect(proxy);
    const hold = await new Lock(client, "k").acquire();
    // With a session the command is on its way: it may have run.
    const session = new Lock(cut.client, "k", { session: true }).run(["INCR", "n"]);
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    proxy.disconnect();
    await assert.rejects(session);
    assert.deepEqual(await server.waiters("k"), []);
    // Without, it was not sent yet.
    const running = new Lock(cut.client, "k").run(["INCR", "n"]);
    await eventually(async () => (await server.waiters("k")).length, "a waiter");
    const asked = await server.calls("lock.acquire");
    proxy.disconnect();
    await eventually(async () => (await server.calls("lock.acquire")) > asked, "the request again");
    await hold.release();
    assert.equal(await running, 1);
  });

  each("an aborted one leaves nothing", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new Lock(client, "k").acquire();
    for (const session of [false, true]) {
      const giveUp = new AbortController();
      const running = new Lock(client, "k", { session }).run(["INCR", "n"], { signal: giveUp.signal });
      await eventually(async () => (await server.waiters("k")).length, "a waiter");
      giveUp.abort(new Error("enough"));
      await assert.rejects(running, /^Error: enough$/);
      assert.deepEqual(await server.waiters("k"), []);
    }
    await hold.release();
    assert.deepEqual([await server.info("k"), await server.ask("GET", "n")], [null, null]);
  });

  each("options that do not apply are refused", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    for (const lock of [
      new Lock(client, "k", { token: "mine" }),
      new Lock(client, "k", { atLeast: 1000 }),
      new Lock(client, "k", { replicas: 1 }),
      new Semaphore(client, "k", 3, { slot: true }),
    ]) {
      await assert.rejects(lock.run(["INCR", "n"]), /run cannot be combined/);
    }
    await assert.rejects(new Lock(client, "k").run([]), /the command of run/);
    await assert.rejects(new Lock(client, "k").run(["INCR", "n"], { token: "mine" } as object), /no option token/);
    // It would wait for its own hold.
    const rw = new RWLock(client, "rw");
    await rw.read.using(() => assert.rejects(rw.write.run(["INCR", "n"]), /use its exec/));
    assert.equal(await server.ask("GET", "n"), null);
    // Without a deadline a process that dies would leave the lock held indefinitely.
    assert.ok((await new Lock(client, "k", { lease: null }).run<number>(["PTTL", "k"])) > 29_000);
    assert.ok(!proxy.packets[0]?.includes("PERSIST"));
  });

  each("next to old clients", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    await server.ask("SET", "k", "an old client's");
    const lock = new Lock(client, "k", { mixed: true, pollInterval: 20 });
    await assert.rejects(lock.run(["INCR", "n"], { wait: 100 }), NotAcquiredError);
    const running = lock.run(["INCR", "n"]);
    const asked = await server.calls("lock.acquire");
    await eventually(async () => (await server.calls("lock.acquire")) > asked + 2, "some polls");
    assert.ok(await isPending(running));
    await server.ask("DEL", "k");
    assert.equal(await running, 1);
  });

  each("it is observed", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const reported: LockEvent[] = [];
    observe(client, (event) => void reported.push(event));
    const lock = new Lock(client, "k");
    await lock.run(["INCR", "n"]);
    assert.deepEqual(
      reported.map(({ event, owner }) => [event, owner]),
      [
        ["granted", reported[0]?.owner],
        ["released", reported[0]?.owner],
      ],
    );
    const hold = await lock.acquire();
    reported.length = 0;
    await assert.rejects(lock.run(["INCR", "n"], { wait: 2000 }), NotAcquiredError);
    assert.deepEqual(
      reported.map(({ event }) => event),
      ["queued", "not_granted"],
    );
    await hold.release();
  });

  each("what is refused after the grant is repeated", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(proxy);
    proxy.splitRequest("LOCK.EXEC");
    const running = new Lock(client, "k").run(["INCR", "n"]);
    await eventually(async () => (await server.holders("k")).length, "the grant");
    await server.ask("CONFIG", "SET", "min-replicas-to-write", 1);
    proxy.letGo();
    const refused = async (): Promise<boolean> =>
      /NOREPLICAS:count=([4-9]|\d\d)/.test(await server.admin.info("errorstats"));
    await eventually(refused, "the packet again");
    await server.ask("CONFIG", "SET", "min-replicas-to-write", 0);
    // The command did not run: the packet was sent again.
    assert.equal(await running, 1);
    assert.equal(await server.info("k"), null);
  });

  each("it follows a slot that moves", async (world) => {
    const cluster = await world.cluster();
    const { client } = world.ending(await world.library.cluster(cluster.nodes[0].port));
    const { slot, source, target } = await cluster.of("k");
    const lock = new Lock(client, "k", { lease: 120_000 });
    assert.equal(await lock.run(["INCR", "{k}n"]), 1);
    const hold = await lock.acquire();
    const waiting = lock.run(["INCR", "{k}n"]);
    await eventually(async () => (await source.waiters("k")).length, "a waiter");
    await cluster.moveSlot(slot, source, target, async () => {
      // ASKING before each command of the packet.
      assert.equal(await new Lock(client, "{k}other").run(["INCR", "{k}n"]), 2);
    });
    await eventually(async () => (await target.waiters("k")).length, "the same waiter at the slot's new node");
    await hold.release();
    assert.equal(await waiting, 3);
    assert.equal(await lock.run(["INCR", "{k}n"]), 4);
    assert.deepEqual([await source.calls("incr"), await target.calls("incr")], [1, 3]);
  });

  each("after a wait it executes where it was granted, while its slot is moved", async (world) => {
    const cluster = await world.cluster();
    const { client } = world.ending(await world.library.cluster(cluster.nodes[0].port));
    const { slot, source, target } = await cluster.of("k");
    await source.ask("SET", "{k}n", 0);
    await cluster.moveSlot(slot, source, target, async () => {
      const hold = await new Lock(client, "k", { lease: 120_000 }).acquire();
      const waiting = new Lock(client, "k").run(["INCR", "{k}n"]);
      await eventually(async () => {
        await target.ask("ASKING");
        return (await target.waiters("k")).length;
      }, "a waiter");
      await hold.release();
      assert.equal(await waiting, 1);
    });
    assert.equal(await source.calls("incr"), 0);
  });

  each("it does not run while its slot moves and one of its keys does not exist, and says so", async (world) => {
    const cluster = await world.cluster();
    const { client } = world.ending(await world.library.cluster(cluster.nodes[0].port));
    const { slot, source, target } = await cluster.of("k");
    await cluster.markMoving(slot, source, target);
    const execs = async (): Promise<number> =>
      (await source.redirections("lock.exec")) + (await target.redirections("lock.exec"));
    for (const session of [false, true]) {
      const lock = new Lock(client, "k", { lease: 120_000, session });
      for (const wait of [0, 700]) {
        const asked = await execs();
        const began = performance.now();
        await assert.rejects(lock.run(["INCR", "{k}n"], { wait }), (error: Error) => {
          return error instanceof NotRunError && /^the command did not run: the slot of the lock/.test(error.message);
        });
        assert.ok(performance.now() - began < wait + 3000);
        assert.ok((await execs()) - asked < 20, "with pauses");
      }
    }
    const holds = await new Lock(client, "{k}held", { lease: 120_000 }).acquire();
    const short = await new Lock(client, "{k}short", { lease: 700 }).acquire();
    await assert.rejects(short.exec("INCR", "{k}n"), LockLostError);
    const executing = [
      holds.exec("INCR", "{k}n"),
      new Lock(client, "k").run(["INCR", "{k}n"]),
      new Lock(client, "{k}session", { session: true }).run(["INCR", "{k}n"]),
      new Lock(client, "{k}polls", { mixed: true }).run(["INCR", "{k}n"]),
    ];
    const asked = await execs();
    await eventually(async () => (await execs()) > asked + 10, "some tries");
    for (const each of executing) assert.ok(await isPending(each));
    assert.equal((await source.calls("incr")) + (await target.calls("incr")), 0);
    await cluster.moveSlot(slot, source, target);
    assert.deepEqual((await Promise.all(executing)).sort(), [1, 2, 3, 4]);
    await holds.release();
  });

  each("a command that could not be sent did not run", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client, end } = await world.connect(proxy, { reconnectMs: 300 });
    const hold = await new Lock(client, "k", { lease: 60_000 }).acquire();
    await server.ask("ACL", "SETUSER", "default", "-lock.acquire");
    await assert.rejects(new Lock(client, "k2").run(["INCR", "n"]), (error: Error) => {
      return error instanceof NotRunError && /NOPERM/.test(error.message) && /NOPERM/.test(String(error.cause));
    });
    // The command's own.
    await server.ask("ACL", "SETUSER", "default", "+lock.acquire", "-incr");
    for (const running of [hold.exec("INCR", "n"), new Lock(client, "k2").run(["INCR", "n"])]) {
      await assert.rejects(running, (error: Error) => !(error instanceof LockError) && /NOPERM/.test(error.message));
    }
    await server.ask("ACL", "SETUSER", "default", "+incr");
    proxy.refuse();
    // A command that was written to a connection that is about to end may have run.
    const seen = client as { isReady?: boolean; status?: string };
    await eventually(() => seen.isReady === false || seen.status === "reconnecting", "the loss of the connection");
    await assert.rejects(hold.exec("INCR", "n"), NotRunError);
    await assert.rejects(new Lock(client, "k2").run(["INCR", "n"], { wait: 100 }), NotRunError);
    await end();
    await assert.rejects(hold.exec("INCR", "n"), NotRunError);
    await assert.rejects(new Lock(client, "k2").run(["INCR", "n"]), NotRunError);
    assert.equal(await server.ask("GET", "n"), null);
  });

  each("a key that has moved says nothing about another key of its slot", async (world) => {
    const cluster = await world.cluster();
    const { client } = world.ending(await world.library.cluster(cluster.nodes[0].port));
    const { slot, source, target } = await cluster.of("k");
    const hold = await new Lock(client, "k", { lease: 120_000 }).acquire();
    await cluster.markMoving(slot, source, target);
    let over = false;
    const moving = (async () => {
      for (let count = 0; !over; count++) await (await new Lock(client, `{k}${count}`).acquire()).release();
    })();
    try {
      for (let count = 0; count < 300; count++) assert.equal(await new Lock(client, "k").tryAcquire(), null);
    } finally {
      over = true;
      await moving;
    }
    await hold.release();
  });
});
