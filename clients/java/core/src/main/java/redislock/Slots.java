package redislock;

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** The slots of a cluster, and a hash tag for each slot. */
final class Slots {
  private static final int COUNT = 16_384;
  private static final ConcurrentHashMap<Integer, String> TAGS = new ConcurrentHashMap<>();
  private static final AtomicInteger TRIED = new AtomicInteger();

  private Slots() {}

  static int of(byte[] key) {
    int open = indexOf(key, '{', 0);
    int close = open < 0 ? -1 : indexOf(key, '}', open + 1);
    return close > open + 1
        ? crc16(key, open + 1, close) % COUNT
        : crc16(key, 0, key.length) % COUNT;
  }

  /**
   * A text without braces that hashes to this slot: keys may hold any bytes, the name of a channel
   * should not.
   */
  static String tag(int slot) {
    for (; ; ) {
      String tag = TAGS.get(slot);
      if (tag != null) {
        return tag;
      }
      String next = Integer.toString(TRIED.getAndIncrement(), 36);
      TAGS.putIfAbsent(of(Words.bytes(next)), next);
    }
  }

  private static int indexOf(byte[] bytes, char wanted, int from) {
    for (int at = from; at < bytes.length; at++) {
      if (bytes[at] == wanted) {
        return at;
      }
    }
    return -1;
  }

  /** CRC-16/XMODEM, by the cluster specification. */
  private static int crc16(byte[] bytes, int from, int to) {
    int crc = 0;
    for (int at = from; at < to; at++) {
      crc ^= (bytes[at] & 0xff) << 8;
      for (int bit = 0; bit < 8; bit++) {
        crc = (crc << 1 ^ ((crc & 0x8000) != 0 ? 0x1021 : 0)) & 0xffff;
      }
    }
    return crc;
  }
}
