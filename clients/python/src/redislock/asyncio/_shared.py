"""Waits of any number of tasks over one connection (NOTIFY), and a second one for the messages that answer them.

The server answers a request at once, granted or queued, and publishes what becomes of a queued one. The transport waits
for that message and answers as BLOCK would, so the protocol is the same. A message is delivered at most once: a task
that may have missed one asks again.

Must never happen: a reply that is taken for that of another request; a grant that is taken from the message of an
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
from .._hold import clock
from .._replies import check_node, described, mark_unsent
from .._steps import Argument, Command, Queued, Send
from ._transport import Transport

# A message may be so much later than the end of the request's time.
LATE_MESSAGE_S = 1.0
# The message about a request that was given up may be so much later than the end of the request's time.
VERY_LATE_S = 5.0
# A connection that leaves a request without a reply for so long has ended. A renewal shortly before the end of its
# lease waits for less, and must not end the waits of other tasks.
SILENT_S = 0.9
# How long both connections stay when no lock uses them.
IDLE_S = 10.0

Subject = Tuple[str, str]
INTERRUPTED = {"outcome": "interrupted"}
ASK_AGAIN = {"outcome": "granted"}


class SharedTransport:
    """Sends the commands of one lock over its client's shared connection."""

    by_message = True

    def __init__(self, client: Any, key: Argument) -> None:
        self._client = client
        self._key = key
        # An earlier wait ended without a message, which may still come, or its request is still queued.
        self._untold = False

    def socket_timeout(self) -> Optional[float]:
        # No read of it is limited by the socket.
        return None

    def cleanups(self) -> Cleanups:
        return cleanups_of(self._client)

    async def close(self) -> None:
        """It is not this lock's own connection."""

    async def send(self, step: Send) -> Any:
        if step.reply_to is not None or step.behind:
            # EXEC: its reply may be long, and is decoded as the client does it.
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
        about = [(_told(encoder.encode(name)), _told(queued.token)) for name in queued.names]
        command = (*step.command, "NOTIFY", link.channel)
        within_s = protocol.REPLY_MARGIN_S if step.within_s is None else min(protocol.REPLY_MARGIN_S, step.within_s)
        block_s = queued.block_ms / 1000
        over = clock() + block_s
        late_s = LATE_MESSAGE_S if step.within_s is None else max(0.0, min(LATE_MESSAGE_S, step.within_s - block_s))
        waiter = link.register(about)
        untold, self._untold = self._untold, True
        may_be_superseded, asked_again = untold, False
        try:
            reply = await link.request(command, within_s)
            waiter.is_owed = waiter.is_owed and _is_queued(reply)
            while _is_queued(reply):
                message = await waiter.next(over + late_s - clock())
                outcome = None if message is None else message.get("outcome")
                if outcome is None:
                    if not asked_again:
                        # The subscription may hear nothing any more.
                        link.end(ConnectionError("no message about a queued request"))
                    raise TimeoutError("No message about the queued request")
                if outcome == "granted":
                    # It may be of an earlier request of this token: the reply to the same request says.
                    reply = await link.request(command, within_s)
                    may_be_superseded = asked_again = True
                    waiter.is_owed = _is_queued(reply) or message is ASK_AGAIN
                elif outcome == "timeout":
                    # Too early for this request: it is of an earlier one.
                    reply = None if clock() > over - 0.005 else reply
                    waiter.is_owed = reply is not None
                elif outcome == "done":
                    if untold or asked_again:
                        # An earlier request was answered, and this one may be queued or granted.
                        await link.request(("LOCK.CANCEL", self._key, queued.token), within_s)
                        await link.request(("LOCK.RELEASE", self._key, queued.token, "FAILED"), within_s)
                    reply = [None, message["fence"]]
                elif outcome == "superseded":
                    if not may_be_superseded and not waiter.has_twin:
                        raise ResponseError("UNBLOCKED superseded by a newer request")
                    may_be_superseded = False
                elif outcome == "cancelled":
                    raise ResponseError("UNBLOCKED cancelled")
                else:
                    # Unblocked, moved, interrupted, another type: the reply to the next request says more.
                    raise ConnectionError(f"The wait was cancelled: {outcome}")
            self._untold = False
            return reply
        except ResponseError:
            self._untold = waiter.is_owed = False
            raise
        finally:
            waiter.leave(max(0.0, over - clock()) + VERY_LATE_S)


def _is_queued(reply: Any) -> bool:
    return reply is not None and reply[0] is not None and int(reply[1]) == 0


def _told(word: bytes) -> str:
    """A word as the messages write it: a string, or the base64 of what is not UTF-8."""
    try:
        return json.dumps(word.decode())
    except UnicodeDecodeError:
        return json.dumps({"base64": base64.b64encode(word).decode()})


