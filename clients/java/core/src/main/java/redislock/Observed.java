package redislock;

import java.lang.System.Logger.Level;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * Tells the events of one client's locks to its observer and to the debug log ({@code redislock}).
 */
final class Observed {
  static final System.Logger LOG = System.getLogger("redislock");

  private final @Nullable LockObserver observer;

  Observed(@Nullable LockObserver observer) {
    this.observer = observer;
  }

  boolean isOn() {
    return observer != null || LOG.isLoggable(Level.DEBUG);
  }

  void tell(
      LockEvent.Type type,
      Family family,
      byte[] owner,
      long fence,
      long ms,
      @Nullable Throwable error) {
    if (!isOn()) {
      return;
    }
    LockEvent event =
        new LockEvent(
            type,
            family.kind,
            family.keys.stream().map(Words::text).toList(),
            Words.text(owner),
            fence,
            Duration.ofMillis(ms),
            error);
    LOG.log(Level.DEBUG, event::toString);
    if (observer != null) {
      try {
        observer.on(event);
      } catch (RuntimeException e) {
        LOG.log(Level.WARNING, "an observer has thrown", e);
      }
    }
  }
}
