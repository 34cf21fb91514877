/**
 * Why nothing was granted: the error at the end of a wait or of a signal says it; a refused user ends an acquire
 * immediately.
 */

import assert from "node:assert/strict";
import net from "node:net";
import tls from "node:tls";

import { Lock, Semaphore, type RedisClient } from "redis-lock-client";
import type { Connected } from "./libraries.js";
import { eventually, freePort, type Server } from "./servers.js";
import { suite, type World } from "./world.js";

/** On a busy machine the first reply may take seconds. */
const WAIT_MS = 4000;

/**
 * Errors of connections that are closed immediately. After 20 of them, less than a second here, ioredis rejects a
 * command; the error of `run` has only the message of that error, not its class.
 */
const ENDED = /closed|lost|ECONNRESET|EPIPE|not ready|MaxRetries|max retries/;

interface Limits {
  wait?: number;
  signal?: AbortSignal;
}

const acquires: Record<string, (client: RedisClient, key: string, limits: Limits) => Promise<unknown>> = {
  acquire: (client, key, limits) => new Lock(client, key).acquire(limits),
  tryAcquire: (client, key, limits) => new Lock(client, key).tryAcquire(limits),
  using: (client, key, limits) => new Lock(client, key).using(() => undefined, limits),
  coalesce: (client, key, limits) => new Lock(client, key).acquire({ ...limits, coalesce: true }),
  once: (client, key, limits) =>
    new Lock(client, key).once(
      () => null,
      () => 1,
      limits,
    ),
  run: (client, key, limits) => new Lock(client, key).run(["PING"], limits),
  "run with session": (client, key, limits) => new Lock(client, key, { session: true }).run(["PING"], limits),
  session: (client, key, limits) => new Lock(client, key, { session: true }).acquire(limits),
  replicas: (client, key, limits) => new Lock(client, key, { replicas: 1 }).acquire(limits),
  token: (client, key, limits) => new Lock(client, key, { token: "me" }).acquire(limits),
  mixed: (client, key, limits) => new Lock(client, key, { mixed: true }).acquire(limits),
  semaphore: (client, key, limits) => new Semaphore(client, key, 3, { slot: true }).acquire(limits),
};

const warnings: string[] = [];
process.on("warning", (warning) => void warnings.push(warning.message));

async function listening(server: net.Server): Promise<number> {
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return (server.address() as net.AddressInfo).port;
}

/** Its name, its address, and what the errors say. */
type Place = [string, { port: number }, RegExp];

/** A port on which nothing listens, a TLS port, a replica, and a server that closes each connection. */
async function places(world: World): Promise<Place[]> {
  const secured = tls.createServer(() => undefined).on("tlsClientError", () => undefined);
  const ending = net.createServer((socket) => void socket.destroy());
  const ports = [await listening(secured), await listening(ending)] as const;
  world.atEnd(async () => (secured.close(), ending.close()));
  const primary = await world.server();
  const replica = await world.server(["--replicaof", `127.0.0.1 ${primary.port}`]);
  await eventually(async () => (await replica.replication("master_link_status")) === "up", "the replica");
  return [
    ["closed", { port: await freePort() }, /ECONNREFUSED/],
    ["TLS", { port: ports[0] }, new RegExp(`${ENDED.source}|Protocol error|Unknown RESP type`)],
    ["ending", { port: ports[1] }, ENDED],
    ["replica", replica, /READONLY/],
  ];
}

