package redislock.spring;

import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Timer;
import java.util.Locale;
import redislock.LockEvent;
import redislock.LockObserver;

/**
 * Records the events of locks as meters: the timers {@code redislock.wait.duration} (with {@code
 * granted}) and {@code redislock.hold.duration} (with {@code lost}), and the counter {@code
 * redislock.renewals}.
 */
public final class RedisLockMetrics implements LockObserver {
  private final MeterRegistry meters;

  /**
   * Creates an observer that records to a registry.
   *
   * @param meters the meter registry
   */
  public RedisLockMetrics(MeterRegistry meters) {
    this.meters = meters;
  }

  @Override
  public void on(LockEvent event) {
    String kind = event.kind().name().toLowerCase(Locale.ROOT);
    switch (event.type()) {
      case GRANTED, NOT_GRANTED ->
          Timer.builder("redislock.wait.duration")
              .tag("kind", kind)
              .tag("granted", Boolean.toString(event.type() == LockEvent.Type.GRANTED))
              .register(meters)
              .record(event.duration());
      case RELEASED, LOST ->
          Timer.builder("redislock.hold.duration")
              .tag("kind", kind)
              .tag("lost", Boolean.toString(event.type() == LockEvent.Type.LOST))
              .register(meters)
              .record(event.duration());
      case RENEWED ->
          Counter.builder("redislock.renewals").tag("kind", kind).register(meters).increment();
      case QUEUED -> {}
    }
  }
}
