package redislock;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;

/** A redis-server for the test, with the module, on a free port; and a plain client for it. */
final class Server implements AutoCloseable {
  static final String MODULE = System.getenv("REDIS_LOCK_MODULE");
  static final int ANY_PORT = 0;
  static final String PROGRAM = System.getenv().getOrDefault("REDIS_SERVER", "redis-server");

  int port;
  private final Path folder;
  private final List<String> command;
  private Process process;
  private Plain plain;

  Server(String... settings) {
    this(ANY_PORT, true, settings);
  }

  Server(int port, boolean withModule, String... settings) {
    try {
      folder = Files.createTempDirectory("redis-lock-java");
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    command =
        new ArrayList<>(
            List.of(PROGRAM, "--bind", "127.0.0.1", "--save", "", "--dir", folder.toString()));
    command.addAll(List.of("--enable-debug-command", "yes"));
    List<String> module = new ArrayList<>();
    for (String each : settings) {
      if (each.startsWith("lock.")) {
        Collections.addAll(module, each.substring(5).split(" "));
      } else {
        Collections.addAll(command, ("--" + each).split(" "));
      }
    }
    if (withModule) {
      if (MODULE == null) {
        throw new IllegalStateException("REDIS_LOCK_MODULE names the module to test");
      }
      command.addAll(List.of("--loadmodule", MODULE));
      command.addAll(module);
    }
    for (boolean started = false; !started; ) {
      this.port = port == ANY_PORT ? freePort() : port;
      try {
        start();
        started = true;
      } catch (Throwable e) {
        // Another process may have taken the port since it was found to be free.
        if (port != ANY_PORT || !log().contains("Address already in use")) {
          close();
          throw e;
        }
      }
    }
  }

  /** The cluster bus has the free port 10,000 above. Outgoing connections have higher ports. */
  static int freePort() {
    for (; ; ) {
      int port = ThreadLocalRandom.current().nextInt(2_000, 12_000);
      try (ServerSocket server = new ServerSocket(port);
          ServerSocket bus = new ServerSocket(port + 10_000)) {
        return server.getLocalPort();
      } catch (IOException e) {
        // Another program has one of them.
      }
    }
  }

  void start() {
    try {
      process =
          new ProcessBuilder(
                  Stream.concat(command.stream(), Stream.of("--port", "" + port)).toList())
              .redirectErrorStream(true)
              .redirectOutput(folder.resolve("log").toFile())
              .start();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    until(
        () -> {
          if (!process.isAlive()) {
            throw new IllegalStateException("the server ended: " + log());
          }
          try {
            plain = new Plain(port);
            // True if this server answers, and not another one on the same port.
            String info = plain.ask("INFO", "server").toString();
            return info.contains("process_id:" + process.pid() + "\r")
                && "PONG".equals(plain.ask("PING"));
          } catch (UncheckedIOException | IllegalStateException e) {
            return false;
          }
        });
  }

  String log() {
    try {
      return Files.readString(folder.resolve("log"));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** The reply of redis-server: text, a number, null, or a list of these. */
  synchronized Object ask(Object... words) {
    try {
      return plain.ask(words);
    } catch (UncheckedIOException e) {
      // A server that is promoted closes its connections.
      plain = new Plain(port);
      return plain.ask(words);
    }
  }

  @SuppressWarnings("unchecked")
  List<Object> list(Object... words) {
    return (List<Object>) ask(words);
  }

  long number(Object... words) {
    return (Long) ask(words);
  }

  /** How often the server has run a command, by INFO commandstats. */
  long calls(String command) {
    for (String line : ask("INFO", "commandstats").toString().split("\r\n")) {
      if (line.toLowerCase().startsWith("cmdstat_" + command.toLowerCase() + ":")) {
        return Long.parseLong(line.replaceAll(".*:calls=(\\d+).*", "$1"));
      }
    }
    return 0;
  }

  long waiters(String key) {
    return list("LOCK.WAITERS", key, "COUNT", 0).size();
  }

  /**
   * Releases the lock while two requests wait: a waiter that is between two requests is skipped.
   */
  boolean releaseBeforeTwo(String key, String owner) {
    String script =
        "return #redis.call('LOCK.WAITERS', KEYS[1], 'COUNT', 0) == 2"
            + " and redis.call('LOCK.RELEASE', KEYS[1], ARGV[1]) or 0";
    return number("EVAL", script, 1, key, owner) == 1;
  }

  boolean exists(String key) {
    return number("EXISTS", key) == 1;
  }

  void untilWaiting(String key, int count) {
    until(() -> waiters(key) == count);
  }

  void kill() {
    if (process == null) {
      return;
    }
    process.destroyForcibly();
    try {
      process.waitFor(10, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** Stops the process (SIGSTOP) or continues it (SIGCONT). */
  void signal(String name) {
    try {
      new ProcessBuilder("kill", "-" + name, "" + process.pid()).start().waitFor();
    } catch (IOException | InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  @Override
  public void close() {
    kill();
    try (var files = Files.walk(folder)) {
      files.sorted(java.util.Comparator.reverseOrder()).forEach(each -> each.toFile().delete());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Waits for a state, 50 s at most. */
  static void until(BooleanSupplier state) {
    until(50, state);
  }

  static void until(long seconds, BooleanSupplier state) {
    long ends = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
    while (!state.getAsBoolean()) {
      if (System.nanoTime() > ends) {
        throw new AssertionError("the state did not come within " + seconds + " s");
      }
      try {
        Thread.sleep(5);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new AssertionError("interrupted", e);
      }
    }
  }

  /** A client that is not under test. */
  static final class Plain implements AutoCloseable {
    private final Socket socket;
    private final InputStream in;

    Plain(int port) {
      try {
        socket = new Socket();
        socket.connect(new InetSocketAddress("127.0.0.1", port), 2000);
        in = new BufferedInputStream(socket.getInputStream());
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    Object ask(Object... words) {
      send(words);
      return read();
    }

    void send(Object... words) {
      try {
        OutputStream out = socket.getOutputStream();
        out.write(request(words));
        out.flush();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    static byte[] request(Object... words) {
      java.io.ByteArrayOutputStream bytes = new java.io.ByteArrayOutputStream();
      bytes.writeBytes(("*" + words.length + "\r\n").getBytes(StandardCharsets.UTF_8));
      for (Object word : words) {
        byte[] raw =
            word instanceof byte[] is ? is : word.toString().getBytes(StandardCharsets.UTF_8);
        bytes.writeBytes(("$" + raw.length + "\r\n").getBytes(StandardCharsets.UTF_8));
        bytes.writeBytes(raw);
        bytes.writeBytes(new byte[] {'\r', '\n'});
      }
      return bytes.toByteArray();
    }

    Object read() {
      try {
        String line = line();
        String rest = line.substring(1);
        switch (line.charAt(0)) {
          case '+':
            return rest;
          case '-':
            throw new IllegalStateException(rest);
          case ':':
            return Long.valueOf(rest);
          case '$':
            int length = Integer.parseInt(rest);
            if (length < 0) {
              return null;
            }
            String text = new String(in.readNBytes(length), StandardCharsets.UTF_8);
            line();
            return text;
          case '*':
            int size = Integer.parseInt(rest);
            if (size < 0) {
              return null;
            }
            List<Object> list = new ArrayList<>();
            for (int at = 0; at < size; at++) {
              list.add(read());
            }
            return list;
          default:
            throw new IllegalStateException("not RESP2: " + line);
        }
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    private String line() throws IOException {
      StringBuilder line = new StringBuilder();
      for (int each = in.read(); each != '\r'; each = in.read()) {
        if (each < 0) {
          throw new IOException("closed");
        }
        line.append((char) each);
      }
      in.read();
      return line.toString();
    }

    @Override
    public void close() {
      try {
        socket.close();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}
