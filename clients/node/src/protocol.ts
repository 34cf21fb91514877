/**
 * Acquires, renews and releases a lock over connections that break.
 *
 * Three things must never happen: a second hold because of a lost reply, a lock left behind by a cancelled caller, and
 * a loss that is not reported.
 */

import { abortable, aside, Backoff, now, outOfTime, pause, Resend } from "./clock.js";
import { explain, UnexplainedError, RECENT_MS } from "./causes.js";
import type { OwnConnection, Part, Word } from "./connection.js";
import type { Connections, Listening } from "./connections.js";
import { LockError, LockLostError, NotReplicatedError, WrongTypeError } from "./errors.js";
import type { LockType, Lease, Work } from "./lock_types.js";
import type { Notice, Waiter } from "./inbox.js";
import { lockInfo, type LockInfo } from "./info.js";
import type { Done, Granted, Owned } from "./owned.js";
import { makeToken } from "./tokens.js";
import { isNotLoaded, notRun, translated, Trouble } from "./replies.js";

/** The interval at which a queued request is resent, which is the most that a lost message costs. */
export const SLICE_MS = 5000;
/**
 * With many waiters, one request is resent per this many milliseconds, so that resending does not delay the hand-offs.
 */
const APART_MS = 10;
/** A request stays queued for this many slices, because a client that is paused would miss lock.keep-place (1 s). */
const QUEUED_SLICES = 2;
/** A blocking request without a reply for this long counts as queued. */
const QUEUED_MS = 100;
/** The slice while a slot is moving, because messages may not arrive. */
const MOVING_SLICE_MS = 250;
/** How long after the request has timed out its message may arrive. */
const LATE_MESSAGE_MS = 250;
/** How long the last attempt may go on after the acquire timeout. */
const LATE_REPLY_MS = 1000;
/** After this time a missing reply counts as lost. */
export const LATE_MS = 5000;
/**
 * How long a request that does not wait, or a release, is retried: long enough for a reconnect and for a slot to move.
 */
export const RESEND_MS = 1000;
export const RELEASE_MS = 10_000;
/**
 * How long a cancelled caller waits for its cleanup, which then goes on in the background until the lease expires.
 */
export const KEPT_MS = 1000;
/** The timeout of one cleanup attempt. */
const UNDO_MS = 2000;

/** One acquire; retries repeat the same words. `holds`: the owner's count in this mode after the grant. */
export interface Request {
  lockType: LockType;
  lock: string;
  token: Word;
  /** True if the token was used before, so a late message may belong to an earlier request. */
  tokenUsedBefore: boolean;
  before: number;
  holds: number;
  /** The owner's holds in all modes. */
  owned: Owned;
  /** True if the owner holds another mode as well. */
  otherMode: boolean;
  lease: Lease;
  /** 0: none. */
  atLeast: number;
  session: boolean;
  /** A release by the holder ends this request as done, because the work is shared. */
  coalesce: boolean;
  /** Called when the request waits in the server's queue, maybe more than once. */
  onQueued: () => void;
  /** A command to run under the grant, which is released right after it. */
  inner?: readonly Word[];
}

export interface WaitLimit {
  /** How long to wait; 0: do not wait, Infinity: indefinitely. */
  waitMs: number;
  /** When that time has passed, counted from the caller's call. */
  ends: number;
  /** The polling interval, for sharing the key with clients that hold it as a string; undefined: wait in the queue. */
  pollMs: number | undefined;
  signal: AbortSignal | undefined;
}

/** The outcome of a request: granted, done (COALESCE), still queued (NOTIFY), or none of these. */
type Answer = Granted | Done | "queued" | undefined;

function words(request: Request, blockMs?: number, channel?: string): Word[] {
  const acquire = request.lockType.acquire(request.token, request.holds, request.lease);
  if (blockMs !== undefined) acquire.push("BLOCK", blockMs);
  if (blockMs !== undefined && request.coalesce) acquire.push("COALESCE");
  if (channel !== undefined) acquire.push("NOTIFY", channel);
  if (request.session) acquire.push("SESSION");
  return acquire;
}

function answer(reply: unknown, request: Request, sent: number): Answer {
  if (reply === null || reply === undefined) return undefined;
  const [token, fence, holds = 1, slot] = reply as [unknown, unknown, unknown, unknown];
  if (token === null) return { done: true, fence: Number(fence) };
  if (Number(fence) === 0) return "queued";
  return granted(request, sent, Number(fence), Number(holds), slot === undefined ? undefined : Number(slot));
}

const isGranted = (answered: Answer): answered is Granted =>
  answered !== undefined && answered !== "queued" && !answered.done;

function granted(request: Request, sent: number, fence: number, holds: number, slot: number | undefined): Granted {
  return { fence, holds, deadline: endOf(sent, request.lease), slot };
}

/** The timeout of a reply, so that the last attempt of an acquire ends in time. */
const within = (ends: number, from = now()): number => Math.max(1, Math.min(LATE_MS, ends + LATE_REPLY_MS - from));

export const endOf = (sent: number, lease: Lease): number => (lease === null ? Infinity : sent + lease);

/** How long the server may keep what is not released: `lease` if it was granted just now, or what is left. */
export const leftMs = (owned: Owned, lease: Lease): number => Math.max(lease ?? Infinity, owned.remainingMs);

/**
 * A strategy that requests a lock until it is granted or the wait times out. `slice` sends the request, and waits for a
 * while if it was queued.
 */
interface Asking {
  slice(ends: number): Promise<Granted | Done | undefined>;
  /** The wait has timed out. */
  end(ends: number): Promise<Granted | Done | undefined>;
  /** True if the outcome of a request is unknown: it may be queued or granted. */
  open: boolean;
}

