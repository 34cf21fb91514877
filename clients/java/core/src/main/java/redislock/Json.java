package redislock;

import java.util.HashMap;
import java.util.Map;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Parses the JSON of the server's messages: an object of strings, integers, and {@code
 * {"base64":…}} for bytes that are not UTF-8.
 */
final class Json {
  private static final String STRING = "\"((?:[^\"\\\\]|\\\\.)*+)\"";
  private static final Pattern FIELD =
      Pattern.compile(STRING + ":(?:" + STRING + "|\\{\"base64\":" + STRING + "}|(-?\\d+))");
  private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u(\\p{XDigit}{4})|.)");

  private Json() {}

  /**
   * The fields, in the form of {@link Words#json}; a number as text.
   *
   * @throws IllegalArgumentException if it has an escape that the server does not write
   */
  static Map<String, String> fields(String text) {
    Map<String, String> fields = new HashMap<>();
    for (Matcher found = FIELD.matcher(text); found.find(); ) {
      String value = found.group(4);
      if (found.group(2) != null) {
        value = "text:" + ESCAPE.matcher(found.group(2)).replaceAll(Json::meant);
      } else if (found.group(3) != null) {
        value = "base64:" + found.group(3);
      }
      fields.put(found.group(1), value);
    }
    return fields;
  }

  private static String meant(MatchResult escape) {
    String code = escape.group(1);
    return Matcher.quoteReplacement(
        code == null
            ? escape.group().translateEscapes()
            : Character.toString(Integer.parseInt(code, 16)));
  }
}
