"""Threads that end with their test."""

import threading

import pytest

SECONDS = 10.0  # what never takes so long unless it hangs


@pytest.fixture
def start():
    """Starts a function on a thread that has to end before the test does."""
    threads = []

    def start(function, *args):
        threads.append(threading.Thread(target=function, args=args, daemon=True))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