/**
 * Acquires the lock; undefined: not granted in time. `own`: the dedicated connection to use, if any.
 */
export function acquire(
  connections: Connections,
  own: OwnTransport | undefined,
  request: Request,
  waitLimit: WaitLimit,
): Promise<Granted | Done | undefined> {
  const { lockType, token, tokenUsedBefore, inner } = request;
  const { signal } = waitLimit;
  const start = (): Promise<Granted | Done | undefined> =>
    own === undefined && inner === undefined && !signal?.aborted
      ? askFirst(connections, request, waitLimit)
      : ask(connections, own, request, waitLimit);
  // Wait for earlier requests of the owner, which could end this one.
  const settled = tokenUsedBefore ? connections.endings.settled(lockType.keys, token) : undefined;
  const asking = settled === undefined ? start() : afterEndings(settled, request, waitLimit).then(start);
  return withdrawing(connections, request, signal, asking);
}

/** The outcome of the first request. */
interface First {
  answered?: Answer;
  error?: unknown;
  /** False: it failed before. */
  isSent: boolean;
  /** True if it may be queued or granted. */
  open: boolean;
}

/**
 * Sends the first request, which neither waits in the queue nor needs a subscription, because most locks are free. It
 * is sent from here, because the layers of `ask` cost as much as the rest of an acquire does. Any outcome but a grant
 * is left to `ask`.
 */
async function askFirst(
  connections: Connections,
  request: Request,
  waitLimit: WaitLimit,
): Promise<Granted | Done | undefined> {
  const { lockType } = request;
  const { waitMs, ends, pollMs, signal } = waitLimit;
  let first: First | undefined;
  let isSent = false;
  try {
    if (!isProven(request)) await abortable(prove(connections, request, ends), signal);
    const found = waitMs > 0 && pollMs === undefined ? connections.listening(lockType.key) : undefined;
    if (found === undefined || (found instanceof Promise && (await abortable(found, signal)) === undefined)) {
      const sent = now();
      // A caller that does not wait allows the time that its attempts take.
      const withinMs = within(waitMs === 0 ? Infinity : ends, sent);
      isSent = true;
      const reply = await abortable(connections.send(lockType.key, words(request), withinMs), signal);
      const answered = answer(reply, request, sent);
      // An owner without holds cannot have lost one.
      if (answered !== undefined && answered !== "queued" && request.owned.fence === 0) return answered;
      first = { answered, isSent, open: answered !== undefined };
    }
  } catch (error) {
    first = { error, isSent, open: error instanceof Trouble ? error.mayHaveRun : isSent };
  }
  return ask(connections, undefined, request, waitLimit, first);
}

/** True if the acquire itself proves that the server accepts `atLeast`: the time is not above the lease. */
const isProven = ({ atLeast, lease }: Request): boolean => atLeast <= (lease ?? Infinity);

/** Work that withdraws the request after an abort. From the abort on, the owner's next acquire waits for it. */
function withdrawing<T>(
  connections: Connections,
  { lockType, token }: Request,
  signal: AbortSignal | undefined,
  work: Promise<T>,
): Promise<T> {
  if (signal !== undefined) connections.endings.add(lockType.keys, token, work, () => signal.aborted);
  return work;
}

/** Waits for the owner's endings, within the acquire timeout. Rejects with the signal's reason. */
async function afterEndings(settled: Promise<unknown>, request: Request, waitLimit: WaitLimit): Promise<void> {
  const { waitMs, ends, signal } = waitLimit;
  const limitMs = waitMs === 0 ? RESEND_MS : ends - now();
  const over = new AbortController();
  const late = (): void => {
    over.abort(new LockError("no reply yet to the release of an earlier request with this token", request.lock));
  };
  const timer = limitMs === Infinity ? undefined : outOfTime(limitMs, late);
  try {
    await abortable(abortable(settled, over.signal), signal);
  } finally {
    timer?.stop();
  }
}

