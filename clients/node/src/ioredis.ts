/** The driver for ioredis: Redis (including Sentinel) and Cluster. */

import type { Node, OwnConnection, Part, Route, Subscriber, SubscriberEvents, Word } from "./connection.js";
import { repliesOf, UNSENT_MS } from "./connection.js";
import { Failures, late } from "./causes.js";
import { aside, ReplyTimeouts, type Unanswered } from "./clock.js";
import type { Listed } from "./list.js";
import { Outsiders, type Outsider } from "./outsiders.js";
import { isReply, Trouble } from "./replies.js";

/** The parts of an ioredis client that are used, because ioredis is not a dependency of this package. */
export interface IoredisClient {
  readonly status: string;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  sendCommand(command: any, ...rest: any[]): unknown;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  duplicate(...args: any[]): any;
}

interface Redis extends IoredisClient {
  readonly options: { keyPrefix?: string | Buffer; host?: string; port?: number };
  /** The condition of the connection; null while there is none. */
  readonly condition?: { protocol?: number; replyMapping?: string } | null;
  /** null while no attempt to reconnect is scheduled. */
  readonly reconnectTimeout?: unknown;
  /** The socket; undefined while it is not connected. */
  readonly stream?: { write(data: string | Buffer): void } | null;
  call(command: string): unknown;
  on(event: string, listener: (...args: never[]) => void): unknown;
  once(event: string, listener: (...args: never[]) => void): unknown;
  off(event: string, listener: (...args: never[]) => void): unknown;
  listenerCount(event: string): number;
  duplicate(overrides: object): Redis;
  connect(): Promise<void>;
  disconnect(): void;
  subscribe(channel: string): Promise<unknown>;
  ssubscribe(channel: string): Promise<unknown>;
}

interface Cluster extends IoredisClient {
  /** True after `quit` or `disconnect`. */
  readonly manuallyClosing?: boolean;
  readonly slots: string[][];
  readonly options: {
    keyPrefix?: string | Buffer;
    redisOptions?: { keyPrefix?: string | Buffer };
    natMap?: Record<string, Address> | ((address: string) => Address | null);
  };
  on: Redis["on"];
  once: Redis["once"];
  off: Redis["off"];
  listenerCount: Redis["listenerCount"];
  connect(): Promise<void>;
  nodes(role?: string): Redis[];
  refreshSlotsCache(done: (error?: Error | null) => void): void;
}

interface Address {
  host: string;
  port: number;
}

/** What ioredis calls of a command. */
interface Command {
  readonly promise: Promise<unknown>;
  resolve(reply: unknown): void;
  reject(error: unknown): void;
  toWritable(): string | Buffer;
  /** Set if the client has the option `commandTimeout`. */
  readonly _commandTimeoutTimer?: NodeJS.Timeout;
  args: unknown[];
  initPromise(): void;
  transformReply(reply: unknown): unknown;
}

interface CommandClass {
  new (name: string, args: unknown[], options: { replyEncoding: string | null }): Command;
  readonly _transformer?: { reply?: Record<string, (reply: unknown, context: object) => unknown> };
}

/**
 * A command that is written only once. When a connection ends, ioredis keeps commands without a reply and writes them
 * again on the next connection, so a LOCK.EXEC would run twice. It also writes commands that were abandoned long ago.
 * Both become a PING here.
 *
 * It settles one promise without the closures and transformations of ioredis's own commands. That, and a name in lower
 * case, which ioredis looks up five times, takes 5 of the 40 µs of an acquire and a release.
 */
interface OnceCommand extends Command, Unanswered {}

/** What a command reports to its connection. */
interface Sender {
  /** It has a reply, or will not get one. */
  settled(command: OnceCommand): void;
  trouble(error: unknown, command: OnceCommand): Trouble;
}

type OnceCommandClass = new (
  words: readonly Word[],
  sender: Sender,
  /** For a packet: it resolves with a `Trouble` instead of rejecting. */
  settles: boolean,
  replyEncoding: string | null,
) => OnceCommand;

const CLOSED = "The server closed the connection before it was ready: this may be a TLS port";
const PING = "*1\r\n$4\r\nPING\r\n";
const classes = new WeakMap<CommandClass, OnceCommandClass>();

/**
 * The command class of the application's own copy of ioredis, taken from a command that the client creates.
 */
