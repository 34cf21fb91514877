/**
 * OpenTelemetry spans and histograms for the locks of a client: `observe(client, openTelemetry())`. Only this module
 * needs `@opentelemetry/api`.
 */

import {
  metrics,
  SpanStatusCode,
  trace,
  type Attributes,
  type Meter,
  type Span,
  type Tracer,
} from "@opentelemetry/api";

import { shown, type LockEvent, type Observer } from "./observer.js";

/** The options of `openTelemetry`. */
export interface OpenTelemetryOptions {
  /** The tracer to use. Default: "redis-lock-client" of the registered provider. */
  tracer?: Tracer;
  /** The meter to use. Default: "redis-lock-client" of the registered provider. */
  meter?: Meter;
}

const NAME = "redis-lock-client";
// Bucket bounds, from an uncontended grant to the longest waits and holds.
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600, 1800];

/**
 * Returns an observer that records the spans `redislock.acquire` and `redislock.hold` in the context of the caller, and
 * the histograms `redislock.wait.duration` and `redislock.hold.duration` in seconds, with the attributes
 * `redislock.kind` and `redislock.outcome`. Key, owner and fence are attributes of the spans only, because their
 * cardinality is unbounded.
 */
export function openTelemetry(options: OpenTelemetryOptions = {}): Observer {
  const { tracer = trace.getTracer(NAME), meter = metrics.getMeter(NAME) } = options;
  const histogram = (name: string, description: string): ReturnType<Meter["createHistogram"]> =>
    meter.createHistogram(name, { description, unit: "s", advice: { explicitBucketBoundaries: SECONDS } });
  const waits = histogram("redislock.wait.duration", "From the call of an acquire to its outcome");
  const holds = histogram("redislock.hold.duration", "From the grant to the release or the loss");
  // The open holds, latest last: an owner may hold a lock more than once.
  const open = new Map<string, Span[]>();

  const acquired = (event: LockEvent & { event: "granted" | "not_granted" }): void => {
    const metric = { "redislock.kind": event.kind, "redislock.outcome": event.event };
    waits.record(event.wait / 1000, metric);
    const attributes = { ...metric, ...spanAttributes(event) };
    const span = tracer.startSpan("redislock.acquire", { startTime: Date.now() - event.wait, attributes });
    if ("error" in event) failed(span, event.error);
    span.end();
  };
  const begun = (event: LockEvent): void => {
    const attributes = { "redislock.kind": event.kind, ...spanAttributes(event) };
    const span = tracer.startSpan("redislock.hold", { attributes });
    open.set(holdOf(event), [...(open.get(holdOf(event)) ?? []), span]);
  };
  const ended = (event: LockEvent & { event: "released" | "lost" }): void => {
    const hold = holdOf(event);
    const spans = open.get(hold) ?? [];
    // A loss ends all holds of the owner.
    const over = event.event === "lost" ? spans.splice(0) : spans.splice(-1);
    if (spans.length === 0) open.delete(hold);
    for (const span of over) {
      holds.record(event.hold / 1000, { "redislock.kind": event.kind, "redislock.outcome": event.event });
      span.setAttribute("redislock.outcome", event.event);
      if ("error" in event) failed(span, event.error);
      span.end();
    }
  };

  return (event) => {
    if (event.event === "granted" || event.event === "not_granted") acquired(event);
    if (event.event === "granted") begun(event);
    if (event.event === "released" || event.event === "lost") ended(event);
  };
}

const holdOf = ({ kind, keys, owner }: LockEvent): string => JSON.stringify([kind, keys, owner]);

function spanAttributes(event: LockEvent): Attributes {
  const fence = "fence" in event ? { "redislock.fence": event.fence } : {};
  return { "redislock.key": event.keys.join(" "), "redislock.owner": event.owner, ...fence };
}

function failed(span: Span, error: unknown): void {
  span.setStatus({ code: SpanStatusCode.ERROR, message: shown(error) });
}