async function ask(
  connections: Connections,
  own: OwnTransport | undefined,
  request: Request,
  waitLimit: WaitLimit,
  first?: First,
): Promise<Granted | Done | undefined> {
  const { waitMs, ends, pollMs, signal } = waitLimit;
  const waits = waitMs > 0 && pollMs === undefined;
  const asking: Asking =
    request.inner !== undefined
      ? new AskingToRun(connections, own, request, request.inner, waits, signal)
      : own !== undefined
        ? new AskingOver(own, request, waits, signal)
        : waits
          ? new AskingByMessage(connections, request, signal, first)
          : new AskingOnce(connections, request, signal, first);
  const checked = async (answered: Granted | Done | undefined): Promise<Granted | Done | undefined> => {
    if (answered === undefined || answered.done) return answered;
    // If no reply about the owner's other mode arrives, the grant is requested again or withdrawn.
    asking.open = true;
    const wasLost = await abortable(wasLostBefore(connections, request, answered, ends), signal);
    asking.open = false;
    return wasLost ? { ...answered, wasLost } : answered;
  };
  // An owner without holds cannot have lost one.
  const answer = (asked: Promise<Granted | Done | undefined>): Promise<Granted | Done | undefined> =>
    request.owned.fence === 0 ? asked : asked.then(checked);
  const resend = waitMs === 0 ? new Resend(RESEND_MS) : undefined;
  let backoff: Backoff | undefined;
  let retries: Retries | undefined;
  let isAtLeastProven = first?.isSent === true || isProven(request);
  try {
    for (;;) {
      signal?.throwIfAborted();
      let answered: Granted | Done | undefined;
      const attempted = now();
      try {
        if (first !== undefined) {
          const asked = outcome(first);
          first = undefined;
          answered = await answer(asked);
        } else {
          if (!isAtLeastProven) await abortable(prove(connections, request, ends), signal);
          isAtLeastProven = true;
          // A caller that does not wait allows the time that its attempts take.
          answered = await answer(asking.slice(waitMs === 0 ? Infinity : ends));
        }
        backoff = retries = undefined;
      } catch (error) {
        if (!(error instanceof Trouble)) throw error;
        if (error.code === "WRONGTYPE" && pollMs === undefined) throw await wrongType(connections, request, error);
        if (!waits && (error.code === "WRONGTYPE" || error.code === "GRACE")) {
          answered = undefined;
        } else if (!error.heals || (resend?.over() ?? now() >= ends)) {
          throw retries === undefined ? error : new Trouble(retries.lastCause(error, attempted), error.stage);
        } else {
          (retries ??= new Retries(connections, `the request for the lock "${request.lock}"`)).after(error, attempted);
          await (resend?.pause(signal) ?? pause((backoff ??= new Backoff()).next(ends), signal));
          continue;
        }
      }
      if (answered !== undefined || waitMs === 0) return answered;
      if (pollMs !== undefined) {
        // Jittered, because old and new clients that poll in step would starve each other.
        const ms = pollMs * (0.5 + Math.random());
        if (now() + ms > ends) return undefined;
        await pause(ms, signal);
      } else if (now() >= ends) {
        return await answer(asking.end(ends));
      }
    }
  } catch (error) {
    if (signal?.aborted && error === signal.reason) explain(error, retries?.latest ?? connections.failure);
    // The time that has passed since the timeout counts towards the delay of the caller.
    const keptMs = waitMs === 0 ? KEPT_MS : Math.min(KEPT_MS, ends + KEPT_MS - now());
    if (asking.open) await withdraw(connections, request, own, keptMs);
    if (request.inner !== undefined && error instanceof Trouble) throw notRun(error, request.lock);
    throw translated(error, request.lock);
  }
}

async function outcome(first: First): Promise<Granted | Done | undefined> {
  if ("error" in first) throw first.error;
  return first.answered === "queued" ? undefined : first.answered;
}

/**
 * Detects an `atLeast` that the server will refuse because it is above lock.max-lease. Otherwise only the release would
 * fail, after the work. Sends a renewal with that time by an owner that holds nothing, which changes nothing.
 */
async function prove(connections: Connections, { lockType, atLeast }: Request, ends: number): Promise<void> {
  try {
    await connections.send(lockType.key, lockType.renew(makeToken(), atLeast), within(ends));
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    // The acquire reports a key of another type.
    if (error.meansLost) return;
    const [, more] = /invalid expire time in '[^']*' command(?:: )?(.*)/.exec(error.message) ?? [];
    if (more !== undefined) throw new RangeError(`atLeast is too long: ${more}`, { cause: error.error });
    throw error;
  }
}

/** Records why a request is sent again. Warns the first time, because its caller may wait indefinitely. */
class Retries {
  private cause: unknown;
  private causedAt = -Infinity;
  private readonly began = now();
  private isLogged = false;

  constructor(
    private readonly connections: Connections,
    private readonly what: string,
  ) {}

  /**
   * The error, or a recent one that says more: a connection or a reply may come later than the end of the wait.
   * `attempted`: when the attempt began, because it may take seconds to find that there is no reply.
   */
  lastCause({ error }: Trouble, attempted: number): unknown {
    return error instanceof UnexplainedError && attempted - this.causedAt < RECENT_MS ? this.latest : error;
  }

  /** The latest cause. The library may have reported why there was no reply after the request had been given up. */
  get latest(): unknown {
    return (this.cause instanceof UnexplainedError ? this.connections.failure : undefined) ?? this.cause;
  }

  after(trouble: Trouble, attempted: number): void {
    this.cause = this.lastCause(trouble, attempted);
    if (this.cause === trouble.error) this.causedAt = now();
    // Every slot move causes redirections, and a start with a grace period causes GRACE. While a library is connecting,
    // its next error says more.
    const maySettle = trouble.stage === "redirected" || trouble.error instanceof UnexplainedError;
    const isUsual = trouble.code === "GRACE" || (maySettle && now() - this.began < RESEND_MS);
    if (this.isLogged || isUsual) return;
    this.isLogged = true;
    this.connections.warn(`${this.what} failed`, trouble);
  }
}

/** True if the owner's earlier holds were lost before this grant. */
async function wasLostBefore(
  connections: Connections,
  { lockType, token, owned, otherMode }: Request,
  granted: Granted,
  ends: number,
): Promise<boolean> {
  if (granted.fence === owned.fence) return false;
  // A new fence means a loss, except after an upgrade to WRITE: only the server knows whether READ lasted until then.
  if (!otherMode) return true;
  const reply = await connections.send(lockType.key, lockType.held(token), within(ends));
  if (reply === null || reply === undefined) return true;
  // This counts the holds of both modes, so if there are no more than the grant's, the other mode was lost.
  const [, holds] = reply as [unknown, unknown];
  return Number(holds) <= granted.holds;
}

/** Tracks whether a request with an unknown outcome was sent. */
abstract class Sending implements Asking {
  open = false;
  /** Why the latest request got no reply, if so. */
  protected trouble: Trouble | undefined;

  constructor(
    protected readonly request: Request,
    protected readonly signal: AbortSignal | undefined,
    first?: First,
  ) {
    if (first === undefined) return;
    this.open = first.open;
    if (first.error instanceof Trouble) this.trouble = first.error;
  }

  abstract slice(ends: number): Promise<Granted | Done | undefined>;

  async end(_ends: number): Promise<Granted | Done | undefined> {
    return undefined;
  }

