package redislock;

import java.util.function.BooleanSupplier;

/** A redis-server with the module, for the tests of the other modules. */
public final class TestServer implements AutoCloseable {
  /** On a busy machine a Spring application takes a minute or two to start. */
  private static final long LONG_S = 200;

  private final Server server;

  /**
   * Starts it.
   *
   * @param settings as of redis.conf
   */
  public TestServer(String... settings) {
    this(new Server(settings));
  }

  private TestServer(Server server) {
    this.server = server;
  }

  /**
   * Starts a server without the module.
   *
   * @return a server
   */
  public static TestServer withoutModule() {
    return new TestServer(new Server(Server.freePort(), false));
  }

  /**
   * Its port.
   *
   * @return on 127.0.0.1
   */
  public int port() {
    return server.port;
  }

  /**
   * Asks it over a connection of the test.
   *
   * @param words of a command
   * @return text, numbers, lists, null
   */
  public Object ask(Object... words) {
    return server.ask(words);
  }

  /**
   * Whether a key is there.
   *
   * @param key its name
   * @return true if so
   */
  public boolean exists(String key) {
    return server.exists(key);
  }

  /**
   * Waits for requests.
   *
   * @param key of the lock
   * @param count of those that wait
   */
  public void untilWaiting(String key, int count) {
    Server.until(LONG_S, () -> server.waiters(key) == count);
  }

  /**
   * Waits for a state.
   *
   * @param state to wait for
   */
  public void until(BooleanSupplier state) {
    Server.until(LONG_S, state);
  }

  @Override
  public void close() {
    server.close();
  }
}
