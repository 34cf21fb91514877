"""Lets any number of tasks wait over one connection (NOTIFY), with a second one for the messages that answer them.

The server replies to a request at once, granted or queued, and publishes the outcome of a queued one. The transport
waits for that message and returns what BLOCK would have returned, so the protocol is the same. Messages are delivered
at most once, so a task that may have missed one sends its request again. It also does after a grant of a token that was
used before.

Two things must never happen: a reply is matched to another request, or a grant is taken from the message about an
earlier request of the same token.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Sequence, Tuple, Union

from redis.exceptions import ConnectionError, ResponseError, TimeoutError

from .. import _protocol as protocol
from .._by_object import ByObject
from .._cleanups import Cleanups, cleanups_of
from .._connections import new_connection
from .._fast_path import packed
from .._hold import clock
from .._replies import check_node, described, mark_repeated, mark_unsent
from .._steps import Argument, Command, Queued, Send
from ._transport import Transport

# How long after its request has timed out a message may arrive.
LATE_MESSAGE_S = 1.0
# The same for the message about a cancelled request.
VERY_LATE_S = 5.0
# A connection counts as dead if a request gets no reply for this long. A renewal shortly before its lease expires waits
# for less than that, and must not end the waits of other tasks.
SILENT_S = 0.9
# How long both connections stay open while no lock uses them.
IDLE_S = 10.0

Subject = Tuple[str, str]
INTERRUPTED = {"outcome": "interrupted"}
ASK_AGAIN = {"outcome": "granted"}


class SharedTransport:
    """Sends the commands of one lock over its client's shared connection."""

    by_message = True
    # The link on which the slice of a request has ended while the request is still queued.
    _queued_at: Optional[Link] = None

    def __init__(self, client: Any, key: Argument) -> None:
        self._client = client
        self._key = key
        # An earlier wait ended without its message: that may still come, or the request is still queued.
        self._message_pending = False

    @property
    def is_queued(self) -> bool:
        """True if the last request that was sent is still queued, although `send` has returned nil."""
        return self._queued_at is not None

    def socket_timeout(self) -> Optional[float]:
        # Reads of the shared connection have no socket timeout.
        return None

    def cleanups(self) -> Cleanups:
        return cleanups_of(self._client)

    async def close(self) -> None:
        """Does nothing, because the connection is shared."""

    async def send(self, step: Send) -> Any:
        if step.reply_to is not None or step.behind:
            # EXEC: its reply may be long, and is decoded as the client decodes it.
            return await Transport(self._client, self._key, own=False).send(step)
        pool = self._client.connection_pool
        link = await _links.of(pool).opened(pool, step.connect_s)
        try:
            if step.queued is None:
                return await link.request(step.command, step.within_s)
            return await self._wait(link, step, step.queued)
        except ResponseError as error:
            check_node(error)
            raise

    async def _wait(self, link: Link, step: Send, queued: Queued) -> Any:
        encoder = self._client.get_encoder()
        about = [(_as_in_message(encoder.encode(name)), _as_in_message(queued.token)) for name in queued.names]
        within_s = protocol.REPLY_MARGIN_S if step.within_s is None else min(protocol.REPLY_MARGIN_S, step.within_s)
        block_s = queued.block_ms / 1000
        began = clock()
        over = began + block_s
        is_last = queued.slice_s >= block_s

        async def request() -> Any:
            block_ms = max(1, round((over - clock()) * 1000))
            return await link.request((*queued.command(block_ms), "NOTIFY", link.channel), within_s)

        late_s = LATE_MESSAGE_S if step.within_s is None else max(0.0, min(LATE_MESSAGE_S, step.within_s - block_s))
        until = over + late_s if is_last else began + queued.slice_s
        waiter = link.register(about)
        queued_at, self._queued_at = self._queued_at, None
        message_pending, self._message_pending = self._message_pending, True
        # If the request of the slice before is still queued here, this one takes over its position without a message.
        may_be_superseded, asked_again = message_pending and queued_at is not link, False
        try:
            reply = await request()
            waiter.is_owed = waiter.is_owed and _is_queued(reply)
            if not _is_queued(reply) and queued_at is link and await waiter.next(LATE_MESSAGE_S) is None:
                # It was queued when its last slice ended, so there is a message. The subscription may be dead.
                link.end(ConnectionError("no message about a queued request"))
            while _is_queued(reply):
                message = await waiter.next(until - clock())
                outcome = None if message is None else message.get("outcome")
                if outcome is None and not is_last:
                    # The next request takes over its position, and gets its message.
                    self._queued_at, waiter.is_owed = link, False
                    return None
                if outcome is None:
                    if not asked_again:
                        # The subscription may be dead.
                        link.end(ConnectionError("no message about a queued request"))
                    raise TimeoutError("No message about the queued request")
                if outcome == "granted" and queued.is_new and not message_pending and message is not ASK_AGAIN:
                    reply = _granted(queued.token, message)
                elif outcome == "granted":
                    # The message may concern an earlier request of this token. The reply to the same request decides.
                    may_be_superseded = asked_again = waiter.is_owed = True
                    reply = await request()
                    waiter.is_owed = _is_queued(reply) or message is ASK_AGAIN
                elif outcome == "timeout":
                    # If it is too early for this request, it concerns an earlier one.
                    reply = None if clock() > over - 0.005 else reply
                    waiter.is_owed = reply is not None
                elif outcome == "done":
                    if message_pending or asked_again:
                        # The message concerns an earlier request, and this one may be queued or granted.
                        await link.request(("LOCK.CANCEL", self._key, queued.token), within_s)
                        await link.request(("LOCK.RELEASE", self._key, queued.token, "FAILED"), within_s)
                    reply = [None, message["fence"]]
                elif outcome == "superseded":
                    if not may_be_superseded and not waiter.has_twin:
                        # The position belongs to the other request now, so it is not withdrawn.
                        message_pending = asked_again = False
                        raise ResponseError("UNBLOCKED superseded by a newer request")
                    may_be_superseded = False
                elif outcome == "cancelled":
                    raise ResponseError("UNBLOCKED cancelled")
                else:
                    # Unblocked, moved, interrupted, another type: the reply to the next request has the reason.
                    raise ConnectionError(f"The wait was cancelled: {outcome}")
            self._message_pending = False
            return reply
        except ResponseError as error:
            if message_pending or asked_again:
                mark_repeated(error)
            else:
                self._message_pending = waiter.is_owed = False
            raise
        finally:
            waiter.leave(max(0.0, over - clock()) + VERY_LATE_S)


