package redislock;

/** The server does not know the lock commands. The message says how to load the module. */
public class ModuleNotLoadedException extends LockException {
  private static final long serialVersionUID = 1;

  ModuleNotLoadedException(String message, String lock) {
    super(message, lock);
  }
}
