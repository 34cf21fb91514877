/**
 * The withdrawals and releases under way, by owner: the owner's next acquire waits for them. Otherwise one that arrives
 * late, or is sent again, would end that acquire's grant. No I/O.
 */

import type { Word } from "./connection.js";
import { textOf } from "./info.js";

interface Ending {
  keys: readonly Word[];
  /** False for a request that is still wanted. */
  hasBegun(): boolean;
  over: Promise<unknown>;
}

export class Endings {
  private readonly byToken = new Map<string, Ending[]>();

  /** `hasBegun`: whether the work is an ending yet. */
  add(keys: readonly Word[], token: Word, work: Promise<unknown>, hasBegun = (): boolean => true): void {
    const id = textOf(token);
    const endings = this.byToken.get(id) ?? [];
    const remove = (): void => {
      if (endings.length === 1) this.byToken.delete(id);
      else endings.splice(endings.indexOf(ending), 1);
    };
    const ending: Ending = { keys, hasBegun, over: work.then(remove, remove) };
    endings.push(ending);
    this.byToken.set(id, endings);
  }

  /** Resolves when all of the owner's are over; undefined: there are none. Never rejects. */
  settled(keys: readonly Word[], token: Word): Promise<unknown> | undefined {
    const endings = this.byToken.get(textOf(token));
    if (endings === undefined) return undefined;
    const asked = keys.map(textOf);
    const begun = endings.filter((each) => each.hasBegun() && each.keys.some((key) => asked.includes(textOf(key))));
    if (begun.length === 0) return undefined;
    return Promise.all(begun.map(({ over }) => over)).then(() => this.settled(keys, token));
  }
}
