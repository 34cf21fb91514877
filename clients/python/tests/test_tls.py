"""Over TLS: the locks' own connections (sessions, replicas, waiters beyond the pool) have to be encrypted too."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Iterator, List

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import LockNotOwnedError
from servers import SERVER, Server, eventually, free_port


def certificate(directory: Path) -> List[str]:
    """A new key and certificate, as options of a server that only accepts TLS from clients."""
    key, cert = str(directory / "key.pem"), str(directory / "cert.pem")
    # Unlike an RSA key, it is made in milliseconds.
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    openssl = ["openssl", "req", "-x509", *curve, "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subject = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", key, "-out", cert]
    subprocess.run([*openssl, *subject], check=True, capture_output=True)
    return ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no"]


class TlsServer(Server):
    """Its plain port is the test's own; clients get the other one."""

    def __init__(self, certificate_options: List[str], *options: str) -> None:
        self.tls_port = free_port()
        super().__init__("--tls-port", str(self.tls_port), *certificate_options, *options)
        self.client_options = {"ssl": True, "ssl_ca_certs": certificate_options[1]}


# One server for all tests.
pytestmark = pytest.mark.xdist_group("tls")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: Any) -> Iterator[TlsServer]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    options = certificate(tmp_path_factory.mktemp("tls"))
    try:
        server = TlsServer(options)
    except AssertionError as error:
        if "Bad directive" in str(error) or "TLS support" in str(error):
            pytest.skip(f"{SERVER} was built without TLS")
        raise
    replica = TlsServer(options, "--tls-replication", "yes", "--replicaof", "127.0.0.1", str(server.tls_port))
    yield server
    for each in (replica, server):
        each.stop()


@pytest.fixture()
def server(tls: TlsServer) -> TlsServer:
    tls.admin.flushall()
    tls.admin.config_resetstat()
    return tls


def encrypted(server: TlsServer, client_id: int) -> bool:
    """True if that connection was accepted at the TLS port."""
    (client,) = [each for each in server.admin.client_list() if int(each["id"]) == client_id]
    return str(client["laddr"]).endswith(f":{server.tls_port}")


async def test_acquire_wait_and_release(api: Any, server: TlsServer) -> None:
    client, holder, waiter = api.client(server.tls_port, **server.client_options), api.actor(), api.actor()
    lock, other = api.locks.Lock(client, "k", timeout=60), api.locks.Lock(client, "k", timeout=60)
    assert await holder.do(lock.acquire)
    # A second request of the wait, with a socket timeout and without.
    for socket_timeout in (1.2, None):
        patient = api.client(server.tls_port, socket_timeout=socket_timeout, **server.client_options)
        assert not await waiter.do(api.locks.Lock(patient, "k").acquire, blocking_timeout=2)
    waiting = waiter.start(other.acquire)
    await eventually(lambda: server.waiters("k"), "a waiter")
    await holder.do(lock.release)
    assert await waiting
    await waiter.do(other.release)
    assert server.info("k") is None


async def test_a_session_is_kept_and_lost(api: Any, server: TlsServer) -> None:
    client, actor = api.client(server.tls_port, **server.client_options), api.actor()
    reported: Any = []
    lock = api.locks.Lock(client, "k", timeout=1.2, session=True, on_lost=reported.append)
    assert await actor.do(lock.acquire)
    (holder,) = server.holders("k")
    assert encrypted(server, holder["session"])
    await eventually(lambda: server.holders("k")[0]["age"] > 3000, "a hold that outlives its lease")
    assert not reported
    server.ask("CLIENT", "KILL", "ID", holder["session"])
    await eventually(lambda: reported, "the callback")
    with pytest.raises(LockNotOwnedError):
        await actor.do(lock.release)


async def test_replicas_confirm(api: Any, server: TlsServer) -> None:
    await eventually(lambda: server.admin.info("replication")["connected_slaves"] == 1, "the replica")
    client, actor = api.client(server.tls_port, **server.client_options), api.actor()
    lock = api.locks.Lock(client, "k", timeout=60, replicas=1, replica_timeout=60_000)
    assert await actor.do(lock.acquire)
    assert server.calls("wait") == 1
    await actor.do(lock.release)


async def test_waiters_beyond_the_pool(api: Any, server: TlsServer) -> None:
    client = api.client(server.tls_port, max_connections=2, **server.client_options)
    holder, actors = api.actor(), [api.actor() for _ in range(4)]
    lock = api.locks.Lock(client, "k", timeout=60)
    assert await holder.do(lock.acquire)
    locks = [api.locks.Lock(client, "k", timeout=60) for _ in actors]
    turns = [actor.start(each.acquire) for actor, each in zip(actors, locks)]
    await eventually(lambda: len(server.waiters("k")) == 4, "four waiters")
    assert all(encrypted(server, client_id) for client_id in waiting_clients(server))
    await holder.do(lock.release)
    # First come, first served; the order of arrival is not known here.
    pending = dict(zip(turns, zip(actors, locks)))
    while pending:
        turn = await eventually(lambda: next((turn for turn in pending if turn.done()), None), "a grant")
        actor, each = pending.pop(turn)
        assert turn.result()
        await actor.do(each.release)


def waiting_clients(server: TlsServer) -> List[int]:
    return [dict(zip(flat[::2], flat[1::2]))["client"] for flat in server.ask("LOCK.WAITERS", "k", "COUNT", 0)]


async def test_a_certificate_of_another_authority_is_refused(api: Any, server: TlsServer) -> None:
    client = api.client(server.tls_port, ssl=True, retry=api.retry(NoBackoff(), 0))
    with pytest.raises(redis.ConnectionError):
        await api.actor().do(api.locks.Lock(client, "k", timeout=1, session=True).acquire, blocking=False)
