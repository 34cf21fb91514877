/** Real servers for the tests: single, with replicas, as a cluster, with Sentinel; and a proxy that loses replies. */

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

import { Redis } from "ioredis";

// From clients/node/build/tests.
const ROOT = resolve(__dirname, "../../../..");
export const MODULE = process.env["REDIS_LOCK_MODULE"] || join(ROOT, "target/release/libredis_lock.so");
export const SERVER = process.env["REDIS_SERVER"] || "redis-server";
// No test depends on the machine's speed: it waits for a late state, and fails if the state never comes.
const TIMEOUT_MS = 60_000;

/**
 * Allowance for time limits: on a busy machine, with the other tests of a file in parallel, the event loop runs late.
 */
export const BUSY_MS = 3_000;

export const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** Wait for a state. */
export async function eventually<T>(state: () => T | Promise<T>, what: string): Promise<NonNullable<T>> {
  const end = Date.now() + TIMEOUT_MS;
  for (;;) {
    const found = await state();
    if (found) return found as NonNullable<T>;
    assert.ok(Date.now() < end, `never came: ${what}`);
    await sleep(5);
  }
}

/** A free port: the cluster bus has the free port 10,000 above. Outgoing connections have higher ports. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 2_000 + Math.floor(Math.random() * 10_000);
    if ((await isFree(port)) && (await isFree(port + 10_000))) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const listening = net.createServer().listen(port, "127.0.0.1");
  const listens = await new Promise<boolean>((done) => {
    listening.once("listening", () => done(true)).once("error", () => done(false));
  });
  if (listens) await new Promise((done) => listening.close(done));
  return listens;
}

type Fields = Record<string, any>; // eslint-disable-line @typescript-eslint/no-explicit-any

function fields(flat: unknown[]): Fields {
  const found: Fields = {};
  for (let at = 0; at + 1 < flat.length; at += 2) found[String(flat[at])] = flat[at + 1];
  return found;
}

const running = new Set<Server>();
process.on("exit", () => {
  for (const server of running) server.kill();
});

/** A redis-server with its own port and directory. */
export class Server {
  readonly dir = mkdtempSync(join(tmpdir(), "redis-lock-node-"));
  private process: ChildProcess;
  private readonly words: string[];
  readonly admin: Redis;

  private constructor(
    readonly port: number,
    options: string[],
    sentinel: boolean,
    module: boolean,
  ) {
    const config = join(this.dir, "redis.conf");
    writeFileSync(config, `port ${port}\nbind 127.0.0.1\ndir ${this.dir}\n`);
    const words = [config];
    if (sentinel) {
      words.push("--sentinel");
    } else {
      words.push("--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0");
      if (module) words.push("--loadmodule", MODULE);
    }
    this.words = [...words, ...options];
    this.process = this.spawn();
    running.add(this);
    this.admin = new Redis({ port, lazyConnect: true, maxRetriesPerRequest: null, retryStrategy: () => 20 });
    this.admin.on("error", () => undefined);
  }

  static async start(
    options: string[] = [],
    { module = true, sentinel = false, port }: { module?: boolean; sentinel?: boolean; port?: number } = {},
  ): Promise<Server> {
    for (;;) {
      const server = new Server(port ?? (await freePort()), options, sentinel, module);
      try {
        await eventually(() => server.answers(), `a server on port ${server.port}`);
        return server;
      } catch (error) {
        // Another process may have taken the port since it was found to be free.
        const isTaken = port === undefined && server.log.includes("Address already in use");
        await server.stop();
        if (!isTaken) throw error;
      }
    }
  }

  private spawn(): ChildProcess {
    const log = openSync(join(this.dir, "log"), "a");
    const spawned = spawn(SERVER, this.words, { stdio: ["ignore", log, log] });
    closeSync(log);
    return spawned;
  }

  /** Killed, and started again in the same directory: with `--appendonly yes` it has what it had. */
  async restart(downMs: number): Promise<void> {
    const ended = new Promise((done) => this.process.once("exit", done));
    this.process.kill("SIGKILL");
    await ended;
    await sleep(downMs);
    this.process = this.spawn();
    await eventually(() => this.answers(), `the server on port ${this.port} again`);
  }

  private get log(): string {
    return readFileSync(join(this.dir, "log"), "utf8");
  }

  /** True if this server answers, and not another one on the same port. */
  private async answers(): Promise<boolean> {
    assert.equal(this.process.exitCode, null, this.log);
    // Without a server the library waits for one: the look at the process must come again.
    const info = await Promise.race([this.admin.info("server").catch(() => ""), sleep(1000).then(() => "")]);
    return info.includes(`process_id:${this.process.pid}\r`) && (await this.admin.ping().catch(() => "")) === "PONG";
  }

  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  ask(command: string, ...args: (string | number | Buffer)[]): Promise<any> {
    return this.admin.call(command, ...args);
  }

  /** The waiting owners, in queue order; with `asking` also while the slot is still being imported. */
  async waiters(key: string, asking = false): Promise<string[]> {
    if (asking) void this.ask("ASKING");
    const waiters = (await this.ask("LOCK.WAITERS", key, "COUNT", 0)) as unknown[][];
    return waiters.map((waiter) => fields(waiter)["owner"]);
  }

