"""A common interface to both clients, so that each test is written once. An actor is a thread
for the sync client and a task for asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import queue
import threading
from typing import Any, Callable, List

import redis as redis_sync
import redis.asyncio as redis_asyncio
import redis.asyncio.retry
import redis.asyncio.sentinel as redis_asyncio_sentinel
import redis.retry
import redis.sentinel as redis_sentinel
import redislock
import redislock.asyncio


class ThreadActor:
    """A daemon thread: a failing test may leave it waiting for a lock."""

    def __init__(self) -> None:
        self._calls: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            call, done = self._calls.get()
            if call is None:
                return
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)

    def start(self, call: Callable[..., Any], *args: Any, **named: Any) -> "asyncio.Future[Any]":
        done: "concurrent.futures.Future[Any]" = concurrent.futures.Future()
        self._calls.put((lambda: call(*args, **named), done))
        return asyncio.wrap_future(done)

    async def do(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return await self.start(call, *args, **named)

    async def end(self) -> None:
        self._calls.put((None, None))


class TaskActor:
    def __init__(self) -> None:
        self._queue: "asyncio.Queue[Any]" = asyncio.Queue()
        self._task = asyncio.ensure_future(self._work())

    async def _work(self) -> None:
        while True:
            call, done = await self._queue.get()
            try:
                result = call()
                if inspect.isawaitable(result):
                    result = await result
                if not done.done():
                    done.set_result(result)
            except Exception as error:
                if not done.done():
                    done.set_exception(error)

    def start(self, call: Callable[..., Any], *args: Any, **named: Any) -> "asyncio.Future[Any]":
        done = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((lambda: call(*args, **named), done))
        return done

    async def do(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return await self.start(call, *args, **named)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class Api:
    """The client under test: its classes, and redis-py's."""

    name: str
    redis: Any
    locks: Any
    sentinel: Any
    retry: Any
    cluster: Any
    _actor: Any

    def __init__(self) -> None:
        self._actors: List[Any] = []
        self._clients: List[Any] = []

    def client(self, port: int, **options: Any) -> Any:
        return self.closes(self.redis(port=port, **options))

    def closes(self, client: Any) -> Any:
        self._clients.append(client)
        return client

    def actor(self) -> Any:
        actor = self._actor()
        self._actors.append(actor)
        return actor

    async def end(self) -> None:
        for actor in self._actors:
            await actor.end()
        for client in self._clients:
            closing = client.aclose() if hasattr(client, "aclose") else client.close()
            if inspect.isawaitable(closing):
                await closing


class SyncApi(Api):
    name = "sync"
    redis = redis_sync.Redis
    cluster = redis_sync.RedisCluster
    sentinel = redis_sentinel.Sentinel
    locks = redislock
    retry = redis_sync.retry.Retry
    _actor = ThreadActor


class AsyncioApi(Api):
    name = "asyncio"
    redis = redis_asyncio.Redis
    cluster = redis_asyncio.RedisCluster
    sentinel = redis_asyncio_sentinel.Sentinel
    locks = redislock.asyncio
    retry = redis_asyncio.retry.Retry
    _actor = TaskActor
