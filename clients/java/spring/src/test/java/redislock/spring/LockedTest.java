package redislock.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.reactivestreams.Publisher;
import org.springframework.boot.test.context.assertj.AssertableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.Ordered;
import org.springframework.http.ResponseEntity;
import org.springframework.scheduling.annotation.Async;
import org.springframework.scheduling.annotation.EnableAsync;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.web.context.request.async.DeferredResult;
import org.springframework.web.context.request.async.WebAsyncTask;
import org.springframework.web.servlet.mvc.method.annotation.SseEmitter;
import org.springframework.web.servlet.mvc.method.annotation.StreamingResponseBody;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import redislock.LockLostException;
import redislock.NotAcquiredException;
import redislock.RedisLocks;
import redislock.TestServer;

/** How long {@link Locked} holds, what it refuses, and nested calls. */
final class LockedTest extends Starter {
  /** How many callers are inside at the same time. */
  static final class Inside {
    private final AtomicInteger now = new AtomicInteger();
    private final AtomicInteger most = new AtomicInteger();
    final AtomicInteger done = new AtomicInteger();

    void work() {
      most.accumulateAndGet(now.incrementAndGet(), Math::max);
      try {
        Thread.sleep(30);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
      now.decrementAndGet();
      done.incrementAndGet();
    }
  }

  @Configuration(proxyBeanMethods = false)
  static class Application {
    @Bean
    Inside inside() {
      return new Inside();
    }

    @Bean
    Work work(Inside inside) {
      return new Work(inside);
    }
  }

  static class Work {
    private final Inside inside;
    private CompletableFuture<String> pending = new CompletableFuture<>();

    Work(Inside inside) {
      this.inside = inside;
    }

    /** What the next calls return. */
    public CompletableFuture<String> next(CompletableFuture<String> pending) {
      this.pending = pending;
      return pending;
    }

    @Async
    @Locked(name = "k")
    public void async() {
      inside.work();
    }

    @Async
    @Locked(name = "k")
    public CompletableFuture<Integer> asyncFuture() {
      inside.work();
      return CompletableFuture.completedFuture(inside.done.get());
    }

    @Locked(name = "k")
    public CompletableFuture<Integer> future() {
      return CompletableFuture.supplyAsync(
          () -> {
            inside.work();
            return inside.done.get();
          });
    }

    @Locked(name = "k", lease = "3s")
    public CompletionStage<String> stage() {
      return pending;
    }

    @Locked(name = "k")
    public CompletionStage<String> held() {
      return pending;
    }

    @Locked(name = "k")
    public Object anything(Object value) {
      return value;
    }

    @Locked(name = "k", waitFor = "0s")
    public CompletableFuture<String> refuse() {
      return CompletableFuture.completedFuture("");
    }

    @Locked(name = "k")
    public Mono<Integer> mono() {
      return Mono.fromCallable(
              () -> {
                inside.work();
                return inside.done.get();
              })
          .subscribeOn(reactor.core.scheduler.Schedulers.boundedElastic());
    }

    @Locked(name = "k")
    public Flux<Integer> flux(int count) {
      return mono().repeat(count - 1);
    }

    @Locked(name = "k")
    public Publisher<String> publisher(Publisher<String> source) {
      return source;
    }

    @Locked(name = "k", lease = "3s")
    public Mono<String> slow(Mono<String> source) {
      return source;
    }
  }

  private AssertableApplicationContext context;

  private interface Body {
    void run(Work work, Inside inside) throws Exception;
  }

  private void run(Body test, Class<?>... classes) {
    with(Lettuce.class, Application.class)
        .withUserConfiguration(classes)
        .run(
            running -> {
              context = running;
              assertTrue(running.getStartupFailure() == null, "" + running.getStartupFailure());
              test.run(running.getBean(Work.class), running.getBean(Inside.class));
            });
  }

  private RedisLocks locks() {
    return context.getBean(RedisLocks.class);
  }

  private void untilFree() {
    server.until(() -> !server.exists("k"));
  }

  /** The value or the future's own exception. */
  private static Object outcome(Future<?> future) throws Exception {
    try {
      return future.get(20, TimeUnit.SECONDS);
    } catch (java.util.concurrent.ExecutionException e) {
      throw (Exception) e.getCause();
    }
  }

