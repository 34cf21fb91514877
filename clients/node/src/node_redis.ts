/** The driver for node-redis: createClient, createCluster and createSentinel. */

import { errorMonitor } from "node:events";

import type { Node, OwnConnection, Part, Route, Subscriber, SubscriberEvents, Word } from "./connection.js";
import { repliesOf, UNSENT_MS } from "./connection.js";
import type { Listed } from "./list.js";
import { Failures, late, UnexplainedError } from "./causes.js";
import { ReplyTimeouts, type Unanswered } from "./clock.js";
import { Outsiders, type Outsider } from "./outsiders.js";
import { isDenied, isReply, Trouble } from "./replies.js";

/** The parts of a node-redis client that are used, because node-redis is not a dependency of this package. */
export interface NodeRedisClient {
  readonly isOpen: boolean;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  sendCommand(...args: any[]): Promise<any>;
}

interface Prefixing {
  /** In node-redis 6: the prefix that its own commands put before each key. */
  readonly _keyPrefix?: string | Buffer;
}

interface Client extends NodeRedisClient, Prefixing {
  readonly isReady: boolean;
  readonly options?: { socket?: { host?: string } };
  on(event: string | symbol, listener: (...args: never[]) => void): unknown;
  once(event: string, listener: (...args: never[]) => void): unknown;
  duplicate(overrides: object): Client;
  connect(): Promise<unknown>;
  destroy(): void;
  subscribe(channel: string, listener: (text: string) => void): Promise<void>;
  sSubscribe(channel: string, listener: (text: string) => void): Promise<void>;
}

interface ClusterNode {
  readonly address: string;
  readonly host?: string;
  readonly port?: number;
  readonly readonly?: boolean;
  /** Set once `nodeClient` has created it. */
  client?: Client;
}

interface Cluster extends NodeRedisClient, Prefixing {
  on: Client["on"];
  readonly slots: ({ master: ClusterNode } | undefined)[];
  readonly nodeByAddress: Map<string, ClusterNode>;
  readonly _slots: { rediscover(startWith: Client): Promise<void> };
  nodeClient(node: ClusterNode): Promise<Client>;
}

interface Sentinel extends NodeRedisClient, Prefixing {
  readonly isReady: boolean;
  on: Client["on"];
  _execute<T>(isReadonly: boolean, use: (client: Client) => Promise<T>): Promise<T>;
}

/**
 * The words of a command, as an array-like object. node-redis reads the length of a command when it writes it, so the
 * object knows whether it was written, and turns into a PING if the command was abandoned before. After the end of a
 * connection, node-redis does not resend commands without a reply, but it does send commands that were not written yet,
 * however late. Its own way to remove a command (an AbortSignal) permanently breaks its queue after two in a row
 * (5.12).
 *
 * Once the connection is lost the words throw, which removes the command from the queue. In the event-loop iteration in
 * which the connection broke, node-redis (5.12) writes queued commands into the closed socket and then waits for their
 * replies. If the next connection comes without an error in between, each later command gets the reply to an earlier
 * one from then on.
 */
class OnceCommand implements Unanswered {
  [index: number]: string | Buffer;
  sent = false;
  checkAt = 0;
  lateAt = 0;
  /** Tracing reads the words as well, before the command is in the queue; Node 18 does so even without a subscriber. */
  queued = false;
  previous: Listed | undefined = undefined;
  next: Listed | undefined = undefined;
  private readonly words: number;
  private cancelled = false;

  constructor(
    words: readonly Word[],
    private readonly isWritable: () => boolean,
    private readonly reject: (error: Trouble) => void,
  ) {
    this.words = words.length;
    for (let index = 0; index < words.length; index++) {
      const word = words[index] as Word;
      this[index] = typeof word === "number" ? String(word) : word;
    }
  }

  /** node-redis reads it before each word. */
  get length(): number {
    return this.sent || !this.queued ? this.words : this.written();
  }

  private written(): number {
    if (!this.isWritable()) throw new UnexplainedError("The connection is not ready");
    if (this.cancelled) return 1;
    this.sent = true;
    return this.words;
  }

  cancel(trouble: Trouble): void {
    this.reject(trouble);
    if (this.sent) return;
    this.cancelled = true;
    this[0] = "PING";
  }
}

// For code that wraps sendCommand. An accessor in a real array would cost twice as much as the rest of the request.
Object.setPrototypeOf(OnceCommand.prototype, Array.prototype);

