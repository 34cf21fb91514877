/**
 * Background tasks of a hold: renewing it, watching a session's connection, reporting the end of its lease.
 *
 * Between two checks nothing here refers to the hold, so that a dropped hold expires instead of being renewed
 * indefinitely. No timer keeps the process alive.
 */

import { Timer, Backoff, now } from "./clock.js";
import type { OwnConnection } from "./connection.js";
import type { Connections } from "./connections.js";
import type { LockType } from "./lock_types.js";
import type { Keeper, Owned } from "./owned.js";
import { endOf, LATE_MS } from "./protocol.js";
import { Trouble } from "./replies.js";

/** Renews after each third of the lease, and so reports a loss within a third. */
export function keepRenewed(owned: Owned, lockType: LockType, connections: Connections): Keeper {
  return keepChecked(owned, async (kept) => {
    const { lease } = kept;
    const sent = now();
    const ends = endOf(sent, lease);
    const words = lockType.renew(kept.token, lease);
    const withinMs = Math.max(50, Math.min(kept.deadline, ends) - sent);
    const reply = await connections.send(lockType.key, words, withinMs).catch((error: unknown) => {
      if (error instanceof Trouble && error.mayHaveRun) kept.mayEnd(ends);
      throw error;
    });
    if (Number(reply) !== 1) return false;
    // After an `extend` meanwhile it is unknown which of the two the server has run last.
    if (kept.lease === lease) kept.deadline = ends;
    else kept.mayEnd(ends);
    connections.observed.emit(lockType, kept.token, { event: "renewed", fence: kept.fence });
    return true;
  });
}

/**
 * Watches a session, whose lease the server renews. The lock is lost when the connection ends, or when a check after a
 * third of the lease says so. The end of the hold closes the connection.
 */
export function keepSession(owned: Owned, lockType: LockType, connection: OwnConnection): Keeper {
  const ref = new WeakRef(owned);
  connection.onEnd(() => ref.deref()?.lose());
  dropped.register(owned, connection);
  return keepChecked(owned, async (kept) => {
    const sent = now();
    const reply = await connection.send(lockType.held(kept.token), LATE_MS);
    const isHeld = reply !== null && reply !== undefined;
    if (isHeld && kept.lease !== null) kept.deadline = sent + kept.lease;
    return isHeld;
  });
}

// Otherwise the session of a dropped hold would last as long as the process.
const dropped = new FinalizationRegistry<OwnConnection>((connection) => connection.close());

function keepChecked(owned: Owned, check: (kept: Owned) => Promise<boolean>): Keeper {
  const ref = new WeakRef(owned);
  const timer = new Timer();
  const isSession = owned.connection !== undefined;
  let backoff = new Backoff();
  let isStopped = false;
  let dueAt = Infinity;
  const set = (nextMs: number): void => {
    dueAt = now() + nextMs;
    timer.set(nextMs, recheck);
  };
  const recheck = (): void => {
    dueAt = Infinity;
    const kept = ref.deref();
    if (kept === undefined || kept.over || kept.lost) return kept?.lose();
    const { lease } = kept;
    check(kept).then(
      (isHeld) => {
        backoff = new Backoff();
        checked(kept, isHeld, kept.lease === lease ? thirdOf(kept) : 0);
      },
      (error: unknown) => {
        const isLost = isSession || (error instanceof Trouble && error.meansLost);
        checked(kept, !isLost, Math.min(thirdOf(kept), backoff.next(Infinity)));
      },
    );
  };
  const checked = (kept: Owned, isHeld: boolean, nextMs: number): void => {
    if (kept.over || isStopped) return;
    if (!isHeld || kept.lost) return kept.lose();
    set(nextMs);
  };
  // Never later than planned: a check at once must not be postponed.
  const again = (nextMs?: number): void => {
    const kept = ref.deref();
    if (kept === undefined) return;
    const ms = nextMs ?? thirdOf(kept);
    if (now() + ms < dueAt) set(ms);
  };
  again();
  const stop = (): void => {
    isStopped = true;
    timer.stop();
  };
  return { stop, again };
}

const thirdOf = ({ lease }: Owned): number => (lease ?? 0) / 3;

/** Reports the loss when the lease expires by the local clock, even if renewals cannot reach the server. */
export function keepDeadline(owned: Owned): Keeper {
  const ref = new WeakRef(owned);
  const timer = new Timer();
  const recheck = (): void => {
    const kept = ref.deref();
    if (kept === undefined || kept.over) return;
    if (kept.lost) return kept.lose();
    wait(kept);
  };
  const wait = (kept: Owned): void => timer.set(kept.deadline - now(), recheck);
  wait(owned);
  return { stop: () => timer.stop(), again: recheck };
}