  protected send(sending: (sent: number) => Promise<unknown>): Promise<Answer> {
    const wasOpen = this.open;
    this.open = true;
    const sent = now();
    return abortable(sending(sent), this.signal).then(
      (reply) => {
        const answered = answer(reply, this.request, sent);
        this.open = answered === "queued";
        this.trouble = undefined;
        return answered;
      },
      (error: unknown) => {
        if (error instanceof Trouble) {
          this.open = wasOpen || error.mayHaveRun;
          this.trouble = error;
        }
        throw error;
      },
    );
  }
}

/** Requests the lock over the shared connection, without waiting. */
class AskingOnce extends Sending {
  constructor(
    private readonly connections: Connections,
    request: Request,
    signal: AbortSignal | undefined,
    first?: First,
  ) {
    super(request, signal, first);
  }

  async slice(ends: number): Promise<Granted | Done | undefined> {
    const answered = await this.send(() =>
      this.connections.send(this.request.lockType.key, words(this.request), within(ends)),
    );
    return answered === "queued" ? undefined : answered;
  }
}

/** Requests the lock over the shared connection, where it is queued and a message reports the outcome. */
class AskingByMessage extends Sending {
  /** True if an earlier request was queued and its outcome not received, so a late message may concern that request. */
  private isMessagePending = false;

  constructor(
    private readonly connections: Connections,
    request: Request,
    signal: AbortSignal | undefined,
    first?: First,
  ) {
    super(request, signal, first);
  }

  async slice(ends: number): Promise<Granted | Done | undefined> {
    const { connections, request } = this;
    const { key } = request.lockType;
    const found = connections.listening(key);
    let listening = found instanceof Promise ? await abortable(found, this.signal) : found;
    if (listening === undefined) {
      listening = await this.listen(ends);
      if (listening === undefined) {
        // The server could not be reached, which is not the same as "not granted".
        if (this.trouble !== undefined) throw this.trouble;
        return undefined;
      }
    }
    const waiter = listening.inbox.waiter(key, request.token);
    try {
      return await this.wait(waiter, listening, ends);
    } finally {
      waiter.close();
    }
  }

  /** undefined: the time ran out before the subscription was confirmed. */
  private async listen(ends: number): Promise<Listening | undefined> {
    const over = new AbortController();
    const timer = ends === Infinity ? undefined : outOfTime(ends - now(), () => over.abort());
    try {
      return await abortable(abortable(this.connections.listen(this.request.lockType.key), over.signal), this.signal);
    } catch (error) {
      if (now() >= ends && !this.signal?.aborted && !(error instanceof Trouble)) return undefined;
      throw error;
    } finally {
      timer?.stop();
    }
  }

  override async end(ends: number): Promise<Granted | Done | undefined> {
    if (!this.open) return undefined;
    const { connections, request } = this;
    const { key } = request.lockType;
    const cancelling = cancel(connections, request, (words) => connections.send(key, words, within(ends)));
    if (await abortable(cancelling, this.signal)) return undefined;
    // It has left the queue: it was granted, or has timed out on the server as well.
    const answered = await this.send(() => connections.send(key, words(request), within(ends)));
    return answered === "queued" ? undefined : answered;
  }

  private ask(ends: number, blockMs: number, channel: string): Promise<Answer> {
    const command = words(this.request, blockMs, channel);
    return this.send((sent) => this.connections.send(this.request.lockType.key, command, within(ends, sent)));
  }

  private async wait(waiter: Waiter, { inbox, channel }: Listening, ends: number): Promise<Granted | Done | undefined> {
    const { connections, request } = this;
    const sent = now();
    const longest = Math.max(SLICE_MS, inbox.size * APART_MS);
    // Spread the retries of requests that started to wait together.
    const slice = connections.isMoving(request.lockType.key) ? MOVING_SLICE_MS : longest * (0.8 + Math.random() / 5);
    const blockMs = Math.max(1, Math.ceil(Math.min(longest * QUEUED_SLICES, ends - sent)));
    const answered = await this.ask(ends, blockMs, channel);
    if (answered !== "queued") return answered;
    request.onQueued();
    const over = sent + blockMs;
    const retryAt = Math.min(sent + slice, over + LATE_MESSAGE_MS);
    const isLate = this.isMessagePending;
    this.isMessagePending = true;
    for (;;) {
      const notice = await waiter.next(retryAt - now(), this.signal);
      if (notice === undefined) return undefined;
      switch (notice.outcome) {
        case "granted":
          return this.granted(notice, sent);
        case "done":
          return await this.done(notice, isLate);
        case "timeout":
          // Too early for this request, so the message belongs to an earlier one.
          if (now() < over - 5) continue;
          this.isMessagePending = this.open = false;
          return undefined;
        case "cancelled":
          // It stays open: if the message concerns an earlier request of the token, this one is still queued.
          throw new Trouble(new Error("UNBLOCKED cancelled"), "refused");
        case "superseded":
        case "unblocked":
          return this.pauseBeforeRetry(ends);
        default:
          // Interrupted, moved, or a key of another type: the reply to the next request has the reason.
          return undefined;
      }
    }
  }

  /**
   * Handles the message that the request was granted. Accepted only if it is certain which grant it is, and since when.
   */
  private granted({ fence, holds = 1, slot }: Notice, sent: number): Granted | undefined {
    const { lockType, lease, tokenUsedBefore } = this.request;
    // The lease began with the grant, which may be a slice later than the request. Asking again restarts it.
    const isLate = lease !== null && now() - sent >= lease / 10;
    if (isLate || tokenUsedBefore || fence === undefined || (lockType.slots && slot === undefined)) return undefined;
    this.open = false;
    return granted(this.request, sent, fence, holds, slot);
  }

