package redislock;

/** Thrown if the server has not loaded the module. The message says how to load it. */
public class ModuleNotLoadedException extends LockException {
  private static final long serialVersionUID = 1;

  ModuleNotLoadedException(String message, String lock) {
    super(message, lock);
  }
}
