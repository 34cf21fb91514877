package redislock.spring;

import io.micrometer.observation.Observation;
import io.micrometer.observation.ObservationRegistry;
import org.jspecify.annotations.Nullable;

/** A started observation; a no-op without Micrometer or without a registry. */
interface Observed {
  Observed NONE = (error) -> {};

  /**
   * Starts an observation.
   *
   * @param registry an ObservationRegistry; null if there is none
   */
  static Observed of(@Nullable Object registry, String kind, String name) {
    return registry == null ? NONE : WithMicrometer.of(registry, kind, name);
  }

  /**
   * Stops the observation.
   *
   * @param error the error; null if there is none
   */
  void end(@Nullable Throwable error);

  /** Makes it the current observation of this thread until the scope is closed. */
  default Scope open() {
    return () -> {};
  }

  /** The scope in which it is current. */
  interface Scope extends AutoCloseable {
    @Override
    void close();
  }

  /** A separate class, because Micrometer may be missing. */
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