function commandClass(redis: Redis): CommandClass {
  let made: Command | undefined;
  const options = { ...redis.options, enableAutoPipelining: false };
  const sendCommand = (command: Command): Promise<unknown> => (made = command).promise;
  const probe: Redis = Object.create(redis, { options: { value: options }, sendCommand: { value: sendCommand } });
  probe.call("PING");
  if (made === undefined) {
    throw new TypeError("this version of ioredis is not supported: it sends commands in an unknown way");
  }
  return made.constructor as CommandClass;
}

const lowered = new Map<string, string>();

function lowerCase(name: string): string {
  let lower = lowered.get(name);
  if (lower === undefined) lowered.set(name, (lower = name.toLowerCase()));
  return lower;
}

/** The command in the protocol of Redis. */
function encoded(words: readonly Word[]): string | Buffer {
  const buffers: Buffer[] = [];
  let text = `*${words.length}\r\n`;
  for (const word of words) {
    if (Buffer.isBuffer(word)) {
      buffers.push(Buffer.from(`${text}$${word.length}\r\n`), word);
      text = "\r\n";
      continue;
    }
    // Callers without types may pass anything as an argument of their command.
    if (typeof word === "object" && word !== null) {
      throw new TypeError(`a word of a command must be a string, a Buffer or a number, not ${typeof word}`);
    }
    const string = typeof word === "string" ? word : String(word ?? "");
    text += `$${Buffer.byteLength(string)}\r\n${string}\r\n`;
  }
  if (buffers.length === 0) return text;
  buffers.push(Buffer.from(text));
  return Buffer.concat(buffers);
}

function onceCommand(base: CommandClass): OnceCommandClass {
  let made = classes.get(base);
  if (made === undefined) {
    made = class extends base implements OnceCommand {
      declare promise: Promise<unknown>;
      declare private fulfil: (result: unknown) => void;
      declare private fail: (trouble: Trouble) => void;
      sent = false;
      checkAt = 0;
      lateAt = 0;
      previous: Listed | undefined = undefined;
      next: Listed | undefined = undefined;
      private cancelled = false;
      private readonly bytes: string | Buffer;

      constructor(
        words: readonly Word[],
        private readonly sender: Sender,
        private readonly settles: boolean,
        replyEncoding: string | null,
      ) {
        // Its arguments would be copied by a slow `flat`.
        super(lowerCase(words[0] as string), [], { replyEncoding });
        this.args = words.slice(1);
        this.bytes = encoded(words);
      }

      /** Called by the constructor of ioredis. */
      override initPromise(): void {
        this.promise = new Promise((resolve, reject) => {
          this.fulfil = resolve;
          this.fail = reject;
        });
      }

      override resolve(reply: unknown): void {
        this.settled();
        this.fulfil(this.transformReply(reply));
      }

      override reject(error: unknown): void {
        this.settled();
        this.cancelled = true;
        const trouble = error instanceof Trouble ? error : this.sender.trouble(error, this);
        if (this.settles) this.fulfil(trouble);
        else this.fail(trouble);
      }

      private settled(): void {
        if (this._commandTimeoutTimer !== undefined) clearTimeout(this._commandTimeoutTimer);
        this.sender.settled(this);
      }

      override toWritable(): string | Buffer {
        if (this.cancelled) return PING;
        this.sent = true;
        return this.bytes;
      }
    };
    classes.set(base, made);
  }
  return made;
}

/** Calls back with each error. ioredis prints errors without a listener, and still does so with this one. */
function onError(client: Pick<Redis, "on" | "listenerCount">, callback: (error: unknown) => void): void {
  client.on("error", (error: Error) => {
    callback(error);
    if (client.listenerCount("error") === 1) console.error("[ioredis] Unhandled error event:", error.stack);
  });
}

/**
 * A stream for commands that ioredis would write separately, which joins those of a packet. ioredis also writes to it
 * what it sends later, after it has connected.
 */
class Packets {
  private joined: string | Buffer | undefined;

  constructor(private readonly redis: Redis) {}

  begin(): void {
    this.joined = "";
  }

  write(part: string | Buffer): void {
    const { joined } = this;
    if (joined === undefined) this.redis.stream?.write(part);
    else if (typeof joined === "string" && typeof part === "string") this.joined = joined + part;
    else this.joined = Buffer.concat([bufferOf(joined), bufferOf(part)]);
  }

  end(): void {
    const { joined } = this;
    this.joined = undefined;
    if (joined !== undefined && joined.length > 0) this.redis.stream?.write(joined);
  }
}

