from __future__ import annotations

from typing import Any, AsyncIterator, Iterator

import pytest
import pytest_asyncio
from apis import AsyncioApi, SyncApi
from servers import Server


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture()
def server(shared_server: Server) -> Server:
    shared_server.admin.flushall()
    shared_server.admin.config_resetstat()
    return shared_server


@pytest_asyncio.fixture(params=[SyncApi, AsyncioApi], ids=["sync", "asyncio"])
async def api(request: Any) -> AsyncIterator[Any]:
    made = request.param()
    yield made
    await made.end()


def pytest_collection_modifyitems(items: Any) -> None:
    """The longest tests begin first, so that none of them runs alone at the end."""
    items.sort(key=lambda item: not any(mark.args == ("sale",) for mark in item.iter_markers("xdist_group")))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The measurements that tests report by record_property("summary", …)."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "summary":
                terminalreporter.write_line(value)
