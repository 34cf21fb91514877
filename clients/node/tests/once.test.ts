/** Single-flight and slots: the cases of clients/conformance.md for them, and what is particular to this client. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once as event } from "node:events";
import { join } from "node:path";

import {
  Lock,
  LockError,
  LockLostError,
  NotAcquiredError,
  NotMadeError,
  Semaphore,
  type Hold,
} from "redis-lock-client";
import type { Connected } from "./libraries.js";
import { eventually, type Server } from "./servers.js";
import { isPending, suite } from "./world.js";

const CALLERS = 1000;

/** Reads and makes one value of the server, and counts how often it was made. */
class Value {
  made = 0;

  constructor(
    private readonly connected: Connected,
    private readonly meanwhile: (times: number, hold: Hold) => Promise<unknown> = async () => undefined,
  ) {}

  readonly read = async (): Promise<string | null> => (await this.connected.call("GET", "v")) as string | null;

  readonly make = async (hold: Hold): Promise<string> => {
    const times = ++this.made;
    await this.meanwhile(times, hold);
    await hold.exec("SET", "v", `value ${times}`);
    return `value ${times}`;
  };
}

const waiters = (server: Server, count: number): Promise<unknown> =>
  eventually(async () => (await server.waiters("k")).length === count, `${count} waiters`);

