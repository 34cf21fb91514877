/** A caller's client as the protocol sees it: by key, wherever the key's slot is served. One for each client. */

import { randomBytes } from "node:crypto";

import type { Node, OwnConnection, Route, Word } from "./connection.js";
import { Inbox } from "./inbox.js";
import { Trouble } from "./replies.js";
import { slotOf, tagOf } from "./slots.js";

/** Where to listen for the messages about a key. */
export interface Listening {
  inbox: Inbox;
  channel: string;
}

export class Connections {
  private readonly inboxes = new WeakMap<Node, Inbox>();
  private readonly id = randomBytes(8).toString("hex");
  /** Slots that are being moved, and whereto. */
  private readonly asks = new Map<number, string>();

  constructor(private readonly route: Route) {}

  key(name: string | Buffer): Word {
    const { keyPrefix } = this.route;
    if (keyPrefix === "") return name;
    return Buffer.isBuffer(name) ? Buffer.concat([Buffer.from(keyPrefix), name]) : keyPrefix + name;
  }

  /** Send a command to where the key is served. Rejects with `Trouble`; a redirection is one that heals. */
  async send(key: Word, words: readonly Word[], withinMs: number | undefined): Promise<unknown> {
    const slot = this.slot(key);
    const node = await this.route.node(slot);
    const address = this.asks.get(slot);
    if (address !== undefined) {
      this.asks.delete(slot);
      const target = await this.route.nodeAt(address);
      if (target !== undefined) return await target.sendAsking(words, withinMs);
      await this.route.refresh();
    }
    try {
      return await node.send(words, withinMs);
    } catch (error) {
      throw await this.redirected(error, slot, node);
    }
  }

  /** Run an inner command's reply through what the library does with replies to it. */
  async decoded(key: Word, command: string, reply: unknown): Promise<unknown> {
    return (await this.route.node(this.slot(key))).decoded(command, reply);
  }

  /** A connection of its own to the node of the key. */
  async own(key: Word): Promise<OwnConnection> {
    return (await this.route.node(this.slot(key))).own();
  }

  /** After an error on a connection of its own: whether it was a redirection, and where the slot is now. */
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

  /** The slot is being moved: where a request waits now, no message may come. */
  isMoving(key: Word): boolean {
    return this.asks.has(this.slot(key));
  }

  /** Where messages about the key come in; undefined while nothing listens there. */
  async listening(key: Word): Promise<Listening | undefined> {
    const slot = this.slot(key);
    const inbox = this.inboxes.get(await this.route.node(slot));
    const channel = this.channel(slot);
    return inbox?.listensTo(channel) ? { inbox, channel } : undefined;
  }

  /** Listen for the messages about the key. Rejects with `Trouble`. */
  async listen(key: Word): Promise<Listening> {
    const slot = this.slot(key);
    const node = await this.route.node(slot);
    if (node.ended) {
      throw new Trouble(new Error("The connection has ended"), node.replaceable ? "unsent" : "closed");
    }
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
    // In a cluster it is published where the slot is, so that it has to hash there.
    return this.route.clustered ? `redislock:${this.id}:{${tagOf(slot)}}` : `redislock:${this.id}`;
  }
}
