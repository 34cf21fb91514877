package redislock;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** The words of commands and replies as bytes, and their representation as text. */
final class Words {
  private static final Pattern SHOWN_AS_NUMBER = Pattern.compile("[\\\\\\x80-\\xff]");

  private Words() {}

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  /** A command; each part is a string, bytes, a number, or a list of those. */
  static List<byte[]> of(Object... parts) {
    List<byte[]> words = new ArrayList<>(parts.length + 2);
    for (Object part : parts) {
      add(words, part);
    }
    return words;
  }

  private static void add(List<byte[]> words, Object part) {
    if (part instanceof byte[] raw) {
      words.add(raw);
    } else if (part instanceof List<?> several) {
      for (Object each : several) {
        add(words, each);
      }
    } else {
      words.add(bytes(part.toString()));
    }
  }

  /** The text of UTF-8 bytes; null if they are not UTF-8. */
  static @Nullable String utf8(byte[] raw) {
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(raw)).toString();
    } catch (CharacterCodingException e) {
      return null;
    }
  }

  /**
   * A word of a reply as text. If its bytes are not UTF-8, each byte above ASCII, and each
   * backslash, is written as {@code \xNN}.
   */
  static String text(@Nullable Object word) {
    if (!(word instanceof byte[] raw)) {
      return String.valueOf(word);
    }
    String text = utf8(raw);
    if (text != null) {
      return text;
    }
    return SHOWN_AS_NUMBER
        .matcher(new String(raw, StandardCharsets.ISO_8859_1))
        .replaceAll(each -> "\\\\x%02x".formatted((int) each.group().charAt(0)));
  }

  /** A reply with strings instead of bytes; a map as a list of keys and values. */
  static @Nullable Object texts(@Nullable Object reply) {
    if (reply instanceof byte[]) {
      return text(reply);
    }
    if (!(reply instanceof List<?> list)) {
      return reply;
    }
    List<@Nullable Object> texts = new ArrayList<>();
    for (Object each : list) {
      if (each instanceof Map.Entry<?, ?> entry) {
        texts.add(texts(entry.getKey()));
        texts.add(texts(entry.getValue()));
      } else {
        texts.add(texts(each));
      }
    }
    return texts;
  }

  /** The number in a reply. */
  static long number(@Nullable Object word) {
    return word instanceof Number number ? number.longValue() : Long.parseLong(text(word));
  }

  /** The form of a key or a token in the server's messages. */
  static String json(byte[] word) {
    String text = utf8(word);
    return text == null ? "base64:" + Base64.getEncoder().encodeToString(word) : "text:" + text;
  }
}
