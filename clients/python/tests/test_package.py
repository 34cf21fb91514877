"""The tests import the installed wheel."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import redislock


def test_the_client_under_test_is_that_of_the_wheel() -> None:
    distribution = importlib.metadata.distribution("redis-lock-client")
    installed = Path(str(distribution.locate_file("redislock/__init__.py")))
    assert Path(redislock.__file__) == installed
    assert "site-packages" in installed.parts
    assert distribution.read_text("direct_url.json"), "it was installed from a file"
    assert '"dir_info"' not in (distribution.read_text("direct_url.json") or "")