  /** Handles the message that the work was done. */
  private async done({ fence }: Notice, isLate: boolean): Promise<Done | undefined> {
    if (this.request.tokenUsedBefore || fence === undefined) return undefined;
    // The message may concern an earlier request, while this one is queued behind the next holder.
    if (isLate) await withdraw(this.connections, this.request);
    this.open = false;
    return { done: true, fence };
  }

  /** Pauses because the same request came over another connection, or the server has become a replica. */
  private async pauseBeforeRetry(ends: number): Promise<undefined> {
    await pause(Math.min(250 * (0.5 + Math.random() / 2), Math.max(0, ends - now())), this.signal);
  }
}

/** Requests the lock over a dedicated connection, which may block. */
class AskingOver extends Sending {
  constructor(
    private readonly own: OwnTransport,
    request: Request,
    private readonly waits: boolean,
    signal: AbortSignal | undefined,
  ) {
    super(request, signal);
  }

  async slice(ends: number): Promise<Granted | Done | undefined> {
    const blockMs = Math.max(1, Math.ceil(Math.min(SLICE_MS, ends - now())));
    let since = 0;
    // A blocking command does not report that it waits.
    const queued = this.waits ? outOfTime(QUEUED_MS, this.request.onQueued) : undefined;
    const answered = await this.send((sent) => {
      since = sent;
      const longest = (this.waits ? blockMs : 0) + LATE_MS;
      const command = words(this.request, this.waits ? blockMs : undefined);
      return this.own.send(command, Math.min(longest, ends + LATE_REPLY_MS - now()));
    }).finally(() => queued?.stop());
    if (answered === undefined || answered === "queued") return undefined;
    if (answered.done) return answered;
    // As above: asking again restarts the lease.
    const { lease } = this.request;
    if (!this.waits || lease === null || now() - since < lease / 10) return answered;
    this.open = true;
    const again = await this.send(() => this.own.send(words(this.request), within(ends)));
    return again === "queued" ? undefined : again;
  }
}

/**
 * Runs a command under the lock, with the acquire, the command and the release in one packet. Over the shared
 * connection that packet does not wait; after an ordinary wait the command and the release follow in another packet.
 *
 * A command that may have run must never be sent again: the library's error then ends the acquire.
 */
class AskingToRun implements Asking {
  private isOpen = false;
  private isFirst = true;
  private readonly waiting: Sending;

  constructor(
    private readonly connections: Connections,
    private readonly own: OwnTransport | undefined,
    private readonly request: Request,
    private readonly inner: readonly Word[],
    private readonly waits: boolean,
    private readonly signal: AbortSignal | undefined,
  ) {
    this.waiting = new AskingByMessage(connections, request, signal);
  }

  get open(): boolean {
    return this.isOpen || this.waiting.open;
  }

  set open(open: boolean) {
    this.isOpen = this.waiting.open = open;
  }

  async slice(ends: number): Promise<Granted | Done | undefined> {
    const { own, waits } = this;
    if (own !== undefined && waits) return this.whole(ends, Math.max(1, Math.ceil(Math.min(SLICE_MS, ends - now()))));
    if (this.isFirst || !waits) {
      const granted = await this.whole(ends);
      if (granted !== undefined || !waits) return granted;
      this.isFirst = false;
    }
    return this.behind(await this.waiting.slice(ends));
  }

  async end(ends: number): Promise<Granted | Done | undefined> {
    return this.own === undefined ? this.behind(await this.waiting.end(ends)) : undefined;
  }

  /** Sends everything in one packet; undefined: not granted. */
  private async whole(ends: number, blockMs?: number): Promise<Granted | undefined> {
    const { own, request } = this;
    const withinMs = blockMs === undefined ? within(ends) : Math.min(blockMs + LATE_MS, ends + LATE_REPLY_MS - now());
    const queued = blockMs === undefined ? undefined : outOfTime(QUEUED_MS, request.onQueued);
    const wasOpen = this.open;
    this.isOpen = true;
    const sent = now();
    // Without a grant the command does not run, and on a silent network its reply, which has no time limit, would never
    // come. If the acquire was not sent, the others must not be sent later either.
    const isEnough = (acquired: unknown): boolean =>
      acquired instanceof Trouble ? acquired.stage !== "unsent" : !isGranted(answer(acquired, request, sent));
    const parts = [{ words: words(request, blockMs), withinMs, isEnough }, ...this.parts()];
    const packet =
      own === undefined ? this.connections.packet(request.lockType.key, parts) : own.packet(parts, withinMs);
    let replies: unknown[];
    try {
      replies = await abortable(packet, this.signal);
    } catch (error) {
      if (error instanceof Trouble) this.isOpen = wasOpen;
      throw error;
    } finally {
      queued?.stop();
    }
    const [acquired, executed, released] = replies;
    if (acquired instanceof Trouble) {
      this.isOpen = wasOpen || acquired.mayHaveRun;
      // A request that waits is queued during the grace period.
      if (acquired.code === "GRACE" && this.waits && blockMs === undefined) return undefined;
      throw acquired.mayHaveRun ? acquired.error : acquired;
    }
    const answered = answer(acquired, request, sent);
    if (isGranted(answered)) return this.ran(answered, executed, released);
    this.isOpen = wasOpen;
    return undefined;
  }

  /** Sends the command and the release after a grant. */
  private async behind(granted: Granted | Done | undefined): Promise<Granted | Done | undefined> {
    if (granted === undefined || granted.done) return granted;
    this.isOpen = true;
    const sending = this.connections.packet(this.request.lockType.key, this.parts());
    const [executed, released] = await abortable(sending, this.signal);
    return this.ran(granted, executed, released);
  }

  private parts(): Part[] {
    const { lockType, token, before } = this.request;
    return [
      { words: execution(lockType, token, this.inner), withinMs: undefined },
      { words: lockType.release(token, before, "done"), withinMs: LATE_MS },
    ];
  }

