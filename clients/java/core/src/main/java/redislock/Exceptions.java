package redislock;

/** Failures of futures as exceptions of a caller. */
final class Exceptions {
  private Exceptions() {}

  static RuntimeException unchecked(Throwable error) {
    return error instanceof RuntimeException unchecked
        ? unchecked
        : new IllegalStateException(error);
  }

  /** Throws an error; returns an exception to throw, with the stack of this caller too. */
  static RuntimeException rethrown(Throwable error) {
    if (error instanceof Error fatal) {
      throw fatal;
    }
    RuntimeException unchecked = unchecked(error);
    unchecked.addSuppressed(new Asked());
    return unchecked;
  }

  /** Where the caller asked. */
  private static final class Asked extends RuntimeException {
    private static final long serialVersionUID = 1;

    Asked() {
      super("asked here");
    }
  }
}
