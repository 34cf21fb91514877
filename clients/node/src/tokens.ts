/** Tokens that are readable in LOCK.INFO: host:pid:random. */

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

const LONGEST_TOKEN = 38;

// Cached, because the host's name takes a system call.
let ownStart: string | undefined;

const RANDOM_BYTES = 8;
const RANDOM_DIGITS = 2 * RANDOM_BYTES;
// Generated in batches, because getting so few random bytes costs more than the rest of a token.
let digits = "";
let used = 0;

function nextRandom(): string {
  if (used === digits.length) {
    digits = randomBytes(256 * RANDOM_BYTES).toString("hex");
    used = 0;
  }
  return digits.slice(used, (used += RANDOM_DIGITS));
}

/** A new owner ID, `host:pid:random`, with 64 random bits in hex; at most 38 bytes. */
export function makeToken(host?: string): string {
  return (host === undefined ? (ownStart ??= startOf(hostname())) : startOf(host)) + nextRandom();
}

function startOf(host: string): string {
  const tail = `:${process.pid}:`;
  return host.replace(/[^\x21-\x7e]/g, "?").slice(0, LONGEST_TOKEN - tail.length - RANDOM_DIGITS) + tail;
}
