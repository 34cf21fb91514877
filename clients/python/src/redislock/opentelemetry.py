"""Spans and histograms of OpenTelemetry for the locks of a client. Needs the extra `opentelemetry`.

    redislock.observe(client, redislock.opentelemetry.OpenTelemetry())
"""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from opentelemetry import metrics, trace

from ._observer import LockEvent

_NAME = "redislock"
Holding = Tuple[str, Tuple[str, ...], str]


class OpenTelemetry:
    """An observer that makes the spans `redislock.acquire` and `redislock.hold` in the context of the caller, and the
    histograms `redislock.wait.duration` and `redislock.hold.duration` in seconds, with `redislock.kind` and
    `redislock.outcome`. Key, owner and fence are attributes of spans only: their values are without number.

    `tracer`, `meter`: in place of those of the registered providers.
    """

    def __init__(self, tracer: Optional[trace.Tracer] = None, meter: Optional[metrics.Meter] = None) -> None:
        self._tracer = tracer or trace.get_tracer(_NAME)
        meter = meter or metrics.get_meter(_NAME)
        self._waits = meter.create_histogram(
            "redislock.wait.duration", "s", "From the call of an acquire to its outcome"
        )
        self._holds = meter.create_histogram(
            "redislock.hold.duration", "s", "From the grant to the release or the loss"
        )
        # The holds that are open, the latest last: an owner may hold a lock more than once.
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
            if event.hold is not None:
                self._holds.record(event.hold, metric)
            for span in self._ended(event):
                span.set_attribute("redislock.outcome", event.event)
                _end(span, event)

    def _ended(self, event: LockEvent) -> List[Any]:
        with self._mutex:
            spans = self._open.get(_holding(event), [])
            # A loss ends all that the owner held.
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
