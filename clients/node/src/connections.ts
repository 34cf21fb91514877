/**
 * A caller's client as the protocol sees it: commands by key, sent to the node that serves the slot. One per client.
 */

import { randomBytes } from "node:crypto";

import type { Node, OwnConnection, Part, Route, Word } from "./connection.js";
import { Endings } from "./endings.js";
import { Inbox } from "./inbox.js";
import { Observed } from "./observer.js";
import { Trouble } from "./replies.js";
import { slotOf, tagOf } from "./slots.js";

/** The node and the channel of the messages about a key. */
export interface Listening {
  inbox: Inbox;
  channel: string;
}

export class Connections {
  readonly endings = new Endings();
  readonly observed = new Observed();
  private readonly inboxes = new WeakMap<Node, Inbox>();
  private readonly id = randomBytes(8).toString("hex");
  /** Slots that are being moved, each with its new address. */
  private readonly asks = new Map<number, string>();
  /** The dedicated connections that are open. They end with the client. */
  private readonly owns = new Set<OwnConnection>();

  constructor(private readonly route: Route) {
    route.onEnd(() => {
      for (const own of [...this.owns]) own.close();
    });
  }

  key(name: string | Buffer): Word {
    const { keyPrefix } = this.route;
    if (keyPrefix.length === 0) return name;
    if (typeof keyPrefix === "string" && typeof name === "string") return keyPrefix + name;
    return Buffer.concat([keyPrefix, name].map((part) => (typeof part === "string" ? Buffer.from(part) : part)));
  }

  /** Sends a command to the node that serves the key. Rejects with `Trouble`; a redirection heals. */
  send(key: Word, words: readonly Word[], withinMs: number | undefined, how?: "raw"): Promise<unknown> {
    const slot = this.slot(key);
    const node = this.route.node(slot);
    return node instanceof Promise ? this.sendFrom(slot, node, words, withinMs, how) : node.send(words, withinMs, how);
  }

  /** Sends to the slot's node, or where its last reply said that the slot moves to. */
  private async sendFrom(
    slot: number,
    found: Promise<Node>,
    ...request: [words: readonly Word[], withinMs: number | undefined, how?: "raw"]
  ): Promise<unknown> {
    const node = await found;
    const target = await this.asked(slot);
    if (target !== undefined) return await target.sendAsking(...request);
    try {
      return await node.send(...request);
    } catch (error) {
      throw await this.redirected(error, slot, node);
    }
  }

  /** Sends these commands in one packet, as `send`; a `Trouble` stands in the place of a reply. */
  packet(key: Word, parts: readonly Part[]): Promise<unknown[]> {
    const slot = this.slot(key);
    const node = this.route.node(slot);
    return node instanceof Promise ? this.packetFrom(slot, node, parts) : node.packet(parts);
  }

  private async packetFrom(slot: number, found: Promise<Node>, parts: readonly Part[]): Promise<unknown[]> {
    const node = await found;
    const target = await this.asked(slot);
    return this.allRedirected(
      await (target === undefined ? node.packet(parts) : target.packet(parts, "asking")),
      slot,
      node,
    );
  }

  /** As `redirected`: the cluster is looked at once for all. */
  async allRedirected(replies: unknown[], slot: number, node?: Node): Promise<unknown[]> {
    const first = replies.find((reply) => reply instanceof Trouble);
    if (first === undefined) return replies;
    const learned = await this.redirected(first, slot, node);
    const isRedirection = ({ code }: Trouble): boolean => this.route.clustered && (code === "ASK" || code === "MOVED");
    return replies.map((reply) => {
      if (reply === first) return learned;
      return reply instanceof Trouble && isRedirection(reply) ? new Trouble(reply.error, "unsent") : reply;
    });
  }

  /** The node that imports the slot, if the last reply named it; for one request. */
  private async asked(slot: number): Promise<Node | undefined> {
    const address = this.asks.get(slot);
    if (address === undefined) return undefined;
    this.asks.delete(slot);
    const target = await this.route.nodeAt(address);
    if (target === undefined) await this.route.refresh();
    return target;
  }

  /** Decodes an inner command's reply as the library does. */
  decoded(key: Word, command: string, reply: unknown): unknown {
    return this.at(this.slot(key), (node) => node.decoded(command, reply));
  }

  /**
   * A dedicated connection to the node of the key, in the database and with the name that the shared connection has
   * now: `select` and CLIENT SETNAME change those after the client was made. Rejects with `Trouble`.
   */
  async own(key: Word, withinMs: number): Promise<OwnConnection> {
    const node = await this.open(key);
    const own = node.own();
    this.owns.add(own);
    own.onEnd(() => this.owns.delete(own));
    try {
      await adopt(node, own, withinMs);
    } catch (error) {
      own.close();
      // Whatever became of these commands, the request was not sent.
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

  /**
   * Learns from an error where the slot is now. Returns the error; a redirection becomes `unsent`, so that it heals.
   */
  async redirected(error: unknown, slot: number, node?: Node): Promise<unknown> {
    if (!this.route.clustered || !(error instanceof Trouble)) return error;
    if (error.code === "ASK") {
      this.asks.set(slot, error.message.split(" ")[2] ?? "");
    } else if (error.code === "MOVED" || error.stage !== "refused") {
      await this.route.refresh().catch(() => undefined);
    } else {
      return error;
    }
    if (node !== undefined) this.inboxes.get(node)?.forget(this.channel(slot));
    return error.stage === "refused" ? new Trouble(error.error, "unsent") : error;
  }

  slot(key: Word): number {
    return this.route.clustered ? slotOf(typeof key === "number" ? String(key) : key) : 0;
  }

  /** True while the slot is being moved: messages about a request that waits now may not arrive. */
  isMoving(key: Word): boolean {
    return this.asks.has(this.slot(key));
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
      throw await this.redirected(error, slot, node);
    }
    return { inbox, channel };
  }

  private channel(slot: number): string {
    // In a cluster the message is published at the slot's node, so the channel has to hash to that slot.
    return this.route.clustered ? `redislock:${this.id}:{${tagOf(slot)}}` : `redislock:${this.id}`;
  }
}

/**
 * Gives a dedicated connection the state of the shared one. Only the server knows all of it: node-redis does not tell
 * the database, nor does ioredis after a raw SELECT, and ioredis goes on in database 0 where the user may not SELECT.
 */
async function adopt(shared: Node, own: OwnConnection, withinMs: number): Promise<void> {
  const asked = ["CLIENT", "INFO"];
  const replies = await Promise.all([shared.send(asked, withinMs), own.send(asked, withinMs)]);
  const [theirs, ours] = replies.map((reply) => clientInfo(String(reply))) as [ClientInfo, ClientInfo];
  if (theirs["user"] !== ours["user"]) {
    const message = `the client became user "${theirs["user"]}" by AUTH, which its further connections do not know`;
    throw new Trouble(new Error(`${message}: give the user and the password to its constructor`), "refused");
  }
  const changes: Word[][] = [];
  if (theirs["db"] !== ours["db"]) changes.push(["SELECT", theirs["db"] ?? ""]);
  if (theirs["name"] !== ours["name"]) changes.push(["CLIENT", "SETNAME", theirs["name"] ?? ""]);
  await Promise.all(changes.map((words) => own.send(words, withinMs)));
}

type ClientInfo = Record<string, string>;

const clientInfo = (line: string): ClientInfo =>
  Object.fromEntries(line.split(/\s/).map((field) => [field.split("=", 1)[0], field.slice(field.indexOf("=") + 1)]));