/** Bulk strings ("$") as buffers. */
const RAW = { typeMapping: { 36: Buffer } };

class ClientNode implements Node {
  readonly failures = new Failures();
  private readonly replyTimeouts = new ReplyTimeouts<OnceCommand>(
    UNSENT_MS,
    () => this.client.isReady,
    (command) => this.cancel(command, late()),
  );

  constructor(
    private readonly client: Client,
    /**
     * A connection of a cluster or a sentinel, or a dedicated one, whose end does not mean that the application closed
     * the client.
     */
    readonly replaceable: boolean,
    /** Commands that were queued earlier would be written with the handshake, before the client is ready. */
    private readonly isWritable: () => boolean = () => client.isReady,
  ) {
    client.on(errorMonitor, (error: unknown) => this.failures.record(error));
    client.on("ready", () => this.failures.clear());
    this.failures.onDenial((trouble) => {
      for (const command of this.replyTimeouts.requests) if (!command.sent) this.cancel(command, trouble);
    });
  }

  get ended(): boolean {
    return !this.client.isOpen;
  }

  get host(): string {
    return this.client.options?.socket?.host ?? "";
  }

  get isBusy(): boolean {
    return !this.replyTimeouts.requests.isEmpty;
  }

  onInterrupted(callback: () => void): void {
    this.client.on("reconnecting", callback);
    this.client.on("end", callback);
    this.client.on("error", callback);
  }

  send(words: readonly Word[], withinMs: number | undefined, how?: "raw"): Promise<unknown> {
    return new Promise((resolve, reject) => this.write(words, withinMs, resolve, reject, how));
  }

  private write(
    words: readonly Word[],
    withinMs: number | undefined,
    resolve: (reply: unknown) => void,
    reject: (trouble: Trouble) => void,
    how?: "raw",
  ): void {
    const command = new OnceCommand(words, this.isWritable, reject);
    const replied = this.client.sendCommand(command, how === "raw" ? RAW : undefined);
    command.queued = true;
    this.replyTimeouts.begin(command, withinMs);
    replied.then(
      (reply: unknown) => {
        this.replyTimeouts.end(command);
        resolve(reply);
      },
      (error: unknown) => this.cancel(command, error),
    );
  }

  private cancel(command: OnceCommand, error: unknown): void {
    this.replyTimeouts.end(command);
    command.cancel(this.trouble(error, command));
  }

  async sendAsking(words: readonly Word[], withinMs: number | undefined, how?: "raw"): Promise<unknown> {
    const asking = this.send(["ASKING"], withinMs);
    const [, reply] = await Promise.all([asking, this.send(words, withinMs, how)]);
    return reply;
  }

  packet(parts: readonly Part[], how?: "asking"): Promise<unknown[]> {
    if (how === "asking") {
      const send = ({ words, withinMs }: Part): Promise<unknown> =>
        this.sendAsking(words, withinMs).catch((error: unknown) => error);
      return repliesOf(parts, parts.map(send));
    }
    // One promise for all of them.
    return new Promise((resolve) => {
      const replies: unknown[] = new Array(parts.length);
      let missing = parts.length;
      parts.forEach(({ words, withinMs, isEnough }, index) => {
        let isSettled = false;
        const settle = (reply: unknown): void => {
          if (isSettled) return;
          isSettled = true;
          replies[index] = reply;
          if (--missing === 0) resolve(replies);
          else if (isEnough?.(reply)) resolve([reply]);
        };
        this.write(words, withinMs, settle, settle);
      });
    });
  }

  decoded(_command: string, reply: unknown): unknown {
    return reply;
  }

  subscriber(events: SubscriberEvents): Subscriber {
    const reconnectStrategy = (retries: number): number | false =>
      !this.ended && Math.min(20 * 2 ** Math.min(retries, 6), 500) * (0.5 + Math.random() / 2);
    return new ClientSubscriber(this.plain(reconnectStrategy), events);
  }

  own(): OwnConnection {
    const client = this.plain(false);
    client.on("error", () => undefined);
    // It would refuse commands before it is open.
    let ended = false;
    const node = new ClientNode(client, true, () => !ended);
    const callbacks: (() => void)[] = [];
    const end = (): void => {
      if (ended) return;
      ended = true;
      for (const callback of callbacks) callback();
    };
    onEnd(client, end);
    const close = closing(client);
    client.connect().catch(end);
    return {
      get ended() {
        return ended;
      },
      host: node.host,
      send: (words, withinMs) => node.send(words, withinMs),
      sendAsking: (words, withinMs) => node.sendAsking(words, withinMs),
      packet: (parts, how) => node.packet(parts, how),
      onEnd: (callback) => void callbacks.push(callback),
      close: () => {
        close();
        end();
      },
    };
  }

