/** LOCK.INFO: the holders and waiters of a lock. No I/O. */

/** A holder of a lock, or of one mode of a read/write lock. */
export interface HolderInfo {
  /** The owner ID. If it is not UTF-8, bytes that are not ASCII are shown as `\xNN`, and the backslash as `\x5c`. */
  owner: string;
  /** The mode in which it holds the lock. */
  mode: "exclusive" | "read" | "write" | "permits";
  /** How many times it holds the lock; of a semaphore, its permits. */
  holds: number;
  /** The fencing token of its grant. */
  fence: number;
  /** Milliseconds until its lease expires; null: no deadline. */
  ttl: number | null;
  /** The length of its lease in milliseconds; null: no lease. */
  lease: number | null;
  /** Milliseconds since its grant. */
  age: number;
  /** The client ID of the connection that its session is bound to; null: no session. */
  session: number | null;
  /** The number of its permit, for a semaphore with `slot`; otherwise null. */
  slot: number | null;
}

/** The state of a lock that is held or has waiters. */
export interface LockInfo {
  /** The lock type. */
  kind: "mutex" | "reentrant" | "rw" | "semaphore";
  /** The number of permits of a semaphore; 0 for a read/write lock, 1 for the other types. */
  limit: number;
  /** The fencing token of the latest grant. */
  fence: number;
  /** Milliseconds until the key expires; null if it does not, 0 if the lock is free and only has waiters. */
  ttl: number | null;
  /** The oldest first, at most `count` of them. */
  holders: HolderInfo[];
  /** The number of waiting requests. */
  waiters: number;
  /** The number of owners that hold the lock. */
  holding: number;
}

/** null: the lock is free and has no waiters. */
export function lockInfo(reply: unknown): LockInfo | null {
  if (reply === null || reply === undefined) return null;
  const lock = fieldsOf(reply);
  return {
    kind: textOf(lock["kind"]) as LockInfo["kind"],
    limit: Number(lock["limit"]),
    fence: Number(lock["fence"]),
    // -2: free, but it has waiters.
    ttl: Number(lock["ttl"]) === -2 ? 0 : atLeast0(lock["ttl"]),
    holders: (lock["holders"] as unknown[]).map((holder) => holderInfo(fieldsOf(holder))),
    waiters: Number(lock["waiters"]),
    holding: Number(lock["holding"]),
  };
}

function holderInfo(holder: Record<string, unknown>): HolderInfo {
  const session = Number(holder["session"]);
  return {
    owner: textOf(holder["owner"]),
    mode: textOf(holder["mode"]) as HolderInfo["mode"],
    holds: Number(holder["holds"]),
    fence: Number(holder["fence"]),
    ttl: atLeast0(holder["ttl"]),
    lease: atLeast0(holder["lease"]),
    age: Number(holder["age"]),
    session: session === 0 ? null : session,
    slot: atLeast0(holder["slot"] ?? -1),
  };
}

const atLeast0 = (field: unknown): number | null => (Number(field) < 0 ? null : Number(field));

/** The fields of a map, which the libraries return as a flat array (RESP2), an object or a Map (RESP3). */
function fieldsOf(reply: unknown): Record<string, unknown> {
  if (reply instanceof Map) return Object.fromEntries([...reply].map(([name, value]) => [textOf(name), value]));
  if (!Array.isArray(reply)) return reply as Record<string, unknown>;
  const fields: Record<string, unknown> = {};
  for (let index = 0; index + 1 < reply.length; index += 2) fields[textOf(reply[index])] = reply[index + 1];
  return fields;
}

const INVALID = /\ufffd/;

/**
 * A word of a reply as text. If its bytes are not UTF-8, each byte above ASCII, and each backslash, is written as
 * `\xNN`.
 */
export function textOf(word: unknown): string {
  if (!Buffer.isBuffer(word)) return String(word);
  const text = word.toString();
  if (!INVALID.test(text) || Buffer.from(text).equals(word)) return text;
  return word.toString("latin1").replace(/[\x80-\xff\\]/g, (byte) => `\\x${byte.charCodeAt(0).toString(16)}`);
}

/** The bytes, not UTF-8, that `textOf` shows as this text; undefined if the text only stands for its own bytes. */
export function bytesOf(text: unknown): Buffer | undefined {
  if (typeof text !== "string") return undefined;
  const bytes = Buffer.from(
    text.replace(/\\x([0-9a-f]{2})/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16))),
    "latin1",
  );
  return textOf(bytes) === text && !bytes.equals(Buffer.from(text)) ? bytes : undefined;
}
