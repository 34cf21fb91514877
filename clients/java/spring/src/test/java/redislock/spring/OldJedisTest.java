package redislock.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Spring Boot 3 brings a Jedis that is too old for the client. */
final class OldJedisTest {
  @Test
  void anOldJedisIsRefused() throws Exception {
    Path old = Path.of("..", "spring", "target", "jedis-6.jar");
    assertTrue(Files.exists(old), "the build copies it");
    List<URL> urls = new ArrayList<>(List.of(old.toUri().toURL()));
    for (String each : System.getProperty("java.class.path").split(File.pathSeparator)) {
      if (!each.contains("jedis-")) {
        urls.add(Path.of(each).toUri().toURL());
      }
    }
    ClassLoader platform = ClassLoader.getPlatformClassLoader();
    try (URLClassLoader loader = new URLClassLoader(urls.toArray(URL[]::new), platform)) {
      AutoCloseable client =
          (AutoCloseable)
              loader
                  .loadClass("redis.clients.jedis.JedisPooled")
                  .getConstructor(String.class, int.class)
                  .newInstance("127.0.0.1", 1);
      try (client) {
        Throwable refusal =
            assertThrows(
                    InvocationTargetException.class,
                    () ->
                        loader
                            .loadClass("redislock.RedisLocks")
                            .getMethod("over", AutoCloseable.class)
                            .invoke(null, client))
                .getCause();
        assertEquals(IllegalArgumentException.class, refusal.getClass());
        assertTrue(refusal.getMessage().contains("locks need Jedis 7 or later"));
      }
    }
  }
}
