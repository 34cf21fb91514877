package redislock.spring;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
import org.springframework.integration.support.locks.LockRegistry;
import redislock.Hold;
import redislock.RedisLocks;

/** Spring Integration's leader over the registry: what it survives and what it leaves behind. */
final class LeaderTest extends Starter {
  private static final String KEY = "registry:leader";

  @Configuration(proxyBeanMethods = false)
  static class Leading {
    @Bean
    LockRegistryLeaderInitiator leader(LockRegistry registry) {
      return new LockRegistryLeaderInitiator(registry, new DefaultCandidate("one", "leader"));
    }
  }

  @AfterEach
  void reset() {
    server.ask("REPLICAOF", "NO", "ONE");
    server.ask("CONFIG", "SET", "lock.max-waiters", "1000000");
    server.ask("CONFIG", "SET", "maxmemory", "0");
  }

  /** Spring interrupts its thread, and does not wait for it. */
  @Test
  void aLeaderThatStopsLeavesNoLock() {
    for (Class<?> client : List.of(Lettuce.class, Jedis.class, SpringData.class)) {
      for (int round = 0; round < 8; round++) {
        with(client, Leading.class)
            .run(
                context -> {
                  LockRegistryLeaderInitiator leader =
                      context.getBean(LockRegistryLeaderInitiator.class);
                  server.until(() -> leader.getContext().isLeader());
                  assertTrue(server.exists(KEY));
                });
        assertFalse(server.exists(KEY), client.getName());
      }
    }
  }

  /** Its restart, or a checkpoint, replaces the client of the connection factory. */
  @Test
  void aLeaderLeadsAgainAfterARestartOfTheApplication() {
    with(SpringData.class, Leading.class)
        .run(
            context -> {
              LockRegistryLeaderInitiator leader =
                  context.getBean(LockRegistryLeaderInitiator.class);
              server.until(() -> leader.getContext().isLeader());
              context
                  .getSourceApplicationContext(
                      org.springframework.context.ConfigurableApplicationContext.class)
                  .stop();
              server.until(() -> !server.exists(KEY));
              context
                  .getSourceApplicationContext(
                      org.springframework.context.ConfigurableApplicationContext.class)
                  .start();
              server.until(() -> leader.getContext().isLeader());
            });
  }

  @Test
  void aStandbyQueuesAgainAfterARefusal() {
    with(Lettuce.class, Leading.class)
        .run(
            context -> {
              LockRegistryLeaderInitiator leader =
                  context.getBean(LockRegistryLeaderInitiator.class);
              server.until(() -> leader.getContext().isLeader());
              // An operator takes the lock, and the leader becomes a standby.
              server.ask("LOCK.BREAK", KEY);
              try (Hold hold = context.getBean(RedisLocks.class).mutex(KEY).acquire()) {
                server.until(() -> !leader.getContext().isLeader());
                server.untilWaiting(KEY, 1);
                String waiter = waiter();
                server.ask("LOCK.CANCEL", KEY, waiter);
                server.until(() -> !List.of(waiter, "").contains(waiter()));

                server.ask("CONFIG", "SET", "lock.max-waiters", "0");
                server.untilWaiting(KEY, 0);
                server.ask("CONFIG", "SET", "lock.max-waiters", "1000000");
                server.untilWaiting(KEY, 1);

                server.ask("CONFIG", "SET", "maxmemory", "1");
                server.untilWaiting(KEY, 0);
                server.ask("CONFIG", "SET", "maxmemory", "0");
                server.untilWaiting(KEY, 1);
                hold.extend();
              }
              server.until(() -> leader.getContext().isLeader());
            });
  }

  @Test
  void aLeaderWhosePrimaryIsDemotedLeadsAgainLater() {
    with(Lettuce.class, Leading.class)
        .withPropertyValues("redislock.lease=1s")
        .run(
            context -> {
              LockRegistryLeaderInitiator leader =
                  context.getBean(LockRegistryLeaderInitiator.class);
              server.until(() -> leader.getContext().isLeader());
              server.ask("REPLICAOF", "127.0.0.1", "1");
              server.until(() -> !leader.getContext().isLeader());
              server.ask("REPLICAOF", "NO", "ONE");
              server.until(() -> leader.getContext().isLeader());
            });
  }

  /** The waiting one, or empty. */
  private String waiter() {
    List<?> waiters = (List<?>) server.ask("LOCK.WAITERS", KEY);
    if (waiters.isEmpty()) {
      return "";
    }
    List<?> fields = (List<?>) waiters.get(0);
    return fields.get(fields.indexOf("owner") + 1).toString();
  }
}
