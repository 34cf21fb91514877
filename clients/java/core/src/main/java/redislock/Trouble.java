package redislock;

import java.net.SocketTimeoutException;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * Why a request has no result. Carries the Redis library's exception through the protocol; callers
 * never see it.
 */
final class Trouble extends Exception {
  private static final long serialVersionUID = 1;

  /**
   * Where the request ended.
   *
   * <ul>
   *   <li>REFUSED: the server replied with an error.
   *   <li>UNSENT: there was no connection; nothing was sent.
   *   <li>UNANSWERED: it was sent, and the server may have executed it.
   *   <li>CLOSED: the application closed the client; a retry is useless.
   * </ul>
   */
  enum Stage {
    REFUSED,
    UNSENT,
    UNANSWERED,
    CLOSED
  }

  private static final Set<String> HEALING =
      Set.of(
          ("NOREPLICAS MISCONF GRACE BUSY MASTERDOWN CLUSTERDOWN TRYAGAIN READONLY LOADING MOVED"
                  + " ASK")
              .split(" "));

  private static final Set<String> DENIED = Set.of("WRONGPASS", "NOAUTH", "NOPERM");

  // Redis's message when the server became a replica.
  private static final String DEMOTED = "instance state changed";
  private static final String FULL = "max number of clients reached";
  // LOCK.EXEC reports an unknown inner command in the same way, which says nothing about the
  // module.
  private static final Pattern UNKNOWN =
      Pattern.compile("unknown command .?(R?LOCK|RWLOCK|SEM|MLOCK)\\.", Pattern.CASE_INSENSITIVE);

  // The error for a lease above lock.max-lease.
  private static final String TOO_LONG = "ERR invalid expire time in '";

  private static final String NOT_LOADED =
      "this server has no redis-lock module: put `loadmodule /path/to/libredis_lock.so` into"
          + " redis.conf and restart it, or send MODULE LOAD /path/to/libredis_lock.so where"
          + " enable-module-command allows it";

  private static final Map<String, BiFunction<String, String, LockException>> OURS =
      Map.of(
          "DEADLOCK", DeadlockException::new,
          "WRONGTYPE", WrongTypeException::new,
          "WRONGKIND", WrongKindException::new,
          "MAXWAITERS", MaxWaitersException::new,
          "UNBLOCKED", WaitCancelledException::new);

  private static final Map<String, String> METHODS =
      Map.of(
          "LOCK", "locks.mutex",
          "RLOCK", "locks.reentrant",
          "RWLOCK", "locks.readWrite",
          "SEM", "locks.semaphore");

  final transient Stage stage;
  final RuntimeException error;

  Trouble(RuntimeException error, Stage stage) {
    super(error.getMessage(), null, false, false);
    this.error = error;
    this.stage = stage;
  }

  /** The first word of an error reply; for other failures the empty string. */
  String code() {
    boolean isReply = stage == Stage.REFUSED && getMessage() != null;
    return isReply ? getMessage().split(" ", 2)[0] : "";
  }

  /**
   * The refusal because of which connecting failed: a wrong user or password, a missing permission,
   * or another error that no retry resolves. It may be deep in the chain of causes or, if a client
   * tried multiple nodes, among the suppressed exceptions.
   *
   * @param reply the type of the library's exceptions for error replies
   * @param refused creates one with this message and cause
   * @return null: there is none
   */
  static @Nullable Trouble refusal(
      Throwable error,
      Class<? extends RuntimeException> reply,
      BiFunction<String, Throwable, RuntimeException> refused) {
    if (reply.isInstance(error)) {
      return new Trouble((RuntimeException) error, Stage.REFUSED);
    }
    Set<Throwable> chain = Collections.newSetFromMap(new IdentityHashMap<>());
    for (Throwable each = error; each != null && chain.add(each); each = each.getCause()) {
      if (reply.isInstance(each) && each.getMessage() != null) {
        Trouble found = new Trouble(refused.apply(each.getMessage(), error), Stage.REFUSED);
        if (!found.heals()) {
          return found;
        }
      }
    }
    Set<Throwable> all = Collections.newSetFromMap(new IdentityHashMap<>());
    collect(error, all);
    return all.stream()
        .filter(each -> reply.isInstance(each) && each.getMessage() != null)
        .map(each -> new Trouble(refused.apply(each.getMessage(), error), Stage.REFUSED))
        .filter(each -> DENIED.contains(each.code()))
        .findFirst()
        .orElse(null);
  }

