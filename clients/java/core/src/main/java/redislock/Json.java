package redislock;

import java.util.HashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The JSON of the server's messages: an object of strings, whole numbers, and {@code {"base64":…}}
 * for words that are not UTF-8. A word is read into the form of {@link Words#told}.
 */
final class Json {
  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  /** null: it is something else. */
  static @Nullable Map<String, Object> object(String text) {
    try {
      return new Json(text).object();
    } catch (IllegalArgumentException | IndexOutOfBoundsException e) {
      return null;
    }
  }

  private Map<String, Object> object() {
    Map<String, Object> fields = new HashMap<>();
    expect('{');
    while (peek() != '}') {
      String name = string();
      expect(':');
      fields.put(name, value(name));
      if (peek() == ',') {
        at++;
      }
    }
    expect('}');
    return fields;
  }

  private Object value(String name) {
    boolean isWord = name.equals("key") || name.equals("token");
    switch (peek()) {
      case '"':
        return isWord ? "text:" + string() : string();
      case '{':
        return "base64:" + object().get("base64");
      default:
        int from = at;
        while ("-0123456789".indexOf(text.charAt(at)) >= 0) {
          at++;
        }
        return Long.valueOf(text.substring(from, at));
    }
  }

  private String string() {
    StringBuilder read = new StringBuilder();
    expect('"');
    for (char each = text.charAt(at++); each != '"'; each = text.charAt(at++)) {
      read.append(each == '\\' ? escaped() : each);
    }
    return read.toString();
  }

  private char escaped() {
    char each = text.charAt(at++);
    switch (each) {
      case 'b':
        return '\b';
      case 'f':
        return '\f';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'u':
        at += 4;
        return (char) Integer.parseInt(text.substring(at - 4, at), 16);
      default:
        return each;
    }
  }

  private char peek() {
    while (Character.isWhitespace(text.charAt(at))) {
      at++;
    }
    return text.charAt(at);
  }

  private void expect(char wanted) {
    if (peek() != wanted) {
      throw new IllegalArgumentException(text);
    }
    at++;
  }
}