const bufferOf = (part: string | Buffer): Buffer => (typeof part === "string" ? Buffer.from(part) : part);

class IoredisNode implements Node, Sender {
  readonly failures = new Failures();
  private readonly replyTimeouts = new ReplyTimeouts<OnceCommand>(
    UNSENT_MS,
    () => this.redis.status === "ready",
    (command) => command.reject(late()),
  );
  private readonly callbacks: (() => void)[] = [];
  private readonly packets: Packets;
  private readonly Base: CommandClass;
  private readonly Command: OnceCommandClass;

  constructor(
    private readonly redis: Redis,
    /**
     * The connection of a cluster node, or a dedicated one, whose end does not mean that the application closed the
     * client.
     */
    readonly replaceable: boolean,
  ) {
    this.Base = commandClass(redis);
    this.Command = onceCommand(this.Base);
    this.packets = new Packets(redis);
    const interrupted = (): void => {
      const lost = new Trouble(new Error("The connection was lost before the reply"), "unanswered");
      // A command in ioredis's offline queue would be sent on the next connection.
      for (const command of this.replyTimeouts.requests) if (command.sent) command.reject(lost);
      for (const callback of this.callbacks) callback();
    };
    redis.on("close", interrupted);
    redis.on("end", interrupted);
    let wasReady = redis.status === "ready";
    redis.on("ready", () => {
      wasReady = true;
      this.failures.clear();
    });
    redis.on("close", () => {
      if (!wasReady && this.failures.recent === undefined) this.failures.record(new Error(CLOSED));
      wasReady = false;
    });
    onError(redis, (error) => this.failures.record(error));
    this.failures.onDenial((trouble) => {
      for (const command of this.replyTimeouts.requests) if (!command.sent) command.reject(trouble);
    });
  }

  get ended(): boolean {
    return isOver(this.redis);
  }

  get host(): string {
    return this.redis.options.host ?? "";
  }

  get isBusy(): boolean {
    return !this.replyTimeouts.requests.isEmpty;
  }

  onInterrupted(callback: () => void): void {
    this.callbacks.push(callback);
  }

  send(words: readonly Word[], withinMs: number | undefined, how?: "raw"): Promise<unknown> {
    return this.write(new this.Command(words, this, false, how === "raw" ? null : "utf8"), withinMs);
  }

  private write(command: OnceCommand, withinMs: number | undefined, stream?: unknown): Promise<unknown> {
    this.replyTimeouts.begin(command, withinMs);
    const sending = this.redis.sendCommand(command, stream) as Promise<unknown>;
    // Tracing returns a derived promise.
    if (sending !== command.promise) Promise.resolve(sending).catch(() => undefined);
    return command.promise;
  }

  settled(command: OnceCommand): void {
    this.replyTimeouts.end(command);
  }

  async sendAsking(words: readonly Word[], withinMs: number | undefined, how?: "raw"): Promise<unknown> {
    const asking = this.send(["ASKING"], withinMs);
    const [, reply] = await Promise.all([asking, this.send(words, withinMs, how)]);
    return reply;
  }

  packet(parts: readonly Part[], how?: "asking"): Promise<unknown[]> {
    const { packets } = this;
    const replies: Promise<unknown>[] = [];
    const send = (words: readonly Word[], withinMs: number | undefined): Promise<unknown> =>
      this.write(new this.Command(words, this, true, "utf8"), withinMs, packets);
    packets.begin();
    try {
      for (const { words, withinMs } of parts) {
        const asking = how === "asking" ? send(["ASKING"], withinMs) : undefined;
        const reply = send(words, withinMs);
        const refusedOr = (refused: unknown): unknown => (refused instanceof Trouble ? refused : reply);
        replies.push(asking === undefined ? reply : asking.then(refusedOr));
      }
    } finally {
      packets.end();
    }
    return repliesOf(parts, replies);
  }

  decoded(command: string, reply: unknown): unknown {
    const transform = this.Base._transformer?.reply?.[command];
    if (transform === undefined) return reply;
    // ioredis 6 transforms replies according to the protocol of the connection.
    const { protocol = 2, replyMapping = "legacy" } = this.redis.condition ?? {};
    return transform(reply, { commandName: command, protocol, replyMapping });
  }

