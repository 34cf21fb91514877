package redislock;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Between a client and a server: records requests and packets, delays connections, and fails at a
 * chosen point. It cuts a reply at a byte, holds replies back, stops within a packet, or passes
 * nothing on.
 */
final class Proxy implements AutoCloseable {
  final int port;
  private final ServerSocket listener;
  private final int target;
  private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
  private final List<String> requests = new CopyOnWriteArrayList<>();
  private volatile String cut;
  private volatile boolean cutsEach;
  private volatile int passedBytes;
  private volatile String held;
  private volatile boolean silent;
  private volatile long connectMs;
  private final AtomicInteger accepted = new AtomicInteger();
  private final AtomicInteger connected = new AtomicInteger();
  private final List<String> packets = new CopyOnWriteArrayList<>();
  private volatile String split;
  private volatile CountDownLatch rest = new CountDownLatch(0);

  Proxy(int target) {
    this.target = target;
    try {
      listener = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    port = listener.getLocalPort();
    daemon(this::accept);
  }

  /**
   * Cuts the next reply to a request that begins with these words, after this many bytes; a
   * negative number counts from the end. Replies that arrive together are cut as one.
   */
  void cut(String request, int afterBytes) {
    passedBytes = afterBytes;
    cutsEach = false;
    cut = request;
  }

  /** Cuts each reply to a request that begins with these words, until the next {@link #cut}. */
  void cutEach(String request) {
    cut(request, 0);
    cutsEach = true;
  }

  boolean hasCut() {
    return cut == null;
  }

  /** The next packet is passed on up to this command; {@link #letGo} passes the rest. */
  void split(String command) {
    rest = new CountDownLatch(1);
    split = "\r\n" + command + "\r\n";
  }

  /** True if a packet was stopped. */
  boolean hasSplit() {
    return split == null;
  }

  void letGo() {
    rest.countDown();
  }

  /** From now on connections are delayed by this time. */
  void connectAfter(long ms) {
    connectMs = ms;
  }

  /** How many connections clients have opened to the proxy. */
  int accepted() {
    return accepted.get();
  }

  /** How many of them were opened to the server too. */
  int connected() {
    return connected.get();
  }

  /** The bytes of each read that contains a command of a lock, as text. */
  List<String> packets() {
    return packets;
  }

  /** Replies to requests that begin with this are held back indefinitely. */
  void hold(String request) {
    held = request;
  }

  /** While this is set, nothing is forwarded in either direction, and what is sent is lost. */
  void silent(boolean is) {
    silent = is;
    if (!is) {
      closeAll();
    }
  }

  /** The requests that arrived, each with blanks between its words. */
  List<String> requests() {
    return requests;
  }

  long count(String request) {
    return requests.stream().filter(each -> each.startsWith(request)).count();
  }

  void closeAll() {
    sockets.forEach(Proxy::quietly);
    letGo();
  }

  private void accept() {
    while (true) {
      try {
        Socket client = listener.accept();
        sockets.add(client);
        accepted.incrementAndGet();
        if (silent) {
          continue; // Accepted, and never served.
        }
        daemon(() -> connect(client));
      } catch (IOException e) {
        if (listener.isClosed()) {
          return;
        }
      }
    }
  }

  private void connect(Socket client) {
    try {
      Thread.sleep(connectMs);
      Socket server = new Socket("127.0.0.1", target);
      sockets.add(server);
      connected.incrementAndGet();
      new Pair(client, server).begin();
    } catch (IOException | InterruptedException e) {
      quietly(client);
    }
  }

  private final class Pair {
    private final Socket client;
    private final Socket server;
    private volatile boolean cutsNext;
    private volatile boolean holdsNext;

    Pair(Socket client, Socket server) {
      this.client = client;
      this.server = server;
    }

    void begin() {
      daemon(() -> pump(client, server, true));
      daemon(() -> pump(server, client, false));
    }

    private void pump(Socket from, Socket to, boolean isRequest) {
      ByteArrayOutputStream pending = new ByteArrayOutputStream();
      try {
        InputStream in = from.getInputStream();
        OutputStream out = to.getOutputStream();
        byte[] buffer = new byte[65_536];
        for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) {
          if (silent) {
            continue;
          }
          if (isRequest) {
            pending.write(buffer, 0, count);
            note(pending);
            String text = new String(buffer, 0, count, StandardCharsets.ISO_8859_1);
            if (text.contains("LOCK.") || text.contains("SEM.")) {
              packets.add(text);
            }
            if (split != null && text.contains(split)) {
              int first = text.lastIndexOf('*', text.indexOf(split));
              split = null;
              out.write(buffer, 0, first);
              out.flush();
              rest.await();
              out.write(buffer, first, count - first);
              out.flush();
              continue;
            }
          } else if (holdsNext) {
            continue;
          } else if (cutsNext) {
            out.write(
                buffer, 0, passedBytes < 0 ? count + passedBytes : Math.min(count, passedBytes));
            out.flush();
            cut = cutsEach ? cut : null;
            break;
          }
          out.write(buffer, 0, count);
          out.flush();
        }
      } catch (IOException | InterruptedException e) {
        // Closed by either side.
      } finally {
        quietly(from);
        quietly(to);
      }
    }

    /** Takes whole requests from the bytes. */
    private void note(ByteArrayOutputStream pending) {
      String text = pending.toString(StandardCharsets.ISO_8859_1);
      int at = 0;
      for (int next = end(text, at); next > 0; next = end(text, at)) {
        String request = words(text.substring(at, next));
        requests.add(request);
        String cutting = cut;
        String holding = held;
        cutsNext |= cutting != null && request.startsWith(cutting);
        holdsNext |= holding != null && request.startsWith(holding);
        at = next;
      }
      pending.reset();
      pending.writeBytes(text.substring(at).getBytes(StandardCharsets.ISO_8859_1));
    }

    private int end(String text, int from) {
      int at = text.indexOf("\r\n", from);
      if (at < 0) {
        return -1;
      }
      int count = Integer.parseInt(text.substring(from + 1, at));
      at += 2;
      for (int word = 0; word < count; word++) {
        int line = text.indexOf("\r\n", at);
        if (line < 0) {
          return -1;
        }
        at = line + 2 + Integer.parseInt(text.substring(at + 1, line)) + 2;
      }
      return at > text.length() ? -1 : at;
    }

    private String words(String request) {
      StringBuilder words = new StringBuilder();
      int at = request.indexOf("\r\n") + 2;
      while (at < request.length()) {
        int line = request.indexOf("\r\n", at);
        int length = Integer.parseInt(request.substring(at + 1, line));
        words.append(words.length() == 0 ? "" : " ").append(request, line + 2, line + 2 + length);
        at = line + 2 + length + 2;
      }
      return words.toString();
    }
  }

  private static void daemon(Runnable work) {
    Thread thread = new Thread(work, "proxy");
    thread.setDaemon(true);
    thread.start();
  }

  private static void quietly(Socket socket) {
    try {
      socket.close();
    } catch (IOException e) {
      // It is closed anyway.
    }
  }

  @Override
  public void close() {
    try {
      listener.close();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    closeAll();
  }
}
