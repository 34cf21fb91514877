/**
 * What the protocol asks of a client library. `ioredis.ts` and `node_redis.ts` give it; nothing else knows them.
 */

/** A part of a command. */
export type Word = string | Buffer | number;

/** How long a request may wait for a connection before it counts as not sent. */
export const UNSENT_MS = 2000;

/** One server, over the one connection that all callers share. */
export interface Node {
  /** Whether the connection is gone for good: then the route leads to another node. */
  readonly ended: boolean;
  /** Whether another may take its place then: otherwise its owner has closed it. */
  readonly replaceable: boolean;
  /**
   * Send a command once, never again by itself; the reply undecoded but for text. Rejects with `Trouble`.
   * Without a reply after `withinMs` it counts as unanswered; undefined: however long it takes.
   */
  send(words: readonly Word[], withinMs: number | undefined): Promise<unknown>;
  /** As `send`, in a cluster, to the node that a slot is just moved to. */
  sendAsking(words: readonly Word[], withinMs: number | undefined): Promise<unknown>;
  /** The reply of an inner command, as the library's own call of that command gives it. */
  decoded(command: string, reply: unknown): unknown;
  /** Whenever the connection ends, so that what was queued over it has lost its connection. */
  onInterrupted(tell: () => void): void;
  /** Make the connection for messages; it makes itself anew until it is closed. */
  subscriber(events: SubscriberEvents): Subscriber;
  /** Make a connection of its own, which is never replaced: it ends when it ends. */
  own(): OwnConnection;
}

export interface SubscriberEvents {
  message(text: string): void;
  /** The connection was lost: messages may be lost, and no channel is subscribed any more. */
  interrupted(): void;
}

export interface Subscriber {
  readonly ended: boolean;
  /** Resolves when the server has confirmed it. Rejects with `Trouble`. */
  subscribe(channel: string, sharded: boolean): Promise<void>;
  close(): void;
}

export interface OwnConnection {
  readonly ended: boolean;
  send(words: readonly Word[], withinMs: number | undefined): Promise<unknown>;
  onEnd(tell: () => void): void;
  close(): void;
}

/** Where a key is served. */
export interface Route {
  readonly clustered: boolean;
  /** What the library puts before every key. */
  readonly keyPrefix: string;
  /** The node of a slot; without a cluster there is one. Rejects with `Trouble`. */
  node(slot: number): Promise<Node>;
  /** The node at this address, if it is known. */
  nodeAt(address: string): Promise<Node | undefined>;
  /** Ask the cluster again who serves what. */
  refresh(): Promise<void>;
}