  private static void collect(@Nullable Throwable error, Set<Throwable> all) {
    if (error != null && all.add(error)) {
      collect(error.getCause(), all);
      for (Throwable each : error.getSuppressed()) {
        collect(each, all);
      }
    }
  }

  /** True if the request belongs to another node, or to this one a moment later. */
  boolean isRedirection() {
    return code().equals("ASK") || code().equals("MOVED") || code().equals("TRYAGAIN");
  }

  boolean mayHaveRun() {
    return stage == Stage.UNANSWERED;
  }

  /** True if nothing came in time, which says less than any other failure. */
  boolean isTimeout() {
    for (Throwable each = error; each != null; each = each.getCause()) {
      if (each instanceof SocketTimeoutException) {
        return true;
      }
    }
    return stage != Stage.REFUSED && getMessage() != null && getMessage().endsWith(" in time");
  }

  /** True if the same request may succeed in a moment: on another connection, node or primary. */
  boolean heals() {
    if (stage != Stage.REFUSED) {
      return stage != Stage.CLOSED;
    }
    return HEALING.contains(code())
        || code().equals("UNBLOCKED") && getMessage().contains(DEMOTED)
        || code().equals("ERR") && getMessage().contains(FULL);
  }

  /** True if the connection must not be used again: it is broken, or leads to a replica. */
  boolean endsConnection() {
    return stage != Stage.REFUSED
        || code().equals("READONLY")
        || code().equals("MASTERDOWN")
        || code().equals("UNBLOCKED") && getMessage().contains(DEMOTED);
  }

  /** The failure of a whole packet, or of its connection; null if there is none. */
  static @Nullable Trouble of(List<?> replies) {
    for (Object each : replies) {
      if (each instanceof Trouble trouble && (each == replies.get(0) || trouble.endsConnection())) {
        return trouble;
      }
    }
    return null;
  }

  /**
   * The node for the next packet of this request, after ASKING, because its key has already moved
   * there with its slot; null: the slot's node. It says nothing about other keys of the slot.
   */
  @Nullable String asked() {
    return code().equals("ASK") ? getMessage().split(" ")[2] : null;
  }

  /** True if the reply to a release, renewal or LOCK.EXEC means that the lock is no longer ours. */
  boolean meansLost() {
    return code().equals("WRONGTYPE") || code().equals("WRONGKIND") || code().equals("NOTHELD");
  }

  boolean isNotLoaded() {
    return stage == Stage.REFUSED && UNKNOWN.matcher(getMessage()).find();
  }

  /** The exception for a redirection, which a client for a single server cannot follow. */
  RuntimeException noCluster(String lock) {
    String message = "the server is a node of a cluster: use a RedisClusterClient";
    return caused(new LockException(message, lock));
  }

  /** The exception that the caller sees. */
  RuntimeException translated(String lock) {
    if (isNotLoaded()) {
      return caused(new ModuleNotLoadedException(NOT_LOADED, lock));
    }
    if (code().equals("ERR") && getMessage().startsWith(TOO_LONG)) {
      return new IllegalArgumentException(getMessage().substring("ERR ".length()), error);
    }
    if (isRedirection()) {
      String message = "the slot of the key \"" + lock + "\" is moving to another node";
      return caused(new LockException(message, lock));
    }
    BiFunction<String, String, LockException> ours = OURS.get(code());
    return ours == null ? error : caused(ours.apply(inWordsOfJava(), lock));
  }

  /**
   * The exception for a command in LOCK.EXEC. Its errors are not errors of the lock, whatever their
   * code, except those after which it did not run.
   */
  RuntimeException ownError(String lock) {
    return isNotLoaded() || isRedirection() ? translated(lock) : error;
  }

  /** The message without its code, with the names that callers know. */
  private String inWordsOfJava() {
    String message = getMessage().substring(code().length()).strip();
    if (code().equals("WRONGKIND")) {
      for (Map.Entry<String, String> each : METHODS.entrySet()) {
        message =
            message.replace("use the " + each.getKey() + ". commands", "use " + each.getValue());
      }
    }
    return message;
  }

  private RuntimeException caused(LockException ours) {
    return (LockException) ours.initCause(error);
  }
}
