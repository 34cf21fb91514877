"""Starts daemon threads, even in the main thread with its signal handlers."""

from __future__ import annotations

import _thread
import sys
import threading
from typing import List


def start(thread: threading.Thread) -> None:
    """Starts the thread. Raises RuntimeError if a limit of threads or processes is reached, or the interpreter is
    shutting down.

    If a signal handler raises in Python's own start(), locks of the thread stay locked and it hangs. Only the main
    thread gets signals, so there a helper thread does it."""
    if sys.is_finalizing():
        # Before Python 3.12 start() would hang here.
        raise RuntimeError("can't start new thread at interpreter shutdown")
    if threading.current_thread() is not threading.main_thread():
        thread.start()
        return
    starting = threading.Lock()
    starting.acquire()
    errors: List[RuntimeError] = []

    def start() -> None:
        try:
            thread.start()
        except RuntimeError as error:
            errors.append(error)
        finally:
            starting.release()

    _thread.start_new_thread(start, ())
    starting.acquire()
    if errors:
        raise errors[0]