def _is_queued(reply: Any) -> bool:
    return reply is not None and reply[0] is not None and int(reply[1]) == 0


def _granted(token: bytes, message: Any) -> List[Any]:
    """What the request would have returned."""
    slot = [message["slot"]] if "slot" in message else []
    return [token, message["fence"], message["holds"], *slot]


def _as_in_message(word: bytes) -> str:
    """A key or token as messages contain it: a string, or base64 if it is not UTF-8."""
    try:
        return json.dumps(word.decode())
    except UnicodeDecodeError:
        return json.dumps({"base64": base64.b64encode(word).decode()})


class Waiter:
    """The messages about one request."""

    def __init__(self, link: Link, about: Sequence[Subject]) -> None:
        # True if another request of the same owner waits for the same key.
        self.has_twin = False
        # True if the request was queued and its message is still to come.
        self.is_owed = True
        self.has_left = False
        self._link = link
        self._about = about
        self._messages: Deque[Any] = deque()
        self._delivered = asyncio.Event()

    def deliver(self, message: Any) -> None:
        self.is_owed = False
        self._messages.append(message)
        self._delivered.set()

    async def next(self, longest_s: float) -> Any:
        """The next message; None: none arrived in this time."""
        if not self._messages:
            self._delivered.clear()
            delivery = asyncio.ensure_future(self._delivered.wait())
            try:
                await asyncio.wait([delivery], timeout=max(0.0, longest_s))
                if not self._messages:
                    # After the event loop was blocked, messages that arrived meanwhile are handled after the timer.
                    await asyncio.sleep(0.01)
            finally:
                delivery.cancel()
        return self._messages.popleft() if self._messages else None

    def leave(self, longest_s: float) -> None:
        """Ends the wait. A message still to come within `longest_s` seconds does not belong to the next request."""
        self.has_left = True
        if self.is_owed:
            self._link.leave_later(self, longest_s)
        else:
            self.remove()

    def remove(self) -> None:
        self._link.remove(self, self._about)