  /** Releases the lock while two requests wait: a waiter that is between two requests is skipped. */
  async releaseBeforeTwo(key: string, owner: string): Promise<boolean> {
    const script =
      "return #redis.call('LOCK.WAITERS', KEYS[1], 'COUNT', 0) == 2" +
      " and redis.call('LOCK.RELEASE', KEYS[1], ARGV[1]) or 0";
    return (await this.ask("EVAL", script, 1, key, owner)) === 1;
  }

  async info(key: string): Promise<Fields | null> {
    const found = await this.ask("LOCK.INFO", key);
    return found === null ? null : fields(found);
  }

  async holders(key: string): Promise<Fields[]> {
    const found = await this.info(key);
    return found === null ? [] : found["holders"].map(fields);
  }

  /** The number of calls of a command. */
  async calls(command: string): Promise<number> {
    const stats = (await this.admin.info("commandstats")) as string;
    return Number(new RegExp(`cmdstat_${command.replace(".", "\\.")}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  }

  /** How often a command was refused before it ran, such as by a redirection or a replica. */
  async redirections(command: string): Promise<number> {
    const stats = (await this.admin.info("commandstats")) as string;
    return Number(new RegExp(`cmdstat_${command.replace(".", "\\.")}:.*rejected_calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  }

  /** The number of other connections. */
  async connections(): Promise<number> {
    const list = (await this.ask("CLIENT", "LIST")) as string;
    return list.trim().split("\n").length - 1;
  }

  async replication(field: string): Promise<string | undefined> {
    const info = await this.admin.info("replication").catch(() => "");
    return new RegExp(`^${field}:(.*?)\\r?$`, "m").exec(info)?.[1];
  }

  pause(): void {
    this.process.kill("SIGSTOP");
  }

  resume(): void {
    this.process.kill("SIGCONT");
  }

  kill(): void {
    this.process.kill("SIGKILL");
    rmSync(this.dir, { recursive: true, force: true });
  }

  async stop(): Promise<void> {
    running.delete(this);
    this.admin.disconnect();
    const ended = new Promise((done) => this.process.once("exit", done));
    if (this.process.exitCode === null && this.process.signalCode === null) {
      this.process.kill("SIGKILL");
      await ended;
    }
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** Two primaries that share the slots. */
export class Cluster {
  private static readonly options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "60000"];
  private readonly added: Server[] = [];

  private constructor(readonly nodes: [Server, Server]) {}

  static async start(): Promise<Cluster> {
    const [first, second] = [await Server.start(Cluster.options), await Server.start(Cluster.options)];
    await first.ask("CLUSTER", "ADDSLOTSRANGE", 0, 8191);
    await second.ask("CLUSTER", "ADDSLOTSRANGE", 8192, 16383);
    await second.ask("CLUSTER", "SET-CONFIG-EPOCH", 2);
    await first.ask("CLUSTER", "MEET", "127.0.0.1", second.port);
    for (const node of [first, second]) {
      await eventually(async () => {
        const info = (await node.ask("CLUSTER", "INFO")) as string;
        return info.includes("cluster_state:ok") && info.includes("cluster_known_nodes:2");
      }, "a cluster of two");
    }
    return new Cluster([first, second]);
  }

  /** Which node serves the key, and which does not. */
  async of(key: string): Promise<{ slot: number; source: Server; target: Server }> {
    const slot = Number(await this.nodes[0].ask("CLUSTER", "KEYSLOT", key));
    const [first, second] = this.nodes;
    return slot < 8192 ? { slot, source: first, target: second } : { slot, source: second, target: first };
  }

  /** A node without slots, which no client knows. */
  async grow(): Promise<Server> {
    const third = await Server.start(Cluster.options);
    this.added.push(third);
    await third.ask("CLUSTER", "SET-CONFIG-EPOCH", 3);
    await this.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", third.port);
    for (const node of [...this.nodes, third]) {
      await eventually(async () => {
        const info = (await node.ask("CLUSTER", "INFO")) as string;
        return info.includes("cluster_state:ok") && info.includes("cluster_known_nodes:3");
      }, "a cluster of three");
    }
    return third;
  }

  /** Starts to move the slot; its keys stay where they were. */
  async markMoving(slot: number, source: Server, target: Server): Promise<void> {
    await target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", await source.ask("CLUSTER", "MYID"));
    await source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", await target.ask("CLUSTER", "MYID"));
  }

  async moveSlot(slot: number, source: Server, target: Server, meanwhile?: () => Promise<void>): Promise<void> {
    await this.markMoving(slot, source, target);
    for (const key of (await source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100)) as string[]) {
      await source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000);
    }
    await meanwhile?.();
    const targetId = await target.ask("CLUSTER", "MYID");
    for (const node of [target, source]) await node.ask("CLUSTER", "SETSLOT", slot, "NODE", targetId);
  }

  async stop(): Promise<void> {
    await Promise.all([...this.nodes, ...this.added].map((node) => node.stop()));
  }
}

/** Forwards to a server, and cuts or holds back the reply to a chosen request. */
export class Proxy {
  port = 0;
  cuts = 0;
  held = 0;
  requests = 0;
  accepted = 0;
  refused = 0;
  private cut: string | undefined;
  private cutAfter = 0;
  private hold: string | undefined;
  private kept: string | undefined;
  private split: string | undefined;
  /** The data that arrived together, of requests with LOCK.EXEC. */
  readonly packets: string[] = [];
  readonly replies: string[] = [];
  private go: (() => void) | undefined;
  private refusing = false;
  private silent = false;
  private holdingMessages = false;
  private keptMessages: (() => void)[] | undefined;
  private readonly listening: net.Server;
  private readonly sockets = new Set<net.Socket>();