  subscriber(events: SubscriberEvents): Subscriber {
    return new IoredisSubscriber(
      this.redis.duplicate({
        ...PLAIN,
        autoResubscribe: false,
        retryStrategy: (times: number) =>
          this.ended ? null : Math.min(20 * 2 ** Math.min(times, 6), 500) * (0.5 + Math.random() / 2),
        maxRetriesPerRequest: null,
      }),
      events,
    );
  }

  own(): OwnConnection {
    const redis = this.redis.duplicate({
      ...PLAIN,
      retryStrategy: null,
      sentinelRetryStrategy: null,
      autoResendUnfulfilledCommands: false,
    });
    redis.on("error", () => undefined);
    const node = new IoredisNode(redis, true);
    redis.connect().catch(() => undefined);
    return {
      get ended() {
        return node.ended;
      },
      host: node.host,
      send: (words, withinMs) => node.send(words, withinMs),
      sendAsking: (words, withinMs) => node.sendAsking(words, withinMs),
      packet: (parts, how) => node.packet(parts, how),
      onEnd: (callback) => void redis.on("end", callback),
      // If the connection has ended, ioredis (5.11) would wait for the end again, for two seconds.
      close: () => node.ended || redis.disconnect(),
    };
  }

  trouble(error: unknown, command: OnceCommand): Trouble {
    if (isReply(error)) return new Trouble(error, "refused");
    if (this.ended && !this.replaceable) return new Trouble(error, command.sent ? "unanswered" : "closed");
    return command.sent ? new Trouble(error, "unanswered") : new Trouble(this.failures.recent ?? error, "unsent");
  }
}

/**
 * True if the application closed the client. One that is closed while it is about to reconnect keeps that status and
 * emits no event.
 */
function isOver({ status, reconnectTimeout }: Redis): boolean {
  return status === "end" || (status === "reconnecting" && reconnectTimeout === null);
}

/** The caller's options that a waiting connection must not have. */
const PLAIN = {
  lazyConnect: true,
  keyPrefix: "",
  commandTimeout: undefined,
  socketTimeout: undefined,
  blockingTimeout: undefined,
  enableOfflineQueue: true,
  enableAutoPipelining: false,
  reconnectOnError: null,
  readOnly: false,
  monitor: false,
};

class IoredisSubscriber implements Subscriber {
  private closed = false;
  private readonly failures = new Failures();

  constructor(
    private readonly redis: Redis,
    events: SubscriberEvents,
  ) {
    const message = (_channel: string, text: string): void => events.message(text);
    redis.on("message", message);
    redis.on("smessage", message);
    redis.on("close", events.interrupted);
    // When a slot leaves the node, the server ends the subscription with a SUNSUBSCRIBE that nobody requested. Then
    // ioredis 6 emits `moved`, and ioredis 5 an error ("Command queue state error") while the connection stays ready.
    redis.on("moved", events.unsubscribed);
    redis.on("error", (error: unknown) => {
      this.failures.record(error);
      if (redis.status === "ready") events.unsubscribed();
    });
    redis.on("ready", () => this.failures.clear());
    redis.connect().catch(() => undefined);
  }

  get ended(): boolean {
    return this.closed || this.redis.status === "end";
  }

  subscribe(channel: string, sharded: boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      // ioredis never settles a subscribe command whose connection was lost, nor an SSUBSCRIBE that was redirected, so
      // the first event settles the command, and all listeners are removed.
      const settle = (end: () => void): void => {
        clearTimeout(timer);
        this.redis.off("close", lost);
        this.redis.off("moved", moved);
        off();
        end();
      };
      const fail = (error: unknown): void =>
        settle(() =>
          reject(isReply(error) ? new Trouble(error, "refused") : new Trouble(this.failures.recent ?? error, "unsent")),
        );
      const lost = (): void => fail(new Error("The subscriber's connection was lost"));
      const moved = (): void => fail(new Error("MOVED to another node (reply to SSUBSCRIBE)"));
      const timer = setTimeout(lost, UNSENT_MS);
      const off = this.failures.onDenial((trouble) => fail(trouble.error));
      this.redis.once("close", lost);
      this.redis.once("moved", moved);
      const subscribing = sharded ? this.redis.ssubscribe(channel) : this.redis.subscribe(channel);
      subscribing.then(() => settle(resolve), fail);
    });
  }

  close(): void {
    if (this.ended) return;
    this.closed = true;
    this.redis.disconnect();
  }
}

class Single implements Route {
  readonly clustered = false;
  readonly keyPrefix: string | Buffer;
  private readonly only: Node;

