import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.DriverPropertyInfo;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.TreeMap;
import java.util.logging.Logger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Replaces PostgreSQL's driver: what docs/recipes.md calls of it, on SQLite. JDBC's ? is SQLite's $1, $2 here. */
public final class Standin implements java.sql.Driver {
  static {
    try {
      DriverManager.registerDriver(new Standin());
    } catch (java.sql.SQLException e) {
      throw new IllegalStateException(e);
    }
  }

  private interface Call {
    Object of(String name, Object[] values) throws Exception;
  }

  private static <T> T made(Class<T> type, Call call) {
    return type.cast(
        Proxy.newProxyInstance(
            Standin.class.getClassLoader(),
            new Class<?>[] {type},
            (proxy, method, values) -> call.of(method.getName(), values)));
  }

  @Override
  public Connection connect(String url, Properties properties) {
    if (!acceptsURL(url)) {
      return null;
    }
    return made(
        Connection.class, (name, values) -> name.equals("prepareStatement") ? statement((String) values[0]) : null);
  }

  private static PreparedStatement statement(String text) {
    TreeMap<Integer, String> given = new TreeMap<>();
    return made(
        PreparedStatement.class,
        (name, values) -> {
          switch (name) {
            case "setLong":
              given.put((Integer) values[0], values[1].toString());
              return null;
            case "executeUpdate":
              return Integer.valueOf(found("\"rowCount\": (\\d+)", run(text, given)).get(0));
            case "executeQuery":
              return rows(found("\\{\"\\w+\": (-?\\d+)\\}", run(text, given)));
            default:
              return null;
          }
        });
  }

  private static ResultSet rows(List<String> firsts) {
    int[] at = {-1};
    return made(
        ResultSet.class,
        (name, values) -> {
          switch (name) {
            case "next":
              return ++at[0] < firsts.size();
            case "getLong":
              return Long.valueOf(firsts.get(at[0]));
            default:
              return null;
          }
        });
  }

  private static List<String> found(String pattern, String text) {
    List<String> all = new ArrayList<>();
    for (Matcher each = Pattern.compile(pattern).matcher(text); each.find(); ) {
      all.add(each.group(1));
    }
    return all;
  }

  private static String run(String text, TreeMap<Integer, String> given) throws Exception {
    for (int number = 1; text.contains("?"); number++) {
      text = text.replaceFirst("\\?", "\\$" + number);
    }
    List<String> words = new ArrayList<>(List.of(System.getenv("STANDIN_PYTHON"), System.getenv("STANDIN_SQL"), text));
    words.addAll(given.values());
    Process process = new ProcessBuilder(words).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    return new String(process.getInputStream().readAllBytes());
  }

  @Override
  public boolean acceptsURL(String url) {
    return url.startsWith("jdbc:postgresql:");
  }

  @Override
  public DriverPropertyInfo[] getPropertyInfo(String url, Properties properties) {
    return new DriverPropertyInfo[0];
  }

  @Override
  public int getMajorVersion() {
    return 1;
  }

  @Override
  public int getMinorVersion() {
    return 0;
  }

  @Override
  public boolean jdbcCompliant() {
    return false;
  }

  @Override
  public Logger getParentLogger() {
    return Logger.getGlobal();
  }
}
