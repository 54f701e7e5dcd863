"""Calls functions that recurse deeper than Python lets them on its usual stack."""

import sys
import threading
from collections.abc import Callable

# Python compiles expressions that are nested some thousands of times, such as a sum of as many
# terms. Each level takes a few calls here, of less than 1 KB of stack each.
_MOST_CALLS, _STACK_BYTES = 100_000, 2**28


def with_deep_recursion(function: Callable[[], object]) -> None:
    """Calls a function where it may call itself 100,000 times, and raises what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    calls, stack = sys.getrecursionlimit(), threading.stack_size(_STACK_BYTES)
    try:
        sys.setrecursionlimit(max(calls, _MOST_CALLS))
        # Only a new thread can have a larger stack.
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        threading.stack_size(stack)
        thread.join()
    finally:
        threading.stack_size(stack)
        sys.setrecursionlimit(calls)
    if raised:
        raise raised[0]
