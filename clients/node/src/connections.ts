/**
 * A caller's client as the protocol sees it: sends commands to the node that serves the slot of their key. One per
 * client.
 */

import { randomBytes } from "node:crypto";

import { now } from "./clock.js";
import type { Node, OwnConnection, Part, Route, Word } from "./connection.js";
import { Endings } from "./endings.js";
import { Inbox } from "./inbox.js";
import { Observed, shown } from "./observer.js";
import { Trouble } from "./replies.js";
import { slotOf, tagOf } from "./slots.js";

/** The node and the channel for messages about a key. */
export interface Listening {
  inbox: Inbox;
  channel: string;
}

/** An outage causes one warning, however many requests wait meanwhile. */
const WARNED_MS = 10_000;

/** How long a key is looked for where an ASK has sent it, in ms. After that its slot's node is asked again. */
const ASKED_MS = 1000;

export class Connections {
  readonly endings = new Endings();
  readonly observed = new Observed();
  private readonly inboxes = new WeakMap<object, Inbox>();
  private readonly id = randomBytes(8).toString("hex");
  /** Keys that have moved although their slot is still moving: where to, and until when to assume that. */
  private readonly asks = new Map<string, { address: string; ends: number }>();
  private warnedAt = -Infinity;
  /** The open dedicated connections. They end with the client. */
  private readonly owns = new Set<OwnConnection>();

  constructor(private readonly route: Route) {
    route.onEnd(() => {
      for (const own of [...this.owns]) own.close();
    });
  }

  /** Why there is no connection, as far as the library has reported. */
  get failure(): unknown {
    return this.route.failures.recent;
  }

  /** Warns that a request is being retried, because its caller may wait indefinitely and would not know why. */
  warn(what: string, { error }: Trouble): void {
    if (now() - this.warnedAt < WARNED_MS) return;
    this.warnedAt = now();
    process.emitWarning(`${what}, retrying: ${shown(error)}`, "RedisLockWarning");
  }

  key(name: string | Buffer): Word {
    const { keyPrefix } = this.route;
    if (keyPrefix.length === 0) return name;
    if (typeof keyPrefix === "string" && typeof name === "string") return keyPrefix + name;
    return Buffer.concat([keyPrefix, name].map((part) => (typeof part === "string" ? Buffer.from(part) : part)));
  }

  /** Sends a command to the node that serves the key. Rejects with `Trouble`; after a redirection a retry succeeds. */
  send(key: Word, words: readonly Word[], withinMs: number | undefined, how?: "raw"): Promise<unknown> {
    const slot = this.slot(key);
    const node = this.route.node(slot);
    return node instanceof Promise ? this.sendFrom(key, node, words, withinMs, how) : node.send(words, withinMs, how);
  }

  /** Sends to the slot's node, or to the node to which its last reply said the key has moved. */
  private async sendFrom(
    key: Word,
    found: Promise<Node>,
    ...request: [words: readonly Word[], withinMs: number | undefined, how?: "raw"]
  ): Promise<unknown> {
    const node = await found;
    const target = await this.asked(key);
    try {
      return await (target === undefined ? node.send(...request) : target.sendAsking(...request));
    } catch (error) {
      throw await this.redirected(error, key, node);
    }
  }

  /** Sends these commands in one packet, as `send`. A `Trouble` stands for each reply that did not come. */
  packet(key: Word, parts: readonly Part[]): Promise<unknown[]> {
    const slot = this.slot(key);
    const node = this.route.node(slot);
    return node instanceof Promise ? this.packetFrom(key, node, parts) : node.packet(parts);
  }

  private async packetFrom(key: Word, found: Promise<Node>, parts: readonly Part[]): Promise<unknown[]> {
    const node = await found;
    const target = await this.asked(key);
    const replies = await (target === undefined ? node.packet(parts) : target.packet(parts, "asking"));
    return this.allRedirected(replies, key, node);
  }

  /** As `redirected`, but refreshes the map of slots once for all of them. */
  async allRedirected(replies: unknown[], key: Word, node: Node | OwnConnection): Promise<unknown[]> {
    const first = replies.find((reply) => reply instanceof Trouble);
    if (first === undefined) return replies;
    await this.learn(first, key, node);
    return replies.map((reply) => (reply instanceof Trouble ? this.moved(reply) : reply));
  }

  /**
   * The node that the key has moved to, if a reply has named it recently. Other keys of its slot may not have moved.
   */
  private async asked(key: Word): Promise<Node | undefined> {
    if (!this.isMoving(key)) return undefined;
    const target = await this.route.nodeAt(this.asks.get(bytes(key))?.address ?? "");
    if (target === undefined) await this.route.refresh();
    return target;
  }

  /** Decodes an inner command's reply as the library does. */
  decoded(key: Word, command: string, reply: unknown): unknown {
    return this.at(this.slot(key), (node) => node.decoded(command, reply));
  }

  /**
   * Opens a dedicated connection to the node of the key, with the current database and name of the shared connection,
   * which `select` and CLIENT SETNAME may have changed. Rejects with `Trouble`.
   */
  async own(key: Word, withinMs: number): Promise<OwnConnection> {
    const asked = await this.asked(key);
    const node = asked ?? (await this.open(key));
    const own = asked === undefined ? node.own() : asking(node.own());
    this.owns.add(own);
    own.onEnd(() => this.owns.delete(own));
    try {
      await adopt(node, own, withinMs);
    } catch (error) {
      own.close();
      // Whatever the outcome of these commands, the request was not sent.
      throw error instanceof Trouble && error.mayHaveRun ? new Trouble(error.error, "unsent") : error;
    }
    return own;
  }

