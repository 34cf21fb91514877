package redislock.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.ReadFrom;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.autoconfigure.ssl.SslAutoConfiguration;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.connection.RedisSocketConfiguration;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.RedisStaticMasterReplicaConfiguration;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettuceClientConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import redislock.Hold;
import redislock.RedisLocks;
import redislock.TestServer;

/** Each way in which Spring Data connects: locks work, or the application refuses to start. */
final class ConnectionsTest extends Starter {
  /** With the settings of spring.data.redis in Boot 3 or Boot 4. */
  private ApplicationContextRunner configured(String... properties) {
    Class<?> redis = null;
    for (String each :
        List.of(
            "org.springframework.boot.autoconfigure.data.redis.RedisAutoConfiguration",
            "org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration")) {
      try {
        redis = Class.forName(each);
      } catch (ClassNotFoundException e) {
        // The other one.
      }
    }
    assertNotNull(redis);
    return with()
        .withConfiguration(AutoConfigurations.of(redis, SslAutoConfiguration.class))
        .withPropertyValues(properties);
  }

  /** Uncontended, with a wait, and with a separate connection. */
  private static void works(ApplicationContextRunner runner, TestServer server) {
    runner.run(
        context -> {
          assertNull(context.getStartupFailure());
          RedisLocks locks = context.getBean(RedisLocks.class);
          Hold hold = locks.mutex("k").acquire();
          assertTrue(server.exists("k"));
          var waiting = locks.mutex("k").acquireAsync(Duration.ofSeconds(20));
          server.untilWaiting("k", 1);
          hold.release();
          waiting.get().release();
          locks.mutex("k").session().acquire().release();
          assertFalse(server.exists("k"));
        });
  }

  private static void refuses(ApplicationContextRunner runner, String sentence) {
    runner.run(
        context -> {
          Throwable cause = context.getStartupFailure();
          assertNotNull(cause);
          while (cause.getCause() != null) {
            cause = cause.getCause();
          }
          assertTrue(("" + cause.getMessage()).contains(sentence), cause.getMessage());
        });
  }

  @Test
  void aServer() {
    works(configured("spring.data.redis.port=" + server.port()), server);
  }

  @Test
  void anAddressWithAUserAndADatabase() {
    server.ask("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all");
    configured("spring.data.redis.url=redis://app:secret@127.0.0.1:" + server.port() + "/3")
        .run(
            context -> {
              try (Hold hold = context.getBean(RedisLocks.class).mutex("k").acquire()) {
                assertFalse(server.exists("k"));
                List<?> owners = (List<?>) server.ask("LOCK.TOP");
                assertNotNull(owners);
                assertTrue(server.ask("CLIENT", "LIST").toString().contains("user=app"));
                server.ask("SELECT", 3);
                assertTrue(server.exists("k"));
                server.ask("SELECT", 0);
                hold.extend();
              }
            });
  }

  @Configuration(proxyBeanMethods = false)
  static class Socket {
    @Bean
    LettuceConnectionFactory connections(@Value("${test.socket}") String path) {
      return new LettuceConnectionFactory(new RedisSocketConfiguration(path));
    }
  }

  @Test
  void aUnixSocket(@TempDir Path folder) {
    Assumptions.assumeTrue(io.netty.channel.epoll.Epoll.isAvailable());
    Path path = folder.resolve("redis");
    try (TestServer listening = new TestServer("unixsocket " + path)) {
      works(with(Socket.class).withPropertyValues("test.socket=" + path), listening);
    }
  }

  @Test
  void sentinels(@TempDir Path folder) throws Exception {
    int port = freePort();
    Path file = folder.resolve("sentinel.conf");
    Files.writeString(
        file,
        "port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor main 127.0.0.1 %d 1\n"
            .formatted(port, folder, server.port()));
    String program = System.getenv().getOrDefault("REDIS_SERVER", "redis-server");
    Process sentinel =
        new ProcessBuilder(program, file.toString(), "--sentinel")
            .redirectErrorStream(true)
            .redirectOutput(folder.resolve("log").toFile())
            .start();
    try {
      server.until(() -> accepts(port));
      works(
          configured(
              "spring.data.redis.sentinel.master=main",
              "spring.data.redis.sentinel.nodes=127.0.0.1:" + port),
          server);
    } finally {
      sentinel.destroyForcibly();
      sentinel.onExit().join();
    }
  }