  /** Throws a `Trouble` if the command did not run and may be sent again. */
  private ran(granted: Granted, executed: unknown, released: unknown): Granted | Promise<Granted> {
    const { lockType, lock } = this.request;
    const isReleased = !(released instanceof Trouble);
    this.open = !isReleased;
    // A message may have reported the grant of a request of this token.
    this.request.tokenUsedBefore = true;
    if (!(executed instanceof Trouble)) {
      this.open = false;
      const decoded = this.connections.decoded(lockType.key, String(this.inner[0]), executed);
      const withReply = (reply: unknown): Granted => {
        granted.ran = { reply, isReleased };
        return granted;
      };
      return decoded instanceof Promise ? decoded.then(withReply) : withReply(decoded);
    }
    if (executed.mayHaveRun) throw executed.error;
    // WRONGTYPE may concern the lock's key, in which case the release reports it as well, or the command's own key.
    const isNoLock = executed.code === "WRONGTYPE" && released instanceof Trouble && released.meansLost;
    const isLost = executed.code === "NOTHELD" || isNoLock;
    if (!isLost && !executed.isOfCommand) throw executed;
    this.open = false;
    const error = isLost ? lostBefore(lock, executed) : ownError(executed, lock);
    granted.ran = { reply: undefined, error, isReleased };
    return granted;
  }
}

/** A dedicated connection to the node of the key. It is replaced after a failure until it is kept for a session. */
export class OwnTransport {
  private connection: OwnConnection | undefined;
  private last: Promise<unknown> = Promise.resolve();
  private isClosed = false;

  constructor(
    private readonly connections: Connections,
    private readonly key: Word,
  ) {}

  /**
   * Waits for the reply to an abandoned request, because over two connections the order of arrival would be undefined.
   */
  async settled(longestMs: number): Promise<void> {
    await aside(this.last, longestMs);
    this.close();
  }

  send(command: readonly Word[], withinMs: number): Promise<unknown> {
    const sending = this.sendInTime(command, now() + withinMs);
    this.last = sending.catch(() => undefined);
    return sending;
  }

  /** As `send`, for a packet. A `Trouble` stands for each reply that did not come. */
  packet(parts: readonly Part[], withinMs: number): Promise<unknown[]> {
    const sending = this.packetInTime(parts, now() + withinMs);
    this.last = sending.catch(() => undefined);
    return sending;
  }

  private async packetInTime(parts: readonly Part[], ends: number): Promise<unknown[]> {
    const connection = await this.open(ends);
    const [first, ...others] = parts as [Part, ...Part[]];
    // Opening has taken some of the time.
    const replies = await connection.packet([{ ...first, withinMs: Math.max(1, ends - now()) }, ...others]);
    const isOver = (reply: unknown): boolean =>
      reply instanceof Trouble && (reply.stage !== "refused" || reply.isRedirection);
    if (!replies.some(isOver)) return replies;
    this.drop();
    return this.connections.allRedirected(replies, this.key, connection);
  }

  private async sendInTime(command: readonly Word[], ends: number): Promise<unknown> {
    const connection = await this.open(ends);
    try {
      return await connection.send(command, Math.max(1, ends - now()));
    } catch (error) {
      this.drop();
      throw await this.connections.redirected(error, this.key, connection);
    }
  }

  private async open(ends: number): Promise<OwnConnection> {
    if (this.connection === undefined || this.connection.ended) {
      const opened = await this.connections.own(this.key, Math.max(1, Math.min(LATE_MS, ends - now())));
      // The caller cancelled meanwhile, and the request must not be sent after its own withdrawal.
      if (this.isClosed) {
        opened.close();
        throw new Trouble(new Error("The request was cancelled"), "unsent");
      }
      this.connection = opened;
    }
    return this.connection;
  }

  /** Hands the connection over to the caller. */
  keep(): OwnConnection | undefined {
    const kept = this.connection;
    this.connection = undefined;
    return kept;
  }

  /** From here on nothing more is sent. */
  close(): void {
    this.isClosed = true;
    this.drop();
  }

  private drop(): void {
    this.connection?.close();
    this.connection = undefined;
  }
}

async function wrongType(connections: Connections, request: Request, trouble: Trouble): Promise<Error> {
  const { key } = request.lockType;
  const found = String(await connections.send(key, ["TYPE", key], LATE_MS));
  const hint = found === "string" ? "; a SET NX client may hold it: mixed: true shares the lock with such clients" : "";
  const message = `the key "${request.lock}" is a ${found}, not a lock${hint}`;
  return new WrongTypeError(message, request.lock, { cause: trouble.error });
}

/** Sends LOCK.CANCEL for the request; true: it was queued. The token's next request ignores the message about that. */
async function cancel(
  connections: Connections,
  { lockType, token, tokenUsedBefore }: Request,
  send: (words: Word[]) => Promise<unknown>,
): Promise<boolean> {
  const listening = tokenUsedBefore
    ? await Promise.resolve(connections.listening(lockType.key)).catch(() => undefined)
    : undefined;
  const notQueued = listening?.inbox.cancelling(lockType.key, token);
  const wasQueued = Number(await send(lockType.cancel(token))) === 1;
  if (!wasQueued) notQueued?.();
  return wasQueued;
}