  private static Throwable failure(Future<?> future) {
    return assertThrows(
            java.util.concurrent.ExecutionException.class, () -> future.get(20, TimeUnit.SECONDS))
        .getCause();
  }

  @Configuration(proxyBeanMethods = false)
  @EnableAsync
  static class AsyncLast {}

  /** Its advice is added before the lock's. */
  @Configuration(proxyBeanMethods = false)
  @EnableAsync(order = Ordered.HIGHEST_PRECEDENCE)
  static class AsyncFirst {}

  @Test
  void anAsyncMethodHoldsWhileItWorks() {
    for (Class<?> each : List.of(AsyncLast.class, AsyncFirst.class)) {
      run(
          (work, inside) -> {
            List<Future<Integer>> all = new ArrayList<>();
            for (int call = 0; call < 4; call++) {
              work.async();
              all.add(work.asyncFuture());
            }
            for (Future<Integer> future : all) {
              assertNotNull(future.get(20, TimeUnit.SECONDS));
            }
            server.until(() -> inside.done.get() == 8 && !server.exists("k"));
            assertEquals(1, inside.most.get());
          },
          each);
    }
  }

  /** Two instances that are due at the same time. */
  static class Tick {
    static final Inside INSIDE = new Inside();

    @Async
    @Scheduled(fixedRate = 100)
    @Locked(name = "tick")
    public void tick() {
      INSIDE.work();
    }
  }

  @Configuration(proxyBeanMethods = false)
  @EnableAsync
  @EnableScheduling
  static class Scheduling {
    @Bean
    Tick first() {
      return new Tick();
    }

    @Bean
    Tick second() {
      return new Tick();
    }
  }

  @Test
  void aScheduledAsyncMethodHoldsWhileItWorks() {
    run(
        (work, inside) -> {
          server.until(() -> Tick.INSIDE.done.get() > 5);
          assertEquals(1, Tick.INSIDE.most.get());
        },
        Scheduling.class);
  }

  @Test
  void aFutureHoldsUntilItCompletes() {
    run(
        (work, inside) -> {
          List<CompletableFuture<Integer>> all = new ArrayList<>();
          List<Thread> callers = new ArrayList<>();
          for (int each = 0; each < 4; each++) {
            Thread caller =
                new Thread(
                    () -> {
                      CompletableFuture<Integer> called = work.future();
                      synchronized (all) {
                        all.add(called);
                      }
                    });
            caller.start();
            callers.add(caller);
          }
          for (Thread each : callers) {
            each.join();
          }
          for (Future<Integer> each : all) {
            assertNotNull(each.get(20, TimeUnit.SECONDS));
          }
          assertEquals(1, inside.most.get());
          assertEquals(4, inside.done.get());
        });
  }

  @Test
  void aStageCompletesAfterTheRelease() {
    run(
        (work, inside) -> {
          CompletableFuture<String> pending = work.next(new CompletableFuture<>());
          CompletionStage<String> called = work.stage();
          // Longer than its lease.
          Thread.sleep(4000);
          assertTrue(server.exists("k"));
          assertThrows(NotAcquiredException.class, work::refuse);
          CompletionStage<Boolean> isHeld = called.thenApply(result -> server.exists("k"));
          long began = System.nanoTime();
          pending.complete("done");
          boolean isEarly = isHeld.toCompletableFuture().get(20, TimeUnit.SECONDS);
          // After a second the release continues in the background.
          assertFalse(isEarly && System.nanoTime() - began < 900_000_000L);
          assertEquals("done", called.toCompletableFuture().join());

          work.next(CompletableFuture.failedFuture(new IllegalStateException("mine")));
          assertEquals("mine", failure(work.stage().toCompletableFuture()).getMessage());
          untilFree();

          assertLost(
              () -> {
                CompletableFuture<String> ends = work.next(new CompletableFuture<>());
                CompletionStage<String> lost = work.stage();
                server.ask("LOCK.BREAK", "k");
                ends.complete("done");
                return outcome(lost.toCompletableFuture());
              });

          pending = work.next(new CompletableFuture<>());
          CompletableFuture<String> cancelled = work.stage().toCompletableFuture();
          assertTrue(cancelled.cancel(true));
          // The work does not notice the cancellation.
          assertTrue(server.exists("k"));
          pending.complete("done");
          server.until(() -> !server.exists("k"));
        });
  }

