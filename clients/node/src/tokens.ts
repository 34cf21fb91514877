/** Tokens that people can read in LOCK.INFO: host:pid:random. */

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

const LONGEST_TOKEN = 38;

// Asked once: it is a system call.
let ownHost: string | undefined;

/** A new token: 64 random bits in hex, behind as much of the host's name as fits into 38 bytes. */
export function makeToken(host: string = (ownHost ??= hostname())): string {
  const tail = `:${process.pid}:${randomBytes(8).toString("hex")}`;
  return host.replace(/[^\x21-\x7e]/g, "?").slice(0, LONGEST_TOKEN - tail.length) + tail;
}
