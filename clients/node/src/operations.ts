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
    // The owner's next acquire waits for it: in turn, or, for lock types that do not count holds, as for an ending.
    return this.lockType.counts
      ? hold.kept.first(() => this.releaseOf(hold, work, how, undefined))
      : this.releaseOf(hold, work, how, this.connections.endings.begin(this.lockType.keys, hold.kept.token));
  }

  async extend(owned: Owned, leaseMs: number | undefined): Promise<void> {
    const { connections, lockType, lock } = this;
    const lease = leaseMs === undefined ? this.lease : checkedMs("lease", leaseMs);
    if (owned.over) throw new LockError(`the lock "${lock}" was released`, lock);
    // A loss that is known remains a loss, even if the server still has the lock.
    if (owned.lost || !(await protocol.renew(connections, lockType, owned, lease))) {
      owned.lose();
      throw new LockLostError(`the lock "${lock}" was lost before it was extended`, lock);
    }
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

  private async releaseOf(hold: Hold, work: Work, how: Releasing, ended: (() => void) | undefined): Promise<void> {
    const { connections, lockType, lock } = this;
    const { kept: owned, fence, since } = hold;
    const left = Math.max(0, owned.of(lockType.mode) - hold.added);
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
    try {
      const keptUntil = isLast && work === "done" ? owned.keptUntil : -Infinity;
      // While the owner has other holds, their releases wait for this one, so it must end in time.
      const resendMs =
        how === "awaited" || !isLast
          ? protocol.RELEASE_MS
          : Math.max(protocol.leftMs(owned, this.lease), protocol.leftMs(owned, owned.lease));
      const wasHeld = await protocol.release(connections, lockType, owned, { holds: left, keptUntil, work }, resendMs);
      const wasLost = !wasHeld && !isClosed;
      if (wasLost) owned.lose();
      owned.count(lockType.mode, left);
      if (isLast) owned.end();
      if (wasLost) throw new LockLostError(`the lock "${lock}" was lost before it was released`, lock);
      if (connections.observed.isOn) {
        connections.observed.emit(lockType, owned.token, { event: "released", fence, hold: now() - since });
      }
    } catch (error) {
      hold.releaseFailed();
      if (!(error instanceof LockLostError)) {
        if (isLast) owned.connection?.close();
        connections.observed.emit(lockType, owned.token, { event: "released", fence, hold: now() - since, error });
      }
      throw error;
    } finally {
      late?.stop();
      ended?.();
    }
  }
}
