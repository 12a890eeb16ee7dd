"""Tests written as coroutines."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(test(*args, **named))

    return run
