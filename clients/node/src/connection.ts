/**
 * The interface between the protocol and a client library. `ioredis.ts` and `node_redis.ts` implement it; no other file
 * calls a library.
 */

/** A part of a command. */
export type Word = string | Buffer | number;

/** How long a request may wait for a connection before it counts as not sent. */
export const UNSENT_MS = 2000;

/** One server, over the one connection that all callers share. */
export interface Node {
  /** True if the connection is gone for good: then the route leads to another node. */
  readonly ended: boolean;
  /** True if another node may take its place then. False: the application closed the client. */
  readonly replaceable: boolean;
  /**
   * Sends a command once, with no automatic retry. The reply is decoded no further than to text. Rejects with
   * `Trouble`.
   * Without a reply after `withinMs` the request counts as unanswered; undefined: no limit. `raw`: strings of the reply
   * are buffers.
   */
  send(words: readonly Word[], withinMs: number | undefined, how?: "raw"): Promise<unknown>;
  /** As `send`, in a cluster, to the node that imports the slot. */
  sendAsking(words: readonly Word[], withinMs: number | undefined, how?: "raw"): Promise<unknown>;
  /** Decodes the reply of an inner command as the library's own call of that command does. */
  decoded(command: string, reply: unknown): unknown;
  /** Called whenever the connection ends: requests that were queued over it have left the queue. */
  onInterrupted(tell: () => void): void;
  /** Makes the connection for messages; it reconnects until it is closed. */
  subscriber(events: SubscriberEvents): Subscriber;
  /** Makes a dedicated connection, which is never replaced. */
  own(): OwnConnection;
}

export interface SubscriberEvents {
  message(text: string): void;
  /** The connection was lost: messages may be lost, and no channel is subscribed any more. */
  interrupted(): void;
}

export interface Subscriber {
  readonly ended: boolean;
  /** Resolves after the server's confirmation. Rejects with `Trouble`. */
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
  /** The prefix that the library puts before every key. */
  readonly keyPrefix: string | Buffer;
  /** Called when the client has ended: it connects no more. */
  onEnd(tell: () => void): void;
  /** The node of a slot; outside a cluster, the only node. Rejects with `Trouble`. */
  node(slot: number): Promise<Node>;
  /** The node at this address, if it is known. */
  nodeAt(address: string): Promise<Node | undefined>;
  /** Reloads the cluster's slot map. */
  refresh(): Promise<void>;
}