  @Test
  void forAMethodThatReturnsObjectTheResultDecides() {
    run(
        (work, inside) -> {
          CompletableFuture<String> pending = new CompletableFuture<>();
          Object called = work.anything(pending);
          assertTrue(server.exists("k"));
          pending.complete("done");
          assertEquals("done", ((CompletionStage<?>) called).toCompletableFuture().get());
          untilFree();
          assertEquals("text", work.anything("text"));
          Callable<String> later = () -> "";
          String message =
              assertThrows(IllegalStateException.class, () -> work.anything(later)).getMessage();
          assertTrue(message.contains("whose work continues without the lock"), message);
          untilFree();
        });
  }

  @Test
  void aPublisherHoldsFromItsSubscriptionToItsEnd() {
    run(
        (work, inside) -> {
          Mono<Integer> mono = work.mono();
          assertFalse(server.exists("k"));
          List<Integer> all =
              Flux.merge(mono, mono, work.flux(3), Flux.from(work.mono()))
                  .collectList()
                  .block(Duration.ofSeconds(20));
          assertEquals(6, all.size());
          assertEquals(6, inside.done.get());
          assertEquals(1, inside.most.get());
          untilFree();

          Mono<String> failing = work.slow(Mono.error(new IllegalStateException("mine")));
          assertEquals(
              "mine", assertThrows(IllegalStateException.class, failing::block).getMessage());
          untilFree();
          assertEquals(
              List.of("a"), Flux.from(work.publisher(Mono.just("a"))).collectList().block());
          untilFree();
        });
  }

  @Test
  void aPublisherThatIsCancelledLeavesNothing() {
    run(
        (work, inside) -> {
          Disposable working = work.slow(Mono.never()).subscribe();
          server.until(() -> server.exists("k"));
          // Longer than its lease.
          Thread.sleep(4000);
          assertTrue(server.exists("k"));
          Disposable waiting = work.slow(Mono.never()).subscribe();
          server.untilWaiting("k", 1);
          waiting.dispose();
          server.untilWaiting("k", 0);
          working.dispose();
          server.until(() -> !server.exists("k"));
        });
  }

  /** A cancellation may coincide with the grant. */
  @Test
  void manyCancelledSubscriptionsLeaveNothing() {
    run(
        (work, inside) -> {
          for (int each = 0; each < 300; each++) {
            Disposable one = work.slow(Mono.never()).subscribe();
            TimeUnit.MICROSECONDS.sleep(20 * (each % 100));
            one.dispose();
          }
          server.until(() -> !server.exists("k"));
          // A hold that is left behind would be renewed beyond its lease.
          Thread.sleep(4000);
          assertFalse(server.exists("k"));
        });
  }

  @Test
  void aPublisherWhoseLockIsLostFails() {
    run(
        (work, inside) -> {
          assertLost(
              () -> {
                CompletableFuture<String> pending = new CompletableFuture<>();
                CompletableFuture<String> called = work.slow(Mono.fromFuture(pending)).toFuture();
                server.until(() -> server.exists("k"));
                server.ask("LOCK.BREAK", "k");
                pending.complete("done");
                return outcome(called);
              });
        });
  }

  /** Methods that call each other, under one name. */
  interface Inner {
    @Locked(name = "k", waitFor = "0s")
    String ofInterface();
  }

  static class InnerWork implements Inner {
    private CompletableFuture<String> pending = new CompletableFuture<>();

    /** What the next calls return. */
    public CompletableFuture<String> next(CompletableFuture<String> pending) {
      this.pending = pending;
      return pending;
    }

    @Override
    public String ofInterface() {
      return "inner";
    }

    @Locked(name = "k", waitFor = "0s")
    public CompletableFuture<String> future() {
      return pending;
    }

    @Locked(name = "k", waitFor = "0s")
    public Mono<String> mono() {
      return Mono.just("mono");
    }
  }

  static class Outer {
    private final Inner inner;
    private final InnerWork work;
    private final TestServer server;