suite("the cause", (each) => {
  each("is the error at the end of a wait, and the cause of an aborted one", async (world) => {
    const refuses = async ([place, to, says]: Place): Promise<void> => {
      const { client } = await world.connect(to);
      const keyOf = (way: string): string => `${place}:${way}:${world.library.name}`;
      // It does not wait, and knows only what the connection has reported until then. On a busy machine that takes more
      // than one attempt.
      const limits = (): Limits => ({ signal: AbortSignal.timeout(WAIT_MS) });
      const errorOfTry = (): Promise<string> =>
        new Lock(client, keyOf("tryAcquire")).tryAcquire(limits()).then(
          () => assert.fail(`${keyOf("tryAcquire")}: granted`),
          (error: Error) => `${error.message} ${String(error.cause)}`,
        );
      await eventually(async () => says.test(await errorOfTry()), `${place}: the cause`);
      const waits = Object.entries(acquires).map(([way, acquire]) =>
        acquire(client, keyOf(way), { wait: WAIT_MS }).then(
          () => assert.fail(`${keyOf(way)}: granted`),
          (error: Error) => assert.match(`${error.name}: ${error.message}`, says, keyOf(way)),
        ),
      );
      const waiting = Object.entries(acquires).filter(([way]) => way !== "tryAcquire");
      const signals = waiting.map(([way, acquire]) =>
        acquire(client, keyOf(way), limits()).then(
          () => assert.fail(`${keyOf(way)}: granted`),
          (error: Error) => {
            assert.equal(error.name, "TimeoutError", keyOf(way));
            assert.match(String(error.cause), says, keyOf(way));
          },
        ),
      );
      await Promise.all([...waits, ...signals]);
    };
    await Promise.all((await places(world)).map(refuses));
  });

  each("is what the connection reported after the request was given up", async (world) => {
    const proxy = await world.proxy(await world.server());
    const { client } = await world.connect(proxy);
    proxy.silence();
    proxy.disconnect();
    const { accepted } = proxy;
    await eventually(() => proxy.accepted > accepted, "the next connection");
    const ends = new AbortController();
    const waiting = new Lock(client, "k").acquire({ signal: ends.signal });
    // A request is given up after two seconds without a connection, and sent again.
    await new Promise((done) => setTimeout(done, 2500));
    proxy.refuse();
    await eventually(() => proxy.refused, "a refused connection");
    ends.abort();
    await assert.rejects(waiting, (error: Error) => ENDED.test(String(error.cause)));
  });

  each("of a wait without a limit is one warning", async (world) => {
    const { client, end } = await world.connect({ port: await freePort() });
    const key = `without an end:${world.library.name}`;
    const waiting = [1, 2, 3].map(() => assert.rejects(new Lock(client, key).acquire()));
    const about = (): string[] => warnings.filter((warning) => warning.includes(`"${key}"`));
    await eventually(() => about().length, "the warning");
    assert.match(about()[0] ?? "", /failed, retrying: .*ECONNREFUSED/);
    await new Promise((done) => setTimeout(done, 3000));
    assert.equal(about().length, 1);
    await end();
    await Promise.all(waiting);
  });

  each("is an earlier refusal if the last request of the wait gets no reply", async (world) => {
    const primary = await world.server();
    const replica = await world.server(["--replicaof", `127.0.0.1 ${primary.port}`]);
    await eventually(async () => (await replica.replication("master_link_status")) === "up", "the replica");
    const proxy = await world.proxy(replica);
    const { client } = await world.connect(proxy);
    const waiting = assert.rejects(new Lock(client, "k").acquire({ wait: WAIT_MS }), /READONLY/);
    // The reply to the first one has arrived then.
    await eventually(async () => (await replica.redirections("lock.acquire")) > 1, "another request");
    proxy.silence();
    await waiting;
    proxy.speak();
  });

  each("is not logged for an ordinary wait", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    await server.ask("LOCK.ACQUIRE", "k", "other", "PX", 600_000);
    await assert.rejects(new Lock(client, "k").acquire({ signal: AbortSignal.timeout(300) }), (error: Error) => {
      return error.name === "TimeoutError" && error.cause === undefined;
    });
    // The caller's own cause is kept.
    const reason = new Error("enough", { cause: "mine" });
    const giveUp = new AbortController();
    const { client: unreachable } = await world.connect({ port: await freePort() });
    const waiting = assert.rejects(new Lock(unreachable, "k").acquire({ signal: giveUp.signal }), (error) => {
      return error === reason && reason.cause === "mine";
    });
    giveUp.abort(reason);
    await waiting;
  });

  each("is reported immediately when a single-server client meets a node of a cluster", async (world) => {
    const cluster = await world.cluster();
    const { source, target } = await cluster.of("{k}");
    await source.ask("LOCK.ACQUIRE", "{k}", "other", "PX", 600_000);
    const { client: ofOther } = await world.connect(target);
    const { client } = await world.connect(source);
    for (const [way, acquire] of Object.entries(acquires)) {
      await assert.rejects(acquire(ofOther, "{k}", { wait: 60_000 }), /node of a cluster/, way);
    }
    // The key belongs to this node, but the channel on which it waits does not.
    await assert.rejects(new Lock(client, "{k}").acquire({ wait: 60_000 }), /node of a cluster/);
  });

  each("ends an acquire immediately if the user is refused", async (world) => {
    const cluster = await world.cluster();
    const [primary, sentinel] = [await world.server(), await world.server([], { sentinel: true })];
    await sentinel.ask("SENTINEL", "MONITOR", "main", "127.0.0.1", primary.port, 1);
    const user = { username: "worker", password: "right" };
    const allowed = ["ACL", "SETUSER", "worker", "reset", "on", ">right", "~*", "&*", "+@all"] as const;
    for (const server of [primary, ...cluster.nodes]) await server.ask(...allowed);
    const ways: [string, Server[], () => Promise<Connected>][] = [
      ["single", [primary], () => world.library.connect(primary.port, user)],
      ["cluster", cluster.nodes, () => world.library.cluster(cluster.nodes[0].port, undefined, user)],
      ["sentinel", [primary], () => world.library.sentinel(sentinel.port, undefined, user)],
    ];
    for (const [way, servers, connect] of ways) {
      const { client } = world.ending(await connect());
      await new Lock(client, "warm").using(() => undefined);
      const changes: [string, string[]][] = [
        ["NOPERM", ["-lock.acquire", "-sem.acquire"]],
        ["WRONGPASS", ["+@all", "resetpass", ">changed"]],
      ];
      for (const [code, change] of changes) {
        for (const server of servers) {
          await server.ask("ACL", "SETUSER", "worker", ...change);
          if (code === "WRONGPASS") await server.ask("CLIENT", "KILL", "USER", "worker");
        }
        // What is on its way when the connection ends may have run.
        await assert.rejects(new Lock(client, "{k}first").acquire(), new RegExp(code), way);
        const asked = Object.entries(acquires).map(async ([name, acquire]) => {
          const began = performance.now();
          await assert.rejects(acquire(client, `{k}${name}`, {}), (error: Error) => {
            return new RegExp(code).test(error.message) || assert.fail(`${way}, ${name}: ${error}`);
          });
          assert.ok(performance.now() - began < 10_000, `${way}, ${name}`);
        });
        await Promise.all(asked);
      }
      for (const server of servers) await server.ask(...allowed);
    }
  });

  each("is a missing password", async (world) => {
    const server = await world.server();
    await server.ask("ACL", "SETUSER", "default", "resetpass", ">secret");
    const { client } = await world.connect(server);
    for (const [name, acquire] of Object.entries(acquires)) {
      await assert.rejects(acquire(client, name, {}), /NOAUTH/, name);
    }
  });
});