suite("once", (each) => {
  each("coalesce", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const lock = new Lock(client, "k", { lease: 60_000 });
    const coalesce = { coalesce: true } as const;
    let hold = await lock.acquire(coalesce);
    assert.equal(hold.done, false);
    assert.ok(!hold.done);
    const { fence } = hold;
    assert.equal(await lock.tryAcquire(coalesce), null);
    await assert.rejects(lock.acquire({ ...coalesce, wait: 50 }), NotAcquiredError);
    let waiting = [lock.acquire(coalesce), lock.tryAcquire({ ...coalesce, wait: 60_000 })];
    await waiters(server, 2);
    await hold.release();
    for (const answer of await Promise.all(waiting)) assert.deepEqual(answer, { done: true, fence });
    // Failed work was not done: the first waiter is granted the lock, and the other one continues to wait.
    hold = await lock.acquire();
    const first = lock.acquire(coalesce);
    await waiters(server, 1);
    waiting = [lock.acquire(coalesce)];
    await waiters(server, 2);
    await hold.release({ failed: true });
    const next = await first;
    assert.ok(!next.done);
    assert.ok(await isPending(waiting[0] as Promise<unknown>));
    // A request without COALESCE stays in the queue, whatever is done; the same over a dedicated connection.
    const session = new Lock(client, "k", { session: true }).acquire(coalesce);
    await waiters(server, 2);
    const plain = lock.acquire();
    await waiters(server, 3);
    await next.release();
    const done = { done: true, fence: next.fence };
    assert.deepEqual([await waiting[0], await session], [done, done]);
    await (await plain).release();
    assert.equal(await server.ask("DBSIZE"), 0);
    for (const options of [{ mixed: true }, { atLeast: 1000 }]) {
      const other = new Lock(client, "k", options);
      await assert.rejects(other.acquire(coalesce), RangeError);
      await assert.rejects(
        other.once(
          () => "v",
          () => assert.fail(),
        ),
        RangeError,
      );
    }
  });

  each("once", async (world) => {
    const server = await world.server();
    const connected = await world.connect(server);
    const lock = new Lock(connected.client, "k", { lease: 60_000 });
    // Only after all other callers wait for it.
    const value = new Value(connected, () => waiters(server, CALLERS - 1));
    const calls = Array.from({ length: CALLERS }, () => lock.once(value.read, value.make));
    assert.deepEqual([...new Set(await Promise.all(calls))], ["value 1"]);
    assert.equal(value.made, 1);
    assert.equal(await server.info("k"), null);
    assert.equal(await lock.once(value.read, value.make), "value 1");
    // Made by another caller while this one was requesting the lock.
    let looks = 0;
    assert.equal(
      await lock.once(
        () => (++looks === 2 ? "found" : null),
        () => assert.fail(),
      ),
      "found",
    );
    assert.equal(await server.info("k"), null);
    // Separate objects, all at the same time as the maker ends.
    await server.ask("DEL", "v");
    const again = new Value(connected);
    const others = Array.from({ length: CALLERS }, () =>
      new Lock(connected.client, "k", { lease: 60_000 }).once(again.read, again.make),
    );
    assert.deepEqual([...new Set(await Promise.all(others))], ["value 1"]);
    assert.equal(again.made, 1);
    assert.equal(await server.info("k"), null);
  });

  each("once-in-time", async (world) => {
    const server = await world.server();
    const connected = await world.connect(server);
    const lock = new Lock(connected.client, "k", { lease: 60_000 });
    const value = new Value(connected);
    const holder = await lock.acquire();
    for (const wait of [300, 0]) {
      const began = performance.now();
      await assert.rejects(lock.once(value.read, value.make, { wait }), (error: Error) => {
        return error instanceof NotMadeError && error.message.includes(`no value after ${wait} ms`);
      });
      assert.ok(performance.now() - began >= wait - 1);
    }
    // A value that arrived in the last moment is returned.
    let looked = 0;
    assert.equal(
      await lock.once(
        () => (++looked === 2 ? "late" : null),
        () => assert.fail(),
        { wait: 20 },
      ),
      "late",
    );
    assert.equal(value.made, 0);
    // Done but missing: requested again.
    const waiting = lock.once(value.read, value.make, { wait: 60_000 });
    await waiters(server, 1);
    await holder.release();
    assert.deepEqual([await waiting, value.made], ["value 1", 1]);
    assert.equal(await server.info("k"), null);
  });

  each("once-maker-is-slow", async (world) => {
    const server = await world.server();
    const connected = await world.connect(server);
    const lock = new Lock(connected.client, "k", { lease: 6000 });
    const value = new Value(connected, () =>
      eventually(async () => (await server.calls("lock.renew")) >= 4, "renewals for longer than the lease"),
    );
    const first = lock.once(value.read, value.make);
    await eventually(() => value.made === 1, "the maker");
    assert.deepEqual(await Promise.all([first, lock.once(value.read, value.make)]), ["value 1", "value 1"]);
    assert.equal(value.made, 1);
    // Unless disabled, or done by the server; an acquire renews only with the option.
    await server.ask("DEL", "v");
    const renewals = await server.calls("lock.renew");
    const short = new Lock(connected.client, "k", { lease: 300, autoRenew: false });
    let makers = 0;
    const hanging = (): Promise<never> => new Promise(() => (makers += 1));
    void short.once(value.read, hanging);
    await eventually(() => makers === 1, "a maker that hangs");
    const long = new Lock(connected.client, "k", { lease: 600_000 });
    assert.equal(await long.once(value.read, async () => "after the lease"), "after the lease");
    const session = new Lock(connected.client, "k", { lease: 1200, session: true });
    const bound = async (): Promise<string> => {
      await eventually(async () => (await server.holders("k"))[0]?.["age"] > 2500, "a hold that outlives its lease");
      return "bound";
    };
    assert.equal(await session.once(value.read, bound), "bound");
    assert.equal(await server.calls("lock.renew"), renewals);
    await assert.rejects(new Lock(connected.client, "k", { lease: null }).once(value.read, value.make), RangeError);
  });

  each("once-maker-fails", async (world) => {
    const server = await world.server();
    const connected = await world.connect(server);
    const lock = new Lock(connected.client, "k", { lease: 60_000 });
    const value = new Value(connected, async (times) => {
      if (times > 1) return;
      await waiters(server, 3);
      throw new Error("mine");
    });
    const first = lock.once(value.read, value.make);
    first.catch(() => undefined);
    await eventually(() => value.made === 1, "the maker");
    const granted = lock.acquire({ coalesce: true });
    await waiters(server, 1);
    const others = [lock.once(value.read, value.make), lock.once(value.read, value.make)];
    await assert.rejects(first, /^Error: mine$/);
    // The work was not reported as done.
    const hold = await granted;
    assert.ok(!hold.done);
    await hold.release({ failed: true });
    assert.deepEqual([await Promise.all(others), value.made], [["value 2", "value 2"], 2]);
    // The read under the lock may fail too; a throw counts as a rejection.
    await server.ask("DEL", "v");
    let looks = 0;
    const failing = lock.once(
      () => {
        if (++looks === 2) throw new Error("looking");
        return null;
      },
      () => assert.fail(),
    );
    await assert.rejects(failing, /^Error: looking$/);
    assert.equal(await server.info("k"), null);
  });

  each("once-maker-is-cancelled", async (world) => {
    const server = await world.server();
    const connected = await world.connect(server);
    const lock = new Lock(connected.client, "k", { lease: 60_000 });
    const giveUp = new AbortController();
    const { signal } = giveUp;
    const untilAborted = (): Promise<unknown> => event(new EventTarget(), "never", { signal });
    const value = new Value(connected, async (times) => (times === 1 ? untilAborted() : undefined));
    const first = lock.once(value.read, value.make, { signal });
    first.catch(() => undefined);
    await eventually(() => value.made === 1, "the maker");
    const second = lock.once(value.read, value.make);
    await waiters(server, 1);
    giveUp.abort();
    await assert.rejects(first, { name: "AbortError" });
    assert.deepEqual([await second, value.made], ["value 2", 2]);
    assert.equal(await server.info("k"), null);
  });

  each("a maker that ignores the signal delays its caller by a second and keeps the lock", async (world) => {
    const server = await world.server();
    const connected = await world.connect(server);
    const lock = new Lock(connected.client, "k", { lease: 60_000 });
    const giveUp = new AbortController();
    let finish = (): void => undefined;
    const value = new Value(connected, () => new Promise<void>((done) => (finish = done)));
    const first = lock.once(value.read, value.make, { signal: giveUp.signal });
    first.catch(() => undefined);
    await eventually(() => value.made === 1, "the maker");
    const second = lock.once(value.read, value.make);
    await waiters(server, 1);
    const began = performance.now();
    giveUp.abort(new Error("enough"));
    await assert.rejects(first, /^Error: enough$/);
    assert.ok(performance.now() - began >= 999);
    // Otherwise two callers would make it.
    assert.ok(await isPending(second));
    finish();
    assert.deepEqual([await second, value.made], ["value 1", 1]);
    assert.equal(await server.info("k"), null);
  });

  each("the error of a maker does not wait for a server that is gone", async (world) => {
    const server = await world.server();
    const connected = await world.connect(server);
    const lock = new Lock(connected.client, "k", { lease: 60_000 });
    let failed = 0;
    const making = lock.once(
      () => null,
      async () => {
        server.pause();
        failed = performance.now();
        throw new Error("mine");
      },
    );
    try {
      await assert.rejects(making, /^Error: mine$/);
      // A second, and what a busy machine adds; a release is tried for ten.
      assert.ok(performance.now() - failed < 4000);
    } finally {
      server.resume();
    }
    // It goes on in the background.
    await eventually(async () => (await server.info("k")) === null, "the release");
  });

  each("a made value is returned though its release fails", async (world) => {
    const server = await world.server();
    const connected = await world.connect(server);
    await server.ask("ACL", "SETUSER", "default", "-lock.release");
    const lock = new Lock(connected.client, "k", { lease: 3000 });
    const value = new Value(connected);
    assert.equal(await lock.once(value.read, value.make), "value 1");
    // It is no longer renewed: its lease ends it.
    await eventually(async () => (await server.info("k")) === null, "the end of the lease");
  });

  each("nothing is made for a caller that cancelled before", async (world) => {
    const server = await world.server();
    const connected = await world.connect(server);
    const lock = new Lock(connected.client, "k", { lease: 60_000 });
    const giveUp = new AbortController();
    let looks = 0;
    const making = lock.once(
      async () => {
        if (++looks === 2) giveUp.abort(new Error("enough"));
        return null;
      },
      () => assert.fail("made"),
      { signal: giveUp.signal },
    );
    await assert.rejects(making, /^Error: enough$/);
    assert.equal(looks, 2);
    await eventually(async () => (await server.info("k")) === null, "the release");
    assert.equal(await server.calls("lock.release"), 1);
  });

  each("a caller that cancels while another one makes the value leaves nothing", async (world) => {
    const server = await world.server();
    const connected = await world.connect(server);
    const proxy = await world.proxy(server);
    const cut = await world.connect(proxy);
    const lock = new Lock(cut.client, "k", { lease: 60_000 });
    const value = new Value(connected);
    let giveUp = new AbortController();
    let holder = await new Lock(connected.client, "k").acquire();
    let waiting = lock.once(value.read, value.make, { signal: giveUp.signal });
    await waiters(server, 1);
    giveUp.abort(new Error("enough"));
    await assert.rejects(waiting, /^Error: enough$/);
    assert.deepEqual(await server.waiters("k"), []);
    // With the grant on its way: the others are not informed that the work is done.
    giveUp = new AbortController();
    waiting = lock.once(value.read, value.make, { signal: giveUp.signal });
    await waiters(server, 1);
    const other = new Lock(connected.client, "k").acquire({ coalesce: true });
    await waiters(server, 2);
    proxy.holdMessages();
    await holder.release({ failed: true });
    await eventually(() => proxy.held > 0, "a grant that nobody knows of");
    giveUp.abort(new Error("enough"));
    await assert.rejects(waiting, /^Error: enough$/);
    const granted = await other;
    assert.ok(!granted.done);
    await granted.release();
    await assert.rejects(lock.once(value.read, value.make, { signal: giveUp.signal }), /^Error: enough$/);
    assert.equal(value.made, 0);
    holder = await new Lock(connected.client, "k").acquire();
    await holder.release();
  });

  each("once-maker-dies", async (world) => {
    const server = await world.server();
    const connected = await world.connect(server);
    const file = join(__dirname, "once_worker.js");
    const args = [file, world.library.name, String(server.port), "3000"];
    const maker = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    try {
      await event(maker.stdout, "data");
      const value = new Value(connected);
      const lock = new Lock(connected.client, "k", { lease: 60_000 });
      const calls = [lock.once(value.read, value.make), lock.once(value.read, value.make)];
      await waiters(server, 2);
      assert.equal(value.made, 0);
      maker.kill("SIGKILL");
      assert.deepEqual([await Promise.all(calls), value.made], [["value 1", "value 1"], 1]);
    } finally {
      maker.kill("SIGKILL");
    }
  });

  each("once-maker-loses-its-lock", async (world) => {
    const server = await world.server();
    const connected = await world.connect(server);
    const lock = new Lock(connected.client, "k", { lease: 60_000 });
    for (const guarded of [true, false]) {
      await server.ask("DEL", "v");
      let reported = 0;
      let makers = 0;
      const value = new Value(connected);
      // `exec` refuses its own writes; or it does not notice the loss, and returns what it made.
      const losing = async (hold: Hold): Promise<string> => {
        hold.once("lost", () => (reported += 1));
        makers += 1;
        await waiters(server, 1);
        await server.ask("LOCK.BREAK", "k");
        await eventually(value.read, "what the second one makes");
        if (guarded) await hold.exec("SET", "v", "overwritten");
        return "lost";
      };
      const first = lock.once(value.read, losing);
      await eventually(() => makers === 1, "the maker");
      const second = lock.once(value.read, value.make);
      assert.deepEqual(await Promise.all([first, second]), ["value 1", "value 1"]);
      assert.deepEqual([reported, makers, value.made], [1, 1, 1]);
      assert.equal(await server.info("k"), null);
    }
    // With nothing to read, its caller gets the refusal.
    await server.ask("DEL", "v");
    const alone = lock.once(
      () => null,
      async (hold) => {
        await server.ask("LOCK.BREAK", "k");
        return hold.exec<string>("GET", "v");
      },
    );
    await assert.rejects(alone, LockLostError);
  });

  each("done that is reported late leaves no request behind", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(server);
    const cut = await world.connect(proxy);
    const lock = new Lock(client, "k", { lease: 60_000 });
    const first = await lock.acquire();
    const waiting = new Lock(cut.client, "k").acquire({ coalesce: true });
    await waiters(server, 1);
    const second = lock.acquire();
    await waiters(server, 2);
    proxy.keepMessages();
    await first.release();
    const next = await second;
    // Later it repeats its request and is queued behind the next holder.
    await waiters(server, 1);
    proxy.letMessagesGo();
    assert.deepEqual(await waiting, { done: true, fence: first.fence });
    assert.deepEqual(await server.waiters("k"), []);
    await next.release();
    assert.equal(await server.info("k"), null);
  });

  each("done that is reported to a repeated request leaves nothing behind", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const hold = await new Lock(client, "k", { lease: 60_000 }).acquire();
    const waiting = new Lock(client, "k").acquire({ coalesce: true });
    await waiters(server, 1);
    const asked = await server.calls("lock.acquire");
    await eventually(async () => (await server.calls("lock.acquire")) > asked, "the request again");
    await hold.release();
    assert.deepEqual(await waiting, { done: true, fence: hold.fence });
    // The message may be about the request before, and this one be queued behind the next holder.
    assert.deepEqual([await server.calls("lock.cancel"), await server.calls("lock.release")], [1, 2]);
    assert.equal(await server.info("k"), null);
  });

  each("slot", async (world) => {
    const server = await world.server();
    const proxy = await world.proxy(server);
    const { client } = await world.connect(server);
    const semaphore = new Semaphore(client, "s", 3, { lease: 60_000, slot: true });
    const holds = [await semaphore.acquire(), await semaphore.acquire(), await semaphore.acquire()];
    assert.deepEqual(
      holds.map(({ slot, holds }) => [slot, holds]),
      [0, 1, 2].map((slot) => [slot, 1]),
    );
    assert.deepEqual((await server.holders("s")).map(({ slot }) => slot).sort(), [0, 1, 2]);
    assert.equal(await semaphore.tryAcquire(), null);
    // The message gives a waiter its slot, without a retry.
    const waiting = semaphore.acquire();
    await eventually(async () => (await server.waiters("s")).length, "a waiter");
    const asked = await server.calls("sem.acquire");
    await holds[1]?.release();
    const next = await waiting;
    assert.deepEqual([next.slot, await server.calls("sem.acquire")], [1, asked]);
    await next.extend(60_000);
    // After a lost reply, and for an owner that repeats its request, the slot is the same.
    await holds[0]?.release();
    const cut = await world.connect(proxy);
    proxy.cutReply("SEM.ACQUIRE", 3);
    const retried = await new Semaphore(cut.client, "s", 3, { slot: true, token: "me" }).acquire();
    const same = await new Semaphore(client, "s", 3, { slot: true, token: "me" }).acquire({ wait: 0 });
    assert.deepEqual([proxy.cuts, retried.slot, same.slot, same.fence], [1, 0, 0, retried.fence]);
    const own = new Semaphore(client, "s", 3, { slot: true });
    const handed = await own.fromToken("me");
    const before = await server.calls("sem.acquire");
    await assert.rejects(own.acquire({ token: "me" }), LockError);
    assert.deepEqual([await server.calls("sem.acquire"), handed.fence], [before, same.fence]);
    const holder = (await server.holders("s")).find(({ owner }) => owner === "me");
    assert.deepEqual([holder?.["slot"], holder?.["holds"]], [0, 1]);
    await same.release();
    for (const hold of [next, holds[2]]) await hold?.release();
    assert.equal(await server.info("s"), null);
    // Over a dedicated connection; no slot unless it was requested.
    const session = await new Semaphore(client, "s", 3, { slot: true, session: true }).acquire();
    assert.equal(session.slot, 0);
    await session.release();
    const plain = await new Semaphore(client, "s", 3).acquire();
    assert.equal(plain.slot, undefined);
    await plain.release();
    assert.throws(() => new Semaphore(client, "s", 3, { slot: true, permits: 2 }), RangeError);
    await assert.rejects(semaphore.acquire({ permits: 2 }), RangeError);
  });
});
