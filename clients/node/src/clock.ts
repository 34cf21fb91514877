/** Time by a clock that nobody sets, and pauses. All of it is in milliseconds. */

export const now = (): number => performance.now();

// setTimeout takes no more than 31 bits: a longer pause would be over at once.
const LONGEST_MS = 2 ** 31 - 1;

/** Resolves after so many milliseconds; rejects with the signal's reason when it is aborted before. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const aborted = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(
      () => {
        signal?.removeEventListener("abort", aborted);
        resolve();
      },
      Math.min(ms, LONGEST_MS),
    );
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

/** The promise's result, or the signal's reason when that is aborted first. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    if (signal.aborted) reject(signal.reason);
    const aborted = (): void => reject(signal.reason);
    signal.addEventListener("abort", aborted, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", aborted));
  });
}

/** As `abortable`, but the promise has so many milliseconds more. */
export function abortableWithin<T>(ms: number, promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  const over = new AbortController();
  const aborted = new Promise<never>((_resolve, reject) => {
    const late = (): void =>
      void pause(ms, over.signal).then(
        () => reject(signal.reason),
        () => undefined,
      );
    if (signal.aborted) late();
    else signal.addEventListener("abort", late, { once: true, signal: over.signal });
  });
  return Promise.race([promise, aborted]).finally(() => over.abort());
}

/** Jittered pauses that stay far below lock.keep-place (1 s), so that a waiter's place is still there. */
export class Backoff {
  private longest = 10;

  constructor(private readonly last = 250) {}

  next(until: number): number {
    const ms = this.longest * (0.5 + Math.random() / 2);
    this.longest = Math.min(this.longest * 2, this.last);
    return Math.max(0, Math.min(ms, until - now()));
  }
}

/** A request is sent again for so long after its first failure: however long that took, there is a second try. */
export class Resend {
  private until: number | undefined;
  private readonly backoff: Backoff;

  constructor(
    private readonly limitMs: number,
    lastMs?: number,
  ) {
    this.backoff = new Backoff(lastMs);
  }

  over(): boolean {
    if (this.until === undefined) {
      this.until = now() + this.limitMs;
      return false;
    }
    return now() >= this.until;
  }

  pause(signal?: AbortSignal): Promise<void> {
    return pause(this.backoff.next(this.until ?? now()), signal);
  }
}

/**
 * Calls back after so many milliseconds, unless it is stopped. Where the event loop was held up, what has arrived
 * meanwhile comes first: timers would run before it.
 */
export function outOfTime(ms: number, ring: () => void): { stop(): void } {
  let late: NodeJS.Immediate | undefined;
  const timer = setTimeout(() => (late = setImmediate(ring)), Math.max(0, Math.min(ms, LONGEST_MS)));
  return {
    stop() {
      clearTimeout(timer);
      clearImmediate(late);
    },
  };
}

/**
 * Calls back when a request has had no reply for `withinMs` (undefined: however long it takes), or before, when it has
 * waited for a connection for `unsentMs`; not while there is one that is only busy. One timer for both.
 */
export function outOfPatience(
  unsentMs: number,
  withinMs: number | undefined,
  request: { sent(): boolean; connected(): boolean },
  ring: () => void,
): { stop(): void } {
  let left = withinMs ?? Infinity;
  let timer: { stop(): void } | undefined;
  const recheck = (): void => {
    timer = undefined;
    if (left <= 0 || !(request.sent() || request.connected())) ring();
    else watch(request.sent() ? left : Math.min(unsentMs, left));
  };
  const watch = (ms: number): void => {
    left -= ms;
    if (ms < Infinity) timer = outOfTime(ms, recheck);
  };
  watch(Math.min(unsentMs, left));
  return { stop: () => timer?.stop() };
}

/** A timer that keeps no process alive, to be set again and again. */
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
