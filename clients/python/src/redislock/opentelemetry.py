"""OpenTelemetry spans and histograms for the locks of a client. Needs the extra `opentelemetry`.

    redislock.observe(client, redislock.opentelemetry.OpenTelemetry())
"""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from opentelemetry import metrics, trace

from ._observer import LockEvent

_NAME = "redislock"
# Bucket bounds from an uncontended grant to the longest waits and holds. The default bounds are for milliseconds.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600, 1800)
Holding = Tuple[str, Tuple[str, ...], str]


class OpenTelemetry:
    """An observer that records spans and histograms of the locks.

    The spans are `redislock.acquire` and `redislock.hold`, in the context of the caller. The histograms are
    `redislock.wait.duration` and `redislock.hold.duration`, in seconds, with the attributes `redislock.kind` and
    `redislock.outcome`. Key, owner and fence are attributes of the spans only, because their cardinality is unbounded.

    Args:
        tracer: The tracer to use. Default None: that of the registered provider.
        meter: The meter to use. Default None: that of the registered provider.
    """

    def __init__(self, tracer: Optional[trace.Tracer] = None, meter: Optional[metrics.Meter] = None) -> None:
        self._tracer = tracer or trace.get_tracer(_NAME)
        meter = meter or metrics.get_meter(_NAME)

        def histogram(name: str, description: str) -> metrics.Histogram:
            return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=_SECONDS)

        self._waits = histogram("redislock.wait.duration", "From the call of an acquire to its outcome")
        self._holds = histogram("redislock.hold.duration", "From the grant to the release or the loss")
        # The open holds, latest last: an owner may hold a lock more than once.
        self._open: Dict[Holding, List[Any]] = {}
        self._mutex = threading.Lock()

    def __call__(self, event: LockEvent) -> None:
        metric = {"redislock.kind": event.kind, "redislock.outcome": event.event}
        if event.wait is not None:
            self._waits.record(event.wait, metric)
            began_ns = time.time_ns() - int(event.wait * 1e9)
            span = self._tracer.start_span("redislock.acquire", start_time=began_ns, attributes=_of_span(event, metric))
            _end(span, event)
        if event.event == "granted":
            kind = {"redislock.kind": event.kind}
            with self._mutex:
                self._open.setdefault(_holding(event), []).append(
                    self._tracer.start_span("redislock.hold", attributes=_of_span(event, kind))
                )
        if event.event in ("released", "lost"):
            # A failed release may be retried, but the hold ends only once.
            for span in self._ended(event):
                if event.hold is not None:
                    self._holds.record(event.hold, metric)
                span.set_attribute("redislock.outcome", event.event)
                _end(span, event)

    def _ended(self, event: LockEvent) -> List[Any]:
        with self._mutex:
            spans = self._open.get(_holding(event), [])
            # A loss ends all holds of the owner.
            over = list(spans) if event.event == "lost" else spans[-1:]
            del spans[len(spans) - len(over) :]
            if not spans:
                self._open.pop(_holding(event), None)
            return over


def _holding(event: LockEvent) -> Holding:
    return event.kind, event.keys, event.owner


def _of_span(event: LockEvent, attributes: Dict[str, str]) -> Dict[str, Any]:
    found: Dict[str, Any] = {**attributes, "redislock.key": " ".join(event.keys), "redislock.owner": event.owner}
    if event.fence is not None:
        found["redislock.fence"] = event.fence
    return found


def _end(span: Any, event: LockEvent) -> None:
    if event.error is not None:
        span.set_status(trace.Status(trace.StatusCode.ERROR, repr(event.error)))
    span.end()