  /** A connection with the same options, except the timeouts that would end it while it waits. */
  private plain(reconnectStrategy: false | ((retries: number) => number | false)): Client {
    const socket = { ...this.client.options?.socket, socketTimeout: undefined, reconnectStrategy };
    return this.client.duplicate({ socket, disableOfflineQueue: false, clientSideCache: undefined, readonly: false });
  }

  private trouble(error: unknown, command: OnceCommand): Trouble {
    if (error instanceof Trouble) return error;
    if (isReply(error)) return new Trouble(error, "refused");
    if (command.sent) return new Trouble(error, "unanswered");
    if (this.ended && !this.replaceable) return new Trouble(error, "closed");
    return new Trouble(this.failures.recent ?? error, "unsent");
  }
}

/** Calls back even without the event "end": a client that stops connecting only emits an error. */
function onEnd(client: Client, callback: () => void): void {
  client.on("end", callback);
  client.on("error", () => client.isOpen || callback());
}

/**
 * Returns a function that closes a client. A client that is destroyed while it connects would stay connected (5.12).
 */
function closing(client: Client): () => void {
  let isConnecting = true;
  client.on("connect", () => (isConnecting = false));
  client.on("reconnecting", () => (isConnecting = true));
  const destroy = (): void => {
    if (client.isOpen) client.destroy();
  };
  return () => void (isConnecting ? client.once("connect", destroy) : destroy());
}

class ClientSubscriber implements Subscriber {
  private closed = false;
  private readonly connecting: Promise<unknown>;
  private readonly message: (text: string) => void;
  private readonly destroy: () => void;
  private readonly failures = new Failures();

  constructor(
    private readonly client: Client,
    events: SubscriberEvents,
  ) {
    this.message = (text) => events.message(text);
    client.on("error", (error: unknown) => this.failures.record(error));
    client.on("ready", () => this.failures.clear());
    client.on("reconnecting", events.interrupted);
    client.on("end", events.interrupted);
    client.on("sharded-channel-moved", events.unsubscribed);
    this.destroy = closing(client);
    this.connecting = client.connect();
    this.connecting.catch(() => undefined);
  }

  get ended(): boolean {
    return this.closed || !this.client.isOpen;
  }

  async subscribe(channel: string, sharded: boolean): Promise<void> {
    const subscribing = this.ready().then(() =>
      sharded ? this.client.sSubscribe(channel, this.message) : this.client.subscribe(channel, this.message),
    );
    await this.failures.inTime(UNSENT_MS, subscribing);
  }

  /** While it reconnects, node-redis treats a channel of the old connection as subscribed. */
  private async ready(): Promise<void> {
    await this.connecting;
    if (!this.client.isReady) await new Promise<void>((resolve) => this.client.once("ready", resolve));
  }

  close(): void {
    this.closed = true;
    this.destroy();
  }
}

/** The nodes, created from the library's clients. */
class Nodes {
  private readonly known = new WeakMap<Client, Node>();

  constructor(
    private readonly replaceable: boolean,
    private readonly made?: (client: Client) => void,
  ) {}

  of(client: Client): Node {
    let node = this.known.get(client);
    if (node === undefined) {
      this.known.set(client, (node = new ClientNode(client, this.replaceable)));
      this.made?.(client);
    }
    return node;
  }
}

class Single implements Route {
  readonly clustered = false;
  readonly keyPrefix: string | Buffer;
  private readonly only: Node;

  constructor(private readonly client: Client) {
    this.keyPrefix = client._keyPrefix ?? "";
    this.only = new Nodes(false).of(client);
  }

  get failures(): Failures {
    return this.only.failures;
  }

  onEnd(callback: () => void): void {
    onEnd(this.client, callback);
  }

  node(): Node {
    return this.only;
  }

  async nodeAt(): Promise<undefined> {
    return undefined;
  }

  async refresh(): Promise<void> {}
}