/** Removes the request from the queue, and releases its grant. */
export function withdraw(
  connections: Connections,
  request: Request,
  own?: OwnTransport,
  keptMs?: number,
): Promise<void> {
  const { lockType, lock, token, owned, before } = request;
  const forMs = leftMs(owned, request.lease);
  const work = async (): Promise<void> => {
    // Cancel first: a release alone could arrive just before the grant.
    await cancel(connections, request, (words) => undone(connections, lockType.key, words, forMs));
    await own?.settled(UNDO_MS / 4);
    // FAILED, because reporting the work as done would keep the waiting callers from doing it.
    const how = request.coalesce ? "failed" : "done";
    await undone(connections, lockType.key, lockType.release(token, before, how), forMs);
    // The grant of an upgrade gives READ a new fence, which READ keeps after the release of WRITE.
    if (request.otherMode) {
      await held(connections, lockType, token, lock).then(
        (found) => owned.found(found),
        () => undefined,
      );
    }
  };
  return ending(connections, request, work(), keptMs);
}

/** Releases every hold of the request's owner and mode. */
export function releaseAll(connections: Connections, request: Request): Promise<void> {
  const { lockType, token, owned, lease } = request;
  const words = lockType.release(token, 0, "done");
  return ending(connections, request, undone(connections, lockType.key, words, leftMs(owned, lease)));
}

/** As `aside`, but the owner's next acquire waits for the work. */
function ending(
  connections: Connections,
  { lockType, token }: { lockType: LockType; token: Word },
  work: Promise<unknown>,
  keptMs = KEPT_MS,
): Promise<void> {
  connections.endings.add(lockType.keys, token, work);
  return aside(work, keptMs);
}

/** Resends the command until it has run, or for this long. undefined: there is no reply. */
async function undone(connections: Connections, key: Word, command: Word[], forMs: number): Promise<unknown> {
  const resend = new Resend(forMs, 1000);
  for (;;) {
    try {
      return await connections.send(key, command, UNDO_MS);
    } catch (error) {
      if (!(error instanceof Trouble) || !error.heals || resend.over()) return undefined;
    }
    await resend.pause();
  }
}

/**
 * Waits until enough replicas have received the grant, which was made on this same connection. Withdraws it if too few
 * confirm it in time, or if the signal is aborted.
 */
export function replicated(
  connections: Connections,
  own: OwnTransport,
  request: Request,
  { replicas, replicaTimeout }: { replicas: number; replicaTimeout: number },
  signal: AbortSignal | undefined,
): Promise<void> {
  const confirming = async (): Promise<void> => {
    try {
      const reply = own.send(["WAIT", replicas, replicaTimeout], replicaTimeout + LATE_MS);
      const confirmed = Number(await abortable(reply, signal));
      if (confirmed >= replicas) return;
      const message = `${confirmed} of ${replicas} replicas confirmed the grant within ${replicaTimeout} ms`;
      throw new NotReplicatedError(`${message}: the lock was released`, request.lock);
    } catch (error) {
      await withdraw(connections, request);
      throw translated(error, request.lock);
    }
  };
  return withdrawing(connections, request, signal, confirming());
}

/** The number of holds after the release, and until when the server should keep the lock, by the monotonic clock. */
export interface GivenBack {
  holds: number;
  keptUntil: number;
  work: Work;
}

/** Releases the hold; false: it was lost before. A release whose reply was lost is resent for `resendMs`. */
export async function release(
  connections: Connections,
  lockType: LockType,
  owned: Owned,
  { holds, keptUntil, work }: GivenBack,
  resendMs: number,
): Promise<boolean> {
  const wasLost = owned.lost;
  let resend: Resend | undefined;
  let mayBeDone = false;
  let isKept = keptUntil > -Infinity;
  for (;;) {
    try {
      const leftMs = isKept ? Math.ceil(keptUntil - now()) : 0;
      if (leftMs > 0) {
        const reply = await connections.send(lockType.key, lockType.renew(owned.token, leftMs), LATE_MS);
        if (Number(reply) === 1) return !wasLost;
        // One of multiple locks was lost: release the others.
        isKept = false;
        continue;
      }
      const reply = await connections.send(lockType.key, lockType.release(owned.token, holds, work), LATE_MS);
      // If this release finds nothing, an earlier one whose reply was lost has released the lock. If it finds some of
      // multiple keys, no earlier one has run. A loss that was known before remains a loss, even if the server still
      // had the lock.
      return !wasLost && (lockType.wasHeld(Number(reply)) || (mayBeDone && Number(reply) <= 0));
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      if (error.meansLost) {
        const each = lockType
          .releaseEach(owned.token)
          .map((words) => undone(connections, words[1] as Word, words, leftMs(owned, owned.lease)));
        await ending(connections, { lockType, token: owned.token }, Promise.all(each));
        return false;
      }
      resend ??= new Resend(resendMs);
      if (!error.heals || resend.over()) throw translated(error, owned.lock);
      mayBeDone ||= error.mayHaveRun;
    }
    await resend.pause();
  }
}

/** Restarts the lease from now, with this length; false: lost. */
export async function renew(
  connections: Connections,
  lockType: LockType,
  owned: Owned,
  lease: Lease,
): Promise<boolean> {
  const earlier = owned.lease;
  owned.renewing(lease);
  let sent = 0;
  let failed: "unsent" | "unanswered" = "unsent";
  const helps = (trouble: Trouble): boolean => {
    if (trouble.mayHaveRun) {
      failed = "unanswered";
      owned.mayEnd(endOf(sent, lease));
    }
    return trouble.heals && !owned.lost;
  };
  // While there is no reply, a shorter lease may expire.
  const withinMs = Math.min(LATE_MS, Math.max(RESEND_MS, lease ?? Infinity));
  try {
    const reply = await repeated(helps, () => {
      sent = now();
      return connections.send(lockType.key, lockType.renew(owned.token, lease), withinMs);
    });
    if (Number(reply) !== 1 || owned.lost) return false;
  } catch (error) {
    owned.notRenewed(lease, earlier, failed);
    if (owned.lost || (error instanceof Trouble && error.meansLost)) return false;
    throw translated(error, owned.lock);
  }
  owned.renewed(endOf(sent, lease));
  return true;
}

