/**
 * The running withdrawals and releases of each owner. The owner's next acquire waits for them; otherwise one that
 * arrives late, or is sent again, would end its grant. No I/O.
 */

import type { Word } from "./connection.js";
import { textOf } from "./info.js";

interface Ending {
  keys: readonly Word[];
  token: Word;
  /** False for a request that is still wanted. */
  hasBegun(): boolean;
  over: Promise<unknown>;
}

export class Endings {
  private readonly all = new Set<Ending>();

  /** `hasBegun`: whether the work is an ending already. */
  add(keys: readonly Word[], token: Word, work: Promise<unknown>, hasBegun = (): boolean => true): void {
    const remove = (): unknown => this.all.delete(ending);
    const ending: Ending = { keys, token, hasBegun, over: work.then(remove, remove) };
    this.all.add(ending);
  }

  /** Resolves when all endings of the owner are done; undefined if there are none. Never rejects. */
  settled(keys: readonly Word[], token: Word): Promise<unknown> | undefined {
    const owner = textOf(token);
    const begun = [...this.all].filter(
      (each) => each.hasBegun() && textOf(each.token) === owner && overlap(each.keys, keys),
    );
    if (begun.length === 0) return undefined;
    return Promise.all(begun.map(({ over }) => over)).then(() => this.settled(keys, token));
  }
}

const overlap = (keys: readonly Word[], others: readonly Word[]): boolean =>
  keys.some((key) => others.some((other) => textOf(key) === textOf(other)));