class BySentinel implements Route {
  readonly clustered = false;
  readonly failures = new Failures();
  readonly keyPrefix: string | Buffer;
  private readonly callbacks: (() => void)[] = [];
  /** A sentinel client emits no event when it ends, but its connections do, and it is not ready any more by then. */
  private readonly nodes = new Nodes(true, (client) => {
    client.on("end", () => {
      if (!this.sentinel.isReady) for (const callback of this.callbacks) callback();
    });
    // The sentinel client does not propagate their errors.
    client.on(errorMonitor, (error: unknown) => this.failed(error));
    client.on("ready", () => this.failures.clear());
  });
  /** The library does not report further attempts, so a refusal of the user counts until there is a connection. */
  private refusal: unknown;

  constructor(private readonly sentinel: Sentinel) {
    this.keyPrefix = sentinel._keyPrefix ?? "";
    sentinel.on(errorMonitor, (error: unknown) => this.failed(error));
  }

  private failed(error: unknown): void {
    this.failures.record(error);
    if (isDenied(error)) this.refusal = error;
  }

  onEnd(callback: () => void): void {
    this.callbacks.push(callback);
  }

  async node(): Promise<Node> {
    if (!this.sentinel.isOpen) throw new Trouble(new Error("The client is closed"), "closed");
    // Only to get the client, because sendCommand would resend commands without a reply.
    const leased = this.sentinel._execute(false, async (client) => client);
    try {
      const client = await this.failures.inTime(UNSENT_MS, leased);
      if (client.isReady) this.refusal = undefined;
      return this.nodes.of(client);
    } catch (error) {
      throw error instanceof Trouble && this.refusal !== undefined ? new Trouble(this.refusal, "unsent") : error;
    }
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
  private readonly nodes = new Nodes(true);
  private readonly outsiders = new Outsiders((address) => this.outsider(address));

  constructor(private readonly cluster: Cluster) {
    this.keyPrefix = cluster._keyPrefix ?? "";
    this.onEnd(() => this.outsiders.close());
    cluster.on(errorMonitor, (error: unknown) => this.failures.record(error));
    cluster.on("node-error", (error: unknown, { host, port }: { host?: string; port?: number }) =>
      this.failures.record(error, `${host}:${port}`),
    );
  }

  onEnd(callback: () => void): void {
    this.cluster.on("disconnect", callback);
  }

  async node(slot: number): Promise<Node> {
    if (!this.cluster.isOpen) throw new Trouble(new Error("The client is closed"), "closed");
    const shard = this.cluster.slots[slot];
    if (shard !== undefined) {
      const node = this.nodes.of(await this.inTime(this.cluster.nodeClient(shard.master)));
      if (!node.ended) return node;
    }
    await this.refresh().catch(() => undefined);
    throw new Trouble(this.failures.recent ?? new Error(`No node serves slot ${slot}`), "unsent");
  }

  private inTime<T>(promise: Promise<T>): Promise<T> {
    return this.failures.inTime(UNSENT_MS, promise);
  }

  async nodeAt(address: string): Promise<Node | undefined> {
    const known = this.cluster.nodeByAddress.get(address);
    if (known === undefined) return this.outsiders.node(address);
    return this.nodes.of(await this.inTime(this.cluster.nodeClient(known)));
  }

  /** Connects as node-redis connects to nodes, but to a node that is in none of its lists. */
  private outsider(address: string): Outsider {
    const colon = address.lastIndexOf(":");
    const [host, port] = [address.slice(0, colon), Number(address.slice(colon + 1))];
    const made: ClusterNode = { address, host, port, readonly: false };
    const connecting = this.cluster.nodeClient(made);
    const close = made.client === undefined ? undefined : closing(made.client);
    connecting.catch(() => undefined);
    return {
      node: async () => this.nodes.of(await this.inTime(this.cluster.nodeClient(made))),
      close: () => close?.(),
    };
  }

  async refresh(): Promise<void> {
    const some = this.cluster.nodeByAddress.values().next().value;
    if (some === undefined) return;
    await this.inTime(this.cluster.nodeClient(some).then((client) => this.cluster._slots.rediscover(client)));
  }
}

export function isNodeRedis(client: object): client is NodeRedisClient {
  return "isOpen" in client && typeof client.isOpen === "boolean" && "sendCommand" in client;
}

export function nodeRedisRoute(client: NodeRedisClient): Route {
  if ("nodeClient" in client) return new Clustered(client as Cluster);
  if ("getMasterNode" in client) return new BySentinel(client as unknown as Sentinel);
  if ("duplicate" in client) return new Single(client as Client);
  throw new TypeError("node-redis: pass a client of createClient, createCluster or createSentinel, not a pool");
}