    Outer(Inner inner, InnerWork work, TestServer server) {
      this.inner = inner;
      this.work = work;
      this.server = server;
    }

    @Locked(name = "k")
    public String nested() {
      assertEquals("inner", inner.ofInterface());
      assertTrue(server.exists("k"));
      return inner.ofInterface() + work.mono().block();
    }

    @Locked(name = "k")
    public CompletableFuture<String> begins() {
      return work.future();
    }

    /** Continues after this call. */
    @Locked(name = "k")
    public void drops(AtomicReference<CompletableFuture<String>> called) {
      called.set(work.future());
    }

    @Locked(name = "k", lease = "3s")
    public void nestedAfterTheLoss(AtomicReference<Throwable> error) {
      server.ask("LOCK.BREAK", "k");
      // The next renewal detects it.
      server.until(
          () -> {
            try {
              inner.ofInterface();
              return false;
            } catch (LockLostException e) {
              error.set(e);
              return true;
            }
          });
    }

    @Locked(name = "k")
    public Mono<String> reactive() {
      return Mono.delay(Duration.ofMillis(10))
          .then(work.mono())
          .flatMap(result -> Mono.just(result + server.exists("k")));
    }
  }

  @Configuration(proxyBeanMethods = false)
  static class Nesting {
    @Bean
    InnerWork inner() {
      return new InnerWork();
    }

    @Bean
    Outer outer(Inner inner, InnerWork work, Redis redis) {
      return new Outer(inner, work, redis.server());
    }
  }

  @Test
  void aNestedCallRunsUnderTheLockOfTheOuterOne() {
    run(
        (work, inside) -> {
          Outer outer = context.getBean(Outer.class);
          assertEquals("innermono", outer.nested());
          untilFree();
          assertEquals("monotrue", outer.reactive().block(Duration.ofSeconds(20)));
          server.until(() -> !server.exists("k"));

          InnerWork inner = context.getBean(InnerWork.class);
          CompletableFuture<String> pending = inner.next(new CompletableFuture<>());
          CompletableFuture<String> both = outer.begins();
          assertTrue(server.exists("k"));
          pending.complete("done");
          assertEquals("done", both.get(20, TimeUnit.SECONDS));
          untilFree();

          pending = inner.next(new CompletableFuture<>());
          AtomicReference<CompletableFuture<String>> goingOn = new AtomicReference<>();
          outer.drops(goingOn);
          assertTrue(server.exists("k"));
          pending.complete("done");
          assertEquals("done", goingOn.get().get(20, TimeUnit.SECONDS));
          untilFree();
        },
        Nesting.class);
  }

  @Test
  void aNestedCallUnderALockThatIsLostIsRefused() {
    run(
        (work, inside) -> {
          AtomicReference<Throwable> error = new AtomicReference<>();
          assertThrows(
              LockLostException.class,
              () -> context.getBean(Outer.class).nestedAfterTheLoss(error));
          assertInstanceOf(LockLostException.class, error.get());
        },
        Nesting.class);
  }

  /** Only the interface's method has the annotation, and the proxy is a subclass. */
  @Test
  void aMethodOfAnInterfaceIsLocked() {
    run(
        (work, inside) -> {
          try (var hold = locks().mutex("k").acquire()) {
            assertThrows(
                NotAcquiredException.class, () -> context.getBean(InnerWork.class).ofInterface());
            hold.extend();
          }
        },
        Nesting.class);
  }

  @Test
  void theLocksAreClosedAfterTheCallsThatAreUnderWay() throws Exception {
    CompletableFuture<String> called = new CompletableFuture<>();
    run(
        (work, inside) -> {
          CompletableFuture<String> pending = work.next(new CompletableFuture<>());
          work.held().whenComplete((result, error) -> called.complete(result));
          CompletableFuture.delayedExecutor(500, TimeUnit.MILLISECONDS)
              .execute(() -> pending.complete("done"));
        });
    assertEquals("done", called.get(20, TimeUnit.SECONDS));
    assertFalse(server.exists("k"));
  }

  static class Refused {
    static class OfFuture {
      @Locked(name = "k")
      public Future<String> called() {
        return new FutureTask<>(() -> "");
      }
    }

    static class OfScheduledFuture {
      @Locked(name = "k")
      public ScheduledFuture<String> called() {
        return null;
      }
    }

