package redislock;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * Why a request has no result; carries the Redis library's exception through the protocol. A caller
 * never sees it.
 */
final class Trouble extends Exception {
  private static final long serialVersionUID = 1;

  /**
   * Where the request ended.
   *
   * <ul>
   *   <li>REFUSED: the server answered with an error.
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

  // Redis's words when the server became a replica.
  private static final String DEMOTED = "instance state changed";
  private static final String FULL = "max number of clients reached";
  // Inside of LOCK.EXEC, an unknown command says nothing about the module.
  private static final Pattern UNKNOWN =
      Pattern.compile("unknown command .?(R?LOCK|RWLOCK|SEM|MLOCK)\\.", Pattern.CASE_INSENSITIVE);

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

  final transient Stage stage;
  final RuntimeException error;

  Trouble(RuntimeException error, Stage stage) {
    super(error.getMessage(), null, false, false);
    this.error = error;
    this.stage = stage;
  }

  /** The first word of an error reply; of other failures the empty string. */
  String code() {
    boolean isReply = stage == Stage.REFUSED && getMessage() != null;
    return isReply ? getMessage().split(" ", 2)[0] : "";
  }

  boolean mayHaveRun() {
    return stage == Stage.UNANSWERED;
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

  /** The failure of a whole packet, or of its connection; null: there is none. */
  static @Nullable Trouble of(List<?> replies) {
    for (Object each : replies) {
      if (each instanceof Trouble trouble && (each == replies.get(0) || trouble.endsConnection())) {
        return trouble;
      }
    }
    return null;
  }

  /**
   * Where the next packet of this request goes, behind ASKING: its key is there already, while the
   * slot is being moved; null: to the slot's node. It says nothing of other keys of the slot.
   */
  @Nullable String asked() {
    return code().equals("ASK") ? getMessage().split(" ")[2] : null;
  }

  /** True if the reply to a release, renewal or LOCK.EXEC says that the lock is no longer ours. */
  boolean meansLost() {
    return code().equals("WRONGTYPE") || code().equals("WRONGKIND") || code().equals("NOTHELD");
  }

  boolean isNotLoaded() {
    return stage == Stage.REFUSED && UNKNOWN.matcher(getMessage()).find();
  }

  /** The exception that the caller sees. */
  RuntimeException translated(String lock) {
    if (isNotLoaded()) {
      return caused(new ModuleNotLoadedException(NOT_LOADED, lock));
    }
    BiFunction<String, String, LockException> ours = OURS.get(code());
    return ours == null
        ? error
        : caused(ours.apply(getMessage().substring(code().length()).strip(), lock));
  }

  /** That of a command in LOCK.EXEC: its errors are not errors of the lock, whatever their code. */
  RuntimeException ownError(String lock) {
    return isNotLoaded() ? translated(lock) : error;
  }

  private RuntimeException caused(LockException ours) {
    return (LockException) ours.initCause(error);
  }
}
