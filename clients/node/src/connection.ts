/**
 * The interface between the protocol and a client library. `ioredis.ts` and `node_redis.ts` implement it; no other file
 * calls a library.
 */

import type { Failures } from "./causes.js";

/** A word of a command. */
export type Word = string | Buffer | number;

/** How long a request may wait for a connection before it counts as not sent. */
export const UNSENT_MS = 2000;

/** One command of a packet. `withinMs` is that of `Node.send`. */
export interface Part {
  readonly words: readonly Word[];
  readonly withinMs: number | undefined;
  /** Of the first part: true if with this reply, or `Trouble`, the other replies are not awaited. */
  readonly isEnough?: (reply: unknown) => boolean;
}

/** One server, over the connection that all callers share. */
export interface Node {
  /** True if the connection has ended for good; the route then leads to another node. */
  readonly ended: boolean;
  /** True if another node may replace it then. False: the application closed the client. */
  readonly replaceable: boolean;
  /** As the connection was made. */
  readonly host: string;
  /** Why it has no connection, as far as the library has reported. */
  readonly failures: Failures;
  /** True if a request has no reply yet. */
  readonly isBusy: boolean;
  /**
   * Sends a command once, with no automatic retry. The reply is decoded no further than to text. Rejects with
   * `Trouble`. Without a reply after `withinMs` the request counts as unanswered; undefined: no limit. `raw`: return
   * strings of the reply as buffers.
   */
  send(words: readonly Word[], withinMs: number | undefined, how?: "raw"): Promise<unknown>;
  /** As `send`, to the node of a cluster that is importing the slot. */
  sendAsking(words: readonly Word[], withinMs: number | undefined, how?: "raw"): Promise<unknown>;
  /**
   * Sends these commands in one packet, each as `send` does, or as `sendAsking`. Never rejects: a `Trouble` stands for
   * each reply that did not come. If the first one is enough, resolves with that alone.
   */
  packet(parts: readonly Part[], how?: "asking"): Promise<unknown[]>;
  /** Decodes the reply of an inner command as the library's own call of that command does. */
  decoded(command: string, reply: unknown): unknown;
  /** Calls back whenever the connection ends, because requests that were queued over it have then left the queue. */
  onInterrupted(callback: () => void): void;
  /** Opens the connection for messages, which reconnects until it is closed. */
  subscriber(events: SubscriberEvents): Subscriber;
  /** Opens a dedicated connection, which is never replaced. */
  own(): OwnConnection;
}

export interface SubscriberEvents {
  message(text: string): void;
  /** The connection was lost: messages may be lost, and no channel is subscribed any more. */
  interrupted(): void;
  /** The server has ended a subscription, because its slot has left the node. */
  unsubscribed(): void;
}

export interface Subscriber {
  readonly ended: boolean;
  /** Resolves after the server's confirmation. Rejects with `Trouble`. */
  subscribe(channel: string, sharded: boolean): Promise<void>;
  close(): void;
}

export interface OwnConnection {
  readonly ended: boolean;
  readonly host: string;
  send(words: readonly Word[], withinMs: number | undefined): Promise<unknown>;
  sendAsking(words: readonly Word[], withinMs: number | undefined): Promise<unknown>;
  packet(parts: readonly Part[], how?: "asking"): Promise<unknown[]>;
  onEnd(callback: () => void): void;
  close(): void;
}

/** What `Node.packet` resolves with. The promises do not reject. */
export async function repliesOf(parts: readonly Part[], replies: Promise<unknown>[]): Promise<unknown[]> {
  const first = await replies[0];
  return parts[0]?.isEnough?.(first) ? [first] : Promise.all(replies);
}

/** Finds the node that serves a key. */
export interface Route {
  /** Why there is no connection to the node of a key, as far as the library has reported. */
  readonly failures: Failures;
  readonly clustered: boolean;
  /** The prefix that the library puts before every key. */
  readonly keyPrefix: string | Buffer;
  /** Calls back when the client has ended and will not connect again. */
  onEnd(callback: () => void): void;
  /**
   * The node of a slot. Rejects with `Trouble`. Returned without a promise, it is the only node, which never redirects.
   */
  node(slot: number): Node | Promise<Node>;
  /** The node at this address, which a node of the cluster has named. undefined: it cannot be connected to. */
  nodeAt(address: string): Promise<Node | undefined>;
  /** Reloads the cluster's slot map. */
  refresh(): Promise<void>;
}
