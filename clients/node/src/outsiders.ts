/**
 * The nodes of a cluster that have no slots yet. A library knows only nodes with slots, but while a cluster grows, an
 * ASK may name a node before its first slot has moved.
 */

import { Timer } from "./clock.js";
import type { Node } from "./connection.js";

/** How long a connection is kept after its last use, in ms. By then the library has its own. */
const UNUSED_MS = 10_000;

/** A connection to such a node. */
export interface Outsider {
  /** Rejects with `Trouble`. */
  node(): Node | Promise<Node>;
  close(): void;
}

interface Kept {
  readonly outsider: Outsider;
  readonly timer: Timer;
  node: Node | undefined;
}

export class Outsiders {
  private readonly all = new Map<string, Kept>();

  constructor(private readonly connect: (address: string) => Outsider) {}

  /** Rejects with `Trouble`. */
  async node(address: string): Promise<Node> {
    let kept = this.all.get(address);
    if (kept?.node?.ended) this.leave(address);
    kept = this.all.get(address);
    if (kept === undefined) {
      kept = { outsider: this.connect(address), timer: new Timer(), node: undefined };
      this.all.set(address, kept);
    }
    this.watch(address, kept);
    return (kept.node = await kept.outsider.node());
  }

  close(): void {
    for (const address of [...this.all.keys()]) this.leave(address);
  }

  private watch(address: string, kept: Kept): void {
    kept.timer.set(UNUSED_MS, () => (kept.node?.isBusy ? this.watch(address, kept) : this.leave(address)));
  }

  private leave(address: string): void {
    const kept = this.all.get(address);
    this.all.delete(address);
    kept?.timer.stop();
    kept?.outsider.close();
  }
}