    static class OfCallable {
      @Locked(name = "k")
      public Callable<String> called() {
        return () -> "";
      }
    }

    static class OfDeferredResult {
      @Locked(name = "k")
      public DeferredResult<String> called() {
        return new DeferredResult<>();
      }
    }

    static class OfWebAsyncTask {
      @Locked(name = "k")
      public WebAsyncTask<String> called() {
        return new WebAsyncTask<>(() -> "");
      }
    }

    static class OfEmitter {
      @Locked(name = "k")
      public SseEmitter called() {
        return new SseEmitter();
      }
    }

    static class OfBody {
      @Locked(name = "k")
      public ResponseEntity<StreamingResponseBody> called() {
        return ResponseEntity.ok(out -> {});
      }
    }

    static class OfFlowPublisher {
      @Locked(name = "k")
      public Flow.Publisher<String> called() {
        return null;
      }
    }

    static class OfRxJava {
      @Locked(name = "k")
      public io.reactivex.rxjava3.core.Single<String> called() {
        return io.reactivex.rxjava3.core.Single.just("");
      }
    }

    static class OfStream {
      @Locked(name = "k")
      public Stream<String> called() {
        return Stream.of();
      }
    }

    static class OfIterator {
      @Locked(name = "k")
      public Iterator<String> called() {
        return null;
      }
    }

    static class OfFutures {
      @Locked(name = "k")
      public List<CompletableFuture<String>> called() {
        return List.of();
      }
    }

    static class OfAMonoOfAFlux {
      @Locked(name = "k")
      public Mono<ResponseEntity<Flux<String>>> called() {
        return Mono.empty();
      }
    }

    /** As Kotlin compiles {@code suspend fun called(): String}. */
    static class OfSuspension {
      @Locked(name = "k")
      public Object called(kotlin.coroutines.Continuation<? super String> continuation) {
        return "";
      }
    }

    static class Private {
      @Locked(name = "k")
      private void called() {}
    }

    static class Static {
      @Locked(name = "k")
      public static void called() {}
    }

    static class Final {
      @Locked(name = "k")
      public final void called() {}
    }

    static class OfAWrongTime {
      @Locked(name = "k", waitFor = "soon")
      public void called() {}
    }

    static class OfNoLease {
      @Locked(name = "k", lease = "0s")
      public void called() {}
    }

    static class OfAWrongName {
      @Locked(name = "k:#{#id")
      public void called(int id) {}
    }
  }

  /** Work that continues would exclude nothing, and nothing would show it. */
  @Test
  void whatCannotBeLockedDoesNotStart() {
    for (Class<?> each : Refused.class.getDeclaredClasses()) {
      with(Lettuce.class, each)
          .run(
              running -> {
                assertNotNull(running.getStartupFailure(), each.getName());
                Throwable cause = running.getStartupFailure();
                while (cause.getCause() != null) {
                  cause = cause.getCause();
                }
                String message = "" + cause.getMessage();
                assertTrue(
                    message.startsWith("@Locked on " + each.getName() + ".called: "), message);
              });
    }
  }

  static class Allowed {
    @Locked(name = "k")
    public List<String> list() {
      return List.of();
    }

    @Locked(name = "k")
    public <T extends Comparable<T>> T bound(T value) {
      return value;
    }

    @Locked(name = "k:#{#name}", waitFor = "PT5S", lease = "1m")
    public java.util.Map<String, List<Integer>> map(String name) {
      return java.util.Map.of();
    }
  }

  @Test
  void methodsThatEndWithTheirReturnStart() {
    run(
        (work, inside) -> {
          Allowed allowed = context.getBean(Allowed.class);
          assertEquals(List.of(), allowed.list());
          assertSame("a", allowed.bound("a"));
          assertEquals(java.util.Map.of(), allowed.map("a"));
        },
        Allowed.class);
  }

  @Test
  void withoutLocksAnApplicationDoesNotStart() {
    with(Allowed.class)
        .run(
            running -> {
              String message = "" + running.getStartupFailure();
              assertTrue(message.contains("@Locked needs a RedisLocks bean"), message);
            });
    with().run(running -> assertNull(running.getStartupFailure()));
  }
}
