/** What all lock types share: acquiring, and the operations of a hold. */

import { AsyncLocalStorage } from "node:async_hooks";

import { connectionsOf, type RedisClient } from "./client.js";
import { now } from "./clock.js";
import type { OwnConnection, Word } from "./connection.js";
import type { Connections } from "./connections.js";
import { LockError, LockLostError, NotAcquiredError } from "./errors.js";
import type { LockType } from "./lock_types.js";
import { Hold } from "./hold.js";
import { bytesOf, type LockInfo } from "./info.js";
import { keepDeadline, keepRenewed, keepSession } from "./keeping.js";
import type { Observed } from "./observer.js";
import { Operations } from "./operations.js";
import {
  checkedCoalesce,
  checkedCount,
  checkedOptions,
  checkedOwner,
  checkedWait,
  NAMES,
  settingsOf,
  type AcquireOptions,
  type MutexOptions,
  type RunOptions,
  type Settings,
} from "./options.js";
import { Owned, type Done, type Granted } from "./owned.js";
import * as protocol from "./protocol.js";
import { OwnTransport, type Request } from "./protocol.js";
import { makeToken } from "./tokens.js";

const RUN_LEASE_MS = 30_000;

/** Tracks the owner of holds that are acquired inside `using`. The views of a read/write lock share one context. */
export class Context {
  readonly storage = new AsyncLocalStorage<Owned>();
  readonly made = new WeakSet<Owned>();
  private readonly owners = new Map<string, WeakRef<Owned>>();
  private readonly forgotten = new FinalizationRegistry<string>((id) => {
    if (this.owners.get(id)?.deref() === undefined) this.owners.delete(id);
  });

  /** The state of a token that the caller provides: one state per token, so that its holds are counted in one place. */
  owner(token: Word, make: () => Owned): Owned {
    const id = Buffer.from(Buffer.isBuffer(token) ? token : String(token)).toString("hex");
    const known = this.owners.get(id)?.deref();
    if (known !== undefined && !known.over) return known;
    const made = make();
    this.owners.set(id, new WeakRef(made));
    this.forgotten.register(made, id);
    return made;
  }
}

/** The parameters of a request, except for the time to wait. */
interface Asked {
  /** The number of holds that the request adds. */
  add: number;
  coalesce: boolean;
  autoRenew: boolean;
  /** The owner, once it is known; for the observer. */
  owner: Word | undefined;
  /** True if the observer was notified that it is queued. */
  isQueued: boolean;
}

/** The methods of all lock types. All times are in milliseconds. */
export abstract class LockBase<
  Options extends AcquireOptions & { within?: Hold } = AcquireOptions,
  Info = LockInfo | null,