  private constructor(private readonly serverPort: number) {
    this.listening = net.createServer((client) => this.serve(client));
  }

  static async start(serverPort: number): Promise<Proxy> {
    const proxy = new Proxy(serverPort);
    await new Promise<void>((done) => proxy.listening.listen(0, "127.0.0.1", done));
    proxy.port = (proxy.listening.address() as net.AddressInfo).port;
    return proxy;
  }

  /** Lets the next such request through, and ends its connection after this many bytes of the reply. */
  cutReply(request: string, after = 0): void {
    [this.cut, this.cutAfter] = [request, after];
  }

  /** Lets the next such request through, and never delivers its reply. */
  holdReply(request: string): void {
    this.hold = request;
  }

  /** Keep the next such request back until `letGo`. */
  keepRequest(request: string): void {
    this.kept = request;
  }

  /** Lets the next request with this word through up to it, and keeps the rest back until `letGo`. */
  splitRequest(at: string): void {
    this.split = at;
  }

  get keeps(): boolean {
    return this.go !== undefined;
  }

  letGo(): void {
    this.go?.();
    this.go = undefined;
  }

  /** From here on, no message to a subscriber passes. */
  holdMessages(): void {
    this.holdingMessages = true;
  }

  /** From here on messages to subscribers wait until `letMessagesGo`. */
  keepMessages(): void {
    this.keptMessages = [];
  }

  letMessagesGo(): void {
    for (const go of this.keptMessages ?? []) go();
    this.keptMessages = undefined;
  }

  /** End every connection and refuse new ones until further notice. */
  refuse(): void {
    this.refuseNew();
    this.disconnect();
  }

  /** Refuse new connections until further notice. */
  refuseNew(): void {
    this.refusing = true;
  }

  accept(): void {
    this.refusing = false;
  }

  /** Silences the network: from now on no data passes, no connection ends, and new ones are accepted. */
  silence(): void {
    this.silent = true;
    for (const socket of this.sockets) socket.pause();
  }

  /** Ends the silence and delivers the held-back data, like a network that retransmits its packets. */
  speak(): void {
    this.silent = false;
    for (const socket of this.sockets) socket.resume();
  }

  disconnect(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  async stop(): Promise<void> {
    this.disconnect();
    await new Promise((done) => this.listening.close(done));
  }

  private serve(client: net.Socket): void {
    if (this.refusing) {
      this.refused += 1;
      return void client.destroy();
    }
    this.accepted += 1;
    const server = net.connect(this.serverPort, "127.0.0.1");
    const fate = { cut: false, hold: false };
    for (const socket of [client, server]) {
      this.sockets.add(socket);
      if (this.silent) socket.pause();
      socket.on("error", () => undefined);
      socket.on("close", () => {
        this.sockets.delete(socket);
        client.destroy();
        // What was sent before arrives, as it does without a proxy.
        server.end();
      });
    }
    client.on("data", (request) => {
      this.requests += 1;
      if (this.cut !== undefined && request.includes(this.cut)) [this.cut, fate.cut] = [undefined, true];
      if (this.hold !== undefined && request.includes(this.hold)) [this.hold, fate.hold] = [undefined, true];
      if (request.includes("LOCK.EXEC")) this.packets.push(request.toString());
      if (this.split !== undefined && request.includes(this.split)) {
        // In front of the command's own header.
        const at = request.lastIndexOf("*", request.indexOf(this.split));
        this.split = undefined;
        server.write(request.subarray(0, at));
        this.go = () => void server.write(request.subarray(at));
      } else if (this.kept !== undefined && request.includes(this.kept)) {
        this.kept = undefined;
        this.go = () => void server.write(request);
      } else {
        server.write(request);
      }
    });
    server.on("data", (reply) => {
      if (fate.cut) {
        this.cuts += 1;
        fate.cut = false;
        client.write(reply.subarray(0, this.cutAfter), () => client.destroy());
      } else if (fate.hold || (this.holdingMessages && reply.includes("message\r\n"))) {
        this.held += 1;
      } else if (this.keptMessages !== undefined && reply.includes("message\r\n")) {
        this.keptMessages.push(() => void client.write(reply));
      } else {
        client.write(reply, () => this.replies.push(reply.toString()));
      }
    });
  }
}
