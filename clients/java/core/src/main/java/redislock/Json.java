package redislock;

import java.util.HashMap;
import java.util.Map;

/**
 * The JSON of the server's messages: an object of strings, whole numbers, and {@code {"base64":…}}
 * for bytes that are not UTF-8.
 */
final class Json {
  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  /**
   * The fields, in the form of {@link Words#told}; a number as text.
   *
   * @throws IndexOutOfBoundsException if it ends in the middle of a string, as nothing of the
   *     server's does
   */
  static Map<String, String> fields(String text) {
    return new Json(text).fields();
  }

  private Map<String, String> fields() {
    Map<String, String> fields = new HashMap<>();
    String name = null;
    String form = "text:";
    while (at < text.length()) {
      char next = text.charAt(at);
      if (next == '"') {
        String read = string();
        if (name == null) {
          name = read;
        } else if (form.isEmpty()) {
          form = read + ":";
        } else {
          fields.put(name, form + read);
          name = null;
          form = "text:";
        }
      } else if (isOfNumber(next) && name != null) {
        int from = at;
        while (isOfNumber(text.charAt(at))) {
          at++;
        }
        fields.put(name, text.substring(from, at));
        name = null;
      } else {
        if (next == '{' && name != null) {
          form = "";
        }
        at++;
      }
    }
    return fields;
  }

  private static boolean isOfNumber(char each) {
    return "-0123456789".indexOf(each) >= 0;
  }

  private String string() {
    StringBuilder read = new StringBuilder();
    for (at++; text.charAt(at) != '"'; at++) {
      read.append(text.charAt(at) == '\\' ? escaped() : text.charAt(at));
    }
    at++;
    return read.toString();
  }

  private char escaped() {
    char each = text.charAt(++at);
    if (each == 'u') {
      at += 4;
      return (char) Integer.parseInt(text.substring(at - 3, at + 1), 16);
    }
    int control = "bfnrt".indexOf(each);
    return control < 0 ? each : "\b\f\n\r\t".charAt(control);
  }
}
