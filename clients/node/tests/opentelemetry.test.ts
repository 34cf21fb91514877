/** The adapter to OpenTelemetry, with its real SDK. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { it } from "node:test";

import { context, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
  type Histogram,
} from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { Lock, observe, RLock } from "redis-lock-client";
import { openTelemetry } from "redis-lock-client/opentelemetry";
import { eventually } from "./servers.js";
import { suite } from "./world.js";

context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());

suite("OpenTelemetry", (each) => {
  each("spans and histograms of grants, refusals, releases and losses", async (world) => {
    const server = await world.server();
    const { client } = await world.connect(server);
    const spans = new InMemorySpanExporter();
    const tracers = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] });
    const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
    const meters = new MeterProvider({ readers: [new PeriodicExportingMetricReader({ exporter })] });
    const tracer = tracers.getTracer("test");
    observe(client, openTelemetry({ tracer, meter: meters.getMeter("test") }));

    // Of the caller's own span.
    await tracer.startActiveSpan("request", async (request) => {
      await new Lock(client, "k", { token: "me" }).using(async ({ fence }) => {
        assert.equal(await new Lock(client, "k", { token: "other" }).tryAcquire({ wait: 30 }), null);
        const [refused, ...more] = spans.getFinishedSpans().slice(1);
        assert.deepEqual([refused?.name, more], ["redislock.acquire", []]);
        assert.deepEqual(refused?.attributes, {
          "redislock.kind": "mutex",
          "redislock.outcome": "not_granted",
          "redislock.key": "k",
          "redislock.owner": "other",
        });
        assert.ok((refused?.duration[1] ?? 0) >= 25e6);
        assert.equal(spans.getFinishedSpans()[0]?.attributes["redislock.fence"], fence);
      });
      request.end();
      for (const span of spans.getFinishedSpans().slice(0, 3)) {
        assert.equal(span.parentSpanContext?.spanId, request.spanContext().spanId);
      }
    });
    const names = spans.getFinishedSpans().map(({ name, attributes }) => [name, attributes["redislock.outcome"]]);
    assert.deepEqual(names, [
      ["redislock.acquire", "granted"],
      ["redislock.acquire", "not_granted"],
      ["redislock.hold", "released"],
      ["request", undefined],
    ]);
    spans.reset();

    // A loss of everything that the owner held.
    const lock = new RLock(client, "r", { lease: 900, autoRenew: true });
    const outer = await lock.acquire();
    await lock.acquire({ within: outer });
    await server.ask("LOCK.BREAK", "r");
    await eventually(() => spans.getFinishedSpans().length === 4, "the loss");
    const lost = spans.getFinishedSpans().filter(({ name }) => name === "redislock.hold");
    assert.deepEqual(
      lost.map(({ attributes }) => attributes["redislock.outcome"]),
      ["lost", "lost"],
    );
    spans.reset();

    // The span reports an error.
    await server.ask("SET", "s", "v");
    await assert.rejects(new Lock(client, "s").acquire());
    assert.equal(spans.getFinishedSpans()[0]?.status.code, SpanStatusCode.ERROR);

    await meters.forceFlush();
    const found = exporter.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics.flatMap(({ metrics }) => metrics));
    const counted = found.map(({ descriptor: { name, unit }, dataPoints }) => [
      name,
      unit,
      Object.fromEntries(
        dataPoints.map(({ attributes, value }) => [
          `${attributes["redislock.kind"]} ${attributes["redislock.outcome"]} ${Object.keys(attributes).length}`,
          (value as Histogram).count,
        ]),
      ),
    ]);
    assert.deepEqual(counted, [
      ["redislock.wait.duration", "s", { "mutex not_granted 2": 2, "mutex granted 2": 1, "reentrant granted 2": 2 }],
      ["redislock.hold.duration", "s", { "mutex released 2": 1, "reentrant lost 2": 2 }],
    ]);
    await meters.shutdown();
    await tracers.shutdown();
    assert.equal(trace.getActiveSpan(), undefined);
  });
});

it("only the adapter imports OpenTelemetry", () => {
  const main = require.resolve("redis-lock-client");
  const imported = new Set<string>();
  const follow = (file: string): void => {
    if (imported.has(file)) return;
    imported.add(file);
    const text = readFileSync(file, "utf8");
    assert.ok(!text.includes("@opentelemetry"), file);
    for (const [, name = ""] of text.matchAll(/require\("(\.\/[^"]+)"\)/g)) follow(resolve(file, "..", name));
  };
  follow(main);
  assert.ok(imported.size > 10);
});