/** undefined: the token does not hold the lock. */
export async function held(
  connections: Connections,
  lockType: LockType,
  token: Word,
  lock: string,
): Promise<Granted | undefined> {
  try {
    let sent = 0;
    const reply = await repeated(
      (trouble) => trouble.heals,
      () => {
        sent = now();
        return connections.send(lockType.key, lockType.held(token), LATE_MS);
      },
    );
    if (reply === null || reply === undefined) return undefined;
    const [fence, holds, ttl] = (reply as unknown[]).map(Number) as [number, number, number];
    return { fence, holds, deadline: endOf(sent, ttl < 0 ? null : ttl), slot: undefined };
  } catch (error) {
    if (error instanceof Trouble && error.meansLost) return undefined;
    throw translated(error, lock);
  }
}

/** True if any owner holds the lock, or its key holds another value. */
export async function exists(connections: Connections, lockType: LockType, lock: string): Promise<boolean> {
  const reply = await repeated(
    (trouble) => trouble.heals,
    () => connections.send(lockType.key, lockType.exists(), LATE_MS),
  ).catch((error: unknown) => {
    throw translated(error, lock);
  });
  return Number(reply) > 0;
}

/** LOCK.INFO of one key, with `count` holders. */
export async function info(connections: Connections, key: Word, lock: string, count: number): Promise<LockInfo | null> {
  const reply = await repeated(
    (trouble) => trouble.heals,
    () => connections.send(key, ["LOCK.INFO", key, "COUNT", count], LATE_MS, "raw"),
  ).catch((error: unknown) => {
    throw translated(error, lock);
  });
  return lockInfo(reply);
}

/** The first holder of the first key that is held; undefined if there is none, or the server did not reply in time. */
export async function holder(connections: Connections, lockType: LockType): Promise<string | undefined> {
  const asked = lockType.keys.map((key) =>
    connections.send(key, ["LOCK.INFO", key, "COUNT", 1], LATE_REPLY_MS, "raw").then(lockInfo, () => null),
  );
  const held = (await Promise.all(asked)).find((info) => info?.holders[0] !== undefined);
  return held?.holders[0]?.owner;
}

/**
 * Sends LOCK.EXEC. Resends it only if it did not run for certain: for a second, and while its slot moves as long as the
 * hold lasts, because neither node runs a command on multiple keys if one of them is missing.
 */
export async function execute(
  connections: Connections,
  lockType: LockType,
  owned: Owned,
  command: Word[],
): Promise<unknown> {
  const words = execution(lockType, owned.token, command);
  const resend = new Resend(RESEND_MS);
  const backoff = new Backoff();
  const retries = new Retries(connections, `a command under the lock "${owned.lock}"`);
  let trouble: Trouble | undefined;
  for (;;) {
    // A loss that is known remains a loss, even if the server still has the lock.
    if (owned.lost || owned.over) throw lostBefore(owned.lock, trouble);
    const attempted = now();
    try {
      const reply = await connections.send(lockType.key, words, undefined);
      return await connections.decoded(lockType.key, String(command[0]), reply);
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      if (error.mayHaveRun) throw error.error;
      const isLost = error.code === "NOTHELD" || (await isNoLock(error, connections, lockType, owned));
      if (isLost) throw lostBefore(owned.lock, error);
      if (error.isOfCommand) throw ownError(error, owned.lock);
      if (!error.heals || (error.stage !== "redirected" && resend.over())) throw notRun(error, owned.lock);
      retries.after(error, attempted);
      trouble = error;
    }
    await pause(backoff.next(Infinity));
  }
}

const execution = (lockType: LockType, token: Word, command: readonly Word[]): Word[] => [
  "LOCK.EXEC",
  lockType.key,
  token,
  ...command,
];

function lostBefore(lock: string, trouble: Trouble | undefined): LockLostError {
  const message = `the lock "${lock}" is no longer held, so the command did not run`;
  return new LockLostError(message, lock, trouble && { cause: trouble.error });
}

/** Errors of the inner command are not errors of the lock, whatever their code. */
function ownError(error: unknown, lock: string): unknown {
  const isRefused = error instanceof Trouble && error.stage === "refused" && !isNotLoaded(error);
  return isRefused ? error.error : translated(error, lock);
}

/** Releases a hold whose release failed, in the background, without a caller that waits. */
export function releaseInBackground(connections: Connections, request: Request): void {
  const { lockType, token } = request;
  const forMs = leftMs(request.owned, request.lease);
  const all = undone(connections, lockType.key, lockType.release(token, 0, "done"), forMs);
  const each = lockType.releaseEach(token).map((words) => undone(connections, words[1] as Word, words, forMs));
  const work = Promise.all([all, ...each]);
  connections.endings.add(lockType.keys, token, work);
}

/** LOCK.EXEC replies WRONGTYPE for the lock's key and for the command's own; this finds out which. */
async function isNoLock(
  trouble: Trouble,
  connections: Connections,
  lockType: LockType,
  owned: Owned,
): Promise<boolean> {
  return trouble.code === "WRONGTYPE" && (await held(connections, lockType, owned.token, owned.lock)) === undefined;
}

/** Retries for a while if that may help. Rejects with `Trouble`. */
async function repeated<T>(helps: (trouble: Trouble) => boolean, sending: () => Promise<T>): Promise<T> {
  const resend = new Resend(RESEND_MS);
  for (;;) {
    try {
      return await sending();
    } catch (error) {
      if (!(error instanceof Trouble) || !helps(error) || resend.over()) throw error;
    }
    await resend.pause();
  }
}
