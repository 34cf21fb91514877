/** Monotonic time, and pauses, in milliseconds. */

import { List, type Listed } from "./list.js";

export const now = (): number => performance.now();

// setTimeout takes at most 31 bits; a longer pause would end at once.
const LONGEST_MS = 2 ** 31 - 1;

interface Abort {
  readonly callbacks: Set<() => void>;
  readonly listener: () => void;
}

const aborts = new WeakMap<AbortSignal, Abort>();

/**
 * Calls back when the signal is aborted; returns a function that unsubscribes. All calls share one listener per signal,
 * because Node warns about a leak from eleven on.
 */
export function onAbort(signal: AbortSignal | undefined, callback: () => void): () => void {
  if (signal === undefined) return () => undefined;
  let abort = aborts.get(signal);
  if (abort === undefined) {
    const callbacks = new Set<() => void>();
    abort = { callbacks, listener: () => callbacks.forEach((each) => each()) };
    aborts.set(signal, abort);
    signal.addEventListener("abort", abort.listener, { once: true });
  }
  const { callbacks, listener } = abort;
  // Two calls may share one function.
  const once = (): void => callback();
  callbacks.add(once);
  return () => {
    if (!callbacks.delete(once) || callbacks.size > 0) return;
    aborts.delete(signal);
    signal.removeEventListener("abort", listener);
  };
}

/** Resolves after this time; rejects with the signal's reason if the signal is aborted first. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const timer = setTimeout(
      () => {
        off();
        resolve();
      },
      Math.min(ms, LONGEST_MS),
    );
    const off = onAbort(signal, () => {
      clearTimeout(timer);
      reject(signal?.reason);
    });
  });
}

/** The promise's result, or the signal's reason if the signal is aborted first. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    if (signal.aborted) reject(signal.reason);
    const off = onAbort(signal, () => reject(signal.reason));
    promise.then(resolve, reject).finally(off);
  });
}

/** As `abortable`, but after the abort the promise gets this many milliseconds to settle. */
export function abortableWithin<T>(ms: number, promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  const over = new AbortController();
  let off = (): void => undefined;
  const aborted = new Promise<never>((_resolve, reject) => {
    const late = (): void =>
      void pause(ms, over.signal).then(
        () => reject(signal.reason),
        () => undefined,
      );
    if (signal.aborted) late();
    else off = onAbort(signal, late);
  });
  return Promise.race([promise, aborted]).finally(() => {
    off();
    over.abort();
  });
}

/** Waits for the work for a limited time; it goes on in the background. */
export async function aside(work: Promise<unknown>, ms: number): Promise<void> {
  const over = new AbortController();
  await Promise.race([work.finally(() => over.abort()), pause(ms, over.signal).catch(() => undefined)]);
}

/** Jittered pauses, far below lock.keep-place (1 s), so that the waiter keeps its queue position. */
export class Backoff {
  private longest = 10;

  constructor(private readonly last = 250) {}

  next(until: number): number {
    const ms = this.longest * (0.5 + Math.random() / 2);
    this.longest = Math.min(this.longest * 2, this.last);
    return Math.max(0, Math.min(ms, until - now()));
  }
}

/**
 * Retries a request for a limited time after its first failure. It is always tried twice, however late the first
 * attempt failed.
 */
export class Resend {
  private until: number | undefined;
  private backoff: Backoff | undefined;

  constructor(
    private readonly limitMs: number,
    private readonly lastMs?: number,
  ) {}

  over(): boolean {
    if (this.until === undefined) {
      this.until = now() + this.limitMs;
      return false;
    }
    return now() >= this.until;
  }

  pause(signal?: AbortSignal): Promise<void> {
    this.backoff ??= new Backoff(this.lastMs);
    return pause(this.backoff.next(this.until ?? now()), signal);
  }
}

/**
 * Calls back after this time, unless stopped. After the event loop was blocked, data that has arrived is processed
 * first; a plain timer would fire before it, and may also fire up to a millisecond early.
 */
export function outOfTime(ms: number, ring: () => void): { stop(): void } {
  const ends = now() + ms;
  let timer: NodeJS.Timeout | undefined;
  let late: NodeJS.Immediate | undefined;
  const check = (): void => (now() < ends ? watch() : ring());
  const watch = (): void => {
    const left = Math.max(0, Math.min(ends - now(), LONGEST_MS));
    timer = setTimeout(() => (late = setImmediate(check)), left);
  };
  watch();
  return {
    stop() {
      clearTimeout(timer);
      clearImmediate(late);
    },
  };
}

/** A timer that can be set again, and does not keep the process alive. */
export class Timer {
  private timer: NodeJS.Timeout | undefined;

  set(ms: number, ring: () => void): void {
    this.stop();
    this.timer = setTimeout(ring, Math.max(0, Math.min(ms, LONGEST_MS)));
    this.timer.unref();
  }

  stop(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }
}

/** A request without a reply. */
export interface Unanswered extends Listed {
  /** True if it was written to the connection. */
  readonly sent: boolean;
  /** When it is checked next, and when it times out. */
  checkAt: number;
  lateAt: number;
}

/**
 * The requests of a connection that have no reply yet. Each times out without a reply after its `withinMs` (undefined:
 * no limit), or without a connection after `unsentMs`; a busy connection does not count as missing.
 *
 * One timer serves all of them, and a reply leaves it set: it fires at the earliest time at which one of the requests
 * was to be checked. Setting one for each request took 1 of its 35 µs.
 */
export class ReplyTimeouts<Request extends Unanswered> {
  readonly requests = new List<Request>();
  private readonly timer = new Timer();
  private rings = Infinity;

  constructor(
    private readonly unsentMs: number,
    private readonly connected: () => boolean,
    private readonly cancel: (request: Request) => void,
  ) {}

  begin(request: Request, withinMs = Infinity): void {
    const begins = now();
    request.lateAt = begins + withinMs;
    request.checkAt = begins + Math.min(this.unsentMs, withinMs);
    this.requests.add(request);
    this.set(request.checkAt);
  }

  end(request: Request): void {
    this.requests.delete(request);
  }

  private set(time: number): void {
    if (time >= this.rings) return;
    this.rings = time;
    // After the event loop was blocked, data that has arrived is processed first.
    this.timer.set(time - now(), () => setImmediate(() => this.check()));
  }

  private check(): void {
    const time = now();
    this.rings = Infinity;
    for (const request of this.requests) {
      if (request.checkAt <= time) {
        if (request.lateAt <= time || !(request.sent || this.connected())) {
          this.cancel(request);
          continue;
        }
        request.checkAt = request.sent ? request.lateAt : Math.min(time + this.unsentMs, request.lateAt);
      }
      this.set(request.checkAt);
    }
  }
}
