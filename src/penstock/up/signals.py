"""Work that ends when the process is asked to stop."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def until_stopped(work: Coroutine[Any, Any, T]) -> T | None:
    """Do the work. At SIGINT, SIGTERM or SIGHUP cancel it, let it clean up, and return None."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    asked = False

    def stop() -> None:
        # Once only: to be asked again must not cut off the cleaning up.
        nonlocal asked
        if not asked:
            asked = True
            task.cancel()

    for number in STOP:
        loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if not asked:
            raise
        return None
    finally:
        for number in STOP:
            loop.remove_signal_handler(number)