class Waiter:
    """The messages about one request."""

    def __init__(self, link: Link, about: Sequence[Subject]) -> None:
        # Another request of the same owner waits for the same key.
        self.has_twin = False
        # The message that answers the request is still to come, if the request was queued.
        self.is_owed = True
        self.has_left = False
        self._link = link
        self._about = about
        self._messages: Deque[Any] = deque()
        self._told = asyncio.Event()

    def tell(self, message: Any) -> None:
        self.is_owed = False
        self._messages.append(message)
        self._told.set()

    async def next(self, longest_s: float) -> Any:
        """The next message; None: none came in this time."""
        if not self._messages:
            self._told.clear()
            telling = asyncio.ensure_future(self._told.wait())
            try:
                await asyncio.wait([telling], timeout=max(0.0, longest_s))
                if not self._messages:
                    # After a pause of the event loop, what has arrived meanwhile comes behind the timer.
                    await asyncio.sleep(0.01)
            finally:
                telling.cancel()
        return self._messages.popleft() if self._messages else None

    def leave(self, longest_s: float) -> None:
        """A message that is owed may still come, for so many seconds: it is not the next request's."""
        self.has_left = True
        if self.is_owed:
            self._link.leave_later(self, longest_s)
        else:
            self.remove()

    def remove(self) -> None:
        self._link.remove(self, self._about)


class Link:
    """The two connections, from their connecting to the end of either."""

    def __init__(self, pool: Any) -> None:
        self.channel = f"redislock:{secrets.token_hex(8)}"
        self.is_over = False
        self._loop = asyncio.get_running_loop()
        self._requests: Any = None
        self._listener: Any = None
        # When each was sent, too.
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
            # What is published before the confirmation is lost.
            await self._push()
            # It was the limit for connecting.
            self._requests.socket_timeout = self._listener.socket_timeout = None
        except BaseException as error:
            self.end(error)
            raise
        self._reading = [self._loop.create_task(self._replies()), self._loop.create_task(self._messages())]
        self._rest()

    async def request(self, command: Command, within_s: Optional[float]) -> Any:
        """Sends it, and waits for its reply: at once, as no request blocks here."""
        if self.is_over:
            raise ConnectionError("The shared connection has ended")
        # It raises if an argument cannot be sent: then no reply comes.
        packed = self._requests.pack_command(*command)
        reply: "asyncio.Future[Any]" = self._loop.create_future()
        # No pause between these two, nor inside of the writing: the order of the replies is that of the requests.
        self._pending.append((reply, clock()))
        try:
            self._requests._writer.writelines(packed)
        except Exception as reset:
            # The connection was reset, and its reader does not know yet: writelines() of Python 3.12 does not check.
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
        """Before the request is sent: its message may come before its reply."""
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
        """Each request without a reply fails, and each queued one is asked again."""
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
                # Its caller may have gone.
                reply.exception()
        self._pending.clear()
        for waiters in list(self._waiters.values()):
            for waiter in waiters:
                waiter.tell(INTERRUPTED)

    def belongs_here(self) -> bool:
        """False: it ended, or another event loop runs."""
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
                # With RESP3 there may be other pushes, and redis-py 5.0 decodes them in any case.
                push = await self._push()
                if isinstance(push, list) and push[0] in (b"message", "message"):
                    self._deliver(push[2])
        except BaseException as error:
            self.end(error)
            if not isinstance(error, Exception):
                raise

    async def _push(self) -> Any:
        # With RESP2 a message is a reply as any other, and not all of redis-py 5.0 takes the argument.
        pushes = {"push_request": True} if self._listener.protocol in (3, "3") else {}
        return await self._listener.read_response(disable_decoding=True, **pushes)

    def _deliver(self, text: Union[bytes, str]) -> None:
        try:
            message = json.loads(text)
            about = json.dumps(message["key"]), json.dumps(message["token"])
            waiters = self._waiters.get(about, [])
        except (ValueError, KeyError, TypeError):
            # Another client publishes on our channel.
            return
        left = next((waiter for waiter in waiters if waiter.has_left), None)
        if left is not None:
            # Of a request that was given up, as it is the oldest: the reply to the request of a present waiter says.
            left.remove()
            message = ASK_AGAIN
        present = [waiter for waiter in waiters if not waiter.has_left]
        # An owner may wait for a key in two modes, and the message does not name the mode. So both send their request
        # again, which finds their place in the queue, and ignore a message that they were superseded.
        has_twin = len(present) > 1
        for waiter in present:
            waiter.has_twin = waiter.has_twin or has_twin
            if not has_twin:
                waiter.tell(message)
            elif message.get("outcome") != "superseded":
                waiter.tell(ASK_AGAIN)


class Links:
    """The current link of a pool."""

    def __init__(self, pool: Any) -> None:
        # No reference to the pool: it is the key under which this is kept.
        self._link: Optional[Link] = None

    async def opened(self, pool: Any, connect_s: float) -> Link:
        link = self._link
        if link is None or not link.belongs_here():
            link = self._link = Link(pool)
            link.opening.add_done_callback(lambda opening: opening.cancelled() or opening.exception())
        try:
            if not link.opening.done():
                # The attempt serves all tasks: a cancellation ends only the caller.
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