  constructor(private readonly redis: Redis) {
    this.keyPrefix = redis.options.keyPrefix ?? "";
    this.only = new IoredisNode(redis, false);
  }

  get failures(): Failures {
    return this.only.failures;
  }

  onEnd(callback: () => void): void {
    this.redis.on("end", callback);
  }

  node(): Node {
    return this.only;
  }

  async nodeAt(): Promise<undefined> {
    return undefined;
  }

  async refresh(): Promise<void> {}
}

class Clustered implements Route {
  readonly clustered = true;
  readonly failures = new Failures();
  readonly keyPrefix: string | Buffer;
  private readonly nodes = new WeakMap<Redis, Node>();
  private readonly outsiders = new Outsiders((address) => this.outsider(address));

  constructor(private readonly cluster: Cluster) {
    this.keyPrefix = cluster.options.keyPrefix ?? cluster.options.redisOptions?.keyPrefix ?? "";
    this.onEnd(() => this.outsiders.close());
    onError(cluster, (error) => this.failures.record(error));
    cluster.on("node error", (error: unknown, address: string) => this.failures.record(error, address));
  }

  onEnd(callback: () => void): void {
    this.cluster.on("end", callback);
  }

  async node(slot: number): Promise<Node> {
    // After a disconnect the final status is "close" (5.11).
    const { status, manuallyClosing } = this.cluster;
    if (status === "end" || (status === "close" && manuallyClosing)) {
      throw new Trouble(new Error("Connection is closed."), "closed");
    }
    if (this.cluster.slots[slot] === undefined) await this.ready();
    const found = this.known(this.cluster.slots[slot]?.[0] ?? "");
    if (found !== undefined && !found.ended) return found;
    await this.refresh().catch(() => undefined);
    throw new Trouble(this.failures.recent ?? new Error(`No node serves slot ${slot}`), "unsent");
  }

  async nodeAt(address: string): Promise<Node | undefined> {
    const { host, port } = this.mapped(address);
    const found = this.known(`${host}:${port}`);
    if (found !== undefined && !found.ended) return found;
    return this.cluster.nodes("all").length === 0 ? undefined : this.outsiders.node(address);
  }

  /** The node at this address, if ioredis knows it. */
  private known(address: string): Node | undefined {
    const redis = this.cluster.nodes("all").find(({ options }) => `${options.host}:${options.port}` === address);
    if (redis === undefined) return undefined;
    let node = this.nodes.get(redis);
    if (node === undefined) this.nodes.set(redis, (node = new IoredisNode(redis, true)));
    return node;
  }

  private mapped(address: string): Address {
    const { natMap } = this.cluster.options;
    const mapped = typeof natMap === "function" ? natMap(address) : natMap?.[address];
    const colon = address.lastIndexOf(":");
    return mapped ?? { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) };
  }

  /** Connects as ioredis connects to nodes, with the options of another one. */
  private outsider(address: string): Outsider {
    const [other] = this.cluster.nodes("all") as [Redis];
    const { host, port } = this.mapped(address);
    const redis = other.duplicate({ host, port, readOnly: false, lazyConnect: true, retryStrategy: null });
    redis.on("error", () => undefined);
    const node = new IoredisNode(redis, true);
    return { node: () => node, close: () => node.ended || redis.disconnect() };
  }

  async refresh(): Promise<void> {
    const done = new Promise<void>((resolve, reject) =>
      this.cluster.refreshSlotsCache((error) => (error ? reject(new Trouble(error, "unsent")) : resolve())),
    );
    await aside(done, UNSENT_MS);
  }

  private async ready(): Promise<void> {
    if (this.cluster.status === "wait") this.cluster.connect().catch(() => undefined);
    if (this.cluster.status === "ready") return;
    let isReady: () => void = () => undefined;
    const ready = new Promise<void>((resolve) => this.cluster.once("ready", (isReady = resolve)));
    const otherwise = "No node of the cluster has replied yet";
    await this.failures.inTime(UNSENT_MS, ready, otherwise).finally(() => this.cluster.off("ready", isReady));
  }
}

export function isIoredis(client: object): client is IoredisClient {
  return "status" in client && typeof client.status === "string" && "sendCommand" in client && "duplicate" in client;
}

export function ioredisRoute(client: IoredisClient): Route {
  return "isCluster" in client && client.isCluster
    ? new Clustered(client as unknown as Cluster)
    : new Single(client as Redis);
}
