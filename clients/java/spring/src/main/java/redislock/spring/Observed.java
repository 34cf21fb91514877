package redislock.spring;

import io.micrometer.observation.Observation;
import io.micrometer.observation.ObservationRegistry;
import org.jspecify.annotations.Nullable;

/** An observation that has begun; without Micrometer, or without a registry, none. */
interface Observed {
  Observed NONE = (error) -> {};

  /**
   * Begins one.
   *
   * @param registry an ObservationRegistry; null: none
   */
  static Observed of(@Nullable Object registry, String kind, String name) {
    return registry == null ? NONE : WithMicrometer.of(registry, kind, name);
  }

  /**
   * Ends it.
   *
   * @param error null: none
   */
  void end(@Nullable Throwable error);

  /** Makes it the current one of this thread, until that is closed. */
  default Scope open() {
    return () -> {};
  }

  /** For as long as it is the current one. */
  interface Scope extends AutoCloseable {
    @Override
    void close();
  }

  /** Apart, because Micrometer may be missing. */
  final class WithMicrometer implements Observed {
    private final Observation observation;

    private WithMicrometer(Observation observation) {
      this.observation = observation;
    }

    static Observed of(Object registry, String kind, String name) {
      return new WithMicrometer(
          Observation.createNotStarted(kind, (ObservationRegistry) registry)
              .highCardinalityKeyValue("redislock.key", name)
              .start());
    }

    @Override
    public void end(@Nullable Throwable error) {
      if (error != null) {
        observation.error(error);
      }
      observation.stop();
    }

    @Override
    public Scope open() {
      return observation.openScope()::close;
    }
  }
}
