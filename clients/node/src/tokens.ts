/** Tokens that are readable in LOCK.INFO: host:pid:random. */

import { randomFillSync } from "node:crypto";
import { hostname } from "node:os";

const LONGEST_TOKEN = 38;

// Cached: the host's name is a system call.
let ownStart: string | undefined;

const RANDOM_BYTES = 8;
// Filled for many tokens at once: a request for so few bytes costs more than the rest of a token.
const random = Buffer.alloc(256 * RANDOM_BYTES);
let used = random.length;

function nextRandom(): string {
  if (used === random.length) {
    randomFillSync(random);
    used = 0;
  }
  return random.toString("hex", used, (used += RANDOM_BYTES));
}

/** A new token: 64 random bits in hex, after at most 38 bytes of the host's name. */
export function makeToken(host?: string): string {
  return (host === undefined ? (ownStart ??= startOf(hostname())) : startOf(host)) + nextRandom();
}

function startOf(host: string): string {
  const tail = `:${process.pid}:`;
  return host.replace(/[^\x21-\x7e]/g, "?").slice(0, LONGEST_TOKEN - tail.length - 2 * RANDOM_BYTES) + tail;
}