> {
  /** The name of the lock; of a `MultiLock`, all names. */
  readonly name: string;
  protected readonly connections: Connections;
  protected readonly lockType: LockType;
  private readonly settings: Settings;
  private readonly operations: Operations;

  /** @internal */
  constructor(
    client: RedisClient,
    name: string,
    lockType: (key: (name: string | Buffer) => Word) => LockType,
    options: MutexOptions,
    private readonly names: { lock: readonly string[]; acquire: readonly string[] },
    private readonly context: Context = new Context(),
  ) {
    checkedOptions(`a ${new.target.name}`, options, names.lock);
    this.connections = connectionsOf(client);
    this.name = name;
    this.lockType = lockType((of) => this.connections.key(of));
    this.settings = settingsOf(options);
    this.operations = new Operations(this.connections, this.lockType, name, this.settings.lease);
  }

  /**
   * Acquires the lock. Waits in the server's queue, first come, first served.
   *
   * Rejects with `NotAcquiredError` if the lock was not granted in time, with the signal's reason if the signal was
   * aborted, with another `LockError` if waiting cannot help (a deadlock, a key of another type, too many waiters), and
   * with the Redis library's error if the server could not be reached.
   */
  acquire(options?: Options): Promise<Hold> {
    return this.ask(undefined, options, "must") as Promise<Hold>;
  }

  /**
   * Acquires the lock like `acquire`, but resolves with null if it was not granted in time. Without `wait` it does not
   * wait.
   */
  async tryAcquire(options?: Omit<Options, "tellHolder">): Promise<Hold | null> {
    this.checkTry(options);
    const hold = await this.ask(checkedWait(options?.wait ?? 0), options as Options, "may");
    return hold?.done === false ? hold : null;
  }

  /**
   * Acquires the lock, runs the function, and releases the lock. Rejects with the function's error, unchanged; a
   * release that fails delays that by a second at most, and goes on in the background until the lease expires. If the
   * function succeeds, rejects as `Hold.release` does.
   */
  async using<T>(work: (hold: Hold) => Promise<T> | T, options?: Options): Promise<T> {
    const hold = (await this.ask(undefined, options, "must")) as Hold;
    let result: T;
    try {
      // Only if an acquire will look for it, because up to Node 22 an asynchronous context doubles the cost of every
      // promise of the process.
      const run = (): Promise<T> | T => work(hold);
      result = await (this.lockType.reentrant ? this.context.storage.run(hold.kept, run) : run());
    } catch (error) {
      await hold.releaseAfterError("done");
      throw error;
    }
    await hold.release();
    return result;
  }

  /**
   * Acquires the lock, runs one command on the server, and releases the lock, all in one packet and as a new owner.
   * Resolves with the command's reply, decoded as the client decodes it.
   *
   * If the lock is held, it waits as `acquire` does, and sends the command and the release in one packet after the
   * grant. With `session` the whole packet is sent over a dedicated connection, which waits.
   *
   * Rejects with a `LockError` if the command did not run: `NotAcquiredError` if the lock was not granted in time,
   * `LockLostError` if it was lost before the command, `NotRunError` or another one if the command could not be sent.
   * Rejects with the command's own error if it ran and failed. Rejects with the Redis library's error if the connection
   * ended before the command's reply, or no reply to the acquire came in time: the command may have run, and is not
   * sent again. Rejects with a `RangeError` for `token`, `atLeast`, `replicas` or `slot`, and a `LockError` inside
   * `using` of a lock that its owner may acquire again.
   */
  async run<T = unknown>(command: readonly Word[], options?: RunOptions): Promise<T> {
    this.checkRun(command, options);
    const { connections, lockType, settings } = this;
    const began = now();
    const waitMs = this.waitOf(options);
    const waitLimit = { waitMs, ends: began + waitMs, pollMs: settings.pollMs, signal: options?.signal };
    const token = makeToken();
    let isQueued = false;
    const onQueued = (): void => {
      if (!isQueued) this.emit(token, { event: "queued" });
      isQueued = true;
    };
    // Without a lease, a process that dies meanwhile would leave the lock behind.
    const lease = settings.lease ?? RUN_LEASE_MS;
    const request: Request = {
      lockType,
      lock: this.name,
      token,
      tokenUsedBefore: false,
      before: 0,
      holds: this.perHold(undefined),
      owned: this.owned(token),
      otherMode: false,
      lease,
      atLeast: 0,
      session: settings.session,
      coalesce: false,
      onQueued,
      inner: command,
    };
    const own = settings.session ? new OwnTransport(connections, lockType.key) : undefined;
    let granted: Granted | Done | undefined;
    try {
      granted = await protocol.acquire(connections, own, request, waitLimit);
    } catch (error) {
      this.emit(token, { event: "not_granted", wait: now() - began, error });
      throw error;
    } finally {
      own?.close();
    }
    const wait = now() - began;
    if (granted === undefined || granted.done || granted.ran === undefined) {
      this.emit(token, { event: "not_granted", wait });
      throw await this.notAcquired(waitMs, options);
    }
    const { fence, ran } = granted;
    if (!ran.isReleased) protocol.releaseInBackground(connections, request);
    if (connections.observed.isOn) {
      this.emit(token, { event: "granted", fence, wait });
      this.emit(token, {
        event: ran.error instanceof LockLostError ? "lost" : "released",
        fence,
        hold: now() - began - wait,
      });
    }
    if (ran.error !== undefined) throw ran.error;
    return ran.reply as T;
  }

  private checkRun(command: readonly Word[], options: RunOptions | undefined): void {
    if (!Array.isArray(command) || command.length === 0) {
      throw new TypeError(`the command of run is an array, as ["INCR", "counter"]`);
    }
    checkedOptions("run", options, NAMES.run);
    const { token, atLeast, replicas } = this.settings;
    if (token !== undefined || atLeast > 0 || replicas > 0 || this.lockType.slots) {
      throw new RangeError(
        "run cannot be combined with token, atLeast, replicas or slot: its owner holds for one command only",
      );
    }
    if (this.lockType.reentrant && this.outer(undefined) !== undefined) {
      throw new LockError("run would wait for the hold of this caller: use its exec", this.name);
    }
  }

  /**
   * Resolves with a hold for a token that was granted elsewhere, to renew, use or release it here. The token may be
   * given as it was set, or as `hold.token` shows it. Its release returns everything that the token holds. For a
   * read/write lock, use the view that acquired it. With `autoRenew` the lease restarts from now.
   *
   * Rejects with `LockLostError` if the token does not hold the lock, and otherwise as `Hold.extend` does.
   */
  async fromToken(token: string | Buffer): Promise<Hold> {
    const { settings } = this;
    checkedOwner(settings.atLeast, token);
    if (settings.session) throw new RangeError("a session is moved by an acquire with its token: omit session");
    const bytes = bytesOf(token);
    const hold = (await this.holdOf(token)) ?? (bytes && (await this.holdOf(bytes)));
    if (hold === undefined) throw new LockLostError(`the token does not hold the lock "${this.name}"`, this.name);
    return hold;
  }

  /** undefined: the token does not hold the lock. */
  private async holdOf(token: string | Buffer): Promise<Hold | undefined> {
    const { connections, lockType, settings } = this;
    const owned = lockType.counts ? this.context.owner(token, () => this.owned(token)) : this.owned(token);
    return owned.first(async () => {
      const found = await protocol.held(connections, lockType, token, this.name);
      if (found === undefined) return undefined;
      this.register(owned);
      owned.found(found);
      owned.count(lockType.mode, found.holds);
      const hold = new Hold(owned, lockType.mode, Infinity, this.operations);
      // If this fails, the caller gets no hold, so nothing may renew it.
      if (settings.autoRenew) await hold.extend();
      this.keep(owned, settings.autoRenew === true);
      return hold;
    });
  }

  /** Asks the server whether any owner holds the lock. True as well if the key holds another value. */
  locked(): Promise<boolean> {
    return protocol.exists(this.connections, this.lockType, this.name);
  }

  /**
   * Asks the server for the holders and the number of waiters (LOCK.INFO). Resolves with null if the lock is free and
   * has no waiters; a `MultiLock` resolves with an array, one element for each name. `count` limits the holders, oldest
   * first; 0 means all of them. Default 100.
   */
  async info({ count = 100 }: { count?: number } = {}): Promise<Info> {
    const { connections, lockType } = this;
    const each = lockType.keys.map((key) => protocol.info(connections, key, this.name, checkedCount(count)));
    return this.infoOf(await Promise.all(each));
  }

  protected infoOf(each: (LockInfo | null)[]): Info {
    return each[0] as Info;
  }

  /** Throws for options of an acquire that would be ignored. */
  protected checkAcquire(options: Options | undefined): void {
    if (options !== undefined) checkedOptions(`an acquire of a ${this.constructor.name}`, options, this.names.acquire);
  }

  /** Throws for `tellHolder` of `tryAcquire`, because null has no holder. */
  protected checkTry(options: object | undefined): void {
    if ((options as AcquireOptions | undefined)?.tellHolder !== undefined) {
      throw new TypeError("tryAcquire returns null, with no holder: omit tellHolder, or use acquire");
    }
  }

  /** The number of holds that one acquire adds: permits, or 1. */
  protected perHold(_options: Options | undefined): number {
    return 1;
  }

  /** The time to wait if the acquire does not give one. */
  protected waitOf(options: AcquireOptions | undefined): number {
    return checkedWait(options?.wait ?? this.settings.wait);
  }

  protected async notAcquired(waitMs: number, options: AcquireOptions | undefined): Promise<NotAcquiredError> {
    const message = `the lock "${this.name}" was not granted within ${waitMs} ms`;
    return new NotAcquiredError(message, this.name, await this.holder(options));
  }

  /** The holder, if the caller asked for it. */
  protected async holder(options: AcquireOptions | undefined): Promise<string | undefined> {
    const asksHolder = options?.tellHolder ?? this.settings.tellHolder;
    return asksHolder ? protocol.holder(this.connections, this.lockType) : undefined;
  }

  /** Throws for options under which a release would not report the work, or a waiter would not receive the report. */
  protected checkCoalesce(): void {
    checkedCoalesce(this.settings);
  }

  protected checkOnce(): void {
    this.checkCoalesce();
    if (this.settings.lease === null)
      throw new RangeError("once needs a lease: without one, a caller that dies would keep all others waiting");
  }

  /**
   * Requests the lock. `waitMs`: default that of the options. If it was not granted in time, `must` rejects, and the
   * others resolve with undefined; `coalesce` and `once` may resolve with `Done`.
   */
  protected async ask(
    waitMs: number | undefined,
    options: Options | undefined,
    how: "must" | "may" | "coalesce" | "once",
  ): Promise<Hold | Done | undefined> {
    const { settings } = this;
    waitMs ??= this.waitOf(options);
    this.checkAcquire(options);
    checkedOwner(settings.atLeast, options?.token);
    const began = now();
    const waitLimit = { waitMs, ends: began + waitMs, pollMs: settings.pollMs, signal: options?.signal };
    const autoRenew = settings.autoRenew ?? (how === "once" && !settings.session);
    const asked: Asked = {
      add: this.perHold(options),
      coalesce: how === "coalesce" || how === "once",
      autoRenew,
      owner: undefined,
      isQueued: false,
    };
    let answer: Hold | Done | undefined;
    try {
      answer = await this.take(options, waitLimit, asked);
    } catch (error) {
      this.emit(asked.owner, { event: "not_granted", wait: now() - began, error });
      throw error;
    }
    if (this.connections.observed.isOn) {
      const wait = now() - began;
      this.emit(
        asked.owner,
        answer?.done === false ? { event: "granted", fence: answer.fence, wait } : { event: "not_granted", wait },
      );
    }
    if (how === "must" && answer?.done !== false) throw await this.notAcquired(waitMs, options);
    return answer;
  }

  private emit(owner: Word | undefined, outcome: Parameters<Observed["emit"]>[2]): void {
    this.connections.observed.emit(this.lockType, owner ?? "", outcome);
  }

  private take(
    options: Options | undefined,
    waitLimit: protocol.WaitLimit,
    asked: Asked,
  ): Promise<Hold | Done | undefined> {
    const { lockType } = this;
    const outer = lockType.reentrant ? this.outer(options?.within) : undefined;
    const token = options?.token ?? this.settings.token;
    if (outer === undefined && (token === undefined || !lockType.counts)) {
      return this.takeAs(this.owned(token ?? makeToken()), waitLimit, asked, token !== undefined);
    }
    const owned = outer ?? this.context.owner(token as Word, () => this.owned(token as string | Buffer));
    asked.owner = owned.token;
    // If the owner holds this mode already, it is granted it again at once.
    const mayBeQueued = waitLimit.waitMs > 0 && !(lockType.reentrant && owned.of(lockType.mode) > 0);
    const work = (signal: AbortSignal | undefined): Promise<Hold | Done | undefined> =>
      // The owner's last release may have come before.
      owned.over ? this.take(options, waitLimit, asked) : this.takeAs(owned, { ...waitLimit, signal }, asked, true);
    return owned.inTurn(work, { ...waitLimit, mayBeQueued });
  }

  private owned(token: string | Buffer): Owned {
    return new Owned(this.name, token, this.settings.lease);
  }

  /** The state of an owner that acquires the lock again. */
  private outer(within: Hold | undefined): Owned | undefined {
    if (within !== undefined && !this.context.made.has(within.kept)) {
      throw new TypeError("within: it must be a hold of the same lock object");
    }
    const outer = within?.kept ?? this.context.storage.getStore();
    if (within !== undefined && within.kept.over) throw new LockError("within: the hold was released", this.name);
    return outer?.over === false ? outer : undefined;
  }

  private async takeAs(
    owned: Owned,
    waitLimit: protocol.WaitLimit,
    asked: Asked,
    tokenUsedBefore: boolean,
  ): Promise<Hold | Done | undefined> {
    const { connections, lockType, settings } = this;
    const { add, coalesce, autoRenew } = asked;
    asked.owner = owned.token;
    const nested = owned.keepers.length > 0 || owned.fence > 0;
    if (nested && owned.lost) {
      throw new LockLostError("the current hold was lost: release it before acquiring again", this.name);
    }
    const before = owned.of(lockType.mode);
    if (lockType.slots && before > 0) throw new LockError("this owner already has a slot: release it first", this.name);
    const session = settings.session && !nested;
    const { lock, token } = owned;
    const { lease } = settings;
    const request: Request = {
      lockType,
      lock,
      token,
      tokenUsedBefore,
      before,
      holds: before + add,
      owned,
      otherMode: owned.holdsBeside(lockType.mode),
      lease,
      atLeast: settings.atLeast,
      session,
      coalesce,
      onQueued: () => {
        if (!asked.isQueued) this.emit(token, { event: "queued" });
        asked.isQueued = true;
      },
    };
    const own = session || settings.replicas > 0 ? new OwnTransport(connections, lockType.key) : undefined;
    try {
      const granted = await protocol.acquire(connections, own, request, waitLimit);
      if (granted === undefined || granted.done) return granted;
      if (granted.wasLost || owned.lossReported) throw await this.releaseGrant(owned, request);
      if (settings.atLeast > 0 && granted.fence !== owned.fence) owned.keptUntil = now() + settings.atLeast;
      if (own !== undefined && settings.replicas > 0) {
        await protocol.replicated(connections, own, request, settings, waitLimit.signal);
      }
      this.register(owned);
      owned.granted(granted, lockType.mode);
      this.keep(owned, autoRenew, session ? own?.keep() : undefined);
      return new Hold(owned, lockType.mode, add, this.operations);
    } finally {
      own?.close();
    }
  }

  /** Releases a grant because the owner's earlier hold was lost. */
  private async releaseGrant(owned: Owned, request: Request): Promise<LockLostError> {
    await protocol.releaseAll(this.connections, request);
    owned.lose();
    return new LockLostError("the lock was lost before it was acquired again, so the new hold was released", this.name);
  }

  /** Before its first grant in this mode is counted. */
  private register(owned: Owned): void {
    const { lockType } = this;
    if (owned.inMode(lockType.mode) === undefined) owned.onLost(() => this.reportLoss(owned));
    if (lockType.reentrant) this.context.made.add(owned);
  }

  /** Starts the renewal of a grant. `session`: the connection that it is bound to. */
  private keep(owned: Owned, autoRenew: boolean, session?: OwnConnection): void {
    const { connections, lockType } = this;
    if (connections.observed.observer !== undefined) owned.watched();
    if (owned.isKept) return;
    // After a failed release, a new listener has started the watch of the deadline alone.
    owned.stopKeepers();
    owned.isKept = true;
    if (session !== undefined) {
      owned.connection = session;
      owned.keepers.push(keepSession(owned, lockType, session));
    } else {
      if (autoRenew) owned.keepers.push(keepRenewed(owned, lockType, connections));
      owned.watchedBy(keepDeadline);
    }
  }

  /** Notifies the observer of the loss, for each mode that is held. */
  private reportLoss(owned: Owned): void {
    const { holds, since } = owned.inMode(this.lockType.mode) ?? { holds: 0, since: 0 };
    if (holds > 0) this.emit(owned.token, { event: "lost", fence: owned.fence, hold: now() - since });
  }
}