  /** The node of the key, unless it has ended. */
  private async open(key: Word): Promise<Node> {
    const node = await this.route.node(this.slot(key));
    if (!node.ended) return node;
    throw new Trouble(new Error("The connection has ended"), node.replaceable ? "unsent" : "closed");
  }

  /** Takes from an error where the key is now. Returns the error; in a cluster a redirection becomes `redirected`. */
  async redirected(error: unknown, key: Word, node: Node | OwnConnection): Promise<unknown> {
    if (!(error instanceof Trouble)) return error;
    await this.learn(error, key, node);
    return this.moved(error);
  }

  private moved(trouble: Trouble): Trouble {
    return this.route.clustered && trouble.isRedirection ? new Trouble(trouble.error, "redirected") : trouble;
  }

  private async learn(error: Trouble, key: Word, node: Node | OwnConnection): Promise<void> {
    if (!this.route.clustered) return;
    if (error.code === "ASK") {
      for (const [other, { ends }] of this.asks) if (ends <= now()) this.asks.delete(other);
      const named = error.message.split(" ")[2] ?? "";
      // An empty host stands for that of the node which replied.
      const address = named.startsWith(":") ? node.host + named : named;
      this.asks.set(bytes(key), { address, ends: now() + ASKED_MS });
    } else if (error.code === "MOVED" || error.stage !== "refused") {
      this.asks.delete(bytes(key));
      await this.route.refresh().catch(() => undefined);
    } else {
      return;
    }
    this.inboxes.get(node)?.forget(this.channel(this.slot(key)));
  }

  slot(key: Word): number {
    return this.route.clustered ? slotOf(typeof key === "number" ? String(key) : key) : 0;
  }

  /** True while the slot is moving, so that messages about a waiting request may not arrive. */
  isMoving(key: Word): boolean {
    return this.asks.size > 0 && (this.asks.get(bytes(key))?.ends ?? 0) > now();
  }

  /** The subscription for messages about the key; undefined if there is none. */
  listening(key: Word): Listening | undefined | Promise<Listening | undefined> {
    const slot = this.slot(key);
    return this.at(slot, (node) => {
      const inbox = this.inboxes.get(node);
      if (inbox === undefined) return undefined;
      const channel = this.channel(slot);
      return inbox.listensTo(channel) ? { inbox, channel } : undefined;
    });
  }

  private at<T>(slot: number, work: (node: Node) => T): T | Promise<T> {
    const node = this.route.node(slot);
    return node instanceof Promise ? node.then(work) : work(node);
  }

  /** Subscribes to the messages about the key. Rejects with `Trouble`. */
  async listen(key: Word): Promise<Listening> {
    const slot = this.slot(key);
    const node = await this.open(key);
    let inbox = this.inboxes.get(node);
    if (inbox === undefined || inbox.ended) {
      inbox = new Inbox(node, this.route.clustered);
      this.inboxes.set(node, inbox);
    }
    const channel = this.channel(slot);
    try {
      await inbox.listen(channel);
    } catch (error) {
      throw await this.redirected(error, key, node);
    }
    return { inbox, channel };
  }

  private channel(slot: number): string {
    // In a cluster the message is published at the node of the slot, so the channel must hash to that slot.
    return this.route.clustered ? `redislock:${this.id}:{${tagOf(slot)}}` : `redislock:${this.id}`;
  }
}

/**
 * Gives a dedicated connection the state of the shared one. Only the server knows all of it: node-redis does not expose
 * the database, ioredis does not know it after a raw SELECT, and continues in database 0 if the user may not SELECT.
 */
async function adopt(shared: Node, own: OwnConnection, withinMs: number): Promise<void> {
  const asked = ["CLIENT", "INFO"];
  const replies = await Promise.all([shared.send(asked, withinMs), own.send(asked, withinMs)]);
  const [theirs, ours] = replies.map((reply) => clientInfo(String(reply))) as [ClientInfo, ClientInfo];
  if (theirs["user"] !== ours["user"]) {
    const message = `the client became user "${theirs["user"]}" by AUTH, which its other connections do not know`;
    throw new Trouble(new Error(`${message}: pass the user and the password to its constructor`), "refused");
  }
  const changes: Word[][] = [];
  if (theirs["db"] !== ours["db"]) changes.push(["SELECT", theirs["db"] ?? ""]);
  if (theirs["name"] !== ours["name"]) changes.push(["CLIENT", "SETNAME", theirs["name"] ?? ""]);
  await Promise.all(changes.map((words) => own.send(words, withinMs)));
}

/**
 * A dedicated connection to the node that is importing the slot. Each command needs ASKING there until the slot has
 * moved, and ASKING does no harm afterwards.
 */
function asking(own: OwnConnection): OwnConnection {
  return {
    get ended() {
      return own.ended;
    },
    host: own.host,
    send: (words, withinMs) => own.sendAsking(words, withinMs),
    sendAsking: (words, withinMs) => own.sendAsking(words, withinMs),
    packet: (parts) => own.packet(parts, "asking"),
    onEnd: (callback) => own.onEnd(callback),
    close: () => own.close(),
  };
}

/** One character for each byte of a key, so that strings and buffers with the same bytes are the same key. */
const bytes = (key: Word): string => (Buffer.isBuffer(key) ? key : Buffer.from(String(key))).toString("latin1");

type ClientInfo = Record<string, string>;

const clientInfo = (line: string): ClientInfo =>
  Object.fromEntries(line.split(/\s/).map((field) => [field.split("=", 1)[0], field.slice(field.indexOf("=") + 1)]));
