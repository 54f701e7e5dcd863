"""Functions that call themselves more often than Python lets them on its usual stack."""

import sys
import threading
from collections.abc import Callable

# Python itself compiles what is nested some thousands of times, such as a sum of as many terms;
# each takes a few calls here, which take less than 1 KB each.
_MOST_CALLS, _STACK_BYTES = 100_000, 2**28


def with_deep_recursion(function: Callable[[], None]) -> None:
    """Calls a function where it may call itself 100,000 times.

    Args:
        function: It. What it raises is raised.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    calls, stack = sys.getrecursionlimit(), threading.stack_size(_STACK_BYTES)
    try:
        sys.setrecursionlimit(max(calls, _MOST_CALLS))
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        threading.stack_size(stack)
        thread.join()
    finally:
        threading.stack_size(stack)
        sys.setrecursionlimit(calls)
    if raised:
        raise raised[0]
