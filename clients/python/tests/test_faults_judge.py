"""The checks of `make test-clients-faults` detect every kind of mistake."""

from __future__ import annotations

import importlib.util
from typing import Any, List

from servers import ROOT

spec = importlib.util.spec_from_file_location("faults", ROOT / "clients/faults/faults.py")
assert spec is not None and spec.loader is not None
faults: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(faults)


class Events:
    """A worker that printed these events."""

    name, exit_code = "rust", 0

    def __init__(self, *events: Any) -> None:
        self.events = events

    def of(self, kind: str) -> List[Any]:
        return [event for event in self.events if event["e"] == kind]


def held(fence: int, since: int, until: int, session: bool = False) -> Any:
    return {"e": "held", "key": "k", "fence": fence, "since": since, "until": until, "session": session}


def acquired(outcome: str, ended: int, cancelled: int = 0) -> Any:
    return {"e": "acquire", "wait": 500, "began": 0, "ended": ended, "outcome": outcome, "cancelled": cancelled}


END = {"e": "end", "left": 0}


def test_two_holders_and_a_fence_that_decreases_are_found() -> None:
    judge = faults.judge_holds
    assert judge([Events(held(1, 0, 10), held(3, 20, 30)), Events(held(2, 10, 20))]) == ([], 0)
    (both,), _ = judge([Events(held(1, 0, 11)), Events(held(2, 10, 20))])
    assert both.startswith("two holders of k for 1 ms")
    # A hold that began much earlier counts too.
    assert judge([Events(held(1, 0, 100), held(2, 5, 6)), Events(held(3, 50, 60))])[0]
    (back,), _ = judge([Events(held(2, 0, 10), held(1, 10, 20))])
    assert back.startswith("a fence of k went back")
    # A session that ends late is measured and is not an error; a session that begins later does not excuse an overlap.
    assert judge([Events(held(1, 0, 4000, session=True)), Events(held(2, 1000, 2000))]) == ([], 1000)
    assert judge([Events(held(1, 0, 4000)), Events(held(2, 1000, 2000, session=True))])[0]


def test_what_is_late_left_or_stuck_is_found() -> None:
    def wrong(*events: Any, exit_code: Any = 0) -> List[str]:
        worker = Events(*events)
        worker.exit_code = exit_code
        return list(faults.Verdict(worker).wrong)

    good = [acquired("granted", 100), held(1, 0, 10), {"e": "release", "began": 10, "ended": 20, "outcome": "released"}]
    assert wrong(*good, END) == []
    assert "did not end" in wrong(*good, END, exit_code=None)[0]
    assert "left" in wrong(*good, {"e": "end", "left": 1})[0] and "left" in wrong(*good)[0]
    assert "late" in wrong(*good, END, acquired("refused", 500 + 2000 + 1501))[0]
    assert "kept" in wrong(*good, END, acquired("cancelled", 100 + 1000 + 1501, cancelled=100))[0]
    assert "release took" in wrong(*good, END, {"e": "release", "began": 0, "ended": 17_000, "outcome": "failed"})[0]
    assert "unexpected" in wrong(*good, END, {"e": "unexpected", "what": "TypeError"})[0]
    assert "held nothing" in wrong(acquired("refused", 500), END)[0]
