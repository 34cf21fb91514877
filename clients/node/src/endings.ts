/**
 * The running withdrawals and releases of each owner. The owner's next acquire waits for them; otherwise one that
 * arrives late, or is sent again, would end its grant. No I/O.
 */

import type { Word } from "./connection.js";
import { textOf } from "./info.js";
import { List, type Listed } from "./list.js";

class Ending implements Listed {
  previous: Listed | undefined = undefined;
  next: Listed | undefined = undefined;
  private waiting: (() => void)[] | undefined;

  constructor(
    readonly keys: readonly Word[],
    readonly token: Word,
    /** False for a request that is still wanted. */
    readonly hasBegun: () => boolean,
  ) {}

  over(): Promise<void> {
    return new Promise((resolve) => (this.waiting ??= []).push(resolve));
  }

  end(): void {
    for (const resolve of this.waiting ?? []) resolve();
  }
}

const always = (): boolean => true;

export class Endings {
  private readonly all = new List<Ending>();

  /** The work, which is an ending if `hasBegun` says so. */
  add(keys: readonly Word[], token: Word, work: Promise<unknown>, hasBegun = always): void {
    const end = this.begin(keys, token, hasBegun);
    work.then(end, end);
  }

  /** As `add`, for work that calls the function when it ends. */
  begin(keys: readonly Word[], token: Word, hasBegun = always): () => void {
    const ending = new Ending(keys, token, hasBegun);
    this.all.add(ending);
    return () => {
      this.all.delete(ending);
      ending.end();
    };
  }

  /** Resolves when all endings of the owner are done; undefined if there are none. Never rejects. */
  settled(keys: readonly Word[], token: Word): Promise<unknown> | undefined {
    const owner = textOf(token);
    const begun = [...this.all].filter(
      (each) => each.hasBegun() && textOf(each.token) === owner && overlap(each.keys, keys),
    );
    if (begun.length === 0) return undefined;
    return Promise.all(begun.map((each) => each.over())).then(() => this.settled(keys, token));
  }
}

const overlap = (keys: readonly Word[], others: readonly Word[]): boolean =>
  keys.some((key) => others.some((other) => textOf(key) === textOf(other)));
