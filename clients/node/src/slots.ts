/** The slots of a cluster, and a hash tag for each slot. */

const SLOTS = 16384;

/** CRC-16/XMODEM, by the cluster specification. */
function crc16(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return crc;
}

export function slotOf(key: string | Buffer): number {
  const bytes = typeof key === "string" ? Buffer.from(key) : key;
  const open = bytes.indexOf("{");
  const close = open < 0 ? -1 : bytes.indexOf("}", open + 1);
  return crc16(close > open + 1 ? bytes.subarray(open + 1, close) : bytes) % SLOTS;
}

const tags = new Map<number, string>();
let tried = 0;

/** A text without braces that hashes to this slot, because keys may contain any bytes, but channel names should not. */
export function tagOf(slot: number): string {
  for (;;) {
    const tag = tags.get(slot);
    if (tag !== undefined) return tag;
    const next = (tried++).toString(36);
    const its = slotOf(next);
    if (!tags.has(its)) tags.set(its, next);
  }
}
