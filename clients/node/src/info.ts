/** LOCK.INFO: who holds a lock, and how many wait for it. No I/O. */

/** The owner of a hold, or of one mode of a read/write lock. */
export interface HolderInfo {
  /** Its token. Of one that is not UTF-8, bytes that are not ASCII are shown as `\xNN`, and the backslash is `\x5c`. */
  owner: string;
  mode: "exclusive" | "read" | "write" | "permits";
  holds: number;
  fence: number;
  /** Milliseconds until its lease ends; null: no end. */
  ttl: number | null;
  /** The length of its lease in milliseconds; null: without a deadline. */
  lease: number | null;
  /** Milliseconds since its grant. */
  age: number;
  /** The client id of the connection that it is bound to; null: no session. */
  session: number | null;
  /** The number of its permit, of a semaphore with `slot`; null: none. */
  slot: number | null;
}

/** A lock that is held, or free but waited for. */
export interface LockInfo {
  kind: "mutex" | "reentrant" | "rw" | "semaphore";
  /** Of a semaphore, its permits; of a read/write lock 0, of others 1. */
  limit: number;
  /** Of the latest grant. */
  fence: number;
  /** Milliseconds until the key expires; null: it does not. */
  ttl: number | null;
  /** The oldest first, as many as were asked for. */
  holders: HolderInfo[];
  /** How many requests wait. */
  waiters: number;
  /** How many owners hold it. */
  holding: number;
}

/** null: the lock is free, and no request waits for it. */
export function lockInfo(reply: unknown): LockInfo | null {
  if (reply === null || reply === undefined) return null;
  const lock = fieldsOf(reply);
  return {
    kind: textOf(lock["kind"]) as LockInfo["kind"],
    limit: Number(lock["limit"]),
    fence: Number(lock["fence"]),
    // -2: free, but waited for.
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

/** A map as the libraries give it: a flat array (RESP2), an object or a Map (RESP3). */
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

/** The bytes, not UTF-8, that `textOf` shows as this text; undefined: the text stands for its own bytes only. */
export function bytesOf(text: unknown): Buffer | undefined {
  if (typeof text !== "string") return undefined;
  const bytes = Buffer.from(
    text.replace(/\\x([0-9a-f]{2})/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16))),
    "latin1",
  );
  return textOf(bytes) === text && !bytes.equals(Buffer.from(text)) ? bytes : undefined;
}
