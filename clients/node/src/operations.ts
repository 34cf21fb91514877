/** The server-side operations of a hold: release, extend, exec. All holds of a lock object share one. */

import { now, outOfTime } from "./clock.js";
import type { Word } from "./connection.js";
import type { Connections } from "./connections.js";
import { LockError, LockLostError } from "./errors.js";
import type { LockType, Lease, Work } from "./lock_types.js";
import type { Hold, HoldActions, Releasing } from "./hold.js";
import { checkedMs } from "./options.js";
import type { Owned } from "./owned.js";
import * as protocol from "./protocol.js";

export class Operations implements HoldActions {
  constructor(
    private readonly connections: Connections,
    private readonly lockType: LockType,
    private readonly lock: string,
    /** The lease of an `extend` without an argument. */
    private readonly lease: Lease,
  ) {}

  release(hold: Hold, work: Work, how: Releasing): Promise<void> {
    const { connections, lockType } = this;
    const { kept, fence, since } = hold;
    const release = (): Promise<void> => this.releaseOf(kept, hold.added, work, how);
    // The owner's next acquire waits for it: in turn, or, for lock types that do not count holds, as for an ending.
    const releasing = lockType.counts ? kept.first(release) : release();
    if (!lockType.counts) connections.endings.add(lockType.keys, kept.token, releasing);
    if (connections.observed.isOn) {
      const report = (error?: unknown): void => {
        if (error instanceof LockLostError) return;
        const outcome = { event: "released", fence, hold: now() - since } as const;
        connections.observed.emit(lockType, kept.token, error === undefined ? outcome : { ...outcome, error });
      };
      void releasing.then(() => report(), report);
    }
    return releasing;
  }

  async extend(owned: Owned, leaseMs: number | undefined): Promise<void> {
    const { connections, lockType, lock } = this;
    const lease = leaseMs === undefined ? this.lease : checkedMs("lease", leaseMs);
    if (owned.over) throw new LockError(`the lock "${lock}" was released`, lock);
    if (!(await protocol.renew(connections, lockType, owned, lease))) {
      owned.lose();
      throw new LockLostError(`the lock "${lock}" was lost before it was extended`, lock);
    }
    owned.renewed(lease);
    connections.observed.emit(lockType, owned.token, { event: "renewed", fence: owned.fence });
  }

  /** After its release, `atLeast` may keep the lock held for a while, but not for this hold. */
  async owned(owned: Owned): Promise<boolean> {
    const { connections, lockType, lock } = this;
    return !owned.over && (await protocol.held(connections, lockType, owned.token, lock)) !== undefined;
  }

  async exec(owned: Owned, command: Word[]): Promise<unknown> {
    const { connections, lockType, lock } = this;
    try {
      if (owned.over) throw new LockLostError(`the lock "${lock}" was released`, lock);
      return await protocol.execute(connections, lockType, owned, command);
    } catch (error) {
      if (error instanceof LockLostError) owned.lose();
      throw error;
    }
  }

  private async releaseOf(owned: Owned, drop: number, work: Work, how: Releasing): Promise<void> {
    const { connections, lockType, lock } = this;
    const left = Math.max(0, owned.of(lockType.mode) - drop);
    const isLast = left === 0 && !owned.holdsBeside(lockType.mode);
    // From here on the lock is no longer renewed, even if the release fails.
    if (isLast) owned.stopKeepers();
    const isSession = isLast && owned.connection !== undefined;
    // Closing the connection makes the server release the lock.
    let isClosed = false;
    const close = (): void => {
      isClosed = true;
      owned.end();
    };
    if (isSession && how === "thrown") close();
    const late = isSession && how === "disposed" ? outOfTime(protocol.KEPT_MS, close) : undefined;
    let wasHeld: boolean;
    try {
      const keptUntil = isLast && work === "done" ? owned.keptUntil : -Infinity;
      // While the owner has other holds, their releases wait for this one, so it must end in time.
      const resendMs = how === "awaited" || !isLast ? protocol.RELEASE_MS : (owned.lease ?? Infinity);
      wasHeld = await protocol.release(connections, lockType, owned, { holds: left, keptUntil, work }, resendMs);
    } catch (error) {
      if (isLast) owned.connection?.close();
      throw error;
    } finally {
      late?.stop();
    }
    const wasLost = !wasHeld && !isClosed;
    if (wasLost) owned.lose();
    owned.count(lockType.mode, left);
    if (isLast) owned.end();
    if (wasLost) throw new LockLostError(`the lock "${lock}" was lost before it was released`, lock);
  }
}