class Link:
    """The two connections, until either of them ends."""

    def __init__(self, pool: Any) -> None:
        self.channel = f"redislock:{secrets.token_hex(8)}"
        self.is_over = False
        self._loop = asyncio.get_running_loop()
        self._requests: Any = None
        self._listener: Any = None
        # The second element is the time when the request was sent.
        self._pending: "Deque[Tuple[asyncio.Future[Any], float]]" = deque()
        self._waiters: Dict[Subject, List[Waiter]] = {}
        self._idle: Optional[asyncio.TimerHandle] = None
        self._reading: "List[asyncio.Task[None]]" = []
        self.opening = self._loop.create_task(self._open(pool))

    async def _open(self, pool: Any) -> None:
        try:
            self._requests = new_connection(pool)
            self._listener = new_connection(pool)
            await self._requests.connect()
            await self._listener.connect()
            await self._listener.send_command("SUBSCRIBE", self.channel, check_health=False)
            # Messages that are published before the confirmation are lost.
            await self._push()
            # The timeout was that for connecting.
            self._requests.socket_timeout = self._listener.socket_timeout = None
        except BaseException as error:
            self.end(error)
            raise
        self._reading = [self._loop.create_task(self._replies()), self._loop.create_task(self._messages())]
        self._rest()

    async def request(self, command: Command, within_s: Optional[float]) -> Any:
        """Sends a command and waits for its reply, which comes at once because no request blocks here."""
        if self.is_over:
            raise ConnectionError("The shared connection has ended")
        # First, because it raises for an argument that cannot be sent, and no reply would come.
        data = packed(self._requests.encoder, command)
        reply: "asyncio.Future[Any]" = self._loop.create_future()
        # No await between these two, nor inside the write: replies are matched to requests by their order.
        self._pending.append((reply, clock()))
        try:
            self._requests._writer.writelines([data])
        except Exception as reset:
            # The connection was reset and its reader does not know yet: writelines() of Python 3.12 does not check.
            self.end(reset)
            raise ConnectionError("The shared connection has ended") from reset
        except BaseException as interrupt:
            self.end(interrupt)
            raise
        await asyncio.wait([reply], timeout=within_s)
        if not reply.done():
            error = TimeoutError(f"No reply within {within_s} s")
            if self._pending and clock() - self._pending[0][1] >= SILENT_S:
                self.end(error)
            raise error
        self._rest()
        return reply.result()

    def register(self, about: Sequence[Subject]) -> Waiter:
        """Must be called before the request is sent, because its message may come before its reply."""
        waiter = Waiter(self, about)
        for subject in about:
            self._waiters.setdefault(subject, []).append(waiter)
        return waiter

    def leave_later(self, waiter: Waiter, longest_s: float) -> None:
        if not self.is_over and not self._loop.is_closed():
            self._loop.call_later(longest_s, waiter.remove)

    def remove(self, waiter: Waiter, about: Sequence[Subject]) -> None:
        for subject in about:
            others = self._waiters.get(subject, [])
            if waiter in others:
                others.remove(waiter)
            if not others:
                self._waiters.pop(subject, None)

    def end(self, error: BaseException) -> None:
        """Fails each request without a reply, and makes each queued request be sent again."""
        if self.is_over:
            return
        self.is_over = True
        if self._idle is not None:
            self._idle.cancel()
        for reading in self._reading:
            reading.cancel()
        for connection in (self._requests, self._listener):
            writer = None if connection is None else connection._writer
            if writer is not None and not self._loop.is_closed():
                writer.close()
        for reply, _ in self._pending:
            if not reply.done():
                ended = ConnectionError(f"The shared connection has ended: {described(error)}")
                ended.__cause__ = error
                reply.set_exception(ended)
                # Mark it as retrieved, because the caller may be gone.
                reply.exception()
        self._pending.clear()
        for waiters in list(self._waiters.values()):
            for waiter in waiters:
                waiter.deliver(INTERRUPTED)

    def belongs_here(self) -> bool:
        """False: the link has ended, or belongs to another event loop."""
        return not self.is_over and self._loop is asyncio.get_running_loop()

    def _rest(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        if not self.is_over:
            self._idle = self._loop.call_later(IDLE_S, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if self._pending or self._waiters:
            self._rest()
        else:
            self.end(ConnectionError("idle"))

    async def _replies(self) -> None:
        try:
            while True:
                reply: Any
                try:
                    reply = await self._requests.read_response(disable_decoding=True)
                except ResponseError as error:
                    reply = error
                waiting, _ = self._pending.popleft()
                # Its caller may have been cancelled.
                if waiting.done():
                    continue
                if isinstance(reply, Exception):
                    waiting.set_exception(reply)
                    waiting.exception()
                else:
                    waiting.set_result(reply)
        except BaseException as error:
            self.end(error)
            if not isinstance(error, Exception):
                raise

    async def _messages(self) -> None:
        try:
            while True:
                # RESP3 may deliver other pushes as well, and redis-py 5.0 decodes them in any case.
                push = await self._push()
                if isinstance(push, list) and push[0] in (b"message", "message"):
                    self._deliver(push[2])
        except BaseException as error:
            self.end(error)
            if not isinstance(error, Exception):
                raise

    async def _push(self) -> Any:
        # In RESP2 a message is an ordinary reply, and some parsers of redis-py 5.0 do not accept the argument.
        pushes = {"push_request": True} if self._listener.protocol in (3, "3") else {}
        return await self._listener.read_response(disable_decoding=True, **pushes)

    def _deliver(self, text: Union[bytes, str]) -> None:
        try:
            message = json.loads(text)
            about = json.dumps(message["key"]), json.dumps(message["token"])
            waiters = self._waiters.get(about, [])
        except (ValueError, KeyError, TypeError):
            # Not from the module: another client publishes on our channel.
            return
        left = next((waiter for waiter in waiters if waiter.has_left), None)
        if left is not None:
            # It concerns the oldest request, which was cancelled. A waiter that is still here sends its request again.
            left.remove()
            message = ASK_AGAIN
        present = [waiter for waiter in waiters if not waiter.has_left]
        # An owner may wait for a key in two modes, and the message does not name the mode. So both send their request
        # again, which keeps their queue position, and ignore the message that they were superseded.
        has_twin = len(present) > 1
        for waiter in present:
            waiter.has_twin = waiter.has_twin or has_twin
            if not has_twin:
                waiter.deliver(message)
            elif message.get("outcome") != "superseded":
                waiter.deliver(ASK_AGAIN)


class Links:
    """Holds the current link of a pool."""

    def __init__(self, pool: Any) -> None:
        # No reference to the pool: it is the weak key of this object.
        self._link: Optional[Link] = None

    async def opened(self, pool: Any, connect_s: float) -> Link:
        link = self._link
        if link is None or not link.belongs_here():
            link = self._link = Link(pool)
            link.opening.add_done_callback(lambda opening: opening.cancelled() or opening.exception())
        try:
            if not link.opening.done():
                # The attempt serves all tasks, so a cancellation must end only the caller.
                await asyncio.wait([link.opening], timeout=max(connect_s, 0.0))
            if not link.opening.done():
                place = ":".join(str(pool.connection_kwargs.get(part, "")) for part in ("host", "port"))
                raise TimeoutError(f"Not connected to {place} within {connect_s:.3f} s")
            link.opening.result()
        except BaseException as error:
            mark_unsent(error)
            raise
        return link


_links: ByObject[Links] = ByObject(Links)
