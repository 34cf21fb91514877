/**
 * Receives the messages that the server publishes about queued requests (NOTIFY), over one subscribed connection for
 * all waiters.
 *
 * Messages are delivered at most once, so a waiter that may have missed one gets `interrupted` and asks again.
 */

import { now, onAbort, outOfTime } from "./clock.js";
import type { Node, Subscriber, Word } from "./connection.js";

/** How late the message about a cancelled request may come, in ms. */
const LATE_CANCEL_MS = 5000;

/** The outcome of a queued request. `interrupted`: unknown, because messages may be lost. */
export interface Notice {
  outcome: string;
  fence?: number;
  holds?: number;
  slot?: number;
}

/** One caller's view of the messages about its request. */
export class Waiter {
  private readonly notices: Notice[] = [];
  private wake: (() => void) | undefined;

  constructor(private readonly leave: (waiter: Waiter) => void) {}

  notify(notice: Notice): void {
    this.notices.push(notice);
    this.wake?.();
  }

  /** The next notice; undefined if none came in this time. */
  async next(ms: number, signal: AbortSignal | undefined): Promise<Notice | undefined> {
    if (this.notices.length === 0 && ms > 0) {
      await new Promise<void>((resolve, reject) => {
        const finish = (): void => {
          timer.stop();
          off();
          this.wake = undefined;
          resolve();
        };
        const aborted = (): void => {
          finish();
          reject(signal?.reason);
        };
        const timer = outOfTime(ms, finish);
        const off = onAbort(signal, aborted);
        this.wake = finish;
        if (signal?.aborted) aborted();
      });
    }
    return this.notices.shift();
  }

  close(): void {
    this.leave(this);
  }
}

/** The messages of one node. */
export class Inbox {
  private readonly waiters = new Map<string, Set<Waiter>>();
  private readonly channels = new Map<string, Promise<void>>();
  private readonly confirmed = new Set<string>();
  /** For each subject, until when messages about requests that this client cancelled itself may come. */
  private readonly cancels = new Map<string, number[]>();
  private readonly subscriber: Subscriber;
  private waiting = 0;

  constructor(
    node: Node,
    private readonly sharded: boolean,
  ) {
    this.subscriber = node.subscriber({
      message: (text) => this.deliver(text),
      interrupted: () => {
        this.cancels.clear();
        this.unsubscribed();
      },
      unsubscribed: () => this.unsubscribed(),
    });
    // The requests themselves depend on the shared connection.
    node.onInterrupted(() => {
      this.interruptAll();
      if (node.ended) this.subscriber.close();
    });
  }

  get ended(): boolean {
    return this.subscriber.ended;
  }

  /** The number of waiters. */
  get size(): number {
    return this.waiting;
  }

  listensTo(channel: string): boolean {
    return this.confirmed.has(channel);
  }

  /** Resolves when the subscription to the channel is confirmed. Rejects with `Trouble`. */
  listen(channel: string): Promise<void> {
    let listening = this.channels.get(channel);
    if (listening === undefined) {
      listening = this.subscriber.subscribe(channel, this.sharded).then(
        () => {
          if (this.channels.get(channel) === listening) this.confirmed.add(channel);
        },
        (error) => {
          if (this.channels.get(channel) === listening) this.channels.delete(channel);
          throw error;
        },
      );
      this.channels.set(channel, listening);
    }
    return listening;
  }

  /** The slot of the channel has moved to another node, which ends the subscription. */
  forget(channel: string): void {
    this.channels.delete(channel);
    this.confirmed.delete(channel);
  }

  /** Register before the request is sent, because its message may come before its reply. */
  waiter(key: Word, token: Word): Waiter {
    const about = subject(asInMessage(key), asInMessage(token));
    const waiter = new Waiter(() => {
      this.waiting -= 1;
      const others = this.waiters.get(about);
      if (others?.delete(waiter) && others.size === 0) this.waiters.delete(about);
    });
    const waiters = this.waiters.get(about) ?? new Set();
    this.waiters.set(about, waiters.add(waiter));
    this.waiting += 1;
    return waiter;
  }

  /**
   * Records that this client cancels a request of the token itself. The message about that may come while the token's
   * next request waits, which was not cancelled. Returns a function to call if the request was not queued.
   */
  cancelling(key: Word, token: Word): () => void {
    const about = subject(asInMessage(key), asInMessage(token));
    this.cancels.set(about, [...(this.cancels.get(about) ?? []), now() + LATE_CANCEL_MS]);
    return () => void this.takeCancel(about);
  }

  /** True if such a message was expected, which is then no longer the case. */
  private takeCancel(about: string): boolean {
    const [first, ...others] = (this.cancels.get(about) ?? []).filter((until) => until > now());
    if (others.length > 0) this.cancels.set(about, others);
    else this.cancels.delete(about);
    return first !== undefined;
  }

  private deliver(text: string): void {
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return; // Another client publishes on our channel.
    }
    const about = subject(message?.key, message?.token);
    const isOurs = message?.outcome === "cancelled" && this.takeCancel(about);
    const waiters = this.waiters.get(about);
    if (waiters === undefined) return;
    // One owner may wait twice for one key. The message does not say for which request, so each asks again.
    const notice: Notice = waiters.size === 1 && !isOurs ? message : { outcome: "interrupted" };
    for (const waiter of waiters) waiter.notify(notice);
  }

  /** Which channels are left is not known, so each is subscribed again when it is needed. */
  private unsubscribed(): void {
    this.channels.clear();
    this.confirmed.clear();
    this.interruptAll();
  }

  private interruptAll(): void {
    for (const waiters of this.waiters.values()) {
      for (const waiter of waiters) waiter.notify({ outcome: "interrupted" });
    }
  }
}

/** The server's JSON form of a word: a string, or `{"base64":…}` if it is not UTF-8. */
function asInMessage(word: Word): unknown {
  if (!Buffer.isBuffer(word)) return String(word);
  const text = word.toString();
  return Buffer.from(text).equals(word) ? text : { base64: word.toString("base64") };
}

const subject = (key: unknown, token: unknown): string => JSON.stringify([key, token]);