  @Test
  void aCluster() {
    try (TestServer node = new TestServer("cluster-enabled yes")) {
      node.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383);
      node.until(() -> node.ask("CLUSTER", "INFO").toString().contains("cluster_state:ok"));
      works(configured("spring.data.redis.cluster.nodes=127.0.0.1:" + node.port()), node);
    }
  }

  @Test
  void tlsWithABundle(@TempDir Path folder) throws Exception {
    String certificate = folder.resolve("cert.pem").toString();
    String key = folder.resolve("key.pem").toString();
    List<String> openssl = new ArrayList<>(List.of("openssl", "req", "-x509", "-newkey", "ec"));
    openssl.addAll(List.of("-pkeyopt", "ec_paramgen_curve:prime256v1"));
    openssl.addAll(
        List.of("-nodes", "-keyout", key, "-out", certificate, "-subj", "/CN=localhost"));
    openssl.addAll(List.of("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"));
    try {
      assertEquals(0, new ProcessBuilder(openssl).start().waitFor());
    } catch (IOException e) {
      Assumptions.abort("there is no openssl");
    }
    int port = freePort();
    String[] settings = {
      "tls-port " + port,
      "tls-cert-file " + certificate,
      "tls-key-file " + key,
      "tls-ca-cert-file " + certificate,
      "tls-auth-clients no"
    };
    try (TestServer secured = new TestServer(settings)) {
      works(
          configured(
              "spring.data.redis.port=" + port,
              "spring.data.redis.ssl.enabled=true",
              "spring.data.redis.ssl.bundle=locks",
              "spring.ssl.bundle.pem.locks.truststore.certificate=file:" + certificate),
          secured);
    }
  }

  /** Reads go to replicas, locks do not. */
  @Configuration(proxyBeanMethods = false)
  static class ReadsFromReplicas {
    @Bean
    LettuceConnectionFactory connections(@Value("${test.port}") int port) {
      return new LettuceConnectionFactory(
          new RedisStandaloneConfiguration("127.0.0.1", port),
          LettuceClientConfiguration.builder().readFrom(ReadFrom.REPLICA_PREFERRED).build());
    }
  }

  @Test
  void aPreferenceForReplicas() {
    works(with(ReadsFromReplicas.class), server);
  }

  @Configuration(proxyBeanMethods = false)
  static class PrimaryAndReplica {
    @Bean
    LettuceConnectionFactory connections(@Value("${test.port}") int port) {
      var nodes = new RedisStaticMasterReplicaConfiguration("127.0.0.1", port);
      nodes.addNode("127.0.0.1", port + 1);
      var connections =
          new LettuceConnectionFactory(nodes, LettuceClientConfiguration.defaultConfiguration());
      // When the application starts, and not before its other beans are created.
      connections.setEarlyStartup(false);
      return connections;
    }
  }

  @Test
  void aStaticPrimaryWithReplicasIsRefused() {
    refuses(with(PrimaryAndReplica.class), "a static master/replica configuration");
    with(PrimaryAndReplica.class, Own.class)
        .run(context -> context.getBean(RedisLocks.class).mutex("k").acquire().release());
  }

  /** The text of the error. */
  @Configuration(proxyBeanMethods = false)
  static class Own extends Lettuce {}

  @Configuration(proxyBeanMethods = false)
  static class JedisOfSpringData {
    @Bean
    JedisConnectionFactory connections(@Value("${test.port}") int port) {
      return new JedisConnectionFactory(new RedisStandaloneConfiguration("127.0.0.1", port));
    }
  }

  @Test
  void connectionsOfJedisAreRefused() {
    refuses(with(JedisOfSpringData.class), "define a bean of redis.clients.jedis.RedisClient");
    works(with(JedisOfSpringData.class, Jedis.class), server);
  }

  @Configuration(proxyBeanMethods = false)
  static class Two {
    @Bean
    LettuceConnectionFactory one(@Value("${test.port}") int port) {
      return new LettuceConnectionFactory("127.0.0.1", port);
    }

    @Bean
    LettuceConnectionFactory other(@Value("${test.port}") int port) {
      return new LettuceConnectionFactory("127.0.0.1", port);
    }
  }

  @Test
  void twoFactoriesOfWhichNoneIsPrimaryAreRefused() {
    refuses(with(Two.class), "expected single matching bean but found 2: one,other");
  }

  private static int freePort() throws IOException {
    try (var listening = new java.net.ServerSocket(0)) {
      return listening.getLocalPort();
    }
  }

  private static boolean accepts(int port) {
    try (var connecting = new java.net.Socket("127.0.0.1", port)) {
      return connecting.isConnected();
    } catch (IOException e) {
      return false;
    }
  }
}
