/**
 * The withdrawals and releases under way, by owner: the owner's next acquire waits for them. Otherwise one that arrives
 * late, or is sent again, would end that acquire's grant. No I/O.
 */

import type { Word } from "./connection.js";

interface Ending {
  /** False for a request that is still wanted. */
  hasBegun(): boolean;
  over: Promise<unknown>;
}

export class Endings {
  private readonly byOwner = new Map<string, Set<Ending>>();

  /** `hasBegun`: whether the work is an ending yet. */
  add(keys: readonly Word[], token: Word, work: Promise<unknown>, hasBegun = (): boolean => true): void {
    const owners = keys.map((key) => ownerOf(key, token));
    const remove = (): void => {
      for (const owner of owners) {
        const endings = this.byOwner.get(owner);
        if (endings?.delete(ending) && endings.size === 0) this.byOwner.delete(owner);
      }
    };
    const ending: Ending = { hasBegun, over: work.then(remove, remove) };
    for (const owner of owners) this.byOwner.set(owner, (this.byOwner.get(owner) ?? new Set()).add(ending));
  }

  /** Resolves when all of the owner's are over; undefined: there are none. Never rejects. */
  settled(keys: readonly Word[], token: Word): Promise<unknown> | undefined {
    if (this.byOwner.size === 0) return undefined;
    const endings = keys.flatMap((key) => [...(this.byOwner.get(ownerOf(key, token)) ?? [])]);
    const begun = endings.filter((ending) => ending.hasBegun());
    if (begun.length === 0) return undefined;
    return Promise.all(begun.map(({ over }) => over)).then(() => this.settled(keys, token));
  }
}

const ownerOf = (...words: Word[]): string =>
  words.map((word) => (Buffer.isBuffer(word) ? word : Buffer.from(String(word))).toString("base64")).join(" ");
