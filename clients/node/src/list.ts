/**
 * A list of objects that is kept in the objects themselves. It replaces a `Set`, whose hash for each new object takes
 * 0.4 µs, of the 20 µs that a command costs.
 */

/** A member of at most one list. */
export interface Listed {
  previous?: Listed | undefined;
  next?: Listed | undefined;
}

export class List<Member extends Listed> {
  private readonly ends: Listed = {};

  constructor() {
    this.ends.previous = this.ends.next = this.ends;
  }

  get isEmpty(): boolean {
    return this.ends.next === this.ends;
  }

  add(member: Member): void {
    const { ends } = this;
    const last = ends.previous as Listed;
    member.previous = last;
    member.next = ends;
    last.next = ends.previous = member;
  }

  /** Does nothing if it is not a member. */
  delete(member: Member): void {
    const { previous, next } = member;
    if (previous === undefined || next === undefined) return;
    previous.next = next;
    next.previous = previous;
    member.previous = member.next = undefined;
  }

  /** The members at the time of the call, because the loop may remove any of them. */
  [Symbol.iterator](): Iterator<Member> {
    const members: Member[] = [];
    for (let each = this.ends.next as Listed; each !== this.ends; each = each.next as Listed) {
      members.push(each as Member);
    }
    return members.values();
  }
}
